//! A look at one path: what is there, and what it says when it has changed.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crablet_api::document::Limits;
use crablet_host::files::{ReadError, read_bounded};
use jiff::Timestamp;

const LARGEST: usize = Limits::MANIFEST.bytes;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Directory,
    File,
    Missing,
    /// Neither, or it cannot be told.
    Other,
}

/// What tells one version of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// When the content was last changed.
    pub(super) fn modified(&self) -> Option<Timestamp> {
        Timestamp::new(self.modified.0, i32::try_from(self.modified.1).ok()?).ok()
    }

    /// A number that differs between versions of a file.
    pub(super) fn version(&self) -> u64 {
        let moment =
            |(seconds, nanos): (i64, i64)| (seconds as u64).wrapping_mul(1_000_000_007) ^ nanos as u64;
        moment(self.modified) ^ moment(self.changed).rotate_left(17) ^ self.inode.rotate_left(40) ^ self.size
    }
}

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// There is nothing.
    Gone,
    /// It is what it was.
    Same,
    /// There is something that cannot be read as a file, and why.
    Bad(Option<Stamp>, String),
    /// What it says.
    Content(Stamp, Vec<u8>),
}

/// What a path is, following links.
pub(super) fn shape(path: &Path) -> io::Result<Shape> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(Shape::Directory),
        Ok(metadata) if metadata.is_file() => Ok(Shape::File),
        Ok(_) => Ok(Shape::Other),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(Shape::Missing),
            _ => Err(error),
        },
    }
}

/// Looks at a path. What still has the stamp that is `known` is not read again.
pub(super) fn look(path: &Path, known: Option<Stamp>) -> Look {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return unseen(path, &error),
    };
    let stamp = Stamp::of(&metadata);
    if known == Some(stamp) {
        return Look::Same;
    }
    let bad = |why: String| Look::Bad(Some(stamp), why);
    if metadata.is_dir() {
        return bad("is a directory; manifests in directories below are not read".to_owned());
    }
    // Known before a byte of it is read.
    if metadata.is_file() && metadata.len() > LARGEST as u64 {
        return bad(too_large(metadata.len()));
    }
    match read_bounded(path, LARGEST) {
        Ok(content) => Look::Content(stamp, content),
        Err(error) if error.is_not_found() => Look::Gone,
        Err(ReadError::NotRegular { kind, .. }) => bad(format!("is {kind}, not a regular file")),
        Err(ReadError::TooLarge { .. }) => bad(too_large(metadata.len())),
        Err(ReadError::Failed { source, .. }) => bad(unreadable(&source)),
    }
}

fn unseen(path: &Path, error: &io::Error) -> Look {
    let is_missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    match (is_missing, std::fs::symlink_metadata(path)) {
        (true, Ok(_)) => Look::Bad(None, "is a symbolic link that leads nowhere".to_owned()),
        (true, Err(_)) => Look::Gone,
        (false, _) => Look::Bad(None, unreadable(error)),
    }
}

fn too_large(bytes: u64) -> String {
    format!("has {bytes} bytes; at most {LARGEST} are accepted")
}

pub(super) fn unreadable(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn bad(path: &Path) -> String {
        match look(path, None) {
            Look::Bad(_, why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_read_again_only_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        assert_eq!(look(&path, None), Look::Gone);
        fs::write(&path, "one").unwrap();
        let Look::Content(stamp, content) = look(&path, None) else { panic!() };
        assert_eq!(content, b"one");
        assert_eq!(look(&path, Some(stamp)), Look::Same);
        fs::write(&path, "three").unwrap();
        let Look::Content(later, _) = look(&path, Some(stamp)) else { panic!() };
        assert_ne!(later.version(), stamp.version());
        assert!(later.modified().is_some());
    }

    #[test]
    fn what_is_no_file_is_told_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
        fs::File::create(path("huge")).unwrap().set_len(100 << 20).unwrap();
        assert_eq!(bad(&path("directory")), "is a directory; manifests in directories below are not read");
        assert_eq!(bad(&path("pipe")), "is a pipe, not a regular file");
        assert_eq!(bad(&path("socket")), "is a socket, not a regular file");
        assert_eq!(bad(Path::new("/dev/null")), "is a device, not a regular file");
        assert!(bad(&path("loop")).starts_with("cannot be read: Too many levels of symbolic links"));
        assert_eq!(bad(&path("dangling")), "is a symbolic link that leads nowhere");
        assert_eq!(bad(&path("huge")), "has 104857600 bytes; at most 3145728 are accepted");
    }
}
