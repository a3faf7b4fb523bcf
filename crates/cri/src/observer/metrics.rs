//! What is counted of relists and streams, under upstream's names.

use std::time::Duration;

use crablet_cri_api::{Container, ContainerState, Sandbox, SandboxState};
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Gauge, Histogram, RegisterError, Registry};

/// Counters of an observer.
pub struct Metrics {
    relist_duration: Histogram,
    relist_interval: Histogram,
    last_seen: Gauge,
    running_pods: Gauge,
    running_containers: Family<Gauge, 1>,
    connections: Counter,
    connection_errors: Counter,
    latency: Histogram,
}

impl Metrics {
    pub fn register(registry: &Registry) -> Result<Metrics, RegisterError> {
        Ok(Metrics {
            relist_duration: registry.histogram(
                "kubelet_pleg_relist_duration_seconds",
                "[ALPHA] Duration in seconds for relisting pods in PLEG.",
                &DEFAULT_BUCKETS,
            )?,
            relist_interval: registry.histogram(
                "kubelet_pleg_relist_interval_seconds",
                "[ALPHA] Interval in seconds between relisting in PLEG.",
                &DEFAULT_BUCKETS,
            )?,
            last_seen: registry.gauge(
                "kubelet_pleg_last_seen_seconds",
                "[ALPHA] Timestamp in seconds when PLEG was last seen active.",
            )?,
            running_pods: registry
                .gauge("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox")?,
            running_containers: registry.gauge_family(
                "kubelet_running_containers",
                "[ALPHA] Number of containers currently running",
                ["container_state"],
            )?,
            connections: registry.counter(
                "kubelet_evented_pleg_connection_success_count",
                "[ALPHA] The number of times a streaming client was obtained to receive CRI Events.",
            )?,
            connection_errors: registry.counter(
                "kubelet_evented_pleg_connection_error_count",
                "[ALPHA] The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
            )?,
            latency: registry.histogram(
                "kubelet_evented_pleg_connection_latency_seconds",
                "[ALPHA] The latency of streaming connection with the CRI runtime, measured in seconds.",
                &DEFAULT_BUCKETS,
            )?,
        })
    }

    /// A relist began, so long after the one before.
    pub(super) fn relists(&self, after: Option<Duration>) {
        if let Some(after) = after {
            self.relist_interval.observe(after.as_secs_f64());
        }
    }

    pub(super) fn relisted(&self, took: Duration, sandboxes: &[Sandbox], containers: &[Container]) {
        self.relist_duration.observe(took.as_secs_f64());
        let ready = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
        let mut pods: Vec<&str> = ready.map(|sandbox| sandbox.metadata.uid.as_str()).collect();
        pods.sort_unstable();
        pods.dedup();
        self.running_pods.set(pods.len() as f64);
        for (state, name) in [
            (ContainerState::Created, "created"),
            (ContainerState::Running, "running"),
            (ContainerState::Exited, "exited"),
            (ContainerState::Unknown, "unknown"),
        ] {
            let count = containers.iter().filter(|container| container.state == state).count();
            match count {
                0 => self.running_containers.remove([name]),
                count => self.running_containers.with([name]).set(count as f64),
            }
        }
    }

    /// The runtime answered at this time, in seconds since 1970.
    pub(super) fn seen(&self, at: f64) {
        self.last_seen.set(at);
    }

    pub(super) fn connected(&self) {
        self.connections.increment();
    }

    pub(super) fn not_connected(&self) {
        self.connection_errors.increment();
    }

    /// A stream told of something so many seconds after it happened.
    pub(super) fn heard(&self, after: f64) {
        self.latency.observe(after.max(0.0));
    }
}
