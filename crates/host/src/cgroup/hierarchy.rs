//! What cgroup file systems are mounted, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{CgroupError, MOUNT_POINT, Version};
use crate::mounts::{Mount, MountTable};

/// The controllers of v1 in which a pod gets a cgroup, where they are mounted.
const V1_CONTROLLERS: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// The trees of v1 without which a cgroup does not count as complete, where they are mounted.
const V1_NEEDED: [&str; 7] = ["cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids", "systemd"];

/// The trees of v1 without which no kubelet works.
const V1_REQUIRED: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];

/// The named hierarchy that systemd keeps beside the controllers of v1, and what the mount calls it.
const SYSTEMD: (&str, &str) = ("systemd", "name=systemd");

/// The cgroup file systems of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// A tree for each controller, or for a few of them together.
    V1(V1Mounts),
    /// One tree for all.
    V2 {
        /// Where it is mounted.
        mount: PathBuf,
    },
}

/// The trees of v1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct V1Mounts {
    /// Where each controller is mounted. Some share one: `cpu` and `cpuacct` often do.
    pub controllers: BTreeMap<String, PathBuf>,
    /// Where a v2 tree without controllers is mounted beside them, which makes the machine a hybrid. Runtimes put
    /// processes there too, so pods have a cgroup there.
    pub unified: Option<PathBuf>,
}

impl Hierarchy {
    /// What this machine has, from a mount table in the form of
    /// [`PROC_SELF_MOUNTINFO`](crate::mounts::PROC_SELF_MOUNTINFO).
    pub fn detect(mount_table: &Path) -> Result<Hierarchy, CgroupError> {
        let failed = |source| CgroupError::MountTable { path: mount_table.to_owned(), source };
        Hierarchy::from_table(&MountTable::read(mount_table).map_err(failed)?)
    }

    /// What a mount table shows.
    pub fn from_table(table: &MountTable) -> Result<Hierarchy, CgroupError> {
        // Where the system's own mount point is v2, mounts of v1 elsewhere are somebody's private business.
        let usual = table.at(Path::new(MOUNT_POINT)).filter(|mount| mount.file_system == "cgroup2");
        if let Some(mount) = usual {
            return Ok(Hierarchy::V2 { mount: mount.mount_point.clone() });
        }
        let controllers = v1_controllers(table);
        let unified = shortest(table.iter().filter(|mount| mount.file_system == "cgroup2"));
        match (controllers.is_empty(), unified) {
            (true, None) => Err(CgroupError::NotMounted),
            (true, Some(mount)) => Ok(Hierarchy::V2 { mount }),
            (false, unified) => Ok(Hierarchy::V1(V1Mounts { controllers, unified })),
        }
    }

    /// The controllers without which no kubelet works, and that are not mounted.
    pub fn missing(&self) -> Vec<&'static str> {
        match self {
            Hierarchy::V1(mounts) => {
                V1_REQUIRED.into_iter().filter(|controller| mounts.of(controller).is_none()).collect()
            }
            Hierarchy::V2 { .. } => Vec::new(),
        }
    }

    pub(super) fn version(&self) -> Version {
        match self {
            Hierarchy::V1(_) => Version::V1,
            Hierarchy::V2 { .. } => Version::V2,
        }
    }

    /// The mounts below which a cgroup has a directory.
    pub(super) fn mounts(&self) -> Vec<&Path> {
        match self {
            Hierarchy::V1(mounts) => mounts.all(),
            Hierarchy::V2 { mount } => vec![mount],
        }
    }
}

impl V1Mounts {
    /// Every mount once.
    pub(super) fn all(&self) -> Vec<&Path> {
        let all: BTreeSet<&Path> =
            self.controllers.values().chain(&self.unified).map(PathBuf::as_path).collect();
        all.into_iter().collect()
    }

