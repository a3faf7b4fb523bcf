//! A directory of the kernel's that is held open while its files are read, each with two or three system calls.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::path::Arg;

/// The most that is read of a file. The largest are the processes of a large cgroup.
const LARGEST: usize = 1 << 20;
/// The kernel hands out what it has in pieces of a page. What is clearly shorter was all.
const CLEARLY_ALL: usize = 3_000;
const PAGE: usize = 4_096;
/// What is read of a directory's names at a time.
const NAMES: usize = 8 * PAGE;

/// Where files and directories are read to, again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Names of entries; it stays empty, and what is read goes to the room that it has.
    names: Vec<u8>,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    pub(crate) fn open(path: &Path) -> Option<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok().map(Directory)
    }

    /// The directory of a name in this one. What is above is not looked up again.
    pub(crate) fn below(&self, name: impl Arg) -> Option<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).ok().map(Directory)
    }

    /// The directories in it, in order.
    pub(crate) fn directories(&self, most: usize, buffer: &mut Buffer) -> Vec<String> {
        let mut names = Vec::new();
        self.each_entry(c".", buffer, |_, name, kind| {
            let is_directory = matches!(kind, FileType::Directory | FileType::Unknown);
            if is_directory && !name.to_bytes().starts_with(b".") && names.len() < most {
                names.extend(name.to_str().map(str::to_owned));
            }
        });
        names.sort_unstable();
        names
    }

    /// Calls for each entry of a directory in this one, with that directory. Whether it could be read to its end.
    pub(crate) fn each_entry(
        &self,
        directory: impl Arg,
        buffer: &mut Buffer,
        mut with: impl FnMut(&Directory, &CStr, FileType),
    ) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(open) = rustix::fs::openat(&self.0, directory, flags, Mode::empty()) else { return false };
        let open = Directory(open);
        buffer.names.reserve(NAMES);
        let mut entries = RawDir::new(&open.0, buffer.names.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return false };
            with(&open, entry.file_name(), entry.file_type());
        }
        true
    }

    /// Whether a link in it begins with this. It says what it is without touching that, which could hang.
    pub(crate) fn links_to(&self, name: impl Arg, what: &[u8]) -> bool {
        let mut link = [0_u8; 8];
        rustix::fs::readlinkat_raw(&self.0, name, &mut link).is_ok() && link.starts_with(what)
    }

    /// When an entry was last made in it or taken from it: for a cgroup, about when it was made.
    pub(crate) fn modified(&self) -> Option<Timestamp> {
        let status = rustix::fs::statat(&self.0, c"", AtFlags::EMPTY_PATH).ok()?;
        Timestamp::new(status.st_mtime, i32::try_from(status.st_mtime_nsec).ok()?).ok()
    }

    /// What a file has, or nothing if there is none or it cannot be read.
    pub(crate) fn read<'a>(&self, name: impl Arg, buffer: &'a mut Buffer) -> Option<&'a [u8]> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty()).ok()?;
        let buffer = &mut buffer.bytes;
        let mut filled = 0;
        loop {
            if buffer.len() < filled + PAGE {
                buffer.resize(filled + 4 * PAGE, 0);
            }
            let read = rustix::io::read(&file, &mut buffer[filled..]).ok()?;
            filled += read;
            if read < CLEARLY_ALL || filled >= LARGEST {
                return Some(&buffer[..filled]);
            }
        }
    }

    /// The one number of a file.
    pub(crate) fn number(&self, name: impl Arg, buffer: &mut Buffer) -> Option<u64> {
        self.read(name, buffer).and_then(crate::bytes::number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_however_long() {
        let place = tempfile::tempdir().unwrap();
        let long: Vec<u8> = (0..50_000_u32).flat_map(|pid| format!("{pid}\n").into_bytes()).collect();
        std::fs::write(place.path().join("long"), &long).unwrap();
        std::fs::write(place.path().join("short"), "17\n").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(directory.read("long", &mut buffer), Some(&*long));
        assert_eq!(directory.number("short", &mut buffer), Some(17));
        assert_eq!(directory.read("none", &mut buffer), None);
        assert!(directory.modified().is_some());
        assert!(Directory::open(&place.path().join("short")).is_none());
    }

    #[test]
    fn directories_are_those_below_in_order_and_what_is_in_them_is_found_by_name() {
        let place = tempfile::tempdir().unwrap();
        for name in ["b", "a/c", "d"] {
            std::fs::create_dir_all(place.path().join(name)).unwrap();
        }
        std::fs::write(place.path().join("file"), "1").unwrap();
        std::fs::write(place.path().join("a/c/number"), "3\n").unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let mut buffer = Buffer::default();
        assert_eq!(directory.directories(9, &mut buffer), ["a", "b", "d"]);
        assert_eq!(directory.directories(2, &mut buffer).len(), 2);
        let below = directory.below("a").and_then(|below| below.below("c")).unwrap();
        assert_eq!(below.number("number", &mut buffer), Some(3));
        assert!(below.directories(9, &mut buffer).is_empty());
        assert!(directory.below("file").is_none() && directory.below("none").is_none());
        assert!(!directory.each_entry("none", &mut buffer, |_, _, _| unreachable!()));
    }

    #[test]
    fn more_names_than_are_read_at_a_time_are_all_found() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..600 {
            std::fs::create_dir(place.path().join(format!("{number:0>100}"))).unwrap();
        }
        let found = Directory::open(place.path()).unwrap().directories(1_000, &mut Buffer::default());
        assert_eq!(found.len(), 600);
    }
}
