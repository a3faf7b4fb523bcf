//! How much room the simulated machine has: memory, disk and process IDs, of which pods that run take their parts, and
//! others some of the rest.
//!
//! What a pod uses follows from its UID, unless a test says otherwise. So who goes first is known from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_agent::eviction::{Settings, UsageMeter};
use crablet_core::eviction::{
    Amount, Configured, ContainerUsage, FsUsage, PodUsage, Resource, Signal, Usages,
};
use crablet_host::machine::Storage;
use crablet_host::signals::{
    Alarm, DiskReadings, FileSystems, MemoryOf, MemoryReading, Places, ProcessReading, Readings, Signals,
    SimulatedSignals,
};
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::invariants::note_ranking;
use crate::ledger::Ledger;
use crate::lies::Lie;

/// What there is.
pub const MEMORY: u64 = 1 << 40;
pub const DISK: u64 = 1 << 40;
pub const PROCESSES: u64 = 1 << 15;
const INODES: u64 = 1 << 24;
/// How much of each must be left, in hundredths.
pub const LEAST_LEFT: u64 = 10;
const GI: u64 = 1 << 30;
/// Who saw that something is short measures pods within so long.
const SHORT_FOR: Duration = Duration::from_secs(120);

/// What of a machine can run short in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    Memory,
    Disk,
    Processes,
}

/// The machine's room. Clones are the same.
#[derive(Clone)]
pub struct Room(Arc<Inner>);

struct Inner {
    ledger: Arc<Ledger>,
    signals: SimulatedSignals,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What pods use, where a test says so.
    said: BTreeMap<String, PodUsage>,
    /// What others than pods use.
    taken: Taken,
    /// What the kernel counts as used and could take back.
    reclaimable: u64,
    /// Whether nobody can tell what pods use.
    is_unmeasured: bool,
    /// How long it takes to tell what pods have on disk.
    counting_takes: Duration,
    /// How long it takes to tell what memory they use.
    measuring_takes: Duration,
    /// How much memory there is for pods, where they are held to that.
    memory_for_pods: Option<u64>,
    /// What is told that is not so.
    lie: Option<Lie>,
    /// In hundredths, where that is not [`LEAST_LEFT`].
    least_left: Option<u64>,
    /// When somebody looked last while something was short.
    short: BTreeMap<Resource, Instant>,
    /// How often all pods were measured.
    measured: u64,
    /// How many containers and images there were that take what others took of the disk, where they do.
    freed_by: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    memory: u64,
    disk: u64,
    processes: u64,
}

impl Room {
    pub fn new(ledger: Arc<Ledger>) -> Room {
        let signals = SimulatedSignals::new();
        let disk = || "8:1".to_owned();
        signals.set_file_systems(FileSystems { node: disk(), images: disk(), containers: disk() });
        Room(Arc::new(Inner { ledger, signals, state: Mutex::default() }))
    }

    /// Says of how much, in hundredths, less is too little.
    pub fn set_least_left(&self, percent: u64) {
        self.state().least_left = Some(percent);
    }

    /// Whether the kernel tells by itself when memory is short.
    pub fn set_alarms(&self, has_alarms: bool) {
        self.0.signals.set_alarms(has_alarms);
    }

    /// Says what a pod uses.
    pub fn set_usage(&self, uid: &str, usage: PodUsage) {
        self.state().said.insert(uid.to_owned(), usage);
        self.settle();
    }

    /// Says how much memory a pod uses.
    pub fn set_memory(&self, uid: &str, memory: u64) {
        self.set_usage(uid, PodUsage { memory: Some(memory), ..usage_of(uid) });
    }

    /// Says how much memory the kernel could take back.
    pub fn set_reclaimable(&self, memory: u64) {
        self.state().reclaimable = memory;
        self.settle();
    }

    /// Whether it can be told what pods use.
    pub fn set_measured(&self, is_measured: bool) {
        self.state().is_unmeasured = !is_measured;
    }

    /// How long it takes to tell what pods have on disk.
    pub fn set_counting_takes(&self, time: Duration) {
        self.state().counting_takes = time;
    }

    /// How long it takes to tell what memory pods use.
    pub fn set_measuring_takes(&self, time: Duration) {
        self.state().measuring_takes = time;
    }

    /// How much memory there is for pods, which are held to that.
    pub fn set_memory_for_pods(&self, memory: u64) {
        self.state().memory_for_pods = Some(memory);
        self.settle();
    }

