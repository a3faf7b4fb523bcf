//! What the kernel says of the node's cgroups at one time. It is read in a thread of its own, and only when somebody asks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_host::cgroup::{CgroupName, Layout, QosClass};
use crablet_host::clock::Clock;
use crablet_host::mounts::MountTable;
use jiff::Timestamp;

use crate::cgroup::{Depth, Sample, Trees};
use crate::directory::Buffer;
use crate::file_systems::{FileSystem, file_systems};
use crate::proc::{Interface, Proc, Processes};
use crate::rates::Rates;
use crate::runtime::ListedPod;

/// The most pods, and the most containers of one, that are read.
const MOST_PODS: usize = 2_000;
const MOST_CONTAINERS: usize = 200;
/// How long two samples are apart where the first is needed now and there was none before.
pub(crate) const APART: Duration = Duration::from_millis(100);

/// Where everything is read.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) trees: Trees,
    pub(crate) layout: Layout,
    pub(crate) proc: Proc,
    /// The mount table.
    pub(crate) mounts: PathBuf,
    /// The machine's memory and swap, which limit the root.
    pub(crate) memory: (u64, u64),
    pub(crate) booted: Option<Timestamp>,
    /// Cgroups of the system that have a name in the summary.
    pub(crate) system: Vec<(SystemContainer, String)>,
    pub(crate) clock: Clock,
}

/// What upstream calls a part of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemContainer {
    Kubelet,
    Runtime,
    Misc,
    Pods,
}

impl SystemContainer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SystemContainer::Kubelet => "kubelet",
            SystemContainer::Runtime => "runtime",
            SystemContainer::Misc => "misc",
            SystemContainer::Pods => "pods",
        }
    }
}

/// A cgroup as it was.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Its path from the root of the hierarchy.
    pub(crate) path: String,
    pub(crate) sample: Sample,
    /// How much of the CPU it uses, in billionths of a core, if that is known.
    pub(crate) rate: Option<u64>,
    pub(crate) network: Option<Vec<Interface>>,
    pub(crate) processes: Processes,
}

/// A pod's cgroup with those of its containers, by the runtime's names.
#[derive(Debug, Default)]
pub(crate) struct PodGroup {
    pub(crate) group: Group,
    pub(crate) children: Vec<(String, Group)>,
}

/// Everything at one time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) root: Group,
    pub(crate) system: Vec<(SystemContainer, Group)>,
    /// Those above the pods' own, but for the one of all pods, which is of the system.
    pub(crate) levels: Vec<Group>,
    /// By UID.
    pub(crate) pods: HashMap<String, PodGroup>,
    pub(crate) file_systems: Vec<FileSystem>,
}

impl Snapshot {
    fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        let pods = self.pods.values_mut();
        let of_pods = pods.flat_map(|pod| {
            std::iter::once(&mut pod.group).chain(pod.children.iter_mut().map(|(_, group)| group))
        });
        std::iter::once(&mut self.root).chain(self.system.iter_mut().map(|(_, group)| group)).chain(of_pods)
    }

    /// Reckons how much of the CPU each uses since it was asked for the last time. Whether that is known of all.
    pub(crate) fn take_rates(&mut self, rates: &Rates) -> bool {
        let mut all_known = true;
        for group in self.groups_mut() {
            if let Some(cpu) = &group.sample.cpu {
                group.rate = rates.take(&group.path, group.sample.time, cpu.usage);
                all_known &= group.rate.is_some();
            }
        }
        all_known
    }

    /// Reads again how much of the CPU those used of which there was no sample before.
    pub(crate) fn settle_rates(&mut self, place: &Place, rates: &Rates) {
        let mut buffer = Buffer::default();
        for group in self.groups_mut().filter(|group| group.rate.is_none()) {
            if let Some(usage) = place.trees.cpu_usage(&group.path, &mut buffer) {
                group.rate = rates.take(&group.path, place.clock.now(), usage);
            }
        }
    }
}

impl Place {
    pub(crate) fn read(&self, pods: &[ListedPod], depth: Depth) -> Snapshot {
        let mut reading = Reading { place: self, depth, buffer: Buffer::default() };
        let mut snapshot = Snapshot { root: reading.root(), ..Snapshot::default() };
        for (kind, path) in &self.system {
            snapshot.system.extend(reading.group(path).map(|group| (*kind, group)));
        }
        let levels = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
        for qos in levels {
            let level = match qos {
                QosClass::Guaranteed => self.layout.kubepods(),
                qos => self.layout.qos(qos),
            };
            let path = self.layout.path(&level);
            if depth == Depth::Everything && qos != QosClass::Guaranteed {
                snapshot.levels.extend(reading.group(&path));
            }
            reading.pods_of(qos, &level, pods, &mut snapshot.pods);
        }
        if depth == Depth::Everything {
            let table = MountTable::read(&self.mounts);
            snapshot.file_systems =
                table.map(|table| file_systems(&table, &self.proc, &mut reading.buffer)).unwrap_or_default();
        }
        snapshot
    }
}

