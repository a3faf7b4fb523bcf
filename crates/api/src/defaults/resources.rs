//! What is asked for where only limits are given, what the pod as a whole asks for, and to what amounts are rounded.

use crate::Quantity;
use crate::core::{
    Container, ContainerRestartPolicy, ContainerStatus, PodSpec, PodStatus, ResourceList,
    ResourceRequirements, VolumeSource,
};
use crate::resource_names::is_huge_pages;

const MILLI: i32 = -3;

/// A container asks for as much as it may use, where it does not say otherwise. Ephemeral containers ask for nothing.
pub(super) fn default_requests(spec: &mut PodSpec) {
    for container in spec.init_and_regular_containers_mut() {
        let ResourceRequirements { limits, requests, .. } = &mut container.resources;
        add_missing(requests, limits.iter());
    }
}

/// What the pod as a whole asks for and may use follows from its containers, once it says anything about either.
pub(super) fn default_pod_level(spec: &mut PodSpec) {
    let Some(mut resources) = spec.resources.take() else { return };
    default_huge_page_limits(&mut resources, spec);
    default_pod_requests(&mut resources, spec);
    spec.resources = Some(resources);
}

/// Huge pages cannot be overcommitted: a pod whose containers may use them may use all of theirs. One that asks for
/// them itself has to say its own limit.
fn default_huge_page_limits(resources: &mut ResourceRequirements, spec: &PodSpec) {
    if resources.limits.is_empty() && resources.requests.is_empty() {
        return;
    }
    let sums = sum_over_containers(spec, |resources| &resources.limits);
    let huge_pages =
        sums.iter().filter(|(name, _)| is_huge_pages(name) && !resources.requests.contains_key(name));
    add_missing(&mut resources.limits, huge_pages);
}

/// A pod with a limit asks for what its containers ask for; where none of them does, for its limit.
fn default_pod_requests(resources: &mut ResourceRequirements, spec: &PodSpec) {
    let ResourceRequirements { limits, requests, .. } = resources;
    if limits.is_empty() {
        return;
    }
    let sums = sum_over_containers(spec, |resources| &resources.requests);
    add_missing(requests, sums.iter().filter(|(name, _)| is_cpu_or_memory(name)));
    add_missing(requests, limits.iter().filter(|(name, _)| is_cpu_or_memory(name) || is_huge_pages(name)));
}

fn is_cpu_or_memory(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

/// How much the containers take at most at any one time: all main containers and sidecars together, or an init
/// container with the sidecars that were started before it.
fn sum_over_containers(spec: &PodSpec, part: fn(&ResourceRequirements) -> &ResourceList) -> ResourceList {
    let mut running = ResourceList::default();
    for container in &spec.containers {
        add(&mut running, part(&container.resources));
    }
    let mut sidecars = ResourceList::default();
    let mut initializing = ResourceList::default();
    for container in &spec.init_containers {
        let own = part(&container.resources);
        if is_sidecar(container) {
            add(&mut running, own);
            add(&mut sidecars, own);
            raise(&mut initializing, &sidecars);
        } else {
            let mut together = own.clone();
            add(&mut together, &sidecars);
            raise(&mut initializing, &together);
        }
    }
    raise(&mut running, &initializing);
    running
}

/// Whether an init container goes on running beside the others.
pub(crate) fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy == Some(ContainerRestartPolicy::Always)
}

/// Takes over amounts of what `list` does not name.
fn add_missing<'a>(list: &mut ResourceList, amounts: impl Iterator<Item = (&'a str, &'a Quantity)>) {
    for (name, amount) in amounts {
        if !list.contains_key(name) {
            list.insert(name, amount.clone());
        }
    }
}

fn add(list: &mut ResourceList, amounts: &ResourceList) {
    for (name, amount) in amounts.iter() {
        match list.get_mut(name) {
            Some(sum) => *sum += amount,
            None => _ = list.insert(name, amount.clone()),
        }
    }
}

/// Raises what is less than in `amounts`.
fn raise(list: &mut ResourceList, amounts: &ResourceList) {
    for (name, amount) in amounts.iter() {
        if list.get(name).is_none_or(|present| present < amount) {
            list.insert(name, amount.clone());
        }
    }
}

/// Rounds all amounts up to thousandths, the finest that Kubernetes accounts for.
pub(super) fn round_spec(spec: &mut PodSpec) {
    round(&mut spec.overhead);
    if let Some(resources) = &mut spec.resources {
        round_requirements(resources);
    }
    let ephemeral = spec.ephemeral_containers.iter_mut().map(|ephemeral| &mut ephemeral.container);
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers).chain(ephemeral) {
        round_requirements(&mut container.resources);
    }
    for source in spec.volumes.iter_mut().flat_map(|volume| volume.source.as_mut_slice()) {
        let VolumeSource::Ephemeral(ephemeral) = source else { continue };
        if let Some(template) = &mut ephemeral.volume_claim_template {
            round(&mut template.spec.resources.limits);
            round(&mut template.spec.resources.requests);
        }
    }
}

/// As [`round_spec`], for what a status says of resources.
pub(super) fn round_status(status: &mut PodStatus) {
    round(&mut status.allocated_resources);
    if let Some(resources) = &mut status.resources {
        round_requirements(resources);
    }
    for container in status.container_statuses.iter_mut().chain(&mut status.init_container_statuses) {
        round_container_status(container);
    }
    for container in &mut status.ephemeral_container_statuses {
        round_container_status(container);
    }
}

fn round_container_status(status: &mut ContainerStatus) {
    round(&mut status.allocated_resources);
    if let Some(resources) = &mut status.resources {
        round_requirements(resources);
    }
}

fn round_requirements(resources: &mut ResourceRequirements) {
    round(&mut resources.limits);
    round(&mut resources.requests);
}

fn round(list: &mut ResourceList) {
    for amount in list.values_mut() {
        *amount = std::mem::take(amount).rounded_up(MILLI);
    }
}
