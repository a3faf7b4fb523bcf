//! The folder in which plugins make themselves known.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;

use crablet_host::watch::{Watch, WatchError};
use tracing::debug;

/// How many folders below it are watched. Each takes one of the kernel's notifiers.
const MOST_FOLDERS: usize = 32;
/// How many sockets are attended to.
const MOST_SOCKETS: usize = 256;

/// The folder and those below it.
pub(super) struct Folder {
    path: PathBuf,
    watches: BTreeMap<PathBuf, Watch>,
}

/// What is in the folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) sockets: BTreeMap<PathBuf, Identity>,
    /// What is there instead of a socket, and why it is not accepted.
    pub(super) refused: BTreeMap<PathBuf, String>,
}

/// What tells one socket from another that took its place. Nobody writes to the file of a socket, so it was last
/// modified when it was made; an inode's number alone is soon given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

/// Why the folder cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error("cannot make {}: {source}", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Watch(WatchError),
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Folder {
        Folder { path, watches: BTreeMap::new() }
    }

    /// Looks at what is there, and listens from then on.
    pub(super) async fn look(mut self) -> (Folder, Result<Found, FolderError>) {
        let looked = tokio::task::spawn_blocking(move || {
            let found = self.look_now();
            (self, found)
        });
        match looked.await {
            Ok(looked) => looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is being shut down.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until something changed. Nothing is lost if this is given up.
    pub(super) async fn changed(&mut self) {
        let mut watches: Vec<_> = self
            .watches
            .iter_mut()
            .map(|(path, watch)| Box::pin(async move { watch.changed().await.map_err(|_| path.clone()) }))
            .collect();
        let any = poll_fn(|context| {
            for watch in &mut watches {
                if let Poll::Ready(changed) = watch.as_mut().poll(context) {
                    return Poll::Ready(changed);
                }
            }
            Poll::Pending
        });
        let changed = pin!(any).await;
        drop(watches);
        // A watch that broke is made anew by the next look.
        if let Err(broken) = changed {
            self.watches.remove(&broken);
        }
    }

    fn look_now(&mut self) -> Result<Found, FolderError> {
        if !self.path.is_dir() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(&self.path);
            made.map_err(|source| FolderError::Make { path: self.path.clone(), source })?;
        }
        let mut found = Found::default();
        let mut folders = vec![self.path.clone()];
        let mut seen = 0;
        while let Some(folder) = folders.get(seen).cloned() {
            seen += 1;
            // First, so that nothing happens between looking and listening.
            if !self.watches.contains_key(&folder) {
                match Watch::directory(&folder) {
                    Ok(watch) => drop(self.watches.insert(folder.clone(), watch)),
                    Err(error) if folder == self.path => return Err(FolderError::Watch(error)),
                    Err(error) => {
                        found.refuse(folder, &error.to_string());
                        continue;
                    }
                }
            }
            match found.read(&folder, &mut folders) {
                Err(source) if folder == self.path => {
                    return Err(FolderError::Read { path: folder, source });
                }
                // It went, or is somebody's own.
                Err(error) => debug!(path = %folder.display(), %error, "Error accessing path"),
                Ok(()) => {}
            }
        }
        self.watches.retain(|folder, _| folders.contains(folder));
        Ok(found)
    }
}

impl Found {
    /// Adds what is in one folder; the folders in it are to be looked at too.
    fn read(&mut self, folder: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            // This does not follow links. What went in between is not there.
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = metadata.file_type();
            if kind.is_dir() {
                match folders.len() < MOST_FOLDERS {
                    true => folders.push(path),
                    false => self.refuse(path, "there are too many folders to watch"),
                }
            } else if kind.is_socket() {
                match self.sockets.len() < MOST_SOCKETS {
                    true => drop(self.sockets.insert(path, Identity::of(&metadata))),
                    false => self.refuse(path, "there are too many sockets"),
                }
            } else if kind.is_symlink() {
                self.refuse(path, "it is a symbolic link, not a socket");
            } else {
                debug!(path = %path.display(), "Ignoring non socket file");
            }
        }
        Ok(())
    }

    fn refuse(&mut self, path: PathBuf, why: &str) {
        if self.refused.len() < MOST_SOCKETS {
            self.refused.insert(path, why.to_owned());
        }
    }
}

impl Identity {
    fn of(metadata: &std::fs::Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            made: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}
