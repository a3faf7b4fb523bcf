//! Which containers that ended are removed, and which sandboxes: upstream's policy, for one pod and for all.
//!
//! The newest container of a name stays in a pod that goes on, whatever the policy: decisions are made from it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crablet_cri_api::{ContainerState, SandboxState};
use jiff::{SignedDuration, Timestamp};

use crate::observed;

/// How many containers that ended are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Of each name in a pod.
    pub max_per_container: usize,
    /// On the whole node, if there is such a limit.
    pub max_containers: Option<usize>,
    /// One that was made less than this ago stays in any case.
    pub min_age: SignedDuration,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { max_per_container: 1, max_containers: None, min_age: SignedDuration::ZERO }
    }
}

impl Policy {
    /// Since when a container may be removed.
    fn of_age(&self, container: &observed::Container) -> Option<Timestamp> {
        container.created_at?.checked_add(self.min_age).ok()
    }
}

/// A container that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Whether the pod decides by it.
    pub is_needed: bool,
}

/// The containers of a pod that ended long enough ago. A pod that is over needs none of them.
pub fn dead(observed: &observed::Pod, is_over: bool, policy: &Policy, now: Timestamp) -> Vec<Dead> {
    observed
        .containers()
        .iter()
        .enumerate()
        .filter(|(_, container)| {
            container.state == ContainerState::Exited
                && policy.of_age(container).is_none_or(|of_age| of_age <= now)
        })
        .map(|(place, container)| Dead {
            id: container.id.clone(),
            name: container.name.clone(),
            created_at: container.created_at,
            is_needed: !is_over && newer(observed, place) == 0,
        })
        .collect()
}

/// Those of all pods' dead containers that are over the limit: first each name in each pod is left with its share, then
/// the oldest go.
pub fn over_limit(pods: &BTreeMap<String, Vec<Dead>>, most: usize) -> BTreeSet<String> {
    let mut units: BTreeMap<(&str, &str), Vec<&Dead>> = BTreeMap::new();
    for (uid, dead) in pods {
        for dead in dead {
            units.entry((uid, &dead.name)).or_default().push(dead);
        }
    }
    let mut surplus = units.values().map(Vec::len).sum::<usize>().saturating_sub(most);
    if surplus == 0 {
        return BTreeSet::new();
    }
    let share = (most / units.len()).max(1);
    let mut gone = BTreeSet::new();
    let mut left = Vec::new();
    for unit in units.values_mut() {
        unit.sort_by_key(|dead| Reverse(dead.created_at));
        for (place, dead) in unit.iter().enumerate() {
            if dead.is_needed {
                continue;
            }
            if place >= share {
                gone.insert(dead.id.clone());
                surplus = surplus.saturating_sub(1);
            } else {
                left.push(*dead);
            }
        }
    }
    left.sort_by_key(|dead| dead.created_at);
    gone.extend(left.into_iter().take(surplus).map(|dead| dead.id.clone()));
    gone
}

/// What a pod keeps of its containers that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// The newest, for who decides by them or reads their logs.
    Newest,
    /// Nothing, once they are of age: it is over, and the node needs the room.
    Nothing,
}

/// What is removed of a pod that is still wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    pub containers: Vec<String>,
    /// Sandboxes, after those.
    pub sandboxes: Vec<String>,
    /// When something more will be old enough.
    pub look_again: Option<Timestamp>,
}

