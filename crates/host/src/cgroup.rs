//! Control groups: where the kernel counts and limits what a pod uses.
//!
//! The agent has a tree of its own, `kubepods`, with a cgroup for each pod below the level of its QoS class. The
//! container runtime makes the containers' cgroups below the pod's.
//!
//! - [`Cgroups`] is what the agent asks for. [`HostCgroups`] asks the kernel, and systemd where that makes cgroups;
//!   [`OnlyOthers`] leaves out pods; `SimulatedCgroups` keeps everything in memory and fails when told to.
//! - [`Layout`] names cgroups, in the form of the driver. Names are `core`'s too, so they have a crate of their own.
//! - [`Limits`] says what a cgroup may use, in words that fit both versions.
//! - [`Hierarchy`] is what is mounted: a tree for each controller (v1) or one for all (v2).

mod control;
mod error;
mod hierarchy;
mod host;
mod huge_pages;
mod limits;
mod only_others;
mod processes;
#[cfg(any(test, feature = "simulated"))]
mod simulated;
mod systemd;
mod tree;
mod v1;
mod v2;

#[cfg(test)]
mod kernel;

use std::io;
use std::path::Path;

use async_trait::async_trait;

pub use crablet_cgroup_names::{
    CgroupDriver, CgroupName, Layout, NameError, PodCgroup, QosClass, container_id,
};
pub use error::CgroupError;
pub use hierarchy::{Hierarchy, V1Mounts};
pub use host::HostCgroups;
pub use limits::{Bound, CpuBandwidth, HugePages, Limits, shares_of_weight, weight_of_shares};
pub use only_others::OnlyOthers;
#[cfg(any(test, feature = "simulated"))]
pub use simulated::{Operation, SimulatedCgroups};

/// Where the system mounts cgroups.
pub const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The file system type of cgroup v2, as `statfs` tells it.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// A version of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller; also where a v2 hierarchy without them stands beside these.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// Which version is mounted at a path, usually [`MOUNT_POINT`].
pub fn version(mount_point: &Path) -> io::Result<Version> {
    let file_system = rustix::fs::statfs(mount_point)?;
    match file_system.f_type == CGROUP2_SUPER_MAGIC {
        true => Ok(Version::V2),
        false => Ok(Version::V1),
    }
}

/// What the cgroups above the pods' own may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelLimits {
    /// All pods together: `kubepods`, below which guaranteed pods stand directly.
    pub node: Limits,
    /// All burstable pods together.
    pub burstable: Limits,
    /// All best-effort pods together.
    pub best_effort: Limits,
}

/// Whether a cgroup had to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// It was made now, wholly or in part, and has the limits that were asked for.
    Created,
    /// It was there and was left alone.
    Existed,
}

/// The cgroups of pods.
///
/// Every call can be repeated. A call that is given up half-way (its future dropped) may still take effect.
#[async_trait]
pub trait Cgroups: Send + Sync {
    /// Makes the cgroups above the pods' own where they are missing, and sets their limits.
    async fn ensure_levels(&self, limits: &LevelLimits) -> Result<(), CgroupError>;

    /// Sets limits of a cgroup that somebody else has made, by the name that a configuration has for it.
    async fn limit_existing(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError>;

    /// Puts this process into a cgroup, which is made if need be. Touches nothing if it stands there.
    async fn enter(&self, cgroup: &str) -> Result<(), CgroupError>;

    /// Puts the processes that stand in no cgroup but the root into one, which is made if need be; not the first process,
    /// nor those of the kernel.
    async fn gather(&self, cgroup: &str) -> Result<(), CgroupError>;

    /// Makes a pod's cgroup with its limits. One that is there keeps the limits it has: they may be those of a resize
    /// that takes its steps in order. When a limit cannot be set, what this call made is removed again, and nothing else.
    ///
    /// An agent that died between making and limiting leaves a cgroup without limits, so the first time it meets one
    /// that [`Existed`](Ensured::Existed) after its own start, a caller follows up with [`Cgroups::update_pod`].
    async fn ensure_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<Ensured, CgroupError>;

    /// Changes the limits that are given and leaves the others.
    async fn update_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<(), CgroupError>;

    /// The limits in force: processor, memory and processes. Huge pages and single v2 files are not read.
    async fn pod_limits(&self, pod: &PodCgroup) -> Result<Limits, CgroupError>;

    /// The memory in use, in bytes.
    async fn pod_memory_usage(&self, pod: &PodCgroup) -> Result<u64, CgroupError>;

    /// The processes in a pod's cgroup and below, in order. None if there is no such cgroup.
    async fn pod_processes(&self, pod: &PodCgroup) -> Result<Vec<u32>, CgroupError>;

    /// Kills what is left in a pod's cgroup and removes it with all below. Succeeds when there is none. Tries for
    /// about two seconds, since a killed process takes a while to go.
    async fn remove_pod(&self, pod: &PodCgroup) -> Result<(), CgroupError>;

    /// The pods that have a cgroup, or a part of one, in order.
    async fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError>;

    /// Where a pod's cgroup is, from the root of the hierarchy: what the runtime is told as the parent of its
    /// containers.
    fn pod_path(&self, pod: &PodCgroup) -> String;

    /// The name of the cgroup of all pods. Nothing where pods have no cgroups of their own.
    fn kubepods(&self) -> Option<CgroupName>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_cgroup2_mount_counts_as_v1() {
        assert_eq!(version(Path::new("/proc")).unwrap(), Version::V1);
    }

    #[test]
    fn a_missing_mount_point_is_an_error() {
        assert_eq!(version(Path::new("/no/such/path")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_version_agrees_with_the_mount_table() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let unified = mounts.lines().any(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            fields[1] == MOUNT_POINT && fields[2] == "cgroup2"
        });
        let expected = if unified { Version::V2 } else { Version::V1 };
        assert_eq!(version(Path::new(MOUNT_POINT)).unwrap(), expected);
    }
}
