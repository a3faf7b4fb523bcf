//! What a cgroup may use, and how both versions write it.

use std::collections::BTreeMap;

/// The processor shares that the kernel accepts.
const SHARES: std::ops::RangeInclusive<u64> = 2..=262_144;

/// What a cgroup may use. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its part of the processors when they are all busy: 1024 for each one requested, at least 2.
    pub cpu_shares: Option<u64>,
    /// The processor time that it may use at most.
    pub cpu_bandwidth: Option<CpuBandwidth>,
    /// The processors that it may run on, as the kernel writes it: `0-3,8`.
    pub cpus: Option<String>,
    /// Memory in bytes.
    pub memory: Option<Bound>,
    /// Processes and threads.
    pub processes: Option<Bound>,
    pub huge_pages: HugePages,
    /// Files of v2 to write as they are, such as `memory.min`; v1 does not have them, and they are left out there.
    pub unified: BTreeMap<String, String>,
}

/// Processor time for each stretch of time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuBandwidth {
    /// How much of it, over all processors.
    pub quota: Bound,
    /// How long a stretch is.
    pub period: u64,
}

/// An upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// So much.
    At(u64),
    /// Whatever those above allow.
    Unlimited,
}

/// What huge pages a cgroup may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HugePages {
    /// What it may already.
    #[default]
    Unchanged,
    /// Those that those above allow.
    Unlimited,
    /// So many bytes in pages of these sizes in bytes, and none of any other size.
    Only(BTreeMap<u64, u64>),
}

impl Limits {
    /// These limits, with those of `changes` in place of the ones that it has something to say about.
    pub fn changed_by(&self, changes: &Limits) -> Limits {
        let mut unified = self.unified.clone();
        unified.extend(changes.unified.clone());
        Limits {
            cpu_shares: changes.cpu_shares.or(self.cpu_shares),
            cpu_bandwidth: changes.cpu_bandwidth.or(self.cpu_bandwidth),
            cpus: changes.cpus.clone().or_else(|| self.cpus.clone()),
            memory: changes.memory.or(self.memory),
            processes: changes.processes.or(self.processes),
            huge_pages: match &changes.huge_pages {
                HugePages::Unchanged => self.huge_pages.clone(),
                changed @ (HugePages::Unlimited | HugePages::Only(_)) => changed.clone(),
            },
            unified,
        }
    }
}

impl Bound {
    /// The bound, with a word for none.
    pub(super) fn written(self, unlimited: &str) -> String {
        match self {
            Bound::At(amount) => amount.to_string(),
            Bound::Unlimited => unlimited.into(),
        }
    }

    /// The bound as a limit on processes, of which systemd allows no less than one; for both drivers to mean the same.
    pub(super) fn as_processes(self) -> Bound {
        match self {
            Bound::At(amount) => Bound::At(amount.max(1)),
            Bound::Unlimited => Bound::Unlimited,
        }
    }
}

/// Shares as v2's weight: 2 to 262144 spread over 1 to 10000.
pub fn weight_of_shares(shares: u64) -> u64 {
    let shares = accepted_shares(shares);
    1 + (shares - SHARES.start()) * 9999 / (SHARES.end() - SHARES.start())
}

/// v2's weight as shares. Since a weight stands for some 26 shares, this does not give back all shares as they were.
pub fn shares_of_weight(weight: u64) -> u64 {
    let weight = weight.clamp(1, 10_000);
    (weight - 1) * (SHARES.end() - SHARES.start()) / 9999 + SHARES.start()
}

/// The shares that the kernel makes of a number.
pub(super) fn accepted_shares(shares: u64) -> u64 {
    shares.clamp(*SHARES.start(), *SHARES.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_weights_as_elsewhere_in_kubernetes() {
        for (shares, weight) in [
            (0, 1),
            (2, 1),
            (28, 1),
            (29, 2),
            (102, 4),
            (1024, 39),
            (10_240, 391),
            (262_144, 10_000),
            (u64::MAX, 10_000),
        ] {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
    }

    #[test]
    fn a_weight_becomes_shares_that_are_of_the_same_weight_or_just_below() {
        assert_eq!(shares_of_weight(1), 2);
        assert_eq!(shares_of_weight(39), 998);
        assert_eq!(shares_of_weight(10_000), 262_144);
        for weight in 1..=10_000 {
            let again = weight_of_shares(shares_of_weight(weight));
            assert!(again == weight || again + 1 == weight, "{weight} {again}");
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let limits = Limits {
            cpu_shares: Some(2),
            memory: Some(Bound::At(1)),
            huge_pages: HugePages::Only(BTreeMap::from([(2 << 20, 0)])),
            ..Limits::default()
        };
        let changes = Limits { memory: Some(Bound::Unlimited), cpus: Some("0".into()), ..Limits::default() };
        let expected = Limits { memory: Some(Bound::Unlimited), cpus: Some("0".into()), ..limits.clone() };
        assert_eq!(limits.changed_by(&changes), expected);
        assert_eq!(limits.changed_by(&Limits::default()), limits);
    }
}
