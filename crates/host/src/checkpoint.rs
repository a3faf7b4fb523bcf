//! Small records that outlive the agent: what must survive a crash and nobody else remembers.

#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod until_reboot;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use crate::files::{self, ReadError, Sync, TEMPORARY_PREFIX, WriteError};
use crate::shared_sync::SharedSync;

#[cfg(any(test, feature = "simulated"))]
pub use simulated::{Operation, SimulatedCheckpoints};
pub use until_reboot::CheckpointsUntilReboot;

/// The longest name of a checkpoint, as of any file.
const LONGEST_NAME: usize = 255;

/// A store of checkpoints by name.
///
/// Each is saved or removed as a whole: a reader, also one after a crash, sees what was there before or after. Different
/// ones can be saved at the same time, and cost less then. Who changes one waits until the change before is over.
#[async_trait]
pub trait Checkpoints: Send + std::marker::Sync {
    /// All checkpoints. One that cannot be read does not keep the others from being loaded.
    async fn load_all(&self) -> Result<Loaded, CheckpointError>;
    /// Saves a checkpoint in place of the one of that name. It is on disk when this returns.
    async fn save(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError>;
    /// Saves a checkpoint that need not outlive a crash of the machine, only one of the agent: it costs no sync. After a
    /// power cut there may be this one, the one before, or one that nobody can read.
    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError>;
    /// Removes a checkpoint. It is gone from disk when this returns. Succeeds when there is none.
    async fn remove(&self, name: &str) -> Result<(), CheckpointError>;
}

/// What was found in a store.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Content by name.
    pub checkpoints: BTreeMap<String, Vec<u8>>,
    /// What could not be read.
    pub unreadable: Vec<ReadError>,
}

/// Why a checkpoint was not saved, removed or loaded.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The name cannot be one of a file.
    #[error("{name:?} cannot name a checkpoint")]
    Name { name: String },
    /// It is larger than one may be.
    #[error("the checkpoint {name} would be {size} bytes large, and no more than {limit} are allowed")]
    TooLarge {
        name: String,
        size: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// The directory could not be made or listed.
    #[error("cannot use the directory of checkpoints {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The thread that did the work died.
    #[error("the work on checkpoints was abandoned")]
    Abandoned,
}

/// Checkpoints as the files of a directory, which nobody else writes to.
#[derive(Debug, Clone)]
pub struct DirectoryCheckpoints(Arc<Store>);

#[derive(Debug)]
struct Store {
    directory: PathBuf,
    /// Its files, where others have theirs beside them.
    only: Option<&'static [&'static str]>,
    limit: usize,
    renames: SharedSync,
}

impl DirectoryCheckpoints {
    /// The checkpoints in a directory, which is made if need be, each at most `limit` bytes large. What a crash left
    /// half-written is deleted.
    pub fn open(directory: &Path, limit: usize) -> Result<DirectoryCheckpoints, CheckpointError> {
        let store =
            Store { directory: directory.to_owned(), only: None, limit, renames: SharedSync::default() };
        std::fs::create_dir_all(directory).map_err(|source| store.unusable(source))?;
        store.remove_half_written()?;
        Ok(DirectoryCheckpoints(Arc::new(store)))
    }

    /// The checkpoints in a directory that is there, in which others have their files too. What a crash left half-written,
    /// by whatever of this agent, is deleted as far as that can be.
    pub fn among_others(
        directory: &Path,
        names: &'static [&'static str],
        limit: usize,
    ) -> DirectoryCheckpoints {
        let renames = SharedSync::default();
        let store = Store { directory: directory.to_owned(), only: Some(names), limit, renames };
        let _ = store.remove_half_written();
        DirectoryCheckpoints(Arc::new(store))
    }

    /// Does something with files in another thread: a disk can take its time.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let store = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&store)).await.unwrap_or(Err(CheckpointError::Abandoned))
    }

    /// Does something to a file, and puts on disk that the directory changed.
    async fn change(
        &self,
        name: &str,
        failed: fn(PathBuf, io::Error) -> CheckpointError,
        work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(), CheckpointError> {
        let path = self.0.directory.join(name);
        let file = path.clone();
        self.blocking(move |_| work(&file).map_err(|source| failed(file, source))).await?;
        let sync = move |store: &Store| {
            files::sync_directory(&store.directory).map_err(|source| failed(path, source))
        };
        self.0.renames.sync(|| self.blocking(sync)).await
    }
}

