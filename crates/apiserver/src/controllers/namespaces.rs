//! Namespaces that end: what is in them goes first, with its finalizers honoured.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Controller, is_of};
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object;
use crate::resources::{NAMESPACES, RESOURCES, Resource};
use crate::state::{Change, Key};

/// What keeps a namespace until its contents are gone.
const FINALIZER: &str = "kubernetes";

#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Those that end.
    ending: BTreeSet<Text>,
    /// Those of them in which something has changed.
    changed: BTreeSet<Text>,
}

impl Controller for Namespaces {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        if is_of(change, &NAMESPACES) {
            let is_ending = change.object.fields.iter().any(|(_, phase)| *phase == *"Terminating")
                || object::is_being_deleted(&change.object.decode());
            if is_ending {
                self.ending.insert(change.key.name.clone());
                self.changed.insert(change.key.name.clone());
            }
        } else if self.ending.contains(&change.key.namespace) {
            self.changed.insert(change.key.namespace.clone());
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        for namespace in std::mem::take(&mut self.changed) {
            if end(cluster, &namespace, now) {
                self.ending.remove(&namespace);
            }
        }
    }
}

/// Ends a namespace as far as it goes; whether nothing is left to do.
fn end(cluster: &mut Cluster, name: &str, now: Timestamp) -> bool {
    let Some(namespace) = cluster.state.read(&NAMESPACES, "", name) else { return true };
    if !object::is_being_deleted(&namespace) {
        return true;
    }
    for resource in kinds() {
        let keys: Vec<Key> = cluster.state.list(resource, Some(name)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let is_new =
                cluster.state.get(&key).is_some_and(|stored| !object::is_being_deleted(&stored.decode()));
            if is_new {
                cluster.delete_own(&key, &DeleteOptions::default(), now);
            }
        }
    }
    let Some(mut namespace) = cluster.state.read(&NAMESPACES, "", name) else { return true };
    let before = namespace.clone();
    namespace["status"]["phase"] = "Terminating".into();
    let left = left(cluster, name);
    set_conditions(&mut namespace, &left, now);
    if left.is_empty() {
        let kept = object::list(&namespace, &["spec", "finalizers"]).iter();
        let kept: Vec<Value> = kept.filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        if kept.is_empty() {
            object::remove(&mut namespace["spec"], "finalizers");
        } else {
            namespace["spec"]["finalizers"] = kept.into();
        }
    }
    if namespace != before {
        match left.is_empty() {
            true => cluster.update_own(&NAMESPACES, namespace),
            false => drop(cluster.state.put(&NAMESPACES, namespace)),
        }
    }
    left.is_empty()
}

fn kinds() -> impl Iterator<Item = &'static Resource> {
    let all = RESOURCES.into_iter().filter(|resource| resource.is_namespaced());
    all.filter(|resource| std::ptr::eq(resource.storage(), *resource))
}

/// What is left in a namespace: how many of each kind, and how many with each finalizer.
#[derive(Default)]
struct Left {
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}

fn left(cluster: &Cluster, namespace: &str) -> Left {
    let mut left = Left::default();
    for resource in kinds() {
        for object in cluster.state.read_all(resource, Some(namespace)) {
            // The core's group is empty, and its point stays.
            let kind = format!("{}.{}", resource.plural, resource.group);
            *left.kinds.entry(kind).or_default() += 1;
            for finalizer in object::finalizers(&object).iter().filter_map(Value::as_str) {
                *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    left
}

fn set_conditions(namespace: &mut Value, left: &Left, now: Timestamp) {
    let fine = |kind: &str, reason: &str, message: &str| {
        (kind.to_owned(), "False", reason.to_owned(), message.to_owned())
    };
    let remaining = left.kinds.iter().map(|(kind, count)| format!("{kind} has {count} resource instances"));
    let remaining = remaining.collect::<Vec<_>>().join(", ");
    let finalizers = left.finalizers.iter();
    let finalizers =
        finalizers.map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
    let finalizers = finalizers.collect::<Vec<_>>().join(", ");
    let conditions = [
        fine(
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        fine(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        fine(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        match remaining.is_empty() {
            true => fine("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
            false => (
                "NamespaceContentRemaining".to_owned(),
                "True",
                "SomeResourcesRemain".to_owned(),
                format!("Some resources are remaining: {remaining}"),
            ),
        },
        match finalizers.is_empty() {
            true => fine(
                "NamespaceFinalizersRemaining",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            false => (
                "NamespaceFinalizersRemaining".to_owned(),
                "True",
                "SomeFinalizersRemain".to_owned(),
                format!("Some content in the namespace has finalizers remaining: {finalizers}"),
            ),
        },
    ];
    if !namespace["status"]["conditions"].is_array() {
        namespace["status"]["conditions"] = json!([]);
    }
    let Some(known) = namespace["status"]["conditions"].as_array_mut() else { return };
    for (kind, status, reason, message) in conditions {
        let old = known.iter_mut().find(|condition| condition["type"] == kind.as_str());
        match old {
            None => known.push(json!({
                "type": kind,
                "status": status,
                "lastTransitionTime": object::time(now),
                "reason": reason,
                "message": message,
            })),
            Some(old) => {
                if old["status"] != status {
                    old["lastTransitionTime"] = object::time(now);
                }
                old["status"] = status.into();
                old["reason"] = reason.into();
                old["message"] = message.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::resources::CONFIG_MAPS;
    use crate::state::State;

    #[test]
    fn a_namespace_ends_when_its_last_object_has_gone() {
        let now = Timestamp::UNIX_EPOCH;
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(now);
        cluster.state.put(
            &NAMESPACES,
            json!({
                "metadata": {"name": "a", "uid": "u", "deletionTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Terminating"},
            }),
        );
        cluster.state.put(&CONFIG_MAPS, json!({"metadata": {"name": "plain", "namespace": "a"}}));
        let held = json!({"name": "held", "namespace": "a", "finalizers": ["example.com/wait"]});
        cluster.state.put(&CONFIG_MAPS, json!({"metadata": held}));
        cluster.tick(now);
        let namespace = cluster.state.read(&NAMESPACES, "", "a").unwrap();
        assert!(cluster.state.read(&CONFIG_MAPS, "a", "plain").is_none());
        let mut held = cluster.state.read(&CONFIG_MAPS, "a", "held").unwrap();
        assert!(object::is_being_deleted(&held));
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let messages: Vec<&str> =
            conditions.iter().map(|condition| condition["message"].as_str().unwrap()).collect();
        assert_eq!(
            messages[3..],
            [
                "Some resources are remaining: configmaps. has 1 resource instances",
                "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances",
            ]
        );
        held["metadata"]["finalizers"] = json!([]);
        cluster.update_own(&CONFIG_MAPS, held);
        cluster.tick(now);
        assert!(cluster.state.read(&NAMESPACES, "", "a").is_none());
    }
}
