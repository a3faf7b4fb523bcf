//! What a pod wants of a driver, from its volume or from the piece of storage that its claim leads to.

use std::collections::BTreeMap;

use crablet_api::core::{PersistentVolumeAccessMode, PersistentVolumeSource, SecretReference, VolumeSource};
use crablet_api::storage::{CsiDriver, FsGroupPolicy, VolumeLifecycleMode};
use crablet_csi::{Access, AccessMode, NodeCapabilities, VolumeCapability};

use super::{Staged, ephemeral_handle};
use crate::error::PluginError;
use crate::plugin::Request;

/// A volume that a pod wants of a driver.
pub(super) struct Wanted {
    pub(super) driver: String,
    pub(super) handle: String,
    pub(super) mode: VolumeLifecycleMode,
    pub(super) fs_type: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) mount_flags: Vec<String>,
    /// The SELinux label that it is mounted with, once that is known.
    pub(super) label: Option<String>,
    pub(super) access_mode: String,
    /// Whether one node at a time has it, by any of its modes.
    is_once: bool,
    pub(super) stage_secret: Option<SecretReference>,
    pub(super) publish_secret: Option<SecretReference>,
    pub(super) read_only: bool,
}

impl Wanted {
    pub(super) fn of(request: &Request) -> Result<Wanted, PluginError> {
        let of_pod = |name: &str| SecretReference {
            name: name.into(),
            namespace: request.pod.metadata.namespace.clone(),
        };
        let wanted = match (request.persistent_source(), &*request.source) {
            (Some(PersistentVolumeSource::Csi(source)), _) => {
                let spec = request.claimed.as_ref().map(|claimed| &claimed.volume.spec);
                let mut modes = spec.into_iter().flat_map(|spec| &spec.access_modes);
                Wanted {
                    driver: source.driver.to_string(),
                    handle: source.volume_handle.to_string(),
                    mode: VolumeLifecycleMode::Persistent,
                    fs_type: source.fs_type.to_string(),
                    attributes: strings(source.volume_attributes.iter()),
                    mount_flags: spec
                        .map(|spec| spec.mount_options.iter().map(ToString::to_string).collect())
                        .unwrap_or_default(),
                    label: None,
                    is_once: modes.clone().any(|mode| {
                        matches!(
                            mode,
                            PersistentVolumeAccessMode::ReadWriteOnce
                                | PersistentVolumeAccessMode::ReadWriteOncePod
                        )
                    }),
                    access_mode: modes.next().map_or("ReadWriteOnce", |mode| mode.as_str()).to_owned(),
                    stage_secret: source.node_stage_secret_ref.clone(),
                    publish_secret: source.node_publish_secret_ref.clone(),
                    // What the piece of storage says of it is its controller's business, as upstream.
                    read_only: request.read_only,
                }
            }
            (None, VolumeSource::Csi(source)) => Wanted {
                driver: source.driver.to_string(),
                handle: ephemeral_handle(request.uid(), &request.volume),
                mode: VolumeLifecycleMode::Ephemeral,
                fs_type: source.fs_type.as_ref().map(ToString::to_string).unwrap_or_default(),
                attributes: strings(source.volume_attributes.iter()),
                mount_flags: Vec::new(),
                label: None,
                access_mode: "ReadWriteOnce".to_owned(),
                is_once: true,
                stage_secret: None,
                publish_secret: source.node_publish_secret_ref.as_ref().map(|secret| of_pod(&secret.name)),
                read_only: source.read_only == Some(true),
            },
            _ => return Err(PluginError::NoSource),
        };
        Ok(wanted)
    }

    pub(super) fn staged(&self) -> Staged {
        Staged { driver: self.driver.clone(), handle: self.handle.clone(), device: None }
    }

