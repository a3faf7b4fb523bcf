//! Reading files that others wrote, and writing such that no reader and no crash ever sees a half of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};

/// What the names of files that are not yet complete begin with. Whoever lists a directory that is written to with
/// [`write_atomically`] passes them by; what a crash left of them can be deleted.
pub const TEMPORARY_PREFIX: &str = ".tmp-";

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not a file with content.
    #[error("{} is {kind}, not a regular file", path.display())]
    NotRegular {
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It is larger than allowed.
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge {
        path: PathBuf,
        /// The most that would be read.
        limit: usize,
    },
    /// It could not be opened or read.
    #[error("cannot read {}", path.display())]
    Failed {
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ReadError {
    pub fn path(&self) -> &Path {
        match self {
            ReadError::NotRegular { path, .. }
            | ReadError::TooLarge { path, .. }
            | ReadError::Failed { path, .. } => path,
        }
    }

    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        match self {
            ReadError::Failed { source, .. } => source.kind() == io::ErrorKind::NotFound,
            ReadError::NotRegular { .. } | ReadError::TooLarge { .. } => false,
        }
    }
}

/// Writes a file such that at any time, also after a crash of the machine, it has its old content or all of the new. It
/// is on disk when this returns. A symbolic link is replaced, not followed.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
    let written = replace(path, bytes, mode, Sync::Content).and_then(sync_directory);
    written.map_err(|source| WriteError { path: path.to_owned(), source })
}

/// What of a file is on disk before it takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Content,
    /// Whatever the kernel has put there: a crash of the machine may leave the file empty.
    Nothing,
    /// There is no disk: the file system is in memory.
    InMemory,
}

/// The same, except that a crash of the machine may bring the old content back until the directory is synced, which is
/// returned.
pub(crate) fn replace<'a>(path: &'a Path, bytes: &[u8], mode: u32, sync: Sync) -> io::Result<&'a Path> {
    let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let (temporary, file) = create_temporary(directory)?;
    let placed = fill(file, bytes, mode, sync).and_then(|()| place(&temporary, path, sync));
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&temporary);
    }
    placed.map(|()| directory)
}

/// Puts a new file in place of the one at a path, if there is one.
fn place(new: &Path, path: &Path, sync: Sync) -> io::Result<()> {
    // Some file systems (ext4) write a file to the disk at once when it replaces another, and not when two are exchanged.
    if let Sync::Nothing = sync
        && rustix::fs::renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE).is_ok()
    {
        return std::fs::remove_file(new);
    }
    std::fs::rename(new, path)
}

/// Puts on disk what was renamed or removed in a directory.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// What a new file allows: no umask takes that from its owner.
const OWNERS: u32 = 0o600;

/// A new file with a name of its own.
fn create_temporary(directory: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static PROCESS: LazyLock<u32> = LazyLock::new(std::process::id);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{TEMPORARY_PREFIX}{}-{number}", *PROCESS));
        match OpenOptions::new().write(true).create_new(true).mode(OWNERS).open(&path) {
            Ok(file) => return Ok((path, file)),
            // Left by a process that had our number before us.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn fill(mut file: File, bytes: &[u8], mode: u32, sync: Sync) -> io::Result<()> {
    file.write_all(bytes)?;
    if mode != OWNERS {
        // Not on opening, where the process's umask would take from it.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    match sync {
        Sync::Content => file.sync_all(),
        Sync::Nothing | Sync::InMemory => Ok(()),
    }
}

/// Reads a regular file of at most `limit` bytes; one that a symbolic link leads to is fine. It never waits for a
/// writer at the other end of a pipe, and never opens a device, which could do something.
pub fn read_bounded(path: &Path, limit: usize) -> Result<Vec<u8>, ReadError> {
    let failed = |source: io::Error| ReadError::Failed { path: path.to_owned(), source };
    // This opens the place and not what is there. The second time, what was looked at is opened, not what a rename may
    // have put there since.
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let place = place.map_err(|error| failed(error.into()))?;
    let status = rustix::fs::fstat(&place).map_err(|error| failed(error.into()))?;
    if let Some(kind) = irregular(FileType::from_raw_mode(status.st_mode)) {
        return Err(ReadError::NotRegular { path: path.to_owned(), kind });
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells whether there is more.
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() > limit {
        true => Err(ReadError::TooLarge { path: path.to_owned(), limit }),
        false => Ok(bytes),
    }
}

/// Opens a regular file where others may have put anything: no symbolic link is followed, and nobody is waited for at
/// the other end of a pipe.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", path.display())))
        }
    }
}

