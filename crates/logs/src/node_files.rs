//! The files below a directory of logs, and nothing outside of it, whatever links and names say.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::unfold;
use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// By so many bytes it is told what a file is.
const FIRST_BYTES: usize = 512;

/// Something below the directory.
#[derive(Debug)]
pub enum NodeFile {
    /// A file, as long as it was when it was opened.
    File(OpenFile),
    /// A directory.
    Directory(OpenDirectory),
}

/// A directory to list.
#[derive(Debug)]
pub struct OpenDirectory {
    /// What is in it, by name.
    pub entries: Vec<DirectoryEntry>,
    /// When something was last made in it or taken from it.
    pub modified: Timestamp,
}

/// A file to read. Clones are the same.
#[derive(Debug, Clone)]
pub struct OpenFile {
    file: Arc<File>,
    /// How long it is.
    pub length: u64,
    /// When it was last written to.
    pub modified: Timestamp,
    /// What it begins with, if that can be read.
    pub first_bytes: Option<Box<[u8]>>,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: String,
    /// Whether it is a directory. A link is none.
    pub is_directory: bool,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    /// There is no such file.
    #[error("no such file or directory")]
    Missing,
    /// A link leads out of the directory.
    #[error("path escapes from parent")]
    Outside,
    /// It is neither a file nor a directory.
    #[error("not a regular file")]
    Special,
    /// Something else.
    #[error(transparent)]
    Failed(io::Error),
}

impl From<io::Error> for NodeFileError {
    fn from(error: io::Error) -> NodeFileError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
                NodeFileError::Missing
            }
            _ => NodeFileError::Failed(error),
        }
    }
}

/// Opens what is at a path below a directory. Links are followed as long as they stay below it; `..` never leads above
/// it.
pub(crate) fn open(directory: &Path, path: &str) -> Result<NodeFile, NodeFileError> {
    let root = fs::canonicalize(directory)?;
    let resolved = fs::canonicalize(root.join(cleaned(path)))?;
    let below = resolved.strip_prefix(&root).map_err(|_| NodeFileError::Outside)?;
    // No link is followed from here on: one that has come meanwhile is an error.
    let mut opened: OwnedFd = File::open(&root)?.into();
    for part in below.components() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        opened = match openat(&opened, Path::new(part.as_os_str()), flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP) => return Err(NodeFileError::Outside),
            Err(rustix::io::Errno::NXIO) => return Err(NodeFileError::Special),
            opened => opened.map_err(io::Error::from)?,
        };
    }
    let file = File::from(opened);
    let metadata = file.metadata()?;
    let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
    let modified = modified.unwrap_or_default();
    if metadata.is_dir() {
        return Ok(NodeFile::Directory(OpenDirectory { entries: entries(&file)?, modified }));
    }
    if !metadata.is_file() {
        return Err(NodeFileError::Special);
    }
    let mut first = vec![0; FIRST_BYTES];
    let first = rustix::io::pread(&file, &mut first[..], 0).ok().map(|length| first[..length].into());
    Ok(NodeFile::File(OpenFile {
        file: Arc::new(file),
        length: metadata.len(),
        modified,
        first_bytes: first,
    }))
}

/// A path without its `.` and `..`, which lead no further up than the first part.
fn cleaned(path: &str) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => cleaned.push(part),
            Component::ParentDir => _ = cleaned.pop(),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

fn entries(directory: &File) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            let kind = match entry.file_type() {
                // Some file systems do not tell.
                FileType::Unknown => {
                    let found = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                    found.map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
                }
                kind => kind,
            };
            entries.push(DirectoryEntry { name, is_directory: kind.is_dir() });
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

impl OpenFile {
    /// Its bytes, as many as it had when it was opened.
    pub fn read(&self) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + use<> {
        self.read_range(0..self.length)
    }

    /// Some of its bytes. They are read when somebody asks for more.
    pub fn read_range(&self, range: Range<u64>) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + use<> {
        let file = Arc::clone(&self.file);
        unfold(Some(range), move |range| {
            let file = Arc::clone(&file);
            async move {
                let Range { start, end } = range.filter(|range| !range.is_empty())?;
                let read = tokio::task::spawn_blocking(move || {
                    let mut buffer = vec![0; CHUNK.min(usize::try_from(end - start).unwrap_or(CHUNK))];
                    let length = rustix::io::pread(&*file, &mut buffer[..], start)?;
                    buffer.truncate(length);
                    Ok(buffer)
                });
                match read.await {
                    Ok(Ok(buffer)) if buffer.is_empty() => {
                        Some((Err(io::ErrorKind::UnexpectedEof.into()), None))
                    }
                    Ok(Ok(buffer)) => {
                        let start = start + buffer.len() as u64;
                        Some((Ok(buffer), Some(start..end)))
                    }
                    Ok(Err(error)) => Some((Err(error), None)),
                    Err(error) => Some((Err(io::Error::other(error)), None)),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use std::os::unix::fs::symlink;

    async fn shown(directory: &Path, path: &str) -> String {
        match open(directory, path) {
            Ok(NodeFile::File(file)) => {
                let pieces: Vec<_> = Box::pin(file.read()).collect().await;
                let bytes: Vec<u8> = pieces.into_iter().flat_map(Result::unwrap).collect();
                String::from_utf8(bytes).unwrap()
            }
            Ok(NodeFile::Directory(directory)) => {
                let name = |entry: DirectoryEntry| entry.name + if entry.is_directory { "/" } else { "" };
                directory.entries.into_iter().map(name).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn nothing_leads_out_of_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let logs = place.path().join("log");
        fs::create_dir_all(logs.join("pods/a")).unwrap();
        fs::create_dir(logs.join("containers")).unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        fs::write(logs.join("pods/a/0.log"), "text").unwrap();
        symlink(logs.join("pods/a/0.log"), logs.join("containers/a.log")).unwrap();
        symlink("../pods/a", logs.join("containers/a")).unwrap();
        symlink("../secret", logs.join("out")).unwrap();
        symlink(place.path(), logs.join("up")).unwrap();
        symlink("loop", logs.join("loop")).unwrap();
        symlink("/proc/self/environ", logs.join("environ")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            logs.join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (outside, missing) = ("path escapes from parent", "no such file or directory");
        for (path, expected) in [
            ("", "containers/ environ loop out pipe pods/ up"),
            ("/", "containers/ environ loop out pipe pods/ up"),
            ("pods/a/0.log", "text"),
            ("/pods//a/./0.log", "text"),
            ("containers/a.log", "text"),
            ("containers/a/0.log", "text"),
            ("containers/a/../../pods", "a/"),
            ("out", outside),
            ("up", outside),
            ("up/secret", outside),
            ("up/log/pods/a/0.log", "text"),
            ("environ", outside),
            ("../secret", missing),
            ("../../../../etc/passwd", missing),
            ("pods/../../secret", missing),
            ("..", "containers/ environ loop out pipe pods/ up"),
            ("pods/a/0.log/x", missing),
            ("a\0b", missing),
            ("pipe", "not a regular file"),
        ] {
            assert_eq!(shown(&logs, path).await, expected, "{path:?}");
        }
        assert!(shown(&logs, "loop").await.contains("symbolic link"));
    }
}
