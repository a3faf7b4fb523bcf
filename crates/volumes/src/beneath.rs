//! Opening a path within a directory and never outside, whatever the owner of the directory does meanwhile.
//!
//! The kernel has a call for it ([`openat2`], since 5.6). Where it is missing, or where a link gives its target from
//! the root, the links are resolved first and the result is then opened part by part, following none: a link that came
//! in between is an error.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How often to ask the kernel again when it could not tell whether a rename elsewhere led it out.
const TRIES: usize = 64;

/// How paths are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// By the kernel's own call where there is one.
    Kernel,
    /// Part by part, as on a kernel without that call.
    #[cfg_attr(not(test), expect(dead_code, reason = "what the first falls back to, chosen by tests alone"))]
    PartByPart,
    /// By looking first and opening later, which others can get between. It shows that the test would find a hole.
    #[cfg(test)]
    Unprotected,
}

/// Why a path within a directory was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A part is not there.
    Missing,
    /// It leads out, or could not be followed safely.
    Outside,
    /// The kernel refused for another reason.
    Failed(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        match error {
            Errno::NOENT => Refused::Missing,
            Errno::XDEV | Errno::LOOP => Refused::Outside,
            other => Refused::Failed(other),
        }
    }
}

/// A directory that paths are opened within.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) directory: OwnedFd,
    path: PathBuf,
    method: Method,
}

impl Base {
    /// The path to the directory itself may go through links: it is the administrator's.
    pub(crate) fn open(path: &Path, method: Method) -> Result<Base, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Base { directory, path: path.to_owned(), method })
    }

    /// Opens a path as a place, not for reading. Links are followed as long as they stay within.
    pub(crate) fn place(&self, path: &Path) -> Result<OwnedFd, Refused> {
        match self.method {
            Method::Kernel => match self.by_kernel(path) {
                // Not there, not allowed by a filter of calls; or a link gives its target from the root, which may be
                // within; or there are so many renames on the machine that the kernel is never sure.
                Err(Errno::NOSYS | Errno::PERM | Errno::XDEV | Errno::AGAIN) => self.part_by_part(path),
                Err(error) => Err(error.into()),
                Ok(opened) => Ok(opened),
            },
            Method::PartByPart => self.part_by_part(path),
            #[cfg(test)]
            Method::Unprotected => {
                self.resolved(path)?;
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                Ok(rustix::fs::openat(&self.directory, path, flags, Mode::empty())?)
            }
        }
    }

    fn by_kernel(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            // To ask for a directory lets one that is mounted on demand be mounted.
            let opened = openat2(&self.directory, path, flags | OFlags::DIRECTORY, Mode::empty(), resolve);
            let opened = match opened {
                Err(Errno::NOTDIR) => openat2(&self.directory, path, flags, Mode::empty(), resolve),
                opened => opened,
            };
            match opened {
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    fn part_by_part(&self, path: &Path) -> Result<OwnedFd, Refused> {
        let mut opened = rustix::io::dup(&self.directory)?;
        for part in self.resolved(path)?.components() {
            let Component::Normal(name) = part else { return Err(Refused::Outside) };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // As above: this, with a slash at the end, mounts what is mounted on demand.
            let _ =
                rustix::fs::statat(&opened, Path::new(name).join("").as_path(), AtFlags::SYMLINK_NOFOLLOW);
            let next = rustix::fs::openat(&opened, Path::new(name), flags, Mode::empty())?;
            if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) == FileType::Symlink {
                return Err(Refused::Outside);
            }
            opened = next;
        }
        Ok(opened)
    }

    /// The path below the directory with all links resolved, as it was a moment ago.
    fn resolved(&self, path: &Path) -> Result<PathBuf, Refused> {
        let canonical = |path: &Path| {
            path.canonicalize().map_err(|error| match Errno::from_io_error(&error) {
                Some(errno) => Refused::from(errno),
                None => Refused::Outside,
            })
        };
        let base = canonical(&self.path)?;
        let full = canonical(&base.join(path))?;
        full.strip_prefix(&base).map(Path::to_owned).map_err(|_| Refused::Outside)
    }
}

/// Opens a directory for reading that is right below another, unless something is mounted on it or it is a link.
pub(crate) fn open_on_same_mount(
    parent: &OwnedFd,
    name: &std::ffi::CStr,
    method: Method,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if method == Method::Kernel {
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
        match openat2(parent, name, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return opened,
        }
    }
    let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    match mount_of(parent)? == mount_of(&opened)? {
        true => Ok(opened),
        false => Err(Errno::XDEV),
    }
}

/// The number of the mount that something was opened on. Bind mounts of one file system differ in nothing else.
fn mount_of(file: &OwnedFd) -> Result<u64, Errno> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text =
        std::fs::read_to_string(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number.and_then(|number| number.trim().parse().ok()).ok_or(Errno::NOSYS)
}

#[cfg(test)]
mod tests;
