//! What is mounted into a container, and which devices it gets.

use std::collections::BTreeMap;

use crablet_api::Gate;
use crablet_api::core::{Container, MountPropagationMode, Pod, RecursiveReadOnlyMode, VolumeMount};
use crablet_cri_api::v1;

use super::environment::Environment;
use super::expand::expand;
use super::node::NodeContext;
use super::paths::absolute;
use super::refusal::{ContainerRefusal, RecursiveReadOnlyError};

/// Where the names of hosts are, on the node and in containers.
pub const ETC_HOSTS: &str = "/etc/hosts";

/// A volume of a pod, as it is on the node.
#[derive(Debug, Clone, PartialEq)]
pub enum MountedVolume {
    Files {
        /// Where they are on the node.
        host_path: String,
        /// Whether they must not be written, whoever mounts them.
        read_only: bool,
        /// Whether the runtime is to give them the container's SELinux label.
        relabel: bool,
    },
    /// The content of an image.
    Image(v1::ImageSpec),
    /// A block device.
    Device {
        /// Where it is on the node; absent while it is not there.
        host_path: Option<String>,
        /// Whether it must not be written.
        read_only: bool,
    },
}

/// What is mounted beside what the container itself asks for.
#[derive(Debug, Clone, Copy)]
pub struct MountInput<'a> {
    /// The pod's volumes, by their names in the pod.
    pub volumes: &'a BTreeMap<&'a str, MountedVolume>,
    /// Where the sub paths of the container's mounts are on the node, by the mounts' place in the list.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// The pod's own `/etc/hosts` on the node.
    pub etc_hosts: &'a str,
    /// Whether the pod has an address.
    pub has_address: bool,
    /// The file on the node that will hold the container's termination message, if it could be made.
    pub termination_log: Option<&'a str>,
    /// Whether the runtime can mount read-only all the way down.
    pub recursive_read_only: bool,
}

/// The path below its volume that a mount asks for, if it asks for one: references to variables replaced, and neither
/// from the root nor out of the volume.
pub fn sub_path(mount: &VolumeMount, environment: &Environment) -> Result<Option<String>, ContainerRefusal> {
    let path = match mount.sub_path_expr.as_str() {
        "" => mount.sub_path.to_string(),
        expression => expanded(expression, environment)?,
    };
    if path.is_empty() {
        Ok(None)
    } else if path.starts_with('/') {
        Err(ContainerRefusal::AbsoluteSubPath(path))
    } else if path.split('/').any(|part| part == "..") {
        Err(ContainerRefusal::SubPathBacksteps(path))
    } else {
        Ok(Some(path))
    }
}

/// Variables without a value would make one path of what should be many.
fn expanded(expression: &str, environment: &Environment) -> Result<String, ContainerRefusal> {
    let mut missing: Vec<String> = Vec::new();
    let path = expand(expression, |name, out| match environment.get(name) {
        Some(value) if !value.is_empty() => {
            out.extend_from_slice(value);
            true
        }
        Some(_) | None => {
            missing.push(name.to_owned());
            true
        }
    });
    if missing.is_empty() {
        return Ok(String::from_utf8_lossy(&path).into_owned());
    }
    missing.sort_unstable();
    missing.dedup();
    Err(ContainerRefusal::SubPathVariables(missing))
}

/// What is mounted into a container: its volumes, its `/etc/hosts` and the file for its termination message.
pub(super) fn of_container(
    pod: &Pod,
    container: &Container,
    environment: &Environment,
    input: &MountInput<'_>,
    node: &NodeContext,
) -> Result<Vec<v1::Mount>, ContainerRefusal> {
    let selinux = node.facts.selinux;
    let mut mounts = Vec::with_capacity(container.volume_mounts.len() + 2);
    let mut own_hosts = false;
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        own_hosts |= mount.mount_path == ETC_HOSTS;
        mounts.push(volume(index, mount, container, environment, input, node)?);
    }
    if !own_hosts && (input.has_address || pod.spec.host_network) {
        mounts.push(v1::Mount {
            container_path: ETC_HOSTS.to_owned(),
            host_path: input.etc_hosts.to_owned(),
            selinux_relabel: selinux,
            ..v1::Mount::default()
        });
    }
    if let Some(file) = input.termination_log.filter(|_| !container.termination_message_path.is_empty()) {
        mounts.push(v1::Mount {
            container_path: absolute(&container.termination_message_path),
            host_path: absolute(file),
            selinux_relabel: selinux,
            ..v1::Mount::default()
        });
    }
    Ok(mounts)
}

