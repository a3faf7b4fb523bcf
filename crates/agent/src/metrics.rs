//! What is counted of pods and containers, under upstream's names.

use std::time::Duration;

use crablet_api::core::{Pod, PodPhase};
use crablet_core::plan::Role;
use crablet_core::qos::is_static;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Histogram, Kind, RegisterError, Registry};

use crate::statuses::Statuses;

/// The upper bounds of starts of pods, in seconds.
const POD_STARTS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// The same of pulls.
const PULLS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
];
/// Sizes of images that pulls are told apart by, in bytes.
const SIZES: [(u64, &str); 11] = [
    (10 << 20, "0-10MB"),
    (100 << 20, "10MB-100MB"),
    (500 << 20, "100MB-500MB"),
    (1 << 30, "500MB-1GB"),
    (5 << 30, "1GB-5GB"),
    (10 << 30, "5GB-10GB"),
    (20 << 30, "10GB-20GB"),
    (30 << 30, "20GB-30GB"),
    (40 << 30, "30GB-40GB"),
    (60 << 30, "40GB-60GB"),
    (100 << 30, "60GB-100GB"),
];

/// Counters of pods and containers.
pub struct Metrics {
    started_pods: Counter,
    started_pods_errors: Counter,
    user_namespaced_pods: Counter,
    user_namespaced_pods_errors: Counter,
    started_containers: Family<Counter, 1>,
    started_containers_errors: Family<Counter, 2>,
    containers_per_pod: Histogram,
    pod_start: Histogram,
    pod_start_total: Histogram,
    worker_start: Histogram,
    passes: [Histogram; 4],
    cgroups: Family<Histogram, 1>,
    http_fallbacks: Counter,
    sleeps_cut_short: Counter,
}

/// Why a worker goes through its pod, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    Create,
    Update,
    Sync,
    Kill,
}

