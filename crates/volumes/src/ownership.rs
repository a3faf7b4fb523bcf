//! Giving a volume's files to the pod's group (`fsGroup`).
//!
//! Containers may run while this works, and may put links in its way. So nothing is reached by its path: each file is
//! opened without following links, looked at, and changed by what was opened.

mod progress;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crablet_api::core::{Pod, PodFSGroupChangePolicy};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use tracing::warn;

use crate::error::{FileError, failed};
use progress::Progress;
pub(crate) use progress::give;

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const EXECUTE: u32 = 0o110;
const SET_GID: u32 = 0o2000;

/// Below this many directories of each other the walk stops: each takes an open file, of which there are only so many.
const DEEPEST: usize = 512;

/// To whom a volume's files are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    pub group: u32,
    /// Whether the volume is only read.
    pub read_only: bool,
    /// When files are left as they are.
    pub policy: ChangePolicy,
}

/// When files are left as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePolicy {
    /// Never.
    Always,
    /// When the volume's root is as it should be. The root is changed last, so that then all is.
    OnRootMismatch,
}

impl ChangePolicy {
    /// What a pod asks for. An unknown word is taken for no word.
    pub fn of_pod(pod: &Pod) -> ChangePolicy {
        let context = pod.spec.security_context.as_ref();
        match context.and_then(|context| context.fs_group_change_policy.as_ref()) {
            Some(PodFSGroupChangePolicy::OnRootMismatch) => ChangePolicy::OnRootMismatch,
            Some(PodFSGroupChangePolicy::Always | PodFSGroupChangePolicy::Other(_)) | None => {
                ChangePolicy::Always
            }
        }
    }
}

/// The group that a pod's volumes are given to.
pub fn group_of_pod(pod: &Pod) -> Option<u32> {
    let group = pod.spec.security_context.as_ref().and_then(|context| context.fs_group);
    group.and_then(|group| u32::try_from(group).ok())
}

/// The user who gets what is a pod's alone: the one that all its containers run as, where each says whom it runs as.
pub fn user_of_pod(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let mut users = pod.spec.all_containers().map(|container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod)
    });
    let first = users.next()??;
    let is_all = users.all(|user| user == Some(first));
    u32::try_from(first).ok().filter(|_| is_all)
}

/// The permissions that a file has afterwards.
pub fn mode_for_group(mode: u32, is_directory: bool, read_only: bool) -> u32 {
    let mask = if read_only { READ_ONLY } else { READ_WRITE };
    let directory = if is_directory { SET_GID | EXECUTE } else { 0 };
    (mode & 0o7777) | mask | directory
}

/// Gives a volume to a group. A file that cannot be changed is passed by, as upstream does: a container that cannot
/// read it will say so.
pub fn apply(root: &Path, ownership: Ownership) -> Result<(), FileError> {
    walk(root, ownership, None)
}

fn walk(root: &Path, ownership: Ownership, progress: Option<Progress<'_>>) -> Result<(), FileError> {
    let opened = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(failed("open", root))?;
    let status = rustix::fs::fstat(&opened).map_err(failed("stat", root))?;
    if ownership.policy == ChangePolicy::OnRootMismatch && is_right(&status, ownership) {
        return Ok(());
    }
    let mut walk = Walk { root, ownership, skipped: 0, progress };
    walk.visit(&opened, &status, 0).map_err(failed("open", root))?;
    if walk.skipped > 0 {
        warn!(volume = %root.display(), files = walk.skipped, "Cannot give all files of a volume to the pod's group");
    }
    Ok(())
}

fn is_right(root: &Stat, ownership: Ownership) -> bool {
    let wanted = if ownership.read_only { READ_ONLY } else { READ_WRITE } | EXECUTE | SET_GID;
    FileType::from_raw_mode(root.st_mode) == FileType::Directory
        && root.st_gid == ownership.group
        && root.st_mode & wanted == wanted
}

struct Walk<'a> {
    root: &'a Path,
    ownership: Ownership,
    skipped: usize,
    progress: Option<Progress<'a>>,
}

impl Walk<'_> {
    /// Changes what is below, and then the file itself.
    fn visit(&mut self, file: &OwnedFd, status: &Stat, depth: usize) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind == FileType::Directory {
            if depth >= DEEPEST {
                return Err(Errno::NAMETOOLONG);
            }
            for name in names(file)? {
                // What is gone by now needs no owner.
                let Ok(child) = open_itself(file, &name) else { continue };
                let Ok(status) = rustix::fs::fstat(&child) else { continue };
                self.visit(&child, &status, depth + 1)?;
            }
        }
        self.change(file, status, kind);
        Ok(())
    }

    fn change(&mut self, file: &OwnedFd, status: &Stat, kind: FileType) {
        if let Some(progress) = &mut self.progress {
            progress.one_more();
        }
        let Ownership { group, read_only, policy: _ } = self.ownership;
        let group = Some(Gid::from_raw(group));
        let owned = rustix::fs::chownat(file, "", None, group, AtFlags::EMPTY_PATH);
        // A link has no permissions of its own, and those of the file it leads to are not ours to change.
        let allowed = match kind {
            FileType::Symlink => Ok(()),
            _ => {
                let mode = mode_for_group(status.st_mode, kind == FileType::Directory, read_only);
                // What is open in this way can be changed by this path alone.
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            }
        };
        if let Err(error) = owned.map_err(std::io::Error::from).and(allowed) {
            self.skipped += 1;
            tracing::debug!(volume = %self.root.display(), inode = status.st_ino, %error, "Cannot change a file's group");
        }
    }
}

