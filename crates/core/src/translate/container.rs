//! What a container is made from.

use crablet_api::Gate;
use crablet_api::core::{Container, Pod};
use crablet_cri_api::{ImageUser, v1};

use super::environment::Environment;
use super::hostname::HostName;
use super::logs::container_log_path;
use super::mounts::{self, MountInput};
use super::namespaces::{self, UserNamespaces};
use super::node::NodeContext;
use super::refusal::ContainerRefusal;
use super::resources::container_resources;
use super::{security, signal};
use crate::labels::{container_annotations, container_labels};
use crate::observed;

/// What a container is made from, beside its [`Environment`].
#[derive(Debug, Clone, Copy)]
pub struct ContainerInput<'a> {
    pub pod: &'a Pod,
    /// One of its containers, of whatever kind.
    pub container: &'a Container,
    pub node: &'a NodeContext,
    /// How often it was restarted.
    pub restart_count: u32,
    /// The image as the runtime knows it.
    pub image_ref: &'a str,
    /// The user that the image runs as, if it says so.
    pub image_user: Option<&'a ImageUser>,
    pub mounts: MountInput<'a>,
    /// The handler that the pod's runtime class names; empty for the default.
    pub runtime_handler: &'a str,
    /// Which users of the node the pod's are, if it asks for its own.
    pub users: &'a UserNamespaces,
    /// Groups that the pod's volumes ask for.
    pub extra_groups: &'a [i64],
    /// The ID of the container whose processes it sees.
    pub target: Option<&'a str>,
    /// What resource managers and device plugins gave it.
    pub granted: &'a Granted,
}

/// What resource managers and device plugins gave a container. Variables go into its
/// [`EnvironmentInput`](super::EnvironmentInput).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Granted {
    /// Annotations for the runtime.
    pub annotations: Vec<(String, String)>,
    pub mounts: Vec<v1::Mount>,
    pub devices: Vec<v1::Device>,
    /// Names of devices that the runtime looks up.
    pub cdi_devices: Vec<String>,
    /// The CPUs it runs on, as a list of ranges; empty for any.
    pub cpus: String,
    /// The nodes of memory it uses, as a list; empty for any.
    pub memory_nodes: String,
    /// Whether the CPUs are its alone.
    pub exclusive_cpus: bool,
}

/// The ID of the container whose processes an ephemeral container sees, if it names one. What the runtime knew last by
/// that name counts, whatever its state: as whose processes it cannot be seen, the runtime says.
pub fn target<'a>(
    pod: &'a Pod,
    container: &Container,
    observed: &'a observed::Pod,
) -> Result<Option<&'a str>, ContainerRefusal> {
    let ephemeral = pod.spec.ephemeral_containers.iter().find(|known| known.container.name == container.name);
    match ephemeral.map_or("", |ephemeral| &*ephemeral.target_container_name) {
        "" => Ok(None),
        name => match observed.latest(name) {
            Some(found) => Ok(Some(&found.id)),
            None => Err(ContainerRefusal::NoTarget(name.to_owned())),
        },
    }
}

/// A container as the runtime is asked for it.
pub fn container(
    input: &ContainerInput<'_>,
    environment: Environment,
) -> Result<v1::ContainerConfig, ContainerRefusal> {
    let ContainerInput { pod, container, node, granted, .. } = *input;
    // Its name is in its `/etc/hosts`, which nothing may mount before it can be written.
    HostName::of_pod(pod, &node.settings.cluster_domain, node.features.enabled(Gate::HostnameOverride))?;
    let mut devices = granted.devices.clone();
    devices.extend(mounts::devices(container, input.mounts.volumes)?);
    let mut mounts = granted.mounts.clone();
    mounts.extend(mounts::of_container(pod, container, &environment, &input.mounts, node)?);
    security::check_non_root(pod, container, input.image_user)?;
    let linux = linux(input)?;
    add_user_mappings(&mut mounts, &linux);
    if node.features.enabled(Gate::RuntimeClassInImageCriApi) {
        for image in mounts.iter_mut().filter_map(|mount| mount.image.as_mut()) {
            input.runtime_handler.clone_into(&mut image.runtime_handler);
        }
    }
    let expanded = |words: &[crablet_api::Text]| words.iter().map(|word| environment.expand(word)).collect();
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.to_string(),
            attempt: input.restart_count,
        }),
        image: Some(v1::ImageSpec {
            image: input.image_ref.to_owned(),
            user_specified_image: container.image.to_string(),
            ..v1::ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.to_string(),
        mounts,
        devices,
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, container, input.restart_count, &granted.annotations),
        log_path: container_log_path(&container.name, input.restart_count),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(linux),
        windows: None,
        cdi_devices: granted.cdi_devices.iter().map(|name| v1::CdiDevice { name: name.clone() }).collect(),
        stop_signal: stop_signal(container, node) as i32,
        envs: environment.into_variables(),
    })
}

fn linux(input: &ContainerInput<'_>) -> Result<v1::LinuxContainerConfig, ContainerRefusal> {
    let ContainerInput { pod, container, node, granted, .. } = *input;
    let mut namespaces = namespaces::of_pod(
        pod,
        input.runtime_handler,
        input.users,
        node.features.enabled(Gate::UserNamespacesSupport),
    )?;
    if let Some(target) = input.target.filter(|_| namespaces.pid() == v1::NamespaceMode::Container) {
        namespaces.set_pid(v1::NamespaceMode::Target);
        target.clone_into(&mut namespaces.target_id);
    }
    let context =
        security::of_container(pod, container, node, input.image_user, namespaces, input.extra_groups)?;
    let mut resources = container_resources(pod, container, node, granted.exclusive_cpus);
    resources.cpuset_cpus.clone_from(&granted.cpus);
    resources.cpuset_mems.clone_from(&granted.memory_nodes);
    Ok(v1::LinuxContainerConfig { resources: Some(resources), security_context: Some(context) })
}

/// Files of the node belong to the container's users in its mounts.
fn add_user_mappings(mounts: &mut [v1::Mount], linux: &v1::LinuxContainerConfig) {
    let users = linux
        .security_context
        .as_ref()
        .and_then(|context| context.namespace_options.as_ref())
        .and_then(|namespaces| namespaces.userns_options.as_ref());
    if let Some(users) = users {
        for mount in mounts {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
    }
}

fn stop_signal(container: &Container, node: &NodeContext) -> v1::Signal {
    match container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_ref()) {
        Some(wanted) if node.features.enabled(Gate::ContainerStopSignals) => signal::to_runtime(wanted),
        Some(_) | None => v1::Signal::RuntimeDefault,
    }
}

#[cfg(test)]
mod tests;
