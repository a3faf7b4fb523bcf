//! Ending the pods of a node that is about to be shut down: group by group, those of the lowest priority first. A group
//! has its time, and the next one begins when all of it have ended or that time is over.

use std::collections::VecDeque;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;

/// What the reason of a status says of a pod that a shutdown ended.
pub const REASON: &str = "Terminated";
/// What its message says.
pub const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Why a node takes no pod that is about to be shut down.
pub const NOT_ADMITTED_REASON: &str = "NodeShutdown";
/// The same in a sentence.
pub const NOT_ADMITTED_MESSAGE: &str = "Pod was rejected as the node is shutting down.";

/// The priority of pods that the cluster cannot do without: those of this one and above are.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// How long the pods have whose priority is at least this one, and lower than the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub priority: i32,
    pub length: Duration,
}

/// The periods in the order in which groups end. Without any by priority, all time but that of critical pods is for the
/// others.
pub fn periods(total: Duration, critical: Duration, mut by_priority: Vec<Period>) -> Vec<Period> {
    if by_priority.is_empty()
        && !total.is_zero()
        && let Some(others) = total.checked_sub(critical)
    {
        by_priority = vec![
            Period { priority: 0, length: whole_seconds(others) },
            Period { priority: SYSTEM_CRITICAL, length: whole_seconds(critical) },
        ];
    }
    by_priority.sort_by_key(|period| period.priority);
    by_priority
}

/// How long a shutdown must be held up for all of them.
pub fn delay(periods: &[Period]) -> Duration {
    periods.iter().fold(Duration::ZERO, |sum, period| sum.saturating_add(period.length))
}

fn whole_seconds(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs())
}

/// A pod that has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    pub uid: Text,
    /// How long it has: no longer than its group.
    pub grace: Duration,
}

/// Pods that end together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub priority: i32,
    pub length: Duration,
    pub pods: Vec<Leaving>,
}

/// A shutdown under way. Its times count from its beginning.
#[derive(Debug)]
pub struct Shutdown {
    to_come: VecDeque<Group>,
    under_way: Option<(Group, Duration)>,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// These have to end from now on.
    End(Group),
    /// Nothing, until one of those ends, or until then.
    Wait { until: Duration },
    /// All had their time.
    Done,
}

impl Shutdown {
    /// Of these pods, with these periods. A period that nobody falls into is left out.
    pub fn new<'a>(periods: &[Period], pods: impl IntoIterator<Item = &'a Pod>) -> Shutdown {
        let new_group = |&Period { priority, length }| Group { priority, length, pods: Vec::new() };
        let mut groups: Vec<Group> = periods.iter().map(new_group).collect();
        for pod in pods {
            let priority = pod.spec.priority.unwrap_or_default();
            if let Some(group) = group_of(priority, periods).and_then(|index| groups.get_mut(index)) {
                let own = pod.spec.termination_grace_period_seconds.map(|own| own.unsigned_abs());
                let grace = own.map_or(group.length, |own| Duration::from_secs(own).min(group.length));
                group.pods.push(Leaving { uid: pod.metadata.uid.clone(), grace });
            }
        }
        groups.retain(|group| !group.pods.is_empty());
        Shutdown { to_come: groups.into(), under_way: None }
    }

    /// Whether nobody is to end after those that were told to.
    pub fn is_last(&self) -> bool {
        self.to_come.is_empty()
    }

    /// What is to be done at a time, where it is known who has ended.
    pub fn step(&mut self, now: Duration, has_ended: impl Fn(&str) -> bool) -> Step {
        if let Some((group, until)) = &self.under_way
            && now < *until
            && !group.pods.iter().all(|pod| has_ended(&pod.uid))
        {
            return Step::Wait { until: *until };
        }
        match self.to_come.pop_front() {
            Some(group) => {
                self.under_way = Some((group.clone(), now.saturating_add(group.length)));
                Step::End(group)
            }
            None => Step::Done,
        }
    }
}

