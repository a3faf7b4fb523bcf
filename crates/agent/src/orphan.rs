//! A pod made from what the runtime remembers of it and its checkpoint, good enough to end it as it would have wanted.

use crablet_api::core::{Container as PodContainer, ContainerRestartPolicy, Lifecycle, Pod};
use crablet_core::labels::{self, ContainerRecord};
use crablet_cri_api::{Container, Sandbox};

use crate::worker::Checkpoint;

/// What is known of a pod that nobody wants.
pub(crate) fn pod(
    uid: &str,
    sandboxes: &[Sandbox],
    containers: &[Container],
    checkpoint: Option<&Checkpoint>,
) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    let has_uid = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(labels::POD_UID).is_some_and(|other| other == uid)
    };
    let sandbox = sandboxes.iter().find(|sandbox| has_uid(&sandbox.labels));
    let of_pod: Vec<&Container> = containers.iter().filter(|container| has_uid(&container.labels)).collect();
    if let Some(checkpoint) = checkpoint {
        pod.metadata.namespace = checkpoint.namespace.as_str().into();
        pod.metadata.name = checkpoint.name.as_str().into();
    }
    let labels = sandbox.map(|sandbox| &sandbox.labels).or(of_pod.first().map(|container| &container.labels));
    if let Some(labels) = labels {
        let identity = labels::pod_identity(labels);
        (pod.metadata.namespace, pod.metadata.name) = (identity.namespace, identity.name);
    }
    let mut spec: Vec<PodContainer> = Vec::new();
    for container in of_pod {
        let record = ContainerRecord::from_annotations(&container.annotations);
        pod.metadata.deletion_grace_period_seconds =
            pod.metadata.deletion_grace_period_seconds.or(record.deletion_grace_period);
        pod.spec.termination_grace_period_seconds =
            pod.spec.termination_grace_period_seconds.or(record.termination_grace_period);
        if !spec.iter().any(|known| *known.name == *container.name) {
            let lifecycle = record
                .pre_stop
                .map(|hook| Box::new(Lifecycle { pre_stop: Some(hook), ..Lifecycle::default() }));
            spec.push(PodContainer {
                name: container.name.as_str().into(),
                lifecycle,
                ..PodContainer::default()
            });
        }
    }
    let sidecars = checkpoint.map(|checkpoint| checkpoint.sidecars.as_slice()).unwrap_or_default();
    let place = |container: &PodContainer| sidecars.iter().position(|name| *name == *container.name);
    let (mut beside, spec): (Vec<_>, Vec<_>) =
        spec.into_iter().partition(|container| place(container).is_some());
    beside.sort_by_key(place);
    for sidecar in &mut beside {
        sidecar.restart_policy = Some(ContainerRestartPolicy::Always);
    }
    pod.spec.init_containers = beside.into();
    pod.spec.containers = spec.into();
    pod
}
