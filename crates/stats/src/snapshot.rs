//! What the kernel says of the node's cgroups at one time. It is read in a thread of its own, and only when somebody asks.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_host::cgroup::{Layout, QosClass, container_id};
use crablet_host::clock::Clock;
use crablet_host::mounts::MountTable;
use jiff::{SignedDuration, Timestamp};

use crate::cgroup::{Before, Cgroup, Depth, Limits, Sample, Trees};
use crate::directory::Buffer;
use crate::file_systems::{FileSystem, file_systems};
use crate::known::{Known, KnownCgroups, Still};
use crate::proc::{Interface, MachineMemory, Proc, Processes};
use crate::rates::Rates;
use crate::runtime::{ListedPod, Listing};

/// The most pods, and the most containers of one, that are read.
const MOST_PODS: usize = 2_000;
const MOST_CONTAINERS: usize = 200;
/// How old a cgroup is whose limits are taken for those that it keeps.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(5);
/// How long two samples are apart where the first is needed now and there was none before.
pub(crate) const APART: Duration = Duration::from_millis(100);

/// Where everything is read.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) trees: Trees,
    pub(crate) layout: Layout,
    /// `/proc`, or what stands for it.
    pub(crate) proc: PathBuf,
    /// The mount table.
    pub(crate) mounts: PathBuf,
    /// The machine's memory and swap at the start, which limit the root.
    pub(crate) memory: MachineMemory,
    pub(crate) booted: Option<Timestamp>,
    /// Cgroups of the system that have a name in the summary.
    pub(crate) system: Vec<(SystemContainer, String)>,
    pub(crate) clock: Clock,
    pub(crate) known: Mutex<KnownCgroups>,
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
#[derive(Debug, Clone, Default)]
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
#[derive(Debug, Clone, Default)]
pub(crate) struct PodGroup {
    pub(crate) group: Group,
    pub(crate) children: Vec<(String, Group)>,
}

/// Everything at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) root: Group,
    pub(crate) system: Vec<(SystemContainer, Group)>,
    /// Those above the pods' own, but for the one of all pods, which is of the system.
    pub(crate) levels: Vec<Group>,
    /// By UID.
    pub(crate) pods: HashMap<String, PodGroup>,
    pub(crate) file_systems: Vec<FileSystem>,
    /// What the machine has.
    pub(crate) memory: MachineMemory,
    /// Whether there are pods or containers that are not listed.
    pub(crate) has_strangers: bool,
}

impl Snapshot {
    fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        let pods = self.pods.values_mut();
        let of_pods = pods.flat_map(|pod| {
            std::iter::once(&mut pod.group).chain(pod.children.iter_mut().map(|(_, group)| group))
        });
        std::iter::once(&mut self.root).chain(self.system.iter_mut().map(|(_, group)| group)).chain(of_pods)
    }

    /// Reckons how much of the CPU each uses since it was asked for the last time.
    pub(crate) fn take_rates(&mut self, rates: &Rates) {
        for group in self.groups_mut() {
            if let Some(cpu) = &group.sample.cpu {
                group.rate = rates.take(&group.path, group.sample.time, cpu.usage);
            }
        }
    }

    /// Whether of one that counts the CPU it is not known how much of it it uses.
    pub(crate) fn lacks_rates(&self) -> bool {
        let lacks = |group: &Group| group.rate.is_none() && group.sample.cpu.is_some();
        let of_pods = self
            .pods
            .values()
            .any(|pod| lacks(&pod.group) || pod.children.iter().any(|(_, group)| lacks(group)));
        of_pods || lacks(&self.root) || self.system.iter().any(|(_, group)| lacks(group))
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
    /// Reads what there is, listed or not.
    pub(crate) fn read<'a>(&'a self, listing: &'a Listing, depth: Depth) -> Snapshot {
        let by_uid = |pod: &'a ListedPod| (&*pod.uid, pod);
        let listed = match depth {
            Depth::Everything => listing.all().map(by_uid).collect(),
            Depth::CpuAndMemory | Depth::Summary => listing.pods.iter().map(by_uid).collect(),
        };
        let names = listing.all().flat_map(ListedPod::ids).collect();
        let proc = Proc::open(&self.proc);
        // One reads at a time.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reading = Reading {
            place: self,
            depth,
            listed,
            names,
            has_strangers: false,
            proc,
            known,
            buffer: Buffer::default(),
        };
        let memory = reading.memory();
        let mut snapshot = Snapshot { root: reading.root(memory), memory, ..Snapshot::default() };
        for (kind, path) in &self.system {
            snapshot.system.extend(reading.group(path).map(|group| (*kind, group)));
        }
        for qos in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let level = match qos {
                QosClass::Guaranteed => self.layout.kubepods(),
                qos => self.layout.qos(qos),
            };
            let path = self.layout.path(&level);
            let Some(cgroup) = self.trees.open(&path, depth) else { continue };
            reading.pods_of(qos, &cgroup, &mut snapshot.pods);
            if depth == Depth::Everything && qos != QosClass::Guaranteed {
                let level = reading.read(path, &cgroup, false);
                snapshot.levels.extend(level.map(|found| reading.keep(found)));
            }
        }
        if depth == Depth::Everything
            && let (Ok(table), Some(proc)) = (MountTable::read(&self.mounts), &reading.proc)
        {
            snapshot.file_systems = file_systems(&table, proc, &mut reading.buffer);
        }
        snapshot.has_strangers = reading.has_strangers;
        reading.known.forget_old(self.clock.now());
        snapshot
    }
}

