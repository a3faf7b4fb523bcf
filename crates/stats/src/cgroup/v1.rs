//! A cgroup of v1, which is in a tree for each controller.

use std::ffi::CStr;

use super::sample::{Before, Cpu, Depth, DiskUse, Io, Limits, Memory, Pressure, Sample};
use super::{device, most_threads, threads_now};
use crate::bytes::{each_pair, lines, number, words};
use crate::directory::{Buffer, Directory};
use crate::known::{Start, Still};

const NANOSECONDS: u64 = 1_000_000_000;
/// How many ticks there are in a second where the kernel counts time in ticks.
const TICKS: u64 = 100;

/// Its directories, as far as they are read.
#[derive(Debug)]
pub(crate) struct OpenV1 {
    pub(super) accounts: Directory,
    /// Where it is not that of the accounts.
    pub(super) cpu: Option<Directory>,
    pub(super) memory: Option<Directory>,
    pub(super) blkio: Option<Directory>,
    pub(super) pids: Option<Directory>,
}

pub(super) fn cpu_usage(accounts: &Directory, buffer: &mut Buffer) -> Option<u64> {
    accounts.number(c"cpuacct.usage", buffer)
}

impl OpenV1 {
    /// Only of memory enough is read that it is worth to open its directory.
    pub(super) fn below(&self, name: &str, depth: Depth) -> OpenV1 {
        let named = |directory: &Option<Directory>| directory.as_ref().map(|above| above.named(name));
        let memory = match depth {
            Depth::Everything => self.memory.as_ref().and_then(|above| above.below(name)),
            Depth::CpuAndMemory | Depth::Summary => named(&self.memory),
        };
        OpenV1 {
            accounts: self.accounts.named(name),
            cpu: named(&self.cpu),
            memory,
            blkio: named(&self.blkio),
            pids: named(&self.pids),
        }
    }

    pub(super) fn cpu(&self) -> &Directory {
        self.cpu.as_ref().unwrap_or(&self.accounts)
    }

    /// The earliest of its trees counts.
    pub(super) fn start(&self, known: Option<Start>) -> Option<Start> {
        const FILE: &CStr = c"cgroup.clone_children";
        let mut start = self.accounts.start(FILE, known)?;
        if known.is_none_or(|known| known.inode != start.inode) {
            let of_memory = self.memory.as_ref().and_then(|memory| memory.start(FILE, None));
            start.at = of_memory.map_or(start.at, |other| other.at.min(start.at));
        }
        Some(start)
    }

    pub(super) fn read(&self, depth: Depth, before: Before<'_>, buffer: &mut Buffer) -> Option<Sample> {
        let usage = match before.still.filter(|_| before.is_above_still) {
            Some(still) => still.cpu.usage,
            None => cpu_usage(&self.accounts, buffer)?,
        };
        let still = before.still.filter(|still| still.cpu.usage == usage);
        let limits = before.limits.unwrap_or_else(|| self.limits(depth, buffer));
        let mut cpu = still.map_or_else(|| Cpu { usage, ..Cpu::default() }, |still| still.cpu.clone());
        cpu.take_limits(limits);
        if depth == Depth::Everything && still.is_none() {
            let text = self.accounts.read(c"cpuacct.stat", buffer).unwrap_or_default();
            each_pair(text, |name, ticks| match name {
                b"user" => cpu.user = ticks * (NANOSECONDS / TICKS),
                b"system" => cpu.system = ticks * (NANOSECONDS / TICKS),
                _ => {}
            });
            // Without a limit nothing is held back, and nothing is told of it.
            if cpu.quota != 0 {
                cpu.take_throttling(self.cpu().read(c"cpu.stat", buffer).unwrap_or_default());
            }
        }
        let mut sample = Sample { cpu: Some(cpu), is_still: still.is_some(), ..Sample::default() };
        let memory = self.memory.as_ref();
        sample.memory = memory.and_then(|memory| read_memory(memory, depth, limits, still, buffer));
        // Nothing else that was read says whether it is there.
        if before.is_above_still && sample.memory.is_none() {
            return None;
        }
        sample.io = self.blkio.as_ref().map(|blkio| Io {
            disks: if depth == Depth::Everything { disks(blkio, buffer) } else { Vec::new() },
            pressure: Pressure::default(),
        });
        if let Some(pids) = &self.pids {
            let threads = still.map_or_else(|| threads_now(pids, buffer), |still| still.threads);
            sample.threads = (threads, limits.threads);
        }
        Some(sample)
    }

