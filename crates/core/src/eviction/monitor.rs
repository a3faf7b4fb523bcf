//! Which thresholds are met, since when, and what follows: what the node says of itself, and what is to be reclaimed.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::{Quantity, QuantityFormat};
use jiff::{SignedDuration, Timestamp};

use super::{Condition, Resource, Signal, Threshold};

/// What is left of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub available: i64,
    /// How much there is in all.
    pub capacity: i64,
    /// When it was seen, in time that passes.
    pub at: Timestamp,
}

/// What was seen of each signal.
pub type Observations = BTreeMap<Signal, Observation>;

impl Observation {
    /// What is left, in the form that messages have.
    pub fn available_of(&self, signal: Signal) -> Quantity {
        let format = match signal.resource() {
            Resource::Memory | Resource::EphemeralStorage => QuantityFormat::BinarySi,
            Resource::Inodes | Resource::Pids => QuantityFormat::DecimalSi,
        };
        Quantity::from_value(self.available).with_format(format)
    }
}

/// What is known of a node's thresholds from one look to the next.
#[derive(Debug, Clone)]
pub struct Monitor {
    thresholds: Vec<Threshold>,
    /// For how long a condition stays that is not seen any more.
    transition_period: SignedDuration,
    /// Since when thresholds are met without a break, by their places.
    met_since: BTreeMap<usize, Timestamp>,
    /// Those that were met for long enough and are not over yet.
    unresolved: BTreeSet<usize>,
    last_seen: BTreeMap<Condition, Timestamp>,
    conditions: BTreeSet<Condition>,
    last: Observations,
}

impl Monitor {
    /// Nothing was seen yet.
    pub fn new(thresholds: Vec<Threshold>, transition_period: SignedDuration) -> Monitor {
        Monitor {
            thresholds,
            transition_period,
            met_since: BTreeMap::new(),
            unresolved: BTreeSet::new(),
            last_seen: BTreeMap::new(),
            conditions: BTreeSet::new(),
            last: Observations::new(),
        }
    }

    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// Watches other thresholds from now on. What is known of those that were watched before stays, and so does what the
    /// node said of itself, for as long as it would have.
    pub fn set_thresholds(&mut self, thresholds: Vec<Threshold>) {
        let before = std::mem::replace(&mut self.thresholds, thresholds);
        let now_at = |place: &usize| self.thresholds.iter().position(|known| *known == before[*place]);
        let met = self.met_since.iter().filter_map(|(place, since)| Some((now_at(place)?, *since)));
        self.met_since = met.collect();
        self.unresolved = self.unresolved.iter().filter_map(now_at).collect();
    }

    /// Whether something is to be done about a threshold, by its place, at each look.
    pub fn is_unresolved(&self, place: usize) -> bool {
        self.unresolved.contains(&place)
    }

    /// What the node says of itself since the last look.
    pub fn conditions(&self) -> &BTreeSet<Condition> {
        &self.conditions
    }

    /// Takes in a look. Gives the thresholds that something is to be done about, memory first, and of the same kind those
    /// first that nothing can wait for: they were met for as long as they may be, and what was seen of them is newer than
    /// what was seen before. A threshold of which nothing was seen is not met.
    pub fn look(&mut self, observations: &Observations, now: Timestamp) -> Vec<Threshold> {
        let is_met = |place: &usize| {
            let threshold = &self.thresholds[*place];
            let enough = match self.unresolved.contains(place) {
                true => Threshold::resolved_at,
                false => Threshold::quantity,
            };
            threshold.has_less_than(observations, enough)
        };
        let met: Vec<usize> = (0..self.thresholds.len()).filter(is_met).collect();
        self.met_since =
            met.iter().map(|place| (*place, self.met_since.get(place).copied().unwrap_or(now))).collect();
        for place in &met {
            self.last_seen.insert(self.thresholds[*place].signal.condition(), now);
        }
        let period = self.transition_period;
        self.conditions = self
            .last_seen
            .iter()
            .filter(|(_, seen)| now.duration_since(**seen) < period)
            .map(|(condition, _)| *condition)
            .collect();
        let is_over_grace = |(place, since): &(&usize, &Timestamp)| {
            now.duration_since(**since) >= self.thresholds[**place].grace
        };
        self.unresolved = self.met_since.iter().filter(is_over_grace).map(|(place, _)| *place).collect();
        let last = std::mem::replace(&mut self.last, observations.clone());
        let mut due: Vec<Threshold> = self
            .unresolved
            .iter()
            .map(|place| &self.thresholds[*place])
            .filter(|threshold| is_news(threshold.signal, observations, &last))
            .cloned()
            .collect();
        due.sort_by_key(|threshold| (!threshold.signal.is_memory(), !threshold.is_hard()));
        due
    }

