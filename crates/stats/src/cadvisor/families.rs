//! The metrics of cAdvisor that the kubelet includes: their names, help and types, and where their values are.

use crablet_metrics::Kind;

use crate::cgroup::{Cpu, DiskUse, Memory, Pressure};
use crate::file_systems::FileSystem;
use crate::proc::Interface;
use crate::snapshot::Group;

/// From here on a limit is none: the kernel rounds it.
const UNLIMITED: u64 = 1 << 62;

pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) source: Source,
    /// Whether it is there only where the kernel tells pressure.
    pub(super) needs_pressure: bool,
}

/// Where values come from.
pub(super) enum Source {
    /// One of a cgroup, with the time.
    Value(fn(&Group) -> Option<f64>),
    /// One of a cgroup that is set and not counted: without a time.
    Limit(fn(&Group) -> Option<f64>),
    /// One for each disk or file system.
    Disk(Option<fn(&DiskUse) -> f64>, Option<fn(&FileSystem) -> f64>),
    Usage,
    Failures,
    LastSeen,
    Tasks,
    OpenFiles,
    /// All of [`TRAFFIC`].
    Network,
    Blkio,
    Scrape,
}

const fn family(name: &'static str, help: &'static str, kind: Kind, source: Source) -> Family {
    Family { name, help, kind, source, needs_pressure: false }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Group) -> Option<f64>) -> Family {
    family(name, help, Kind::Counter, Source::Value(value))
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Group) -> Option<f64>) -> Family {
    family(name, help, Kind::Gauge, Source::Value(value))
}

const fn limit(name: &'static str, help: &'static str, value: fn(&Group) -> Option<f64>) -> Family {
    family(name, help, Kind::Gauge, Source::Limit(value))
}

const fn pressure(name: &'static str, help: &'static str, value: fn(&Group) -> Option<f64>) -> Family {
    Family { needs_pressure: true, ..counter(name, help, value) }
}

const fn fs_gauge(name: &'static str, help: &'static str, value: fn(&FileSystem) -> f64) -> Family {
    family(name, help, Kind::Gauge, Source::Disk(None, Some(value)))
}

const fn fs_counter(name: &'static str, help: &'static str, value: fn(&FileSystem) -> f64) -> Family {
    family(name, help, Kind::Counter, Source::Disk(None, Some(value)))
}

fn cpu(group: &Group, value: fn(&Cpu) -> f64) -> Option<f64> {
    Some(group.sample.cpu.as_ref().map_or(0.0, value))
}

/// What is counted only where the CPU is limited.
fn throttling(group: &Group, value: fn(&Cpu) -> u64) -> Option<f64> {
    group.sample.cpu.as_ref().filter(|cpu| cpu.quota != 0).map(|cpu| value(cpu) as f64)
}

fn memory(group: &Group, value: fn(&Memory) -> u64) -> Option<f64> {
    Some(group.sample.memory.as_ref().map_or(0, value) as f64)
}

fn memory_limit(group: &Group, value: fn(&Memory) -> u64) -> Option<f64> {
    let limit = value(group.sample.memory.as_ref()?);
    Some(if limit > UNLIMITED { 0.0 } else { limit as f64 })
}

fn stalled(pressure: Option<&Pressure>, all: bool) -> Option<f64> {
    let pressure = pressure.copied().unwrap_or_default();
    Some((if all { pressure.full.total } else { pressure.some.total }) as f64 / 1e6)
}

const NANO: f64 = 1e9;

