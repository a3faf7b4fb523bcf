//! Pods that take more of the node's own disk than they may.

use crablet_api::Quantity;
use crablet_api::core::{Pod, VolumeSource};

use super::{Disks, PodUsage};
use crate::qos::{Overhead, PodLevel, pod_limits};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// What of a pod is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The size of a volume.
    EmptyDir,
    /// What its containers may take together.
    Pod,
    Container,
}

impl Limit {
    /// The word by which metrics know it.
    pub fn signal(self) -> &'static str {
        match self {
            Limit::EmptyDir => "emptydirfs.limit",
            Limit::Pod => "ephemeralpodfs.limit",
            Limit::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// A limit that a pod does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverLimit {
    pub limit: Limit,
    /// What it is told.
    pub message: String,
}

/// Whether what a pod takes on disk is limited, so that it has to be known.
pub fn has_limits(pod: &Pod) -> bool {
    let mut containers = pod.spec.init_and_regular_containers();
    size_limits(pod).next().is_some()
        || containers.any(|container| container.resources.limits.get(EPHEMERAL_STORAGE).is_some())
}

/// The first limit that a pod does not keep: of its volumes, of the whole pod, of its containers.
pub fn over_limit(pod: &Pod, usage: &PodUsage, disks: Disks) -> Option<OverLimit> {
    over_size(pod, usage).or_else(|| over_whole(pod, usage)).or_else(|| over_containers(pod, usage, disks))
}

fn over_size(pod: &Pod, usage: &PodUsage) -> Option<OverLimit> {
    size_limits(pod).find_map(|(name, size)| {
        let (_, used) = usage.volumes.iter().find(|(volume, _)| **volume == *name)?;
        let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{size}\". ");
        (bytes(used.bytes?) > *size).then_some(OverLimit { limit: Limit::EmptyDir, message })
    })
}

fn over_whole(pod: &Pod, usage: &PodUsage) -> Option<OverLimit> {
    let most = ephemeral_storage_limit(pod)?;
    let message = format!("Pod ephemeral local storage usage exceeds the total limit of containers {most}. ");
    let used = bytes(usage.ephemeral_storage.unwrap_or(0));
    (used > most).then_some(OverLimit { limit: Limit::Pod, message })
}

fn over_containers(pod: &Pod, usage: &PodUsage, disks: Disks) -> Option<OverLimit> {
    usage.containers.iter().find_map(|container| {
        let spec = pod.spec.containers.iter().find(|spec| spec.name == container.name)?;
        let most = spec.resources.limits.get(EPHEMERAL_STORAGE).filter(|most| most.value() != 0)?;
        let mut used = container.logs.bytes.unwrap_or(0);
        match disks {
            Disks::One => used = used.saturating_add(container.rootfs.bytes.unwrap_or(0)),
            // What it wrote is not on the node's own disk.
            Disks::SeparateImages | Disks::Split => {}
        }
        let name = &container.name;
        let message = format!("Container {name} exceeded its local ephemeral storage limit \"{most}\". ");
        (bytes(used) > *most).then_some(OverLimit { limit: Limit::Container, message })
    })
}

/// The volumes of a pod that have a size.
fn size_limits(pod: &Pod) -> impl Iterator<Item = (&str, &Quantity)> {
    pod.spec.volumes.iter().filter_map(|volume| match volume.source.one() {
        Some(VolumeSource::EmptyDir(directory)) => {
            let size = directory.size_limit.as_ref().filter(|size| size.sign() > 0)?;
            Some((&*volume.name, size))
        }
        _ => None,
    })
}

fn ephemeral_storage_limit(pod: &Pod) -> Option<Quantity> {
    pod_limits(pod, PodLevel::Counted, Overhead::Included).get(EPHEMERAL_STORAGE).cloned()
}

