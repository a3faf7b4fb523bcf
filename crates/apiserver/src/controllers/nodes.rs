//! The lives of nodes: one that is not heard of is unknown, what is wrong with it becomes taints, and pods that do not
//! tolerate them are evicted.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::core::Pod;
use crablet_api::{Taint, TaintEffect, Text};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::binder::usage::{field, pods_of};
use super::pods::disrupt;
use super::write::{EventType, Told};
use super::{Controller, is_of};
use crate::cluster::Cluster;
use crate::object::{self, list, text};
use crate::resources::{LEASES, NODES, PODS};
use crate::state::{Change, ChangeKind, Key, State};

/// How long a node may be silent, and how long it may take to say anything at all.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);
const LEASES_OF_NODES: &str = "kube-node-lease";
const COMPONENT: &str = "node-controller";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Conditions that become taints: which, when it is how, and what.
const TAINTED: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// When each node was last heard of, and the sign of life that it gave in its status.
    heard: BTreeMap<Text, (Timestamp, Value)>,
    is_changed: bool,
    /// Pods that came to a node.
    came: BTreeSet<Key>,
    /// When pods are evicted whose toleration ends.
    evictions: BTreeMap<Key, Timestamp>,
}

impl Controller for Nodes {
    fn note(&mut self, change: &Change, now: Timestamp) {
        let is_gone = change.kind == ChangeKind::Deleted;
        if is_of(change, &LEASES) && *change.key.namespace == *LEASES_OF_NODES && !is_gone {
            if let Some((heard, _)) = self.heard.get_mut(&change.key.name) {
                *heard = now;
            }
        } else if is_of(change, &NODES) && is_gone {
            self.heard.remove(&change.key.name);
            self.is_changed = true;
        } else if is_of(change, &NODES) {
            let node = change.object.decode();
            let ready = condition(&node, "Ready");
            let sign = ready.map(|ready| ready["lastHeartbeatTime"].clone()).unwrap_or_default();
            let created = time(&node["metadata"]["creationTimestamp"]).unwrap_or(now);
            let first = if ready.is_none() { created } else { now };
            let (heard, known) = self.heard.entry(change.key.name.clone()).or_insert((first, Value::Null));
            // What this controller writes itself is no sign of life.
            if *known != sign && ready.is_some_and(|ready| ready["status"] != "Unknown") {
                *heard = now;
            }
            *known = sign;
            self.is_changed = true;
        } else if is_of(change, &PODS) {
            let node = field(&change.object, "spec.nodeName");
            let came = change.previous.as_ref().is_none_or(|before| field(before, "spec.nodeName") != node);
            if is_gone {
                self.evictions.remove(&change.key);
                self.came.remove(&change.key);
            } else if came && !node.is_empty() {
                self.came.insert(change.key.clone());
            }
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        let is_one_silent = self.silences().any(|(_, ends)| ends <= now);
        if std::mem::take(&mut self.is_changed) || is_one_silent {
            let nodes: Vec<Key> = cluster.state.list(&NODES, None).map(|(key, _)| key.clone()).collect();
            for key in &nodes {
                self.see_whether_it_lives(cluster, key, now);
            }
            let is_any_ready = cluster.state.read_all(&NODES, None).any(|node| is_ready(&node));
            for key in &nodes {
                taint(cluster, key, is_any_ready, now);
                self.plan_evictions(cluster, &key.name, now);
            }
        }
        for key in std::mem::take(&mut self.came) {
            self.plan_eviction(&cluster.state, &key, now);
        }
        let due = self.evictions.iter().filter(|(_, at)| **at <= now);
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.evictions.remove(&key);
            evict(cluster, &key, now);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let silences = self.silences().map(|(_, ends)| ends);
        silences.chain(self.evictions.values().copied()).min()
    }
}

impl Nodes {
    /// When each node that is not known to be silent will have been so for too long.
    fn silences(&self) -> impl Iterator<Item = (&Text, Timestamp)> {
        self.heard.iter().filter_map(|(name, (heard, sign))| {
            let grace = if sign.is_null() { STARTUP_GRACE } else { GRACE };
            Some((name, heard.checked_add(grace).ok()?))
        })
    }

