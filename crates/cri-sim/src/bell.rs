//! Something that many may wait for, and that wakes them in the order in which they began to.
//!
//! A `watch` channel would wake them in an order of its own, which differs from run to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

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
