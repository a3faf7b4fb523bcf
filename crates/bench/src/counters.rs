//! What a process costs, as the kernel counts it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::Context;

/// What the kernel counts of a process.
pub(crate) struct Counters {
    /// Memory that is resident.
    pub(crate) rss_kib: f64,
    /// The part of it that is no file's: without the program itself, of which more or less is resident at any time.
    pub(crate) anonymous_kib: f64,
    /// Voluntary context switches of each thread. They go when it does.
    wakes: BTreeMap<OsString, f64>,
    /// Hundredths of a second, on every Linux that we know.
    pub(crate) cpu_ticks: f64,
}

impl Counters {
    pub(crate) fn read(process: i32) -> anyhow::Result<Counters> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let mut wakes = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?;
            // One that ends while it is looked at is not there.
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
            wakes.insert(thread.file_name(), field(&status, "voluntary_ctxt_switches:")?);
        }
        let after_name = stat.rsplit_once(')').context("no name in the process's stat")?.1;
        let ticks: Vec<f64> =
            after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
        Ok(Counters {
            rss_kib: field(&status, "VmRSS:")?,
            anonymous_kib: field(&status, "RssAnon:")?,
            wakes,
            cpu_ticks: ticks.iter().sum(),
        })
    }

    /// How often its threads woke since then. What a thread did that ended meanwhile is not known.
    pub(crate) fn wakes_since(&self, earlier: &Counters) -> f64 {
        let before = |thread| earlier.wakes.get(thread).copied().unwrap_or_default();
        self.wakes.iter().map(|(thread, wakes)| wakes - before(thread)).sum()
    }
}

fn field(status: &str, name: &str) -> anyhow::Result<f64> {
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let number = line.split_whitespace().next().with_context(|| format!("{name} is empty"))?;
    Ok(number.parse()?)
}