/// Of each container the newest dead ones stay beside the one that runs, but for those over the node's limit; and of
/// sandboxes the newest, and those that have containers.
pub fn surplus(
    observed: &observed::Pod,
    policy: &Policy,
    keeps: Keeps,
    over_limit: &BTreeSet<String>,
    now: Timestamp,
) -> Surplus {
    let mut surplus = Surplus::default();
    let containers = observed.containers();
    // As many are kept of each name already.
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, container) in containers.iter().enumerate() {
        if container.state != ContainerState::Exited {
            continue;
        }
        if let Some(of_age) = policy.of_age(container).filter(|of_age| *of_age > now) {
            surplus.look_again = Some(surplus.look_again.map_or(of_age, |other| other.min(of_age)));
            continue;
        }
        let kept = kept.entry(&container.name).or_default();
        let is_over = match keeps {
            Keeps::Newest => newer(observed, place) > 0 && *kept >= policy.max_per_container,
            Keeps::Nothing => true,
        };
        if is_over || over_limit.contains(&container.id) {
            surplus.containers.push(container.id.clone());
        } else {
            *kept += 1;
        }
    }
    for sandbox in observed.sandboxes().iter().skip(usize::from(keeps == Keeps::Newest)) {
        let is_used = containers.iter().any(|container| {
            container.sandbox_id == sandbox.id && !surplus.containers.contains(&container.id)
        });
        if sandbox.state == SandboxState::NotReady && !is_used {
            surplus.sandboxes.push(sandbox.id.clone());
        }
    }
    surplus
}

