//! Cgroups as a tree of directories: the way down, all that is below, and taking it away.

use std::io;
use std::path::{Path, PathBuf};

use super::CgroupError;
use super::control::ControlFiles;

/// The directory of a cgroup below a mount.
pub(super) fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// The directories from below a mount down to a cgroup.
pub(super) fn levels(mount: &Path, path: &str) -> Vec<PathBuf> {
    let mut directory = mount.to_owned();
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            directory.push(part);
            directory.clone()
        })
        .collect()
}

/// A cgroup and all below it, each after the one that it is in. Nothing, if there is none.
///
/// This keeps a list and does not call itself: a container that was given its own cgroups may nest them as it likes.
pub(super) fn walk(files: &dyn ControlFiles, cgroup: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let mut found = vec![cgroup.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        match files.children(&directory) {
            Ok(children) => {
                found.extend(children.iter().map(|child| directory.join(child)));
                next += 1;
            }
            Err(error) if is_gone(&error) => {
                found.remove(next);
            }
            Err(source) => return Err(CgroupError::Read { path: directory, source }),
        }
    }
    Ok(found)
}

/// Whether a cgroup could be removed with all below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is gone.
    Done,
    /// There are still processes in it, or new cgroups.
    Busy(PathBuf),
}

/// Removes a cgroup with all below it, as far as no process is there.
pub(super) fn remove(files: &dyn ControlFiles, cgroup: &Path) -> Result<Removal, CgroupError> {
    let mut removal = Removal::Done;
    for directory in walk(files, cgroup)?.into_iter().rev() {
        match files.remove(&directory) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) if is_busy(&error) => removal = Removal::Busy(directory),
            Err(source) => return Err(CgroupError::Remove { path: directory, source }),
        }
    }
    Ok(removal)
}

/// Whether an error means that the cgroup is not there (any more).
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}
