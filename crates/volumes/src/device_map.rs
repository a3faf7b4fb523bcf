//! A block device for one pod, as upstream maps it: a file on the node with the device bound over it and a loop device
//! over that, so that the kernel does not give the device's number away while the pod has it, and a link in the pod's
//! directory for the runtime.
//!
//! The file is there before anything else is done for the pod and goes last: it says that the pod may have the device.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crablet_host::loop_device;
use crablet_host::mounts::{self, UnmountMode, Unmounted};

use crate::error::{PluginError, failed};
use crate::events::{Occurrence, VolumeEvent};
use crate::files::make_all;
use crate::plugin::Request;

/// Where a device is mapped for a pod.
#[derive(Debug, Clone)]
pub(crate) struct DeviceMap {
    /// The file on the node. Its name is the pod's UID.
    pub(crate) on_node: PathBuf,
    /// The link in the pod's directory. Its name is that of the piece of storage.
    pub(crate) in_pod: PathBuf,
}

impl DeviceMap {
    /// Says that the pod may have the device.
    pub(crate) fn reserve(&self) -> Result<(), PluginError> {
        for path in [&self.in_pod, &self.on_node] {
            if let Some(parent) = path.parent() {
                make_all(parent, 0o750)?;
            }
        }
        if is_device(&self.on_node) {
            return Ok(());
        }
        let opened = fs::OpenOptions::new().create(true).append(true).mode(0o750).open(&self.on_node);
        opened.map_err(failed("open", &self.on_node))?;
        Ok(())
    }

    /// Whether the pod may have the device.
    pub(crate) fn is_reserved(&self) -> bool {
        fs::symlink_metadata(&self.on_node).is_ok()
    }

    /// Whether the device is bound to its place, which no restart of the machine outlives.
    pub(crate) fn is_bound(&self) -> bool {
        is_device(&self.on_node)
    }

    /// Maps a device for a pod, which is told of it unless it had the device.
    pub(crate) fn map_for(&self, request: &Request, device: &Path) -> Result<(), PluginError> {
        let was_bound = self.is_bound();
        self.map(device)?;
        let places = [("globalMapPath", &self.on_node), ("volumeMapPath", &self.in_pod)];
        for (name, path) in places.into_iter().filter(|_| !was_bound) {
            let (volume, path) = (request.spec_name(), path.parent().unwrap_or(path).display());
            request.tell(VolumeEvent {
                what: Occurrence::Mapped,
                message: format!("MapVolume.MapPodDevice succeeded for volume {volume:?} {name} \"{path}\""),
                claim: None,
            });
        }
        Ok(())
    }

    /// Maps a device, or does what is missing of it.
    fn map(&self, device: &Path) -> Result<(), PluginError> {
        let found = fs::canonicalize(device).map_err(|error| failed("lstat", device)(error).into());
        let found = found.map_err(during("EvalHostSymlinks"))?;
        self.map_found(found).map_err(during("MapBlockVolume"))
    }

    fn map_found(&self, device: PathBuf) -> Result<(), PluginError> {
        if !is_device(&device) {
            return Err(PluginError::NotDevice(device));
        }
        self.reserve()?;
        if !self.is_bound() {
            mounts::bind(&device, &self.on_node, false)?;
        }
        if fs::read_link(&self.in_pod).ok().as_ref() != Some(&device) {
            remove_file(&self.in_pod)?;
            std::os::unix::fs::symlink(&device, &self.in_pod).map_err(failed("symlink", &self.in_pod))?;
        }
        loop_device::attach(&self.on_node).map(drop).map_err(PluginError::LoopDevice)
    }

    /// Takes all of it back but what says that the pod may have the device.
    pub(crate) fn unmap(&self) -> Result<(), PluginError> {
        loop_device::detach(&self.on_node).map_err(PluginError::LoopDevice)?;
        remove_file(&self.in_pod)?;
        while mounts::unmount(&self.on_node, UnmountMode::Plain)? == Unmounted::Was {}
        Ok(())
    }

    /// The pod has the device no more.
    pub(crate) fn forget(&self) -> Result<(), PluginError> {
        remove_file(&self.on_node)?;
        // What holds another device stays.
        for directory in self.in_pod.ancestors().skip(1).take(2) {
            match fs::remove_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", directory)(error).into());
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// For `map_err`: on which step to a pod's device something went wrong.
pub(crate) fn during(step: &'static str) -> impl FnOnce(PluginError) -> PluginError {
    move |cause| match cause {
        // It is told of in its own words, and no step was taken.
        PluginError::NotAttached(_) | PluginError::AttachmentLimit(_) => cause,
        PluginError::Attachment(_) => PluginError::Map { step: "WaitForAttach", cause: Box::new(cause) },
        cause => PluginError::Map { step, cause: Box::new(cause) },
    }
}

/// Whether a path leads to a block device.
pub(crate) fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

fn remove_file(path: &Path) -> Result<(), PluginError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error).into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
