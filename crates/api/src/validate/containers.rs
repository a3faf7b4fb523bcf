//! The three lists of containers: what they have in common, and what only some of them may have.

use std::collections::BTreeSet;

use crate::core::{
    Container, ContainerPort, ContainerRestartPolicy, EphemeralContainer, PodOS, PodSpec, Protocol,
    PullPolicy, ResourceResizeRestartPolicy, RestartPolicy, TerminationMessagePolicy,
};
use crate::features::Gate;
use crate::names::dns1123_label_errors;

use super::Rules;
use super::env::{check_env, check_env_from};
use super::error::{Errors, Word};
use super::mounts::{check_volume_devices, check_volume_mounts};
use super::path::Path;
use super::probes::{check_lifecycle, check_liveness_probe, check_readiness_probe, check_startup_probe};
use super::resources::check_container_resources;
use super::restarts::{check_container_restarts, check_init_container_restarts, check_resize_policy};
use super::security::check_security_context;
use super::text;
use super::volumes::Volumes;

/// What the checks of a container know of its pod.
pub(super) struct Surroundings<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) volumes: &'a Volumes<'a>,
    /// The names of the pod's resource claims.
    pub(super) claims: &'a BTreeSet<&'a str>,
    pub(super) grace_period: Option<i64>,
    pub(super) rules: &'a Rules<'a>,
}

impl Surroundings<'_> {
    fn operating_system(&self) -> Option<&PodOS> {
        self.spec.os.as_ref()
    }
}

/// Every container with the name of its list and its place there, in upstream's order.
pub(super) fn all_containers(spec: &PodSpec) -> impl Iterator<Item = (&'static str, usize, &Container)> {
    let init = spec.init_containers.iter().enumerate().map(|(index, it)| ("initContainers", index, it));
    let regular = spec.containers.iter().enumerate().map(|(index, it)| ("containers", index, it));
    let ephemeral = spec.ephemeral_containers.iter().enumerate();
    init.chain(regular).chain(ephemeral.map(|(index, it)| ("ephemeralContainers", index, &it.container)))
}

pub(super) fn check_containers(errors: &mut Errors, path: &Path<'_>, surroundings: &Surroundings<'_>) {
    let containers = &surroundings.spec.containers;
    if containers.is_empty() {
        return errors.required(path, "");
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(errors, &path, container, surroundings);
        if !names.insert(container.name.as_ref()) {
            errors.duplicate(&path.child("name"), container.name.as_ref());
        }
        check_long_running(errors, &path, container, surroundings);
        if surroundings.rules.features.enabled(Gate::ContainerRestartRules) {
            check_container_restarts(errors, &path, container, surroundings.rules);
        } else if container.restart_policy.is_some() {
            errors.forbidden(&path.child("restartPolicy"), "may not be set for non-init containers");
        }
    }
    check_host_ports(errors, path, containers);
}

pub(super) fn check_init_containers(errors: &mut Errors, path: &Path<'_>, surroundings: &Surroundings<'_>) {
    let spec = surroundings.spec;
    let mut names: BTreeSet<&str> = spec.containers.iter().map(|container| container.name.as_ref()).collect();
    for (index, container) in spec.init_containers.iter().enumerate() {
        let lists_path = path;
        let path = path.index(index);
        check_common(errors, &path, container, surroundings);
        check_init_container_restarts(errors, &path, container, surroundings.rules);
        if names.contains(container.name.as_ref()) {
            errors.duplicate(&path.child("name"), container.name.as_ref());
        } else if !container.name.is_empty() {
            names.insert(&container.name);
        }
        // They run one by one, so that each may have the ports of the others. Upstream's index is always 0.
        check_host_ports(errors, lists_path, std::slice::from_ref(container));

        let sidecar = container.restart_policy == Some(ContainerRestartPolicy::Always);
        if sidecar {
            check_long_running(errors, &path, container, surroundings);
        } else {
            for (field, is_set) in [
                ("lifecycle", container.lifecycle.is_some()),
                ("livenessProbe", container.liveness_probe.is_some()),
                ("readinessProbe", container.readiness_probe.is_some()),
                ("startupProbe", container.startup_probe.is_some()),
            ] {
                if is_set {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(&path.child(field), detail);
                }
            }
            let policies = path.child("resizePolicy");
            for (index, policy) in container.resize_policy.iter().enumerate() {
                if policy.restart_policy == ResourceResizeRestartPolicy::RestartContainer {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    let path = policies.index(index);
                    errors.invalid(&path.child("restartPolicy"), Word("RestartContainer"), detail);
                }
            }
        }
    }
}

