//! What every object carries.

use crate::map::Map;
use crate::meta::{ObjectMeta, OwnerReference};
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors};
use crate::text::Text;

use super::error::{Errors, Json, Word};
use super::labels::check_labels;
use super::path::Path;
use super::text;

/// All annotations together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Checks the metadata of an object that lives in a namespace and whose name is a DNS subdomain.
pub(super) fn check_metadata(errors: &mut Errors, path: &Path<'_>, meta: &ObjectMeta) {
    if !meta.generate_name.is_empty() {
        let problems = text::name_prefix_errors(&meta.generate_name);
        errors.invalid_each(&path.child("generateName"), &meta.generate_name, problems);
    }
    if meta.name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        errors.invalid_each(&path.child("name"), &meta.name, dns1123_subdomain_errors(&meta.name));
    }
    if meta.namespace.is_empty() {
        errors.required(&path.child("namespace"), "");
    } else {
        errors.invalid_each(&path.child("namespace"), &meta.namespace, dns1123_label_errors(&meta.namespace));
    }
    text::check_not_negative(errors, &path.child("generation"), meta.generation);
    check_labels(errors, &path.child("labels"), &meta.labels);
    check_annotations(errors, &path.child("annotations"), &meta.annotations);
    check_owners(errors, &path.child("ownerReferences"), &meta.owner_references);
    check_finalizers(errors, &path.child("finalizers"), &meta.finalizers);
}

pub(super) fn check_annotations(errors: &mut Errors, path: &Path<'_>, annotations: &Map<Text>) {
    for key in annotations.keys() {
        errors.invalid_each(path, key, qualified_name_errors(&key.to_lowercase()));
    }
    check_annotations_size(errors, path, annotations);
}

pub(super) fn check_annotations_size(errors: &mut Errors, path: &Path<'_>, annotations: &Map<Text>) {
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}

fn check_owners(errors: &mut Errors, path: &Path<'_>, owners: &[OwnerReference]) {
    let mut first_controller: Option<String> = None;
    for owner in owners {
        check_owner(errors, path, owner);
        if owner.controller != Some(true) {
            continue;
        }
        let controller = format!("{}/{}", owner.kind, owner.name);
        match &first_controller {
            None => first_controller = Some(controller),
            Some(first) => errors.invalid(
                path,
                Json::of(&owners),
                format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {controller}"
                ),
            ),
        }
    }
}

fn check_owner(errors: &mut Errors, path: &Path<'_>, owner: &OwnerReference) {
    let (group, version) = match owner.api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some((group, version)) => (group, version),
        None => ("", owner.api_version.as_ref()),
    };
    if version.is_empty() {
        errors.invalid(&path.child("apiVersion"), owner.api_version.as_ref(), "version must not be empty");
    }
    if owner.kind.is_empty() {
        errors.invalid(&path.child("kind"), "", "must not be empty");
    }
    if owner.name.is_empty() {
        errors.invalid(&path.child("name"), "", "must not be empty");
    }
    if owner.uid.is_empty() {
        errors.invalid(&path.child("uid"), Word(""), "must not be empty");
    }
    if (group, version, owner.kind.as_ref()) == ("", "v1", "Event") {
        errors.invalid(path, Json::of(owner), "/v1, Kind=Event is disallowed from being an owner");
    }
}

fn check_finalizers(errors: &mut Errors, path: &Path<'_>, finalizers: &[Text]) {
    for finalizer in finalizers {
        errors.invalid_each(path, finalizer, qualified_name_errors(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer.as_ref() == name);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid(path, Json::list(finalizers), detail);
    }
    for (index, finalizer) in finalizers.iter().enumerate() {
        if !finalizer.contains('/') && !["kubernetes", ORPHAN, FOREGROUND].contains(&finalizer.as_ref()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(&path.index(index), finalizer.as_ref(), detail);
        }
    }
}
