//! A directory of the kernel's whose files are read with three system calls each. It is held open, or only named from one that
//! is: for few files that takes less.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::path::Arg;

use crate::known::Start;

/// The most that is read of a file. The largest are the processes of a large cgroup.
const LARGEST: usize = 1 << 20;
/// The kernel hands out what it has in pieces of a page or more. What is clearly shorter was all.
const CLEARLY_ALL: usize = 3_000;
const PAGE: usize = 4_096;
/// What is read of a directory's names at a time.
const NAMES: usize = 8 * PAGE;
/// What an entry takes there beside its name, at the most.
const ENTRY: usize = 32;
/// How a directory is opened that others are looked up from.
const HELD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Where files and directories are read to, again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Names of entries; it stays empty, and what is read goes to the room that it has.
    names: Vec<u8>,
}

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    open: Arc<OwnedFd>,
    /// Where it is from the one that is open, with a slash at the end; nothing if it is that.
    from_open: String,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Option<Directory> {
        rustix::fs::open(path, HELD, Mode::empty()).ok().map(Directory::held)
    }

    /// The directory of a name in this one, held open. What is above is not looked up again.
    pub(crate) fn below(&self, name: impl Arg) -> Option<Directory> {
        self.open_at(name, HELD).ok().map(Directory::held)
    }

    /// The same without a look whether it is there.
    pub(crate) fn named(&self, name: &str) -> Directory {
        let from_open = format!("{}{name}/", self.from_open);
        Directory { open: Arc::clone(&self.open), from_open }
    }

    fn held(open: OwnedFd) -> Directory {
        Directory { open: Arc::new(open), from_open: String::new() }
    }

    fn open_at(&self, name: impl Arg, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.from_open.is_empty() {
            true => rustix::fs::openat(&*self.open, name, flags, Mode::empty()),
            false => {
                let path = [&self.from_open, name.as_str()?].concat();
                rustix::fs::openat(&*self.open, path, flags, Mode::empty())
            }
        }
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
        let Ok(open) = self.open_at(directory, flags) else { return false };
        let open = Directory::held(open);
        buffer.names.reserve(NAMES);
        let mut entries = RawDir::new(&*open.open, buffer.names.spare_capacity_mut());
        let mut taken = 0;
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return false };
            taken += ENTRY + entry.file_name().to_bytes().len();
            with(&open, entry.file_name(), entry.file_type());
            if entries.is_buffer_empty() && taken < CLEARLY_ALL {
                break;
            }
        }
        true
    }

    /// Whether a link in one that is held open begins with this. It says what it is without touching that, which could hang.
    pub(crate) fn links_to(&self, name: impl Arg, what: &[u8]) -> bool {
        let mut link = [0_u8; 8];
        rustix::fs::readlinkat_raw(&*self.open, name, &mut link).is_ok() && link.starts_with(what)
    }

    /// How much of the disk an entry of one that is held open takes, in bytes, unless it is a directory.
    pub(crate) fn taken_by(&self, name: impl Arg, kind: FileType) -> Option<u64> {
        const BLOCK: u64 = 512;
        if kind.is_dir() {
            return None;
        }
        let status = rustix::fs::statat(&*self.open, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
        (!is_directory).then(|| u64::try_from(status.st_blocks).unwrap_or(0) * BLOCK)
    }

    /// When it was made, as far as can be told: an entry made in it or taken from it changes its time, so that of a file in
    /// it counts if it is earlier. What is known of it holds on.
    pub(crate) fn start(&self, file: &CStr, known: Option<Start>) -> Option<Start> {
        let (inode, modified) = self.status(None)?;
        let before = match known.filter(|known| known.inode == inode) {
            Some(known) => Some(known.at),
            None => self.status(Some(file)).map(|(_, modified)| modified),
        };
        Some(Start { inode, at: before.map_or(modified, |before| before.min(modified)) })
    }

    /// The inode of it or of a file in it, and when that was changed last.
    fn status(&self, file: Option<&CStr>) -> Option<(u64, Timestamp)> {
        let status = match (self.from_open.is_empty(), file) {
            (true, None) => rustix::fs::statat(&*self.open, c"", AtFlags::EMPTY_PATH),
            (true, Some(file)) => rustix::fs::statat(&*self.open, file, AtFlags::empty()),
            (false, None) => rustix::fs::statat(&*self.open, &*self.from_open, AtFlags::empty()),
            (false, Some(file)) => {
                let path = [&self.from_open, file.to_str().ok()?].concat();
                rustix::fs::statat(&*self.open, path, AtFlags::empty())
            }
        };
        let status = status.ok()?;
        let nanoseconds = i32::try_from(status.st_mtime_nsec).ok()?;
        Some((status.st_ino, Timestamp::new(status.st_mtime, nanoseconds).ok()?))
    }

    /// What a file has, or nothing if there is none or it cannot be read.
    pub(crate) fn read<'a>(&self, name: impl Arg, buffer: &'a mut Buffer) -> Option<&'a [u8]> {
        let file = self.open_at(name, OFlags::RDONLY | OFlags::CLOEXEC).ok()?;
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
        let named = directory.named("a").named("c");
        assert_eq!(named.number(c"number", &mut buffer), Some(3));
        assert_eq!(
            (named.start(c"number", None), directory.named("a").directories(9, &mut buffer)),
            (below.start(c"number", None), vec!["c".to_owned()])
        );
        assert!(directory.named("none").start(c"number", None).is_none());
        assert!(directory.below("file").is_none() && directory.below("none").is_none());
        assert!(!directory.each_entry("none", &mut buffer, |_, _, _| unreachable!()));
    }

    #[test]
    fn a_directory_began_with_it_or_with_a_file_in_it_and_what_is_known_of_another_says_nothing() {
        let at = |second: u64| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            (time, Timestamp::try_from(time).unwrap())
        };
        let set =
            |path: &Path, second| std::fs::File::open(path).unwrap().set_modified(at(second).0).unwrap();
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        set(&file, 1_000);
        set(place.path(), 2_000);
        let directory = Directory::open(place.path()).unwrap();
        let found = directory.start(c"file", None).unwrap();
        assert_eq!(found.at, at(1_000).1);
        assert_eq!(directory.start(c"none", None).unwrap().at, at(2_000).1);
        // The file is not looked at again.
        set(&file, 500);
        assert_eq!(directory.start(c"file", Some(found)), Some(found));
        let of_another = Start { inode: found.inode + 1, at: at(7).1 };
        assert_eq!(directory.start(c"file", Some(of_another)).unwrap().at, at(500).1);
        set(place.path(), 400);
        assert_eq!(directory.start(c"file", Some(found)).unwrap().at, at(400).1);
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
