//! The binder: pods that have no node get one.
//!
//! It looks for a node that a pod fits, and takes the first; where none fits, less important pods may have to leave one.
//! What is against it is told in the pod's condition and as an event, counted by reasons as upstream does.

mod claims;
mod fit;
mod neighbours;
mod preemption;
pub(super) mod usage;

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::core::{Node, Pod};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::garbage::says;
use super::write::{EventType, Told};
use super::{Controller, is_of, volumes};
use crate::cluster::Cluster;
use crate::object;
use crate::resources::{
    CSI_NODES, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS, STORAGE_CLASSES,
};
use crate::state::{Change, ChangeKind, Key, State};
use claims::Decided;
use fit::Misfit;
use preemption::{Preemption, priority};
use usage::{Usage, field, is_finished};

const SCHEDULER: &str = "default-scheduler";
const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

#[derive(Debug, Default)]
pub(super) struct Binder {
    /// Pods that wait for a node.
    unbound: BTreeSet<Key>,
    /// Those of them that are new or have changed.
    fresh: BTreeSet<Key>,
    /// Pods for which others leave a node.
    nominated: BTreeSet<Key>,
    /// Whether something has changed that the others may have waited for.
    retries: bool,
    usage: Usage,
}

impl Controller for Binder {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        if !is_of(change, &PODS) {
            let concerns = [
                &NODES,
                &PERSISTENT_VOLUMES,
                &PERSISTENT_VOLUME_CLAIMS,
                &STORAGE_CLASSES,
                &CSI_NODES,
                &RESOURCE_CLAIMS,
            ];
            self.retries |= concerns.into_iter().any(|resource| is_of(change, resource));
            return;
        }
        let is_gone = change.kind == ChangeKind::Deleted;
        let is_bound = !field(&change.object, "spec.nodeName").is_empty();
        let is_ours = field(&change.object, "spec.schedulerName") == SCHEDULER;
        if is_gone || is_bound || !is_ours || is_finished(&change.object) {
            self.unbound.remove(&change.key);
            self.fresh.remove(&change.key);
            self.nominated.remove(&change.key);
        } else {
            self.unbound.insert(change.key.clone());
            self.fresh.insert(change.key.clone());
            match says(&change.object, "nominatedNodeName") {
                true => self.nominated.insert(change.key.clone()),
                false => self.nominated.remove(&change.key),
            };
        }
        if is_bound {
            self.usage.note(&change.key);
            self.retries |= is_gone || is_finished(&change.object);
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        let (fresh, retries) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.retries));
        let tried = if retries { self.unbound.clone() } else { fresh };
        if tried.is_empty() {
            return;
        }
        let decode = |key: &Key| cluster.state.get(key).map(|stored| (key.clone(), stored.decode()));
        let mut pods: Vec<(Key, Value)> = tried.iter().filter_map(decode).collect();
        // The more important first, and then the older.
        pods.sort_by_key(|(key, pod)| {
            let priority = pod["spec"]["priority"].as_i64().unwrap_or(0);
            (-priority, object::meta(pod, "creationTimestamp").to_owned(), key.clone())
        });
        let nodes: Vec<Node> = cluster
            .state
            .list(&NODES, None)
            .filter_map(|(_, stored)| serde_json::from_slice(&stored.json()).ok())
            .collect();
        for (key, pod) in pods {
            self.usage.refresh(&cluster.state);
            let nominated = self.nominated.iter().filter(|other| **other != key);
            let look = Look::of(&cluster.state, &self.usage, nominated);
            let verdict = decide(&look, &nodes, &pod);
            match &verdict {
                Verdict::Bind { .. } => self.usage.note(&key),
                Verdict::Preempt { victims, .. } => {
                    victims.iter().for_each(|victim| self.usage.note(victim));
                    self.nominated.insert(key.clone());
                }
                Verdict::Leave | Verdict::Gated | Verdict::Unschedulable { .. } => {}
            }
            carry_out(cluster, pod, verdict, now);
        }
    }
}

/// What is to become of a pod that has no node.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It is not to be bound, or not yet, and that is known.
    Leave,
    Gated,
    Unschedulable {
        message: String,
        /// Whether others are about to leave a node for it.
        is_awaited: bool,
    },
    Preempt {
        message: String,
        node: String,
        victims: Vec<Key>,
    },
    Bind {
        node: String,
        decided: Vec<Decided>,
    },
}