    /// Every mount once that a cgroup must be in to be complete.
    pub(super) fn needed(&self) -> Vec<&Path> {
        let needed: BTreeSet<&Path> = V1_NEEDED.iter().filter_map(|controller| self.of(controller)).collect();
        needed.into_iter().collect()
    }

    /// Where a controller is mounted.
    pub(super) fn of(&self, controller: &str) -> Option<&Path> {
        self.controllers.get(controller).map(PathBuf::as_path)
    }
}

/// Where each controller of v1 is mounted: at the shortest path, if there are several.
fn v1_controllers(table: &MountTable) -> BTreeMap<String, PathBuf> {
    let has = |mount: &Mount, option: &str| {
        mount.file_system == "cgroup" && mount.super_options.split(',').any(|given| given == option)
    };
    let options = V1_CONTROLLERS.map(|controller| (controller, controller)).into_iter().chain([SYSTEMD]);
    let mounted = options.filter_map(|(controller, option)| {
        let mount = shortest(table.iter().filter(|mount| has(mount, option)))?;
        Some((controller.to_owned(), mount))
    });
    mounted.collect()
}

fn shortest<'table>(mounts: impl Iterator<Item = &'table Mount>) -> Option<PathBuf> {
    mounts.map(|mount| &mount.mount_point).min_by_key(|path| path.as_os_str().len()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(table: &str) -> Result<Hierarchy, CgroupError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mountinfo");
        std::fs::write(&path, table).unwrap();
        Hierarchy::detect(&path)
    }

    #[test]
    fn one_mount_of_v2_is_the_whole_hierarchy() {
        let table = "23 27 0:22 / /sys rw - sysfs sysfs rw\n\
                     31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
                     99 27 0:60 / /opt/old rw - cgroup cgroup rw,memory\n";
        assert_eq!(detect(table).unwrap(), Hierarchy::V2 { mount: "/sys/fs/cgroup".into() });
    }

    #[test]
    fn v1_knows_controllers_that_share_a_mount_and_systemds_own_tree() {
        let table = "30 24 0:25 / /sys/fs/cgroup ro shared:8 - tmpfs tmpfs ro,mode=755\n\
                     32 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                     33 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     34 30 0:28 / /var/lib/elsewhere/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     35 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     36 30 0:30 / /sys/fs/cgroup/openrc rw - cgroup openrc rw,name=openrc\n";
        let Hierarchy::V1(mounts) = detect(table).unwrap() else { panic!("v1") };
        let found: Vec<_> =
            mounts.controllers.iter().map(|(name, path)| (&**name, path.to_str().unwrap())).collect();
        assert_eq!(
            found,
            [
                ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
                ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
                ("memory", "/sys/fs/cgroup/memory"),
                ("systemd", "/sys/fs/cgroup/systemd"),
            ]
        );
        assert_eq!(mounts.unified, None);
        assert_eq!(mounts.all().len(), 3);
        assert_eq!(detect(table).unwrap().missing(), ["cpuset"]);
    }

    #[test]
    fn a_v2_tree_beside_controllers_of_v1_makes_a_hybrid() {
        let table = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                     35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let Hierarchy::V1(mounts) = detect(table).unwrap() else { panic!("v1") };
        assert_eq!(mounts.unified, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounts.all().len(), 2);
    }

    #[test]
    fn a_machine_without_cgroups_is_an_error() {
        let error = detect("23 27 0:22 / /sys rw - sysfs sysfs rw\n").unwrap_err();
        assert_eq!(error.to_string(), "no cgroup file system is mounted");
        let error = Hierarchy::detect(Path::new("/no/such/table")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the mount table /no/such/table");
    }

    #[test]
    fn the_machines_own_version_is_found() {
        let hierarchy = Hierarchy::detect(Path::new(crate::mounts::PROC_SELF_MOUNTINFO)).unwrap();
        let version = super::super::version(Path::new(MOUNT_POINT)).unwrap();
        assert_eq!(hierarchy.version(), version);
    }
}
