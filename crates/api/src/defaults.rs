//! What the API server fills in where a pod does not say.
//!
//! A pod from the API server has been through this; a manifest on the node's disk has not, and the kubelet fills it
//! in itself. What admission adds (the service account and its token, tolerations, priority) is no part of it.

mod container;
mod image;
mod resources;
mod volume;

pub(crate) use resources::is_sidecar;

use crate::core::{DNSPolicy, Pod, PodSpec, RestartPolicy};
use crate::features::{FeatureGates, Gate};
use crate::object::Absent;

/// Annotations that held the init containers before there was a field for them. Nothing reads them any more, and
/// the API server drops them.
const FORMER_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
];

/// Fills in what a pod does not say, as the API server does for a pod that is created. A pod that has been through
/// this does not change any more.
pub fn default_pod(pod: &mut Pod, features: &FeatureGates) {
    // The resources of the containers come first: those of the pod follow from them. Rounding comes last, so that
    // sums are of exact amounts.
    resources::default_requests(&mut pod.spec);
    if features.enabled(Gate::PodLevelResources) {
        resources::default_pod_level(&mut pod.spec);
    }
    default_spec(&mut pod.spec);
    resources::round_spec(&mut pod.spec);
    resources::round_status(&mut pod.status);
    if FORMER_ANNOTATIONS.iter().any(|name| pod.metadata.annotations.contains_key(name)) {
        pod.metadata.annotations.retain(|name, _| !FORMER_ANNOTATIONS.contains(&name));
    }
}

fn default_spec(spec: &mut PodSpec) {
    fill(&mut spec.dns_policy, DNSPolicy::ClusterFirst);
    fill(&mut spec.restart_policy, RestartPolicy::Always);
    fill(&mut spec.scheduler_name, "default-scheduler");
    fill(&mut spec.enable_service_links, true);
    spec.security_context.get_or_insert_default();
    default_grace_period(spec);
    unite_service_account_names(spec);

    let host_network = spec.host_network;
    for container in spec.init_and_regular_containers_mut() {
        if host_network {
            container::default_host_ports(container);
        }
        container::default_container(container);
    }
    for ephemeral in &mut spec.ephemeral_containers {
        container::default_container(&mut ephemeral.container);
    }
    for volume in &mut spec.volumes {
        volume::default_volume(volume);
    }
}

/// A negative period was once allowed and meant "at once"; such pods still exist.
fn default_grace_period(spec: &mut PodSpec) {
    let seconds = spec.termination_grace_period_seconds.unwrap_or(30);
    spec.termination_grace_period_seconds = Some(if seconds < 0 { 1 } else { seconds });
}

/// `serviceAccount` is the former name of `serviceAccountName`: whoever reads the one finds what the other says.
fn unite_service_account_names(spec: &mut PodSpec) {
    if spec.service_account_name.is_empty() {
        spec.service_account_name = spec.service_account.clone();
    }
    spec.service_account = spec.service_account_name.clone();
}

/// Sets a field that is absent.
fn fill<T: Absent>(field: &mut T, value: impl Into<T>) {
    if field.is_absent() {
        *field = value.into();
    }
}