pub(super) fn check_ephemeral_containers(
    errors: &mut Errors,
    path: &Path<'_>,
    surroundings: &Surroundings<'_>,
) {
    let spec = surroundings.spec;
    let others = spec.init_and_regular_containers();
    let targets: BTreeSet<&str> = others.map(|container| container.name.as_ref()).collect();
    let mut names = targets.clone();
    for (index, ephemeral) in spec.ephemeral_containers.iter().enumerate() {
        let path = path.index(index);
        let container = &ephemeral.container;
        check_common(errors, &path, container, surroundings);
        check_image_spaces(errors, &path, container);
        if !names.insert(&container.name) {
            errors.duplicate(&path.child("name"), container.name.as_ref());
        }
        let target = ephemeral.target_container_name.as_ref();
        if !target.is_empty() && !targets.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target, String::new());
        }
        check_only_debugging(errors, &path, ephemeral);
    }
}

/// Refuses what would make an ephemeral container part of the workload.
fn check_only_debugging(errors: &mut Errors, path: &Path<'_>, ephemeral: &EphemeralContainer) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let container = &ephemeral.container;
    for (field, is_set) in [
        ("ports", !container.ports.is_empty()),
        ("resources", container.resources != Default::default()),
        ("resizePolicy", !container.resize_policy.is_empty()),
        ("restartPolicy", container.restart_policy.is_some()),
        ("restartPolicyRules", !container.restart_policy_rules.is_empty()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
        ("lifecycle", container.lifecycle.is_some()),
    ] {
        if is_set {
            errors.forbidden(&path.child(field), DETAIL);
        }
    }
    let mounts = path.child("volumeMounts");
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = mounts.index(index);
        if !mount.sub_path.is_empty() {
            errors.forbidden(&path.child("subPath"), DETAIL);
        }
        if !mount.sub_path_expr.is_empty() {
            errors.forbidden(&path.child("subPathExpr"), DETAIL);
        }
    }
}

/// What every container must be.
fn check_common(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    surroundings: &Surroundings<'_>,
) {
    let rules = surroundings.rules;
    if container.name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        errors.invalid_each(&path.child("name"), &container.name, dns1123_label_errors(&container.name));
    }
    if container.image.is_empty() {
        errors.required(&path.child("image"), "");
    }
    match &container.termination_message_policy {
        Some(TerminationMessagePolicy::File | TerminationMessagePolicy::FallbackToLogsOnError) => {}
        None => errors.required(&path.child("terminationMessagePolicy"), ""),
        Some(TerminationMessagePolicy::Other(policy)) => errors.not_supported(
            &path.child("terminationMessagePolicy"),
            Word(policy),
            TerminationMessagePolicy::WORDS,
        ),
    }
    check_ports(errors, &path.child("ports"), &container.ports);
    check_env(errors, &path.child("env"), &container.env, rules);
    check_env_from(errors, &path.child("envFrom"), &container.env_from);
    check_volume_mounts(errors, &path.child("volumeMounts"), container, surroundings.volumes);
    check_volume_devices(errors, &path.child("volumeDevices"), container, surroundings.volumes);
    check_pull_policy(errors, &path.child("imagePullPolicy"), container.image_pull_policy.as_ref());
    check_container_resources(errors, &path.child("resources"), &container.resources, surroundings.claims);
    let never_restarts = surroundings.spec.restart_policy == Some(RestartPolicy::Never);
    check_resize_policy(errors, &path.child("resizePolicy"), &container.resize_policy, never_restarts);
    let host_users = surroundings.spec.host_users != Some(false);
    let context = container.security_context.as_deref();
    check_security_context(errors, &path.child("securityContext"), context, host_users);
}

