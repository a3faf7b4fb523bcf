//! What the pods of each node take of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crablet_api::core::{ContainerPort, Pod, ResourceList};
use crablet_api::meta::Time;
use crablet_api::{Quantity, Text};
use crablet_core::admission::ports::host_ports;
use crablet_core::qos::{Overhead, PodLevel, pod_requests};

use super::preemption::{Victim, priority};
use crate::resources::PODS;
use crate::state::{Key, State, Stored};

/// What the pods of a node take together.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeUse {
    pub(super) pods: i64,
    pub(super) requests: BTreeMap<Text, i64>,
    pub(super) ports: Vec<ContainerPort>,
}

/// What a pod takes of its node.
#[derive(Debug)]
struct PodUse {
    node: Text,
    priority: i32,
    started: Option<Time>,
    requests: Box<[(Text, i64)]>,
    ports: Box<[ContainerPort]>,
}

#[derive(Debug, Default)]
pub(super) struct Usage {
    pods: BTreeMap<Key, PodUse>,
    nodes: BTreeMap<Text, NodeUse>,
    /// Pods that have changed since they were counted. They are only looked at when somebody wants to know.
    stale: BTreeSet<Key>,
}

impl Usage {
    pub(super) fn note(&mut self, key: &Key) {
        self.stale.insert(key.clone());
    }

    /// Counts what has changed.
    pub(super) fn refresh(&mut self, state: &State) {
        for key in std::mem::take(&mut self.stale) {
            self.count(&key, state.get(&key).map(|stored| &**stored));
        }
    }

    pub(super) fn of(&self, node: &str) -> Option<&NodeUse> {
        self.nodes.get(node)
    }

    /// Those on a node that are less important than another.
    pub(super) fn less_important(&self, node: &str, than: i32) -> Vec<Victim> {
        let there = self.pods.iter().filter(|(_, pod)| *pod.node == *node && pod.priority < than);
        let victim = |(key, pod): (&Key, &PodUse)| Victim {
            key: key.clone(),
            priority: pod.priority,
            started: pod.started,
        };
        there.map(victim).collect()
    }

    /// What is taken of a node without some of the pods there, and with others.
    pub(super) fn with<'p>(
        &self,
        node: &str,
        gone: &BTreeSet<Key>,
        coming: impl Iterator<Item = &'p Pod>,
    ) -> Option<Cow<'_, NodeUse>> {
        let mut used = self.of(node).map(Cow::Borrowed);
        for pod in gone.iter().filter_map(|key| self.pods.get(key)).filter(|pod| *pod.node == *node) {
            used.get_or_insert_default().to_mut().remove(pod);
        }
        for pod in coming {
            used.get_or_insert_default().to_mut().add(&PodUse::of(pod));
        }
        used
    }

    fn count(&mut self, key: &Key, stored: Option<&Stored>) {
        if let Some(old) = self.pods.remove(key)
            && let Some(node) = self.nodes.get_mut(&old.node)
        {
            node.remove(&old);
        }
        let Some(stored) = stored.filter(|stored| takes_room(stored)) else { return };
        let Ok(pod) = serde_json::from_slice::<Pod>(&stored.json()) else { return };
        let new = PodUse::of(&pod);
        self.nodes.entry(new.node.clone()).or_default().add(&new);
        self.pods.insert(key.clone(), new);
    }
}

impl PodUse {
    fn of(pod: &Pod) -> PodUse {
        PodUse {
            node: pod.spec.node_name.clone(),
            priority: priority(pod),
            started: pod.status.start_time,
            requests: requests(pod),
            ports: host_ports(pod).cloned().collect(),
        }
    }
}

impl NodeUse {
    fn add(&mut self, pod: &PodUse) {
        self.pods += 1;
        for (name, amount) in &pod.requests {
            let sum = self.requests.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        self.ports.extend(pod.ports.iter().cloned());
    }

    fn remove(&mut self, pod: &PodUse) {
        self.pods -= 1;
        for (name, amount) in &pod.requests {
            *self.requests.entry(name.clone()).or_default() -= amount;
        }
        for port in &pod.ports {
            if let Some(position) = self.ports.iter().position(|used| used == port) {
                self.ports.swap_remove(position);
            }
        }
    }
}

/// A field that is kept beside an object.
pub(in crate::controllers) fn field<'s>(stored: &'s Stored, name: &str) -> &'s str {
    stored.fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str()).unwrap_or_default()
}

pub(in crate::controllers) fn is_finished(stored: &Stored) -> bool {
    matches!(field(stored, "status.phase"), "Succeeded" | "Failed")
}

/// Whether a pod is on a node and has not finished.
pub(in crate::controllers) fn takes_room(stored: &Stored) -> bool {
    !field(stored, "spec.nodeName").is_empty() && !is_finished(stored)
}

/// What a pod asks for, in the units that are compared: thousandths of CPUs, and whole ones of all else.
pub(super) fn requests(pod: &Pod) -> Box<[(Text, i64)]> {
    amounts(&pod_requests(pod, PodLevel::Counted, Overhead::Included))
}

pub(super) fn amounts(list: &ResourceList) -> Box<[(Text, i64)]> {
    let amount = |name: &str, quantity: &Quantity| {
        if name == "cpu" { quantity.milli_value() } else { quantity.value() }
    };
    list.iter().map(|(name, quantity)| (Text::from(name), amount(name, quantity))).collect()
}

/// The pods of a node that have not finished.
pub(in crate::controllers) fn pods_of<'s>(
    state: &'s State,
    node: &'s str,
) -> impl Iterator<Item = (&'s Key, &'s Stored)> {
    let pods = state.list(&PODS, None).map(|(key, stored)| (key, &**stored));
    pods.filter(move |(_, stored)| field(stored, "spec.nodeName") == node && !is_finished(stored))
}
