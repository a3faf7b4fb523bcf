//! `emptyDir`: a directory that lives as long as the pod, on disk or in memory.

mod medium;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use async_trait::async_trait;
use crablet_api::Quantity;
use crablet_api::core::VolumeSource;
use crablet_core::pod_cgroup::pod_resources;
use crablet_core::translate::MountedVolume;
use crablet_host::mounts::{self, Mount, MountError, MountTable, PROC_SELF_MOUNTINFO, Tmpfs};
use rustix::io::Errno;
use tracing::{debug, warn};

pub(super) use medium::Medium;
use medium::{memory_size, mounted_page_size, page_size};

use crate::error::{FileError, PluginError, failed};
use crate::files::make_all;
use crate::ownership::{self, ChangePolicy, Ownership, group_of_pod};
use crate::places::EMPTY_DIR;
use crate::plugin::{Plugin, Request};

/// All may do all: which user the containers run as is not known here.
const MODE: u32 = 0o777;

/// Volumes of the kind `emptyDir`.
#[derive(Debug, Clone, Copy)]
pub struct EmptyDir;

#[async_trait]
impl Plugin for EmptyDir {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::EmptyDir(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::EmptyDir(source) = &*request.source else { return Err(PluginError::NoSource) };
        let medium = Medium::new(source.medium.as_ref())?;
        let size_limit = source.size_limit.clone();
        let directory = request.places.volume(request.uid(), EMPTY_DIR, &request.volume);
        let host_path = directory.display().to_string();
        let work =
            move |request: &Request| make(request, &request.volume, &directory, &medium, size_limit.as_ref());
        request.blocking(work).await?;
        Ok(MountedVolume::Files { host_path, read_only: false, relabel: true })
    }
}

/// Makes an empty directory, once: one that is there keeps what containers wrote. `name` is what it is remembered by.
pub(super) fn make(
    request: &Request,
    name: &str,
    directory: &Path,
    medium: &Medium,
    size_limit: Option<&Quantity>,
) -> Result<(), PluginError> {
    let ready = request.places.ready(request.uid(), name);
    if is_ready(&ready) {
        match medium {
            Medium::Disk if directory.exists() => return Ok(()),
            Medium::Disk => {
                warn!(directory = %directory.display(), "A volume was ready and its directory is gone; it is made again");
            }
            // Memory does not outlive the machine, the note does.
            Medium::Memory if mount_at(directory)?.is_some() => return Ok(()),
            Medium::Memory | Medium::HugePages { .. } => {}
        }
    }
    make_directory(directory)?;
    match medium {
        Medium::Disk => {}
        Medium::Memory => mount_memory(request, directory, size_limit)?,
        Medium::HugePages { word, size } => mount_huge_pages(request, directory, word, size.as_ref())?,
    }
    if let Some(group) = group_of_pod(&request.pod) {
        let ownership = Ownership { group, read_only: false, policy: ChangePolicy::Always };
        ownership::apply(directory, ownership)?;
    }
    Ok(set_ready(&ready)?)
}

fn is_ready(ready: &Path) -> bool {
    fs::metadata(ready.join("ready")).is_ok_and(|metadata| metadata.is_file())
}

fn set_ready(ready: &Path) -> Result<(), FileError> {
    make_all(ready, 0o750)?;
    fs::File::create(ready.join("ready")).map(drop).map_err(failed("open", ready))
}

fn make_directory(directory: &Path) -> Result<(), FileError> {
    make_all(directory, MODE)?;
    let metadata = fs::symlink_metadata(directory).map_err(failed("lstat", directory))?;
    if metadata.permissions().mode() & 0o777 == MODE {
        return Ok(());
    }
    // The process's umask took from it.
    fs::set_permissions(directory, fs::Permissions::from_mode(MODE)).map_err(failed("chmod", directory))
}

/// What is mounted on a directory itself.
fn mount_at(directory: &Path) -> Result<Option<Mount>, PluginError> {
    let path = match mounts::resolved(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        path => path.map_err(failed("lstat", directory))?,
    };
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    Ok(table.at(&path).cloned())
}

/// What is mounted on a directory, if it is of the kind that should be.
fn mounted_already(directory: &Path, wanted: &'static str) -> Result<Option<Mount>, PluginError> {
    match mount_at(directory)? {
        Some(mount) if mount.file_system != wanted => Err(PluginError::OtherMount {
            directory: directory.to_owned(),
            file_system: mount.file_system,
            wanted,
        }),
        found => Ok(found),
    }
}

fn mount_memory(
    request: &Request,
    directory: &Path,
    size_limit: Option<&Quantity>,
) -> Result<(), PluginError> {
    if mounted_already(directory, "tmpfs")?.is_some() {
        return Ok(());
    }
    let limit = pod_resources(&request.pod, request.pod_level, false, 100_000).memory;
    let size = memory_size(request.allocatable.get("memory"), limit, size_limit);
    let tmpfs = Tmpfs { size, mode: None, no_swap: true };
    match mounts::mount_tmpfs(directory, tmpfs) {
        // A kernel before 6.4, or a user namespace.
        Err(MountError::Tmpfs { source, .. })
            if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
        {
            debug!("Memory of a volume may be swapped: the kernel cannot forbid it");
            Ok(mounts::mount_tmpfs(directory, Tmpfs { no_swap: false, ..tmpfs })?)
        }
        mounted => Ok(mounted?),
    }
}

fn mount_huge_pages(
    request: &Request,
    directory: &Path,
    word: &str,
    wanted: Option<&Quantity>,
) -> Result<(), PluginError> {
    if let Some(mount) = mounted_already(directory, "hugetlbfs")? {
        let Some(wanted) = wanted else { return Ok(()) };
        let mounted = mounted_page_size(&mount.super_options);
        return match mounted.as_ref() == Some(wanted) {
            true => Ok(()),
            false => Err(PluginError::OtherHugePages {
                uid: request.uid().to_owned(),
                directory: directory.to_owned(),
                mounted: mounted.map(|size| size.to_string()).unwrap_or_default(),
                wanted: wanted.to_string(),
            }),
        };
    }
    let size = page_size(&request.pod, request.pod_level, word, wanted)?;
    Ok(mounts::mount_huge_pages(directory, &size.to_string())?)
}
