//! What is left of what a machine can run short of: memory, room on disks, process IDs. Behind the trait [`Signals`].
//!
//! A look costs a few small files. Where the kernel can tell by itself that memory is short (cgroup v1), it is asked to
//! ([`Signals::watch_memory`]).

mod kernel;
#[cfg(any(test, feature = "simulated"))]
mod simulated;

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;

use crate::machine::Storage;

pub use kernel::KernelSignals;
#[cfg(any(test, feature = "simulated"))]
pub use simulated::SimulatedSignals;

/// What can be seen of a machine that may run short of something.
#[async_trait]
pub trait Signals: Send + Sync {
    /// What is left of memory and process IDs. What could not be read is not there. It waits for no disk.
    fn read(&self) -> Readings;

    /// What is left on disks. What could not be read is not there, and neither is a disk that does not answer in time.
    async fn read_disks(&self, places: &Places) -> DiskReadings;

    /// Which file systems the agent's files, images, and what containers write are on, if all of them answer in time.
    async fn file_systems(&self, places: &Places) -> Option<FileSystems>;

    /// Has the kernel tell when so many bytes of memory are used, or no longer are. Nothing where it cannot.
    fn watch_memory(&self, whose: MemoryOf, usage: u64) -> io::Result<Option<Box<dyn Alarm>>>;
}

/// Something that the kernel watches. It does so until this is dropped.
#[async_trait]
pub trait Alarm: Send + Sync {
    /// Completes when it happened since the last time.
    async fn rings(&mut self);
}

/// Where a runtime keeps things, as far as it told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    pub images: Option<PathBuf>,
    /// What containers write.
    pub containers: Option<PathBuf>,
}

/// Which file systems things are on: the same text for the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystems {
    /// The agent's files.
    pub node: String,
    pub images: String,
    pub containers: String,
}

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryOf {
    Machine,
    /// All pods together.
    Pods,
}

/// How much memory there is, and how much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReading {
    pub capacity: u64,
    /// As the kernel counts it: with what it could take back at any time.
    pub usage: u64,
    /// What of that it could not.
    pub working_set: u64,
}

impl MemoryReading {
    pub fn available(&self) -> u64 {
        self.capacity.saturating_sub(self.working_set)
    }
}

/// How many processes and threads there may be, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessReading {
    pub most: u64,
    pub running: u64,
}

/// What was seen of memory and process IDs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    pub memory: Option<MemoryReading>,
    /// The memory of all pods, where it is limited.
    pub memory_of_pods: Option<MemoryReading>,
    pub processes: Option<ProcessReading>,
}

/// What was seen of disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskReadings {
    /// Where the agent keeps its files.
    pub node_fs: Option<Storage>,
    pub image_fs: Option<Storage>,
    pub container_fs: Option<Storage>,
}