/// What only containers that keep running may have.
fn check_long_running(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Container,
    surroundings: &Surroundings<'_>,
) {
    let grace_period = surroundings.grace_period;
    if let Some(lifecycle) = container.lifecycle.as_deref() {
        let path = path.child("lifecycle");
        check_lifecycle(errors, &path, lifecycle, grace_period, surroundings.operating_system());
    }
    check_liveness_probe(errors, &path.child("livenessProbe"), container.liveness_probe.as_deref());
    check_readiness_probe(errors, &path.child("readinessProbe"), container.readiness_probe.as_deref());
    check_startup_probe(errors, &path.child("startupProbe"), container.startup_probe.as_deref());
}

pub(super) fn check_images_spaces(errors: &mut Errors, path: &Path<'_>, containers: &[Container]) {
    for (index, container) in containers.iter().enumerate() {
        check_image_spaces(errors, &path.index(index), container);
    }
}

fn check_image_spaces(errors: &mut Errors, path: &Path<'_>, container: &Container) {
    if container.image.trim().len() != container.image.len() {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid(&path.child("image"), container.image.as_ref(), detail);
    }
}

pub(super) fn check_pull_policy(errors: &mut Errors, path: &Path<'_>, policy: Option<&PullPolicy>) {
    match policy {
        Some(PullPolicy::Always | PullPolicy::Never | PullPolicy::IfNotPresent) => {}
        None => errors.required(path, ""),
        Some(PullPolicy::Other(policy)) => {
            errors.not_supported(path, Word(policy), &["Always", "IfNotPresent", "Never"]);
        }
    }
}

fn check_ports(errors: &mut Errors, path: &Path<'_>, ports: &[ContainerPort]) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        if !port.name.is_empty() {
            let problems = text::port_name_errors(&port.name);
            if problems.is_empty() && !names.insert(port.name.as_ref()) {
                errors.duplicate(&path.child("name"), port.name.as_ref());
            }
            errors.invalid_each(&path.child("name"), &port.name, problems);
        }
        if port.container_port == 0 {
            errors.required(&path.child("containerPort"), "");
        } else {
            check_port_number(errors, &path.child("containerPort"), port.container_port);
        }
        if port.host_port != 0 {
            check_port_number(errors, &path.child("hostPort"), port.host_port);
        }
        match &port.protocol {
            Some(Protocol::Tcp | Protocol::Udp | Protocol::Sctp) => {}
            None => errors.required(&path.child("protocol"), ""),
            Some(Protocol::Other(protocol)) => {
                errors.not_supported(&path.child("protocol"), Word(protocol), &["SCTP", "TCP", "UDP"]);
            }
        }
    }
}

fn check_port_number(errors: &mut Errors, path: &Path<'_>, port: i32) {
    for problem in text::port_number_errors(port) {
        errors.invalid(path, port, problem);
    }
}

fn check_host_ports(errors: &mut Errors, path: &Path<'_>, containers: &[Container]) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let ports = path.child("ports");
        for (index, port) in container.ports.iter().enumerate().filter(|(_, port)| port.host_port != 0) {
            let protocol = port.protocol.as_ref().map_or("", Protocol::as_str);
            let place = format!("{protocol}/{}/{}", port.host_ip, port.host_port);
            if taken.contains(&place) {
                let path = ports.index(index);
                errors.duplicate(&path.child("hostPort"), place.as_str());
            }
            taken.insert(place);
        }
    }
}