/// Whether what is read is this and nothing more. No more is read than it takes to tell, however much there is.
pub fn is_exactly(mut reader: impl Read, expected: &[u8]) -> io::Result<bool> {
    let (mut buffer, mut rest) = ([0; 4096], expected);
    loop {
        let read = match reader.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) => return Ok(rest.is_empty()),
            read => read?,
        };
        rest = match rest.strip_prefix(&buffer[..read]) {
            Some(rest) => rest,
            None => return Ok(false),
        };
    }
}

/// What something other than a regular file is.
fn irregular(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Unknown => Some("something unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_written_and_replaced_with_its_mode_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write_atomically(&path, b"one", 0o600).unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"one"[..], 0o600));
        write_atomically(&path, b"", 0o666).unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b""[..], 0o666));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_reader_sees_the_old_content_or_the_new_and_nothing_between() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let contents = [vec![b'a'; 100_000], vec![b'b'; 50_000]];
        write_atomically(&path, &contents[0], 0o600).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..50 {
                    write_atomically(&path, &contents[round % 2], 0o600).unwrap();
                }
            });
            while !writer.is_finished() {
                let read = read_bounded(&path, 1 << 20).unwrap();
                assert!(contents.contains(&read), "{}", read.len());
            }
        });
    }

    #[test]
    fn a_write_that_fails_keeps_what_was_there_and_cleans_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        let error = write_atomically(&path, b"x", 0o600).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write {}", path.display()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_atomically(&directory.path().join("no/such"), b"x", 0o600).is_err());
        assert!(write_atomically(Path::new("/"), b"x", 0o600).is_err());
    }

    #[test]
    fn a_file_as_large_as_allowed_is_read_and_a_larger_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        let error = read_bounded(&path, 4).unwrap_err();
        assert_eq!(error.to_string(), format!("{} is larger than 4 bytes", path.display()));
        assert_eq!(read_bounded(&path, usize::MAX).unwrap(), b"12345");
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (pipe.as_path(), "a pipe"),
            (&socket, "a socket"),
            (directory.path(), "a directory"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let error = read_bounded(path, 10).unwrap_err();
            assert_eq!(error.to_string(), format!("{} is {kind}, not a regular file", path.display()));
            assert!(!error.is_not_found());
        }
    }

    #[test]
    fn no_more_is_compared_than_it_takes_to_tell() {
        struct Counting<R>(R, usize);
        impl<R: Read> Read for Counting<R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let read = self.0.read(buffer)?;
                self.1 += read;
                Ok(read)
            }
        }
        let expected = vec![b'x'; 10_000];
        let check = |content: &mut dyn Read, same: bool, most: usize| {
            let mut counting = Counting(content, 0);
            assert_eq!(is_exactly(&mut counting, &expected).unwrap(), same);
            assert!(counting.1 <= most, "{} bytes were read", counting.1);
        };
        check(&mut &expected[..], true, 10_000);
        check(&mut &expected[..9_999], false, 9_999);
        check(&mut io::empty(), false, 0);
        check(&mut io::repeat(b'x'), false, 10_000 + 4096);
        check(&mut io::repeat(b'y'), false, 4096);
        assert!(is_exactly(io::empty(), b"").unwrap());
    }

    #[test]
    fn what_others_put_in_the_place_of_a_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (directory.path().join("file"), directory.path().join("link"), directory.path().join("pipe"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        assert!(open_regular(&file, OpenOptions::new().read(true)).is_ok());
        for path in [&link, &pipe] {
            assert!(open_regular(path, OpenOptions::new().read(true)).is_err(), "{}", path.display());
            assert!(open_regular(path, OpenOptions::new().read(true).write(true).create(true)).is_err());
        }
    }

    #[test]
    fn symbolic_links_are_followed_and_broken_ones_are_not_found() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "x").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(read_bounded(&link, 10).unwrap(), b"x");
        std::fs::remove_file(directory.path().join("file")).unwrap();
        assert!(read_bounded(&link, 10).unwrap_err().is_not_found());
    }
}