/// Whose limit of open files is told.
enum LimitsOf {
    Process(u32),
    /// That of the first process in it.
    First,
    Nobody,
}

/// One pass over the cgroups.
struct Reading<'a> {
    place: &'a Place,
    depth: Depth,
    /// By UID.
    listed: HashMap<&'a str, &'a ListedPod>,
    /// What the runtime calls sandboxes and containers.
    names: HashSet<&'a str>,
    has_strangers: bool,
    proc: Option<Proc>,
    known: MutexGuard<'a, KnownCgroups>,
    buffer: Buffer,
}

/// A group with what was known of it before, and is known now.
struct Found {
    group: Group,
    before: Known,
    known: Known,
    /// The first of its processes.
    first: Option<u32>,
    /// The cgroups in it.
    names: Vec<String>,
}

impl Found {
    /// What it was when its processes last ran, if none has since.
    fn still(&self) -> Option<&Still> {
        self.before.still.as_deref().filter(|_| self.group.sample.is_still)
    }
}

impl Reading<'_> {
    fn group(&mut self, path: &str) -> Option<Group> {
        let cgroup = self.place.trees.open(path, self.depth)?;
        let mut found = self.read(path.to_owned(), &cgroup, false)?;
        self.take_start(&mut found, &cgroup);
        Some(self.keep(found))
    }

    /// Reads a group. If the one that it is in is as it was, this one is too.
    fn read(&mut self, path: String, cgroup: &Cgroup, is_above_still: bool) -> Option<Found> {
        let before = self.known.of(&path, self.place.clock.now());
        let mut sample = cgroup.read(self.depth, Before::new(&before, is_above_still), &mut self.buffer)?;
        sample.time = self.place.clock.now();
        let known = before.clone();
        let group = Group { path, sample, ..Group::default() };
        let mut found = Found { group, before, known, first: None, names: Vec::new() };
        if self.depth == Depth::Everything {
            self.take_start(&mut found, cgroup);
            let inode = |known: &Known| known.start.map(|start| start.inode);
            if inode(&found.before).is_some() && inode(&found.before) != inode(&found.known) {
                // It was made anew: nothing that is known of the one before holds.
                self.known.forget(&found.group.path);
                return self.read(found.group.path, cgroup, false);
            }
        }
        Some(found)
    }

    /// When a cgroup was made. In a summary only those of the system say it.
    fn take_start(&mut self, found: &mut Found, cgroup: &Cgroup) {
        let sample = &mut found.group.sample;
        if sample.created.is_some() {
            return;
        }
        // One that was made anew has not used just as much.
        if !(sample.is_still && found.known.start.is_some()) {
            found.known.start = cgroup.start(found.known.start);
        }
        sample.created = found.known.start.map(|start| start.at).max(self.place.booted);
    }

    /// Keeps what is known of a group now.
    fn keep(&mut self, mut found: Found) -> Group {
        let Group { sample, processes, path, .. } = &found.group;
        if self.depth == Depth::Everything {
            // Whoever makes a cgroup gives it its limits after that.
            let is_new = sample.created.is_some_and(|made| sample.time.duration_since(made) < SETTLED_AFTER);
            if found.known.limits.is_none() && !is_new {
                found.known.limits = Some(Limits { open_files: processes.open_files, ..sample.limits() });
            }
            if !sample.is_still {
                let memory = sample.memory.as_ref();
                found.known.still = sample.cpu.as_ref().map(|cpu| {
                    Arc::new(Still {
                        cpu: cpu.clone(),
                        max_memory: memory.map_or(0, |memory| memory.max_usage),
                        memory_failures: memory.map_or(0, |memory| memory.failcnt),
                        oom_kills: memory.map_or(0, |memory| memory.oom_kills),
                        threads: sample.threads.0,
                        processes: *processes,
                        first: found.first,
                        names: found.names,
                    })
                });
            }
        }
        self.known.keep(path, sample.time, &found.before, found.known);
        found.group
    }

    fn memory(&mut self) -> MachineMemory {
        let now = self.proc.as_ref().and_then(|proc| proc.memory(&mut self.buffer));
        now.unwrap_or(self.place.memory)
    }

    /// Reads what of a group's own processes is told.
    fn read_processes(&mut self, found: &mut Found, cgroup: &Cgroup, whose: LimitsOf) {
        if let Some(still) = found.still() {
            (found.group.processes, found.first) = (still.processes, still.first);
            return;
        }
        let pids = cgroup.processes(&mut self.buffer);
        found.first = pids.first().copied();
        found.group.processes.count = pids.len() as u64;
        if let (Depth::Everything, Some(proc)) = (self.depth, &self.proc) {
            let known = found.before.limits;
            let whose = match whose {
                LimitsOf::Process(pid) => Some(pid),
                LimitsOf::First => found.first.filter(|_| known.is_none()),
                LimitsOf::Nobody => None,
            };
            let mut held = proc.held(&pids, whose, &mut self.buffer);
            held.open_files = held.open_files.or(known.and_then(|known| known.open_files));
            found.group.processes = held;
        }
    }

    fn root(&mut self, machine: MachineMemory) -> Group {
        let path = "/".to_owned();
        let Some(cgroup) = self.place.trees.open(&path, self.depth) else {
            return Group { path, ..Group::default() };
        };
        let Some(mut found) = self.read(path, &cgroup, false) else {
            return Group { path: "/".to_owned(), ..Group::default() };
        };
        let root = &mut found.group;
        // It is limited by what there is.
        if let Some(memory) = &mut root.sample.memory {
            (memory.limit, memory.swap_limit) = (machine.total, machine.swap);
            // The root of v2 does not count it.
            if let Trees::V2 { .. } = &self.place.trees {
                memory.swap = machine.swap_used;
            }
        }
        if self.depth >= Depth::Summary {
            root.network = self.interfaces(1);
        }
        if self.depth == Depth::Everything {
            root.sample.threads = (0, 0);
            self.read_processes(&mut found, &cgroup, LimitsOf::Process(1));
        }
        self.take_start(&mut found, &cgroup);
        self.keep(found)
    }

    fn interfaces(&mut self, pid: u32) -> Option<Vec<Interface>> {
        self.proc.as_ref()?.interfaces(pid, &mut self.buffer)
    }

    fn pods_of(&mut self, qos: QosClass, level: &Cgroup, found: &mut HashMap<String, PodGroup>) {
        let layout = &self.place.layout;
        for name in level.names(MOST_PODS, &mut self.buffer) {
            let Some(pod) = layout.pod_from_directory(qos, &name) else { continue };
            let listed = self.listed.get(pod.uid()).copied();
            self.has_strangers |= listed.is_none();
            let path = layout.path(&layout.pod(&pod));
            let Some(cgroup) = level.below(&name, self.depth) else { continue };
            let Some(mut found_pod) = self.read(path, &cgroup, false) else { continue };
            found_pod.names = match found_pod.still() {
                Some(still) => still.names.clone(),
                None => cgroup.names(MOST_CONTAINERS, &mut self.buffer),
            };
            let children = self.children_of(&found_pod, &cgroup, listed);
            if self.depth == Depth::Everything {
                // Who is not in one of those below is in the pod itself. Without a count of threads nobody knows.
                let below: u64 = children.iter().map(|(_, group)| group.sample.threads.0).sum();
                let (all, _) = found_pod.group.sample.threads;
                if all == 0 || all > below {
                    self.read_processes(&mut found_pod, &cgroup, LimitsOf::Nobody);
                }
            }
            found.insert(pod.uid().to_owned(), PodGroup { group: self.keep(found_pod), children });
        }
    }

    fn children_of(
        &mut self,
        pod: &Found,
        cgroup: &Cgroup,
        listed: Option<&ListedPod>,
    ) -> Vec<(String, Group)> {
        let mut children = Vec::new();
        for name in &pod.names {
            let Some(id) = container_id(name) else { continue };
            self.has_strangers |= !self.names.contains(id);
            let is_sandbox = listed.is_some_and(|pod| pod.sandbox == id);
            // What the sandbox's own process uses counts for the pod alone.
            if is_sandbox && self.depth == Depth::CpuAndMemory {
                continue;
            }
            let Some(cgroup) = cgroup.below(name, self.depth) else { continue };
            let path = format!("{}/{name}", pod.group.path);
            let Some(mut found) = self.read(path, &cgroup, pod.still().is_some()) else { continue };
            if self.depth >= Depth::Summary {
                self.read_processes(&mut found, &cgroup, LimitsOf::First);
                found.group.network = found.first.filter(|_| is_sandbox).and_then(|pid| self.interfaces(pid));
            }
            children.push((id.to_owned(), self.keep(found)));
        }
        children
    }
}
