//! How much of a disk a directory takes.
//!
//! Containers made what is in there: links are not followed, and what is deeper than any use has is not counted.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{Method, open_on_same_mount};

/// Directories are counted down to here: each is held open while those below it are.
const DEEPEST: usize = 256;
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
    let mut open: Vec<(OwnedFd, Vec<CString>)> = Vec::new();
    let mut next = Some(base);
    loop {
        if let Some(directory) = next.take() {
            let below = usage.count(&directory, &mut with_several_names)?;
            open.push((directory, below));
        }
        let depth = open.len();
        let Some((directory, below)) = open.last_mut() else { return Ok(usage) };
        match below.pop() {
            Some(name) if depth < DEEPEST => {
                next = match open_on_same_mount(directory, &name, Method::Kernel) {
                    Ok(directory) => Some(directory),
                    Err(Errno::NOENT | Errno::XDEV | Errno::NOTDIR | Errno::LOOP) => None,
                    Err(error) => return Err(error),
                };
            }
            Some(_) => {}
            None => drop(open.pop()),
        }
    }
}

impl DiskUsage {
    fn add(&mut self, blocks: i64) {
        self.bytes += u64::try_from(blocks).unwrap_or_default() * BLOCK;
        self.inodes += 1;
    }

    /// Counts what is right in a directory, and says which directories are.
    fn count(&mut self, directory: &OwnedFd, known: &mut BTreeSet<u64>) -> Result<Vec<CString>, Errno> {
        let device = rustix::fs::fstat(directory)?.st_dev;
        let mut below = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if name.as_c_str() == c"." || name.as_c_str() == c".." {
                continue;
            }
            let found = match rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            let is_known = !is_directory && found.st_nlink > 1 && !known.insert(found.st_ino);
            if found.st_dev != device || is_known {
                continue;
            }
            self.add(found.st_blocks);
            if is_directory {
                below.push(name);
            }
        }
        Ok(below)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_count_once_links_are_not_followed_and_no_depth_breaks_it() {
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
        let mut deep = path.to_owned();
        for _ in 0..400 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        assert!(disk_usage(path).unwrap().inodes >= DEEPEST as u64);
        assert_eq!(disk_usage(&path.join("nowhere")), Err(Errno::NOENT));
    }
}
