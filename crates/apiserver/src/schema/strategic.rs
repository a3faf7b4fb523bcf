//! Strategic merge patches: maps are merged field by field, and lists item by item where the schema has a key for it.
//!
//! A patch says more than values: `$patch: replace` and `delete` on a map or on an item of a list, `$retainKeys` for
//! what a map may keep, `$deleteFromPrimitiveList/x` for what leaves a list of plain values, and `$setElementOrder/x`
//! for the order of a list.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::go;
use super::types::{Field, Item, Type};

const MARKER: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Why a patch does not fit, by what the client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// A directive is not written as it is to be.
    Malformed(&'static str),
    /// A list of lists, which no patch can be for.
    Unfit,
    /// What upstream did not foresee: an error of the server.
    Unexpected(String),
}

/// Applies a patch to an object of a type.
pub(crate) fn merge(original: Object, patch: Object, type_: &'static Type) -> Result<Object, Error> {
    merge_map(original, patch, Level::Type(type_))
}

/// Where in the schema a map is.
#[derive(Clone, Copy)]
enum Level {
    Type(&'static Type),
    /// A map of things, in a field.
    Map(&'static Field),
    /// What has fields in JSON but none in Go.
    Opaque,
}

/// What the schema says of a field.
struct Meta {
    /// Of the field, or of its elements if it is a list.
    level: Level,
    is_merged: bool,
    is_replaced: bool,
    key: &'static str,
}

impl Level {
    fn field(self, name: &str) -> Result<Meta, Error> {
        let missing = |owner: &str| {
            let name = go::quote(name);
            Error::Unexpected(format!("unable to find api field in struct {owner} for the json field {name}"))
        };
        match self {
            Level::Type(type_) => {
                let field = type_.find(name).ok_or_else(|| missing(type_.name))?.field;
                let mut strategies = field.patch_strategy().split(',');
                let strategy = strategies.find(|strategy| *strategy != "retainKeys").unwrap_or_default();
                let level = if field.shape.is_map { Level::Map(field) } else { Level::of(field) };
                let (is_merged, is_replaced) = (strategy == "merge", strategy == "replace");
                Ok(Meta { level, is_merged, is_replaced, key: field.merge_key() })
            }
            Level::Map(field) => {
                Ok(Meta { level: Level::of(field), is_merged: false, is_replaced: false, key: "" })
            }
            Level::Opaque => Err(missing("RawExtension")),
        }
    }

    fn of(field: &'static Field) -> Level {
        match field.shape.item {
            Item::Struct(id) => Level::Type(id.get()),
            _ => Level::Opaque,
        }
    }
}

fn merge_map(mut original: Object, mut patch: Object, level: Level) -> Result<Object, Error> {
    if let Some(directive) = patch.get(MARKER) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(MARKER);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_patch_type(directive.clone(), patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, level)?;
    for (name, value) in patch {
        let is_delete_list = name.starts_with(DELETE_FROM_LIST);
        let name = match is_delete_list {
            true => target_of(&name, DELETE_FROM_LIST).ok_or(Error::Malformed(BAD_DELETE_LIST))?.to_owned(),
            false => name,
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let merged = match (original.remove(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let meta = level.field(&name)?;
                match meta.is_replaced {
                    true => Some(Value::Object(new)),
                    false => Some(Value::Object(merge_map(old, new, meta.level)?)),
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let meta = level.field(&name)?;
                Some(Value::Array(merge_list(old, new, &meta, is_delete_list)?))
            }
            (old, _) if is_delete_list => old,
            (_, mut new) => {
                discard_nulls(&mut new);
                without_directives(new)
            }
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }
    Ok(original)
}

/// `$retainKeys`: what a map keeps; whatever else it had goes.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(Error::Malformed(BAD_RETAIN_KEYS)) };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    for (name, value) in patch.iter() {
        let is_directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
        if !value.is_null() && !is_directive && !keys.contains(name.as_str()) {
            return Err(Error::Malformed(BAD_RETAIN_KEYS));
        }
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// `$setElementOrder/x`: the list is merged with its patch, if there is one, and put into that order.
fn order_lists(original: &mut Object, patch: &mut Object, level: Level) -> Result<(), Error> {
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type("[]interface {}", &other.unwrap_or_default())),
        };
        let name = target_of(&directive, SET_ORDER).ok_or(Error::Malformed(BAD_ORDER))?;
        let list = |value: Option<&Value>| match value {
            Some(Value::Array(_)) => Ok(true),
            Some(other) => Err(bad_type("[]interface {}", other)),
            None => Ok(false),
        };
        let (in_original, in_patch) = (list(original.get(name))?, list(patch.get(name))?);
        let meta = level.field(name)?;
        let take = |object: &mut Object| match object.remove(name) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let new = take(patch);
        check_order(&new, &order, meta.key)?;
        if !in_original && !in_patch {
            continue;
        }
        let old = take(original);
        element_kind(&old, &new)?;
        let server = server_order(&old, &new, meta.key);
        let merged = match (in_original, in_patch) {
            (true, false) => old,
            (false, _) => new.into_iter().filter_map(without_directives).collect(),
            (true, true) => merge_list(old, new, &meta, false)?,
        };
        if !meta.key.is_empty() {
            if let Some(index) = order.iter().position(|item| !item.is_object()) {
                return Err(Error::Unexpected(format!("value for key {index} is not a map")));
            }
            check_keys(&order, meta.key)?;
        }
        let ordered = ordered(merged, &positions(&order, meta.key), &server, meta.key)?;
        original.insert(name.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

/// Where the items of a list were on the server. Upstream's list is the one that it works on: what is deleted makes
/// room in it, which what is added takes, and so gets a place among the server's own.
fn server_order(old: &[Value], new: &[Value], key: &str) -> BTreeMap<String, usize> {
    let directive =
        |item: &&Value, wanted: &str| item.get(MARKER).is_some_and(|directive| directive == wanted);
    let deleted = new.iter().filter(|item| directive(item, "delete")).filter_map(|item| key_of(item, key));
    let deleted: BTreeSet<String> = deleted.collect();
    let mut kept = old.to_vec();
    kept.retain(|item| key_of(item, key).is_none_or(|item_key| !deleted.contains(&item_key)));
    let mut order = positions(&kept, key);
    let (mut next, room) = (kept.len(), old.len() - kept.len());
    if new.iter().any(|item| directive(&item, "replace")) {
        return order;
    }
    for item in new.iter().filter(|item| item.get(MARKER).is_none()) {
        let Some(item_key) = key_of(item, key).filter(|item_key| !order.contains_key(item_key)) else {
            continue;
        };
        if next == kept.len() + room {
            break;
        }
        order.insert(item_key, next);
        next += 1;
    }
    order
}

/// The items of a patch must be in the order that it wants, and all in it.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if let Some(other) = patch.iter().find(|item| !key.is_empty() && !item.is_object()) {
        return Err(bad_type("map[string]interface {}", other));
    }
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| item.get(MARKER).is_none()) {
        let item_key = key_of(item, key).ok_or_else(|| no_key(item, key))?;
        let found = wanted.by_ref().find(|wanted| key_of(wanted, key).as_ref() == Some(&item_key));
        if found.is_none() {
            return Err(Error::Unexpected(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                go::print(&patch.to_vec().into()),
                go::print(&order.to_vec().into())
            )));
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    meta: &Meta,
    is_delete_list: bool,
) -> Result<Vec<Value>, Error> {
    if !meta.is_merged && !is_delete_list {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if element_kind(&original, &patch)? != Kind::Map {
        if is_delete_list {
            let gone = positions(&patch, "");
            return Ok(original.into_iter().filter(|item| !gone.contains_key(&item.to_string())).collect());
        }
        let (order, server) = (positions(&patch, ""), positions(&original, ""));
        let mut seen = BTreeSet::new();
        let both = original.into_iter().chain(patch);
        let merged = both.filter(|item| seen.insert(item.to_string())).collect();
        return ordered(merged, &order, &server, "");
    }
    if meta.key.is_empty() {
        let name = if matches!(meta.level, Level::Type(_)) { "struct" } else { "map" };
        return Err(Error::Unexpected(format!("cannot merge lists without merge key for {name}")));
    }
    let (original, patch) = special_elements(original, patch, meta.key)?;
    check_keys(&original, meta.key)?;
    let (server, order) = (positions(&original, meta.key), positions(&patch, meta.key));
    let mut merged = original;
    let mut places = server.clone();
    for item in patch {
        let item_key = key_of(&item, meta.key).ok_or_else(|| no_key(&item, meta.key))?;
        match places.get(&item_key) {
            Some(place) => {
                let old = merged[*place].take();
                let (Value::Object(old), Value::Object(new)) = (old, item) else { continue };
                merged[*place] = Value::Object(merge_map(old, new, meta.level)?);
            }
            None => {
                places.insert(item_key, merged.len());
                merged.push(item);
            }
        }
    }
    ordered(merged, &order, &server, meta.key)
}

/// `$patch` in items: what is deleted leaves the list, and a replacement is all that stays.
fn special_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let (mut plain, mut gone, mut replaces) = (Vec::new(), BTreeSet::new(), false);
    for item in patch {
        match item.get(MARKER) {
            None => plain.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                gone.insert(key_of(&item, key).ok_or_else(|| no_key(&item, key))?);
            }
            Some(Value::String(directive)) if directive == "replace" => replaces = true,
            Some(Value::String(directive)) if directive == "merge" => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(Error::Unexpected(why.to_owned()));
            }
            Some(other) => {
                let Value::Object(map) = item.clone() else { continue };
                return Err(bad_patch_type(other.clone(), map));
            }
        }
    }
    if replaces {
        return Ok((plain, Vec::new()));
    }
    original.retain(|item| key_of(item, key).is_none_or(|item_key| !gone.contains(&item_key)));
    Ok((original, plain))
}

/// Puts a list into the order of the patch, with what only the server has in its old place among it.
fn ordered(
    merged: Vec<Value>,
    order: &BTreeMap<String, usize>,
    server: &BTreeMap<String, usize>,
    key: &str,
) -> Result<Vec<Value>, Error> {
    let (mut patched, mut kept) = (Vec::new(), Vec::new());
    for item in merged {
        let item_key = key_of(&item, key).ok_or_else(|| no_key(&item, key))?;
        match order.get(&item_key) {
            Some(place) => patched.push((*place, server.get(&item_key).copied(), item)),
            None => kept.push((server.get(&item_key).copied(), item)),
        }
    }
    patched.sort_by_key(|(place, _, _)| *place);
    kept.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    let mut all = Vec::with_capacity(patched.len() + kept.len());
    let mut kept = kept.into_iter().peekable();
    for (_, place, item) in patched {
        // What stood before this one, as far as both had a place.
        while let Some(before) =
            kept.next_if(|(before, _)| place.is_some() && *before < place && before.is_some())
        {
            all.push(before.1);
        }
        all.push(item);
    }
    all.extend(kept.map(|(_, item)| item));
    Ok(all)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Map,
    Plain,
}

/// What lists are of. They must be of one thing, and not of lists.
fn element_kind(original: &[Value], patch: &[Value]) -> Result<Kind, Error> {
    let mut all = original.iter().chain(patch);
    let Some(first) = all.next() else {
        return Err(Error::Unexpected("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(Error::Unfit);
    }
    let kind = go::type_of(first);
    if all.any(|item| go::type_of(item) != kind) {
        let lists = Value::from(vec![original.to_vec(), patch.to_vec()]);
        return Err(Error::Unexpected(format!(
            "list element types are not identical: {}",
            go::print(&lists)
        )));
    }
    Ok(if first.is_object() { Kind::Map } else { Kind::Plain })
}

/// What an item of a list is known by: its key's value, or itself if there is no key.
fn key_of(item: &Value, key: &str) -> Option<String> {
    match key {
        "" => Some(item.to_string()),
        key => item.get(key).map(Value::to_string),
    }
}

/// Where each item of a list is.
fn positions(list: &[Value], key: &str) -> BTreeMap<String, usize> {
    let mut positions = BTreeMap::new();
    for (index, item) in list.iter().enumerate() {
        if let Some(item_key) = key_of(item, key) {
            positions.entry(item_key).or_insert(index);
        }
    }
    positions
}

fn check_keys(list: &[Value], key: &str) -> Result<(), Error> {
    match list.iter().find(|item| key_of(item, key).is_none()) {
        Some(item) => Err(no_key(item, key)),
        None => Ok(()),
    }
}

/// Nulls in a patch say what is to go; where nothing was, nothing goes.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is left of a value of a patch where there was none before; nothing if it is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(MARKER) => None,
        Value::Object(fields) => {
            let kept =
                fields.into_iter().filter_map(|(name, field)| Some((name, without_directives(field)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

/// `x` of `$setElementOrder/x`.
fn target_of<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    name.split_once('/').filter(|(before, _)| *before == prefix).map(|(_, target)| target)
}

const BAD_DELETE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";

fn bad_type(expected: &str, actual: &Value) -> Error {
    Error::Unexpected(format!("expected a {expected}, but received a {}", go::type_of(actual)))
}

fn no_key(item: &Value, key: &str) -> Error {
    Error::Unexpected(format!("map: {} does not contain declared merge key: {key}", go::print(item)))
}

fn bad_patch_type(directive: Value, patch: Object) -> Error {
    let (directive, patch) = (go::print(&directive), go::print(&Value::Object(patch)));
    Error::Unexpected(format!("unknown patch type: {directive} in map: {patch}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::types;

    fn patched(schema: &str, original: &Value, patch: &Value) -> Result<Value, Error> {
        let (Value::Object(original), Value::Object(patch)) = (original.clone(), patch.clone()) else {
            panic!("{original} {patch}")
        };
        merge(original, patch, types::find(schema).unwrap()).map(Value::Object)
    }

    #[test]
    fn patches_do_what_they_do_upstream() {
        let cases = include_str!("../../tests/data/strategic_merge_patches.json");
        let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 190);
        for case in cases {
            let result = patched("test.MergeItem", &case["original"], &case["patch"]);
            match (&case["result"], result) {
                (Value::String(expected), Err(Error::Unexpected(why))) => {
                    assert!(why.contains(expected.trim_start_matches("ERR ")), "{case}: {why}");
                }
                (expected, result) => assert_eq!(result.as_ref(), Ok(expected), "{case:#}"),
            }
        }
    }

    #[test]
    fn pods_are_patched_by_the_keys_of_their_lists() {
        let pod = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]},
            "spec": {
                "containers": [
                    {"name": "a", "image": "a:1", "env": [{"name": "E", "value": "1"}],
                        "ports": [{"containerPort": 80, "name": "http"}]},
                    {"name": "b", "image": "b:1"},
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [{"key": "k"}],
            },
        });
        for (patch, path, expected) in [
            (
                json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
                "/metadata/labels",
                json!({"b": "2", "c": "3"}),
            ),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"]}}),
                "/metadata/finalizers",
                json!(["z", "y"]),
            ),
            (
                json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}}),
                "/spec/containers/1",
                json!({"name": "b", "image": "b:2"}),
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}], "ports": [{"containerPort": 81}]}]}}),
                "/spec/containers/0",
                json!({"name": "a", "image": "a:1", "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}],
                    "ports": [{"containerPort": 81}, {"containerPort": 80, "name": "http"}]}),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "$patch": "delete"}]}}),
                "/spec/containers",
                json!([pod["spec"]["containers"][0]]),
            ),
            (
                json!({"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}, "emptyDir": null}]}}),
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
            ),
            (json!({"spec": {"tolerations": [{"key": "l"}]}}), "/spec/tolerations", json!([{"key": "l"}])),
            (json!({"spec": {"$patch": "replace", "nodeName": "n"}}), "/spec", json!({"nodeName": "n"})),
        ] {
            let result = patched("core.Pod", &pod, &patch).unwrap();
            assert_eq!(result.pointer(path), Some(&expected), "{patch}");
        }
    }

    #[test]
    fn what_upstream_refuses_is_refused_in_its_words() {
        let pod = json!({"metadata": {"finalizers": ["x"]}, "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}});
        let unexpected = |why: &str| Error::Unexpected(why.to_owned());
        for (patch, expected) in [
            (
                json!({"spec": {"containers": [{"image": "a"}]}}),
                unexpected("map: map[image:a] does not contain declared merge key: name"),
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
                unexpected("merging lists cannot yet be specified in the patch"),
            ),
            (
                json!({"spec": {"$patch": "mend", "a": 1}}),
                unexpected("unknown patch type: mend in map: map[$patch:mend a:1]"),
            ),
            (
                json!({"spec": {"containers": ["a"]}}),
                unexpected("list element types are not identical: [[map[name:a]] [a]]"),
            ),
            (json!({"spec": {"$setElementOrder": []}}), Error::Malformed(BAD_ORDER)),
            (json!({"metadata": {"$deleteFromPrimitiveList": []}}), Error::Malformed(BAD_DELETE_LIST)),
            (json!({"spec": {"$retainKeys": "a"}}), Error::Malformed(BAD_RETAIN_KEYS)),
            (json!({"spec": {"$retainKeys": ["a"], "b": 1}}), Error::Malformed(BAD_RETAIN_KEYS)),
            (
                json!({"metadata": {"finalizers": [["x"]]}}),
                unexpected("list element types are not identical: [[x] [[x]]]"),
            ),
        ] {
            assert_eq!(patched("core.Pod", &pod, &patch), Err(expected), "{patch}");
        }
    }
}
