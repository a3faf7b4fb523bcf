//! The pods' garbage collector: what no node will end, and finished pods when there are too many.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::binder::usage::{field, is_finished};
use super::{Controller, is_of};
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object;
use crate::resources::{NODES, PODS};
use crate::state::{Change, ChangeKind, Key};

/// How long a node may be missing before its pods are given up.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// How often finished pods are counted, and how many may be kept.
const COUNT_EVERY: SignedDuration = SignedDuration::from_secs(20);
const MOST_FINISHED: usize = 12_500;

#[derive(Debug, Default)]
pub(super) struct PodCollector {
    /// Nodes that pods say they are on, to be looked for.
    named: BTreeSet<Text>,
    /// Since when nodes are missing.
    missing: BTreeMap<Text, Timestamp>,
    /// Pods that are to go and have no node that would see to it.
    unbound: BTreeSet<Key>,
    /// When finished pods are counted.
    counts: Option<Timestamp>,
}

impl Controller for PodCollector {
    fn note(&mut self, change: &Change, now: Timestamp) {
        let is_gone = change.kind == ChangeKind::Deleted;
        if is_of(change, &NODES) {
            match is_gone {
                true => drop(self.named.insert(change.key.name.clone())),
                false => drop(self.missing.remove(&change.key.name)),
            }
        } else if is_of(change, &PODS) && !is_gone {
            let node = field(&change.object, "spec.nodeName");
            let came = change.previous.as_ref().is_none_or(|before| field(before, "spec.nodeName") != node);
            if node.is_empty() {
                if super::garbage::says(&change.object, "deletionTimestamp") {
                    self.unbound.insert(change.key.clone());
                }
            } else if came {
                self.named.insert(node.into());
            }
            if is_finished(&change.object) && self.counts.is_none() {
                self.counts = now.checked_add(COUNT_EVERY).ok();
            }
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        let at_once = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        for key in std::mem::take(&mut self.unbound) {
            let pod = cluster.state.get(&key).map(|stored| stored.decode()).unwrap_or_default();
            if object::is_being_deleted(&pod) && object::text(&pod, &["spec", "nodeName"]).is_empty() {
                cluster.delete_own(&key, &at_once, now);
            }
        }
        for node in std::mem::take(&mut self.named) {
            if cluster.state.get(&Key::new(&NODES, "", &node)).is_none() {
                self.missing.entry(node).or_insert(now);
            }
        }
        let due = self
            .missing
            .iter()
            .filter(|(_, since)| since.checked_add(QUARANTINE).is_ok_and(|end| end <= now));
        let due: Vec<Text> = due.map(|(node, _)| node.clone()).collect();
        for node in due {
            self.missing.remove(&node);
            let pods = cluster.state.list(&PODS, None);
            let pods = pods.filter(|(_, stored)| field(stored, "spec.nodeName") == node.as_str());
            let pods: Vec<(Key, Value)> = pods.map(|(key, stored)| (key.clone(), stored.decode())).collect();
            for (key, mut pod) in pods {
                if !matches!(object::text(&pod, &["status", "phase"]), "Succeeded" | "Failed") {
                    pod["status"]["phase"] = "Failed".into();
                    disrupt(cluster, pod, "DeletionByPodGC", "PodGC: node no longer exists", now);
                }
                cluster.delete_own(&key, &at_once, now);
            }
        }
        if self.counts.is_some_and(|at| at <= now) {
            self.counts = None;
            collect_finished(cluster, &at_once, now);
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let given_up = self.missing.values().filter_map(|since| since.checked_add(QUARANTINE).ok());
        given_up.chain(self.counts).min()
    }
}

/// Deletes the oldest of the finished pods where there are too many.
fn collect_finished(cluster: &mut Cluster, at_once: &DeleteOptions, now: Timestamp) {
    let finished = cluster.state.list(&PODS, None).filter(|(_, stored)| is_finished(stored));
    let finished: Vec<&Key> = finished.map(|(key, _)| key).collect();
    let Some(excess) = finished.len().checked_sub(MOST_FINISHED).filter(|excess| *excess > 0) else { return };
    let mut aged: Vec<(String, Key)> = finished
        .into_iter()
        .filter_map(|key| {
            let pod = cluster.state.get(key)?.decode();
            Some((object::meta(&pod, "creationTimestamp").to_owned(), key.clone()))
        })
        .collect();
    aged.sort();
    for (_, key) in aged.into_iter().take(excess) {
        cluster.delete_own(&key, at_once, now);
    }
}

/// Says in a pod's conditions why it is deleted.
pub(super) fn disrupt(cluster: &mut Cluster, mut pod: Value, reason: &str, message: &str, now: Timestamp) {
    let mut condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": object::time(now),
    });
    if let Some(generation) = pod["metadata"]["generation"].as_i64() {
        condition["observedGeneration"] = generation.into();
    }
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    match pod["status"]["conditions"].as_array_mut() {
        Some(conditions) => {
            conditions.retain(|own| own["type"] != "DisruptionTarget");
            conditions.push(condition);
        }
        None => pod["status"]["conditions"] = json!([condition]),
    }
    cluster.state.put(&PODS, pod);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::state::State;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn put_pod(cluster: &mut Cluster, name: &str, node: &str) {
        let metadata =
            json!({"name": name, "namespace": "default", "uid": name, "finalizers": ["example.com/look"]});
        let spec = json!({"nodeName": node});
        cluster.state.put(&PODS, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}));
    }

    #[test]
    fn pods_of_a_node_that_is_gone_are_given_up_after_a_while() {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        for node in ["stays", "goes", "returns"] {
            cluster.state.put(&NODES, json!({"metadata": {"name": node, "uid": node}}));
            put_pod(&mut cluster, node, node);
        }
        put_pod(&mut cluster, "nowhere", "never-was");
        cluster.tick(at(0));
        for node in ["goes", "returns"] {
            cluster.state.remove(&NODES, &Key::new(&NODES, "", node));
        }
        cluster.tick(at(1));
        cluster.state.put(&NODES, json!({"metadata": {"name": "returns", "uid": "again"}}));
        cluster.tick(at(40));
        let deleted = |cluster: &Cluster| -> Vec<String> {
            let pods = cluster.state.read_all(&PODS, None).filter(object::is_being_deleted);
            pods.map(|pod| object::name(&pod).to_owned()).collect()
        };
        assert_eq!(deleted(&cluster), ["nowhere"]);
        cluster.tick(at(41));
        assert_eq!(deleted(&cluster), ["goes", "nowhere"]);
        let pod = cluster.state.read(&PODS, "default", "goes").unwrap();
        assert_eq!(pod["status"]["phase"], "Failed");
        assert_eq!(pod["status"]["conditions"][0]["message"], "PodGC: node no longer exists");
    }

    #[test]
    fn a_pod_without_a_node_need_not_wait_for_one_to_go() {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(at(0));
        let metadata = json!({
            "name": "p",
            "namespace": "default",
            "uid": "p",
            "deletionTimestamp": "1970-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
        });
        cluster.state.put(&PODS, json!({"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}));
        cluster.tick(at(0));
        assert_eq!(cluster.state.list(&PODS, None).count(), 0);
    }
}
