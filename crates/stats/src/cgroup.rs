//! What the kernel counted for a cgroup and what it allows it, in both versions, in the words of cAdvisor.
//!
//! Files that are not there count nothing: kernels differ in what they have.

mod sample;

use std::path::{Path, PathBuf};

use crablet_host::cgroup::Hierarchy;

use crate::bytes::{each_pair, lines, number, words};
use crate::directory::{Buffer, Directory};

pub(crate) use sample::{Cpu, Depth, DiskUse, Io, Memory, Pressure, Sample, Stall};

const NANOSECONDS: u64 = 1_000_000_000;
/// How many ticks there are in a second where the kernel counts time in ticks.
const TICKS: u64 = 100;

/// The trees of cgroups, by what is read in each.
#[derive(Debug, Clone)]
pub(crate) enum Trees {
    V1 { cpu: PathBuf, cpuacct: PathBuf, memory: PathBuf, pids: Option<PathBuf>, blkio: Option<PathBuf> },
    V2 { mount: PathBuf },
}

impl Trees {
    /// Those of a machine, unless one is not mounted without which nothing can be told.
    pub(crate) fn of(hierarchy: &Hierarchy) -> Option<Trees> {
        Some(match hierarchy {
            Hierarchy::V2 { mount } => Trees::V2 { mount: mount.clone() },
            Hierarchy::V1(mounts) => {
                let at = |name: &str| mounts.controllers.get(name).cloned();
                Trees::V1 {
                    cpu: at("cpu")?,
                    cpuacct: at("cpuacct")?,
                    memory: at("memory")?,
                    pids: at("pids"),
                    blkio: at("blkio"),
                }
            }
        })
    }

    /// Whether the kernel tells pressure: the root has it then.
    pub(crate) fn have_pressure(&self) -> bool {
        matches!(self, Trees::V2 { mount } if mount.join("cpu.pressure").exists())
    }

    /// Where to look for which cgroups there are, and which processes are in them.
    pub(crate) fn directory(&self, cgroup: &str) -> PathBuf {
        match self {
            Trees::V1 { cpu, .. } => below(cpu, cgroup),
            Trees::V2 { mount } => below(mount, cgroup),
        }
    }

    /// What a cgroup used of the CPU so far, in nanoseconds.
    pub(crate) fn cpu_usage(&self, cgroup: &str, buffer: &mut Buffer) -> Option<u64> {
        match self {
            Trees::V1 { cpuacct, .. } => {
                Directory::open(&below(cpuacct, cgroup))?.number(c"cpuacct.usage", buffer)
            }
            Trees::V2 { mount } => {
                let text = Directory::open(&below(mount, cgroup))?;
                let mut cpu = Cpu::default();
                cpu.take_v2(text.read(c"cpu.stat", buffer)?);
                Some(cpu.usage)
            }
        }
    }

    /// What a cgroup used and may use; nothing if there is no such cgroup.
    pub(crate) fn read(&self, cgroup: &str, depth: Depth, buffer: &mut Buffer) -> Option<Sample> {
        match self {
            Trees::V1 { .. } => self.read_v1(cgroup, depth, buffer),
            Trees::V2 { mount } => read_v2(&Directory::open(&below(mount, cgroup))?, depth, buffer),
        }
    }