    /// Says of a node that has been silent for too long that nothing is known of it.
    fn see_whether_it_lives(&mut self, cluster: &mut Cluster, key: &Key, now: Timestamp) {
        let Some(mut node) = cluster.state.get(key).map(|stored| stored.decode()) else { return };
        let (heard, _) = self.heard.get(&key.name).cloned().unwrap_or((now, Value::Null));
        let grace = if condition(&node, "Ready").is_none() { STARTUP_GRACE } else { GRACE };
        if heard.checked_add(grace).is_ok_and(|ends| now < ends) {
            return;
        }
        let before = node.clone();
        let was_ready = is_ready(&node);
        set_unknown(&mut node, now);
        // Nothing more is expected of it until it is heard of again.
        self.heard.remove(&key.name);
        if node == before {
            return;
        }
        cluster.state.put(&NODES, node.clone());
        if was_ready {
            let name = object::name(&node).to_owned();
            let message = format!("Node {name} status is now: NodeNotReady");
            tell(cluster, &NODES, &node, EventType::Normal, "NodeNotReady", &message, now);
            mark_pods_not_ready(cluster, &name, now);
        }
    }

    fn plan_evictions(&mut self, cluster: &Cluster, node: &str, now: Timestamp) {
        let pods: Vec<Key> = pods_of(&cluster.state, node).map(|(key, _)| key.clone()).collect();
        for key in pods {
            self.plan_eviction(&cluster.state, &key, now);
        }
    }

    /// Finds out when a pod has to leave its node because of its taints.
    fn plan_eviction(&mut self, state: &State, key: &Key, now: Timestamp) {
        self.evictions.remove(key);
        let Some(stored) = state.get(key) else { return };
        let node = state.read(&NODES, "", field(stored, "spec.nodeName")).unwrap_or_default();
        let taints = Vec::<Taint>::deserialize(&node["spec"]["taints"]).unwrap_or_default();
        let taints: Vec<Taint> =
            taints.into_iter().filter(|taint| taint.effect == TaintEffect::NoExecute).collect();
        if taints.is_empty() {
            return;
        }
        let Ok(pod) = serde_json::from_slice::<Pod>(&stored.json()) else { return };
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        if let Some(at) = end_of_toleration(&pod, &taints, &node, now) {
            self.evictions.insert(key.clone(), at);
        }
    }
}

/// When a pod no longer tolerates taints; none if it always does.
fn end_of_toleration(pod: &Pod, taints: &[Taint], node: &Value, now: Timestamp) -> Option<Timestamp> {
    let mut end: Option<Timestamp> = None;
    for taint in taints {
        let tolerations =
            || pod.spec.tolerations.iter().filter(|toleration| toleration.tolerates(taint, true));
        if tolerations().next().is_none() {
            return Some(now);
        }
        let Some(seconds) = tolerations().filter_map(|toleration| toleration.toleration_seconds).min() else {
            continue;
        };
        let added = list(node, &["spec", "taints"]).iter();
        let added = added.filter(|own| own["key"] == *taint.key && own["effect"] == "NoExecute");
        let added = added.filter_map(|own| time(&own["timeAdded"])).next().unwrap_or(now);
        let at = added.checked_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(now);
        end = Some(end.map_or(at, |end| end.min(at)));
    }
    end
}

fn evict(cluster: &mut Cluster, key: &Key, now: Timestamp) {
    let Some(pod) = cluster.state.get(key).map(|stored| stored.decode()) else { return };
    if object::is_being_deleted(&pod) {
        return;
    }
    let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
    let told = Told {
        component: "taint-eviction-controller",
        kind: EventType::Normal,
        reason: "TaintManagerEviction",
        action: "",
        message: &message,
    };
    cluster.tell(&PODS, &pod, &told, now);
    disrupt(cluster, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now);
    cluster.delete_own(key, &crate::cluster::delete::DeleteOptions::default(), now);
}

/// Gives a node the taints that its conditions mean, and no others of theirs. Nodes that are all not ready are left to
/// themselves: then it is more likely that nobody can be heard than that nobody is there.
fn taint(cluster: &mut Cluster, key: &Key, is_any_ready: bool, now: Timestamp) {
    let Some(mut node) = cluster.state.get(key).map(|stored| stored.decode()) else { return };
    let mut wanted: Vec<(&str, &str)> = TAINTED
        .iter()
        .filter(|(kind, status, _)| condition(&node, kind).is_some_and(|own| own["status"] == *status))
        .map(|(_, _, key)| (*key, "NoSchedule"))
        .collect();
    if node["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    if is_any_ready {
        let unready = wanted.iter().find(|(key, _)| matches!(*key, NOT_READY | UNREACHABLE)).copied();
        wanted.extend(unready.map(|(key, _)| (key, "NoExecute")));
    }
    let is_ours = |taint: &Value| {
        let (key, effect) = (text(taint, &["key"]), text(taint, &["effect"]));
        let is_known = key == UNSCHEDULABLE || TAINTED.iter().any(|(_, _, own)| *own == key);
        (is_known && effect == "NoSchedule")
            || (matches!(key, NOT_READY | UNREACHABLE) && effect == "NoExecute")
    };
    let is_wanted =
        |taint: &Value| wanted.iter().any(|(key, effect)| taint["key"] == *key && taint["effect"] == *effect);
    let old = list(&node, &["spec", "taints"]);
    let mut taints: Vec<Value> =
        old.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| taint["key"] == *key && taint["effect"] == *effect) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": object::time(now)}));
        }
    }
    if taints == old {
        return;
    }
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    match taints.is_empty() {
        true => drop(object::remove(&mut node["spec"], "taints")),
        false => node["spec"]["taints"] = taints.into(),
    }
    cluster.update_own(&NODES, node);
}

