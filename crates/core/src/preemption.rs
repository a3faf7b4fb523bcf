//! Which pods make room for a critical one when the node has not enough left for it.
//!
//! As few as possible, and those that matter least: guaranteed pods only for what all others together could not free,
//! burstable ones only for what those without requests could not.

use std::fmt::{self, Display, Formatter};

use crablet_api::core::{Pod, ResourceList};
use crablet_api::{Quantity, Text};

use crate::qos::{Overhead, PodLevel, QosClass, is_critical, pod_requests, qos_class};

/// How much of a resource has to be freed. CPU is in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Which.
    pub resource: Text,
    /// How much.
    pub quantity: i64,
}

/// There are no pods that could free this much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom(pub Vec<Requirement>);

impl Display for NoRoom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("no set of running pods found to reclaim resources: [")?;
        for Requirement { resource, quantity } in &self.0 {
            write!(f, "(res: {resource}, q: {quantity}), ")?;
        }
        f.write_str("]")
    }
}

/// Whether a pod may take another one's place.
pub fn can_preempt(preemptor: &Pod, other: &Pod) -> bool {
    if is_critical(preemptor) && !is_critical(other) {
        return true;
    }
    preemptor.spec.priority.zip(other.spec.priority).is_some_and(|(one, other)| one > other)
}

/// The pods to end so that `preemptor` gets what it lacks.
pub fn pods_to_preempt<'a>(
    preemptor: &Pod,
    pods: &[&'a Pod],
    requirements: &[Requirement],
    level: PodLevel,
) -> Result<Vec<&'a Pod>, NoRoom> {
    let of_class = |class: QosClass| -> Vec<Victim<'a>> {
        let others =
            pods.iter().filter(|other| can_preempt(preemptor, other) && qos_class(other, level) == class);
        others.map(|other| Victim::new(other, requirements, level)).collect()
    };
    let (best_effort, burstable, guaranteed) =
        (of_class(QosClass::BestEffort), of_class(QosClass::Burstable), of_class(QosClass::Guaranteed));
    let lacking = |freed: &[&[Victim<'a>]]| -> Vec<i64> {
        let all = requirements.iter().map(|requirement| requirement.quantity).collect();
        freed.iter().flat_map(|victims| victims.iter()).fold(all, without)
    };
    let left = lacking(&[&best_effort, &burstable, &guaranteed]);
    if left.iter().any(|quantity| *quantity > 0) {
        let left = requirements.iter().zip(left).filter(|(_, quantity)| *quantity > 0);
        let of = |(requirement, quantity): (&Requirement, i64)| Requirement {
            resource: requirement.resource.clone(),
            quantity,
        };
        return Err(NoRoom(left.map(of).collect()));
    }
    // Each class frees what the less important ones could not if all of them went.
    let guaranteed = nearest(guaranteed, lacking(&[&best_effort, &burstable]));
    let burstable = nearest(burstable, lacking(&[&best_effort, &guaranteed]));
    let best_effort = nearest(best_effort, lacking(&[&burstable, &guaranteed]));
    Ok([best_effort, burstable, guaranteed].into_iter().flatten().map(|victim| victim.pod).collect())
}

/// A pod that may have to go, and what that would free of each thing required.
struct Victim<'a> {
    pod: &'a Pod,
    frees: Vec<i64>,
    /// Its memory and CPU: of two that would do, the one that asks for less goes.
    size: (i64, i64),
}

