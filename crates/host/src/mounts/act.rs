//! Mounting and unmounting.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::{MountTable, PROC_SELF_MOUNTINFO, resolved};

/// Why something was not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A tmpfs was not mounted.
    #[error("cannot mount a tmpfs with the options {options:?} on {}", target.display())]
    Tmpfs {
        /// Where.
        target: PathBuf,
        options: String,
        /// Why.
        source: io::Error,
    },
    /// A file system of huge pages was not mounted.
    #[error("cannot mount huge pages of {page_size} on {}", target.display())]
    HugePages {
        /// Where.
        target: PathBuf,
        /// How large the pages are.
        page_size: String,
        /// Why.
        source: io::Error,
    },
    /// A directory or file was not mounted in another place.
    #[error("cannot bind {} to {}", from.display(), target.display())]
    Bind {
        /// What.
        from: PathBuf,
        /// Where.
        target: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Mounts in a directory cannot be shared.
    #[error("cannot share what is mounted in {}", directory.display())]
    Share {
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A mount was not made read-only.
    #[error("cannot make the mount at {} read-only", target.display())]
    ReadOnly {
        /// Where.
        target: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A mount was not taken away.
    #[error("cannot unmount {}", target.display())]
    Unmount {
        /// Where.
        target: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What a tmpfs is like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tmpfs {
    /// How many bytes it holds at most; half of the machine's memory if not said.
    pub size: Option<u64>,
    /// The permissions of its root; those of a directory that all may write to if not said.
    pub mode: Option<u32>,
    /// Whether its content is kept out of swap. Kernels before 6.4 refuse this.
    pub no_swap: bool,
}

impl Tmpfs {
    fn options(self) -> String {
        let size = self.size.map(|size| format!("size={size}"));
        let mode = self.mode.map(|mode| format!("mode={mode:o}"));
        let no_swap = self.no_swap.then(|| "noswap".to_owned());
        [size, mode, no_swap].into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

/// Mounts a new tmpfs. If something is mounted there already, it is hidden: ask [`is_mount_point`](super::is_mount_point)
/// first.
pub fn mount_tmpfs(target: &Path, tmpfs: Tmpfs) -> Result<(), MountError> {
    let options = tmpfs.options();
    let mounted = CString::new(options.clone()).map_err(io::Error::from).and_then(|data| {
        Ok(rustix::mount::mount("tmpfs", target, "tmpfs", MountFlags::empty(), data.as_c_str())?)
    });
    mounted.map_err(|source| MountError::Tmpfs { target: target.to_owned(), options, source })
}

/// Mounts a new file system whose files are in huge pages of one size, such as `2Mi`.
pub fn mount_huge_pages(target: &Path, page_size: &str) -> Result<(), MountError> {
    let mounted = CString::new(format!("pagesize={page_size}")).map_err(io::Error::from).and_then(|data| {
        Ok(rustix::mount::mount("nodev", target, "hugetlbfs", MountFlags::empty(), data.as_c_str())?)
    });
    let failed =
        |source| MountError::HugePages { target: target.to_owned(), page_size: page_size.to_owned(), source };
    mounted.map_err(failed)
}

/// Mounts a directory or file in another place too, with all that is mounted below it if `recursive`. What it is
/// mounted on must be there, and be of the same kind.
pub fn bind(from: &Path, target: &Path, recursive: bool) -> Result<(), MountError> {
    let bound = match recursive {
        true => rustix::mount::mount_bind_recursive(from, target),
        false => rustix::mount::mount_bind(from, target),
    };
    let failed = |source: Errno| MountError::Bind {
        from: from.to_owned(),
        target: target.to_owned(),
        source: source.into(),
    };
    bound.map_err(failed)
}

/// Sees to it that what is mounted in a directory is seen by all who have the directory, and the other way round: where it
/// is on a mount that is not shared, it becomes a mount of its own that is. What is mounted in it by then would be
/// hidden, so that is an error.
pub fn make_shared(directory: &Path) -> Result<(), MountError> {
    let shared = (|| {
        let path = resolved(directory)?;
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO))?;
        if table.of(&path).is_some_and(super::Mount::is_shared) {
            return Ok(());
        }
        if table.at(&path).is_none() {
            if !table.under(&path).is_empty() {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something is mounted in it"));
            }
            rustix::mount::mount_bind(&path, &path)?;
        }
        let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        Ok(rustix::mount::mount_change(&path, flags)?)
    })();
    shared.map_err(|source| MountError::Share { directory: directory.to_owned(), source })
}

/// Makes a mount read-only at this place alone, and keeps what else it forbids. Mounts below it are not changed.
pub fn remount_bind_read_only(target: &Path) -> Result<(), MountError> {
    let remounted = (|| {
        let path = resolved(target)?;
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO))?;
        let mount = table.at(&path).ok_or(Errno::INVAL)?;
        // A remount sets all of these at once, and the kernel refuses to lift some of them.
        let kept = [
            ("nosuid", MountFlags::NOSUID),
            ("nodev", MountFlags::NODEV),
            ("noexec", MountFlags::NOEXEC),
            ("noatime", MountFlags::NOATIME),
            ("nodiratime", MountFlags::NODIRATIME),
            ("relatime", MountFlags::RELATIME),
        ];
        let kept = kept.into_iter().filter(|(option, _)| mount.has_option(option)).map(|(_, flag)| flag);
        let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |flags, flag| flags | flag);
        Ok(rustix::mount::mount_remount(target, flags, "")?)
    })();
    remounted.map_err(|source| MountError::ReadOnly { target: target.to_owned(), source })
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Now, or not at all if something there is in use.
    Plain,
    /// Out of sight now, and wholly when nothing uses it any more. Data may still be on its way after this returns: for
    /// a file system whose server is gone, and for nothing else.
    Detach,
    /// With what is on its way to a server given up: for one that does not answer, and for nothing else.
    Force,
}

/// Whether there was something to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// There was, and it is gone.
    Was,
    /// Nothing was mounted there.
    WasNot,
}

