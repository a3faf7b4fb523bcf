//! Having less important pods leave for one that fits nowhere: upstream's `DefaultPreemption`. Nothing here budgets
//! disruptions.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crablet_api::core::{Node, Pod, PodConditionType};
use crablet_api::meta::Time;
use jiff::Timestamp;
use serde_json::json;

use super::fit::Misfit;
use super::usage::pods_of;
use super::{EventType, Look, SCHEDULER, Told, counted};
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object;
use crate::resources::PODS;
use crate::state::{Key, State};

const REASON: &str = "PreemptionByScheduler";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// What can be done for a pod that fits nowhere.
#[derive(Debug, PartialEq)]
pub(super) enum Preemption {
    /// Others leave a node for it.
    Of { node: String, victims: Vec<Key> },
    /// Others have been asked to leave, and it waits for them.
    Awaited(String),
    /// Nothing, and why.
    None(String),
}

/// A pod that may have to leave.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) key: Key,
    pub(super) priority: i32,
    pub(super) started: Option<Time>,
}

/// Whom a pod would make leave a node, and how bad that would be.
struct Candidate<'n> {
    node: &'n str,
    victims: Vec<Victim>,
}

/// Looks for the node with the fewest and least important pods in the way; what was against each is in their order.
pub(super) fn find(look: &Look<'_>, pod: &Pod, nodes: &[Node], misfits: &[Misfit]) -> Preemption {
    let not_eligible = |why: &str| format!("preemption: not eligible due to {why}.");
    if pod.spec.preemption_policy.as_ref().is_some_and(|policy| policy.as_str() == "Never") {
        return Preemption::None(not_eligible("preemptionPolicy=Never"));
    }
    let nominated = pod.status.nominated_node_name.as_str();
    let is_possible =
        nodes.iter().zip(misfits).any(|(node, misfit)| *node.metadata.name == *nominated && misfit.by_others);
    if is_possible && has_leaving(look.state, nominated, priority(pod)) {
        return Preemption::Awaited(not_eligible("a terminating pod on the nominated node"));
    }
    let mut candidates = Vec::new();
    let mut against = Vec::new();
    for (node, misfit) in nodes.iter().zip(misfits) {
        if !misfit.by_others {
            against.push(Misfit::always(NOT_HELPFUL));
            continue;
        }
        match victims_on(look, pod, node) {
            Ok(victims) => candidates.push(Candidate { node: &node.metadata.name, victims }),
            Err(misfit) => against.push(misfit),
        }
    }
    match candidates.into_iter().min_by_key(Candidate::cost) {
        Some(best) => Preemption::Of {
            node: best.node.to_owned(),
            victims: best.victims.into_iter().map(|victim| victim.key).collect(),
        },
        None => {
            let all = nodes.len();
            Preemption::None(format!("preemption: 0/{all} nodes are available: {}.", counted(&against)))
        }
    }
}

impl Candidate<'_> {
    /// The most important victim counts first, then all of them together, and then how many they are; of the same, those
    /// that began last.
    fn cost(&self) -> (Option<i32>, i64, usize, Reverse<Option<Time>>) {
        let priorities = || self.victims.iter().map(|victim| victim.priority);
        // So that none is below zero, as upstream has it: more of them always cost more.
        let sum = priorities().map(|priority| i64::from(priority) + i64::from(i32::MAX) + 1).sum();
        let highest = priorities().max();
        let most_important = self.victims.iter().filter(|victim| Some(victim.priority) == highest);
        let started = most_important.map(|victim| victim.started).min().flatten();
        (highest, sum, self.victims.len(), Reverse(started))
    }
}

