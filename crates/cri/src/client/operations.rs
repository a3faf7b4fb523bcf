//! What is counted of calls to a runtime, under upstream's names.

use std::sync::OnceLock;
use std::time::Duration;

use crablet_metrics::{
    Counter, DEFAULT_BUCKETS, Family, Histogram, RegisterError, Registry, exponential_buckets,
};

/// Calls, and what upstream calls them. A list in pieces counts as the list that it is.
const NAMES: &[(&str, &str)] = &[
    ("Version", "version"),
    ("Status", "status"),
    ("UpdateRuntimeConfig", "update_runtime_config"),
    ("RunPodSandbox", "run_podsandbox"),
    ("StopPodSandbox", "stop_podsandbox"),
    ("RemovePodSandbox", "remove_podsandbox"),
    ("PodSandboxStatus", "podsandbox_status"),
    ("ListPodSandbox", "list_podsandbox"),
    ("StreamPodSandboxes", "list_podsandbox"),
    ("CreateContainer", "create_container"),
    ("StartContainer", "start_container"),
    ("StopContainer", "stop_container"),
    ("RemoveContainer", "remove_container"),
    ("ContainerStatus", "container_status"),
    ("ListContainers", "list_containers"),
    ("StreamContainers", "list_containers"),
    ("UpdateContainerResources", "update_container"),
    ("ReopenContainerLog", "reopen_container_log"),
    ("CheckpointContainer", "checkpoint_container"),
    ("ExecSync", "exec_sync"),
    ("Exec", "exec"),
    ("Attach", "attach"),
    ("PortForward", "port_forward"),
    ("ContainerStats", "container_stats"),
    ("ListContainerStats", "list_container_stats"),
    ("PodSandboxStats", "podsandbox_stats"),
    ("ListPodSandboxStats", "list_podsandbox_stats"),
    ("ListImages", "list_images"),
    ("StreamImages", "list_images"),
    ("ImageStatus", "image_status"),
    ("PullImage", "pull_image"),
    ("RemoveImage", "remove_image"),
    ("ImageFsInfo", "image_fs_info"),
];

/// Counters of calls. What happened once has its counters at hand, so that counting takes no lock.
pub(crate) struct Operations {
    total: Family<Counter, 1>,
    duration: Family<Histogram, 1>,
    errors: Family<Counter, 1>,
    sandbox_duration: Family<Histogram, 1>,
    sandbox_errors: Family<Counter, 1>,
    at_hand: [OnceLock<(Counter, Histogram)>; NAMES.len()],
}

impl Operations {
    pub(crate) fn register(registry: &Registry) -> Result<Operations, RegisterError> {
        Ok(Operations {
            total: registry.counter_family(
                "kubelet_runtime_operations_total",
                "[ALPHA] Cumulative number of runtime operations by operation type.",
                ["operation_type"],
            )?,
            duration: registry.histogram_family(
                "kubelet_runtime_operations_duration_seconds",
                "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
                ["operation_type"],
                &exponential_buckets(0.005, 2.5, 14),
            )?,
            errors: registry.counter_family(
                "kubelet_runtime_operations_errors_total",
                "[ALPHA] Cumulative number of runtime operation errors by operation type.",
                ["operation_type"],
            )?,
            sandbox_duration: registry.histogram_family(
                "kubelet_run_podsandbox_duration_seconds",
                "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
                ["runtime_handler"],
                &DEFAULT_BUCKETS,
            )?,
            sandbox_errors: registry.counter_family(
                "kubelet_run_podsandbox_errors_total",
                "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
                ["runtime_handler"],
            )?,
            at_hand: [const { OnceLock::new() }; NAMES.len()],
        })
    }

    /// Counts a call that ended.
    pub(crate) fn ended(&self, method: &str, took: Duration, has_failed: bool) {
        let Some(index) = NAMES.iter().position(|(known, _)| *known == method) else { return };
        let name = NAMES[index].1;
        let (total, duration) =
            self.at_hand[index].get_or_init(|| (self.total.with([name]), self.duration.with([name])));
        total.increment();
        duration.observe(took.as_secs_f64());
        if has_failed {
            self.errors.with([name]).increment();
        }
    }

    /// Counts a sandbox that was made, or not.
    pub(crate) fn ran_sandbox(&self, handler: &str, took: Duration, has_failed: bool) {
        self.sandbox_duration.with([handler]).observe(took.as_secs_f64());
        if has_failed {
            self.sandbox_errors.with([handler]).increment();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_under_upstreams_names_and_failures_twice() {
        let registry = Registry::new();
        let operations = Operations::register(&registry).unwrap();
        operations.ended("StreamContainers", Duration::from_millis(1), false);
        operations.ended("ListContainers", Duration::from_millis(1), true);
        operations.ended("GetContainerEvents", Duration::from_millis(1), false);
        operations.ran_sandbox("runc", Duration::from_millis(200), true);
        let text = registry.render();
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"list_containers\"} 2",
            "kubelet_runtime_operations_errors_total{operation_type=\"list_containers\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"list_containers\",le=\"0.005\"} 2",
            "kubelet_run_podsandbox_errors_total{runtime_handler=\"runc\"} 1",
            "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"runc\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("events"), "{text}");
    }
}
