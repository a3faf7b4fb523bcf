//! Pods that want others beside them, or do not: required affinity between pods.

use std::collections::BTreeSet;

use crablet_api::core::{Node, Pod, PodAffinityTerm};
use crablet_api::meta::LabelSelector;
use crablet_api::{Map, Text};
use serde_json::Value;

use super::fit::Misfit;
use super::usage::{field, takes_room};
use crate::controllers::bootstrap::selects;
use crate::controllers::garbage::says;
use crate::resources::{NAMESPACES, NODES, PODS};
use crate::state::{Key, State, Stored};

/// Whether the pods that are there, but for some, let a pod be on a node.
pub(super) fn check(state: &State, pod: &Pod, node: &Node, gone: &BTreeSet<Key>) -> Result<(), Misfit> {
    let affinity = pod.spec.affinity.as_deref();
    let wanted = affinity.and_then(|affinity| affinity.pod_affinity.as_deref());
    let wanted = wanted.map(|wanted| &*wanted.required_during_scheduling_ignored_during_execution);
    let unwanted = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_deref());
    let unwanted = unwanted.map(|unwanted| &*unwanted.required_during_scheduling_ignored_during_execution);
    let namespace = pod.metadata.namespace.as_str();
    for term in wanted.unwrap_or_default() {
        let Some(place) = node.metadata.labels.get(&term.topology_key) else {
            return Err(Misfit::always("node(s) didn't match pod affinity rules"));
        };
        let is_there = others(state, &term.topology_key, place, gone)
            .any(|(key, other)| means(state, term, namespace, &key.namespace, &other.labels));
        // The first of a group that wants to be together is let in.
        let is_first = || {
            let all = state.list(&PODS, None).filter(|(_, other)| takes_room(other));
            let mut like =
                all.filter(|(key, other)| means(state, term, namespace, &key.namespace, &other.labels));
            like.next().is_none() && means(state, term, namespace, namespace, &pod.metadata.labels)
        };
        if !is_there && !is_first() {
            return Err(Misfit::always("node(s) didn't match pod affinity rules"));
        }
    }
    for term in unwanted.unwrap_or_default() {
        let Some(place) = node.metadata.labels.get(&term.topology_key) else { continue };
        let mut others = others(state, &term.topology_key, place, gone);
        if others.any(|(key, other)| means(state, term, namespace, &key.namespace, &other.labels)) {
            return Err(Misfit::now("node(s) didn't match pod anti-affinity rules"));
        }
    }
    check_those_there(state, pod, node, gone)
}

/// Whether pods that are there do not want a pod beside them.
fn check_those_there(state: &State, pod: &Pod, node: &Node, gone: &BTreeSet<Key>) -> Result<(), Misfit> {
    let all =
        state.list(&PODS, None).filter(|(_, other)| takes_room(other) && says(other, "podAntiAffinity"));
    for (key, other) in all.filter(|(key, _)| !gone.contains(key)) {
        let Ok(other) = serde_json::from_slice::<Pod>(&other.json()) else { continue };
        let affinity = other.spec.affinity.as_deref();
        let Some(unwanted) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_deref()) else {
            continue;
        };
        for term in &unwanted.required_during_scheduling_ignored_during_execution {
            let theirs = label_of(state, &other.spec.node_name, &term.topology_key);
            let is_same_place =
                theirs.is_some() && theirs.as_ref() == node.metadata.labels.get(&term.topology_key);
            if is_same_place
                && means(state, term, &key.namespace, &pod.metadata.namespace, &pod.metadata.labels)
            {
                return Err(Misfit::now("node(s) didn't satisfy existing pods anti-affinity rules"));
            }
        }
    }
    Ok(())
}

/// The pods on nodes that are in the same place.
fn others<'s>(
    state: &'s State,
    topology_key: &'s str,
    place: &'s Text,
    gone: &'s BTreeSet<Key>,
) -> impl Iterator<Item = (&'s Key, &'s Stored)> {
    let all = state.list(&PODS, None).map(|(key, stored)| (key, &**stored));
    all.filter(move |(key, other)| {
        takes_room(other)
            && !gone.contains(key)
            && label_of(state, field(other, "spec.nodeName"), topology_key).as_ref() == Some(place)
    })
}

fn label_of(state: &State, node: &str, label: &str) -> Option<Text> {
    state.get(&Key::new(&NODES, "", node))?.labels.get(label).cloned()
}

/// Whether a term of a pod means a pod with these labels.
fn means(state: &State, term: &PodAffinityTerm, own: &str, namespace: &str, labels: &Map<Text>) -> bool {
    let matches = |selector: &Option<Box<LabelSelector>>, labels: &Map<Text>| {
        let selector = selector.as_ref().and_then(|selector| serde_json::to_value(selector).ok());
        selector.is_some_and(|selector: Value| selects(&selector, labels))
    };
    let in_namespace = match (&*term.namespaces, &term.namespace_selector) {
        ([], None) => own == namespace,
        (named, selector) => {
            let of_namespace = || {
                let namespace = state.get(&Key::new(&NAMESPACES, "", namespace));
                namespace.is_some_and(|namespace| matches(selector, &namespace.labels))
            };
            named.iter().any(|name| **name == *namespace) || of_namespace()
        }
    };
    in_namespace && matches(&term.label_selector, labels)
}