    fn read_v1(&self, cgroup: &str, depth: Depth, buffer: &mut Buffer) -> Option<Sample> {
        let Trees::V1 { cpu, cpuacct, memory, pids, blkio } = self else { return None };
        let accounts = Directory::open(&below(cpuacct, cgroup))?;
        let memory = Directory::open(&below(memory, cgroup));
        let created = [Some(&accounts), memory.as_ref()];
        let mut sample = Sample {
            created: created.into_iter().flatten().filter_map(Directory::modified).min(),
            ..Sample::default()
        };
        let mut used = Cpu { usage: accounts.number(c"cpuacct.usage", buffer)?, ..Cpu::default() };
        if depth == Depth::Everything {
            each_pair(accounts.read(c"cpuacct.stat", buffer).unwrap_or_default(), |name, ticks| match name {
                b"user" => used.user = ticks * (NANOSECONDS / TICKS),
                b"system" => used.system = ticks * (NANOSECONDS / TICKS),
                _ => {}
            });
            let other = (cpu != cpuacct).then(|| Directory::open(&below(cpu, cgroup))).flatten();
            used.take_limits_v1(other.as_ref().unwrap_or(&accounts), buffer);
        }
        sample.cpu = Some(used);
        sample.memory = memory.and_then(|memory| memory_v1(&memory, depth, buffer));
        if depth >= Depth::Summary {
            sample.io = blkio.as_ref().and_then(|blkio| {
                let blkio = Directory::open(&below(blkio, cgroup))?;
                let disks = if depth == Depth::Everything { disks_v1(&blkio, buffer) } else { Vec::new() };
                Some(Io { disks, pressure: Pressure::default() })
            });
        }
        if depth == Depth::Everything
            && let Some(pids) = pids.as_ref().and_then(|pids| Directory::open(&below(pids, cgroup)))
        {
            sample.threads = threads(&pids, buffer);
        }
        Some(sample)
    }
}

fn below(mount: &Path, cgroup: &str) -> PathBuf {
    mount.join(cgroup.trim_start_matches('/'))
}

fn read_v2(directory: &Directory, depth: Depth, buffer: &mut Buffer) -> Option<Sample> {
    let mut sample = Sample { created: directory.modified(), ..Sample::default() };
    let mut cpu = Cpu::default();
    cpu.take_v2(directory.read(c"cpu.stat", buffer)?);
    cpu.pressure = pressure(directory.read(c"cpu.pressure", buffer).unwrap_or_default());
    if depth == Depth::Everything {
        if let Some(weight) = directory.number(c"cpu.weight", buffer).filter(|weight| *weight > 0) {
            // From 1 to 10,000 for 2 to 262,144, as cAdvisor takes them.
            cpu.shares = (weight - 1).saturating_mul(262_142) / 9_999 + 2;
        }
        let max = directory.read(c"cpu.max", buffer).unwrap_or_default();
        let mut max = words(max).map(number);
        cpu.quota = max.next().flatten().filter(|quota| *quota != u64::MAX).unwrap_or(0);
        cpu.period = max.next().flatten().unwrap_or(0);
    }
    sample.cpu = Some(cpu);
    sample.memory = memory_v2(directory, depth, buffer);
    if depth >= Depth::Summary {
        let disks = directory.read(c"io.stat", buffer).map(disks_v2);
        sample.io = disks.map(|disks| Io {
            disks,
            pressure: pressure(directory.read(c"io.pressure", buffer).unwrap_or_default()),
        });
    }
    if depth == Depth::Everything {
        sample.threads = threads(directory, buffer);
    }
    Some(sample)
}

impl Cpu {
    fn take_v2(&mut self, text: &[u8]) {
        each_pair(text, |name, value| match name {
            b"usage_usec" => self.usage = value.saturating_mul(1_000),
            b"user_usec" => self.user = value.saturating_mul(1_000),
            b"system_usec" => self.system = value.saturating_mul(1_000),
            b"nr_periods" => self.periods = value,
            b"nr_throttled" => self.throttled_periods = value,
            b"throttled_usec" => self.throttled = value.saturating_mul(1_000),
            b"nr_bursts" => self.burst_periods = value,
            b"burst_usec" => self.burst = value.saturating_mul(1_000),
            _ => {}
        });
    }

