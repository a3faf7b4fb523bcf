//! How long it takes until a pod runs, as who made it sees it: from its creation until the API server shows that all its
//! containers run. Pulls and init containers can be told apart, since they are not the node's doing.

use std::time::Duration;

use crablet_api::core::{
    ContainerState, ContainerStatus, Pod, PodConditionType, PodPhase, PodStatus, VolumeSource,
};
use crablet_api::meta::ConditionStatus;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::metrics::Startup;
use crate::sources::SourceKind;
use crate::worker::Worker;

impl Worker {
    /// Counts how long it took until the pod ran, if it does now.
    pub(super) fn count_start(&self, phase: Option<&PodPhase>) {
        if self.status.phase != Some(PodPhase::Pending) || phase != Some(&PodPhase::Running) {
            return;
        }
        self.node.metrics.runs(self.seen_at.elapsed());
    }

    /// Counts how long it took until the API server showed that the pod runs, if it does now.
    pub(super) fn count_startup(&mut self, at_server: &Pod) {
        if let Some(startup) = self.startup.see(at_server, self.node.clock.now()) {
            self.node.metrics.started(startup);
        }
    }
}

/// What is known of a pod's start until it has started.
#[derive(Debug, Default)]
pub(super) struct StartupTracker {
    /// Whether it began with us, and is not over yet.
    is_tracked: bool,
    pulled: Duration,
    /// Since when it is tried to pull an image that could not be had at first.
    pulling_since: Option<Instant>,
}

impl StartupTracker {
    pub(super) fn new(pod: &Pod) -> StartupTracker {
        let is_of_server = SourceKind::of(pod) == Some(SourceKind::Api);
        let is_tracked = is_of_server && pod.status.start_time.is_none() && !is_unschedulable(&pod.status);
        StartupTracker { is_tracked, ..StartupTracker::default() }
    }

    /// An image was asked for at this time, and pulled.
    pub(super) fn pulled(&mut self, asked: Instant) {
        self.pulled += self.pulling_since.take().unwrap_or(asked).elapsed();
    }

    /// An image was asked for at this time, and is not there yet. It will be tried again.
    pub(super) fn not_pulled(&mut self, asked: Instant) {
        self.pulling_since.get_or_insert(asked);
    }

    /// The server shows the pod like this. Says how long its start took, once.
    pub(super) fn see(&mut self, pod: &Pod, now: Timestamp) -> Option<Startup> {
        if !self.is_tracked {
            return None;
        }
        let status = &pod.status;
        let has_started = !status.container_statuses.is_empty() && status.container_statuses.iter().all(runs);
        self.is_tracked = !(status.is_over() || has_started || is_unschedulable(status));
        if self.is_tracked || !has_started {
            return None;
        }
        let made = pod.metadata.creation_timestamp?.unix_seconds();
        let total = now.as_millisecond() - made.saturating_mul(1000);
        let total = Duration::from_millis(u64::try_from(total).unwrap_or_default());
        let own = total.saturating_sub(self.pulled).saturating_sub(init_containers_ran(status));
        Some(Startup {
            total,
            sli: (!is_stateful(pod)).then_some(own),
            is_on_host_network: pod.spec.host_network,
        })
    }
}

fn runs(status: &ContainerStatus) -> bool {
    match status.state.one() {
        Some(ContainerState::Running(running)) => running.started_at.is_some(),
        Some(ContainerState::Waiting(_) | ContainerState::Terminated(_)) | None => false,
    }
}

/// How long the init containers took that have ended. Those that stay beside the pod have not.
fn init_containers_ran(status: &PodStatus) -> Duration {
    let ran = |container: &ContainerStatus| {
        let Some(ContainerState::Terminated(ended)) = container.state.one() else { return Duration::ZERO };
        let (Some(from), Some(to)) = (ended.started_at, ended.finished_at) else { return Duration::ZERO };
        Duration::from_secs(u64::try_from(to.unix_seconds() - from.unix_seconds()).unwrap_or_default())
    };
    status.init_container_statuses.iter().map(ran).sum()
}

