//! Who runs the agent's tasks: all of them stop together, where they are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where the agent's tasks are started. Clones are the same place.
#[derive(Clone)]
pub struct Tasks {
    stop: CancellationToken,
    tracker: TaskTracker,
    watcher: Option<Arc<dyn Watcher>>,
}

/// Sees every step of every task: a step is what a task does between two waits. A simulated run uses it to end an
/// agent at any point.
pub trait Watcher: Send + Sync {
    /// Whether a task may take its next step. One that may not is dropped where it is.
    fn may_go_on(&self) -> bool;
    /// A task has taken a step.
    fn has_gone_on(&self);
}

impl Tasks {
    /// Tasks that run until `stop`, and are then dropped where they are.
    pub fn new(stop: CancellationToken, tracker: TaskTracker) -> Tasks {
        Tasks { stop, tracker, watcher: None }
    }

    /// The same, watched.
    pub fn watched_by(self, watcher: Arc<dyn Watcher>) -> Tasks {
        Tasks { watcher: Some(watcher), ..self }
    }

    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone().cancelled_owned();
        self.tracker.spawn(Step {
            stop: Box::pin(stop),
            task: Box::pin(task),
            watcher: self.watcher.clone(),
        });
    }

    /// How many tasks there are.
    pub fn count(&self) -> usize {
        self.tracker.len()
    }
}

struct Step {
    stop: BoxFuture<'static, ()>,
    task: BoxFuture<'static, ()>,
    watcher: Option<Arc<dyn Watcher>>,
}

impl Future for Step {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Stopping goes first: a task that could do one thing more does not.
        let may_go_on = self.watcher.as_ref().is_none_or(|watcher| watcher.may_go_on());
        if !may_go_on || self.stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let progress = self.task.as_mut().poll(context);
        if let Some(watcher) = &self.watcher {
            watcher.has_gone_on();
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_tasks_stop_where_they_are() {
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let tasks = Tasks::new(stop.clone(), tracker.clone());
        for _ in 0..3 {
            tasks.spawn(std::future::pending());
        }
        tasks.spawn(async {});
        tokio::task::yield_now().await;
        assert_eq!(tasks.count(), 3);
        stop.cancel();
        tracker.close();
        tracker.wait().await;
    }
}
