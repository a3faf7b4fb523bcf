//! The part of a volume that a container's mount asks for.
//!
//! The volume's content is the user's, and a container that runs already can change it at any moment. So the part is
//! opened such that it cannot be outside ([`beneath`](crate::beneath)), and what is mounted for the container is what
//! was opened, not what its path leads to by then.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use crablet_host::mounts::{self, UnmountMode, Unmounted};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{Base, Method, Refused};
use crate::error::{FileError, SubPathCause, SubPathError, failed};
use crate::files::make_all;
use crate::places::{Places, is_one_name};

/// A part of a volume that a container's mount asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    /// The pod's UID.
    pub uid: String,
    /// The container's name.
    pub container: String,
    /// The mount's place in the container's list.
    pub index: usize,
    /// The volume's name in the pod.
    pub volume: String,
    /// Where the volume is on the node: `host_path` of its `MountedVolume`.
    pub volume_path: PathBuf,
    /// The path below it, as `crablet_core::translate::sub_path` gives it.
    pub path: String,
}

/// Makes a part of a volume ready to be mounted into a container, and says where it is. A directory that is missing is
/// made with the permissions of the volume.
pub(crate) fn prepare(places: &Places, wanted: &SubPath, method: Method) -> Result<PathBuf, SubPathError> {
    let not_created = |source: SubPathCause| SubPathError::NotCreated {
        mount: wanted.volume.clone(),
        container: wanted.container.clone(),
        source,
    };
    let not_prepared = |source: SubPathCause| SubPathError::NotPrepared {
        mount: wanted.volume.clone(),
        container: wanted.container.clone(),
        source,
    };
    for name in [&wanted.uid, &wanted.volume, &wanted.container] {
        if !is_one_name(name) {
            return Err(not_prepared(SubPathCause::Name(name.clone())));
        }
    }
    let volume = &wanted.volume_path;
    // The translation has refused others already; this does not rely on it.
    let path = downwards(&wanted.path).ok_or_else(|| not_prepared(cause(Refused::Outside, wanted)))?;
    let opened = Base::open(volume, method).map_err(failed("open", volume));
    let base = opened.map_err(|error| not_prepared(error.into()))?;
    let place = match base.place(&path) {
        Err(Refused::Missing) => make(&base, &path, wanted).map_err(not_created)?,
        Err(refused) => return Err(not_prepared(cause(refused, wanted))),
        Ok(place) => place,
    };
    let target = places.sub_path(&wanted.uid, &wanted.volume, &wanted.container, wanted.index);
    bind(&place, &target).map_err(not_prepared)?;
    Ok(target)
}

/// A path as parts that lead down, if they do.
pub(crate) fn downwards(text: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return None,
        }
    }
    if path.as_os_str().is_empty() {
        path.push(".");
    }
    Some(path)
}

fn cause(refused: Refused, wanted: &SubPath) -> SubPathCause {
    let file = |error: Errno| FileError {
        call: "open",
        path: wanted.volume_path.join(&wanted.path),
        source: error.into(),
    };
    match refused {
        Refused::Outside => {
            SubPathCause::Outside { path: wanted.path.clone(), volume: wanted.volume_path.clone() }
        }
        Refused::Missing => file(Errno::NOENT).into(),
        Refused::Failed(error) => file(error).into(),
    }
}

/// Makes the directories of a path that are missing.
fn make(base: &Base, path: &Path, wanted: &SubPath) -> Result<OwnedFd, SubPathCause> {
    let full = wanted.volume_path.join(path);
    let volume = rustix::fs::fstat(&base.directory).map_err(failed("stat", &wanted.volume_path))?;
    let mode = Mode::from_raw_mode(volume.st_mode & 0o7777);
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut above = path;
    let mut parent = loop {
        let Some(name) = above.file_name() else { return Err(cause(Refused::Missing, wanted)) };
        missing.push(name);
        above = match above.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            Some(_) | None => Path::new("."),
        };
        match base.place(above) {
            Ok(parent) => break parent,
            Err(Refused::Missing) if above != Path::new(".") => {}
            Err(refused) => return Err(cause(refused, wanted)),
        }
    };
    for name in missing.into_iter().rev() {
        let made = match rustix::fs::mkdirat(&parent, Path::new(name), mode) {
            Ok(()) => true,
            // Another container of the pod was faster. If it is anything but a directory, opening it fails.
            Err(Errno::EXIST) => false,
            Err(error) => return Err(failed("mkdir", &full)(error).into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let child = rustix::fs::openat(&parent, Path::new(name), flags, Mode::empty());
        let child = child.map_err(failed("open", &full))?;
        if made {
            // The call that made it was subject to the process's umask.
            rustix::fs::fchmod(&child, mode).map_err(failed("chmod", &full))?;
        }
        parent = child;
    }
    Ok(parent)
}

/// Mounts what was opened at a target in the pod's own directory, which no container reaches.
fn bind(place: &OwnedFd, target: &Path) -> Result<(), SubPathCause> {
    let status = rustix::fs::fstat(place).map_err(failed("stat", target))?;
    let mounted = |path: &Path| mounts::is_mount_point(path).map_err(failed("stat", path));
    if target.parent().is_some_and(Path::exists) {
        while mounted(target)? {
            // One that cannot be looked at is on a server that forgot it, and is not what was opened just now.
            let there = fs::symlink_metadata(target).ok();
            if there.is_some_and(|there| (there.dev(), there.ino()) == (status.st_dev, status.st_ino)) {
                return Ok(());
            }
            match mounts::unmount(target, UnmountMode::Plain)? {
                Unmounted::Was => {}
                // Hidden below another mount: what we mount comes on top.
                Unmounted::WasNot => break,
            }
        }
    }
    make_target(target, FileType::from_raw_mode(status.st_mode) == FileType::Directory)?;
    let source = format!("/proc/self/fd/{}", place.as_raw_fd());
    Ok(mounts::bind(Path::new(&source), target, false)?)
}

/// Something of the same kind to mount on: a directory, or a file for everything else.
fn make_target(target: &Path, directory: bool) -> Result<(), FileError> {
    if let Some(parent) = target.parent() {
        make_all(parent, 0o750)?;
    }
    // What an earlier mount left may be of the other kind.
    let there = fs::symlink_metadata(target).ok();
    match (there.map(|there| there.is_dir()), directory) {
        (Some(true), true) | (Some(false), false) => return Ok(()),
        (Some(true), false) => fs::remove_dir(target).map_err(failed("remove", target))?,
        (Some(false), true) => fs::remove_file(target).map_err(failed("remove", target))?,
        (None, _) => {}
    }
    match directory {
        true => fs::DirBuilder::new().mode(0o750).create(target).map_err(failed("mkdir", target)),
        false => {
            let file = fs::File::options().write(true).create_new(true).mode(0o640).open(target);
            file.map(drop).map_err(failed("open", target))
        }
    }
}

#[cfg(test)]
mod tests;
