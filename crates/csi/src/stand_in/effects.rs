//! What a stand-in does on the node.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use crablet_host::mounts::{self, UnmountMode};
use tonic::Status;

use crate::v1;
use crate::v1::volume_capability::AccessType;

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
/// staging, at once to where it is published. Needs root.
pub struct Directories {
    folder: PathBuf,
}

impl Directories {
    pub fn new(folder: &Path) -> Directories {
        Directories { folder: folder.to_owned() }
    }

    /// Where a volume's data is, whoever uses it.
    pub fn data(&self, volume_id: &str) -> PathBuf {
        // Whatever the ID is, it is one name.
        self.folder.join(format!("volume-{}", volume_id.replace('%', "%25").replace('/', "%2f")))
    }
}

#[async_trait]
impl Effects for Directories {
    async fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        if is_block(request.volume_capability.as_ref()) {
            return Err(Status::invalid_argument("these volumes are directories"));
        }
        let data = self.data(&request.volume_id);
        fs::create_dir_all(&data).map_err(failed)?;
        bind(&data, Path::new(&request.staging_target_path))
    }

    async fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        unmount(Path::new(&request.staging_target_path))
    }

    async fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        if is_block(request.volume_capability.as_ref()) {
            return Err(Status::invalid_argument("these volumes are directories"));
        }
        let from = match request.staging_target_path.as_str() {
            "" => {
                let data = self.data(&request.volume_id);
                fs::create_dir_all(&data).map_err(failed)?;
                data
            }
            staged if mounts::is_mount_point(Path::new(staged)).map_err(failed)? => staged.into(),
            _ => return Err(Status::failed_precondition("the volume is not staged")),
        };
        let target = Path::new(&request.target_path);
        // The caller makes the folder that it is in, and no more.
        match fs::create_dir(target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        bind(&from, target)?;
        match request.readonly {
            true => mounts::remount_bind_read_only(target).map_err(failed),
            false => Ok(()),
        }
    }

    async fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let target = Path::new(&request.target_path);
        unmount(target)?;
        match fs::remove_dir(target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    match capability.and_then(|capability| capability.access_type.as_ref()) {
        Some(AccessType::Block(_)) => true,
        Some(AccessType::Mount(_)) | None => false,
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