/// What a pod finds on the nodes.
struct Look<'l> {
    state: &'l State,
    usage: &'l Usage,
    /// Pods that are about to be on a node which others leave for them.
    nominated: Vec<Pod>,
}

impl<'l> Look<'l> {
    fn of(state: &'l State, usage: &'l Usage, nominated: impl Iterator<Item = &'l Key>) -> Look<'l> {
        let decode = |key: &Key| serde_json::from_slice(&state.get(key)?.json()).ok();
        Look { state, usage, nominated: nominated.filter_map(decode).collect() }
    }

    /// Whether a pod fits a node but for its claims, given that some of those there are gone.
    fn check(&self, pod: &Pod, node: &Node, gone: &BTreeSet<Key>) -> Result<(), Misfit> {
        self.check_room(pod, node, gone)?;
        neighbours::check(self.state, pod, node, gone)
    }

    /// Those who come and are as important take room, too.
    fn check_room(&self, pod: &Pod, node: &Node, gone: &BTreeSet<Key>) -> Result<(), Misfit> {
        let name = node.metadata.name.as_str();
        let coming = self
            .nominated
            .iter()
            .filter(|other| *other.status.nominated_node_name == *name && priority(other) >= priority(pod));
        fit::check(pod, node, self.usage.with(name, gone, coming).as_deref())
    }
}

fn decide(look: &Look<'_>, nodes: &[Node], pod: &Value) -> Verdict {
    if object::is_being_deleted(pod) {
        return Verdict::Leave;
    }
    if !object::list(pod, &["spec", "schedulingGates"]).is_empty() {
        return Verdict::Gated;
    }
    let Ok(typed) = serde_json::from_value::<Pod>(pod.clone()) else { return Verdict::Leave };
    let unschedulable = |message: String| Verdict::Unschedulable { message, is_awaited: false };
    if nodes.is_empty() {
        return unschedulable("no nodes available to schedule pods".to_owned());
    }
    let all = nodes.len();
    let waiting = match claims::waiting(look.state, pod) {
        Ok(waiting) => waiting,
        Err(why) => {
            let misfits = vec![Misfit::always(&why); all];
            let Preemption::None(preemption) = preemption::find(look, &typed, nodes, &misfits) else {
                return Verdict::Leave;
            };
            return unschedulable(format!("0/{all} nodes are available: {why}. {preemption}"));
        }
    };
    let mut misfits = Vec::new();
    for node in nodes {
        let nobody = BTreeSet::new();
        let fits = look
            .check_room(&typed, node, &nobody)
            .and_then(|()| claims::decide(look.state, pod, &waiting, node))
            .and_then(|decided| neighbours::check(look.state, &typed, node, &nobody).map(|()| decided));
        match fits {
            Ok(decided) => return Verdict::Bind { node: node.metadata.name.to_string(), decided },
            Err(misfit) => misfits.push(misfit),
        }
    }
    let message = format!("0/{all} nodes are available: {}.", counted(&misfits));
    match preemption::find(look, &typed, nodes, &misfits) {
        Preemption::Of { node, victims } => Verdict::Preempt { message, node, victims },
        Preemption::Awaited(why) => {
            Verdict::Unschedulable { message: format!("{message} {why}"), is_awaited: true }
        }
        Preemption::None(why) => unschedulable(format!("{message} {why}")),
    }
}

/// `1 Insufficient cpu, 2 node(s) were unschedulable`
fn counted(misfits: &[Misfit]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in misfits.iter().flat_map(|misfit| &misfit.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counts.sort();
    counts.join(", ")
}

fn carry_out(cluster: &mut Cluster, mut pod: Value, verdict: Verdict, now: Timestamp) {
    match verdict {
        Verdict::Leave => {}
        Verdict::Gated => {
            if set_condition(&mut pod, "False", "SchedulingGated", GATED, now) {
                cluster.update_own(&PODS, pod);
            }
        }
        Verdict::Unschedulable { message, is_awaited } => {
            if !is_awaited {
                object::remove(&mut pod["status"], "nominatedNodeName");
            }
            tell_unschedulable(cluster, pod, &message, now);
        }
        Verdict::Preempt { message, node, victims } => {
            for victim in &victims {
                preemption::preempt(cluster, victim, &node, object::uid(&pod), now);
            }
            object::holder(&mut pod, "status")["nominatedNodeName"] = node.into();
            tell_unschedulable(cluster, pod, &message, now);
        }
        Verdict::Bind { node, decided } if decided.is_empty() => {
            pod["spec"]["nodeName"] = node.as_str().into();
            object::remove(&mut pod["status"], "nominatedNodeName");
            set_condition(&mut pod, "True", "", "", now);
            cluster.update_own(&PODS, pod.clone());
            let (namespace, name) = (object::namespace(&pod), object::name(&pod));
            let told = Told {
                component: SCHEDULER,
                kind: EventType::Normal,
                reason: "Scheduled",
                action: "Binding",
                message: &format!("Successfully assigned {namespace}/{name} to {node}"),
            };
            cluster.tell(&PODS, &pod, &told, now);
        }
        // The claims first; the pod is looked at again when they are bound.
        Verdict::Bind { node, decided } => {
            for one in decided {
                match one {
                    Decided::Volume { volume, claim } => volumes::reserve(cluster, volume, &claim),
                    Decided::Provision { claim } => volumes::select_node(cluster, claim, &node),
                }
            }
        }
    }
}

fn tell_unschedulable(cluster: &mut Cluster, mut pod: Value, message: &str, now: Timestamp) {
    let is_news = set_condition(&mut pod, "False", "Unschedulable", message, now);
    let known = cluster.state.read(&PODS, object::namespace(&pod), object::name(&pod));
    if known.as_ref() != Some(&pod) {
        cluster.update_own(&PODS, pod.clone());
    }
    if is_news {
        let told = Told {
            component: SCHEDULER,
            kind: EventType::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            message,
        };
        cluster.tell(&PODS, &pod, &told, now);
    }
}

/// Sets the condition `PodScheduled`; whether that changes anything.
fn set_condition(pod: &mut Value, status: &str, reason: &str, message: &str, now: Timestamp) -> bool {
    let mut new = json!({"type": "PodScheduled", "status": status, "lastProbeTime": null});
    if status == "False" {
        new["reason"] = reason.into();
        new["message"] = message.into();
        if let Some(generation) = pod["metadata"]["generation"].as_i64() {
            new["observedGeneration"] = generation.into();
        }
    }
    let holder = object::holder(pod, "status");
    object::fill(holder, "conditions", json!([]));
    let Some(conditions) = holder["conditions"].as_array_mut() else { return false };
    let old = conditions.iter_mut().find(|condition| condition["type"] == "PodScheduled");
    match old {
        None => {
            new["lastTransitionTime"] = object::time(now);
            conditions.push(new);
            true
        }
        Some(old) => {
            let since = old["lastTransitionTime"].clone();
            new["lastTransitionTime"] = if old["status"] == status { since } else { object::time(now) };
            let changes = *old != new;
            *old = new;
            changes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::object::text;
    use crate::resources::EVENTS;

    pub(super) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    pub(super) fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        cluster
    }

    pub(super) fn put_node(cluster: &mut Cluster, name: &str, cpu: &str) {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status =
            json!({"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}, "conditions": ready});
        cluster.state.put(&NODES, json!({"metadata": {"name": name, "uid": name}, "status": status}));
    }

    pub(super) fn put_pod(cluster: &mut Cluster, name: &str, mut spec: Value) {
        spec["schedulerName"] = SCHEDULER.into();
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z"});
        cluster.state.put(&PODS, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}));
    }

    pub(super) fn asks(cpu: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
    }

    pub(super) fn pod(cluster: &Cluster, name: &str) -> Value {
        cluster.state.read(&PODS, "default", name).unwrap()
    }

    pub(super) fn events(cluster: &Cluster) -> Vec<String> {
        let all = cluster.state.read_all(&EVENTS, None);
        all.map(|event| format!("{} {}", text(&event, &["reason"]), text(&event, &["message"]))).collect()
    }

    #[test]
    fn a_pod_gets_the_node_and_that_is_told() {
        let mut cluster = cluster();
        put_pod(&mut cluster, "p", asks("1"));
        cluster.tick(at(0));
        assert_eq!(
            pod(&cluster, "p")["status"]["conditions"],
            json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "no nodes available to schedule pods",
                "lastProbeTime": null,
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }])
        );
        put_node(&mut cluster, "n", "2");
        cluster.tick(at(5));
        assert_eq!(pod(&cluster, "p")["spec"]["nodeName"], "n");
        assert_eq!(
            pod(&cluster, "p")["status"]["conditions"],
            json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "1970-01-01T00:00:05Z"}])
        );
        let mut events = events(&cluster);
        events.sort();
        assert_eq!(
            events,
            [
                "FailedScheduling no nodes available to schedule pods",
                "Scheduled Successfully assigned default/p to n",
            ]
        );
    }

    #[test]
    fn pods_of_one_moment_do_not_get_the_same_room_and_get_it_when_it_is_free() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "2");
        put_pod(&mut cluster, "a", asks("1500m"));
        put_pod(&mut cluster, "b", asks("1500m"));
        put_pod(&mut cluster, "c", asks("3"));
        cluster.tick(at(0));
        assert_eq!(pod(&cluster, "a")["spec"]["nodeName"], "n");
        assert_eq!(
            text(&pod(&cluster, "b")["status"]["conditions"][0], &["message"]),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        assert_eq!(
            text(&pod(&cluster, "c")["status"]["conditions"][0], &["message"]),
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        );
        let mut done = pod(&cluster, "a");
        done["status"]["phase"] = "Succeeded".into();
        cluster.state.put(&PODS, done);
        cluster.tick(at(1));
        assert_eq!(pod(&cluster, "b")["spec"]["nodeName"], "n");
    }

    #[test]
    fn reasons_are_counted_over_nodes() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n1", "2");
        put_node(&mut cluster, "n2", "1");
        put_node(&mut cluster, "n3", "2");
        let mut cordoned = cluster.state.read(&NODES, "", "n3").unwrap();
        cordoned["spec"] = json!({"unschedulable": true});
        cluster.state.put(&NODES, cordoned);
        put_pod(&mut cluster, "big", asks("5"));
        let mut never = asks("5");
        never["preemptionPolicy"] = "Never".into();
        put_pod(&mut cluster, "never", never);
        cluster.tick(at(0));
        assert_eq!(
            text(&pod(&cluster, "big")["status"]["conditions"][0], &["message"]),
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        );
        assert!(
            text(&pod(&cluster, "never")["status"]["conditions"][0], &["message"])
                .ends_with("preemption: not eligible due to preemptionPolicy=Never.")
        );
    }

    #[test]
    fn gates_and_other_schedulers_are_waited_for() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "2");
        let mut gated = asks("1");
        gated["schedulingGates"] = json!([{"name": "example.com/gate"}]);
        put_pod(&mut cluster, "gated", gated);
        put_pod(&mut cluster, "other", asks("1"));
        let mut other = pod(&cluster, "other");
        other["spec"]["schedulerName"] = "mine".into();
        cluster.state.put(&PODS, other);
        cluster.tick(at(0));
        assert_eq!(pod(&cluster, "gated")["status"]["conditions"][0]["reason"], "SchedulingGated");
        assert_eq!(pod(&cluster, "other")["spec"]["nodeName"], Value::Null);
        let mut open = pod(&cluster, "gated");
        object::remove(&mut open["spec"], "schedulingGates");
        cluster.state.put(&PODS, open);
        cluster.tick(at(1));
        assert_eq!(pod(&cluster, "gated")["spec"]["nodeName"], "n");
    }

    #[test]
    fn pods_that_do_not_want_each_other_are_not_on_one_node() {
        let mut cluster = cluster();
        put_node(&mut cluster, "n", "2");
        let mut node = cluster.state.read(&NODES, "", "n").unwrap();
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": "n"});
        cluster.state.put(&NODES, node);
        let mut alone = asks("1");
        alone["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "web"}},
            "topologyKey": "kubernetes.io/hostname",
        }]}});
        for name in ["a", "b"] {
            put_pod(&mut cluster, name, alone.clone());
            let mut labelled = pod(&cluster, name);
            labelled["metadata"]["labels"] = json!({"app": "web"});
            cluster.state.put(&PODS, labelled);
        }
        cluster.tick(at(0));
        assert_eq!(pod(&cluster, "a")["spec"]["nodeName"], "n");
        assert!(text(&pod(&cluster, "b")["status"]["conditions"][0], &["message"]).starts_with(
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. preemption:"
        ));
    }
}
