//! What all objects have, read from their trees.

use crablet_api::{Map, Text};
use jiff::{Timestamp, Unit};
use serde_json::Value;

/// A text of an object's metadata; empty where there is none.
pub fn meta<'o>(object: &'o Value, field: &str) -> &'o str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// The text at a path such as `["spec", "nodeName"]`; empty where there is none.
pub fn text<'o>(object: &'o Value, path: &[&str]) -> &'o str {
    at(object, path).as_str().unwrap_or_default()
}

/// The value at a path; null where there is none.
pub fn at<'o>(object: &'o Value, path: &[&str]) -> &'o Value {
    path.iter().fold(object, |value, field| &value[*field])
}

/// The list in a field; empty where there is none.
pub fn list<'o>(object: &'o Value, path: &[&str]) -> &'o [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn labels(object: &Value) -> Map<Text> {
    let Some(labels) = object["metadata"]["labels"].as_object() else { return Map::default() };
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default().into())).collect()
}

pub fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// A time as objects have it, in whole seconds.
pub fn time(at: Timestamp) -> Value {
    let at = at.round(Unit::Second).unwrap_or(at);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

/// The object in a field, made if there is none.
pub fn holder<'o>(object: &'o mut Value, field: &str) -> &'o mut Value {
    let holder = &mut object[field];
    if !holder.is_object() {
        *holder = Value::Object(serde_json::Map::new());
    }
    holder
}

/// Fills in what was left out.
pub fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object[field].is_null() {
        object[field] = value.into();
    }
}

/// Fills in a text that was left out or is empty.
pub fn fill_text(object: &mut Value, field: &str, value: &str) {
    if text(object, &[field]).is_empty() {
        object[field] = value.into();
    }
}

/// Takes a field out of an object.
pub fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.remove(field)
}

pub fn finalizers(object: &Value) -> &[Value] {
    list(object, &["metadata", "finalizers"])
}

pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    if finalizers(object).iter().any(|known| known == finalizer) {
        return;
    }
    match object["metadata"]["finalizers"].as_array_mut() {
        Some(finalizers) => finalizers.push(finalizer.into()),
        None => object["metadata"]["finalizers"] = Value::from(vec![finalizer]),
    }
}