    pub(super) fn capability(&self, capabilities: NodeCapabilities, group: Option<u32>) -> VolumeCapability {
        let group = group.filter(|_| capabilities.volume_mount_group).map(i64::from);
        // There may be a comma in it, which the quotes keep together.
        let label = self.label.as_ref().map(|label| format!("context=\"{label}\""));
        VolumeCapability {
            access: Access::Mount {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_flags.iter().cloned().chain(label).collect(),
                volume_mount_group: group,
            },
            access_mode: AccessMode::of_persistent_volume(&self.access_mode, capabilities),
        }
    }

    /// Whether the driver has volumes of this kind. Without its object only those are known that outlive pods.
    pub(super) fn check_mode(&self, of_cluster: Option<&CsiDriver>) -> Result<(), PluginError> {
        let (mode, driver) = (self.mode.as_str(), &self.driver);
        let why = match of_cluster {
            None if self.mode == VolumeLifecycleMode::Persistent => return Ok(()),
            None => format!("volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"),
            Some(found) if found.spec.volume_lifecycle_modes.contains(&self.mode) => return Ok(()),
            Some(found) => {
                let modes =
                    found.spec.volume_lifecycle_modes.iter().map(|mode| format!("{:?}", mode.as_str()));
                let modes = modes.collect::<Vec<_>>().join(" ");
                format!("volume mode {mode:?} not supported by driver {driver} (only supports [{modes}])")
            }
        };
        Err(PluginError::CsiMode(why))
    }

    /// Whether the node gives the files to the pod's group.
    pub(super) fn belongs_to_group(&self, of_cluster: Option<&CsiDriver>) -> bool {
        let policy = of_cluster.and_then(|driver| driver.spec.fs_group_policy.clone());
        match policy.unwrap_or(FsGroupPolicy::ReadWriteOnceWithFSType) {
            _ if self.read_only => false,
            FsGroupPolicy::None => false,
            FsGroupPolicy::File => true,
            FsGroupPolicy::ReadWriteOnceWithFSType | FsGroupPolicy::Other(_) => {
                !self.fs_type.is_empty() && self.is_once
            }
        }
    }
}

/// What a driver is told of the pod, if it wants to know.
pub(super) fn pod_info(request: &Request, mode: &VolumeLifecycleMode) -> [(String, String); 5] {
    let pod = &request.pod;
    let is_ephemeral = *mode == VolumeLifecycleMode::Ephemeral;
    [
        ("pod.name", pod.metadata.name.to_string()),
        ("pod.namespace", pod.metadata.namespace.to_string()),
        ("pod.uid", pod.metadata.uid.to_string()),
        ("serviceAccount.name", pod.spec.service_account_name.to_string()),
        ("ephemeral", is_ephemeral.to_string()),
    ]
    .map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value))
}

pub(super) fn strings<'a>(
    entries: impl Iterator<Item = (&'a str, &'a crablet_api::Text)>,
) -> BTreeMap<String, String> {
    entries.map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_given_to_the_pods_group_as_the_drivers_policy_says() {
        let driver = |policy: &str| {
            let text = format!("{{\"spec\": {{\"fsGroupPolicy\": \"{policy}\"}}}}");
            serde_json::from_str::<CsiDriver>(&text).unwrap()
        };
        for (policy, fs_type, is_once, read_only, expected) in [
            (None, "ext4", true, false, true),
            (None, "", true, false, false),
            (None, "ext4", false, false, false),
            (Some("ReadWriteOnceWithFSType"), "ext4", true, true, false),
            (Some("File"), "", false, false, true),
            (Some("File"), "", false, true, false),
            (Some("None"), "ext4", true, false, false),
        ] {
            let wanted = Wanted {
                driver: String::new(),
                handle: String::new(),
                mode: VolumeLifecycleMode::Persistent,
                fs_type: fs_type.to_owned(),
                attributes: BTreeMap::new(),
                mount_flags: Vec::new(),
                label: None,
                access_mode: String::new(),
                is_once,
                stage_secret: None,
                publish_secret: None,
                read_only,
            };
            let driver = policy.map(driver);
            let found = wanted.belongs_to_group(driver.as_ref());
            assert_eq!(found, expected, "{policy:?} {fs_type:?} {is_once} {read_only}");
        }
    }
}