/// Takes away the mount on top at a path. It is no error if there is none. A symbolic link is not followed.
pub fn unmount(target: &Path, mode: UnmountMode) -> Result<Unmounted, MountError> {
    let flags = match mode {
        UnmountMode::Plain => UnmountFlags::NOFOLLOW,
        UnmountMode::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        UnmountMode::Force => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(target, flags) {
        Ok(()) => Ok(Unmounted::Was),
        Err(Errno::NOENT) => Ok(Unmounted::WasNot),
        // This says too that a mount may not be taken away, so the table has the last word.
        Err(Errno::INVAL) if super::is_mount_point(target).is_ok_and(|is| !is) => Ok(Unmounted::WasNot),
        Err(source) => Err(MountError::Unmount { target: target.to_owned(), source: source.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::is_mount_point;
    use super::*;

    /// A directory in which everything is unmounted when the test ends, however it ends.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Place {
            Place(tempfile::tempdir().unwrap())
        }

        fn directory(&self, name: &str) -> PathBuf {
            let path = self.0.path().canonicalize().unwrap().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
            for mount in table.under(&self.0.path().canonicalize().unwrap()) {
                let _ = unmount(&mount.mount_point, UnmountMode::Detach);
            }
        }
    }

    #[test]
    fn a_tmpfs_is_mounted_with_its_size_and_mode_and_unmounted() {
        let place = Place::new();
        let path = place.directory("with a space");
        assert!(!is_mount_point(&path).unwrap());
        mount_tmpfs(&path, Tmpfs { size: Some(1 << 20), mode: Some(0o750), no_swap: false }).unwrap();
        assert!(is_mount_point(&path).unwrap());
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let mount = table.at(&path).unwrap();
        assert_eq!(mount.file_system, "tmpfs");
        assert!(mount.super_options.contains("size=1024k"), "{}", mount.super_options);
        assert!(mount.super_options.contains("mode=750"), "{}", mount.super_options);
        assert_eq!(unmount(&path, UnmountMode::Plain).unwrap(), Unmounted::Was);
        assert_eq!(unmount(&path, UnmountMode::Plain).unwrap(), Unmounted::WasNot);
        assert_eq!(unmount(&path.join("missing"), UnmountMode::Plain).unwrap(), Unmounted::WasNot);
    }

    #[test]
    fn a_directory_comes_to_share_its_mounts_once_and_hides_nothing() {
        let place = Place::new();
        let parent = place.directory("private");
        mount_tmpfs(&parent, Tmpfs::default()).unwrap();
        rustix::mount::mount_change(&parent, MountPropagationFlags::PRIVATE).unwrap();
        let (shared, used) = (place.directory("private/shared"), place.directory("private/used"));
        let mounts = || {
            let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
            (table.at(&shared).is_some_and(|mount| mount.is_shared()), table.under(&parent).len())
        };
        assert_eq!(mounts(), (false, 1));
        make_shared(&shared).unwrap();
        assert_eq!(mounts(), (true, 2));
        make_shared(&shared).unwrap();
        assert_eq!(mounts(), (true, 2));
        make_shared(&place.directory("private/shared/below")).unwrap();
        assert_eq!(mounts(), (true, 2));

        mount_tmpfs(&place.directory("private/used/below"), Tmpfs::default()).unwrap();
        let error = make_shared(&used).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot share what is mounted in {}", used.display()));
        assert_eq!(mounts(), (true, 3));
    }

    #[test]
    fn a_bind_mount_shows_the_same_files_and_can_be_made_read_only() {
        let place = Place::new();
        let (from, target) = (place.directory("from"), place.directory("to"));
        mount_tmpfs(&from, Tmpfs::default()).unwrap();
        rustix::mount::mount_remount(&from, MountFlags::NOSUID | MountFlags::NODEV, "").unwrap();
        std::fs::create_dir(from.join("below")).unwrap();
        mount_tmpfs(&from.join("below"), Tmpfs::default()).unwrap();
        bind(&from, &target, true).unwrap();
        std::fs::write(target.join("file"), "x").unwrap();
        assert_eq!(std::fs::read_to_string(from.join("file")).unwrap(), "x");
        assert!(is_mount_point(&target.join("below")).unwrap());
        remount_bind_read_only(&target).unwrap();
        let error = std::fs::write(target.join("file"), "y").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        std::fs::write(from.join("file"), "z").unwrap();
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let mount = table.at(&target).unwrap();
        assert!(
            mount.has_option("ro") && mount.has_option("nosuid") && mount.has_option("nodev"),
            "{mount:?}"
        );
    }

    #[test]
    fn a_mount_in_use_is_unmounted_only_when_that_is_asked_for() {
        let place = Place::new();
        let path = place.directory("busy");
        mount_tmpfs(&path, Tmpfs::default()).unwrap();
        let open = std::fs::File::create(path.join("open")).unwrap();
        let error = unmount(&path, UnmountMode::Plain).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot unmount {}", path.display()));
        assert_eq!(unmount(&path, UnmountMode::Detach).unwrap(), Unmounted::Was);
        assert!(!is_mount_point(&path).unwrap());
        drop(open);
    }

    #[test]
    fn errors_name_what_was_to_be_mounted_where() {
        let error =
            mount_tmpfs(Path::new("/no/such"), Tmpfs { size: Some(1), ..Tmpfs::default() }).unwrap_err();
        assert_eq!(error.to_string(), "cannot mount a tmpfs with the options \"size=1\" on /no/such");
        let error = bind(Path::new("/no/from"), Path::new("/no/to"), false).unwrap_err();
        assert_eq!(error.to_string(), "cannot bind /no/from to /no/to");
        let error = remount_bind_read_only(Path::new("/proc/no-such")).unwrap_err();
        assert_eq!(error.to_string(), "cannot make the mount at /proc/no-such read-only");
    }
}