/// One pass over the cgroups.
struct Reading<'a> {
    place: &'a Place,
    depth: Depth,
    buffer: Buffer,
}

impl Reading<'_> {
    fn group(&mut self, path: &str) -> Option<Group> {
        let mut sample = self.place.trees.read(path, self.depth, &mut self.buffer)?;
        sample.time = self.place.clock.now();
        sample.created = sample.created.max(self.place.booted);
        Some(Group { path: path.to_owned(), sample, ..Group::default() })
    }

    fn root(&mut self) -> Group {
        let Some(mut root) = self.group("/") else {
            return Group { path: "/".to_owned(), ..Group::default() };
        };
        // It is limited by what there is.
        if let Some(memory) = &mut root.sample.memory {
            (memory.limit, memory.swap_limit) = self.place.memory;
            // The root of v2 does not count it.
            if matches!(self.place.trees, Trees::V2 { .. }) {
                memory.swap = self.place.proc.swap_used(&mut self.buffer).unwrap_or(0);
            }
        }
        if self.depth >= Depth::Summary {
            root.network = self.place.proc.interfaces(1, &mut self.buffer);
        }
        if self.depth == Depth::Everything {
            root.sample.threads = (0, 0);
            let pids = self.pids("/");
            root.processes = self.place.proc.held(&pids, Some(1), &mut self.buffer);
        }
        root
    }

    fn pids(&mut self, path: &str) -> Vec<u32> {
        self.place.proc.of_cgroup(&self.place.trees.directory(path), &mut self.buffer)
    }

    fn pods_of(
        &mut self,
        qos: QosClass,
        level: &CgroupName,
        listed: &[ListedPod],
        found: &mut HashMap<String, PodGroup>,
    ) {
        let layout = &self.place.layout;
        for name in directories(&self.place.trees.directory(&layout.path(level)), MOST_PODS) {
            let Some(pod) = layout.pod_from_directory(qos, &name) else { continue };
            let listed = listed.iter().find(|known| known.uid == pod.uid());
            if listed.is_none() && self.depth != Depth::Everything {
                continue;
            }
            let path = layout.path(&layout.pod(&pod));
            let Some(mut group) = self.group(&path) else { continue };
            if self.depth == Depth::Everything {
                let pids = self.pids(&path);
                group.processes = self.place.proc.held(&pids, None, &mut self.buffer);
            }
            let children = self.children_of(&path, listed);
            found.insert(pod.uid().to_owned(), PodGroup { group, children });
        }
    }

    fn children_of(&mut self, pod: &str, listed: Option<&ListedPod>) -> Vec<(String, Group)> {
        let mut children = Vec::new();
        for name in directories(&self.place.trees.directory(pod), MOST_CONTAINERS) {
            let id = container_id(&name);
            let is_sandbox = listed.is_some_and(|pod| pod.sandbox == id);
            // What the sandbox's own process uses counts for the pod alone.
            if is_sandbox && self.depth == Depth::CpuAndMemory {
                continue;
            }
            let path = format!("{pod}/{name}");
            let Some(mut group) = self.group(&path) else { continue };
            if self.depth >= Depth::Summary {
                let pids = self.pids(&path);
                let first = pids.first().copied();
                group.network = first
                    .filter(|_| is_sandbox)
                    .and_then(|pid| self.place.proc.interfaces(pid, &mut self.buffer));
                group.processes = match self.depth {
                    Depth::Everything => self.place.proc.held(&pids, first, &mut self.buffer),
                    _ => Processes { count: pids.len() as u64, ..Processes::default() },
                };
            }
            children.push((id.to_owned(), group));
        }
        children
    }
}

/// The directories in one, in order. Where there is none there is nothing.
fn directories(path: &Path, most: usize) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> =
        directories.take(most).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The runtime's name for the container of a cgroup: `<id>`, or `cri-containerd-<id>.scope` where systemd names them.
fn container_id(directory: &str) -> &str {
    match directory.strip_suffix(".scope") {
        Some(scope) => scope.rsplit('-').next().unwrap_or(scope),
        None => directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_cgroups_in_both_drivers() {
        assert_eq!(container_id("9be25294016e"), "9be25294016e");
        assert_eq!(container_id("cri-containerd-aaefb9d8feed.scope"), "aaefb9d8feed");
        assert_eq!(container_id("crio-aaefb9d8feed.scope"), "aaefb9d8feed");
        assert_eq!(container_id("aaefb9d8feed.scope"), "aaefb9d8feed");
    }
}
