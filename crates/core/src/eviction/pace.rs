//! When to look again, so that nothing runs short unseen for long and a node with much left costs nearly nothing.

use std::time::Duration;

use super::{Observation, Observations, Resource, Signal, Threshold};

/// The wait while much is left of everything, and how long upstream waits always.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How fast something may go, and the shortest wait for it.
struct Pace {
    /// How much of it, in a second. More than a node was seen to lose at a steady rate.
    a_second: i64,
    shortest: Duration,
}

impl Pace {
    fn of(signal: Signal) -> Pace {
        match signal.resource() {
            Resource::Memory => Pace { a_second: 1 << 30, shortest: Duration::from_millis(100) },
            Resource::EphemeralStorage => Pace { a_second: 1 << 30, shortest: Duration::from_secs(1) },
            Resource::Inodes => Pace { a_second: 50_000, shortest: Duration::from_secs(1) },
            Resource::Pids => Pace { a_second: 10_000, shortest: Duration::from_millis(250) },
        }
    }
}

/// How long nobody needs to look: until the first threshold could be met. What is met already waits for its turn, since more
/// looks would change nothing; and those at some places need none, because the kernel watches them, or something is to be
/// done about them anyway.
pub fn next_look(
    thresholds: &[Threshold],
    observations: &Observations,
    needs_none: impl Fn(usize) -> bool,
) -> Duration {
    let wait = |threshold: &Threshold| {
        let seen = observations.get(&threshold.signal)?;
        let left = seen.available.saturating_sub(threshold.quantity(seen.capacity).value());
        (left >= 0).then(|| {
            let Pace { a_second, shortest } = Pace::of(threshold.signal);
            let milliseconds = u64::try_from(left / (a_second / 1_000)).unwrap_or(0);
            Duration::from_millis(milliseconds).clamp(shortest, LONGEST_WAIT)
        })
    };
    let to_look_at = thresholds.iter().enumerate().filter(|(place, _)| !needs_none(*place));
    to_look_at.filter_map(|(_, threshold)| wait(threshold)).min().unwrap_or(LONGEST_WAIT)
}

/// How much memory has to be used, as the kernel counts it, for a threshold to be met: it counts what it could take back at
/// any time, which is not part of what was seen.
pub fn alarm_at(threshold: &Threshold, seen: &Observation, used: u64) -> u64 {
    let working_set = seen.capacity.saturating_sub(seen.available);
    let reclaimable = i64::try_from(used).unwrap_or(i64::MAX).saturating_sub(working_set).max(0);
    let most = seen.capacity.saturating_sub(threshold.quantity(seen.capacity).value());
    u64::try_from(most.saturating_add(reclaimable)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::eviction::Amount;
    use crate::testing::at;

    const GI: i64 = 1 << 30;

    fn hard(signal: Signal, value: &str) -> Threshold {
        let value = match value.strip_suffix('%') {
            Some(share) => Amount::Percentage(share.parse().unwrap()),
            None => Amount::Quantity(value.parse().unwrap()),
        };
        Threshold::hard(signal, value)
    }

    fn seen(signal: Signal, available: i64, capacity: i64) -> Observations {
        Observations::from([(signal, Observation { available, capacity, at: at(0) })])
    }

    #[test]
    fn looks_come_closer_as_a_threshold_nears() {
        let memory = Signal::MemoryAvailable;
        let thresholds = [hard(memory, "1Gi"), hard(Signal::NodeFsAvailable, "10%")];
        for (available, milliseconds) in [
            (64 * GI, 10_000),
            (11 * GI, 10_000),
            (6 * GI, 5_000),
            (2 * GI, 1_000),
            (GI + GI / 2, 500),
            (GI + 1, 100),
            (GI, 100),
            // It is met: what is done about it has its own time.
            (GI - 1, 10_000),
        ] {
            let found = next_look(&thresholds, &seen(memory, available, 64 * GI), |_| false);
            assert_eq!(found.as_millis(), milliseconds, "{available}");
        }
        let watched = next_look(&thresholds, &seen(memory, GI, 64 * GI), |place| place == 0);
        assert_eq!(watched, LONGEST_WAIT);
        assert_eq!(next_look(&thresholds, &Observations::new(), |_| false), LONGEST_WAIT);
        let disk = seen(Signal::NodeFsAvailable, 10 * GI + GI / 2, 100 * GI);
        assert_eq!(next_look(&thresholds, &disk, |_| false), Duration::from_secs(1), "disks are slower");
    }

    #[test]
    fn an_alarm_rings_when_what_cannot_be_taken_back_leaves_too_little() {
        // 10Gi in all of which 4Gi are left: 6Gi cannot be taken back, and 7Gi are used.
        let seen = Observation { available: 4 * GI, capacity: 10 * GI, at: at(0) };
        let used = u64::try_from(7 * GI).unwrap();
        for (value, expected) in [("1Gi", 10 * GI), ("2Gi", 9 * GI), ("50%", 6 * GI)] {
            let found = alarm_at(&hard(Signal::MemoryAvailable, value), &seen, used);
            assert_eq!(found, u64::try_from(expected).unwrap(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_threshold_that_is_nearer_is_looked_at_no_later(
            value in 1_i64..8 * GI,
            far in 0_i64..64 * GI,
            nearer in 0_i64..64 * GI,
        ) {
            let signal = Signal::MemoryAvailable;
            let threshold = [Threshold::hard(signal, Amount::Quantity(crablet_api::Quantity::from_value(value)))];
            let wait = |left: i64| next_look(&threshold, &seen(signal, value + left, 128 * GI), |_| false);
            let (near, far) = (far.min(nearer), far.max(nearer));
            prop_assert!(wait(near) <= wait(far));
            prop_assert!(wait(far) <= LONGEST_WAIT && wait(near) >= Duration::from_millis(100));
        }
    }
}
