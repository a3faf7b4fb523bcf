//! What a process costs, as the kernel counts it.

use std::fs;

use anyhow::Context;

/// What the kernel counts of a process.
pub(crate) struct Counters {
    /// Memory that is resident.
    pub(crate) rss_kib: f64,
    /// Voluntary context switches, of all threads.
    pub(crate) wakes: f64,
    /// Hundredths of a second, on every Linux that we know.
    pub(crate) cpu_ticks: f64,
}

impl Counters {
    pub(crate) fn read(process: i32) -> anyhow::Result<Counters> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let mut wakes = 0.0;
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            wakes += field(&fs::read_to_string(thread?.path().join("status"))?, "voluntary_ctxt_switches:")?;
        }
        let after_name = stat.rsplit_once(')').context("no name in the process's stat")?.1;
        let ticks: Vec<f64> =
            after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
        Ok(Counters { rss_kib: field(&status, "VmRSS:")?, wakes, cpu_ticks: ticks.iter().sum() })
    }
}

fn field(status: &str, name: &str) -> anyhow::Result<f64> {
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let number = line.split_whitespace().next().with_context(|| format!("{name} is empty"))?;
    Ok(number.parse()?)
}