    fn limits(&self, depth: Depth, buffer: &mut Buffer) -> Limits {
        let mut limits = Limits::default();
        if let Some(memory) = &self.memory {
            let mut number = |name| memory.number(name, buffer).unwrap_or(0);
            limits.memory = number(c"memory.limit_in_bytes");
            limits.swap = number(c"memory.memsw.limit_in_bytes");
            if depth == Depth::Everything {
                limits.reservation = number(c"memory.soft_limit_in_bytes");
            }
        }
        if depth == Depth::Everything {
            let mut number = |name| self.cpu().number(name, buffer).unwrap_or(0);
            limits.shares = number(c"cpu.shares");
            limits.period = number(c"cpu.cfs_period_us");
            limits.quota = number(c"cpu.cfs_quota_us");
            limits.threads = self.pids.as_ref().map_or(0, |pids| most_threads(pids, buffer));
        }
        limits
    }
}

impl Cpu {
    fn take_throttling(&mut self, text: &[u8]) {
        each_pair(text, |name, value| match name {
            b"nr_periods" => self.periods = value,
            b"nr_throttled" => self.throttled_periods = value,
            b"throttled_time" => self.throttled = value,
            b"nr_bursts" => self.burst_periods = value,
            b"burst_time" => self.burst = value,
            _ => {}
        });
    }
}

fn read_memory(
    directory: &Directory,
    depth: Depth,
    limits: Limits,
    still: Option<&Still>,
    buffer: &mut Buffer,
) -> Option<Memory> {
    let mut memory =
        Memory { usage: directory.number(c"memory.usage_in_bytes", buffer)?, ..Memory::default() };
    memory.take_limits(limits);
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
    if depth == Depth::Everything {
        let mut number = |name| directory.number(name, buffer).unwrap_or(0);
        // The kernel frees it when it likes.
        memory.kernel = number(c"memory.kmem.usage_in_bytes");
        if let Some(still) = still {
            memory.take_still(still);
            return Some(memory);
        }
        memory.max_usage = number(c"memory.max_usage_in_bytes");
        memory.failcnt = number(c"memory.failcnt");
        each_pair(directory.read(c"memory.oom_control", buffer).unwrap_or_default(), |name, value| {
            if name == b"oom_kill" {
                memory.oom_kills = value;
            }
        });
    }
    Some(memory)
}

/// `8:0 Read 4096`, a line for each operation, and a total of all disks.
fn disks(directory: &Directory, buffer: &mut Buffer) -> Vec<DiskUse> {
    const OPERATIONS: [&str; 6] = ["Read", "Write", "Sync", "Async", "Discard", "Total"];
    let mut disks: Vec<DiskUse> = Vec::new();
    let take = |disks: &mut Vec<DiskUse>, text: &[u8], is_bytes: bool| {
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
        (c"blkio.throttle.io_serviced_recursive", c"blkio.throttle.io_serviced", false),
        (c"blkio.throttle.io_service_bytes_recursive", c"blkio.throttle.io_service_bytes", true),
    ] {
        // What no disk did anything for took no bytes either.
        if is_bytes && disks.is_empty() {
            break;
        }
        for name in [recursive, own] {
            if let Some(text) = directory.read(name, buffer) {
                take(&mut disks, text, is_bytes);
                break;
            }
        }
    }
    disks
}