impl<'a> Victim<'a> {
    fn new(pod: &'a Pod, requirements: &[Requirement], level: PodLevel) -> Victim<'a> {
        let requests = pod_requests(pod, level, Overhead::Excluded);
        let amount = |resource: &str| amount(pod, &requests, resource);
        let frees = requirements.iter().map(|requirement| amount(&requirement.resource)).collect();
        Victim { pod, frees, size: (amount("memory"), amount("cpu")) }
    }

    /// How far it is from freeing what is left, each thing being worth the same.
    fn distance(&self, left: &[i64]) -> f64 {
        let share = |(left, frees): (&i64, &i64)| match left - frees {
            missing if *left > 0 && missing > 0 => (as_float(missing) / as_float(*left)).powi(2),
            _ => 0.0,
        };
        left.iter().zip(&self.frees).map(share).sum()
    }
}

/// What a pod frees of a resource. What running the pod itself takes counts where its containers ask for something.
fn amount(pod: &Pod, requests: &ResourceList, resource: &str) -> i64 {
    if resource == "pods" {
        return 1;
    }
    let mut quantity = requests.get(resource).cloned().unwrap_or_default();
    if let Some(overhead) = pod.spec.overhead.get(resource).filter(|_| !quantity.is_zero()) {
        quantity += overhead;
    }
    let whole = if resource == "cpu" { Quantity::milli_value } else { Quantity::value };
    whole(&quantity)
}

/// Distances are compared, not counted: what is lost beyond 53 bits does not matter.
#[allow(clippy::cast_precision_loss)]
fn as_float(quantity: i64) -> f64 {
    quantity as f64
}

fn without(mut left: Vec<i64>, victim: &Victim<'_>) -> Vec<i64> {
    for (left, frees) in left.iter_mut().zip(&victim.frees) {
        *left -= frees;
    }
    left
}

/// Takes the pod that is nearest to freeing what is left, and again, until nothing is left. All of them together free
/// enough.
fn nearest<'a>(mut pods: Vec<Victim<'a>>, mut left: Vec<i64>) -> Vec<Victim<'a>> {
    let mut chosen = Vec::new();
    while left.iter().any(|quantity| *quantity > 0) {
        let mut best: Option<(usize, f64)> = None;
        for (index, pod) in pods.iter().enumerate() {
            let distance = pod.distance(&left);
            let is_better = best.is_none_or(|(best, least)| match distance.total_cmp(&least) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => pod.size <= pods[best].size,
                std::cmp::Ordering::Greater => false,
            });
            if is_better {
                best = Some((index, distance));
            }
        }
        let Some((index, _)) = best else { break };
        let victim = pods.swap_remove(index);
        left = without(left, &victim);
        chosen.push(victim);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    const SYSTEM_CRITICAL: i32 = 2_000_000_000;

    /// The pods of upstream's cases: what each asks for in thousandths of a CPU and in Mi, and what it may use at most.
    fn pod(name: &str) -> Pod {
        let (requests, limited, priority) = match name {
            "best-effort" => (0, false, None),
            "burstable" => (100, false, None),
            "high-burstable" => (300, false, None),
            "guaranteed" => (100, true, None),
            "high-guaranteed" => (300, true, None),
            "cluster-critical" => (100, false, Some(SYSTEM_CRITICAL)),
            "node-critical" => (100, false, Some(SYSTEM_CRITICAL + 100)),
            other => panic!("{other}"),
        };
        let list = format!("{{cpu: {requests}m, memory: {requests}Mi}}");
        let resources = match (requests, limited) {
            (0, _) => "{}".to_owned(),
            (_, false) => format!("{{requests: {list}}}"),
            (_, true) => format!("{{requests: {list}, limits: {list}}}"),
        };
        let mut pod = pod_yaml(&format!(
            "metadata: {{name: {name}}}\nspec: {{containers: [{{name: c, resources: {resources}}}]}}"
        ));
        pod.spec.priority = priority;
        pod
    }

    fn requirements(cpu: i64, memory: i64, pods: i64) -> Vec<Requirement> {
        [("cpu", cpu), ("memory", memory << 20), ("pods", pods)]
            .into_iter()
            .filter(|(_, quantity)| *quantity > 0)
            .map(|(resource, quantity)| Requirement { resource: resource.into(), quantity })
            .collect()
    }

    /// Checks who goes, in words; `-` where that is nobody, and `no room` where nobody could help.
    #[track_caller]
    fn check(preemptor: &str, others: &str, (cpu, memory, pods): (i64, i64, i64), expected: &str) {
        let others: Vec<Pod> = others.split_whitespace().map(pod).collect();
        let others: Vec<&Pod> = others.iter().collect();
        let found =
            pods_to_preempt(&pod(preemptor), &others, &requirements(cpu, memory, pods), PodLevel::Counted);
        let found = match found {
            Err(_) => "no room".to_owned(),
            Ok(victims) if victims.is_empty() => "-".to_owned(),
            Ok(victims) => {
                let mut names: Vec<&str> = victims.iter().map(|pod| &*pod.metadata.name).collect();
                names.sort_unstable();
                names.join(" ")
            }
        };
        assert_eq!(found, expected, "{preemptor} among {others:?}");
    }

    #[test]
    fn the_least_important_pods_that_free_enough_make_room() {
        const ALL: &str = "best-effort burstable high-burstable guaranteed high-guaranteed";
        for (others, lacking, expected) in [
            ("", (0, 0, 0), "-"),
            ("", (0, 0, 1), "no room"),
            ("burstable", (100, 100, 1), "burstable"),
            ("burstable", (200, 200, 2), "no room"),
            ("burstable best-effort", (0, 0, 1), "best-effort"),
            ("burstable guaranteed", (0, 0, 1), "burstable"),
            ("best-effort high-burstable burstable", (100, 100, 0), "burstable"),
            ("best-effort burstable high-burstable", (150, 150, 0), "high-burstable"),
            (ALL, (350, 350, 0), "burstable high-burstable"),
            (ALL, (0, 550, 0), "high-burstable high-guaranteed"),
            // Who asks for nothing frees nothing.
            ("best-effort", (0, 1, 0), "no room"),
        ] {
            check("cluster-critical", others, lacking, expected);
        }
    }

    #[test]
    fn a_critical_pod_makes_room_for_a_more_important_one_alone() {
        check("node-critical", "cluster-critical", (100, 0, 0), "cluster-critical");
        check("cluster-critical", "node-critical", (100, 0, 0), "no room");
        check("cluster-critical", "cluster-critical", (0, 0, 1), "no room");
        check("cluster-critical", "cluster-critical best-effort", (0, 0, 1), "best-effort");
    }

    #[test]
    fn of_two_that_would_do_the_smaller_goes_by_memory_first() {
        let sized = |name: &str, memory: u32, cpu: u32| {
            pod_yaml(&format!(
                "metadata: {{name: {name}}}\nspec: {{containers: [{{name: c, resources: {{requests: \
                 {{memory: {memory}Mi, cpu: {cpu}m}}}}}}]}}"
            ))
        };
        let chosen = |one: &Pod, other: &Pod| {
            let found = pods_to_preempt(
                &pod("cluster-critical"),
                &[one, other],
                &requirements(0, 0, 1),
                PodLevel::Counted,
            );
            found.unwrap()[0].metadata.name.to_string()
        };
        let (low, high, busy) = (sized("low", 50, 100), sized("high", 200, 100), sized("busy", 50, 200));
        assert_eq!((chosen(&low, &high), chosen(&high, &low)), ("low".to_owned(), "low".to_owned()));
        assert_eq!(chosen(&high, &busy), "busy");
        assert_eq!((chosen(&busy, &low), chosen(&low, &busy)), ("low".to_owned(), "low".to_owned()));
    }

    #[test]
    fn what_cannot_be_freed_is_named_as_upstream_names_it() {
        let (critical, burstable) = (pod("cluster-critical"), pod("burstable"));
        let none = pods_to_preempt(&critical, &[&burstable], &requirements(150, 0, 3), PodLevel::Counted);
        assert_eq!(
            none.unwrap_err().to_string(),
            "no set of running pods found to reclaim resources: [(res: cpu, q: 50), (res: pods, q: 2), ]"
        );
    }
}
