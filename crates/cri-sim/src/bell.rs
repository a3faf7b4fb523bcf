//! What many may wait for, and what wakes them in the order in which they began to: news, and an end.
//!
//! A `watch` channel would wake them in an order of its own, which differs from run to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: AtomicU64,
    news: Notify,
}

impl Bell {
    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.news.notify_waiters();
    }

    /// Somebody who hears it from now on.
    pub(crate) fn listen(self: &Arc<Bell>) -> Listener {
        Listener { bell: Arc::clone(self), heard: self.rings.load(Ordering::Relaxed) }
    }
}

/// Somebody who hears a bell.
#[derive(Debug)]
pub(crate) struct Listener {
    bell: Arc<Bell>,
    heard: u64,
}

impl Listener {
    /// Waits until it has rung since the last time.
    pub(crate) async fn changed(&mut self) {
        loop {
            let news = self.bell.news.notified();
            let rings = self.bell.rings.load(Ordering::Relaxed);
            if rings != self.heard {
                self.heard = rings;
                return;
            }
            news.await;
        }
    }
}

/// Whether something has ended. What is gone has.
#[derive(Debug, Default)]
pub(crate) struct Ended(CancellationToken);

impl Ended {
    pub(crate) fn tell(&self) {
        self.0.cancel();
    }

    /// What is cancelled with the end.
    pub(crate) fn subscribe(&self) -> CancellationToken {
        self.0.clone()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.tell();
    }
}
