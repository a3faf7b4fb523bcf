//! A patch, applied to the old object as an API server applies it, gives the new one.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod schema;

use crablet_api::core::{Node, PodStatus};
use crablet_api::patch;
use k8s_openapi::api::core::v1 as theirs;
use k8s_openapi::schemars::JsonSchema;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use schema::{Random, Schema};

/// The lists that are patched by element, and the field that names an element; an empty one where elements are words.
const MERGED: &[(&str, &str)] = &[
    ("ownerReferences", "uid"),
    ("finalizers", ""),
    ("conditions", "type"),
    ("addresses", "type"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("resourceClaimStatuses", "name"),
];

/// What an API server does with a patch.
fn apply(old: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        old.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, change) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        match (old.get_mut(name), change) {
            (_, Value::Null) => {
                old.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(change)) => apply(old, change),
            (Some(Value::Array(old)), Value::Array(change)) => {
                match MERGED.iter().find(|(list, _)| list == name) {
                    Some((_, key)) => apply_to_list(old, change, key),
                    None => *old = change.clone(),
                }
            }
            (_, change) => {
                old.insert(name.clone(), change.clone());
            }
        }
    }
    for (name, directive) in patch {
        let Some((what, list)) = name.split_once('/') else { continue };
        let (Some(Value::Array(list)), Some(directive)) = (old.get_mut(list), directive.as_array()) else {
            continue;
        };
        match what {
            "$deleteFromPrimitiveList" => list.retain(|word| !directive.contains(word)),
            "$setElementOrder" => list.sort_by_key(|element| {
                directive.iter().position(|named| match named {
                    Value::Object(named) => named.iter().all(|(key, value)| &element[key] == value),
                    word => word == element,
                })
            }),
            other => panic!("{other}"),
        }
    }
}

fn apply_to_list(old: &mut Vec<Value>, patch: &[Value], key: &str) {
    if patch.contains(&json!({ "$patch": "replace" })) {
        *old = patch.iter().filter(|element| element.get("$patch").is_none()).cloned().collect();
        return;
    }
    for element in patch {
        let at = old.iter().position(|other| !key.is_empty() && other[key] == element[key]);
        match (at, element.get("$patch")) {
            (Some(at), Some(_)) => drop(old.remove(at)),
            (Some(at), None) => apply(old[at].as_object_mut().unwrap(), element.as_object().unwrap()),
            (None, _) => old.push(element.clone()),
        }
    }
}

/// Names must differ, and some must be the same in both objects; nulls are not there.
fn tidy(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            for (name, field) in fields.iter_mut() {
                tidy(field, random);
                if let Some((_, key)) = MERGED.iter().find(|(list, _)| list == name) {
                    let first = random.below(3);
                    for (at, element) in field.as_array_mut().into_iter().flatten().enumerate() {
                        let word = json!(format!("name-{}", (first + at as u64) % 3));
                        match element {
                            Value::Object(element) => drop(element.insert((*key).to_owned(), word)),
                            element => *element = word,
                        }
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(item, random)),
        _ => {}
    }
}

fn make<S: JsonSchema, T: DeserializeOwned>(random: &mut Random) -> T {
    let mut value = Schema::of::<S>().random(random);
    tidy(&mut value, random);
    if let Some(object) = value.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    serde_json::from_value(value).unwrap()
}

/// Nulls and empty lists are as good as absent.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null() && *field != json!([]));
            fields.values_mut().for_each(|field| *field = without_nulls(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}

#[track_caller]
fn check(old: Value, new: Value, patch: &Value) {
    let mut patched = old.clone();
    apply(patched.as_object_mut().unwrap(), patch.as_object().unwrap());
    assert_eq!(without_nulls(patched), without_nulls(new), "{old} with {patch}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_pods_status_becomes_the_new_one(seed: u64) {
        let random = &mut Random(seed);
        let old: PodStatus = make::<theirs::PodStatus, _>(random);
        let new: PodStatus = make::<theirs::PodStatus, _>(random);
        let pod = |status: &PodStatus| json!({ "metadata": { "uid": "u" }, "status": status });
        let patch = patch::pod_status("u", &old, &new).map_or(json!({}), |patch| patch.as_value().clone());
        check(pod(&old), pod(&new), &patch);
    }

    #[test]
    fn a_nodes_status_and_metadata_become_the_new_ones(seed: u64) {
        let random = &mut Random(seed);
        let old: Node = make::<theirs::Node, _>(random);
        let new: Node = Node { spec: old.spec.clone(), ..make::<theirs::Node, _>(random) };
        let value = |node: &Node| serde_json::to_value(node).unwrap();
        check(value(&old), value(&new), patch::node_status(&old, &new).as_value());
    }
}
