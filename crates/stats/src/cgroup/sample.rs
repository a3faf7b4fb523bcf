//! What is read of a cgroup: the numbers, without where they come from.

use jiff::Timestamp;

use crate::known::{Known, Still};

/// What is known of a cgroup before it is read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Before<'a> {
    /// They are not read again.
    pub(crate) limits: Option<Limits>,
    pub(crate) still: Option<&'a Still>,
    /// Whether no process ran in the one that it is in.
    pub(crate) is_above_still: bool,
}

impl Before<'_> {
    pub(crate) fn new(known: &Known, is_above_still: bool) -> Before<'_> {
        Before { limits: known.limits, still: known.still.as_deref(), is_above_still }
    }
}

/// How much is read. Each has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// `/metrics/resource`, and the summary with `only_cpu_and_memory`.
    CpuAndMemory,
    /// `/stats/summary`.
    Summary,
    /// `/metrics/cadvisor`.
    Everything,
}

/// What was read of a cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) time: Timestamp,
    pub(crate) created: Option<Timestamp>,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) memory: Option<Memory>,
    /// What the disks did for it, if the kernel counts that.
    pub(crate) io: Option<Io>,
    /// How many threads there are, and how many there may be; no limit is zero.
    pub(crate) threads: (u64, u64),
    /// Whether no process of it has run since what is known of it was read.
    pub(crate) is_still: bool,
}

/// Times are in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cpu {
    pub(crate) usage: u64,
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) periods: u64,
    pub(crate) throttled_periods: u64,
    pub(crate) throttled: u64,
    pub(crate) burst_periods: u64,
    pub(crate) burst: u64,
    pub(crate) shares: u64,
    /// In microseconds, as the next.
    pub(crate) period: u64,
    /// No limit is zero.
    pub(crate) quota: u64,
    pub(crate) pressure: Pressure,
}

/// What a cgroup may use; [`Cpu`] and [`Memory`] say in what units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) shares: u64,
    pub(crate) period: u64,
    pub(crate) quota: u64,
    pub(crate) memory: u64,
    pub(crate) swap: u64,
    pub(crate) reservation: u64,
    pub(crate) threads: u64,
    /// Files that its first process may have open, if that is known.
    pub(crate) open_files: Option<i64>,
}

impl Sample {
    /// What it may use, as it was read with all the rest.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits { threads: self.threads.1, ..Limits::default() };
        if let Some(cpu) = &self.cpu {
            (limits.shares, limits.period, limits.quota) = (cpu.shares, cpu.period, cpu.quota);
        }
        if let Some(memory) = &self.memory {
            (limits.memory, limits.swap, limits.reservation) =
                (memory.limit, memory.swap_limit, memory.reservation);
        }
        limits
    }
}

impl Cpu {
    pub(super) fn take_limits(&mut self, limits: Limits) {
        let Limits { shares, period, quota, .. } = limits;
        (self.shares, self.period, self.quota) = (shares, period, quota);
    }
}

/// In bytes, but for what is counted. No limit is a very large number.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) usage: u64,
    pub(crate) max_usage: u64,
    pub(crate) failcnt: u64,
    pub(crate) kernel: u64,
    pub(crate) cache: u64,
    pub(crate) rss: u64,
    pub(crate) swap: u64,
    pub(crate) mapped_file: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    pub(crate) oom_kills: u64,
    pub(crate) limit: u64,
    pub(crate) swap_limit: u64,
    pub(crate) reservation: u64,
    pub(crate) pressure: Pressure,
}

impl Memory {
    pub(super) fn take_limits(&mut self, limits: Limits) {
        let Limits { memory, swap, reservation, .. } = limits;
        (self.limit, self.swap_limit, self.reservation) = (memory, swap, reservation);
    }

    /// What changes only when a process runs.
    pub(super) fn take_still(&mut self, still: &Still) {
        // Zero is that of a kernel that does not tell it.
        self.max_usage = if still.max_memory == 0 { 0 } else { still.max_memory.max(self.usage) };
        (self.failcnt, self.oom_kills) = (still.memory_failures, still.oom_kills);
    }

    /// What cannot be given back easily.
    pub(crate) fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Io {
    pub(crate) disks: Vec<DiskUse>,
    pub(crate) pressure: Pressure,
}

/// What one disk did for a cgroup, by what was asked of it: `Read`, `Write` and so on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DiskUse {
    pub(crate) device: (u32, u32),
    pub(crate) bytes: Vec<(&'static str, u64)>,
    pub(crate) operations: Vec<(&'static str, u64)>,
}

impl DiskUse {
    pub(crate) fn of(row: &[(&'static str, u64)], operation: &str) -> u64 {
        row.iter().find(|(name, _)| *name == operation).map_or(0, |(_, value)| *value)
    }
}

/// For how long work stood still for lack of something: some of it, and all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pressure {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

/// In microseconds, and in per cent of the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Stall {
    pub(crate) total: u64,
    pub(crate) avg10: f64,
    pub(crate) avg60: f64,
    pub(crate) avg300: f64,
}
