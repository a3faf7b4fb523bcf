//! What one answer is made from, collected at one time: what the kernel says, what the runtime says, and what is on disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crablet_cri_api::v1;
use crablet_volumes::VolumeStats;
use jiff::Timestamp;
use rustix::fs::FileType;

use crate::cgroup::Depth;
use crate::directory::{Buffer, Directory};
use crate::file_systems::Room;
use crate::lister::Names;
use crate::runtime::{ListedPod, Listing};
use crate::snapshot::{Group, Snapshot};

/// The most files of a log directory that are counted.
const MOST_FILES: u64 = 10_000;

/// What one answer is made from.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) walk: Arc<Walk>,
    pub(crate) listing: Arc<Listing>,
    pub(crate) names: Names,
    /// What the runtime says of containers, by its names for them, with how much of the CPU they use.
    pub(crate) by_runtime: HashMap<String, (v1::ContainerStats, Option<u64>)>,
    /// What only the whole summary has.
    pub(crate) whole: Option<Whole>,
}

/// What the kernel says. Several answers are made from one.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// When it was done.
    pub(crate) time: Timestamp,
    pub(crate) depth: Depth,
    pub(crate) snapshot: Snapshot,
}

/// What only the whole summary has.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// The room where the agent keeps its files.
    pub(crate) root: Room,
    pub(crate) image: Option<(v1::FilesystemUsage, Option<Room>)>,
    /// The room on the file systems of containers, by where they are mounted.
    pub(crate) rooms: HashMap<String, Room>,
    /// By the pods' UIDs.
    pub(crate) storage: HashMap<String, PodStorage>,
    /// How many processes there may be, and how many there are.
    pub(crate) processes: (Option<u64>, Option<u64>),
}

/// What of a pod is on the node's own disk, and its volumes.
#[derive(Debug, Default)]
pub(crate) struct PodStorage {
    pub(crate) volumes: Vec<VolumeStats>,
    /// What is in the directory of its logs itself, beside those of its containers.
    pub(crate) logs: Option<Files>,
    /// The logs of its containers, by their names.
    pub(crate) container_logs: HashMap<String, Files>,
    pub(crate) etc_hosts: Option<Files>,
}

/// What files take on disk. None at all is not known, as upstream tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) used: Option<(u64, u64)>,
}

impl View {
    pub(crate) fn new(walk: Arc<Walk>, listing: Arc<Listing>, names: Names) -> View {
        View { walk, listing, names, by_runtime: HashMap::new(), whole: None }
    }

    /// A container's cgroup, if it was found.
    pub(crate) fn group(&self, pod: &ListedPod, id: &str) -> Option<&Group> {
        let children = &self.walk.snapshot.pods.get(&pod.uid)?.children;
        children.iter().find(|(known, _)| known == id).map(|(_, group)| group)
    }

    /// The pods that run something.
    pub(crate) fn running(&self) -> impl Iterator<Item = &ListedPod> {
        self.listing.pods.iter().filter(|pod| !pod.containers.is_empty())
    }

    /// Whether a container that runs has no cgroup where it should be.
    pub(crate) fn lacks_some(&self) -> bool {
        self.running().any(|pod| pod.containers.iter().any(|known| self.group(pod, &known.id).is_none()))
    }
}

/// Where pods have their files.
pub(crate) struct Storage {
    logs: Option<Directory>,
    pods: Option<Directory>,
    buffer: Buffer,
}

impl Storage {
    pub(crate) fn open(root: &Path, logs: &Path) -> Storage {
        let pods = Directory::open(&root.join("pods"));
        Storage { logs: Directory::open(logs), pods, buffer: Buffer::default() }
    }

    /// Counts what a pod has on disk beside its volumes.
    pub(crate) fn measure(&mut self, pod: &ListedPod) -> PodStorage {
        let mut storage = PodStorage::default();
        let directory = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
        if let Some(logs) = self.logs.as_ref().and_then(|logs| logs.below(directory)) {
            storage.logs = files_in(&logs, ".", &mut self.buffer);
            for container in &pod.containers {
                if let Some(files) = files_in(&logs, &container.name, &mut self.buffer) {
                    storage.container_logs.insert(container.name.clone(), files);
                }
            }
        }
        let pods = self.pods.as_ref();
        let hosts = pods.and_then(|pods| pods.taken_by(format!("{}/etc-hosts", pod.uid), FileType::Unknown));
        storage.etc_hosts = hosts.map(|bytes| Files { used: Some((bytes, 1)) });
        storage
    }
}

/// What the files of a directory take, without what is in directories below.
fn files_in(above: &Directory, name: &str, buffer: &mut Buffer) -> Option<Files> {
    let mut files = Files::default();
    let is_read = above.each_entry(name, buffer, |directory, name, kind| {
        let (bytes, count) = files.used.unwrap_or_default();
        // One that was rotated away meanwhile takes nothing.
        if count < MOST_FILES
            && let Some(more) = directory.taken_by(name, kind)
        {
            files.used = Some((bytes + more, count + 1));
        }
    });
    is_read.then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ListedContainer;

    #[test]
    fn logs_and_the_hosts_file_are_counted_by_what_they_take_on_disk() {
        let place = tempfile::tempdir().unwrap();
        let (root, logs) = (place.path().join("root"), place.path().join("logs"));
        let of_pod = logs.join("ns_p_u");
        std::fs::create_dir_all(of_pod.join("a/below")).unwrap();
        std::fs::create_dir_all(root.join("pods/u")).unwrap();
        std::fs::write(of_pod.join("a/0.log"), vec![b'x'; 5_000]).unwrap();
        std::fs::write(of_pod.join("a/1.log"), "x").unwrap();
        std::fs::write(root.join("pods/u/etc-hosts"), "127.0.0.1 localhost\n").unwrap();
        let container = |name: &str| ListedContainer {
            id: String::new(),
            name: name.to_owned(),
            image: String::new(),
            created: None,
        };
        let pod = ListedPod {
            uid: "u".to_owned(),
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            sandbox: String::new(),
            created: None,
            containers: vec![container("a"), container("b")],
            idle: Vec::new(),
        };
        let storage = Storage::open(&root, &logs).measure(&pod);
        let (bytes, inodes) = storage.container_logs["a"].used.unwrap();
        assert!(inodes == 2 && bytes >= 5_001 && bytes % 512 == 0, "{bytes}");
        assert!(!storage.container_logs.contains_key("b"), "it has no directory");
        assert_eq!(storage.logs, Some(Files { used: None }), "directories are not its files");
        assert_eq!(storage.etc_hosts.and_then(|files| files.used).map(|(_, inodes)| inodes), Some(1));
    }
}
