//! A cgroup of v2, which is one directory.

use super::sample::{Before, Cpu, Depth, DiskUse, Io, Limits, Memory, Pressure, Sample};
use super::{device, most_threads, threads_now};
use crate::bytes::{each_pair, lines, number, words};
use crate::directory::{Buffer, Directory};
use crate::known::{Start, Still};

#[derive(Debug)]
pub(crate) struct OpenV2 {
    pub(super) directory: Directory,
    /// Older kernels do not count everything for the root. It is there all the same.
    pub(super) is_root: bool,
}

pub(super) fn cpu_usage(directory: &Directory, buffer: &mut Buffer) -> Option<u64> {
    let mut cpu = Cpu::default();
    cpu.take_v2(directory.read(c"cpu.stat", buffer)?);
    Some(cpu.usage)
}

impl OpenV2 {
    pub(super) fn read(&self, depth: Depth, before: Before<'_>, buffer: &mut Buffer) -> Option<Sample> {
        let directory = &self.directory;
        let mut cpu = match before.still.filter(|_| before.is_above_still) {
            Some(still) => still.cpu.clone(),
            None => {
                let mut cpu = Cpu::default();
                match directory.read(c"cpu.stat", buffer) {
                    Some(text) => cpu.take_v2(text),
                    None if self.is_root => {}
                    None => return None,
                }
                cpu
            }
        };
        let still = before.still.filter(|still| still.cpu.usage == cpu.usage);
        cpu.pressure = pressure(directory.read(c"cpu.pressure", buffer).unwrap_or_default());
        let limits = before.limits.unwrap_or_else(|| self.limits(depth, buffer));
        cpu.take_limits(limits);
        let mut sample = Sample { cpu: Some(cpu), is_still: still.is_some(), ..Sample::default() };
        sample.memory = read_memory(directory, depth, limits, still, buffer);
        if depth >= Depth::Summary {
            // The kernel tells pressure also where it does not count what disks do, which a summary does not show.
            let disks = match depth {
                Depth::Everything => disks(directory.read(c"io.stat", buffer).unwrap_or_default()),
                Depth::CpuAndMemory | Depth::Summary => Vec::new(),
            };
            let pressure = pressure(directory.read(c"io.pressure", buffer).unwrap_or_default());
            sample.io = Some(Io { disks, pressure });
        }
        if depth == Depth::Everything {
            let threads = still.map_or_else(|| threads_now(directory, buffer), |still| still.threads);
            sample.threads = (threads, limits.threads);
        }
        Some(sample)
    }

    pub(super) fn start(&self, known: Option<Start>) -> Option<Start> {
        self.directory.start(c"cgroup.events", known)
    }

    fn limits(&self, depth: Depth, buffer: &mut Buffer) -> Limits {
        let directory = &self.directory;
        let mut number_of = |name| directory.number(name, buffer).unwrap_or(0);
        let mut limits = Limits {
            memory: number_of(c"memory.max"),
            swap: number_of(c"memory.swap.max"),
            ..Limits::default()
        };
        if depth == Depth::Everything {
            limits.reservation = number_of(c"memory.min");
            // From 1 to 10,000 for 2 to 262,144, as cAdvisor takes them.
            limits.shares = match number_of(c"cpu.weight") {
                0 => 0,
                weight => (weight - 1).saturating_mul(262_142) / 9_999 + 2,
            };
            limits.threads = most_threads(directory, buffer);
            let mut max = words(directory.read(c"cpu.max", buffer).unwrap_or_default()).map(number);
            limits.quota = max.next().flatten().filter(|quota| *quota != u64::MAX).unwrap_or(0);
            limits.period = max.next().flatten().unwrap_or(0);
        }
        limits
    }
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
}

fn read_memory(
    directory: &Directory,
    depth: Depth,
    limits: Limits,
    still: Option<&Still>,
    buffer: &mut Buffer,
) -> Option<Memory> {
    let mut memory = Memory::default();
    each_pair(directory.read(c"memory.stat", buffer)?, |name, value| match name {
        b"file" => memory.cache = value,
        b"anon" => memory.rss = value,
        b"file_mapped" => memory.mapped_file = value,
        b"active_file" => memory.active_file = value,
        b"inactive_file" => memory.inactive_file = value,
        b"pgfault" => memory.page_faults = value,
        b"pgmajfault" => memory.major_page_faults = value,
        _ => {}
    });
    memory.take_limits(limits);
    memory.pressure = pressure(directory.read(c"memory.pressure", buffer).unwrap_or_default());
    match directory.number(c"memory.current", buffer) {
        Some(usage) => memory.usage = usage,
        // The root has no such file: what v1 counts there is the sum of these.
        None => memory.usage = memory.rss.saturating_add(memory.cache),
    }
    memory.swap = directory.number(c"memory.swap.current", buffer).unwrap_or(0);
    if let Some(still) = still.filter(|_| depth == Depth::Everything) {
        memory.take_still(still);
    } else if depth == Depth::Everything {
        memory.max_usage = directory.number(c"memory.peak", buffer).unwrap_or(0);
        // Each cgroup its own: those of the ones below would be counted again in every one above.
        each_pair(directory.read(c"memory.events.local", buffer).unwrap_or_default(), |name, value| {
            if name == b"oom_kill" {
                memory.oom_kills = value;
            }
        });
    }
    Some(memory)
}

/// `8:0 rbytes=90112 wbytes=0 rios=10 wios=0 dbytes=0 dios=0`. What is discarded is not told, as upstream does.
fn disks(text: &[u8]) -> Vec<DiskUse> {
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
                b"rios" => disk.operations.push(("Read", value)),
                b"wios" => disk.operations.push(("Write", value)),
                _ => {}
            }
        }
        disks.push(disk);
    }
    disks
}

/// `some avg10=0.12 avg60=0.00 avg300=0.00 total=4711`
fn pressure(text: &[u8]) -> Pressure {
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