#[async_trait]
impl Checkpoints for DirectoryCheckpoints {
    async fn load_all(&self) -> Result<Loaded, CheckpointError> {
        self.blocking(Store::load_all).await
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        checked(name, bytes.len(), self.0.limit)?;
        let bytes = bytes.to_owned();
        let replace = move |path: &Path| files::replace(path, &bytes, 0o600, Sync::Content).map(drop);
        self.change(name, not_written, replace).await
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        checked(name, bytes.len(), self.0.limit)?;
        let (bytes, path) = (bytes.to_owned(), self.0.directory.join(name));
        let replace = move |_: &Store| match files::replace(&path, &bytes, 0o600, Sync::Nothing) {
            Ok(_) => Ok(()),
            Err(source) => Err(not_written(path, source)),
        };
        self.blocking(replace).await
    }

    async fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        checked(name, 0, self.0.limit)?;
        let failed = |path, source| CheckpointError::Remove { path, source };
        let remove = |path: &Path| match std::fs::remove_file(path) {
            // It is synced all the same: whoever removed it may not have come so far.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        self.change(name, failed, remove).await
    }
}

impl Store {
    fn load_all(&self) -> Result<Loaded, CheckpointError> {
        let mut loaded = Loaded::default();
        for name in self.names()? {
            if name.starts_with('.') {
                continue;
            }
            match files::read_bounded(&self.directory.join(&name), self.limit) {
                Ok(bytes) => {
                    loaded.checkpoints.insert(name, bytes);
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => loaded.unreadable.push(error),
            }
        }
        Ok(loaded)
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        match self.only {
            Some(names) => Ok(names.iter().map(|name| (*name).to_owned()).collect()),
            None => self.all_names(),
        }
    }

    fn remove_half_written(&self) -> Result<(), CheckpointError> {
        for name in self.all_names()?.iter().filter(|name| name.starts_with(TEMPORARY_PREFIX)) {
            let path = self.directory.join(name);
            std::fs::remove_file(&path).map_err(|source| CheckpointError::Remove { path, source })?;
        }
        Ok(())
    }

    /// Those of everybody's files in the directory.
    fn all_names(&self) -> Result<Vec<String>, CheckpointError> {
        let entries = std::fs::read_dir(&self.directory).map_err(|source| self.unusable(source))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| self.unusable(source))?;
            // We gave no other names.
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn unusable(&self, source: io::Error) -> CheckpointError {
        CheckpointError::Directory { path: self.directory.clone(), source }
    }
}

fn not_written(path: PathBuf, source: io::Error) -> CheckpointError {
    CheckpointError::Write(WriteError { path, source })
}

/// Whether a name and a size will do.
fn checked(name: &str, size: usize, limit: usize) -> Result<(), CheckpointError> {
    let fits = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && !name.starts_with('.')
        && !name.contains(['/', '\0']);
    match fits {
        false => Err(CheckpointError::Name { name: name.into() }),
        true if size > limit => Err(CheckpointError::TooLarge { name: name.into(), size, limit }),
        true => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Fault;

    /// What every store does.
    async fn check(store: impl Checkpoints) {
        store.save("a", b"1").await.unwrap();
        store.save_unsynced("b", b"1").await.unwrap();
        store.save("b", b"").await.unwrap();
        store.save_unsynced("a", b"22").await.unwrap();
        let loaded = store.load_all().await.unwrap();
        let expected = [("a".to_owned(), b"22".to_vec()), ("b".to_owned(), Vec::new())];
        assert_eq!(loaded.checkpoints, BTreeMap::from(expected));
        assert!(loaded.unreadable.is_empty());
        store.remove("a").await.unwrap();
        store.remove("a").await.unwrap();
        assert_eq!(store.load_all().await.unwrap().checkpoints.len(), 1);
        for name in ["", ".", "..", ".hidden", "a/b", "a\0", &"a".repeat(256)] {
            assert!(matches!(store.save(name, b"").await, Err(CheckpointError::Name { .. })), "{name:?}");
            let unsynced = store.save_unsynced(name, b"").await;
            assert!(matches!(unsynced, Err(CheckpointError::Name { .. })), "{name:?}");
            assert!(matches!(store.remove(name).await, Err(CheckpointError::Name { .. })), "{name:?}");
        }
    }

    #[tokio::test]
    async fn a_directory_one_with_memory_and_a_simulated_disk_keep_checkpoints_alike() {
        let directory = tempfile::tempdir().unwrap();
        check(DirectoryCheckpoints::open(&directory.path().join("new/one"), 100).unwrap()).await;
        let (disk, memory) = (directory.path().join("disk"), tempfile::tempdir_in("/dev/shm").unwrap());
        let disk = DirectoryCheckpoints::open(&disk, 100).unwrap();
        check(CheckpointsUntilReboot::open(disk, memory.path()).unwrap().unwrap()).await;
        check(SimulatedCheckpoints::new()).await;
    }

    #[tokio::test]
    async fn those_among_others_touch_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["another", ".half", ".tmp-1-0"] {
            std::fs::write(directory.path().join(name), "x").unwrap();
        }
        let store = DirectoryCheckpoints::among_others(directory.path(), &["a", "b"], 100);
        assert!(store.load_all().await.unwrap().checkpoints.is_empty());
        store.save("a", b"1").await.unwrap();
        let loaded = store.load_all().await.unwrap();
        assert_eq!(loaded.checkpoints, BTreeMap::from([("a".to_owned(), b"1".to_vec())]));
        let left = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: std::collections::BTreeSet<_> = left.collect();
        assert_eq!(
            left,
            ["another", ".half", "a"].map(Into::into).into(),
            "what was left half-written is gone"
        );
    }

    #[tokio::test]
    async fn what_a_crash_left_half_written_is_not_loaded_and_deleted_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".tmp-1-0"), "half").unwrap();
        std::fs::write(directory.path().join("whole"), "x").unwrap();
        let store = DirectoryCheckpoints::open(directory.path(), 100).unwrap();
        assert_eq!(store.load_all().await.unwrap().checkpoints.into_keys().collect::<Vec<_>>(), ["whole"]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn one_that_cannot_be_read_does_not_hide_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryCheckpoints::open(directory.path(), 3).unwrap();
        store.save("good", b"123").await.unwrap();
        std::fs::write(directory.path().join("large"), "1234").unwrap();
        std::fs::create_dir(directory.path().join("odd")).unwrap();
        let loaded = store.load_all().await.unwrap();
        assert_eq!(loaded.checkpoints.into_keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(loaded.unreadable.len(), 2);
        let error = store.save("large", b"1234").await.unwrap_err();
        let expected = "the checkpoint large would be 4 bytes large, and no more than 3 are allowed";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn a_full_disk_keeps_what_it_has() {
        let store = SimulatedCheckpoints::new();
        store.save("a", b"12").await.unwrap();
        store.set_capacity(3);
        let error = store.save("a", b"34").await.unwrap_err();
        let CheckpointError::Write(WriteError { source, .. }) = error else { panic!("{error}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(store.content()["a"], b"12");
        store.remove("a").await.unwrap();
        store.save("a", b"34").await.unwrap();
    }

    #[tokio::test]
    async fn a_crash_leaves_the_old_checkpoint_or_the_new_one() {
        for (fault, expected) in [(Fault::CrashBeforeEffect, b"old"), (Fault::CrashAfterEffect, b"new")] {
            let store = SimulatedCheckpoints::new();
            store.save("a", b"old").await.unwrap();
            store.plan(Some(Operation::Save), 1, fault);
            tokio::select! {
                biased;
                _ = store.save("a", b"new") => panic!("returned"),
                () = store.crashed() => {}
            }
            store.restart();
            assert_eq!(store.load_all().await.unwrap().checkpoints["a"], expected);
        }
    }
}