    /// Whether, after something was reclaimed, nothing more has to be: of everything that there is a threshold for, as much
    /// is left as is to be reclaimed.
    pub fn is_relieved(&self, observations: &Observations) -> bool {
        !self.thresholds.iter().any(|known| known.has_less_than(observations, Threshold::resolved_at))
    }

    /// When something changes though nothing is seen that was not seen before: a grace period ends, or a condition goes.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let graces = self.met_since.iter().filter(|(place, _)| !self.unresolved.contains(place));
        let graces = graces.map(|(place, since)| since.checked_add(self.thresholds[*place].grace));
        let seen = self.last_seen.iter().filter(|(condition, _)| self.conditions.contains(condition));
        let conditions = seen.map(|(_, seen)| seen.checked_add(self.transition_period));
        graces.chain(conditions).filter_map(Result::ok).filter(|at| *at > now).min()
    }
}

/// Nothing is done twice because of one observation.
fn is_news(signal: Signal, observations: &Observations, last: &Observations) -> bool {
    observations.get(&signal).is_some_and(|seen| last.get(&signal).is_none_or(|last| seen.at > last.at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::eviction::Amount;
    use crate::testing::at;

    const MEMORY: Signal = Signal::MemoryAvailable;

    fn quantity(value: i64) -> Amount {
        Amount::Quantity(Quantity::from_value(value))
    }

    /// `<signal> < <value>`, met for some seconds before pods go, and over when so much more is left.
    fn threshold(signal: Signal, value: i64, grace: i64, more: i64) -> Threshold {
        let min_reclaim = (more > 0).then(|| quantity(more));
        let grace = SignedDuration::from_secs(grace);
        Threshold { grace, min_reclaim, ..Threshold::hard(signal, quantity(value)) }
    }

    fn seen(signals: &[(Signal, i64)], second: i64) -> Observations {
        let one = |(signal, available): &(Signal, i64)| {
            (*signal, Observation { available: *available, capacity: 10_000, at: at(second) })
        };
        signals.iter().map(one).collect()
    }

    fn monitor(thresholds: Vec<Threshold>, period: i64) -> Monitor {
        Monitor::new(thresholds, SignedDuration::from_secs(period))
    }

    /// A look at some second; what is to be reclaimed, and what the node says.
    fn look(monitor: &mut Monitor, signals: &[(Signal, i64)], second: i64) -> (String, String) {
        let due = monitor.look(&seen(signals, second), at(second));
        let due: Vec<&str> = due.iter().map(|known| known.signal.as_str()).collect();
        let conditions: Vec<&str> = monitor.conditions().iter().map(|known| known.as_str()).collect();
        (due.join(" "), conditions.join(" "))
    }

    #[track_caller]
    fn check(found: (String, String), due: &str, conditions: &str) {
        assert_eq!((&*found.0, &*found.1), (due, conditions));
    }

    #[test]
    fn a_hard_threshold_is_met_below_its_value_and_at_once() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 0, 0)], 300);
        check(look(&mut monitor, &[(MEMORY, 1_000)], 0), "", "");
        check(look(&mut monitor, &[(MEMORY, 999)], 1), "memory.available", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 1_000)], 2), "", "MemoryPressure");
    }

    #[test]
    fn a_soft_threshold_is_met_for_its_grace_period_without_a_break() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 60, 0)], 5);
        check(look(&mut monitor, &[(MEMORY, 500)], 0), "", "MemoryPressure");
        assert_eq!(monitor.next_change(at(0)), Some(at(5)));
        check(look(&mut monitor, &[(MEMORY, 500)], 59), "", "MemoryPressure");
        assert_eq!(monitor.next_change(at(59)), Some(at(60)));
        check(look(&mut monitor, &[(MEMORY, 5_000)], 59), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 500)], 60), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 500)], 119), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 500)], 120), "memory.available", "MemoryPressure");
    }

    #[test]
    fn what_was_met_is_over_when_as_much_is_left_as_is_to_be_reclaimed() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 0, 500)], 300);
        check(look(&mut monitor, &[(MEMORY, 1_100)], 0), "", "");
        check(look(&mut monitor, &[(MEMORY, 900)], 1), "memory.available", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 1_499)], 2), "memory.available", "MemoryPressure");
        assert!(!monitor.is_relieved(&seen(&[(MEMORY, 1_499)], 2)));
        assert!(monitor.is_relieved(&seen(&[(MEMORY, 1_500)], 2)));
        check(look(&mut monitor, &[(MEMORY, 1_500)], 3), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 1_499)], 4), "", "MemoryPressure");
    }

    #[test]
    fn what_is_to_be_reclaimed_asks_for_no_look_beside_those_that_act() {
        let thresholds = vec![threshold(MEMORY, 1_000, 0, 500)];
        let mut monitor = monitor(thresholds.clone(), 300);
        let next = |monitor: &Monitor, available| {
            let seen = seen(&[(MEMORY, available)], 0);
            crate::eviction::next_look(&thresholds, &seen, |place| monitor.is_unresolved(place))
        };
        look(&mut monitor, &[(MEMORY, 900)], 1);
        look(&mut monitor, &[(MEMORY, 1_100)], 2);
        assert_eq!(next(&monitor, 1_100), crate::eviction::LONGEST_WAIT);
        look(&mut monitor, &[(MEMORY, 1_500)], 3);
        assert_eq!(next(&monitor, 1_100), std::time::Duration::from_millis(100));
    }

    #[test]
    fn thresholds_that_stay_keep_their_grace_and_what_they_owe() {
        let (soft, hard) = (threshold(MEMORY, 1_000, 60, 0), threshold(Signal::PidAvailable, 1_000, 0, 500));
        let mut monitor = monitor(vec![soft.clone(), hard.clone()], 300);
        look(&mut monitor, &[(MEMORY, 500), (Signal::PidAvailable, 500)], 0);
        let disk = threshold(Signal::ImageFsAvailable, 1_000, 0, 0);
        monitor.set_thresholds(vec![hard, disk, soft]);
        let (due, _) = look(&mut monitor, &[(MEMORY, 500), (Signal::PidAvailable, 1_400)], 60);
        assert_eq!(due, "memory.available pid.available");
    }

    #[test]
    fn a_soft_threshold_does_not_owe_what_is_to_be_reclaimed_before_its_grace_is_over() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 60, 500)], 300);
        look(&mut monitor, &[(MEMORY, 900)], 0);
        check(look(&mut monitor, &[(MEMORY, 1_100)], 30), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 900)], 61), "", "MemoryPressure");
    }

    #[test]
    fn a_condition_stays_for_the_transition_period_after_it_was_seen_last() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 0, 0)], 300);
        look(&mut monitor, &[(MEMORY, 1)], 0);
        look(&mut monitor, &[(MEMORY, 1)], 10);
        check(look(&mut monitor, &[(MEMORY, 5_000)], 20), "", "MemoryPressure");
        assert_eq!(monitor.next_change(at(20)), Some(at(310)));
        check(look(&mut monitor, &[(MEMORY, 5_000)], 309), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 5_000)], 310), "", "");
        assert_eq!(monitor.next_change(at(310)), None);
    }

    #[test]
    fn memory_comes_first_and_the_rest_in_its_order() {
        let thresholds = vec![
            threshold(Signal::NodeFsAvailable, 1_000, 0, 0),
            threshold(Signal::PidAvailable, 1_000, 0, 0),
            threshold(Signal::AllocatableMemoryAvailable, 1_000, 0, 0),
            threshold(MEMORY, 1_000, 0, 0),
        ];
        let mut monitor = monitor(thresholds, 300);
        let all = [Signal::NodeFsAvailable, Signal::PidAvailable, Signal::AllocatableMemoryAvailable, MEMORY]
            .map(|signal| (signal, 1));
        check(
            look(&mut monitor, &all, 0),
            "allocatableMemory.available memory.available nodefs.available pid.available",
            "MemoryPressure DiskPressure PIDPressure",
        );
        check(
            look(&mut monitor, &all[..2], 1),
            "nodefs.available pid.available",
            "MemoryPressure DiskPressure PIDPressure",
        );
    }

    #[test]
    fn what_nothing_can_wait_for_comes_before_what_was_waited_for() {
        let soft = threshold(MEMORY, 1_000, 60, 0);
        let for_pods = threshold(Signal::AllocatableMemoryAvailable, 1_000, 0, 0);
        let mut monitor = monitor(vec![soft, for_pods], 300);
        let all = [MEMORY, Signal::AllocatableMemoryAvailable].map(|signal| (signal, 1));
        check(look(&mut monitor, &all, 0), "allocatableMemory.available", "MemoryPressure");
        check(look(&mut monitor, &all, 60), "allocatableMemory.available memory.available", "MemoryPressure");
    }

    #[test]
    fn nothing_is_done_twice_because_of_one_observation() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 0, 0)], 300);
        let old = seen(&[(MEMORY, 1)], 5);
        assert_eq!(monitor.look(&old, at(5)).len(), 1);
        assert_eq!(monitor.look(&old, at(6)).len(), 0);
        assert_eq!(monitor.look(&seen(&[(MEMORY, 1)], 4), at(7)).len(), 0, "a clock that was set back");
        assert_eq!(monitor.look(&seen(&[(MEMORY, 1)], 8), at(8)).len(), 1);
        assert_eq!(monitor.conditions().len(), 1, "whatever is done about it");
    }

    #[test]
    fn other_thresholds_begin_anew_and_conditions_stay() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 60, 0)], 300);
        look(&mut monitor, &[(MEMORY, 1)], 0);
        monitor.set_thresholds(vec![threshold(MEMORY, 1_000, 60, 0)]);
        check(look(&mut monitor, &[(MEMORY, 1)], 60), "memory.available", "MemoryPressure");
        monitor.set_thresholds(vec![threshold(MEMORY, 900, 60, 0)]);
        check(look(&mut monitor, &[(MEMORY, 1)], 61), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 5_000)], 62), "", "MemoryPressure");
    }

    #[test]
    fn what_was_not_seen_is_not_met() {
        let mut monitor = monitor(vec![threshold(MEMORY, 1_000, 60, 0)], 300);
        look(&mut monitor, &[(MEMORY, 1)], 0);
        check(look(&mut monitor, &[], 30), "", "MemoryPressure");
        check(look(&mut monitor, &[(MEMORY, 1)], 61), "", "MemoryPressure");
        assert!(monitor.is_relieved(&Observations::new()));
    }

    #[test]
    fn a_share_is_of_what_there_is_in_all() {
        let share = |signal, percentage, more: f32| Threshold {
            min_reclaim: (more > 0.0).then_some(Amount::Percentage(more)),
            ..Threshold::hard(signal, Amount::Percentage(percentage))
        };
        let disk = Signal::NodeFsAvailable;
        for (memory, room, expected) in [
            (1_000, 1_000, "memory.available nodefs.available"),
            (3_000, 4_000, ""),
            (3_000, 1_000, "nodefs.available"),
            (1_000, 4_000, "memory.available"),
        ] {
            let mut monitor = monitor(vec![share(MEMORY, 20.0, 5.0), share(disk, 30.0, 0.0)], 300);
            assert_eq!(look(&mut monitor, &[(MEMORY, memory), (disk, room)], 0).0, expected);
            let is_relieved = monitor.is_relieved(&seen(&[(MEMORY, 2_250), (disk, 4_000)], 1));
            assert!(!is_relieved, "5% more than 20% is to be left");
        }
    }

    #[test]
    fn a_threshold_above_all_there_is_is_always_met_and_one_of_nothing_never() {
        let mut monitor =
            monitor(vec![threshold(MEMORY, 20_000, 0, 0), threshold(Signal::PidAvailable, 0, 0, 0)], 300);
        check(
            look(&mut monitor, &[(MEMORY, 10_000), (Signal::PidAvailable, 0)], 0),
            "memory.available",
            "MemoryPressure",
        );
    }

    /// Looks a second apart: what was left at each of them.
    fn looks() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(0_i64..200, 1..80)
    }

    proptest! {
        #[test]
        fn pods_go_exactly_when_a_threshold_was_met_for_its_grace_period(
            available in looks(),
            value in 1_i64..150,
            grace in 0_i64..10,
        ) {
            let mut monitor = monitor(vec![threshold(MEMORY, value, grace, 0)], 5);
            for (second, left) in available.iter().enumerate() {
                let run = available[..=second].iter().rev().take_while(|left| **left < value).count();
                let expected = run > usize::try_from(grace).unwrap();
                let (due, _) = look(&mut monitor, &[(MEMORY, *left)], second as i64);
                prop_assert_eq!(!due.is_empty(), expected, "second {}", second);
            }
        }

        #[test]
        fn the_node_says_so_exactly_while_a_threshold_was_met_within_the_transition_period(
            available in looks(),
            value in 1_i64..150,
            period in 1_i64..20,
        ) {
            let mut monitor = monitor(vec![threshold(MEMORY, value, 3, 0)], period);
            for (second, left) in available.iter().enumerate() {
                let within = usize::try_from(period).unwrap();
                let lately = available[..=second].iter().rev().take(within).any(|left| *left < value);
                let (_, conditions) = look(&mut monitor, &[(MEMORY, *left)], second as i64);
                prop_assert_eq!(!conditions.is_empty(), lately, "second {}", second);
            }
        }

        #[test]
        fn once_met_it_is_over_when_enough_is_left_and_not_before(
            available in looks(),
            value in 1_i64..100,
            more in 1_i64..80,
        ) {
            let mut monitor = monitor(vec![threshold(MEMORY, value, 0, more)], 5);
            let mut is_met = false;
            for (second, left) in available.iter().enumerate() {
                is_met = *left < value || (is_met && *left < value + more);
                let (due, _) = look(&mut monitor, &[(MEMORY, *left)], second as i64);
                prop_assert_eq!(!due.is_empty(), is_met, "second {}", second);
            }
        }

        #[test]
        fn between_looks_that_see_the_same_nothing_changes_before_it_is_announced(
            available in 0_i64..200,
            value in 1_i64..150,
            grace in 0_i64..100,
            period in 1_i64..100,
        ) {
            let mut monitor = monitor(vec![threshold(MEMORY, value, grace, 0)], period);
            let mut before = look(&mut monitor, &[(MEMORY, available)], 0);
            let mut announced = monitor.next_change(at(0));
            for second in 1..220 {
                let now = look(&mut monitor, &[(MEMORY, available)], second);
                if now != before {
                    prop_assert!(announced.is_some_and(|announced| announced <= at(second)), "second {}", second);
                }
                (before, announced) = (now, monitor.next_change(at(second)));
            }
        }
    }
}