    /// Others take so much that some hundredths of what pods use would have to go for enough to be left.
    pub fn run_short(&self, of: Short, percent: u64) {
        let used = self.used();
        let share = |used: u64| used / 100 * percent;
        let most = |all: u64| all / 100 * (100 - LEAST_LEFT);
        {
            let taken = &mut self.state().taken;
            match of {
                Short::Memory => {
                    taken.memory = most(MEMORY).saturating_sub(used.memory) + share(used.memory) + 1;
                }
                Short::Disk => taken.disk = most(DISK).saturating_sub(used.disk) + share(used.disk) + 1,
                Short::Processes => {
                    let all = most(PROCESSES).saturating_sub(used.processes);
                    taken.processes = all + share(used.processes) + 4;
                }
            }
        }
        self.settle();
    }

    /// Others give back what they took.
    pub fn recover(&self, of: Short) {
        {
            let taken = &mut self.state().taken;
            match of {
                Short::Memory => taken.memory = 0,
                Short::Disk => taken.disk = 0,
                Short::Processes => taken.processes = 0,
            }
        }
        self.settle();
    }

    pub(crate) fn set_lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// What others take of the disk is given back when there are fewer dead containers and images than now.
    pub fn free_on_removal(&self) {
        let there = self.removable();
        self.state().freed_by = Some(there);
    }

    fn removable(&self) -> usize {
        let simulator = &self.0.ledger.simulator;
        simulator.containers().iter().filter(|container| !container.alive).count() + simulator.image_count()
    }

    /// How often all pods were measured.
    pub fn measured(&self) -> u64 {
        self.state().measured
    }

    /// How often the agent looked.
    pub fn looks(&self) -> u64 {
        self.0.signals.looks()
    }

    /// What pods use that run.
    fn usages(&self) -> Usages {
        let containers = self.0.ledger.simulator.containers();
        let state = self.state();
        let mut usages = Usages::new();
        for container in containers.iter().filter(|container| container.alive) {
            let uid = &container.pod_uid;
            let known = || state.said.get(uid).cloned().unwrap_or_else(|| usage_of(uid));
            usages.entry(uid.clone()).or_insert_with(known);
        }
        usages
    }

    /// What they use together.
    fn used(&self) -> Taken {
        let mut sum = Taken::default();
        for usage in self.usages().values() {
            sum.memory += usage.memory.unwrap_or(0);
            sum.disk += usage.ephemeral_storage.unwrap_or(0);
            sum.processes += usage.processes.unwrap_or(0);
        }
        sum
    }

    /// Whether the machine is surely short of something now.
    pub fn is_short(&self, of: Resource) -> bool {
        let (used, taken) = (self.used(), self.state().taken);
        self.is_left(of, used, taken, |left, least| left + 20 < least)
    }

    /// Whether what is left of something is so, in thousandths of hundredths, beside the least that should be.
    fn is_left(&self, of: Resource, used: Taken, taken: Taken, is_so: fn(u64, u64) -> bool) -> bool {
        let left = |all: u64, used: u64| all.saturating_sub(used) * 100_000 / all;
        let left = match of {
            Resource::Memory => left(MEMORY, used.memory + taken.memory),
            Resource::EphemeralStorage => left(DISK, used.disk + taken.disk),
            Resource::Pids => left(PROCESSES, used.processes + taken.processes),
            Resource::Inodes => return false,
        };
        is_so(left, self.state().least_left.unwrap_or(LEAST_LEFT) * 1000)
    }

    /// Shows what is left now.
    fn settle(&self) {
        let (used, removable) = (self.used(), self.removable());
        let (taken, reclaimable) = {
            let mut state = self.state();
            if state.freed_by.is_some_and(|there| removable < there) {
                state.taken.disk = 0;
            }
            if let Some(capacity) = state.memory_for_pods
                && capacity.saturating_sub(used.memory) <= capacity / 100 * (LEAST_LEFT + 1)
            {
                state.short.insert(Resource::Memory, Instant::now());
            }
            (state.taken, state.reclaimable)
        };
        let memory_of_pods = self.state().memory_for_pods.map(|capacity| MemoryReading {
            capacity,
            usage: used.memory,
            working_set: used.memory,
        });
        let memory = used.memory + taken.memory;
        for of in [Resource::Memory, Resource::EphemeralStorage, Resource::Pids] {
            // A node reckons a share with some error.
            if self.is_left(of, used, taken, |left, least| left <= least + 1) {
                self.state().short.insert(of, Instant::now());
            }
        }
        let lie = self.state().lie;
        let memory = if lie == Some(Lie::MemoryIsShort) && used.memory > 0 { MEMORY } else { memory };
        let disk = Storage {
            capacity: DISK,
            available: DISK.saturating_sub(used.disk + taken.disk),
            inodes: INODES,
            inodes_free: INODES,
        };
        let all = DiskReadings { node_fs: Some(disk), image_fs: Some(disk), container_fs: Some(disk) };
        self.0.signals.set_disks(all);
        self.0.signals.change(|readings| {
            *readings = Readings {
                memory: Some(MemoryReading {
                    capacity: MEMORY,
                    usage: memory + reclaimable,
                    working_set: memory,
                }),
                memory_of_pods,
                processes: Some(ProcessReading {
                    most: PROCESSES,
                    running: used.processes + taken.processes,
                }),
            };
        });
    }