/// Who must leave a node: all who may, but those with whom the pod fits nevertheless, the most important first.
fn victims_on(look: &Look<'_>, pod: &Pod, node: &Node) -> Result<Vec<Victim>, Misfit> {
    let mut candidates = look.usage.less_important(&node.metadata.name, priority(pod));
    if candidates.is_empty() {
        return Err(Misfit::always(NO_VICTIMS));
    }
    let mut gone: BTreeSet<Key> = candidates.iter().map(|victim| victim.key.clone()).collect();
    look.check(pod, node, &gone)?;
    candidates.sort_by_key(|victim| {
        (Reverse(victim.priority), victim.started.is_none(), victim.started, victim.key.clone())
    });
    let mut victims = Vec::new();
    for victim in candidates {
        gone.remove(&victim.key);
        if look.check(pod, node, &gone).is_err() {
            gone.insert(victim.key.clone());
            victims.push(victim);
        }
    }
    Ok(victims)
}

/// Whether pods have been asked to leave a node for a more important one, and are there still.
fn has_leaving(state: &State, node: &str, than: i32) -> bool {
    let mut pods =
        pods_of(state, node).filter_map(|(_, stored)| serde_json::from_slice::<Pod>(&stored.json()).ok());
    pods.any(|pod| {
        let mut conditions = pod.status.conditions.iter();
        priority(&pod) < than
            && pod.metadata.deletion_timestamp.is_some()
            && conditions
                .any(|known| known.r#type == PodConditionType::DisruptionTarget && *known.reason == *REASON)
    })
}

pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}