fn set_unknown(node: &mut Value, now: Timestamp) {
    let created = node["metadata"]["creationTimestamp"].clone();
    if !node["status"].is_object() {
        node["status"] = json!({});
    }
    if !node["status"]["conditions"].is_array() {
        node["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = node["status"]["conditions"].as_array_mut() else { return };
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        match conditions.iter_mut().find(|own| own["type"] == kind) {
            None => conditions.push(json!({
                "type": kind,
                "status": "Unknown",
                "lastHeartbeatTime": created,
                "lastTransitionTime": object::time(now),
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            })),
            Some(own) if own["status"] != "Unknown" => {
                own["status"] = "Unknown".into();
                own["reason"] = "NodeStatusUnknown".into();
                own["message"] = "Kubelet stopped posting node status.".into();
                own["lastTransitionTime"] = object::time(now);
            }
            Some(_) => {}
        }
    }
}

fn mark_pods_not_ready(cluster: &mut Cluster, node: &str, now: Timestamp) {
    let pods: Vec<Value> = pods_of(&cluster.state, node).map(|(_, stored)| stored.decode()).collect();
    for mut pod in pods {
        let Some(conditions) = pod["status"]["conditions"].as_array_mut() else { continue };
        let Some(ready) = conditions.iter_mut().find(|own| own["type"] == "Ready") else { continue };
        if ready["status"] == "False" {
            continue;
        }
        ready["status"] = "False".into();
        ready["lastTransitionTime"] = object::time(now);
        cluster.update_own(&PODS, pod.clone());
        tell(cluster, &PODS, &pod, EventType::Warning, "NodeNotReady", "Node is not ready", now);
    }
}

fn tell(
    cluster: &mut Cluster,
    resource: &'static crate::resources::Resource,
    about: &Value,
    kind: EventType,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    cluster.tell(resource, about, &Told { component: COMPONENT, kind, reason, action: "", message }, now);
}

fn condition<'n>(node: &'n Value, kind: &str) -> Option<&'n Value> {
    list(node, &["status", "conditions"]).iter().find(|condition| condition["type"] == kind)
}