    async fn count(&self) {
        let takes = self.state().counting_takes;
        let_pass(takes).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Signals for Room {
    fn read(&self) -> Readings {
        self.settle();
        self.0.signals.read()
    }

    async fn read_disks(&self, places: &Places) -> DiskReadings {
        self.settle();
        self.0.signals.read_disks(places).await
    }

    async fn file_systems(&self, places: &Places) -> Option<FileSystems> {
        self.0.signals.file_systems(places).await
    }

    fn watch_memory(&self, whose: MemoryOf, usage: u64) -> io::Result<Option<Box<dyn Alarm>>> {
        self.0.signals.watch_memory(whose, usage)
    }
}

#[async_trait]
impl UsageMeter for Room {
    async fn of_all(&self, resource: Resource) -> Option<Usages> {
        match resource {
            Resource::Memory => {
                let takes = self.state().measuring_takes;
                let_pass(takes).await;
            }
            Resource::EphemeralStorage | Resource::Inodes | Resource::Pids => self.count().await,
        }
        self.state().measured += 1;
        if self.state().is_unmeasured || self.state().lie == Some(Lie::NobodyIsMeasured) {
            return None;
        }
        let usages = self.usages();
        let was_short = self.state().short.get(&resource).is_some_and(|at| at.elapsed() <= SHORT_FOR);
        note_ranking(&self.0.ledger, resource, &usages, was_short);
        if self.state().lie == Some(Lie::UsageIsTurnedAround) {
            return Some(turned_around(usages));
        }
        Some(usages)
    }

    async fn on_disk(&self, uids: &BTreeSet<String>) -> Option<Usages> {
        self.count().await;
        let mut usages = self.usages();
        usages.retain(|uid, _| uids.contains(uid));
        Some(usages)
    }
}

async fn let_pass(time: Duration) {
    match time.is_zero() {
        true => tokio::task::yield_now().await,
        false => tokio::time::sleep(time).await,
    }
}

fn turned_around(mut usages: Usages) -> Usages {
    for usage in usages.values_mut() {
        let turn = |all: u64, used: &mut Option<u64>| *used = used.map(|used| all.saturating_sub(used));
        turn(MEMORY, &mut usage.memory);
        turn(PROCESSES, &mut usage.processes);
        for container in &mut usage.containers {
            turn(DISK, &mut container.logs.bytes);
        }
    }
    usages
}

/// What a pod uses of which nothing is said: by its UID.
fn usage_of(uid: &str) -> PodUsage {
    let digest =
        uid.bytes().fold(7_u64, |digest, byte| digest.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let disk = (digest / 64 % 16 + 1) * GI / 2;
    PodUsage {
        memory: Some((digest % 16 + 1) * GI / 2),
        processes: Some(digest / 7 % 100 + 1),
        containers: vec![ContainerUsage {
            name: "c0".into(),
            logs: FsUsage { bytes: Some(disk), inodes: Some(10) },
            ..ContainerUsage::default()
        }],
        volumes: Vec::new(),
        ephemeral_storage: Some(disk),
    }
}

/// When pods have to go in a run.
pub fn eviction() -> Settings {
    #[allow(clippy::cast_precision_loss)]
    let least = Amount::Percentage(LEAST_LEFT as f32);
    let hard = [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable];
    Settings {
        configured: Configured {
            hard: hard.map(|signal| (signal, least.clone())).into(),
            ..Configured::default()
        },
        max_pod_grace: 0,
        transition_period: SignedDuration::from_secs(30),
        limits_local_storage: true,
    }
}
