//! What was read of cgroups before, and need not be read again.
//!
//! - When a cgroup was made never changes.
//! - What it may use hardly ever does: for a container, when its pod is resized. It is told again for longer than what is
//!   counted.
//! - What only its processes can change is as it was if none of them ran, which the CPU time says that they used: how many
//!   there are, what they hold, which cgroups are in it. Others can move a process that sleeps, and so this is told for no
//!   longer than limits are.
//!
//! To open a file takes several times as long as to read it, and most containers sleep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::cgroup::{Cpu, Limits};
use crate::proc::Processes;

/// For how long what nobody asked about is remembered, in nanoseconds.
const KEPT: i128 = 600_000_000_000;

/// When a cgroup was made, and which it is: the kernel gives its inode to no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) inode: u64,
    pub(crate) at: Timestamp,
}

/// What a cgroup was when it had used so much of the CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Still {
    pub(crate) cpu: Cpu,
    pub(crate) max_memory: u64,
    pub(crate) memory_failures: u64,
    pub(crate) oom_kills: u64,
    pub(crate) threads: u64,
    pub(crate) processes: Processes,
    /// The first of its processes.
    pub(crate) first: Option<u32>,
    /// The cgroups in it.
    pub(crate) names: Vec<String>,
}

/// What is known of a cgroup.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) start: Option<Start>,
    pub(crate) limits: Option<Limits>,
    pub(crate) still: Option<Arc<Still>>,
}

/// The same with when it was read, and when it was last asked for.
#[derive(Debug)]
struct Entry {
    asked: Timestamp,
    start: Option<Start>,
    limits: Option<(Timestamp, Limits)>,
    still: Option<(Timestamp, Arc<Still>)>,
}

/// What is known of all of them, by path. Of what is not there any more nothing is kept for long.
#[derive(Debug)]
pub(crate) struct KnownCgroups {
    told_for: i128,
    entries: HashMap<Box<str>, Entry>,
}

impl KnownCgroups {
    /// Nothing but starts is told again for longer than this.
    pub(crate) fn new(told_for: Duration) -> KnownCgroups {
        let told_for = i128::try_from(told_for.as_nanos()).unwrap_or(i128::MAX);
        KnownCgroups { told_for, entries: HashMap::new() }
    }

    /// What is known of a cgroup and not too old to be told.
    pub(crate) fn of(&mut self, cgroup: &str, now: Timestamp) -> Known {
        let told_for = self.told_for;
        // A clock that was set back says nothing of an age.
        let holds = |at: Timestamp| (0..told_for).contains(&(now.as_nanosecond() - at.as_nanosecond()));
        let Some(entry) = self.entries.get_mut(cgroup) else { return Known::default() };
        entry.asked = now;
        Known {
            start: entry.start,
            limits: entry.limits.filter(|(at, _)| holds(*at)).map(|(_, limits)| limits),
            still: entry.still.as_ref().filter(|(at, _)| holds(*at)).map(|(_, still)| Arc::clone(still)),
        }
    }

    /// Keeps what was read. What was known before is as old as it was.
    pub(crate) fn keep(&mut self, cgroup: &str, now: Timestamp, before: &Known, read: Known) {
        let is_same = |a: &Option<Arc<Still>>, b: &Option<Arc<Still>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_still = is_same(&before.still, &read.still);
        if is_still && (before.start, before.limits) == (read.start, read.limits) {
            return;
        }
        let entry = self.entries.remove_entry(cgroup);
        let (path, mut entry) = entry
            .unwrap_or_else(|| (cgroup.into(), Entry { asked: now, start: None, limits: None, still: None }));
        entry.start = read.start;
        if before.limits != read.limits {
            entry.limits = read.limits.map(|limits| (now, limits)).filter(|_| self.told_for > 0);
        }
        if !is_still {
            entry.still = read.still.map(|still| (now, still)).filter(|_| self.told_for > 0);
        }
        self.entries.insert(path, entry);
    }

    /// Forgets what was known of one.
    pub(crate) fn forget(&mut self, cgroup: &str) {
        self.entries.remove(cgroup);
    }

    /// Forgets what nobody asked about for long.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        let age = |at: Timestamp| now.as_nanosecond() - at.as_nanosecond();
        self.entries.retain(|_, entry| (-KEPT..=KEPT).contains(&age(entry.asked)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_794_763_000 + second).unwrap()
    }

    fn known(memory: u64) -> Known {
        Known {
            start: Some(Start { inode: 7, at: at(0) }),
            limits: Some(Limits { memory, ..Limits::default() }),
            still: Some(Arc::default()),
        }
    }

    #[test]
    fn what_was_read_is_told_for_a_while_and_starts_for_as_long_as_somebody_asks() {
        let mut cgroups = KnownCgroups::new(Duration::from_secs(60));
        assert_eq!(cgroups.of("/a", at(0)), Known::default());
        cgroups.keep("/a", at(0), &Known::default(), known(1));
        assert_eq!(cgroups.of("/a", at(59)), known(1));
        // What is told again gets no younger by that.
        let before = cgroups.of("/a", at(59));
        let changed = Known { limits: known(2).limits, ..before.clone() };
        cgroups.keep("/a", at(59), &before, changed.clone());
        assert_eq!(cgroups.of("/a", at(60)), Known { still: None, ..changed });
        let start_alone = Known { start: known(1).start, ..Known::default() };
        assert_eq!(cgroups.of("/a", at(-1)), start_alone, "the clock was set back");
        assert_eq!(cgroups.of("/a", at(200)), start_alone);
        cgroups.forget_old(at(800));
        assert_eq!(cgroups.entries.len(), 1);
        cgroups.forget_old(at(801));
        assert!(cgroups.entries.is_empty());
    }

    #[test]
    fn without_a_cache_only_starts_are_kept() {
        let mut cgroups = KnownCgroups::new(Duration::ZERO);
        cgroups.keep("/a", at(0), &Known::default(), known(1));
        assert_eq!(cgroups.of("/a", at(0)), Known { start: known(1).start, ..Known::default() });
    }
}
