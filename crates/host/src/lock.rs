//! Files that say "this is mine" for as long as the process lives.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
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
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let read = (&mut file).take(32).read_to_string(&mut holder);
                let holder = if read.is_ok() { holder.trim().to_owned() } else { String::new() };
                return Err(LockError::Held { path: path.to_owned(), holder });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(Lock { path: path.to_owned(), _file: file })
    }

    /// Takes the lock, waiting until whoever has it lets go.
    pub async fn acquire(path: &Path, waiting: impl FnOnce(&str)) -> Result<Lock, LockError> {
        let mut waiting = Some(waiting);
        loop {
            // Watched before it is tried, so that a release in between is not missed.
            let released = Watch::start(path, WatchMask::CLOSE | WatchMask::DELETE_SELF);
            match (Lock::try_acquire(path), released) {
                (Err(LockError::Held { holder, .. }), Ok(released)) => {
                    if let Some(waiting) = waiting.take() {
                        waiting(&holder);
                    }
                    released
                        .event()
                        .await
                        .map_err(|source| LockError::Failed { path: path.to_owned(), source })?;
                }
                (Err(LockError::Held { .. }), Err(source)) => {
                    return Err(LockError::Failed { path: path.to_owned(), source });
                }
                (result, _) => return result,
            }
        }
    }

    /// Completes when somebody else opens the file or takes it away: they want the lock.
    pub async fn contended(&self) -> io::Result<()> {
        Watch::start(&self.path, WatchMask::OPEN | WatchMask::DELETE_SELF)?.event().await
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
        let (told, holder) = tokio::sync::oneshot::channel();
        let waiter = tokio::spawn(async move {
            Lock::acquire(&path, |holder| told.send(holder.to_owned()).unwrap()).await
        });
        assert_eq!(holder.await.unwrap(), std::process::id().to_string());
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

    /// Polls once: the future has set itself up and is not done.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
