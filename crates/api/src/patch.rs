//! Strategic merge patches: what has changed in an object, as the Go kubelet sends it.
//!
//! A list whose elements have names of their own is patched element by element, so that two writers of different
//! elements do not undo each other's work. Which lists those are, and what names an element, is part of the API.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::core::{Node, PodStatus};
use crate::meta::ObjectMeta;

/// A strategic merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch(Value);

impl Patch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.as_object().is_none_or(Map::is_empty)
    }

    /// The patch as JSON, of the type `application/strategic-merge-patch+json`.
    pub fn to_json(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    /// The patch as a value.
    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

/// What has changed in a pod's status, for the pod of that UID and no later one of the same name; none where
/// nothing has.
pub fn pod_status(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Patch> {
    let (mut old, mut new) = (old.clone(), new.clone());
    // The statuses of containers, the larger part, are replaced as a whole: what they were need not be written.
    for (old, new) in [
        (&mut old.init_container_statuses, &mut new.init_container_statuses),
        (&mut old.container_statuses, &mut new.container_statuses),
        (&mut old.ephemeral_container_statuses, &mut new.ephemeral_container_statuses),
    ] {
        match old == new {
            true => (*old, *new) = Default::default(),
            false if !new.is_empty() => *old = Box::default(),
            false => {}
        }
    }
    let mut patch = changes("status", &old, &new);
    if patch.is_empty() {
        return None;
    }
    patch.insert("metadata".into(), json!({ "uid": uid }));
    Some(Patch(Value::Object(patch)))
}

/// What has changed in a node's status and metadata.
pub fn node_status(old: &Node, new: &Node) -> Patch {
    let mut patch = changes("metadata", &old.metadata, &new.metadata);
    let addresses_change = !old.status.addresses.is_empty() && old.status.addresses != new.status.addresses;
    match addresses_change {
        false => patch.extend(changes("status", &old.status, &new.status)),
        true => {
            // The API says that addresses are named by their types, but a node may have two of one type. So they
            // are replaced as a whole.
            let mut same_addresses = new.status.clone();
            same_addresses.addresses = old.status.addresses.clone();
            patch.extend(changes("status", &old.status, &same_addresses));
            let mut addresses: Vec<Value> = new.status.addresses.iter().map(value).collect();
            addresses.push(json!({ "$patch": "replace" }));
            let status = patch.entry("status").or_insert_with(|| json!({}));
            status["addresses"] = addresses.into();
        }
    }
    Patch(Value::Object(patch))
}

/// What has changed in an object's metadata.
pub fn metadata(old: &ObjectMeta, new: &ObjectMeta) -> Patch {
    Patch(Value::Object(changes("metadata", old, new)))
}

/// How a list is patched.
#[derive(Clone, Copy)]
enum Strategy {
    /// As a whole.
    Replace,
    /// Element by element; an element is named by this field of it.
    Merge(&'static str),
    /// Likewise, and a changed element says which of its fields remain.
    MergeRetainingKeys(&'static str),
    /// As a set of words.
    Set,
}

/// The lists of pods' and nodes' metadata and status that are not replaced as a whole.
fn strategy(path: &str) -> Strategy {
    match path {
        "metadata.ownerReferences" => Strategy::Merge("uid"),
        "metadata.finalizers" => Strategy::Set,
        "status.conditions" | "status.addresses" => Strategy::Merge("type"),
        "status.podIPs" | "status.hostIPs" => Strategy::Merge("ip"),
        "status.resourceClaimStatuses" => Strategy::MergeRetainingKeys("name"),
        _ => Strategy::Replace,
    }
}

fn value<T: Serialize>(part: &T) -> Value {
    serde_json::to_value(part).expect("keys are text and nothing else in an object can fail to be written")
}

/// `{name: …}` with the changes of that part of an object, or nothing.
fn changes<T: Serialize>(name: &str, old: &T, new: &T) -> Map<String, Value> {
    let mut patch = Map::new();
    if let (Value::Object(old), Value::Object(new)) = (value(old), value(new)) {
        let changes = diff_maps(name, &old, &new);
        if !changes.is_empty() {
            patch.insert(name.to_owned(), Value::Object(changes));
        }
    }
    patch
}

fn diff_maps(path: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, new) in new {
        match (old.get(name), new) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let changes = diff_maps(&format!("{path}.{name}"), old, new);
                if !changes.is_empty() {
                    patch.insert(name.clone(), Value::Object(changes));
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => diff_lists(path, name, old, new, &mut patch),
            (Some(old), new) if old == new => {}
            (_, new) => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch
}

fn diff_lists(path: &str, name: &str, old: &[Value], new: &[Value], patch: &mut Map<String, Value>) {
    if old == new {
        return;
    }
    let path = format!("{path}.{name}");
    match strategy(&path) {
        Strategy::Replace => {
            patch.insert(name.to_owned(), new.into());
        }
        _ if old.is_empty() => {
            patch.insert(name.to_owned(), new.into());
        }
        Strategy::Set => {
            let added: Vec<Value> = new.iter().filter(|word| !old.contains(word)).cloned().collect();
            let mut gone: Vec<Value> = old.iter().filter(|word| !new.contains(word)).cloned().collect();
            gone.sort_by_key(Value::to_string);
            insert_list(patch, name.to_owned(), added);
            insert_list(patch, format!("$deleteFromPrimitiveList/{name}"), gone);
            insert_list(patch, format!("$setElementOrder/{name}"), new.to_vec());
        }
        Strategy::Merge(key) => merge(&path, name, key, false, old, new, patch),
        Strategy::MergeRetainingKeys(key) => merge(&path, name, key, true, old, new, patch),
    }
}

fn merge(
    path: &str,
    name: &str,
    key: &str,
    retain: bool,
    old: &[Value],
    new: &[Value],
    patch: &mut Map<String, Value>,
) {
    let find =
        |list: &[Value], element: &Value| list.iter().find(|other| other[key] == element[key]).cloned();
    let mut elements: Vec<Value> = Vec::new();
    for element in new {
        match (find(old, element), element) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let mut changes = diff_maps(path, &old, new);
                if changes.is_empty() {
                    continue;
                }
                if retain {
                    let kept: Vec<&String> = new.keys().collect();
                    changes.insert("$retainKeys".into(), json!(kept));
                }
                changes.insert(key.to_owned(), element[key].clone());
                elements.push(Value::Object(changes));
            }
            _ => elements.push(element.clone()),
        }
    }
    let mut gone: Vec<&Value> = old.iter().filter(|element| find(new, element).is_none()).collect();
    gone.sort_by_key(|element| element[key].to_string());
    elements.extend(gone.into_iter().map(|element| json!({ key: element[key], "$patch": "delete" })));
    insert_list(patch, name.to_owned(), elements);
    let order = new.iter().map(|element| json!({ key: element[key] })).collect();
    insert_list(patch, format!("$setElementOrder/{name}"), order);
}

fn insert_list(patch: &mut Map<String, Value>, name: String, list: Vec<Value>) {
    if !list.is_empty() {
        patch.insert(name, list.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    fn read<T: DeserializeOwned>(json: &Value) -> T {
        serde_json::from_value(json.clone()).unwrap()
    }

    #[track_caller]
    fn check_pod(old: Value, new: Value, expected: Value) {
        let patch = pod_status("u", &read(&old), &read(&new));
        let patch = patch.map_or(Value::Null, |patch| patch.as_value().clone());
        let expected = match expected {
            Value::Null => Value::Null,
            status => json!({ "metadata": { "uid": "u" }, "status": status }),
        };
        assert_eq!(patch, expected);
    }

    #[test]
    fn an_unchanged_pod_has_no_patch() {
        check_pod(json!({ "phase": "Running" }), json!({ "phase": "Running" }), Value::Null);
    }

    #[test]
    fn fields_are_set_and_removed() {
        check_pod(
            json!({ "phase": "Pending", "message": "m", "startTime": "2026-11-15T03:48:00Z" }),
            json!({ "phase": "Running", "reason": "r", "startTime": "2026-11-15T03:48:00Z" }),
            json!({ "phase": "Running", "reason": "r", "message": null }),
        );
    }

    #[test]
    fn conditions_are_patched_one_by_one() {
        let ready = |status: &str, message: &str| json!({ "type": "Ready", "status": status, "message": message, "lastProbeTime": null, "lastTransitionTime": null });
        let scheduled = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": null });
        check_pod(
            json!({ "conditions": [scheduled, ready("False", "m")] }),
            json!({ "conditions": [scheduled, ready("True", "")] }),
            json!({
                "$setElementOrder/conditions": [{ "type": "PodScheduled" }, { "type": "Ready" }],
                "conditions": [{ "type": "Ready", "status": "True", "message": null }],
            }),
        );
        check_pod(
            json!({ "conditions": [scheduled, ready("True", "m")] }),
            json!({ "conditions": [ready("True", "m"), { "type": "Initialized", "status": "True" }] }),
            json!({
                "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "Initialized" }],
                "conditions": [
                    { "type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": null },
                    { "type": "PodScheduled", "$patch": "delete" },
                ],
            }),
        );
        check_pod(
            json!({ "conditions": [scheduled, ready("True", "m")] }),
            json!({ "conditions": [ready("True", "m"), scheduled] }),
            json!({ "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "PodScheduled" }] }),
        );
        check_pod(json!({}), json!({ "conditions": [scheduled] }), json!({ "conditions": [scheduled] }));
        check_pod(json!({ "conditions": [scheduled] }), json!({}), json!({ "conditions": null }));
    }

    #[test]
    fn addresses_of_pods_are_named_by_themselves_and_containers_are_replaced() {
        check_pod(
            json!({ "podIP": "1", "podIPs": [{ "ip": "1" }], "containerStatuses": [{ "name": "a" }, { "name": "b" }] }),
            json!({ "podIP": "2", "podIPs": [{ "ip": "2" }], "containerStatuses": [{ "name": "a" }] }),
            json!({
                "podIP": "2",
                "$setElementOrder/podIPs": [{ "ip": "2" }],
                "podIPs": [{ "ip": "2" }, { "ip": "1", "$patch": "delete" }],
                "containerStatuses": [{
                    "name": "a", "state": {}, "lastState": {}, "ready": false, "restartCount": 0, "image": "", "imageID": "",
                }],
            }),
        );
    }

    #[test]
    fn a_changed_claim_says_which_fields_remain() {
        check_pod(
            json!({ "resourceClaimStatuses": [{ "name": "a", "resourceClaimName": "x" }, { "name": "b", "resourceClaimName": "y" }] }),
            json!({ "resourceClaimStatuses": [{ "name": "a" }, { "name": "b", "resourceClaimName": "z" }] }),
            json!({
                "$setElementOrder/resourceClaimStatuses": [{ "name": "a" }, { "name": "b" }],
                "resourceClaimStatuses": [
                    { "$retainKeys": ["name"], "name": "a", "resourceClaimName": null },
                    { "$retainKeys": ["name", "resourceClaimName"], "name": "b", "resourceClaimName": "z" },
                ],
            }),
        );
    }

    #[test]
    fn a_nodes_addresses_are_replaced_as_a_whole() {
        let old = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "1" }], "phase": "Pending" } });
        let new = json!({
            "metadata": { "labels": { "a": "b" } },
            "spec": { "unschedulable": true },
            "status": { "addresses": [{ "type": "InternalIP", "address": "1" }, { "type": "InternalIP", "address": "2" }] },
        });
        let expected = json!({
            "metadata": { "labels": { "a": "b" } },
            "status": {
                "phase": null,
                "addresses": [
                    { "type": "InternalIP", "address": "1" }, { "type": "InternalIP", "address": "2" },
                    { "$patch": "replace" },
                ],
            },
        });
        assert_eq!(node_status(&read(&old), &read(&new)).as_value(), &expected);
        assert!(node_status(&read(&new), &read(&new)).is_empty());
        let first = node_status(&Node::default(), &read(&old));
        assert_eq!(first.as_value(), &json!({ "status": old["status"] }));
    }

    #[test]
    fn metadata_has_named_owners_and_a_set_of_finalizers() {
        let owner =
            |uid: &str, name: &str| json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid });
        let old = json!({
            "annotations": { "a": "1", "b": "2" }, "finalizers": ["x", "z", "y"], "ownerReferences": [owner("1", "n")],
        });
        let new = json!({
            "annotations": { "a": "1", "b": "3" }, "finalizers": ["w", "x"],
            "ownerReferences": [owner("1", "m"), owner("2", "n")],
        });
        assert_eq!(
            metadata(&read(&old), &read(&new)).as_value(),
            &json!({ "metadata": {
                "annotations": { "b": "3" },
                "finalizers": ["w"],
                "$deleteFromPrimitiveList/finalizers": ["y", "z"],
                "$setElementOrder/finalizers": ["w", "x"],
                "ownerReferences": [{ "uid": "1", "name": "m" }, owner("2", "n")],
                "$setElementOrder/ownerReferences": [{ "uid": "1" }, { "uid": "2" }],
            } })
        );
    }
}
