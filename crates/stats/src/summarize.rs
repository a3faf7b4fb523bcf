//! From what was collected to the summary. What the kernel says of a container counts; what the runtime says stands in for
//! it where no cgroup was found.

use crablet_cri_api::v1;

use crate::cgroup::{Pressure, Sample, Stall};
use crate::file_systems::Room;
use crate::proc::Interface;
use crate::runtime::{ListedContainer, ListedPod};
use crate::snapshot::{Group, SystemContainer};
use crate::summary::*;
use crate::view::{Files, PodStorage, View, Whole};

/// From here on a limit is none: the kernel rounds it.
const UNLIMITED: u64 = 1 << 62;
/// The interface that is told as a pod's or the node's own.
const DEFAULT_INTERFACE: &str = "eth0";

/// What a summary says of the node beside what was collected.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) node_name: String,
    pub(crate) booted: Option<Time>,
    /// When the agent began.
    pub(crate) began: Time,
}

pub(crate) fn summarize(view: &View, about: &About) -> Summary {
    let is_whole = view.whole.is_some();
    let root = &view.walk.snapshot.root;
    let mut node = NodeStats {
        node_name: about.node_name.clone(),
        start_time: root.sample.created.map(Time),
        cpu: cpu_of(root),
        memory: memory_of(&root.sample),
        swap: swap_of(&root.sample),
        ..NodeStats::default()
    };
    for (kind, group) in &view.walk.snapshot.system {
        let known = (*kind == SystemContainer::Kubelet).then_some(about.began);
        node.system_containers.push(ContainerStats {
            name: kind.name().to_owned(),
            start_time: known.or(group.sample.created.map(Time)),
            cpu: cpu_of(group),
            memory: memory_of(&group.sample),
            io: is_whole.then(|| io_of(&group.sample)).flatten(),
            swap: swap_of(&group.sample),
            ..ContainerStats::default()
        });
    }
    if let Some(whole) = &view.whole {
        node.start_time = about.booted;
        node.io = io_of(&root.sample);
        node.network = network_of(root);
        node.fs = Some(FsStats {
            used_bytes: Some(whole.root.used),
            inodes_used: Some(whole.root.inodes.saturating_sub(whole.root.inodes_free)),
            ..fs_of(&whole.root, Time(root.sample.time))
        });
        let image = whole.image.as_ref().map(|(usage, room)| image_fs(usage, room.as_ref()));
        node.runtime = image.map(|image| RuntimeStats { image_fs: image.clone(), container_fs: image });
        let (maxpid, curproc) = whole.processes;
        node.rlimit = Some(RlimitStats { time: Time(view.walk.time), maxpid, curproc });
    }
    let pods = view.running().map(|pod| pod_of(view, pod));
    // One whose containers nobody knows anything of is not told of.
    Summary { node, pods: pods.filter(|pod| !pod.containers.is_empty()).collect() }
}

fn pod_of(view: &View, pod: &ListedPod) -> PodStats {
    let mut stats = PodStats {
        pod_ref: PodReference {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
        },
        start_time: pod.created.map(Time),
        containers: pod.containers.iter().filter_map(|known| container_of(view, pod, known)).collect(),
        ..PodStats::default()
    };
    match view.walk.snapshot.pods.get(&pod.uid) {
        Some(group) => {
            stats.cpu = cpu_of(&group.group);
            stats.memory = memory_of(&group.group.sample);
            stats.swap = swap_of(&group.group.sample);
            stats.io = view.whole.is_some().then(|| io_of(&group.group.sample)).flatten();
        }
        None => stats.sum_up(),
    }
    if let Some(whole) = &view.whole {
        stats.network = view.group(pod, &pod.sandbox).and_then(network_of);
        let counts = pod.containers.iter().filter_map(|known| view.group(pod, &known.id));
        stats.process_stats = counts
            .map(|group| group.processes.count)
            .reduce(|sum, count| sum + count)
            .map(|process_count| ProcessStats { process_count });
        stats.take_storage(view, whole, whole.storage.get(&pod.uid));
    }
    stats
}

