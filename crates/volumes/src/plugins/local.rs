//! `local`: a directory of this node that a claim leads to, or a device.
//!
//! A device that is not wanted as one is mounted once on the node, formatted if there is nothing on it, and bound to each
//! pod from there. The mount table says whether a pod still has it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;
use crablet_host::lanes::Lanes;
use crablet_host::mounts::{self, MountTable, PROC_SELF_MOUNTINFO, UnmountMode};
use tracing::warn;

use crate::claims::{is_block, mount_options};
use crate::device_map::DeviceMap;
use crate::error::{PluginError, failed};
use crate::events::{Occurrence, VolumeEvent};
use crate::files::make_all;
use crate::ownership::{self, ChangePolicy, Ownership};
use crate::places::{LOCAL, Places};
use crate::plugin::{Plugin, Request};
use crate::tools;

/// Volumes of the kind `local`.
#[derive(Debug, Clone, Default)]
pub struct Local {
    /// One thing at a time for each piece of storage, so that the next pod sees that it is not the first.
    lanes: Arc<Lanes>,
}

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
            request.blocking(move |request| map.map_for(request, &from)).await?;
            return Ok(MountedVolume::Device { host_path, read_only: request.read_only });
        }
        let format = source.fs_type.as_ref().map(ToString::to_string).unwrap_or_default();
        let lane = self.lanes.enter(request.spec_name()).await;
        let work = move |request: &Request| {
            let _lane = lane;
            mount(request, &from, &format)
        };
        request.blocking(work).await
    }
}

impl Local {
    /// Unmounts the devices that no pod has any more. One that cannot be is tried again when the next pod goes: it keeps
    /// none from going.
    pub(crate) async fn unmount_unused(&self, places: &Places) {
        for entry in fs::read_dir(places.local_mounts()).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let lane = self.lanes.enter(&name).await;
            let (pods, place) = (places.root().join("pods"), entry.path());
            let unmount = move || {
                let _lane = lane;
                unmount_if_unused(&pods, &place)
            };
            if let Err(error) =
                tokio::task::spawn_blocking(unmount).await.unwrap_or(Err(PluginError::Panicked))
            {
                warn!(volume = name, %error, "Cannot unmount a device that no pod has");
            }
        }
    }
}

fn unmount_if_unused(pods: &Path, place: &Path) -> Result<(), PluginError> {
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    let resolved = |path: &Path| mounts::resolved(path).map_err(failed("lstat", path));
    let pods = resolved(pods)?;
    if let Some(own) = table.at(&resolved(place)?) {
        let mut of_pods = table.under(&pods).into_iter();
        if of_pods.any(|mount| mount.device == own.device) {
            return Ok(());
        }
        mounts::unmount(place, UnmountMode::Plain)?;
    }
    Ok(fs::remove_dir(place).map_err(failed("remove", place))?)
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
    let devices = places.node_devices(LOCAL);
    let entries = match fs::read_dir(&devices) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("open", &devices))?,
    };
    for entry in entries {
        let name = entry.map_err(failed("readdirent", &devices))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let map = map_for(places, uid, name);
        if map.is_reserved() {
            map.unmap()?;
            map.forget()?;
            // It stays while another pod has the device.
            let _ = fs::remove_dir(devices.join(name));
        }
    }
    Ok(())
}

fn mount(request: &Request, from: &Path, format: &str) -> Result<MountedVolume, PluginError> {
    let kind = fs::metadata(from).map_err(failed("stat", from))?.file_type();
    let from = match (kind.is_dir(), kind.is_block_device()) {
        (true, _) => from.to_owned(),
        (false, true) => mount_device(request, from, format)?,
        (false, false) => {
            let why = "only directory and block device are supported";
            return Err(PluginError::LocalPath(why.to_owned()));
        }
    };
    let target = request.places.volume(request.uid(), LOCAL, request.spec_name());
    make_all(&target, 0o750)?;
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    let resolved = mounts::resolved(&target).map_err(failed("lstat", &target))?;
    let there = table.at(&resolved);
    let is_first = !is_mounted_for_others(request, &table, &from, &resolved)?;
    if there.is_none() {
        mounts::bind(&from, &target, false)?;
    }
    let is_read_only = there.is_some_and(|mount| mount.has_option("ro"));
    let finished = set_options(request, &from, &target, is_read_only).and_then(|()| match is_first {
        true if request.read_only => Ok(()),
        true => give_to_group(request, &target, there.is_some()),
        false if there.is_some() => Ok(()),
        false => warn_of_other_group(request, &target),
    });
    if let Err(error) = finished {
        // Nobody has what was not there before. The first error is the one to tell.
        if there.is_none() {
            let _ = mounts::unmount(&target, UnmountMode::Plain);
        }
        return Err(error);
    }
    let host_path = target.display().to_string();
    Ok(MountedVolume::Files { host_path, read_only: request.read_only, relabel: true })
}

