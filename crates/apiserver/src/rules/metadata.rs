//! Rules for what all objects have.

use crablet_api::validate::{Errors, Place, Word};
use crablet_api::{
    dns1123_label_errors, dns1123_subdomain_errors, label_value_errors, qualified_name_errors,
};
use serde_json::Value;

use super::{NameForm, Update, diff};
use crate::object;
use crate::resources::Resource;

/// All annotations together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
static NULL: Value = Value::Null;
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// What is checked of the metadata of any object that is updated. Upstream's kinds then look at most of it again, so
/// that one problem has two causes and one message.
pub(crate) fn check_any_update(errors: &mut Errors, resource: &Resource, new: &Value, old: &Value) {
    check_common(errors, resource, NameForm::PathSegment, new);
    check_change(errors, new, old);
}

/// What kinds check of the metadata of an object, whatever it was before.
pub(crate) fn check(errors: &mut Errors, resource: &Resource, form: NameForm, object: &Value) {
    check_common(errors, resource, form, object);
    if has_finalizers_of_kubernetes(resource) {
        check_finalizer_names(errors, object);
    }
}

/// What kinds check of an update of the metadata.
pub(crate) fn check_update(errors: &mut Errors, update: &Update<'_>) {
    check_change(errors, update.new, update.old);
    if has_finalizers_of_kubernetes(update.resource) {
        check_finalizer_names(errors, update.new);
    }
}

/// What is wrong with a name, given its form. One that is to be generated from may end with a dash.
pub(crate) fn name_errors(form: NameForm, name: &str, is_prefix: bool) -> Vec<String> {
    let masked = if is_prefix { without_dash(name) } else { name.to_owned() };
    match form {
        NameForm::Subdomain => dns1123_subdomain_errors(&masked),
        NameForm::Label => dns1123_label_errors(&masked),
        NameForm::Dns1035Label => dns1035_label_errors(&masked),
        NameForm::PathSegment => path_segment_errors(name, is_prefix),
    }
}

/// Whether a value is what it was; none is the same as empty.
pub(crate) fn check_immutable(errors: &mut Errors, path: &str, new: &Value, old: &Value) {
    if !same(new, old) {
        errors.invalid(path, new, IMMUTABLE);
    }
}

/// The same for an object that messages show as upstream's memory holds it.
pub(crate) fn check_immutable_object(errors: &mut Errors, path: &str, kind: &str, new: &Value, old: &Value) {
    if !same(new, old) {
        errors.invalid(path, diff::shown(kind, new), IMMUTABLE);
    }
}

/// Whether two values mean the same to Go: nothing, an empty list and an empty map are one.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let all = one.keys().chain(other.keys());
            let mut pairs = all.map(|key| (one.get(key).unwrap_or(&NULL), other.get(key).unwrap_or(&NULL)));
            pairs.all(|(one, other)| same(one, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

fn check_common(errors: &mut Errors, resource: &Resource, form: NameForm, object: &Value) {
    let metadata = &object["metadata"];
    let (name, generate_name) = (object::name(object), object::meta(object, "generateName"));
    if !generate_name.is_empty() {
        errors.invalid_each("metadata.generateName", generate_name, name_errors(form, generate_name, true));
    }
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        errors.invalid_each("metadata.name", name, name_errors(form, name, false));
    }
    let namespace = object::namespace(object);
    if resource.is_namespaced() {
        if namespace.is_empty() {
            errors.required("metadata.namespace", "");
        } else {
            errors.invalid_each("metadata.namespace", namespace, dns1123_label_errors(namespace));
        }
    } else if !namespace.is_empty() {
        errors.forbidden("metadata.namespace", "not allowed on this type");
    }
    if let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation < 0) {
        errors.invalid("metadata.generation", generation, "must be greater than or equal to 0");
    }
    check_labels(errors, "metadata.labels", &metadata["labels"]);
    check_annotations(errors, "metadata.annotations", &metadata["annotations"]);
    check_owners(errors, metadata);
    check_finalizers(errors, object);
}

fn check_change(errors: &mut Errors, new: &Value, old: &Value) {
    let (metadata, before) = (&new["metadata"], &old["metadata"]);
    if object::is_being_deleted(old) {
        let known = object::finalizers(old);
        let mut added: Vec<&str> = object::finalizers(new)
            .iter()
            .filter(|finalizer| !known.contains(finalizer))
            .filter_map(Value::as_str)
            .collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let added: Vec<String> = added.into_iter().map(crablet_api::validate::quoted).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.forbidden("metadata.finalizers", detail);
        }
    }
    if object::meta(new, "resourceVersion").is_empty() {
        errors.invalid("metadata.resourceVersion", "", "must be specified for an update");
    }
    let generation = |metadata: &Value| metadata["generation"].as_i64().unwrap_or(0);
    if generation(metadata) < generation(before) {
        errors.invalid("metadata.generation", generation(metadata), "must not be decremented");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        check_immutable(errors, &format!("metadata.{field}"), &metadata[field], &before[field]);
    }
    check_labels(errors, "metadata.labels", &metadata["labels"]);
    check_annotations(errors, "metadata.annotations", &metadata["annotations"]);
    check_owners(errors, metadata);
}

pub(crate) fn check_labels(errors: &mut Errors, path: &str, labels: &Value) {
    for (key, value) in entries(labels) {
        errors.invalid_each(path, key, qualified_name_errors(key));
        errors.invalid_each(path, value, label_value_errors(value));
    }
}