fn container_of(view: &View, pod: &ListedPod, known: &ListedContainer) -> Option<ContainerStats> {
    let group = view.group(pod, &known.id);
    let by_runtime = view.by_runtime.get(&known.id);
    if group.is_none() && by_runtime.is_none() {
        return None;
    }
    let mut stats = ContainerStats {
        name: known.name.clone(),
        start_time: known.created.map(Time),
        ..ContainerStats::default()
    };
    if let Some((by_runtime, rate)) = by_runtime {
        stats.take_runtime(by_runtime, *rate, Time(view.walk.time), view.whole.is_some());
    }
    if let Some(group) = group {
        stats.cpu = cpu_of(group).or(stats.cpu);
        stats.memory = memory_of(&group.sample).or(stats.memory);
        stats.swap = swap_of(&group.sample).or(stats.swap);
        if view.whole.is_some() {
            stats.io = io_of(&group.sample).or(stats.io);
        }
    }
    if let Some(whole) = &view.whole {
        // Without a layer it is there, with nothing in it.
        stats.rootfs = Some(by_runtime.and_then(|(stats, _)| stats.writable_layer.as_ref()).map_or_else(
            FsStats::default,
            |layer| {
                let at = layer.fs_id.as_ref().and_then(|id| whole.rooms.get(&id.mountpoint));
                image_fs(layer, at)
            },
        ));
        let logs = whole.storage.get(&pod.uid).and_then(|storage| storage.container_logs.get(&known.name));
        stats.logs = logs.map(|files| files.on(&whole.root, Time(view.walk.time)));
    }
    Some(stats)
}

impl ContainerStats {
    /// What the runtime says. Without the rest of a whole summary, what is missing is zero.
    fn take_runtime(&mut self, stats: &v1::ContainerStats, rate: Option<u64>, now: Time, is_whole: bool) {
        let value = |value: Option<&v1::UInt64Value>| match value {
            Some(value) => Some(value.value),
            None => (!is_whole).then_some(0),
        };
        self.cpu = Some(match &stats.cpu {
            Some(cpu) => CpuStats {
                time: Time::from_nanoseconds(cpu.timestamp),
                usage_nano_cores: cpu.usage_nano_cores.map(|value| value.value).or(rate),
                usage_core_nano_seconds: value(cpu.usage_core_nano_seconds.as_ref()),
                psi: cpu.psi.as_ref().map(psi_by_runtime),
            },
            None => {
                CpuStats { time: now, usage_nano_cores: Some(0), usage_core_nano_seconds: Some(0), psi: None }
            }
        });
        self.memory = Some(match &stats.memory {
            Some(memory) => MemoryStats {
                time: Time::from_nanoseconds(memory.timestamp),
                available_bytes: value(memory.available_bytes.as_ref()),
                usage_bytes: value(memory.usage_bytes.as_ref()),
                working_set_bytes: value(memory.working_set_bytes.as_ref()),
                rss_bytes: value(memory.rss_bytes.as_ref()),
                page_faults: value(memory.page_faults.as_ref()),
                major_page_faults: value(memory.major_page_faults.as_ref()),
                psi: memory.psi.as_ref().map(psi_by_runtime),
            },
            None => {
                let unless_whole = (!is_whole).then_some(0);
                MemoryStats {
                    time: now,
                    available_bytes: unless_whole,
                    usage_bytes: Some(0),
                    working_set_bytes: Some(0),
                    rss_bytes: Some(0),
                    page_faults: unless_whole,
                    major_page_faults: unless_whole,
                    psi: None,
                }
            }
        });
        self.swap = Some(match &stats.swap {
            Some(swap) => SwapStats {
                time: Time::from_nanoseconds(swap.timestamp),
                swap_available_bytes: value(swap.swap_available_bytes.as_ref()),
                swap_usage_bytes: value(swap.swap_usage_bytes.as_ref()),
            },
            None => SwapStats { time: now, swap_available_bytes: Some(0), swap_usage_bytes: Some(0) },
        });
        if is_whole {
            self.io = Some(match &stats.io {
                Some(io) => IoStats {
                    time: Time::from_nanoseconds(io.timestamp),
                    psi: io.psi.as_ref().map(psi_by_runtime),
                },
                None => IoStats { time: now, psi: None },
            });
        }
    }
}

