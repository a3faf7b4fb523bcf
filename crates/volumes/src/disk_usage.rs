//! How much of a disk a directory takes.
//!
//! Containers made what is in there: links are not followed, and nothing is so deep that it is not counted.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{Method, open_on_same_mount};

/// Of so many levels the directories are held open while those below them are counted. The way back up to deeper ones is
/// their `..`.
const HELD: usize = 64;
/// How much a block is, whatever the file system's own are.
const BLOCK: u64 = 512;

/// What a directory takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// What a directory takes with all that is in it, and nothing that is only mounted in it. Files of several names count
/// once; what goes meanwhile does not count.
pub(crate) fn disk_usage(path: &Path) -> Result<DiskUsage, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = rustix::fs::open(path, flags, Mode::empty())?;
    let mut usage = DiskUsage::default();
    let mut with_several_names = BTreeSet::new();
    usage.add(rustix::fs::fstat(&base)?.st_blocks);
    let mut above: Vec<Level> = Vec::new();
    let mut level = usage.count(base, &mut with_several_names)?;
    loop {
        let Some(name) = level.below.pop() else {
            match level.up(&mut above)? {
                Some(parent) => level = parent,
                None => return Ok(usage),
            }
            continue;
        };
        let Some(directory) = &level.directory else { continue };
        match open_on_same_mount(directory, &name, Method::Kernel) {
            Ok(directory) => {
                let below = usage.count(directory, &mut with_several_names)?;
                let mut parent = std::mem::replace(&mut level, below);
                if above.len() >= HELD {
                    parent.directory = None;
                }
                above.push(parent);
            }
            Err(Errno::NOENT | Errno::XDEV | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A directory that is being counted.
struct Level {
    /// Nothing while one far below it is.
    directory: Option<OwnedFd>,
    inode: u64,
    /// The directories in it that are still to be counted.
    below: Vec<CString>,
}

impl Level {
    /// The directory above this one; nothing at the top. Where this one was moved meanwhile, it is the next one that is held
    /// open.
    fn up(self, above: &mut Vec<Level>) -> Result<Option<Level>, Errno> {
        let Some(mut parent) = above.pop() else { return Ok(None) };
        if parent.directory.is_none()
            && let Some(directory) = &self.directory
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(directory, c"..", flags, Mode::empty())?;
            if rustix::fs::fstat(&directory)?.st_ino == parent.inode {
                parent.directory = Some(directory);
                return Ok(Some(parent));
            }
        }
        while parent.directory.is_none() {
            let Some(next) = above.pop() else { return Ok(None) };
            parent = next;
        }
        Ok(Some(parent))
    }
}

impl DiskUsage {
    fn add(&mut self, blocks: i64) {
        self.bytes += u64::try_from(blocks).unwrap_or_default() * BLOCK;
        self.inodes += 1;
    }

    /// Counts what is right in a directory.
    fn count(&mut self, directory: OwnedFd, known: &mut BTreeSet<u64>) -> Result<Level, Errno> {
        let itself = rustix::fs::fstat(&directory)?;
        let mut below = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_owned();
            if name.as_c_str() == c"." || name.as_c_str() == c".." {
                continue;
            }
            let found = match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            let is_known = !is_directory && found.st_nlink > 1 && !known.insert(found.st_ino);
            if found.st_dev != itself.st_dev || is_known {
                continue;
            }
            self.add(found.st_blocks);
            if is_directory {
                below.push(name);
            }
        }
        Ok(Level { directory: Some(directory), inode: itself.st_ino, below })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_count_once_links_are_not_followed_and_no_depth_hides_anything() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("large"), vec![1; 1 << 20]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let empty = disk_usage(path).unwrap();
        assert_eq!(empty.inodes, 1);
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/file"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(path.join("below/file"), path.join("again")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), path.join("link")).unwrap();
        let usage = disk_usage(path).unwrap();
        assert_eq!(usage.inodes, 4, "itself, a directory, a file, a link");
        assert!((64 << 10..256 << 10).contains(&usage.bytes), "{usage:?}");
        // On each level there is something to be counted before and after what is below.
        let mut deep = path.to_owned();
        for _ in 0..400 {
            for name in ["c", "e", "d"] {
                fs::create_dir(deep.join(name)).unwrap();
            }
            fs::create_dir(deep.join("c/c")).unwrap();
            fs::create_dir(deep.join("e/e")).unwrap();
            deep.push("d");
        }
        fs::write(deep.join("file"), vec![1; 1 << 20]).unwrap();
        let deep = disk_usage(path).unwrap();
        assert_eq!(deep.inodes, 4 + 400 * 5 + 1);
        assert!(deep.bytes >= usage.bytes + (1 << 20), "{deep:?}");
        assert_eq!(disk_usage(&path.join("nowhere")), Err(Errno::NOENT));
    }
}
