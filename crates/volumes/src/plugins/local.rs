//! `local`: a directory of this node that a claim leads to, or a device.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use crablet_api::core::{PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;
use crablet_host::mounts::{self, MountTable, PROC_SELF_MOUNTINFO};

use crate::claims::is_block;
use crate::device_map::DeviceMap;
use crate::error::{PluginError, failed};
use crate::files::make_all;
use crate::ownership::{self, ChangePolicy, Ownership};
use crate::places::{LOCAL, Places};
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `local`.
#[derive(Debug, Clone, Copy)]
pub struct Local;

#[async_trait]
impl Plugin for Local {
    fn supports(&self, _: &VolumeSource) -> bool {
        false
    }

    fn supports_persistent(&self, source: &PersistentVolumeSource) -> bool {
        matches!(source, PersistentVolumeSource::Local(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let Some(PersistentVolumeSource::Local(source)) = request.persistent_source() else {
            return Err(PluginError::NoSource);
        };
        let from = PathBuf::from(&*source.path);
        if source.path.is_empty() {
            return Err(PluginError::LocalPath(format!(
                "LocalVolume volume {:?} path is empty",
                request.spec_name()
            )));
        }
        if source.path.split('/').any(|part| part == "..") {
            return Err(PluginError::LocalPath(format!(
                "invalid path: {} must not contain '..'",
                source.path
            )));
        }
        if request.claimed.as_ref().is_some_and(|claimed| is_block(&claimed.volume)) {
            let map = map_for(&request.places, request.uid(), request.spec_name());
            let host_path = Some(map.in_pod.display().to_string());
            request.blocking(move |_| map.map(&from)).await?;
            return Ok(MountedVolume::Device { host_path, read_only: request.read_only });
        }
        request.blocking(move |request| mount(request, &from)).await
    }
}

fn map_for(places: &Places, uid: &str, name: &str) -> DeviceMap {
    DeviceMap {
        on_node: places.node_devices(LOCAL).join(name).join(uid),
        in_pod: places.devices(uid).join(LOCAL).join(name),
    }
}

/// Takes a pod's devices from it. Nothing of the pod runs.
pub(crate) fn tear_down_devices(places: &Places, uid: &str) -> Result<(), PluginError> {
    // It is made before all the rest, and goes last.
    if !places.devices(uid).join(LOCAL).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(places.node_devices(LOCAL)).into_iter().flatten() {
        let name = entry.map_err(failed("readdirent", &places.node_devices(LOCAL)))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let map = map_for(places, uid, name);
        if map.is_reserved() {
            map.unmap()?;
            map.forget()?;
            // It stays while another pod has the device.
            let _ = fs::remove_dir(places.node_devices(LOCAL).join(name));
        }
    }
    Ok(())
}

fn mount(request: &Request, from: &Path) -> Result<MountedVolume, PluginError> {
    let kind = fs::metadata(from).map_err(failed("stat", from))?;
    if !kind.is_dir() {
        return Err(PluginError::LocalPath("only directories are supported yet".to_owned()));
    }
    let target = request.places.volume(request.uid(), LOCAL, request.spec_name());
    let mounted =
        MountedVolume::Files { host_path: target.display().to_string(), read_only: false, relabel: false };
    make_all(&target, 0o750)?;
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    let resolved = mounts::resolved(&target).map_err(failed("lstat", &target))?;
    if table.at(&resolved).is_some() {
        return Ok(mounted);
    }
    mounts::bind(from, &target, false)?;
    if request.read_only {
        mounts::remount_bind_read_only(&target)?;
    } else if !is_mounted_elsewhere(request, &resolved)? {
        give_to_group(request, &target)?;
    }
    Ok(mounted)
}

/// Whether another pod has what is mounted here. Then its files are as they should be, or as that pod wants them.
fn is_mounted_elsewhere(request: &Request, here: &Path) -> Result<bool, PluginError> {
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    let pods = request.places.root().join("pods");
    let Some(own) = table.at(here) else { return Ok(false) };
    Ok(table.iter().any(|mount| {
        mount.mount_point != here
            && mount.mount_point.starts_with(&pods)
            && (mount.device, &mount.root) == (own.device, &own.root)
    }))
}

fn give_to_group(request: &Request, target: &Path) -> Result<(), PluginError> {
    let Some(group) = ownership::group_of_pod(&request.pod) else { return Ok(()) };
    let policy = ChangePolicy::of_pod(&request.pod);
    Ok(ownership::apply(target, Ownership { group, read_only: false, policy })?)
}