/// How many containers of the same name are newer than the one at this place.
fn newer(observed: &observed::Pod, place: usize) -> usize {
    let containers = observed.containers();
    containers[..place].iter().filter(|newer| newer.name == containers[place].name).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Described as _, at, container, sandbox};

    fn removed(pod: &observed::Pod, policy: Policy) -> Vec<String> {
        surplus(pod, &policy, Keeps::Newest, &BTreeSet::new(), at(10_000)).containers
    }

    #[test]
    fn of_each_name_the_newest_stay() {
        let attempts = |name: &'static str| (0..4).map(move |attempt| container(name, attempt).exited(1));
        let pod = observed::Pod::new(vec![sandbox(0, true)], attempts("a").chain(attempts("b")).collect());
        assert_eq!(removed(&pod, Policy::default()), ["a-2", "b-2", "a-1", "b-1", "a-0", "b-0"]);
        assert_eq!(removed(&pod, Policy { max_per_container: 3, ..Policy::default() }), ["a-0", "b-0"]);
        assert_eq!(removed(&pod, Policy { max_per_container: 9, ..Policy::default() }), [""; 0]);
        assert_eq!(
            removed(&pod, Policy { max_per_container: 0, ..Policy::default() }).len(),
            6,
            "decisions are made from the newest"
        );
    }

    #[test]
    fn what_runs_does_not_count_so_that_the_one_before_it_stays() {
        let attempts = (0..3).map(|attempt| container("a", attempt).exited(1));
        let pod = observed::Pod::new(vec![], attempts.chain([container("a", 3).running()]).collect());
        for (each, expected) in
            [(2, &["a-0"][..]), (1, &["a-1", "a-0"]), (0, &["a-2", "a-1", "a-0"]), (3, &[])]
        {
            let policy = Policy { max_per_container: each, ..Policy::default() };
            assert_eq!(removed(&pod, policy), expected, "{each} of each");
        }
    }

    #[test]
    fn what_is_young_stays_until_it_is_older() {
        let policy = Policy { min_age: SignedDuration::from_secs(60), ..Policy::default() };
        let pod = observed::Pod::new(
            vec![],
            vec![container("a", 0).exited(1), container("a", 1).exited(1), container("a", 2).running()],
        );
        let at_time = |seconds| surplus(&pod, &policy, Keeps::Newest, &BTreeSet::new(), at(seconds));
        let early = at_time(105);
        assert_eq!((early.containers, early.look_again), (vec![], Some(at(161))), "the young do not count");
        let late = at_time(161);
        assert_eq!((late.containers, late.look_again), (vec!["a-0".to_owned()], None));
        assert_eq!(dead(&pod, false, &policy, at(105)).len(), 1);
    }

    #[test]
    fn of_sandboxes_the_newest_stays_and_those_that_are_ready_or_have_containers() {
        let pod = observed::Pod::new(
            vec![
                sandbox(0, false),
                sandbox(1, false),
                sandbox(2, true),
                sandbox(3, false),
                sandbox(4, false),
            ],
            vec![
                container("a", 0).exited(1).in_sandbox(0),
                container("a", 1).exited(1).in_sandbox(1),
                container("b", 0).exited(0).in_sandbox(1),
            ],
        );
        let surplus = surplus(&pod, &Policy::default(), Keeps::Newest, &BTreeSet::new(), at(10_000));
        assert_eq!(surplus.containers, ["a-0"]);
        assert_eq!(
            surplus.sandboxes,
            ["sandbox-3", "sandbox-0"],
            "1 has containers, 2 is ready, 4 is the newest"
        );
    }

    /// A dead container: its pod, its name, when it was made, and whether it is needed.
    type Grave<'a> = (&'a str, &'a str, i64, bool);

    fn node(dead: &[Grave<'_>]) -> BTreeMap<String, Vec<Dead>> {
        let mut pods: BTreeMap<String, Vec<Dead>> = BTreeMap::new();
        for (pod, name, made, is_needed) in dead {
            pods.entry((*pod).to_owned()).or_default().push(Dead {
                id: format!("{pod}/{name}/{made}"),
                name: (*name).to_owned(),
                created_at: Some(at(*made)),
                is_needed: *is_needed,
            });
        }
        pods
    }

    #[test]
    fn on_a_node_each_name_has_its_share_and_then_the_oldest_go() {
        let cases: [(&str, &[Grave<'_>], usize, &[&str]); 6] = [
            ("within the limit", &[("p", "a", 1, false), ("q", "a", 2, false)], 2, &[]),
            ("nothing at all", &[], 0, &[]),
            (
                "one has more than its share",
                &[("p", "a", 5, false), ("p", "a", 6, false), ("p", "a", 7, false), ("q", "a", 1, false)],
                2,
                &["p/a/5", "p/a/6"],
            ),
            (
                "a share of one each is too much: the oldest go",
                &[("p", "a", 3, false), ("p", "b", 1, false), ("q", "a", 2, false)],
                1,
                &["p/b/1", "q/a/2"],
            ),
            (
                "what is needed counts and stays",
                &[("p", "a", 1, true), ("q", "a", 2, false), ("r", "a", 3, false)],
                2,
                &["q/a/2"],
            ),
            ("none are kept but what is needed", &[("p", "a", 1, true), ("p", "a", 0, false)], 0, &["p/a/0"]),
        ];
        for (what, dead, most, expected) in cases {
            let expected: BTreeSet<String> = expected.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(over_limit(&node(dead), most), expected, "{what}");
        }
    }

    #[test]
    fn the_newest_of_each_name_is_needed_until_the_pod_is_over() {
        let pod = observed::Pod::new(
            vec![],
            vec![container("a", 0).exited(1), container("a", 1).exited(1), container("b", 0).running()],
        );
        let needed = |is_over| -> Vec<(String, bool)> {
            let dead = dead(&pod, is_over, &Policy::default(), at(10_000));
            dead.into_iter().map(|dead| (dead.id, dead.is_needed)).collect()
        };
        assert_eq!(needed(false), [("a-1".to_owned(), true), ("a-0".to_owned(), false)]);
        assert_eq!(needed(true), [("a-1".to_owned(), false), ("a-0".to_owned(), false)]);
    }

    #[test]
    fn what_is_over_the_nodes_limit_goes_whatever_the_pods_own() {
        let pod = observed::Pod::new(vec![], vec![container("a", 0).exited(0)]);
        let surplus =
            surplus(&pod, &Policy::default(), Keeps::Newest, &BTreeSet::from(["a-0".to_owned()]), at(10_000));
        assert_eq!(surplus.containers, ["a-0"]);
    }

    #[test]
    fn a_pod_that_keeps_nothing_keeps_what_is_young() {
        let policy = Policy { min_age: SignedDuration::from_secs(60), ..Policy::default() };
        let pod = observed::Pod::new(
            vec![sandbox(0, false), sandbox(1, false)],
            vec![container("a", 0).exited(1).in_sandbox(0), container("a", 1).exited(1).in_sandbox(1)],
        );
        let at_time = |seconds| surplus(&pod, &policy, Keeps::Nothing, &BTreeSet::new(), at(seconds));
        let early = at_time(160);
        assert_eq!((early.containers.len(), early.sandboxes.len(), early.look_again), (1, 1, Some(at(161))));
        let late = at_time(161);
        assert_eq!((late.containers.len(), late.sandboxes.len(), late.look_again), (2, 2, None));
    }
}
