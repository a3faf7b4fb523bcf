//! What the process itself uses, read from `/proc` when it is asked for.

use std::fs;
use std::sync::OnceLock;

use crate::registry::{Registry, Samples};
use crate::text::Kind;

/// Registers the `process_*` metrics. What cannot be read is left out of that report.
pub fn register_process_metrics(registry: &Registry) {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page_size = rustix::param::page_size() as f64;
    register_start(registry, "Start time of the process since unix epoch in seconds.");
    registry.collector(move |samples| {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        if let Some(usage) = stat.and_then(|text| Usage::parse(&text)) {
            add_usage(samples, &usage, ticks, page_size);
        }
        if let Ok(netstat) = fs::read_to_string("/proc/self/net/netstat") {
            add_network(samples, &netstat);
        }
        if let Ok(limits) = fs::read_to_string("/proc/self/limits") {
            add_limits(samples, &limits);
        }
        if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
            // One of those counted is the one that reads the folder.
            let open = descriptors.count().saturating_sub(1) as f64;
            gauge(samples, "process_open_fds", "Number of open file descriptors.", open);
        }
    });
}

/// When the machine was started, in seconds since 1970, if that can be told.
pub fn boot_time() -> Option<f64> {
    parse_boot_time(&fs::read_to_string("/proc/stat").ok()?)
}

/// When the process started, in seconds since 1970, if that can be told.
pub fn process_start_time() -> Option<f64> {
    let usage = Usage::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(boot_time()? + usage.start_ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// Registers `process_start_time_seconds` alone, for paths whose counters begin with the process. Upstream's help has its
/// stability there, and not beside the rest of what the process uses.
pub fn register_process_start_time(registry: &Registry) {
    register_start(registry, "[ALPHA] Start time of the process since unix epoch in seconds.");
}

fn register_start(registry: &Registry, help: &'static str) {
    // It does not change, and to find it out takes the kernel a while: it goes through every CPU's interrupts.
    let started = OnceLock::new();
    registry.collector(move |samples| {
        if let Some(started) = *started.get_or_init(process_start_time) {
            gauge(samples, "process_start_time_seconds", help, started);
        }
    });
}

fn add_usage(samples: &mut Samples, usage: &Usage, ticks: f64, page_size: f64) {
    let name = "process_cpu_seconds_total";
    let help = "Total user and system CPU time spent in seconds.";
    samples.add(name, help, Kind::Counter, &[], usage.processor_ticks / ticks);
    let name = "process_resident_memory_bytes";
    gauge(samples, name, "Resident memory size in bytes.", usage.resident_pages * page_size);
    gauge(samples, "process_virtual_memory_bytes", "Virtual memory size in bytes.", usage.virtual_bytes);
}

/// What the process's network has seen, which other processes share.
fn add_network(samples: &mut Samples, netstat: &str) {
    for (field, name, help) in [
        (
            "InOctets",
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
        ),
        (
            "OutOctets",
            "process_network_transmit_bytes_total",
            "Number of bytes sent by the process over the network.",
        ),
    ] {
        if let Some(bytes) = of_netstat(netstat, "IpExt", field) {
            samples.add(name, help, Kind::Counter, &[], bytes);
        }
    }
}

/// A value of `/proc/net/netstat`: a line of names is followed by one of values.
fn of_netstat(netstat: &str, group: &str, field: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(": "));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split(' ').position(|name| name == field)?;
    values.split(' ').nth(index)?.parse().ok()
}

fn add_limits(samples: &mut Samples, limits: &str) {
    if let Some(descriptors) = limit(limits, "Max open files") {
        gauge(samples, "process_max_fds", "Maximum number of open file descriptors.", descriptors);
    }
    if let Some(bytes) = limit(limits, "Max address space") {
        let help = "Maximum amount of virtual memory available in bytes.";
        gauge(samples, "process_virtual_memory_max_bytes", help, bytes);
    }
}

fn gauge(samples: &mut Samples, name: &str, help: &str, value: f64) {
    samples.add(name, help, Kind::Gauge, &[], value);
}

/// What `/proc/self/stat` says.
#[derive(Debug, PartialEq)]
struct Usage {
    processor_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Usage {
    fn parse(stat: &str) -> Option<Usage> {
        // The second field is the program's name in parentheses, and a name may hold spaces and parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc(5), where the first field after the name is the third.
        let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
        Some(Usage {
            processor_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

fn parse_boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The soft limit of this name. Upstream reports one that is not set as the largest number there is.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat =
            "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 5 0 123456 7340032 1000 99 1";
        assert_eq!(
            Usage::parse(stat),
            Some(Usage {
                processor_ticks: 300.0,
                start_ticks: 123_456.0,
                virtual_bytes: 7_340_032.0,
                resident_pages: 1_000.0
            })
        );
        assert_eq!(Usage::parse("42 (cut) S 1"), None);
    }

    #[test]
    fn limits_are_the_soft_ones() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n\
                      Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(18_446_744_073_709_551_615.0));
        assert_eq!(limit(limits, "Max something"), None);
    }

    #[test]
    fn octets_are_found_by_their_name() {
        let netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 77 88\n";
        assert_eq!(of_netstat(netstat, "IpExt", "InOctets"), Some(77.0));
        assert_eq!(of_netstat(netstat, "IpExt", "OutOctets"), Some(88.0));
        assert_eq!(of_netstat(netstat, "IpExt", "None"), None);
        assert_eq!(of_netstat("", "IpExt", "InOctets"), None);
    }

    #[test]
    fn the_machine_was_started_before_this_process() {
        assert_eq!(parse_boot_time("cpu 1 2\nbtime 1790000000\n"), Some(1_790_000_000.0));
        assert!(boot_time().unwrap() <= process_start_time().unwrap());
    }

    #[test]
    fn the_start_alone_is_told_with_how_stable_it_is_as_it_was_recorded() {
        let registry = Registry::new();
        register_process_start_time(&registry);
        let text = registry.render();
        let help = "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.\n";
        assert!(text.starts_with(help), "{text}");
    }

    #[test]
    fn this_process_has_plausible_metrics() {
        let registry = Registry::new();
        register_process_metrics(&registry);
        let text = registry.render();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_start_time_seconds") > 1.7e9);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_virtual_memory_max_bytes") > 0.0);
    }
}