fn bytes(value: u64) -> Quantity {
    Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;
    use crate::eviction::{ContainerUsage, FsUsage};

    const GI: u64 = 1 << 30;

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"))
    }

    fn limited(name: &str, limit: &str) -> String {
        format!("{{name: {name}, resources: {{limits: {{ephemeral-storage: {limit}}}}}}}")
    }

    fn fs(bytes: u64) -> FsUsage {
        FsUsage { bytes: Some(bytes), inodes: None }
    }

    fn container(name: &str, rootfs: u64, logs: u64) -> ContainerUsage {
        ContainerUsage { name: name.into(), rootfs: fs(rootfs), logs: fs(logs), ..ContainerUsage::default() }
    }

    #[track_caller]
    fn check(spec: &str, usage: &PodUsage, disks: Disks, expected: Option<(Limit, &str)>) {
        let pod = pod(spec);
        let found = over_limit(&pod, usage, disks);
        let found = found.as_ref().map(|found| (found.limit, &*found.message));
        assert_eq!(found, expected, "{spec}");
        assert!(expected.is_none() || has_limits(&pod));
    }

    #[test]
    fn a_volume_keeps_its_size() {
        let spec = "{containers: [{name: c}], volumes: [{name: a, emptyDir: {sizeLimit: 1Gi}}, {name: b, emptyDir: {}}, \
                    {name: z, emptyDir: {sizeLimit: 0}}]}";
        let using = |a, b| PodUsage {
            volumes: vec![("a".into(), fs(a)), ("b".into(), fs(b)), ("z".into(), fs(9 * GI))],
            ..PodUsage::default()
        };
        check(spec, &using(GI, 9 * GI), Disks::One, None);
        let message = "Usage of EmptyDir volume \"a\" exceeds the limit \"1Gi\". ";
        check(spec, &using(GI + 1, 0), Disks::One, Some((Limit::EmptyDir, message)));
        check(spec, &using(GI + 1, 0), Disks::Split, Some((Limit::EmptyDir, message)));
        check(spec, &PodUsage::default(), Disks::One, None);
    }

    #[test]
    fn a_pod_keeps_what_its_containers_may_take_together() {
        let spec = format!("{{containers: [{}, {}]}}", limited("a", "1Gi"), limited("b", "1Gi"));
        let using = |whole| PodUsage { ephemeral_storage: Some(whole), ..PodUsage::default() };
        check(&spec, &using(2 * GI), Disks::One, None);
        let message = "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ";
        check(&spec, &using(2 * GI + 1), Disks::One, Some((Limit::Pod, message)));
        // Limited as soon as one of its containers is.
        let half = format!("{{containers: [{}, {{name: b}}]}}", limited("a", "1Gi"));
        check(
            &half,
            &using(GI + 1),
            Disks::One,
            Some((
                Limit::Pod,
                "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            )),
        );
        check("{containers: [{name: a}]}", &using(99 * GI), Disks::One, None);
    }

    #[test]
    fn a_container_keeps_its_limit_with_what_it_wrote_where_that_is_on_the_same_disk() {
        let spec = format!("{{containers: [{}, {{name: b}}]}}", limited("a", "1Gi"));
        let using = |rootfs, logs| PodUsage {
            containers: vec![container("b", 9 * GI, 9 * GI), container("a", rootfs, logs)],
            ..PodUsage::default()
        };
        let message = "Container a exceeded its local ephemeral storage limit \"1Gi\". ";
        let over = Some((Limit::Container, message));
        check(&spec, &using(GI / 2, GI / 2), Disks::One, None);
        check(&spec, &using(GI / 2, GI / 2 + 1), Disks::One, over);
        check(&spec, &using(2 * GI, 0), Disks::One, over);
        check(&spec, &using(2 * GI, GI), Disks::SeparateImages, None);
        check(&spec, &using(0, GI + 1), Disks::SeparateImages, over);
        check(&spec, &using(9 * GI, 0), Disks::Split, None);
        let none = format!("{{containers: [{}]}}", limited("a", "0"));
        check(&none, &using(9 * GI, 9 * GI), Disks::One, None);
    }

    #[test]
    fn init_containers_are_held_to_the_limit_of_the_pod_alone() {
        let spec = format!("{{containers: [{{name: a}}], initContainers: [{}]}}", limited("i", "1Gi"));
        let using = PodUsage { containers: vec![container("i", 2 * GI, 0)], ..PodUsage::default() };
        check(&spec, &using, Disks::One, None);
        let whole = PodUsage { ephemeral_storage: Some(2 * GI), ..using };
        let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
        check(&spec, &whole, Disks::One, Some((Limit::Pod, message)));
    }

    #[test]
    fn who_has_no_limit_is_not_asked() {
        assert!(!has_limits(&pod("{containers: [{name: a}], volumes: [{name: v, emptyDir: {}}]}")));
        assert!(has_limits(&pod(&format!("{{containers: [{}]}}", limited("a", "1Gi")))));
    }
}
