//! Pods that were told to go, until they are gone.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::{Pod, PodPhase};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::pod_span::pod_span;
use crate::recorder::{EventType, Involved, reason};
use crate::shared::Shared;

/// A pod whose containers should have stopped has so long until what it used is given back, as upstream.
const CLEANUP_TAKES: Duration = Duration::from_secs(30);
/// The least time that containers have to stop before somebody is told, as upstream.
const LEAST_STOP_TAKES: Duration = Duration::from_secs(10);

/// A pod that was told to go.
pub(super) struct Leaver {
    pod: Arc<Pod>,
    /// When its containers should have stopped.
    stops_by: Instant,
}

impl Leaver {
    pub(super) fn new(pod: Arc<Pod>, grace: Duration) -> Leaver {
        Leaver { pod, stops_by: Instant::now() + (grace + grace / 2).max(LEAST_STOP_TAKES) }
    }

    fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }
}

/// Waits until pods that were told to go have given back what they used, though not for ever.
pub(super) async fn see_off(node: Arc<Shared>, leaving: Vec<Leaver>) {
    for leaver in &leaving {
        if !comes_true(&node, leaver.stops_by, || has_stopped(&node, leaver.uid())).await {
            let _span = pod_span(&leaver.pod.identity()).entered();
            let involved = Involved::version_of(&leaver.pod);
            let message = "Container runtime did not kill the pod within specified grace period.";
            let recorder = &node.reports.recorder;
            recorder.event(&involved, EventType::Warning, reason::EXCEEDED_GRACE_PERIOD, message);
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
