//! Checkpoints of which those that need not outlive a crash of the machine are in memory: to keep them costs a tenth,
//! wears no disk, and waits for none.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{CheckpointError, Checkpoints, DirectoryCheckpoints, Loaded, checked, not_written};
use crate::files::{self, Sync, TEMPORARY_PREFIX};

/// What a file system in memory says that it is.
const TMPFS: i64 = 0x0102_1994;
/// The file in both directories that says that they belong together. Nobody else's checkpoint has such a name.
const PAIR: &str = ".pair";
/// Where the kernel has names that nobody else has.
const NEW_NAME: &str = "/proc/sys/kernel/random/uuid";
const LONGEST_PAIR: usize = 64;

/// Checkpoints in a directory on disk, and in one in memory. What is in memory is the newer.
#[derive(Debug, Clone)]
pub struct CheckpointsUntilReboot {
    disk: DirectoryCheckpoints,
    memory: PathBuf,
}

impl CheckpointsUntilReboot {
    /// Those in a directory on disk, with a second one in memory, which is made if need be. What is in that one counts if
    /// it was left by who used the one on disk last. There is none where that path does not lead into memory.
    pub fn open(disk: DirectoryCheckpoints, memory: &Path) -> io::Result<Option<CheckpointsUntilReboot>> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(memory)?;
        if rustix::fs::statfs(memory)?.f_type != TMPFS {
            return Ok(None);
        }
        let places = [disk.0.directory.join(PAIR), memory.join(PAIR)];
        let [on_disk, in_memory] = places.each_ref().map(|path| files::read_bounded(path, LONGEST_PAIR).ok());
        if on_disk.is_none() || on_disk != in_memory {
            remove_files(memory, |_| true)?;
            let name = std::fs::read(NEW_NAME)?;
            for path in &places {
                files::replace(path, &name, 0o600, Sync::Nothing)?;
            }
        }
        remove_files(memory, |name| name.starts_with(TEMPORARY_PREFIX))?;
        Ok(Some(CheckpointsUntilReboot { disk, memory: memory.to_owned() }))
    }

    /// Puts one into memory. Nobody is waited for: there is no disk.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        let path = self.memory.join(name);
        match files::replace(&path, bytes, 0o600, Sync::InMemory) {
            Ok(_) => Ok(()),
            Err(source) => Err(not_written(path, source)),
        }
    }

    fn forget(&self, name: &str) -> Result<(), CheckpointError> {
        let path = self.memory.join(name);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(CheckpointError::Remove { path, source })
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Checkpoints for CheckpointsUntilReboot {
    async fn load_all(&self) -> Result<Loaded, CheckpointError> {
        let mut loaded = self.disk.load_all().await?;
        let newer = DirectoryCheckpoints::open(&self.memory, self.disk.0.limit)?.load_all().await?;
        loaded.checkpoints.extend(newer.checkpoints);
        loaded.unreadable.extend(newer.unreadable);
        Ok(loaded)
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        checked(name, bytes.len(), self.disk.0.limit)?;
        // What is in memory must not be older than what is on disk, whenever the agent ends.
        if self.memory.join(name).exists() {
            self.put(name, bytes)?;
        }
        self.disk.save(name, bytes).await?;
        self.forget(name)
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        checked(name, bytes.len(), self.disk.0.limit)?;
        match self.put(name, bytes) {
            // The disk may have more room.
            Err(_) => self.save(name, bytes).await,
            Ok(()) => Ok(()),
        }
    }

    async fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        self.disk.remove(name).await?;
        self.forget(name)
    }
}

/// Removes the files of a directory whose names are such.
fn remove_files(directory: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if is_meant(&entry.file_name().to_string_lossy()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in memory, on every machine that tests run on.
    const MEMORY: &str = "/dev/shm";

    struct Machine {
        disk: tempfile::TempDir,
        memory: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            Machine { disk: tempfile::tempdir().unwrap(), memory: tempfile::tempdir_in(MEMORY).unwrap() }
        }

        fn on_disk(&self) -> DirectoryCheckpoints {
            DirectoryCheckpoints::open(self.disk.path(), 100).unwrap()
        }

        fn open(&self) -> CheckpointsUntilReboot {
            CheckpointsUntilReboot::open(self.on_disk(), &self.memory.path().join("pods")).unwrap().unwrap()
        }

        async fn load(&self) -> Vec<(String, Vec<u8>)> {
            self.open().load_all().await.unwrap().checkpoints.into_iter().collect()
        }
    }

    fn of(name: &str, text: &str) -> (String, Vec<u8>) {
        (name.to_owned(), text.as_bytes().to_owned())
    }

    #[tokio::test]
    async fn what_is_not_synced_outlives_the_agent_and_not_the_machine() {
        let machine = Machine::new();
        let store = machine.open();
        store.save("a", b"synced").await.unwrap();
        store.save_unsynced("a", b"newer").await.unwrap();
        store.save_unsynced("b", b"only in memory").await.unwrap();
        assert_eq!(machine.load().await, [of("a", "newer"), of("b", "only in memory")]);
        std::fs::remove_dir_all(machine.memory.path().join("pods")).unwrap();
        assert_eq!(machine.load().await, [of("a", "synced")]);
    }

    #[tokio::test]
    async fn what_is_synced_afterwards_is_on_disk_and_nowhere_else() {
        let machine = Machine::new();
        let store = machine.open();
        store.save_unsynced("a", b"1").await.unwrap();
        store.save("a", b"2").await.unwrap();
        assert_eq!(machine.load().await, [of("a", "2")]);
        assert_eq!(machine.on_disk().load_all().await.unwrap().checkpoints["a"], b"2");
        assert_eq!(
            std::fs::read_dir(machine.memory.path().join("pods")).unwrap().count(),
            1,
            "the pair's name"
        );
        store.save_unsynced("a", b"3").await.unwrap();
        store.remove("a").await.unwrap();
        assert_eq!(machine.load().await, []);
    }

    #[tokio::test]
    async fn memory_of_another_disk_and_of_an_older_time_does_not_count() {
        let (machine, other) = (Machine::new(), Machine::new());
        machine.open().save_unsynced("a", b"of the one").await.unwrap();
        // An agent that has another memory uses the disk meanwhile.
        let elsewhere =
            CheckpointsUntilReboot::open(machine.on_disk(), other.memory.path()).unwrap().unwrap();
        assert_eq!(elsewhere.load_all().await.unwrap().checkpoints.len(), 0);
        elsewhere.save("a", b"of the other").await.unwrap();
        assert_eq!(machine.load().await, [of("a", "of the other")]);
    }

    #[tokio::test]
    async fn an_agent_that_dies_between_memory_and_disk_leaves_the_newer_one() {
        let machine = Machine::new();
        let store = machine.open();
        store.save("a", b"old").await.unwrap();
        // As far as a save comes that is cut off before the disk.
        store.put("a", b"new").unwrap();
        std::fs::write(store.memory.join(".tmp-1-0"), "half").unwrap();
        assert_eq!(machine.load().await, [of("a", "new")]);
    }

    #[test]
    fn another_file_system_is_not_taken_for_memory() {
        let elsewhere = Path::new("/proc");
        assert!(CheckpointsUntilReboot::open(Machine::new().on_disk(), elsewhere).unwrap().is_none());
    }
}
