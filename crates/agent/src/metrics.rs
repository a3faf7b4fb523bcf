//! What is counted of pods and containers, under upstream's names.

mod admission;
mod eviction;
mod image_gc;
mod images;
mod pods;
mod resizes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crablet_api::core::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};
use crablet_core::plan::Role;
use crablet_core::qos::is_static;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Gauge, Histogram, RegisterError, Registry};

use crate::mailbox::{Cause, End, News};

pub(crate) use admission::AdmissionMetrics;
pub(crate) use eviction::EvictionMetrics;
pub(crate) use image_gc::ImageGcMetrics;
pub(crate) use images::ImageMetrics;
pub(crate) use pods::{Lifecycle, Working, WorkingPods, register_pods};

/// The upper bounds of starts of pods, in seconds.
const POD_STARTS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// What runtimes say first where an image cannot be mounted.
const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

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
    passes: Family<Histogram, 1>,
    cgroups: Family<Histogram, 1>,
    http_fallbacks: Counter,
    sleeps_cut_short: Counter,
    pod_start_sli: Histogram,
    first_network_pod: Gauge,
    has_network_pod: AtomicBool,
    terminated_containers: Family<Counter, 3>,
    /// By whether they are static.
    restarted_pods: [Counter; 2],
    orphaned_pods: Counter,
    image_volumes: Counter,
    image_volumes_mounted: Counter,
    image_volumes_errors: Counter,
    pub(crate) working: WorkingPods,
    pub(crate) resizes: resizes::Resizes,
}

/// How long it took until the containers of a pod of the API server ran, as that server was seen to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Startup {
    /// Since it was made.
    pub(crate) total: Duration,
    /// The same without pulls and init containers; nothing for pods whose volumes may take any time.
    pub(crate) sli: Option<Duration>,
    pub(crate) is_on_host_network: bool,
}

/// Why a worker goes through its pod, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    Create,
    Update,
    Sync,
    Kill,
    /// What is left of a pod that ended is put away.
    Terminated,
}

