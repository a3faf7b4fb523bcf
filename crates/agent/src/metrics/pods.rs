//! How many pods there are, and how far their workers are: found out when somebody asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crablet_api::core::{Pod, PodConditionType};
use crablet_metrics::{Kind, Registry, Samples};

use crate::sources::SourceKind;
use crate::statuses::Statuses;

/// Has it told how many pods there are.
pub(crate) fn register_pods(registry: &Registry, statuses: Statuses, working: WorkingPods) {
    registry.collector(move |samples| {
        let ephemeral: usize =
            statuses.list().iter().map(|view| view.pod.spec.ephemeral_containers.len()).sum();
        let help = "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.";
        samples.add("kubelet_managed_ephemeral_containers", help, Kind::Gauge, &[], ephemeral as f64);
        tell_resizes(samples, &statuses);
        working.tell(samples);
    });
}

/// How many pods are being resized, and how many wait for that.
fn tell_resizes(samples: &mut Samples, statuses: &Statuses) {
    let (mut in_progress, mut pending) = (0, BTreeMap::<String, usize>::new());
    for view in statuses.list() {
        for condition in &view.status.conditions {
            if condition.r#type == PodConditionType::PodResizeInProgress {
                in_progress += 1;
            } else if condition.r#type == PodConditionType::PodResizePending {
                *pending.entry(condition.reason.to_lowercase()).or_default() += 1;
            }
        }
    }
    let help = "[ALPHA] Number of in-progress resizes for pods.";
    samples.add("kubelet_pod_in_progress_resizes", help, Kind::Gauge, &[], f64::from(in_progress));
    let help = "[ALPHA] Number of pending resizes for pods.";
    for (reason, count) in &pending {
        samples.add("kubelet_pod_pending_resizes", help, Kind::Gauge, &[("reason", reason)], *count as f64);
    }
}

/// How far a pod is, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    Sync,
    Terminating,
    Terminated,
}

/// Who wants a pod that has a worker, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Config {
    Desired,
    DesiredStatic,
    Orphan,
    OrphanStatic,
    /// Nobody, ever: it was found in the runtime or on the disk.
    RuntimeOnly,
}

const LIFECYCLES: [(Lifecycle, &str); 3] = [
    (Lifecycle::Sync, "sync"),
    (Lifecycle::Terminating, "terminating"),
    (Lifecycle::Terminated, "terminated"),
];
/// With the words for the labels `config` and `static`.
const CONFIGS: [(Config, &str, &str); 5] = [
    (Config::Desired, "desired", ""),
    (Config::DesiredStatic, "desired", "true"),
    (Config::Orphan, "orphan", ""),
    (Config::OrphanStatic, "orphan", "true"),
    (Config::RuntimeOnly, "runtime_only", "unknown"),
];

/// How many workers there are with pods of each kind. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct WorkingPods(Arc<[AtomicUsize; LIFECYCLES.len() * CONFIGS.len()]>);

impl WorkingPods {
    /// The place of a pod that should run. It is given up when this is dropped.
    pub(crate) fn enter(&self, pod: &Pod) -> Working {
        let place = place(config(pod, true), Lifecycle::Sync);
        self.0[place].fetch_add(1, Ordering::Relaxed);
        Working { pods: self.clone(), place }
    }

    fn tell(&self, samples: &mut Samples) {
        for (config, is_static) in [(Config::Desired, ""), (Config::DesiredStatic, "true")] {
            let [sync, terminating, terminated] =
                LIFECYCLES.map(|(lifecycle, _)| self.0[place(config, lifecycle)].load(Ordering::Relaxed));
            let labels = [("static", is_static)];
            let active = sync + terminating;
            let help = "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.";
            let desired = (active + terminated) as f64;
            samples.add("kubelet_desired_pods", help, Kind::Gauge, &labels, desired);
            let help = "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.";
            samples.add("kubelet_active_pods", help, Kind::Gauge, &labels, active as f64);
        }
        let help = "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.";
        for (config, word, is_static) in CONFIGS {
            for (lifecycle, state) in LIFECYCLES {
                let labels = [("config", word), ("lifecycle", state), ("static", is_static)];
                let count = self.0[place(config, lifecycle)].load(Ordering::Relaxed);
                samples.add("kubelet_working_pods", help, Kind::Gauge, &labels, count as f64);
            }
        }
    }
}

/// A worker's place among all.
pub(crate) struct Working {
    pods: WorkingPods,
    place: usize,
}

impl Working {
    /// It is like this now.
    pub(crate) fn is(&mut self, pod: &Pod, is_wanted: bool, lifecycle: Lifecycle) {
        let now = place(config(pod, is_wanted), lifecycle);
        if now != self.place {
            self.pods.0[self.place].fetch_sub(1, Ordering::Relaxed);
            self.pods.0[now].fetch_add(1, Ordering::Relaxed);
            self.place = now;
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.pods.0[self.place].fetch_sub(1, Ordering::Relaxed);
    }
}

fn config(pod: &Pod, is_wanted: bool) -> Config {
    match (SourceKind::of(pod).map(SourceKind::is_static), is_wanted) {
        (None, _) => Config::RuntimeOnly,
        (Some(false), true) => Config::Desired,
        (Some(true), true) => Config::DesiredStatic,
        (Some(false), false) => Config::Orphan,
        (Some(true), false) => Config::OrphanStatic,
    }
}

const fn place(config: Config, lifecycle: Lifecycle) -> usize {
    config as usize * LIFECYCLES.len() + lifecycle as usize
}
