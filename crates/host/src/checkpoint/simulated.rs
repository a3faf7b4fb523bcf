//! Checkpoints in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use super::{CheckpointError, Checkpoints, Loaded, checked};
use crate::files::WriteError;
use crate::simulation::{Fault, Simulated};

/// A kind of call of [`Checkpoints`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    LoadAll,
    Save,
    SaveUnsynced,
    Remove,
}

/// Checkpoints in memory, for tests of those who use them. They fail when told to, fill up, and outlive a crash. Clones
/// are the same disk, so that an agent that starts again finds what the one before it saved.
#[derive(Debug, Clone)]
pub struct SimulatedCheckpoints(Simulated<Disk, Operation>);

#[derive(Debug)]
struct Disk {
    checkpoints: BTreeMap<String, Vec<u8>>,
    /// Those that need not outlive a crash of the machine, which are newer.
    memory: BTreeMap<String, Vec<u8>>,
    capacity: usize,
    slow: BTreeMap<String, Duration>,
}

impl Disk {
    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let newer = self.memory.iter().map(|(name, bytes)| (name.clone(), bytes.clone()));
        self.checkpoints.clone().into_iter().chain(newer).collect()
    }
}

impl SimulatedCheckpoints {
    /// An empty disk that never gets full.
    pub fn new() -> SimulatedCheckpoints {
        SimulatedCheckpoints(Simulated::new(Disk {
            checkpoints: BTreeMap::new(),
            memory: BTreeMap::new(),
            capacity: usize::MAX,
            slow: BTreeMap::new(),
        }))
    }

    /// Lets each save and each removal under a name take so long.
    pub fn slow_down(&self, name: &str, by: Duration) {
        self.0.state(|disk| disk.slow.insert(name.to_owned(), by));
    }

    async fn put(&self, operation: Operation, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        checked(name, bytes.len(), usize::MAX)?;
        self.take_time(name).await;
        let failed = |source: io::Error| {
            CheckpointError::Write(WriteError { path: Path::new("/checkpoints").join(name), source })
        };
        let effect = |disk: &mut Disk| {
            // As on a real disk, old and new are there together for a moment.
            let used: usize = disk.checkpoints.values().chain(disk.memory.values()).map(Vec::len).sum();
            if used.saturating_add(bytes.len()) > disk.capacity {
                return Err(failed(io::ErrorKind::StorageFull.into()));
            }
            match operation {
                Operation::SaveUnsynced => disk.memory.insert(name.into(), bytes.into()),
                Operation::Save | Operation::Remove | Operation::LoadAll => {
                    disk.memory.remove(name);
                    disk.checkpoints.insert(name.into(), bytes.into())
                }
            };
            Ok(())
        };
        self.0.call(operation, failed, effect).await
    }

    async fn take_time(&self, name: &str) {
        if let Some(time) = self.0.state(|disk| disk.slow.get(name).copied()) {
            tokio::time::sleep(time).await;
        }
    }

    /// Says how many bytes the disk holds. What is more already stays, and no save succeeds that would not fit.
    pub fn set_capacity(&self, bytes: usize) {
        self.0.state(|disk| disk.capacity = bytes);
    }

    /// Lets the nth call from now go wrong, counted from 1; of one kind, or of all.
    pub fn plan(&self, operation: Option<Operation>, nth: usize, fault: Fault) {
        self.0.plan(operation, nth, fault);
    }

    /// Completes when a planned crash happens.
    pub async fn crashed(&self) {
        self.0.crashed().await;
    }

    /// Lets calls return again after a crash.
    pub fn restart(&self) {
        self.0.restart();
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Operation> {
        self.0.calls()
    }

    /// The machine has begun anew: what need not outlive that is gone.
    pub fn reboot(&self) {
        self.0.state(|disk| disk.memory.clear());
    }

    /// What is on the disk.
    pub fn content(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.state(|disk| disk.content())
    }
}

impl Default for SimulatedCheckpoints {
    fn default() -> Self {
        SimulatedCheckpoints::new()
    }
}

#[async_trait]
impl Checkpoints for SimulatedCheckpoints {
    async fn load_all(&self) -> Result<Loaded, CheckpointError> {
        let failed = |source| CheckpointError::Directory { path: "/checkpoints".into(), source };
        let effect = |disk: &mut Disk| Ok(Loaded { checkpoints: disk.content(), unreadable: Vec::new() });
        self.0.call(Operation::LoadAll, failed, effect).await
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.put(Operation::Save, name, bytes).await
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.put(Operation::SaveUnsynced, name, bytes).await
    }

    async fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        checked(name, 0, usize::MAX)?;
        self.take_time(name).await;
        let failed = |source| CheckpointError::Remove { path: Path::new("/checkpoints").join(name), source };
        let effect = |disk: &mut Disk| {
            disk.checkpoints.remove(name);
            disk.memory.remove(name);
            Ok(())
        };
        self.0.call(Operation::Remove, failed, effect).await
    }
}