fn is_ready(node: &Value) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn cluster(nodes: &[&str]) -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        for node in nodes {
            put_node(&mut cluster, node, "True", 0);
        }
        cluster.tick(at(0));
        cluster
    }

    fn put_node(cluster: &mut Cluster, name: &str, ready: &str, seconds: i64) {
        let old = cluster.state.read(&NODES, "", name).unwrap_or_default();
        let heartbeat = object::time(at(seconds));
        let kinds = [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", ready),
        ];
        let conditions: Vec<Value> = kinds
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status, "lastHeartbeatTime": heartbeat}))
            .collect();
        let mut node = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"conditions": conditions},
        });
        if old["spec"].is_object() {
            node["spec"] = old["spec"].clone();
        }
        cluster.state.put(&NODES, node);
    }

    fn renew(cluster: &mut Cluster, node: &str) {
        let metadata = json!({"name": node, "namespace": LEASES_OF_NODES});
        cluster.state.put(&LEASES, json!({"metadata": metadata, "spec": {}}));
    }

    fn put_pod(cluster: &mut Cluster, name: &str, node: &str, tolerations: Value) {
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        let spec = json!({"nodeName": node, "containers": [{"name": "c"}], "tolerations": tolerations});
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        cluster.state.put(&PODS, json!({"metadata": metadata, "spec": spec, "status": status}));
    }

    fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
        let node = cluster.state.read(&NODES, "", node).unwrap();
        let taints = list(&node, &["spec", "taints"]).iter();
        taints.map(|taint| format!("{}:{}", text(taint, &["key"]), text(taint, &["effect"]))).collect()
    }

    fn ready(cluster: &Cluster, node: &str) -> (String, String) {
        let node = cluster.state.read(&NODES, "", node).unwrap();
        let ready = condition(&node, "Ready").unwrap();
        (text(ready, &["status"]).to_owned(), text(ready, &["message"]).to_owned())
    }

    #[test]
    fn a_node_that_is_not_heard_of_is_unknown_until_it_is() {
        let mut cluster = cluster(&["n"]);
        put_pod(&mut cluster, "p", "n", json!([]));
        renew(&mut cluster, "n");
        assert_eq!(cluster.tick(at(20)), Some(at(70)));
        cluster.tick(at(69));
        assert_eq!(ready(&cluster, "n").0, "True");
        cluster.tick(at(70));
        assert_eq!(
            ready(&cluster, "n"),
            ("Unknown".to_owned(), "Kubelet stopped posting node status.".to_owned())
        );
        // It is the only one, so nobody is evicted from it.
        assert_eq!(taints(&cluster, "n"), ["node.kubernetes.io/unreachable:NoSchedule"]);
        let pod = cluster.state.read(&PODS, "default", "p").unwrap();
        assert_eq!(pod["status"]["conditions"][0]["status"], "False");
        put_node(&mut cluster, "n", "True", 100);
        cluster.tick(at(100));
        assert_eq!(taints(&cluster, "n"), [""; 0]);
    }

    #[test]
    fn a_node_that_never_said_anything_has_longer() {
        let mut cluster = cluster(&[]);
        let metadata = json!({"name": "n", "uid": "n", "creationTimestamp": "1970-01-01T00:00:00Z"});
        cluster.state.put(&NODES, json!({"metadata": metadata}));
        cluster.tick(at(0));
        cluster.tick(at(59));
        let node = cluster.state.read(&NODES, "", "n").unwrap();
        assert!(condition(&node, "Ready").is_none());
        cluster.tick(at(60));
        assert_eq!(
            ready(&cluster, "n"),
            ("Unknown".to_owned(), "Kubelet never posted node status.".to_owned())
        );
    }

    #[test]
    fn conditions_become_taints_and_others_taints_stay() {
        let mut cluster = cluster(&["n", "m"]);
        let mut node = cluster.state.read(&NODES, "", "n").unwrap();
        node["spec"] = json!({"taints": [{"key": "own", "effect": "NoSchedule"}], "unschedulable": true});
        node["status"]["conditions"][1]["status"] = "True".into();
        node["status"]["conditions"][3]["status"] = "False".into();
        cluster.state.put(&NODES, node.clone());
        cluster.tick(at(1));
        assert_eq!(
            taints(&cluster, "n"),
            [
                "own:NoSchedule",
                "node.kubernetes.io/not-ready:NoSchedule",
                "node.kubernetes.io/disk-pressure:NoSchedule",
                "node.kubernetes.io/unschedulable:NoSchedule",
                "node.kubernetes.io/not-ready:NoExecute",
            ]
        );
    }

    #[test]
    fn pods_leave_when_they_no_longer_tolerate_it() {
        let mut cluster = cluster(&["n", "m"]);
        let tolerates = |seconds: Value| json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        put_pod(&mut cluster, "never", "n", json!([]));
        put_pod(&mut cluster, "awhile", "n", tolerates(json!(300)));
        put_pod(&mut cluster, "forever", "n", tolerates(Value::Null));
        cluster.tick(at(1));
        put_node(&mut cluster, "m", "True", 45);
        cluster.tick(at(45));
        cluster.tick(at(50));
        assert_eq!(ready(&cluster, "n").0, "Unknown");
        let left = |cluster: &Cluster| -> Vec<String> {
            let pods = cluster.state.read_all(&PODS, None).filter(|pod| !object::is_being_deleted(pod));
            pods.map(|pod| object::name(&pod).to_owned()).collect()
        };
        assert_eq!(left(&cluster), ["awhile", "forever"]);
        for seconds in (50..=349).step_by(40) {
            put_node(&mut cluster, "m", "True", seconds);
            cluster.tick(at(seconds));
        }
        assert_eq!(left(&cluster), ["awhile", "forever"]);
        cluster.tick(at(350));
        assert_eq!(left(&cluster), ["forever"]);
    }
}