fn volume(
    index: usize,
    mount: &VolumeMount,
    container: &Container,
    environment: &Environment,
    input: &MountInput<'_>,
    node: &NodeContext,
) -> Result<v1::Mount, ContainerRefusal> {
    let no_volume = || ContainerRefusal::NoVolume {
        volume: mount.name.to_string(),
        container: container.name.to_string(),
    };
    let found = input.volumes.get(mount.name.as_str()).ok_or_else(no_volume)?;
    let mut made = v1::Mount { readonly: mount.read_only, ..v1::Mount::default() };
    let sub_path = sub_path(mount, environment);
    match found {
        MountedVolume::Device { .. } => return Err(no_volume()),
        MountedVolume::Image(image) if node.features.enabled(Gate::ImageVolume) => {
            made.image = Some(image.clone());
            made.image_sub_path = sub_path?.unwrap_or_default();
            // What an image holds is never written.
            made.readonly = true;
        }
        MountedVolume::Image(_) => return Err(no_volume()),
        MountedVolume::Files { host_path, read_only, relabel } => {
            made.host_path = match sub_path? {
                None => host_path.clone(),
                Some(_) => input.sub_paths.get(&index).cloned().ok_or_else(|| {
                    ContainerRefusal::SubPathNotPrepared {
                        mount: mount.name.to_string(),
                        container: container.name.to_string(),
                    }
                })?,
            };
            made.readonly |= read_only;
            made.selinux_relabel = *relabel && node.facts.selinux;
        }
    }
    made.container_path = match mount.mount_path.starts_with('/') {
        true => mount.mount_path.to_string(),
        false => absolute(&mount.mount_path),
    };
    made.propagation = propagation(mount)? as i32;
    made.recursive_read_only =
        recursive_read_only(mount, input.recursive_read_only).map_err(ContainerRefusal::RecursiveReadOnly)?;
    if made.recursive_read_only && !node.features.enabled(Gate::RecursiveReadOnlyMounts) {
        return Err(ContainerRefusal::RecursiveReadOnlyDisabled);
    }
    Ok(made)
}

fn propagation(mount: &VolumeMount) -> Result<v1::MountPropagation, ContainerRefusal> {
    match &mount.mount_propagation {
        None | Some(MountPropagationMode::None) => Ok(v1::MountPropagation::PropagationPrivate),
        Some(MountPropagationMode::HostToContainer) => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some(MountPropagationMode::Bidirectional) => Ok(v1::MountPropagation::PropagationBidirectional),
        Some(MountPropagationMode::Other(word)) => Err(ContainerRefusal::MountPropagation(word.to_string())),
    }
}

fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, RecursiveReadOnlyError> {
    let wanted = match &mount.recursive_read_only {
        None | Some(RecursiveReadOnlyMode::Disabled) => return Ok(false),
        Some(wanted) => wanted,
    };
    let volume = || mount.name.to_string();
    if !mount.read_only {
        return Err(RecursiveReadOnlyError::NotReadOnly(volume()));
    }
    match &mount.mount_propagation {
        None | Some(MountPropagationMode::None) => {}
        Some(other) => {
            let propagation = other.to_string();
            return Err(RecursiveReadOnlyError::Propagation { volume: volume(), propagation });
        }
    }
    match wanted {
        RecursiveReadOnlyMode::Disabled => Ok(false),
        RecursiveReadOnlyMode::IfPossible => Ok(supported),
        RecursiveReadOnlyMode::Enabled if supported => Ok(true),
        RecursiveReadOnlyMode::Enabled => Err(RecursiveReadOnlyError::Unsupported(volume())),
        RecursiveReadOnlyMode::Other(word) => Err(RecursiveReadOnlyError::Mode(word.to_string())),
    }
}

/// The block devices of a container.
pub(super) fn devices(
    container: &Container,
    volumes: &BTreeMap<&str, MountedVolume>,
) -> Result<Vec<v1::Device>, ContainerRefusal> {
    let mut devices = Vec::with_capacity(container.volume_devices.len());
    for wanted in &container.volume_devices {
        if !wanted.device_path.starts_with('/') {
            return Err(ContainerRefusal::RelativeDevicePath(wanted.device_path.to_string()));
        }
        match volumes.get(wanted.name.as_str()) {
            Some(MountedVolume::Device { host_path: Some(host_path), read_only }) => {
                devices.push(v1::Device {
                    container_path: wanted.device_path.to_string(),
                    host_path: host_path.clone(),
                    permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
                })
            }
            Some(MountedVolume::Device { host_path: None, .. }) => {}
            Some(MountedVolume::Files { .. } | MountedVolume::Image(_)) | None => {
                return Err(ContainerRefusal::NoDevice {
                    volume: wanted.name.to_string(),
                    container: container.name.to_string(),
                });
            }
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests;
