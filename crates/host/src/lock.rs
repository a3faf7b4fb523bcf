//! Files that say "this is mine" for as long as the process lives.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use rustix::fs::FlockOperation;

/// A lock on a file. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is held by {}", path.display(), holder_in_words(holder))]
    Held {
        /// The file.
        path: PathBuf,
        /// What the holder wrote in it: its process id.
        holder: String,
    },
    /// The file could not be opened or locked.
    #[error("cannot lock {}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Lock {
    /// Takes the lock if nobody has it, and writes our process id into the file for whoever comes next.
    pub fn try_acquire(path: &Path) -> Result<Lock, LockError> {
        let failed = |source: io::Error| LockError::Failed { path: path.to_owned(), source };
        let mut file = open(path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Lock::signed(path, file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(LockError::Held { path: path.to_owned(), holder: holder(&mut file) })
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Takes the lock, waiting until whoever has it lets go.
    pub async fn acquire(path: &Path, waiting: impl FnOnce(&str)) -> Result<Lock, LockError> {
        let failed = |source: io::Error| LockError::Failed { path: path.to_owned(), source };
        let mut waiting = Some(waiting);
        loop {
            let mut file = open(path).map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if let Some(waiting) = waiting.take() {
                        waiting(&holder(&mut file));
                    }
                    file = locked(file).await.map_err(failed)?;
                }
                Err(error) => return Err(failed(error.into())),
            }
            // Meanwhile it may have been replaced by another, which is the one that counts.
            if is_at(path, &file) {
                return Lock::signed(path, file);
            }
        }
    }

    /// The lock on a file that is locked, with our process id in it.
    fn signed(path: &Path, mut file: File) -> Result<Lock, LockError> {
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        match write(&mut file) {
            Ok(()) => Ok(Lock { path: path.to_owned(), _file: file }),
            Err(source) => Err(LockError::Failed { path: path.to_owned(), source }),
        }
    }

    /// Completes when somebody else opens the file or takes it away: they want the lock.
    pub async fn contended(&self) -> io::Result<()> {
        Watch::start(&self.path, WatchMask::OPEN | WatchMask::DELETE_SELF)?.event().await
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// What the holder wrote.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(32).read_to_string(&mut text) {
        Ok(_) => text.trim().to_owned(),
        Err(_) => String::new(),
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(there), Ok(ours)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// Waits for the lock in a thread of its own: nothing but a call that blocks is told of its release for sure. When
/// nobody waits for the thread any more, it lets go of the lock as soon as it has it, or ends with the process.
async fn locked(file: File) -> io::Result<File> {
    let (done, result) = tokio::sync::oneshot::channel();
    let wait = move || {
        let locked = loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                locked => break locked,
            }
        };
        let _ = done.send(locked.map(|()| file));
    };
    std::thread::Builder::new().name("file-lock".into()).spawn(wait)?;
    match result.await {
        Ok(locked) => Ok(locked?),
        Err(_) => Err(io::Error::other("the thread that waits for it died")),
    }
}

/// An inotify watch on one file.
struct Watch {
    events: EventStream<[u8; 4096]>,
}

impl Watch {
    fn start(path: &Path, mask: WatchMask) -> io::Result<Watch> {
        let inotify = Inotify::init()?;
        inotify.watches().add(path, mask)?;
        Ok(Watch { events: inotify.into_event_stream([0; 4096])? })
    }

    /// Waits for the first event.
    async fn event(mut self) -> io::Result<()> {
        match self.events.next().await {
            Some(event) => event.map(|_| ()),
            None => Err(io::Error::other("the kernel's notifications ended")),
        }
    }
}

fn holder_in_words(holder: &str) -> String {
    match holder {
        "" => "another process".into(),
        pid => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_is_held_by_one_and_names_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_acquire(&path).unwrap();
        let expected = format!("{} is held by process {}", path.display(), std::process::id());
        assert_eq!(Lock::try_acquire(&path).unwrap_err().to_string(), expected);
        drop(lock);
        Lock::try_acquire(&path).unwrap();
    }

    #[test]
    fn a_lock_in_a_missing_directory_is_an_error() {
        let error = Lock::try_acquire(Path::new("/no/such/lock")).unwrap_err();
        assert_eq!(error.to_string(), "cannot lock /no/such/lock");
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_lock_when_it_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_acquire(&path).unwrap();
        let (waiter, holder) = waiting(&path).await;
        assert_eq!(holder, std::process::id().to_string());
        drop(lock);
        tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_lock_file_that_was_replaced_meanwhile_is_taken_where_it_is_now() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_acquire(&path).unwrap();
        let (waiter, _) = waiting(&path).await;
        std::fs::remove_file(&path).unwrap();
        drop(lock);
        let _lock = tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
        assert!(matches!(Lock::try_acquire(&path), Err(LockError::Held { .. })));
    }

    #[tokio::test]
    async fn whoever_waits_leaves_the_file_alone_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_acquire(&path).unwrap();
        let (waiter, _) = waiting(&path).await;
        let mut touched = Box::pin(Watch::start(&path, WatchMask::OPEN | WatchMask::CLOSE).unwrap().event());
        // It stands still: not one round through the tasks that are ready brings an event.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(futures_pending(&mut touched).await);
        }
        drop(lock);
        tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_holder_learns_that_somebody_wants_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_acquire(&path).unwrap();
        let mut contended = Box::pin(lock.contended());
        assert!(futures_pending(&mut contended).await);
        Lock::try_acquire(&path).unwrap_err();
        tokio::time::timeout(Duration::from_secs(10), contended).await.unwrap().unwrap();
    }

    /// Somebody who waits for the lock, and whom he was told has it.
    async fn waiting(path: &Path) -> (tokio::task::JoinHandle<Result<Lock, LockError>>, String) {
        let path = path.to_owned();
        let (told, holder) = tokio::sync::oneshot::channel();
        let waiter = tokio::spawn(async move {
            Lock::acquire(&path, |holder| told.send(holder.to_owned()).unwrap()).await
        });
        (waiter, holder.await.unwrap())
    }

    /// Polls once: the future has set itself up and is not done.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