/// What is done to a pod's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CgroupChange {
    Create,
    Update,
    Destroy,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Metrics, RegisterError> {
        let passes = registry.histogram_family(
            "kubelet_pod_worker_duration_seconds",
            "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
            ["operation_type"],
            &DEFAULT_BUCKETS,
        )?;
        Ok(Metrics {
            worker_start: registry.histogram(
                "kubelet_pod_worker_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
                &DEFAULT_BUCKETS,
            )?,
            passes: ["create", "update", "sync", "kill"].map(|pass| passes.with([pass])),
            sleeps_cut_short: registry.counter(
                "kubelet_sleep_action_terminated_early_total",
                "[ALPHA] The number of times lifecycle sleep handler got terminated before it finishes",
            )?,
            http_fallbacks: registry.counter(
                "kubelet_lifecycle_handler_http_fallbacks_total",
                "[ALPHA] The number of times lifecycle handlers successfully fell back to http from https.",
            )?,
            cgroups: registry.histogram_family(
                "kubelet_cgroup_manager_duration_seconds",
                "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
                ["operation_type"],
                &DEFAULT_BUCKETS,
            )?,
            started_pods: registry
                .counter("kubelet_started_pods_total", "[ALPHA] Cumulative number of pods started")?,
            started_pods_errors: registry.counter(
                "kubelet_started_pods_errors_total",
                "[ALPHA] Cumulative number of errors when starting pods",
            )?,
            user_namespaced_pods: registry.counter(
                "kubelet_started_user_namespaced_pods_total",
                "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
            )?,
            user_namespaced_pods_errors: registry.counter(
                "kubelet_started_user_namespaced_pods_errors_total",
                "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.",
            )?,
            started_containers: registry.counter_family(
                "kubelet_started_containers_total",
                "[ALPHA] Cumulative number of containers started",
                ["container_type"],
            )?,
            started_containers_errors: registry.counter_family(
                "kubelet_started_containers_errors_total",
                "[ALPHA] Cumulative number of errors when starting containers",
                ["container_type", "code"],
            )?,
            containers_per_pod: registry.histogram(
                "kubelet_containers_per_pod_count",
                "[ALPHA] The number of containers per pod.",
                &[1.0, 2.0, 4.0, 8.0, 16.0],
            )?,
            pod_start: registry.histogram(
                "kubelet_pod_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
                &POD_STARTS,
            )?,
            pod_start_total: registry.histogram(
                "kubelet_pod_start_total_duration_seconds",
                "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
                &POD_STARTS,
            )?,
        })
    }

    /// A pod is taken in that was not there before.
    pub(crate) fn began(&self, pod: &Pod) {
        self.containers_per_pod.observe(pod.spec.containers.len() as f64);
    }

    /// A worker begins with its pod, so long after the pod was seen first.
    pub(crate) fn worker_begins(&self, since_seen: Duration) {
        self.worker_start.observe(since_seen.as_secs_f64());
    }

    /// A worker went through its pod once: looked at it, and did what was the next to do.
    pub(crate) fn passed(&self, pass: Pass, took: Duration) {
        self.passes[pass as usize].observe(took.as_secs_f64());
    }

    /// A hook went without TLS, after it was refused with it.
    pub(crate) fn fell_back_to_http(&self) {
        self.http_fallbacks.increment();
    }

    /// A container was stopped before the sleep was over that its hook asked for.
    pub(crate) fn cut_sleep_short(&self) {
        self.sleeps_cut_short.increment();
    }

    pub(crate) fn changed_cgroup(&self, change: CgroupChange, took: Duration) {
        let change = match change {
            CgroupChange::Create => "create",
            CgroupChange::Update => "update",
            CgroupChange::Destroy => "destroy",
        };
        self.cgroups.with([change]).observe(took.as_secs_f64());
    }

    /// The first sandbox of a pod, or another, was asked for.
    pub(crate) fn made_sandbox(&self, pod: &Pod, has_failed: bool) {
        self.started_pods.increment();
        let has_users = pod.spec.host_users == Some(false);
        if has_users {
            self.user_namespaced_pods.increment();
        }
        if has_failed {
            self.started_pods_errors.increment();
            if has_users {
                self.user_namespaced_pods_errors.increment();
            }
        }
    }

    pub(crate) fn starts_container(&self, role: Role) {
        self.started_containers.with([container_type(role)]).increment();
    }

    pub(crate) fn not_started(&self, role: Role, code: &str) {
        self.started_containers_errors.with([container_type(role), code]).increment();
    }

    /// A pod runs that did not, so long after it was seen first and after it was made.
    pub(crate) fn runs(&self, since_seen: Duration, since_made: Option<Duration>) {
        self.pod_start.observe(since_seen.as_secs_f64());
        if let Some(since_made) = since_made {
            self.pod_start_total.observe(since_made.as_secs_f64());
        }
    }
}

fn container_type(role: Role) -> &'static str {
    match role {
        Role::Ephemeral => "ephemeral_container",
        Role::Init => "init_container",
        Role::Main => "container",
    }
}

/// Has it told how many pods there are.
pub(crate) fn register_pods(registry: &Registry, statuses: Statuses) {
    registry.collector(move |samples| {
        let (mut desired, mut active, mut ephemeral) = ([0_u32; 2], [0_u32; 2], 0);
        for view in statuses.list() {
            let is_static = usize::from(is_static(&view.pod));
            desired[is_static] += 1;
            ephemeral += view.pod.spec.ephemeral_containers.len();
            match view.status.phase {
                Some(PodPhase::Succeeded | PodPhase::Failed) => {}
                _ => active[is_static] += 1,
            }
        }
        for (index, is_static) in [(0, ""), (1, "true")] {
            let labels = [("static", is_static)];
            let help = "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.";
            samples.add("kubelet_desired_pods", help, Kind::Gauge, &labels, f64::from(desired[index]));
            let help = "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.";
            samples.add("kubelet_active_pods", help, Kind::Gauge, &labels, f64::from(active[index]));
        }
        let help = "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.";
        samples.add("kubelet_managed_ephemeral_containers", help, Kind::Gauge, &[], ephemeral as f64);
    });
}

