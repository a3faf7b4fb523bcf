//! When to relist, and the relist under way.

use std::sync::Arc;
use std::time::Duration;

use crablet_cri_api::{Container, ContainerFilter, Sandbox, SandboxFilter};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, try_join};
use tokio::time::Instant;

use super::table::Moment;
use crate::error::Result;
use crate::runtime::Runtime;

/// How often to relist without a stream.
const PERIOD: Duration = Duration::from_secs(1);
/// How often to relist with one: it repairs what the stream lost.
const PERIOD_WITH_STREAM: Duration = Duration::from_secs(60);
/// How rarely to ask a runtime that is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For how long to relist often where a stream was begun, which the runtime may do late, or told too much at once, of which
/// some may be ahead of what the lists say.
const SOME_MORE_FOR: Duration = Duration::from_secs(5);

/// A relist that was answered.
pub(super) struct Listed {
    pub(super) moment: Moment,
    pub(super) began: Instant,
    pub(super) lists: Result<(Vec<Sandbox>, Vec<Container>)>,
}

/// When to relist, and the relist under way.
pub(super) struct Relists {
    running: Option<BoxFuture<'static, Listed>>,
    due: Instant,
    /// Whether somebody asked for one that begins after the one under way began.
    again: bool,
    failures: u32,
    often_until: Option<Instant>,
}

impl Relists {
    pub(super) fn new(now: Instant) -> Relists {
        Relists { running: None, due: now, again: false, failures: 0, often_until: None }
    }

    /// Asks for one that begins from now on.
    pub(super) fn demand(&mut self, now: Instant) {
        self.due = self.due.min(now);
        self.again = self.running.is_some();
    }

    /// Asks for one now, and for some more after it.
    pub(super) fn some_more(&mut self, now: Instant) {
        self.often_until = Some(now + SOME_MORE_FOR);
        self.demand(now);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// When the next one begins.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.running.is_none().then_some(self.due)
    }

    /// Begins one. The calls are made when it is first polled.
    pub(super) fn begin(&mut self, runtime: &Arc<dyn Runtime>, moment: Moment, now: Instant) {
        let runtime = Arc::clone(runtime);
        self.again = false;
        self.running = Some(
            async move {
                let sandboxes = runtime.list_sandboxes(SandboxFilter::default());
                let containers = runtime.list_containers(ContainerFilter::default());
                Listed { moment, began: now, lists: try_join(sandboxes, containers).await }
            }
            .boxed(),
        );
    }

    /// The answer to the one under way. Nothing is lost when this is dropped.
    pub(super) async fn next(&mut self) -> Listed {
        match &mut self.running {
            Some(running) => {
                let listed = running.await;
                self.running = None;
                listed
            }
            None => std::future::pending().await,
        }
    }

    /// Sets when the next one begins, after one succeeded.
    pub(super) fn succeeded(&mut self, has_stream: bool, now: Instant) {
        self.failures = 0;
        let is_often = self.often_until.is_some_and(|until| now < until);
        let period = if has_stream && !is_often { PERIOD_WITH_STREAM } else { PERIOD };
        self.due = if self.again { now } else { now + period };
    }

    /// Sets when the next one begins, after one failed; whether it was the first to.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let pause = PERIOD * 2_u32.pow(self.failures.min(3));
        self.due = now + pause.min(LONGEST_PAUSE);
        self.failures += 1;
        self.failures == 1
    }
}
