//! Pods that were told to go, until they are gone.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crablet_api::core::{Pod, PodPhase};
use crablet_core::eviction::Threshold;
use crablet_core::status::Failure;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::orphan;
use crate::shared::Shared;
use crate::worker::Checkpoint;

/// A pod whose containers should have stopped has so long until what it used is given back, as upstream.
const CLEANUP_TAKES: Duration = Duration::from_secs(30);
/// The least time that containers have to stop before somebody is told, as upstream.
const LEAST_STOP_TAKES: Duration = Duration::from_secs(10);

/// A pod that was told to go.
pub(super) struct Leaver {
    pod: Arc<Pod>,
    failure: Failure,
    /// When its containers should have stopped.
    stops_by: Instant,
}

impl Leaver {
    pub(super) fn new(pod: Arc<Pod>, failure: Failure, grace: Duration) -> Leaver {
        Leaver { pod, failure, stops_by: Instant::now() + (grace + grace / 2).max(LEAST_STOP_TAKES) }
    }

    /// One that the agent before told to go, if it did. The pod itself may not be known before its source was heard.
    fn of_agent_before(node: &Shared, uid: &str, checkpoint: &Checkpoint) -> Option<Leaver> {
        let (failure, termination) = checkpoint.eviction(&node.clock)?;
        let pod = orphan::pod(uid, &[], &[], Some(checkpoint));
        let seconds = |seconds: i64| Duration::from_secs(seconds.clamp(0, u32::MAX.into()).unsigned_abs());
        let left = seconds(termination.remaining(node.clock.steady())) + seconds(termination.grace) / 2;
        let stops_by = Instant::now() + left.max(LEAST_STOP_TAKES);
        Some(Leaver { pod: Arc::new(pod), failure: failure.clone(), stops_by })
    }

    /// Who was told to go, and why.
    pub(super) fn told(&self) -> (Arc<Pod>, Failure) {
        (Arc::clone(&self.pod), self.failure.clone())
    }

    pub(super) fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }
}

/// The pods that the agent before evicted and that were not gone when it ended.
pub(super) fn left_by_agent_before(node: &Shared) -> Vec<Leaver> {
    let checkpoints = node.restored.left();
    let leavers = checkpoints.iter().map(|(uid, checkpoint)| Leaver::of_agent_before(node, uid, checkpoint));
    leavers.flatten().collect()
}

/// Pods that go while memory comes first, or that the agent before told to go, until they are gone or had their time.
#[derive(Default)]
pub(super) struct Departures(Vec<Departure>);

struct Departure {
    /// Who goes, and why, if it is for the sake of memory, or may be: it is not written down what a pod goes for.
    for_memory: Option<(Arc<Pod>, Failure)>,
    /// Whether it was told that it has less time, though it has no worker yet.
    is_hastened: bool,
    gone: BoxFuture<'static, ()>,
}

/// Those who may have more time than there is.
#[derive(Default)]
pub(super) struct Slower {
    /// They are on their way.
    pub(super) known: Vec<(Arc<Pod>, Failure)>,
    /// Nothing of them is known yet but what the agent before wrote down. They go on departing.
    pub(super) to_come: Vec<(Arc<Pod>, Failure)>,
}

impl Departures {
    pub(super) fn add(&mut self, for_memory: Option<(Arc<Pod>, Failure)>, gone: BoxFuture<'static, ()>) {
        self.0.push(Departure { for_memory, is_hastened: false, gone });
    }

    /// Whether nobody else is to go for this yet. One goes at a time, and for memory one more.
    pub(super) fn hold_up(&self, threshold: &Threshold) -> bool {
        let is_for_memory = |departure: &Departure| departure.for_memory.is_some();
        match threshold.signal.is_memory() {
            true => !threshold.is_hard() && self.0.iter().any(is_for_memory),
            false => !self.0.is_empty(),
        }
    }

