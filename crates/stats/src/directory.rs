//! A directory of the kernel's that is held open while its files are read, each with two or three system calls.

use std::os::fd::OwnedFd;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::path::Arg;

/// The most that is read of a file. The largest are the processes of a large cgroup.
const LARGEST: usize = 1 << 20;
/// The kernel hands out what it has in pieces of a page. What is clearly shorter was all.
const CLEARLY_ALL: usize = 3_000;
const PAGE: usize = 4_096;

/// Where files are read to, again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    pub(crate) fn open(path: &Path) -> Option<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok().map(Directory)
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
        let buffer = &mut buffer.0;
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

/// What a file has, by its path.
pub(crate) fn read_file<'a>(path: &Path, buffer: &'a mut Buffer) -> Option<&'a [u8]> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = Directory(rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?);
    directory.read(path.file_name()?, buffer)
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
        assert_eq!(read_file(&place.path().join("short"), &mut buffer), Some(&b"17\n"[..]));
        assert!(directory.modified().is_some());
        assert!(Directory::open(&place.path().join("short")).is_none());
    }
}