impl PodStats {
    /// What its containers use together, where it has no cgroup of its own.
    fn sum_up(&mut self) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = Some(sum.unwrap_or(0).saturating_add(more.unwrap_or(0)));
        };
        for container in &self.containers {
            if let Some(more) = &container.cpu {
                let cpu = self.cpu.get_or_insert_default();
                cpu.time = more.time;
                add(&mut cpu.usage_nano_cores, more.usage_nano_cores);
                add(&mut cpu.usage_core_nano_seconds, more.usage_core_nano_seconds);
            }
            if let Some(more) = &container.memory {
                let memory = self.memory.get_or_insert_default();
                memory.time = more.time;
                add(&mut memory.available_bytes, more.available_bytes);
                add(&mut memory.usage_bytes, more.usage_bytes);
                add(&mut memory.working_set_bytes, more.working_set_bytes);
                add(&mut memory.rss_bytes, more.rss_bytes);
                add(&mut memory.page_faults, more.page_faults);
                add(&mut memory.major_page_faults, more.major_page_faults);
            }
            if let Some(more) = &container.io {
                // How long a pod stood still cannot be told from its containers.
                self.io.get_or_insert(IoStats { time: more.time, psi: None });
            }
            if let Some(more) = &container.swap {
                let swap = self.swap.get_or_insert_default();
                swap.time = more.time;
                add(&mut swap.swap_available_bytes, more.swap_available_bytes);
                add(&mut swap.swap_usage_bytes, more.swap_usage_bytes);
            }
        }
    }

    fn take_storage(&mut self, view: &View, whole: &Whole, storage: Option<&PodStorage>) {
        let now = Time(view.walk.time);
        let mut ephemeral = fs_of(&whole.root, now);
        for container in &self.containers {
            let Some(rootfs) = &container.rootfs else { continue };
            ephemeral.add(rootfs);
            if let Some(logs) = &container.logs {
                ephemeral.add(logs);
            }
        }
        if let Some(storage) = storage {
            for volume in &storage.volumes {
                let usage = &volume.usage;
                let fs = FsStats {
                    time: Some(Time(usage.time)),
                    available_bytes: Some(usage.available),
                    capacity_bytes: Some(usage.capacity),
                    used_bytes: Some(usage.used),
                    inodes_free: Some(usage.inodes_free),
                    inodes: Some(usage.inodes),
                    inodes_used: Some(usage.inodes_used),
                };
                if volume.is_local_ephemeral {
                    ephemeral.add(&fs);
                }
                let pvc_ref = volume.claim.as_ref().map(|claim| PvcReference {
                    name: claim.to_string(),
                    namespace: volume.namespace.to_string(),
                });
                let health = usage.condition.as_ref();
                self.volume.push(VolumeStats {
                    fs,
                    name: volume.name.to_string(),
                    pvc_ref,
                    volume_health_stats: health.map(|known| VolumeHealthStats { abnormal: known.abnormal }),
                });
            }
            for files in [storage.logs, storage.etc_hosts].into_iter().flatten() {
                ephemeral.add(&files.on(&whole.root, now));
            }
        }
        self.ephemeral_storage = Some(ephemeral);
    }
}

impl FsStats {
    fn add(&mut self, other: &FsStats) {
        let sum = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
            (known, None) | (None, known) => known,
        };
        self.used_bytes = sum(self.used_bytes, other.used_bytes);
        self.inodes_used = sum(self.inodes_used, other.inodes_used);
        self.time = self.time.max(other.time);
    }
}

impl Files {
    fn on(&self, room: &Room, time: Time) -> FsStats {
        let (used_bytes, inodes_used) = self.used.unzip();
        FsStats { used_bytes, inodes_used, ..fs_of(room, time) }
    }
}

