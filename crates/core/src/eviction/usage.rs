//! What pods use, as far as it matters for who has to go.

use std::collections::BTreeMap;

use crablet_api::Text;

/// What something takes on a file system, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsUsage {
    pub bytes: Option<u64>,
    pub inodes: Option<u64>,
}

/// What a container uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerUsage {
    pub name: Text,
    /// Bytes of memory that cannot be had back from it.
    pub memory: Option<u64>,
    /// What it wrote to its own file system.
    pub rootfs: FsUsage,
    pub logs: FsUsage,
}

/// What a pod uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodUsage {
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    pub containers: Vec<ContainerUsage>,
    /// Its volumes by name.
    pub volumes: Vec<(Text, FsUsage)>,
    /// Bytes of all that counts as its use of the node's own disk.
    pub ephemeral_storage: Option<u64>,
}

/// What pods use, by UID. Of who is not there nothing is known.
pub type Usages = BTreeMap<String, PodUsage>;