/// All but what the machine has, by name.
pub(super) const PLAIN: [Family; 65] = [
    family("container_blkio_device_usage_total", "Blkio Device bytes usage", Kind::Counter, Source::Blkio),
    counter("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.", |group| {
        throttling(group, |cpu| cpu.burst_periods)
    }),
    counter(
        "container_cpu_cfs_burst_seconds_total",
        "Total time duration the container has been bursted.",
        |group| throttling(group, |cpu| cpu.burst).map(|value| value / NANO),
    ),
    counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", |group| {
        throttling(group, |cpu| cpu.periods)
    }),
    counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", |group| {
        throttling(group, |cpu| cpu.throttled_periods)
    }),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        "Total time duration the container has been throttled.",
        |group| throttling(group, |cpu| cpu.throttled).map(|value| value / NANO),
    ),
    gauge(
        "container_cpu_load_average_10s",
        "Value of container cpu load average over the last 10 seconds.",
        |_| Some(0.0),
    ),
    gauge(
        "container_cpu_load_d_average_10s",
        "Value of container cpu load.d average over the last 10 seconds.",
        |_| Some(0.0),
    ),
    counter(
        "container_cpu_system_seconds_total",
        "Cumulative system cpu time consumed in seconds.",
        |group| cpu(group, |cpu| cpu.system as f64 / NANO),
    ),
    family(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
        Kind::Counter,
        Source::Usage,
    ),
    counter("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", |group| {
        cpu(group, |cpu| cpu.user as f64 / NANO)
    }),
    gauge("container_file_descriptors", "Number of open file descriptors for the container.", |group| {
        Some(group.processes.descriptors as f64)
    }),
    fs_gauge("container_fs_inodes_free", "Number of available Inodes", |fs| fs.room.inodes_free as f64),
    fs_gauge("container_fs_inodes_total", "Number of Inodes", |fs| fs.room.inodes as f64),
    fs_gauge("container_fs_io_current", "Number of I/Os currently in progress", |fs| {
        fs.disk.in_progress as f64
    }),
    // The kernel's milliseconds are taken for nanoseconds, as upstream does: who draws these has scaled them.
    fs_counter("container_fs_io_time_seconds_total", "Cumulative count of seconds spent doing I/Os", |fs| {
        fs.disk.io_time as f64 / NANO
    }),
    fs_counter(
        "container_fs_io_time_weighted_seconds_total",
        "Cumulative weighted I/O time in seconds",
        |fs| fs.disk.weighted_io_time as f64 / NANO,
    ),
    fs_gauge(
        "container_fs_limit_bytes",
        "Number of bytes that can be consumed by the container on this filesystem.",
        |fs| fs.room.capacity as f64,
    ),
    fs_counter("container_fs_read_seconds_total", "Cumulative count of seconds spent reading", |fs| {
        fs.disk.read_time as f64 / NANO
    }),
    family(
        "container_fs_reads_bytes_total",
        "Cumulative count of bytes read",
        Kind::Counter,
        Source::Disk(Some(|disk| DiskUse::of(&disk.bytes, "Read") as f64), None),
    ),
    fs_counter("container_fs_reads_merged_total", "Cumulative count of reads merged", |fs| {
        fs.disk.reads_merged as f64
    }),
    family(
        "container_fs_reads_total",
        "Cumulative count of reads completed",
        Kind::Counter,
        Source::Disk(
            Some(|disk| DiskUse::of(&disk.operations, "Read") as f64),
            Some(|fs| fs.disk.reads as f64),
        ),
    ),
    fs_counter("container_fs_sector_reads_total", "Cumulative count of sector reads completed", |fs| {
        fs.disk.sectors_read as f64
    }),
    fs_counter("container_fs_sector_writes_total", "Cumulative count of sector writes completed", |fs| {
        fs.disk.sectors_written as f64
    }),
    fs_gauge(
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        |fs| fs.room.used as f64,
    ),
    fs_counter("container_fs_write_seconds_total", "Cumulative count of seconds spent writing", |fs| {
        fs.disk.write_time as f64 / NANO
    }),
    family(
        "container_fs_writes_bytes_total",
        "Cumulative count of bytes written",
        Kind::Counter,
        Source::Disk(Some(|disk| DiskUse::of(&disk.bytes, "Write") as f64), None),
    ),
    fs_counter("container_fs_writes_merged_total", "Cumulative count of writes merged", |fs| {
        fs.disk.writes_merged as f64
    }),
    family(
        "container_fs_writes_total",
        "Cumulative count of writes completed",
        Kind::Counter,
        Source::Disk(
            Some(|disk| DiskUse::of(&disk.operations, "Write") as f64),
            Some(|fs| fs.disk.writes as f64),
        ),
    ),
    gauge("container_health_state", "The result of the container's health check", |_| Some(-1.0)),
    family(
        "container_last_seen",
        "Last time a container was seen by the exporter",
        Kind::Gauge,
        Source::LastSeen,
    ),
    gauge("container_memory_cache", "Number of bytes of page cache memory.", |group| {
        memory(group, |memory| memory.cache)
    }),
    counter("container_memory_failcnt", "Number of memory usage hits limits", |group| {
        memory(group, |memory| memory.failcnt)
    }),
    family(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
        Kind::Counter,
        Source::Failures,
    ),
    gauge("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", |group| {
        memory(group, |memory| memory.kernel)
    }),
    gauge("container_memory_mapped_file", "Size of memory mapped files in bytes.", |group| {
        memory(group, |memory| memory.mapped_file)
    }),
    gauge("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", |group| {
        memory(group, |memory| memory.max_usage)
    }),
    gauge("container_memory_rss", "Size of RSS in bytes.", |group| memory(group, |memory| memory.rss)),
    gauge("container_memory_swap", "Container swap usage in bytes.", |group| {
        memory(group, |memory| memory.swap)
    }),
    gauge("container_memory_total_active_file_bytes", "Current total active file in bytes.", |group| {
        memory(group, |memory| memory.active_file)
    }),
    gauge("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.", |group| {
        memory(group, |memory| memory.inactive_file)
    }),
    gauge(
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |group| memory(group, |memory| memory.usage),
    ),
    gauge("container_memory_working_set_bytes", "Current working set in bytes.", |group| {
        memory(group, Memory::working_set)
    }),
    family("container_network", "", Kind::Counter, Source::Network),
    counter(
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
        |group| memory(group, |memory| memory.oom_kills),
    ),
    pressure(
        "container_pressure_cpu_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        |group| stalled(group.sample.cpu.as_ref().map(|cpu| &cpu.pressure), true),
    ),
    pressure(
        "container_pressure_cpu_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to CPU congestion.",
        |group| stalled(group.sample.cpu.as_ref().map(|cpu| &cpu.pressure), false),
    ),
    pressure(
        "container_pressure_io_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        |group| stalled(group.sample.io.as_ref().map(|io| &io.pressure), true),
    ),
    pressure(
        "container_pressure_io_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to IO congestion.",
        |group| stalled(group.sample.io.as_ref().map(|io| &io.pressure), false),
    ),
    pressure(
        "container_pressure_memory_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        |group| stalled(group.sample.memory.as_ref().map(|memory| &memory.pressure), true),
    ),
    pressure(
        "container_pressure_memory_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to memory congestion.",
        |group| stalled(group.sample.memory.as_ref().map(|memory| &memory.pressure), false),
    ),
    gauge("container_processes", "Number of processes running inside the container.", |group| {
        Some(group.processes.count as f64)
    }),
    family(
        "container_scrape_error",
        "1 if there was an error while getting container metrics, 0 otherwise",
        Kind::Gauge,
        Source::Scrape,
    ),
    gauge("container_sockets", "Number of open sockets for the container.", |group| {
        Some(group.processes.sockets as f64)
    }),
    limit("container_spec_cpu_period", "CPU period of the container.", |group| {
        group.sample.cpu.as_ref().map(|cpu| cpu.period as f64)
    }),
    limit("container_spec_cpu_quota", "CPU quota of the container.", |group| {
        throttling(group, |cpu| cpu.quota)
    }),
    limit("container_spec_cpu_shares", "CPU share of the container.", |group| {
        group.sample.cpu.as_ref().map(|cpu| cpu.shares as f64)
    }),
    limit("container_spec_memory_limit_bytes", "Memory limit for the container.", |group| {
        memory_limit(group, |memory| memory.limit)
    }),
    limit(
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        |group| memory_limit(group, |memory| memory.reservation),
    ),
    limit("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", |group| {
        memory_limit(group, |memory| memory.swap_limit)
    }),
    limit(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        |group| group.sample.created.map(|created| created.as_second() as f64),
    ),
    family("container_tasks_state", "Number of tasks in given state", Kind::Gauge, Source::Tasks),
    gauge("container_threads", "Number of threads running inside the container", |group| {
        Some(group.sample.threads.0 as f64)
    }),
    gauge(
        "container_threads_max",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        |group| Some(group.sample.threads.1 as f64),
    ),
    family(
        "container_ulimits_soft",
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        Kind::Gauge,
        Source::OpenFiles,
    ),
];

/// What passed through interfaces: name, help and value.
pub(super) type OfInterface = (&'static str, &'static str, fn(&Interface) -> u64);

pub(super) const TRAFFIC: [OfInterface; 8] = [
    ("container_network_receive_bytes_total", "Cumulative count of bytes received", |known| {
        known.received.bytes
    }),
    (
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        |known| known.received.errors,
    ),
    (
        "container_network_receive_packets_dropped_total",
        "Cumulative count of packets dropped while receiving",
        |known| known.received.dropped,
    ),
    ("container_network_receive_packets_total", "Cumulative count of packets received", |known| {
        known.received.packets
    }),
    ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |known| {
        known.sent.bytes
    }),
    (
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        |known| known.sent.errors,
    ),
    (
        "container_network_transmit_packets_dropped_total",
        "Cumulative count of packets dropped while transmitting",
        |known| known.sent.dropped,
    ),
    ("container_network_transmit_packets_total", "Cumulative count of packets transmitted", |known| {
        known.sent.packets
    }),
];