fn open_itself(directory: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// The names in a directory, which is read before anything in it is opened.
fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory.as_fd(), ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(readable)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use crablet_api::testing::pod_yaml;
    use proptest::prelude::*;

    use super::*;

    fn seen(path: &Path) -> (u32, u32) {
        let metadata = fs::symlink_metadata(path).unwrap();
        (metadata.gid(), metadata.mode() & 0o7777)
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    const GROUP: u32 = 4321;

    fn to_group(read_only: bool, policy: ChangePolicy) -> Ownership {
        Ownership { group: GROUP, read_only, policy }
    }

    #[test]
    fn files_and_directories_go_to_the_group_and_links_lead_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("volume");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/file"), "").unwrap();
        fs::write(place.path().join("outside"), "").unwrap();
        symlink("../outside", root.join("link")).unwrap();
        symlink("..", root.join("a/up")).unwrap();
        set(&root, 0o755);
        set(&root.join("a"), 0o700);
        set(&root.join("a/b"), 0o1777);
        set(&root.join("a/file"), 0o4711);
        let outside = seen(&place.path().join("outside"));
        apply(&root, to_group(false, ChangePolicy::Always)).unwrap();
        assert_eq!(seen(&root), (GROUP, 0o2775));
        assert_eq!(seen(&root.join("a")), (GROUP, 0o2770));
        assert_eq!(seen(&root.join("a/b")), (GROUP, 0o3777));
        assert_eq!(seen(&root.join("a/file")), (GROUP, 0o4771));
        assert_eq!(seen(&root.join("link")).0, GROUP);
        assert_eq!(seen(&place.path().join("outside")), outside);
    }

    #[test]
    fn a_root_that_is_right_spares_what_is_below_when_the_pod_says_so() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        set(&file, 0o600);
        let mismatch = to_group(false, ChangePolicy::OnRootMismatch);
        apply(place.path(), mismatch).unwrap();
        assert_eq!(seen(&file), (GROUP, 0o660));
        set(&file, 0o600);
        apply(place.path(), mismatch).unwrap();
        assert_eq!(seen(&file).1, 0o600, "the root was right");
        for wrong in [0o775, 0o2750] {
            set(place.path(), wrong);
            set(&file, 0o600);
            apply(place.path(), mismatch).unwrap();
            assert_eq!((seen(&file).1, seen(place.path()).1 & 0o2770), (0o660, 0o2770), "{wrong:o}");
        }
        set(&file, 0o600);
        apply(place.path(), to_group(false, ChangePolicy::Always)).unwrap();
        assert_eq!(seen(&file).1, 0o660);
    }

    #[test]
    fn a_volume_that_is_a_file_can_be_given_away_too() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        set(&file, 0o600);
        apply(&file, to_group(true, ChangePolicy::OnRootMismatch)).unwrap();
        assert_eq!(seen(&file), (GROUP, 0o640));
        let error = apply(&place.path().join("no"), to_group(true, ChangePolicy::Always)).unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn the_pod_says_to_whom_and_when() {
        let pod =
            |context: &str| pod_yaml(&format!("metadata: {{name: p}}\nspec: {{securityContext: {context}}}"));
        for (context, group, policy) in [
            ("{}", None, ChangePolicy::Always),
            ("{fsGroup: 7}", Some(7), ChangePolicy::Always),
            ("{fsGroup: 7, fsGroupChangePolicy: Always}", Some(7), ChangePolicy::Always),
            ("{fsGroupChangePolicy: OnRootMismatch}", None, ChangePolicy::OnRootMismatch),
            ("{fsGroupChangePolicy: Later}", None, ChangePolicy::Always),
        ] {
            let pod = pod(context);
            assert_eq!((group_of_pod(&pod), ChangePolicy::of_pod(&pod)), (group, policy), "{context}");
        }
    }

    proptest! {
        #[test]
        fn a_mode_only_grows_and_a_second_time_changes_nothing(mode in 0_u32..=0o7777, directory: bool, read_only: bool) {
            let changed = mode_for_group(mode, directory, read_only);
            prop_assert_eq!(changed & mode, mode);
            prop_assert_eq!(mode_for_group(changed, directory, read_only), changed);
            prop_assert_eq!(changed & 0o007, mode & 0o007, "others get nothing");
            prop_assert_eq!(changed & 0o5000, mode & 0o5000, "neither set-user-ID nor sticky");
            prop_assert_eq!(changed & 0o2000 != 0, directory || mode & 0o2000 != 0);
            prop_assert_eq!(changed & 0o440, 0o440);
            prop_assert_eq!(changed & 0o220 == 0o220, !read_only || mode & 0o220 == 0o220);
            prop_assert_eq!(changed & 0o110 == 0o110, directory || mode & 0o110 == 0o110);
            prop_assert_eq!(mode_for_group(mode | 0o100_000, directory, read_only), changed, "the kind of file is no permission");
        }

        #[test]
        fn the_kernel_keeps_what_was_computed(mode in 0_u32..=0o7777, directory: bool, read_only: bool) {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("it");
            if directory { fs::create_dir(&path).unwrap() } else { fs::write(&path, "").unwrap() }
            set(&path, mode);
            apply(&path, to_group(read_only, ChangePolicy::Always)).unwrap();
            prop_assert_eq!(seen(&path), (GROUP, mode_for_group(mode, directory, read_only)));
        }
    }
}
