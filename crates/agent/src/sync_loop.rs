//! Whether the task that owns the pods still goes round.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Asks the task that owns the pods whether it still goes round. Who asks does not wait, and a task that nobody asks does
/// not wake for it. Clones ask the same task.
#[derive(Debug, Clone, Default)]
pub struct SyncLoop(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    /// Since when it was asked and has not answered.
    since: Mutex<Option<Instant>>,
    wake: Notify,
}

/// The task has not answered for too long.
#[derive(Debug, thiserror::Error)]
#[error("sync Loop took longer than expected")]
pub struct Stuck;

impl SyncLoop {
    /// Asks, and fails where the task owes an answer for longer than this already.
    pub fn check(&self, longest: Duration) -> Result<(), Stuck> {
        let since = *self.since().get_or_insert_with(Instant::now);
        self.0.wake.notify_one();
        if since.elapsed() > longest { Err(Stuck) } else { Ok(()) }
    }

    /// For the task itself: waits until somebody asks, and answers.
    pub(crate) async fn answer(&self) {
        self.0.wake.notified().await;
        *self.since() = None;
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(300);

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_answer_is_stuck_until_it_does() {
        let sync_loop = SyncLoop::default();
        assert!(sync_loop.check(LONGEST).is_ok(), "it was never asked before");
        tokio::time::advance(LONGEST).await;
        assert!(sync_loop.check(LONGEST).is_ok(), "it has all that time");
        tokio::time::advance(Duration::from_millis(1)).await;
        let stuck = sync_loop.check(LONGEST).unwrap_err();
        assert_eq!(stuck.to_string(), "sync Loop took longer than expected");
        sync_loop.answer().await;
        assert!(sync_loop.check(LONGEST).is_ok(), "it goes round again");
    }
}