fn cpu_of(group: &Group) -> Option<CpuStats> {
    let cpu = group.sample.cpu.as_ref()?;
    Some(CpuStats {
        time: Time(group.sample.time),
        usage_nano_cores: Some(group.rate.unwrap_or(0)),
        usage_core_nano_seconds: Some(cpu.usage),
        psi: Some(psi_of(&cpu.pressure)),
    })
}

fn memory_of(sample: &Sample) -> Option<MemoryStats> {
    let memory = sample.memory.as_ref()?;
    let working_set = memory.working_set();
    let limit = Some(memory.limit).filter(|limit| *limit <= UNLIMITED);
    Some(MemoryStats {
        time: Time(sample.time),
        available_bytes: limit.map(|limit| limit.saturating_sub(working_set)),
        usage_bytes: Some(memory.usage),
        working_set_bytes: Some(working_set),
        rss_bytes: Some(memory.rss),
        page_faults: Some(memory.page_faults),
        major_page_faults: Some(memory.major_page_faults),
        psi: Some(psi_of(&memory.pressure)),
    })
}

fn swap_of(sample: &Sample) -> Option<SwapStats> {
    let memory = sample.memory.as_ref()?;
    let limit = Some(memory.swap_limit).filter(|limit| *limit <= UNLIMITED);
    Some(SwapStats {
        time: Time(sample.time),
        swap_available_bytes: limit.map(|limit| limit.saturating_sub(memory.swap)),
        swap_usage_bytes: Some(memory.swap),
    })
}

fn io_of(sample: &Sample) -> Option<IoStats> {
    let io = sample.io.as_ref()?;
    Some(IoStats { time: Time(sample.time), psi: Some(psi_of(&io.pressure)) })
}

fn network_of(group: &Group) -> Option<NetworkStats> {
    let interfaces: Vec<InterfaceStats> = group.network.as_ref()?.iter().map(interface).collect();
    let default = interfaces.iter().find(|known| known.name == DEFAULT_INTERFACE).cloned();
    Some(NetworkStats { time: Time(group.sample.time), default: default.unwrap_or_default(), interfaces })
}

fn interface(known: &Interface) -> InterfaceStats {
    InterfaceStats {
        name: known.name.clone(),
        rx_bytes: Some(known.received.bytes),
        rx_errors: Some(known.received.errors),
        tx_bytes: Some(known.sent.bytes),
        tx_errors: Some(known.sent.errors),
    }
}

fn fs_of(room: &Room, time: Time) -> FsStats {
    FsStats {
        time: Some(time),
        available_bytes: Some(room.available),
        capacity_bytes: Some(room.capacity),
        inodes_free: Some(room.inodes_free),
        inodes: Some(room.inodes),
        ..FsStats::default()
    }
}

/// What the runtime says that something takes, and the room where that is.
fn image_fs(usage: &v1::FilesystemUsage, room: Option<&Room>) -> FsStats {
    let time = Time::from_nanoseconds(usage.timestamp);
    FsStats {
        time: Some(time),
        used_bytes: usage.used_bytes.map(|value| value.value),
        inodes_used: usage.inodes_used.map(|value| value.value),
        ..room.map_or_else(|| FsStats { time: Some(time), ..FsStats::default() }, |room| fs_of(room, time))
    }
}

fn psi_of(pressure: &Pressure) -> PsiStats {
    let data = |stall: &Stall| PsiData {
        total: stall.total,
        avg10: stall.avg10,
        avg60: stall.avg60,
        avg300: stall.avg300,
    };
    PsiStats { full: data(&pressure.full), some: data(&pressure.some) }
}

fn psi_by_runtime(stats: &v1::PsiStats) -> PsiStats {
    let data = |data: Option<&v1::PsiData>| {
        data.map_or_else(PsiData::default, |data| PsiData {
            total: data.total,
            avg10: data.avg10,
            avg60: data.avg60,
            avg300: data.avg300,
        })
    };
    PsiStats { full: data(stats.full.as_ref()), some: data(stats.some.as_ref()) }
}
