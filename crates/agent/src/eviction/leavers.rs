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

use crate::shared::Shared;

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

    /// Who was told to go, and why.
    pub(super) fn told(&self) -> (Arc<Pod>, Failure) {
        (Arc::clone(&self.pod), self.failure.clone())
    }

    fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }
}

/// Pods that go while memory comes first, until they are gone or had their time.
#[derive(Default)]
pub(super) struct Departures(Vec<Departure>);

struct Departure {
    /// Who goes, and why, if it is for the sake of memory.
    for_memory: Option<(Arc<Pod>, Failure)>,
    gone: BoxFuture<'static, ()>,
}

impl Departures {
    pub(super) fn add(&mut self, for_memory: Option<(Arc<Pod>, Failure)>, gone: BoxFuture<'static, ()>) {
        self.0.push(Departure { for_memory, gone });
    }

    /// Whether nobody else is to go for this yet. One goes at a time, and for memory one more.
    pub(super) fn hold_up(&self, threshold: &Threshold) -> bool {
        let is_for_memory = |departure: &Departure| departure.for_memory.is_some();
        match threshold.signal.is_memory() {
            true => !threshold.is_hard() && self.0.iter().any(is_for_memory),
            false => !self.0.is_empty(),
        }
    }

    /// Takes out who goes for the sake of memory and has more time than there is by now: a hard threshold is met.
    pub(super) fn take_slower(&mut self, met: &Threshold) -> Option<(Arc<Pod>, Failure)> {
        if !met.is_hard() || !met.signal.is_memory() {
            return None;
        }
        let place = self.0.iter().position(|departure| departure.for_memory.is_some())?;
        self.0.swap_remove(place).for_memory
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
    let shown = node.reports.statuses.get(uid);
    shown.is_none_or(|shown| matches!(shown.status.phase, Some(PodPhase::Failed | PodPhase::Succeeded)))
}

/// Whether what a pod used was given back.
pub(super) fn is_gone(node: &Shared, uid: &str) -> bool {
    match node.reports.statuses.get(uid) {
        Some(shown) => shown.terminated,
        None => !node.admission.knows(uid),
    }
}
