//! When something last went through a stream, and why one ends that neither side has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep_until};

/// Why a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Idle,
    Stopping,
}

impl Over {
    /// In words for who was at its other end.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Over::Idle => "the stream was idle for too long",
            Over::Stopping => "the node's agent is stopping",
        }
    }
}

pub(crate) struct Activity {
    began: Instant,
    /// Since then, in milliseconds.
    last: AtomicU64,
    over: SetOnce<Over>,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity { began: Instant::now(), last: AtomicU64::new(0), over: SetOnce::new() }
    }

    pub(crate) fn note(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
    }

    /// Waits until nothing went through for so long; without a limit, for ever.
    pub(crate) async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = last + limit;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Tells the stream that it is over. The first reason stays.
    pub(crate) fn end(&self, why: Over) {
        let _ = self.over.set(why);
    }

    /// Waits until the stream is over.
    pub(crate) async fn over(&self) -> Over {
        *self.over.wait().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_idle_so_long_after_its_last_byte() {
        let activity = Activity::new();
        let began = Instant::now();
        let used = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            activity.note();
        };
        tokio::join!(activity.idle_for(Some(Duration::from_secs(8))), used);
        assert_eq!(began.elapsed().as_secs(), 13);
    }
}