impl Pass {
    /// Why one goes through a pod that has not ended: what was told says it. A pod that was deleted comes as an update from
    /// its source; one that is gone from there, or has to make room, is killed.
    pub(crate) fn of(told: &News, is_first: bool) -> Pass {
        match &told.end {
            Some(End { cause: Cause::Evicted | Cause::Removed | Cause::Orphaned, .. }) => Pass::Kill,
            _ if is_first => Pass::Create,
            Some(End { cause: Cause::Deleted, .. }) => Pass::Update,
            None if told.spec.is_some() => Pass::Update,
            None => Pass::Sync,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Pass::Create => "create",
            Pass::Update => "update",
            Pass::Sync => "sync",
            Pass::Kill => "kill",
            Pass::Terminated => "terminated",
        }
    }
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
        let restarted_pods = registry.counter_family(
            "kubelet_restarted_pods_total",
            "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
            ["static"],
        )?;
        Ok(Metrics {
            working: WorkingPods::default(),
            resizes: resizes::Resizes::register(registry)?,
            restarted_pods: ["", "true"].map(|is_static| restarted_pods.with([is_static])),
            orphaned_pods: registry.counter(
                "kubelet_orphaned_runtime_pods_total",
                "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.",
            )?,
            terminated_containers: registry.counter_family(
                "kubelet_terminated_containers_total",
                "[ALPHA] Cumulative number of container terminations.",
                ["container_type", "exit_code", "reason"],
            )?,
            image_volumes: registry.counter(
                "kubelet_image_volume_requested_total",
                "[BETA] Number of requested image volumes.",
            )?,
            image_volumes_mounted: registry.counter(
                "kubelet_image_volume_mounted_succeed_total",
                "[BETA] Number of successful image volume mounts.",
            )?,
            image_volumes_errors: registry.counter(
                "kubelet_image_volume_mounted_errors_total",
                "[BETA] Number of failed image volume mounts.",
            )?,
            pod_start_sli: registry.histogram(
                "kubelet_pod_start_sli_duration_seconds",
                "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
                &POD_STARTS,
            )?,
            first_network_pod: registry.gauge(
                "kubelet_first_network_pod_start_sli_duration_seconds",
                "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
            )?,
            has_network_pod: AtomicBool::new(false),
            worker_start: registry.histogram(
                "kubelet_pod_worker_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
                &DEFAULT_BUCKETS,
            )?,
            passes,
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
        self.passes.with([pass.label()]).observe(took.as_secs_f64());
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

    /// A pod runs that did not, so long after it was seen first.
    pub(crate) fn runs(&self, since_seen: Duration) {
        self.pod_start.observe(since_seen.as_secs_f64());
    }

    /// A pod has started.
    pub(crate) fn started(&self, startup: Startup) {
        self.pod_start_total.observe(startup.total.as_secs_f64());
        let Some(sli) = startup.sli else { return };
        self.pod_start_sli.observe(sli.as_secs_f64());
        if !startup.is_on_host_network && !self.has_network_pod.swap(true, Ordering::Relaxed) {
            self.first_network_pod.set(sli.as_secs_f64());
        }
    }

    /// A pod has another status than before: counts the containers that ended in between.
    pub(crate) fn changed(&self, before: &PodStatus, now: &PodStatus) {
        let kinds = [
            (Role::Init, &before.init_container_statuses, &now.init_container_statuses),
            (Role::Main, &before.container_statuses, &now.container_statuses),
            (Role::Ephemeral, &before.ephemeral_container_statuses, &now.ephemeral_container_statuses),
        ];
        for (role, before, now) in kinds {
            for status in now {
                let Some(ended) = terminated(status) else { continue };
                let known = before.iter().find(|known| known.name == status.name);
                if known.and_then(terminated).is_none() {
                    let code = ended.exit_code.to_string();
                    self.terminated_containers.with([container_type(role), &code, &ended.reason]).increment();
                }
            }
        }
    }

    /// A pod begins anew that its source took away and gave back while it ended.
    pub(crate) fn restarted(&self, pod: &Pod) {
        self.restarted_pods[usize::from(is_static(pod))].increment();
    }

    /// A pod runs that nobody wants.
    pub(crate) fn found_orphan(&self) {
        self.orphaned_pods.increment();
    }

    /// A container was asked for that mounts some of these images, with what the runtime refused it for if it did.
    pub(crate) fn mounts_images<T>(
        &self,
        images: &BTreeMap<String, T>,
        container: &Container,
        refusal: Option<&str>,
    ) {
        if images.is_empty() {
            return;
        }
        self.image_volumes.add(images.len() as u64);
        let mounts = container.volume_mounts.iter().filter(|mount| images.contains_key(&*mount.name));
        let count = match refusal {
            None => &self.image_volumes_mounted,
            Some(said) if said.starts_with(IMAGE_VOLUME_MOUNT_FAILED) => &self.image_volumes_errors,
            // Nothing was mounted, and not because of the images.
            Some(_) => return,
        };
        count.add(mounts.count() as u64);
    }
}

fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    match status.state.one() {
        Some(ContainerState::Terminated(terminated)) => Some(terminated),
        Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => None,
    }
}

fn container_type(role: Role) -> &'static str {
    match role {
        Role::Ephemeral => "ephemeral_container",
        Role::Init => "init_container",
        Role::Main => "container",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_have_upstreams_names_from_the_first_of_each_on() {
        let told = |spec, cause: Option<Cause>| News {
            spec,
            end: cause.map(|cause| End::new(cause, None)),
            ..News::default()
        };
        let pod = || Some(std::sync::Arc::new(Pod::default()));
        for (told, is_first, expected) in [
            (told(pod(), None), true, Pass::Create),
            (told(pod(), None), false, Pass::Update),
            (told(None, None), false, Pass::Sync),
            (told(pod(), Some(Cause::Deleted)), false, Pass::Update),
            (told(None, Some(Cause::Deleted)), false, Pass::Update),
            (told(None, Some(Cause::Removed)), false, Pass::Kill),
            (told(None, Some(Cause::Evicted)), false, Pass::Kill),
            (told(pod(), Some(Cause::Orphaned)), true, Pass::Kill),
        ] {
            assert_eq!(Pass::of(&told, is_first), expected, "{told:?}");
        }
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let name = "kubelet_pod_worker_duration_seconds_count{";
        assert!(!registry.render().contains(name), "none is there before it was seen");
        metrics.passed(Pass::Terminated, Duration::from_millis(7));
        let text = registry.render();
        let counted: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
        assert_eq!(counted, ["kubelet_pod_worker_duration_seconds_count{operation_type=\"terminated\"} 1"]);
    }
}