/// A bind mount gets its options in a second step, which whoever began may not have come to.
fn set_options(request: &Request, from: &Path, target: &Path, is_read_only: bool) -> Result<(), PluginError> {
    let mut options: BTreeSet<String> =
        request.claimed.as_ref().map(|claimed| mount_options(&claimed.volume)).unwrap_or_default();
    if options.is_empty() {
        return match request.read_only && !is_read_only {
            true => Ok(mounts::remount_bind_read_only(target)?),
            false => Ok(()),
        };
    }
    if request.read_only {
        options.insert("ro".to_owned());
    }
    let options: Vec<&str> = ["bind", "remount"].into_iter().chain(options.iter().map(|it| &**it)).collect();
    let [from, target] = [from, target].map(|path| path.display().to_string());
    tools::mount(&["-o", &options.join(","), &from, &target])
}

/// Mounts a device on the node, where it is not, and says where.
fn mount_device(request: &Request, device: &Path, format: &str) -> Result<PathBuf, PluginError> {
    let place = request.places.local_mounts().join(request.spec_name());
    make_all(&place, 0o750)?;
    if mounts::is_mount_point(&place).map_err(PluginError::MountTable)? {
        return Ok(place);
    }
    let mut options =
        request.claimed.as_ref().map(|claimed| mount_options(&claimed.volume)).unwrap_or_default();
    if request.read_only {
        options.insert("ro".to_owned());
    }
    let mounted = tools::format_and_mount(device, &place, format, options.into_iter().collect());
    mounted.map_err(|cause| {
        // It is only a place to mount something on; the first error is the one to tell.
        let _ = fs::remove_dir(&place);
        PluginError::LocalPath(format!(
            "local: failed to mount device {} at {} (fstype: {format}), error {cause}",
            device.display(),
            place.display()
        ))
    })?;
    Ok(place)
}

/// Files that belong to another group than the pod's stay as they are while another pod has them, which people are told.
fn warn_of_other_group(request: &Request, target: &Path) -> Result<(), PluginError> {
    let Some(wanted) = ownership::group_of_pod(&request.pod) else { return Ok(()) };
    let found = fs::metadata(target).map_err(failed("stat", target))?.gid();
    if found != wanted {
        let volume = request.spec_name();
        request.tell(VolumeEvent {
            what: Occurrence::OtherGroup,
            message: format!(
                "The requested fsGroup is {wanted}, but the volume {volume} has GID {found}. The volume may not be shareable."
            ),
            claim: None,
        });
    }
    Ok(())
}

/// Whether another pod has the directory. Then its files are as they should be, or as that pod wants them.
fn is_mounted_for_others(
    request: &Request,
    table: &MountTable,
    from: &Path,
    here: &Path,
) -> Result<bool, PluginError> {
    let from = from.canonicalize().map_err(failed("lstat", from))?;
    let pods = request.places.root().join("pods");
    let pods = pods.canonicalize().map_err(failed("lstat", &pods))?;
    let mut elsewhere = table.elsewhere(&from).into_iter().map(|mount| &mount.mount_point);
    Ok(elsewhere.any(|path| path != here && path.starts_with(&pods)))
}

/// Where it is mounted already, the root tells whether its files are given away: it is changed last.
fn give_to_group(request: &Request, target: &Path, was_mounted: bool) -> Result<(), PluginError> {
    let Some(group) = ownership::group_of_pod(&request.pod) else { return Ok(()) };
    let policy = match was_mounted {
        true => ChangePolicy::OnRootMismatch,
        false => ChangePolicy::of_pod(&request.pod),
    };
    Ok(ownership::give(request, target, Ownership { group, read_only: false, policy })?)
}