fn is_unschedulable(status: &PodStatus) -> bool {
    status.conditions.iter().any(|condition| {
        condition.r#type == PodConditionType::PodScheduled && condition.status == ConditionStatus::False
    })
}

/// Whether a pod has volumes beside those that are made on the node.
fn is_stateful(pod: &Pod) -> bool {
    let is_made_here = |source: Option<&VolumeSource>| {
        matches!(
            source,
            Some(
                VolumeSource::Secret(_)
                    | VolumeSource::ConfigMap(_)
                    | VolumeSource::DownwardApi(_)
                    | VolumeSource::EmptyDir(_)
                    | VolumeSource::Projected(_)
            )
        )
    };
    pod.spec.volumes.iter().any(|volume| !is_made_here(volume.source.one()))
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    const MADE: &str = "2026-11-17T00:00:00Z";
    const RUNS: &str = "{phase: Running, startTime: '2026-11-17T00:00:01Z', \
        initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0, \
            startedAt: '2026-11-17T00:00:02Z', finishedAt: '2026-11-17T00:00:05Z'}}}], \
        containerStatuses: [{name: c, state: {running: {startedAt: '2026-11-17T00:00:06Z'}}}]}";

    fn pod(spec: &str, status: &str) -> Pod {
        pod_yaml(&format!(
            "metadata: {{name: p, namespace: default, uid: u, creationTimestamp: '{MADE}', \
              annotations: {{kubernetes.io/config.source: api}}}}\nspec: {{containers: [{{name: c}}], {spec}}}\n\
             status: {status}"
        ))
    }

    fn ten_seconds_later() -> Timestamp {
        MADE.parse::<Timestamp>().unwrap() + Duration::from_secs(10)
    }

    /// What is told of a start: how long it took in all, and without what is not the node's doing.
    fn started(spec: &str, first: &str, then: &str) -> Option<(u64, Option<u64>)> {
        let mut tracker = StartupTracker::new(&pod(spec, first));
        let startup = tracker.see(&pod(spec, then), ten_seconds_later())?;
        assert!(tracker.see(&pod(spec, then), ten_seconds_later()).is_none(), "it is told once");
        Some((startup.total.as_secs(), startup.sli.map(|sli| sli.as_secs())))
    }

    #[test]
    fn a_start_is_what_is_left_without_init_containers_unless_storage_may_take_any_time() {
        assert_eq!(started("", "{}", RUNS), Some((10, Some(7))));
        let made_here = "volumes: [{name: a, emptyDir: {}}, {name: b, secret: {secretName: s}}]";
        assert_eq!(started(made_here, "{}", RUNS), Some((10, Some(7))));
        let elsewhere =
            "volumes: [{name: a, emptyDir: {}}, {name: b, persistentVolumeClaim: {claimName: c}}]";
        assert_eq!(started(elsewhere, "{}", RUNS), Some((10, None)));
    }

    #[test]
    fn nothing_is_told_of_what_began_before_waited_for_a_node_or_is_over() {
        assert_eq!(started("", RUNS, RUNS), None);
        let unschedulable = "{conditions: [{type: PodScheduled, status: 'False'}]}";
        assert_eq!(started("", unschedulable, RUNS), None);
        assert_eq!(
            started("", "{}", &RUNS.replace("Running", "Failed").replace("running", "terminated")),
            None
        );
        assert_eq!(started("", "{}", "{phase: Pending}"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pulls_are_left_out_from_the_first_try_on() {
        let mut tracker = StartupTracker::new(&pod("", "{}"));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        tracker.not_pulled(asked);
        let again = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        tracker.pulled(again);
        let other = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        tracker.pulled(other);
        let startup = tracker.see(&pod("", RUNS), ten_seconds_later()).unwrap();
        assert_eq!(startup.sli, Some(Duration::from_secs(2)));
    }
}
