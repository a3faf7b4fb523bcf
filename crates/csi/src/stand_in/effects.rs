//! What a stand-in does on the node.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;
use crablet_host::mounts::{self, UnmountMode};
use tonic::Status;

use super::loop_device;
use crate::v1;
use crate::v1::volume_capability::AccessType;

/// How large a block device is at first.
const IMAGE_SIZE: u64 = 64 << 20;

/// What a stand-in does on the node when it is asked to. It is done when it returns, as the protocol wants it: asked
/// twice, it succeeds twice.
#[async_trait]
pub trait Effects: Send + Sync {
    async fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status>;
    async fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status>;
    async fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status>;
    async fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status>;

    /// How many bytes the volume has then.
    async fn expand(&self, request: &v1::NodeExpandVolumeRequest) -> Result<i64, Status> {
        Ok(request.capacity_range.unwrap_or_default().required_bytes)
    }
}

/// Nothing happens on the node.
pub struct NoEffects;

#[async_trait]
impl Effects for NoEffects {
    async fn stage(&self, _: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        Ok(())
    }

    async fn unstage(&self, _: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        Ok(())
    }

    async fn publish(&self, _: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        Ok(())
    }

    async fn unpublish(&self, _: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        Ok(())
    }
}

/// Each volume is a directory in a folder, bound to where it is staged and from there to where it is published; without
/// staging, at once to where it is published. One that is used as a block device is a file behind a loop device
/// instead, from staging on. Needs root.
pub struct LocalVolumes {
    folder: PathBuf,
}

impl LocalVolumes {
    pub fn new(folder: &Path) -> LocalVolumes {
        LocalVolumes { folder: folder.to_owned() }
    }

    /// The directory with a volume's data, whoever uses it.
    pub fn data(&self, volume_id: &str) -> PathBuf {
        self.folder.join(one_name(volume_id))
    }

    /// The file with the data of a volume that is used as a block device.
    pub fn image(&self, volume_id: &str) -> PathBuf {
        self.folder.join(format!("{}.img", one_name(volume_id)))
    }

    fn make_data(&self, volume_id: &str) -> Result<PathBuf, Status> {
        let data = self.data(volume_id);
        fs::create_dir_all(&data).map_err(failed)?;
        Ok(data)
    }

    fn make_image(&self, volume_id: &str) -> Result<PathBuf, Status> {
        let image = self.image(volume_id);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        if !image.exists() {
            fs::File::create(&image).and_then(|file| file.set_len(IMAGE_SIZE)).map_err(failed)?;
        }
        Ok(image)
    }
}

#[async_trait]
impl Effects for LocalVolumes {
    async fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        if is_block(request.volume_capability.as_ref()) {
            loop_device::attach(&self.make_image(&request.volume_id)?).map_err(failed)?;
            return Ok(());
        }
        bind(&self.make_data(&request.volume_id)?, Path::new(&request.staging_target_path))
    }

    async fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        loop_device::detach(&self.image(&request.volume_id)).map_err(failed)?;
        unmount(Path::new(&request.staging_target_path))
    }

    async fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        let target = Path::new(&request.target_path);
        let not_staged = || Status::failed_precondition("the volume is not staged");
        if is_block(request.volume_capability.as_ref()) {
            let device = loop_device::attached(&self.image(&request.volume_id)).map_err(failed)?;
            let device = device.ok_or_else(not_staged)?;
            fs::OpenOptions::new().create(true).append(true).open(target).map_err(failed)?;
            return bind(&device, target);
        }
        let from = match request.staging_target_path.as_str() {
            "" => self.make_data(&request.volume_id)?,
            staged if mounts::is_mount_point(Path::new(staged)).map_err(failed)? => staged.into(),
            _ => return Err(not_staged()),
        };
        // The caller makes the folder that it is in, and no more.
        match fs::create_dir(target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        bind(&from, target)?;
        set_flags(target, request.volume_capability.as_ref())?;
        match request.readonly {
            true => mounts::remount_bind_read_only(target).map_err(failed),
            false => Ok(()),
        }
    }

    async fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let target = Path::new(&request.target_path);
        unmount(target)?;
        let removed = match fs::symlink_metadata(target) {
            Ok(found) if found.is_dir() => fs::remove_dir(target),
            Ok(_) => fs::remove_file(target),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn expand(&self, request: &v1::NodeExpandVolumeRequest) -> Result<i64, Status> {
        let size = request.capacity_range.unwrap_or_default().required_bytes;
        if is_block(request.volume_capability.as_ref()) {
            let bytes = u64::try_from(size).map_err(|_| Status::invalid_argument("a size below zero"))?;
            let image = self.image(&request.volume_id);
            fs::File::options()
                .write(true)
                .open(&image)
                .and_then(|file| file.set_len(bytes))
                .map_err(failed)?;
            loop_device::notice_size(&image).map_err(failed)?;
        }
        Ok(size)
    }
}

/// A volume's ID as one name, whatever it is.
fn one_name(volume_id: &str) -> String {
    format!("volume-{}", volume_id.replace('%', "%25").replace('/', "%2f"))
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    match capability.and_then(|capability| capability.access_type.as_ref()) {
        Some(AccessType::Block(_)) => true,
        Some(AccessType::Mount(_)) | None => false,
    }
}

/// Has a bind mount do what is asked of it by words of `mount`.
fn set_flags(target: &Path, capability: Option<&v1::VolumeCapability>) -> Result<(), Status> {
    let flags = match capability.and_then(|capability| capability.access_type.as_ref()) {
        Some(AccessType::Mount(mount)) if !mount.mount_flags.is_empty() => mount.mount_flags.join(","),
        Some(AccessType::Mount(_) | AccessType::Block(_)) | None => return Ok(()),
    };
    let done = Command::new("mount").args(["-o", &format!("remount,bind,{flags}")]).arg(target).output();
    let done = done.map_err(failed)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(Status::internal(String::from_utf8_lossy(&done.stderr))),
    }
}

fn bind(from: &Path, target: &Path) -> Result<(), Status> {
    match mounts::is_mount_point(target).map_err(failed)? {
        true => Ok(()),
        false => mounts::bind(from, target, false).map_err(failed),
    }
}

/// All that is mounted there, though it should be one.
fn unmount(target: &Path) -> Result<(), Status> {
    while mounts::unmount(target, UnmountMode::Plain).map_err(failed)? == mounts::Unmounted::Was {}
    Ok(())
}

fn failed(error: impl Error) -> Status {
    let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    Status::internal(format!("{error}{cause}"))
}