/// Counters of images.
#[derive(Clone)]
pub(crate) struct ImageMetrics {
    requests: Family<Counter, 3>,
    pulls: Family<Histogram, 1>,
}

impl ImageMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<ImageMetrics, RegisterError> {
        Ok(ImageMetrics {
            requests: registry.counter_family(
                "kubelet_image_manager_ensure_image_requests_total",
                "[ALPHA] Number of ensure-image requests processed by the kubelet.",
                ["pull_policy", "present_locally", "pull_required"],
            )?,
            pulls: registry.histogram_family(
                "kubelet_image_pull_duration_seconds",
                "[ALPHA] Duration in seconds to pull an image.",
                ["image_size_in_bytes"],
                &PULLS,
            )?,
        })
    }

    /// An image was asked for. Words that are not known stay empty.
    pub(crate) fn ensured(&self, policy: &str, is_present: Option<bool>, is_pulled: Option<bool>) {
        let word = |value| match value {
            None => "unknown",
            Some(true) => "true",
            Some(false) => "false",
        };
        self.requests.with([policy, word(is_present), word(is_pulled)]).increment();
    }

    pub(crate) fn pulled(&self, size: u64, took: Duration) {
        self.pulls.with([size_name(size)]).observe(took.as_secs_f64());
    }
}

fn size_name(size: u64) -> &'static str {
    match SIZES.iter().find(|(bound, _)| size <= *bound) {
        _ if size == 0 => "N/A",
        Some((_, name)) => name,
        None => "GT100GB",
    }
}

/// Counts pods that the node does not take.
#[derive(Clone)]
pub(crate) struct Rejections(Family<Counter, 1>);

impl Rejections {
    pub(crate) fn register(registry: &Registry) -> Result<Rejections, RegisterError> {
        let name = "kubelet_admission_rejections_total";
        let help = "[ALPHA] Cumulative number pod admission rejections by the Kubelet.";
        Ok(Rejections(registry.counter_family(name, help, ["reason"])?))
    }

    /// Reasons that name what is missing count as one.
    pub(crate) fn count(&self, reason: &str) {
        let reason = match reason {
            known if KNOWN_REASONS.contains(&known) => known,
            other if other.starts_with("OutOf") => "OutOfExtendedResources",
            _ => "Other",
        };
        self.0.with([reason]).increment();
    }
}

/// The reasons that are told apart.
const KNOWN_REASONS: &[&str] = &[
    "AppArmor",
    "SysctlForbidden",
    "TopologyAffinityError",
    "Evicted",
    "NodeShutdown",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "PodLevelResourcesNotSupported",
    "PodFeatureUnsupported",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    "VolumeAttachmentLimitExceeded",
    "node(s) had taints that the pod didn't tolerate",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_images_are_few() {
        assert_eq!(size_name(0), "N/A");
        assert_eq!(size_name(10 << 20), "0-10MB");
        assert_eq!(size_name((10 << 20) + 1), "10MB-100MB");
        assert_eq!(size_name(31 << 30), "30GB-40GB");
        assert_eq!(size_name(101 << 30), "GT100GB");
    }

    #[test]
    fn reasons_that_nobody_knows_count_as_one() {
        let registry = Registry::new();
        let rejections = Rejections::register(&registry).unwrap();
        for reason in ["OutOfcpu", "OutOfexample.com/x", "OutOfexample.com/y", "What"] {
            rejections.count(reason);
        }
        let text = registry.render();
        for line in
            ["{reason=\"OutOfcpu\"} 1\n", "{reason=\"OutOfExtendedResources\"} 2\n", "{reason=\"Other\"} 1\n"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