/// Asks a pod to leave a node for another.
pub(super) fn preempt(cluster: &mut Cluster, victim: &Key, node: &str, for_uid: &str, now: Timestamp) {
    let Some(mut pod) = cluster.state.read(&PODS, &victim.namespace, &victim.name) else { return };
    let mut condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": object::time(now),
        "reason": REASON,
        "message": format!("{SCHEDULER}: preempting to accommodate a higher priority pod"),
    });
    if let Some(generation) = pod["metadata"]["generation"].as_i64() {
        condition["observedGeneration"] = generation.into();
    }
    let conditions = object::list(&pod, &["status", "conditions"]).iter();
    let mut conditions: Vec<_> =
        conditions.filter(|known| known["type"] != "DisruptionTarget").cloned().collect();
    conditions.push(condition);
    object::holder(&mut pod, "status")["conditions"] = conditions.into();
    cluster.update_own(&PODS, pod.clone());
    cluster.delete_own(victim, &DeleteOptions::default(), now);
    let told = Told {
        component: SCHEDULER,
        kind: EventType::Normal,
        reason: "Preempted",
        action: "Preempting",
        message: &format!("Preempted by pod {for_uid} on node {node}"),
    };
    cluster.tell(&PODS, &pod, &told, now);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{asks, at, cluster, events, pod, put_node, put_pod};
    use super::*;
    use crate::resources::NODES;

    fn with_priority(cpu: &str, priority: i32) -> Value {
        let mut spec = asks(cpu);
        spec["priority"] = priority.into();
        spec["terminationGracePeriodSeconds"] = 30.into();
        spec
    }

    fn message(cluster: &Cluster, name: &str) -> String {
        object::text(&pod(cluster, name)["status"]["conditions"][0], &["message"]).to_owned()
    }

    fn leaving(cluster: &Cluster) -> Vec<String> {
        let pods = cluster.state.read_all(&PODS, None);
        pods.filter(object::is_being_deleted).map(|pod| object::name(&pod).to_owned()).collect()
    }

    #[test]
    fn the_least_important_leave_and_the_room_is_kept_for_whom_they_left() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "4");
        for (name, cpu, priority) in
            [("low", "1", 1), ("lower", "1", 0), ("middle", "1", 5), ("high", "1", 50)]
        {
            put_pod(&mut cluster, name, with_priority(cpu, priority));
        }
        cluster.tick(at(0));
        put_pod(&mut cluster, "important", with_priority("2", 10));
        cluster.tick(at(1));
        assert_eq!(leaving(&cluster), ["low", "lower"]);
        let victim = pod(&cluster, "low");
        assert_eq!(
            victim["status"]["conditions"][1],
            json!({
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": "1970-01-01T00:00:01Z",
                "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
            })
        );
        let waits = pod(&cluster, "important");
        assert_eq!(
            (&waits["spec"]["nodeName"], &waits["status"]["nominatedNodeName"]),
            (&Value::Null, &json!("n"))
        );
        assert!(events(&cluster).contains(&"Preempted Preempted by pod important on node n".to_owned()));
        // The first victim goes, and somebody less important wants its room.
        cluster.delete_own(&Key::new(&PODS, "default", "low"), &at_once(), at(2));
        put_pod(&mut cluster, "late", with_priority("1", 5));
        cluster.tick(at(2));
        assert_eq!(pod(&cluster, "late")["spec"]["nodeName"], Value::Null);
        assert_eq!(
            message(&cluster, "important"),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
        );
        cluster.delete_own(&Key::new(&PODS, "default", "lower"), &at_once(), at(3));
        cluster.tick(at(3));
        let bound = pod(&cluster, "important");
        assert_eq!(
            (&bound["spec"]["nodeName"], &bound["status"]["nominatedNodeName"]),
            (&json!("n"), &Value::Null)
        );
        assert_eq!(
            message(&cluster, "late"),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
    }

    fn at_once() -> DeleteOptions {
        DeleteOptions { grace: Some(0), ..DeleteOptions::default() }
    }

    #[test]
    fn nobody_leaves_where_that_does_not_help() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "2");
        put_pod(&mut cluster, "low", with_priority("1", 0));
        put_pod(&mut cluster, "high", with_priority("1", 50));
        cluster.tick(at(0));
        let mut never = with_priority("1", 10);
        never["preemptionPolicy"] = "Never".into();
        put_pod(&mut cluster, "never", never);
        put_pod(&mut cluster, "two", with_priority("2", 10));
        put_pod(&mut cluster, "three", with_priority("3", 10));
        cluster.tick(at(1));
        assert_eq!(leaving(&cluster), [""; 0]);
        for (name, expected) in [
            ("never", "not eligible due to preemptionPolicy=Never."),
            ("two", "0/1 nodes are available: 1 Insufficient cpu."),
            ("three", "0/1 nodes are available: 1 Preemption is not helpful for scheduling."),
        ] {
            let expected = format!("0/1 nodes are available: 1 Insufficient cpu. preemption: {expected}");
            assert_eq!(message(&cluster, name), expected, "{name}");
        }
    }

    #[test]
    fn the_node_where_the_least_important_are_in_the_way_is_taken() {
        let mut cluster = cluster();
        for (node, name, priority) in [("n1", "a", 7), ("n2", "b", 3), ("n3", "c", 5)] {
            put_node(&mut cluster, node, "1");
            put_pod(&mut cluster, name, with_priority("1", priority));
            cluster.tick(at(0));
        }
        put_pod(&mut cluster, "important", with_priority("1", 10));
        cluster.tick(at(1));
        assert_eq!(
            (leaving(&cluster), pod(&cluster, "important")["status"]["nominatedNodeName"].clone()),
            (vec!["b".to_owned()], json!("n2"))
        );
        // A node that goes is nothing to wait for.
        cluster.state.remove(&NODES, &Key::new(&NODES, "", "n2"));
        cluster.tick(at(2));
        assert_eq!(pod(&cluster, "important")["status"]["nominatedNodeName"], "n3");
    }

    #[test]
    fn who_does_not_want_the_pod_beside_it_leaves_too() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "2");
        let mut node = cluster.state.read(&NODES, "", "n").unwrap();
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": "n"});
        cluster.state.put(&NODES, node);
        put_pod(&mut cluster, "low", with_priority("1", 0));
        cluster.tick(at(0));
        let mut labelled = pod(&cluster, "low");
        labelled["metadata"]["labels"] = json!({"app": "web"});
        cluster.state.put(&PODS, labelled);
        let mut alone = with_priority("1", 10);
        alone["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "web"}},
            "topologyKey": "kubernetes.io/hostname",
        }]}});
        put_pod(&mut cluster, "alone", alone);
        cluster.tick(at(1));
        assert_eq!(leaving(&cluster), ["low"]);
    }
}