    fn take_limits_v1(&mut self, cpu: &Directory, buffer: &mut Buffer) {
        each_pair(cpu.read(c"cpu.stat", buffer).unwrap_or_default(), |name, value| match name {
            b"nr_periods" => self.periods = value,
            b"nr_throttled" => self.throttled_periods = value,
            b"throttled_time" => self.throttled = value,
            b"nr_bursts" => self.burst_periods = value,
            b"burst_time" => self.burst = value,
            _ => {}
        });
        self.shares = cpu.number(c"cpu.shares", buffer).unwrap_or(0);
        self.period = cpu.number(c"cpu.cfs_period_us", buffer).unwrap_or(0);
        self.quota = cpu.number(c"cpu.cfs_quota_us", buffer).unwrap_or(0);
    }
}

fn memory_v1(directory: &Directory, depth: Depth, buffer: &mut Buffer) -> Option<Memory> {
    let mut memory =
        Memory { usage: directory.number(c"memory.usage_in_bytes", buffer)?, ..Memory::default() };
    each_pair(directory.read(c"memory.stat", buffer).unwrap_or_default(), |name, value| match name {
        b"total_cache" => memory.cache = value,
        b"total_rss" => memory.rss = value,
        b"total_swap" => memory.swap = value,
        b"total_mapped_file" => memory.mapped_file = value,
        b"total_active_file" => memory.active_file = value,
        b"total_inactive_file" => memory.inactive_file = value,
        b"pgfault" => memory.page_faults = value,
        b"pgmajfault" => memory.major_page_faults = value,
        _ => {}
    });
    let mut number = |name| directory.number(name, buffer).unwrap_or(0);
    memory.limit = number(c"memory.limit_in_bytes");
    memory.swap_limit = number(c"memory.memsw.limit_in_bytes");
    if depth == Depth::Everything {
        memory.max_usage = number(c"memory.max_usage_in_bytes");
        memory.failcnt = number(c"memory.failcnt");
        memory.kernel = number(c"memory.kmem.usage_in_bytes");
        memory.reservation = number(c"memory.soft_limit_in_bytes");
        each_pair(directory.read(c"memory.oom_control", buffer).unwrap_or_default(), |name, value| {
            if name == b"oom_kill" {
                memory.oom_kills = value;
            }
        });
    }
    Some(memory)
}

fn memory_v2(directory: &Directory, depth: Depth, buffer: &mut Buffer) -> Option<Memory> {
    let mut memory = Memory::default();
    let mut slab = 0;
    each_pair(directory.read(c"memory.stat", buffer)?, |name, value| match name {
        b"file" => memory.cache = value,
        b"anon" => memory.rss = value,
        b"file_mapped" => memory.mapped_file = value,
        b"active_file" => memory.active_file = value,
        b"inactive_file" => memory.inactive_file = value,
        b"pgfault" => memory.page_faults = value,
        b"pgmajfault" => memory.major_page_faults = value,
        b"slab" => slab = value,
        _ => {}
    });
    memory.pressure = pressure(directory.read(c"memory.pressure", buffer).unwrap_or_default());
    match directory.number(c"memory.current", buffer) {
        Some(usage) => memory.usage = usage,
        // The root has no such file: what v1 counts there is the sum of these.
        None => memory.usage = memory.rss.saturating_add(memory.cache),
    }
    let mut number = |name| directory.number(name, buffer).unwrap_or(0);
    memory.swap = number(c"memory.swap.current");
    memory.limit = number(c"memory.max");
    memory.swap_limit = number(c"memory.swap.max");
    if depth == Depth::Everything {
        memory.max_usage = number(c"memory.peak");
        memory.reservation = number(c"memory.min");
        each_pair(directory.read(c"memory.events", buffer).unwrap_or_default(), |name, value| {
            if name == b"oom_kill" {
                memory.oom_kills = value;
            }
        });
    }
    Some(memory)
}

fn threads(directory: &Directory, buffer: &mut Buffer) -> (u64, u64) {
    let now = directory.number(c"pids.current", buffer).unwrap_or(0);
    let most = directory.number(c"pids.max", buffer).filter(|most| *most != u64::MAX);
    (now, most.unwrap_or(0))
}

