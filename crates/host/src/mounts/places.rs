//! Whether anything is mounted in a directory, told by its own places: where much is mounted on a node, the whole table
//! takes milliseconds to read, and nearly all of it is about others.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

/// Whether it is certain that nothing is mounted on a directory or on anything in it. It is not where there are more than
/// `most` places to look at, where one cannot be looked at, or on kernels before 5.6. What is mounted is not looked at.
pub fn is_free_of_mounts(directory: &Path, most: usize) -> bool {
    match open_on_same_mount(directory) {
        Ok(directory) => is_free(directory, most),
        // Nothing can be mounted where nothing is.
        Err(error) => error == Errno::NOENT,
    }
}

/// A directory, if the last step to it leads to no other mount.
fn open_on_same_mount(directory: &Path) -> Result<OwnedFd, Errno> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(Errno::XDEV);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match parent.as_os_str().is_empty() {
        true => rustix::fs::openat(CWD, ".", flags, Mode::empty())?,
        false => rustix::fs::openat(CWD, parent, flags, Mode::empty())?,
    };
    open_below(&parent, name)
}

fn open_below(parent: &OwnedFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

fn is_free(directory: OwnedFd, most: usize) -> bool {
    let (mut left, mut open) = (most, vec![directory]);
    while let Some(directory) = open.pop() {
        let Ok(entries) = Dir::read_from(&directory) else { return false };
        for entry in entries {
            let Ok(entry) = entry else { return false };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            let found = match entry.file_type() {
                FileType::Directory => open_below(&directory, name).map(|below| open.push(below)),
                // A file can be mounted on a file, and nothing on a link.
                _ => {
                    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    openat2(&directory, name, place, Mode::empty(), ResolveFlags::NO_XDEV).map(drop)
                }
            };
            match found {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => return false,
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Tmpfs, UnmountMode, bind, mount_tmpfs, unmount};
    use super::*;

    #[test]
    fn a_directory_is_free_until_something_is_mounted_anywhere_in_it() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("pod");
        assert!(is_free_of_mounts(&pod, 9), "nothing is there");
        let volume = pod.join("volumes/kind/name");
        fs::create_dir_all(&volume).unwrap();
        let (file, link) = (pod.join("file"), pod.join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert!(is_free_of_mounts(&pod, 9));
        assert!(is_free_of_mounts(&pod, 5) && !is_free_of_mounts(&pod, 4), "there are five places");
        for place in [&volume, &pod] {
            mount_tmpfs(place, Tmpfs::default()).unwrap();
            let is_free = is_free_of_mounts(&pod, 9);
            unmount(place, UnmountMode::Plain).unwrap();
            assert!(!is_free, "{}", place.display());
        }
        bind(&root.path().join("pod/file"), &file, false).unwrap();
        let is_free = is_free_of_mounts(&pod, 9);
        unmount(&file, UnmountMode::Plain).unwrap();
        assert!(!is_free, "a file");
        assert!(is_free_of_mounts(&pod, 9));
        assert!(!is_free_of_mounts(&file, 9), "it is no directory");
        assert!(!is_free_of_mounts(Path::new("/"), 9));
    }
}