/// The period that a priority falls into: the highest that is not above it, or the lowest that there is. Of several with
/// one priority it is the first.
fn group_of(priority: i32, periods: &[Period]) -> Option<usize> {
    let lower = periods.partition_point(|period| period.priority < priority);
    match periods.get(lower) {
        Some(period) if period.priority == priority => Some(lower),
        Some(_) | None => (!periods.is_empty()).then(|| lower.saturating_sub(1)),
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn by_priority(periods: &[(i32, u64)]) -> Vec<Period> {
        let period = |&(priority, length)| Period { priority, length: seconds(length) };
        periods.iter().map(period).collect()
    }

    fn pod(uid: &str, priority: Option<i32>, grace: Option<i64>) -> Pod {
        let mut pod =
            pod_yaml(&format!("metadata: {{name: {uid}, uid: {uid}}}\nspec: {{containers: [{{name: c}}]}}"));
        (pod.spec.priority, pod.spec.termination_grace_period_seconds) = (priority, grace);
        pod
    }

    #[test]
    fn periods_are_those_by_priority_or_two_from_the_whole() {
        let check = |total, critical, given: &[(i32, u64)], expected: &[(i32, u64)]| {
            let found = periods(total, critical, by_priority(given));
            assert_eq!(found, by_priority(expected), "{total:?} {critical:?} {given:?}");
        };
        check(seconds(0), seconds(0), &[], &[]);
        check(seconds(30), seconds(10), &[], &[(0, 20), (SYSTEM_CRITICAL, 10)]);
        check(seconds(30), seconds(0), &[], &[(0, 30), (SYSTEM_CRITICAL, 0)]);
        check(seconds(30), seconds(30), &[], &[(0, 0), (SYSTEM_CRITICAL, 30)]);
        check(Duration::from_millis(2700), Duration::from_millis(1500), &[], &[(0, 1), (SYSTEM_CRITICAL, 1)]);
        check(seconds(10), seconds(20), &[], &[]);
        check(seconds(0), seconds(0), &[(100, 5), (-7, 9), (10, 1)], &[(-7, 9), (10, 1), (100, 5)]);
        assert_eq!(delay(&by_priority(&[(0, 20), (5, 10)])), seconds(30));
        assert_eq!(delay(&[]), seconds(0));
    }

    #[test]
    fn a_pod_falls_into_the_highest_period_that_is_not_above_it() {
        let periods = by_priority(&[(-10, 1), (0, 2), (100, 3), (1000, 4)]);
        for (priority, expected) in [
            (None, 2),
            (Some(i32::MIN), 1),
            (Some(-11), 1),
            (Some(-10), 1),
            (Some(-1), 1),
            (Some(0), 2),
            (Some(1), 2),
            (Some(99), 2),
            (Some(100), 3),
            (Some(101), 3),
            (Some(999), 3),
            (Some(1000), 4),
            (Some(i32::MAX), 4),
        ] {
            let mut shutdown = Shutdown::new(&periods, [&pod("u", priority, None)]);
            let Step::End(group) = shutdown.step(seconds(0), |_| false) else { panic!("{priority:?}") };
            assert_eq!(group.length, seconds(expected), "{priority:?}");
        }
    }

    #[test]
    fn a_pod_has_as_long_as_it_asks_for_and_no_longer_than_its_group() {
        let periods = by_priority(&[(0, 20)]);
        for (own, expected) in [(None, 20), (Some(5), 5), (Some(20), 20), (Some(300), 20), (Some(0), 0)] {
            let mut shutdown = Shutdown::new(&periods, [&pod("u", None, own)]);
            let Step::End(group) = shutdown.step(seconds(0), |_| false) else { panic!("{own:?}") };
            assert_eq!(group.pods, [Leaving { uid: "u".into(), grace: seconds(expected) }], "{own:?}");
        }
    }

    /// What happens when which pods have ended at which second: groups by their pods, with the second at which each has
    /// to end.
    fn plays(periods: &[(i32, u64)], pods: &[(&str, i32, u64)]) -> String {
        let ends_after = |uid: &str| pods.iter().find(|pod| pod.0 == uid).map_or(0, |pod| pod.2);
        let all: Vec<Pod> = pods.iter().map(|(uid, priority, _)| pod(uid, Some(*priority), None)).collect();
        let mut shutdown = Shutdown::new(&by_priority(periods), &all);
        let (mut told, mut since) = (Vec::new(), std::collections::BTreeMap::new());
        for now in 0.. {
            loop {
                let has_ended =
                    |uid: &str| since.get(uid).is_some_and(|since| now - since >= ends_after(uid));
                match shutdown.step(seconds(now), has_ended) {
                    Step::End(group) => {
                        let uids: Vec<String> = group.pods.iter().map(|pod| pod.uid.to_string()).collect();
                        told.push(format!("{now}: {}", uids.join(" ")));
                        since.extend(uids.into_iter().map(|uid| (uid, now)));
                    }
                    Step::Wait { until } => {
                        assert!(until > seconds(now));
                        break;
                    }
                    Step::Done => return format!("{}, done at {now}", told.join(", ")),
                }
            }
        }
        unreachable!()
    }

    #[test]
    fn groups_end_one_after_the_other_when_they_have_ended_or_had_their_time() {
        let periods = &[(0, 30), (100, 20), (1000, 10)];
        for (pods, expected) in [
            (
                &[("low", 0, 5), ("middle", 100, 5), ("high", 1000, 5)][..],
                "0: low, 5: middle, 10: high, done at 15",
            ),
            // One that does not stop holds up nobody for longer than its group has.
            (
                &[("low", 0, 99), ("middle", 100, 5), ("high", 1000, 99)],
                "0: low, 30: middle, 35: high, done at 45",
            ),
            (&[("a", 0, 3), ("b", 0, 7), ("high", 1000, 0)], "0: a b, 7: high, done at 7"),
            // Nobody waits for a group that nobody is in.
            (&[("high", 1000, 4)], "0: high, done at 4"),
            (&[], ", done at 0"),
        ] {
            assert_eq!(plays(periods, pods), expected, "{pods:?}");
        }
        // Critical pods without a time of their own are told to end all the same.
        assert_eq!(
            plays(&[(0, 30), (SYSTEM_CRITICAL, 0)], &[("critical", SYSTEM_CRITICAL, 9)]),
            "0: critical, done at 0"
        );
    }

    proptest! {
        #[test]
        fn every_pod_is_told_once_in_the_order_of_priorities_and_all_within_the_delay(
            periods in proptest::collection::btree_map(-5..5_i32, 0..9_u64, 1..5),
            pods in proptest::collection::vec((-6..6_i32, 0..12_u64), 0..8),
        ) {
            let periods: Vec<_> = periods.into_iter().collect();
            let named: Vec<(String, i32, u64)> =
                pods.iter().enumerate().map(|(index, (priority, takes))| (format!("p{index}"), *priority, *takes)).collect();
            let pods: Vec<(&str, i32, u64)> = named.iter().map(|(uid, priority, takes)| (&**uid, *priority, *takes)).collect();
            let told = plays(&periods, &pods);
            let (groups, done) = told.rsplit_once(", done at ").unwrap();
            prop_assert!(seconds(done.parse().unwrap()) <= delay(&by_priority(&periods)));
            let order: Vec<&str> = groups.split(", ").flat_map(|group| group.split(' ').skip(1)).collect();
            prop_assert_eq!(order.len(), pods.len());
            let priorities: Vec<i32> = groups.split(", ").filter(|group| !group.is_empty()).map(|group| {
                let lowest = group.split(' ').skip(1).map(|uid| pods.iter().find(|pod| pod.0 == uid).unwrap().1);
                lowest.min().unwrap()
            }).collect();
            prop_assert!(priorities.is_sorted());
        }
    }
}