    /// Takes out those who go for the sake of memory and may have more time than there is by now: a hard threshold is met.
    /// Who has no worker yet stays, and is told once.
    pub(super) fn take_slower(&mut self, met: &Threshold, has_worker: impl Fn(&str) -> bool) -> Slower {
        let mut slower = Slower::default();
        if !met.is_hard() || !met.signal.is_memory() {
            return slower;
        }
        self.0.retain_mut(|departure| {
            let Some(told) = &departure.for_memory else { return true };
            if has_worker(&told.0.metadata.uid) {
                slower.known.push(told.clone());
                return false;
            }
            if !std::mem::replace(&mut departure.is_hastened, true) {
                slower.to_come.push(told.clone());
            }
            true
        });
        slower
    }

    /// Completes when one of them is gone, or had its time.
    pub(super) async fn one_is_over(&mut self) {
        if self.0.is_empty() {
            return pending().await;
        }
        poll_fn(|context| {
            let before = self.0.len();
            self.0.retain_mut(|departure| departure.gone.poll_unpin(context).is_pending());
            if self.0.len() < before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits until pods that were told to go have given back what they used, though not for ever.
pub(super) async fn see_off(node: Arc<Shared>, leaving: Vec<Leaver>) {
    for leaver in &leaving {
        if !comes_true(&node, leaver.stops_by, || has_stopped(&node, leaver.uid())).await {
            node.reports.recorder.exceeded_grace_period(&leaver.pod);
        }
    }
    let are_gone = || leaving.iter().all(|leaver| is_gone(&node, leaver.uid()));
    if !comes_true(&node, Instant::now() + CLEANUP_TAKES, are_gone).await {
        let pods: Vec<&str> = leaving.iter().map(Leaver::uid).collect();
        warn!(pods = pods.join(", "), "Evicted pods have not gone in time; going on");
    }
}

/// Waits until something is true of what is shown of pods, and says whether it was in time.
async fn comes_true(node: &Shared, by: Instant, is_true: impl Fn() -> bool) -> bool {
    let mut shown = node.reports.statuses.version();
    loop {
        shown.mark_unchanged();
        if is_true() {
            return true;
        }
        if timeout_at(by, shown.changed()).await.is_err() {
            return false;
        }
    }
}

/// Whether all containers of a pod that was told to go have stopped: it is shown to have failed then.
fn has_stopped(node: &Shared, uid: &str) -> bool {
    match node.reports.statuses.get(uid) {
        Some(shown) => matches!(shown.status.phase, Some(PodPhase::Failed | PodPhase::Succeeded)),
        None => is_gone(node, uid),
    }
}

/// Whether what a pod used was given back. Of one that the agent before left nothing is known until it has a worker.
pub(super) fn is_gone(node: &Shared, uid: &str) -> bool {
    match node.reports.statuses.get(uid) {
        Some(shown) => shown.terminated,
        None => !node.admission.knows(uid) && !node.restored.left().contains_key(uid),
    }
}

#[cfg(test)]
mod tests {
    use crablet_core::eviction::{Amount, Signal};

    use super::*;

    #[test]
    fn who_has_no_worker_yet_is_hastened_once_and_waited_for_when_it_has_one() {
        let mut departures = Departures::default();
        let mut pod = Pod::default();
        pod.metadata.uid = "slow".into();
        let failure = Failure::evicted(&pod, "The node was low on resource: memory.");
        departures.add(Some((Arc::new(pod), failure)), Box::pin(pending()));
        departures.add(None, Box::pin(pending()));
        let met = Threshold::hard(Signal::MemoryAvailable, Amount::Percentage(0.1));
        let mut slower = |has_worker: bool| {
            let Slower { known, to_come } = departures.take_slower(&met, |_| has_worker);
            (known.len(), to_come.len())
        };
        assert_eq!(
            [slower(false), slower(false), slower(true), slower(true)],
            [(0, 1), (0, 0), (1, 0), (0, 0)]
        );
        let disk = Threshold::hard(Signal::NodeFsAvailable, Amount::Percentage(0.1));
        assert!(departures.hold_up(&disk), "who goes for something else goes on to");
    }
}
