//! Which pod goes first.
//!
//! As upstream: a pod of which nothing is known before all others; then one that uses more than it asked for; then the one
//! of lower priority; and then the one that uses most beyond what it asked for. For process IDs nobody asks, so that
//! priority decides first.

use std::cmp::Reverse;

use crablet_api::Quantity;
use crablet_api::core::{Pod, Volume, VolumeSource};

use super::{Disks, FsUsage, PodUsage, Resource, Signal, Usages};
use crate::qos::{Overhead, PodLevel, pod_level_resources_set, pod_requests, quantity};

/// Puts the pod first that goes first when there is too little of something. Pods that do not differ stay in the order in
/// which they are.
pub fn rank(pods: &mut [&Pod], signal: Signal, disks: Disks, usages: &Usages, level: PodLevel) {
    let usage = |pod: &Pod| usages.get(&*pod.metadata.uid);
    match signal.resource() {
        Resource::Memory => pods.sort_by_cached_key(|pod| {
            let requested = requested(pod, "memory", level);
            let used = usage(pod).map(|usage| amount(usage.memory));
            above_requests(pod, used, &requested, &requested)
        }),
        Resource::EphemeralStorage => pods.sort_by_cached_key(|pod| {
            let requested = requested(pod, "ephemeral-storage", level);
            let used = usage(pod).map(|usage| on_disk(pod, usage, signal, disks, |fs| fs.bytes));
            above_requests(pod, used, &requested, &requested)
        }),
        Resource::Inodes => pods.sort_by_cached_key(|pod| {
            let used = usage(pod).map(|usage| on_disk(pod, usage, signal, disks, |fs| fs.inodes));
            // Nobody can ask for inodes, yet upstream takes the bytes asked for from them.
            above_requests(
                pod,
                used,
                &requested(pod, "inodes", level),
                &requested(pod, "ephemeral-storage", level),
            )
        }),
        Resource::Pids => pods.sort_by_cached_key(|pod| {
            let processes = usage(pod).map(|usage| usage.processes.unwrap_or(0));
            (priority(pod), processes.is_some(), Reverse(processes))
        }),
    }
}

/// How eager a pod is to be seen off.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Nobody knows what it uses.
    Unknown,
    /// It uses more than it asked for.
    Above,
    Within,
}

fn above_requests(
    pod: &Pod,
    used: Option<Quantity>,
    requested: &Quantity,
    counted: &Quantity,
) -> (Class, i32, Reverse<Quantity>) {
    match used {
        None => (Class::Unknown, priority(pod), Reverse(Quantity::default())),
        Some(used) => {
            let class = if used > *requested { Class::Above } else { Class::Within };
            (class, priority(pod), Reverse(used - counted))
        }
    }
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}

/// What a pod asks for of a resource: as a whole, if it says so of anything, and else in its containers. What running it
/// takes is added where it asks for something.
fn requested(pod: &Pod, resource: &str, level: PodLevel) -> Quantity {
    let is_whole = level == PodLevel::Counted && pod_level_resources_set(pod);
    let mut requested = match (is_whole, &pod.spec.resources) {
        (true, Some(whole)) => match resource {
            "memory" => quantity(&whole.requests, resource),
            _ => Quantity::default(),
        },
        _ => quantity(&pod_requests(pod, PodLevel::Ignored, Overhead::Excluded), resource),
    };
    if let Some(overhead) = pod.spec.overhead.get(resource).filter(|_| !requested.is_zero()) {
        requested += overhead;
    }
    requested
}

/// What a pod takes of the file system that a signal is about.
fn on_disk(
    pod: &Pod,
    usage: &PodUsage,
    signal: Signal,
    disks: Disks,
    of: fn(&FsUsage) -> Option<u64>,
) -> Quantity {
    let parts = Parts::of(signal, disks);
    let mut sum = Quantity::default();
    for container in &usage.containers {
        if parts.rootfs {
            sum += &amount(of(&container.rootfs));
        }
        if parts.logs {
            sum += &amount(of(&container.logs));
        }
    }
    if parts.volumes {
        for volume in pod.spec.volumes.iter().filter(|volume| is_local(volume)) {
            let found = usage.volumes.iter().find(|(name, _)| *name == volume.name);
            sum += &amount(found.and_then(|(_, usage)| of(usage)));
        }
    }
    sum
}

/// What of a pod is on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    rootfs: bool,
    logs: bool,
    volumes: bool,
}

impl Parts {
    fn of(signal: Signal, disks: Disks) -> Parts {
        const ALL: Parts = Parts { rootfs: true, logs: true, volumes: true };
        const AGENT: Parts = Parts { rootfs: false, ..ALL };
        const ROOTFS: Parts = Parts { rootfs: true, logs: false, volumes: false };
        const NOTHING: Parts = Parts { rootfs: false, ..ROOTFS };
        match signal {
            Signal::NodeFsAvailable | Signal::NodeFsInodesFree => match disks {
                Disks::One | Disks::Split => ALL,
                Disks::SeparateImages => AGENT,
            },
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => match disks {
                Disks::One | Disks::Split => ALL,
                Disks::SeparateImages => ROOTFS,
            },
            Signal::ImageFsAvailable | Signal::ImageFsInodesFree => match disks {
                Disks::One => ALL,
                Disks::SeparateImages => ROOTFS,
                // Images are nobody's.
                Disks::Split => NOTHING,
            },
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable => NOTHING,
        }
    }
}

/// Whether a volume is on the node's own disk.
fn is_local(volume: &Volume) -> bool {
    match volume.source.one() {
        Some(VolumeSource::HostPath(_) | VolumeSource::GitRepo(_) | VolumeSource::ConfigMap(_)) => true,
        Some(VolumeSource::EmptyDir(directory)) => directory.medium.is_none(),
        _ => false,
    }
}

fn amount(value: Option<u64>) -> Quantity {
    Quantity::from_value(i64::try_from(value.unwrap_or(0)).unwrap_or(i64::MAX))
}