fn check_annotations(errors: &mut Errors, path: &str, annotations: &Value) {
    for (key, _) in entries(annotations) {
        errors.invalid_each(path, key, qualified_name_errors(&key.to_lowercase()));
    }
    check_annotations_size(errors, path, annotations);
}

pub(crate) fn check_annotations_size(errors: &mut Errors, path: &str, annotations: &Value) {
    if entries(annotations).map(|(key, value)| key.len() + value.len()).sum::<usize>() > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}

fn check_owners(errors: &mut Errors, metadata: &Value) {
    let path = "metadata.ownerReferences";
    let owners = &metadata["ownerReferences"];
    let mut first: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        if version.is_empty() || version.ends_with('/') || version.matches('/').count() > 1 {
            errors.invalid(format_args!("{path}.apiVersion"), version, "version must not be empty");
        }
        if kind.is_empty() {
            errors.invalid(format_args!("{path}.kind"), "", "must not be empty");
        }
        if name.is_empty() {
            errors.invalid(format_args!("{path}.name"), "", "must not be empty");
        }
        if text("uid").is_empty() {
            errors.invalid(format_args!("{path}.uid"), Word(""), "must not be empty");
        }
        if (version, kind) == ("v1", "Event") {
            errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            let controller = format!("{kind}/{name}");
            match &first {
                None => first = Some(controller),
                Some(first) => errors.invalid(
                    path,
                    owners,
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {controller}"
                    ),
                ),
            }
        }
    }
}

fn check_finalizers(errors: &mut Errors, object: &Value) {
    let finalizers = object::finalizers(object);
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.invalid_each("metadata.finalizers", finalizer, qualified_name_errors(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid("metadata.finalizers", &object["metadata"]["finalizers"], detail);
    }
}

/// Leases alone are looked at by the rules that any server has.
fn has_finalizers_of_kubernetes(resource: &Resource) -> bool {
    resource.group != "coordination.k8s.io"
}

fn check_finalizer_names(errors: &mut Errors, object: &Value) {
    for (index, finalizer) in object::finalizers(object).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        check_standard_finalizer(errors, format_args!("metadata.finalizers[{index}]"), name);
    }
}

pub(crate) fn check_standard_finalizer(errors: &mut Errors, path: impl Place, name: &str) {
    if !name.contains('/') && !["kubernetes", ORPHAN, FOREGROUND].contains(&name) {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn path_segment_errors(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    let contained = ["/", "%"].into_iter().filter(|part| name.contains(part));
    contained.map(|part| format!("may not contain '{part}'")).collect()
}

pub(crate) fn dns1035_label_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(inner);
    if !fits {
        errors.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// A name that something is to be put behind, as upstream looks at it.
fn without_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let last = rest.char_indices().next_back().map_or(0, |(start, _)| start);
            format!("{}a", &rest[..last])
        }
        _ => prefix.to_owned(),
    }
}

/// The texts in a map.
pub(crate) fn entries(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    let fields = map.as_object().into_iter().flatten();
    fields.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::lines;
    use super::*;
    use crate::resources::{CONFIG_MAPS, NODES, PODS};

    #[test]
    fn metadata_is_refused_in_upstreams_words() {
        let subdomain = dns1123_subdomain_errors("A").remove(0);
        for (metadata, expected) in [
            (json!({"name": "a", "namespace": "b"}), vec![]),
            (
                json!({"namespace": "b"}),
                vec!["metadata.name: Required value: name or generateName is required".to_owned()],
            ),
            (
                json!({"name": "A", "namespace": "b"}),
                vec![format!("metadata.name: Invalid value: \"A\": {subdomain}")],
            ),
            (json!({"name": "a-12345", "generateName": "a-", "namespace": "b"}), vec![]),
            (
                json!({"name": "a", "namespace": "b", "finalizers": ["x"]}),
                vec![
                    "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"
                        .to_owned(),
                ],
            ),
            (
                json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
                vec!["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty".to_owned()],
            ),
        ] {
            let object = json!({"metadata": metadata});
            let found = lines(|errors| check(errors, &CONFIG_MAPS, NameForm::Subdomain, &object));
            assert_eq!(found, expected, "{object}");
        }
        let node = json!({"metadata": {"name": "a", "namespace": "b"}});
        let found = lines(|errors| check(errors, &NODES, NameForm::Subdomain, &node));
        assert_eq!(found, ["metadata.namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn an_update_changes_neither_identity_nor_adds_finalizers_to_what_goes() {
        let old = json!({"metadata": {"name": "a", "namespace": "b", "uid": "1", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let mut new = old.clone();
        assert_eq!(lines(|errors| check_any_update(errors, &PODS, &new, &old)), [""; 0]);
        new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        new["metadata"]["uid"] = json!("2");
        assert_eq!(
            lines(|errors| check_any_update(errors, &PODS, &new, &old)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }

    #[test]
    fn names_of_roles_are_parts_of_paths() {
        for (name, expected) in [
            ("system:node", vec![]),
            ("..", vec!["may not be '..'"]),
            ("a/b%", vec!["may not contain '/'", "may not contain '%'"]),
        ] {
            assert_eq!(name_errors(NameForm::PathSegment, name, false), expected, "{name}");
        }
    }
}