/// `8:0 rbytes=90112 wbytes=0 rios=10 wios=0 dbytes=0 dios=0`
fn disks_v2(text: &[u8]) -> Vec<DiskUse> {
    let mut disks = Vec::new();
    for line in lines(text) {
        let mut fields = words(line);
        let Some(device) = fields.next().and_then(device) else { continue };
        let mut disk = DiskUse { device, ..DiskUse::default() };
        for field in fields {
            let Some(equals) = memchr::memchr(b'=', field) else { continue };
            let Some(value) = number(&field[equals + 1..]) else { continue };
            match &field[..equals] {
                b"rbytes" => disk.bytes.push(("Read", value)),
                b"wbytes" => disk.bytes.push(("Write", value)),
                b"dbytes" => disk.bytes.push(("Discard", value)),
                b"rios" => disk.operations.push(("Read", value)),
                b"wios" => disk.operations.push(("Write", value)),
                b"dios" => disk.operations.push(("Discard", value)),
                _ => {}
            }
        }
        disks.push(disk);
    }
    disks
}

/// `8:0 Read 4096`, a line for each operation, and a total of all disks.
fn disks_v1(directory: &Directory, buffer: &mut Buffer) -> Vec<DiskUse> {
    const OPERATIONS: [&str; 6] = ["Read", "Write", "Sync", "Async", "Discard", "Total"];
    let mut disks: Vec<DiskUse> = Vec::new();
    let mut take = |text: &[u8], is_bytes: bool| {
        for line in lines(text) {
            let mut fields = words(line);
            let (Some(device), Some(operation), Some(value)) =
                (fields.next().and_then(device), fields.next(), fields.next().and_then(number))
            else {
                continue;
            };
            let Some(operation) = OPERATIONS.into_iter().find(|name| name.as_bytes() == operation) else {
                continue;
            };
            let at = disks.iter().position(|disk| disk.device == device).unwrap_or_else(|| {
                disks.push(DiskUse { device, ..DiskUse::default() });
                disks.len() - 1
            });
            let row = if is_bytes { &mut disks[at].bytes } else { &mut disks[at].operations };
            row.push((operation, value));
        }
    };
    for (recursive, own, is_bytes) in [
        (c"blkio.throttle.io_service_bytes_recursive", c"blkio.throttle.io_service_bytes", true),
        (c"blkio.throttle.io_serviced_recursive", c"blkio.throttle.io_serviced", false),
    ] {
        if let Some(text) = directory.read(recursive, buffer) {
            take(text, is_bytes);
        } else if let Some(text) = directory.read(own, buffer) {
            take(text, is_bytes);
        }
    }
    disks
}

fn device(text: &[u8]) -> Option<(u32, u32)> {
    let colon = memchr::memchr(b':', text)?;
    let part = |text| number(text).and_then(|value| u32::try_from(value).ok());
    Some((part(&text[..colon])?, part(&text[colon + 1..])?))
}

/// `some avg10=0.12 avg60=0.00 avg300=0.00 total=4711`
pub(crate) fn pressure(text: &[u8]) -> Pressure {
    let mut pressure = Pressure::default();
    for line in lines(text) {
        let mut fields = words(line);
        let stall = match fields.next() {
            Some(b"some") => &mut pressure.some,
            Some(b"full") => &mut pressure.full,
            _ => continue,
        };
        for field in fields {
            let Some((name, value)) = std::str::from_utf8(field).ok().and_then(|field| field.split_once('='))
            else {
                continue;
            };
            match name {
                "avg10" => stall.avg10 = value.parse().unwrap_or_default(),
                "avg60" => stall.avg60 = value.parse().unwrap_or_default(),
                "avg300" => stall.avg300 = value.parse().unwrap_or_default(),
                "total" => stall.total = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
    }
    pressure
}

#[cfg(test)]
mod tests;
