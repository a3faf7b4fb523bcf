//! The claim to a persistent volume that a pod brings with it.

use crate::core::{
    PersistentVolumeAccessMode, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate,
    PersistentVolumeMode,
};
use crate::meta::ObjectMeta;
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors};

use super::error::{Errors, Json, Word};
use super::labels::{check_label_selector, check_labels};
use super::metadata::check_annotations;
use super::path::Path;
use super::resources::check_resource_quantity;
use super::text;

pub(super) fn check_claim_template(
    errors: &mut Errors,
    path: &Path<'_>,
    template: &PersistentVolumeClaimTemplate,
) {
    check_template_metadata(errors, &path.child("metadata"), &template.metadata);
    check_claim(errors, &path.child("spec"), &template.spec);
}

/// A template may have labels and annotations; the rest is for the claim that is made of it.
fn check_template_metadata(errors: &mut Errors, path: &Path<'_>, meta: &ObjectMeta) {
    check_annotations(errors, &path.child("annotations"), &meta.annotations);
    check_labels(errors, &path.child("labels"), &meta.labels);
    for (field, is_set) in [
        ("name", !meta.name.is_empty()),
        ("generateName", !meta.generate_name.is_empty()),
        ("namespace", !meta.namespace.is_empty()),
        ("selfLink", !meta.self_link.is_empty()),
        ("uID", !meta.uid.is_empty()),
        ("resourceVersion", !meta.resource_version.is_empty()),
        ("generation", meta.generation != 0),
        ("creationTimestamp", meta.creation_timestamp.is_some()),
        ("deletionTimestamp", meta.deletion_timestamp.is_some()),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.is_some()),
        ("ownerReferences", !meta.owner_references.is_empty()),
        ("finalizers", !meta.finalizers.is_empty()),
    ] {
        if is_set {
            errors.forbidden(&path.child(field), "cannot be set");
        }
    }
}

fn check_claim(errors: &mut Errors, path: &Path<'_>, claim: &PersistentVolumeClaimSpec) {
    let modes = path.child("accessModes");
    if claim.access_modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    check_label_selector(errors, &path.child("selector"), claim.selector.as_deref());
    let (mut exclusive, mut shared) = (false, false);
    for mode in &claim.access_modes {
        match mode {
            PersistentVolumeAccessMode::ReadWriteOncePod => exclusive = true,
            PersistentVolumeAccessMode::ReadWriteOnce
            | PersistentVolumeAccessMode::ReadOnlyMany
            | PersistentVolumeAccessMode::ReadWriteMany => shared = true,
            PersistentVolumeAccessMode::Other(mode) => {
                let supported = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
                errors.not_supported(&modes, Word(mode), &supported);
            }
        }
    }
    if exclusive && shared {
        errors.forbidden(&modes, "may not use ReadWriteOncePod with other access modes");
    }
    let resources = path.child("resources");
    let storage = resources.key("storage");
    match claim.resources.requests.get("storage") {
        None => errors.required(&storage, ""),
        Some(size) if size.sign() <= 0 => {
            errors.invalid(&storage, size.to_string().as_str(), text::POSITIVE);
        }
        Some(size) => check_resource_quantity(errors, &storage, "storage", size),
    }
    check_class_name(errors, &path.child("storageClassName"), claim.storage_class_name.as_deref());
    if let Some(PersistentVolumeMode::Other(mode)) = &claim.volume_mode {
        errors.not_supported(&path.child("volumeMode"), Word(mode), PersistentVolumeMode::WORDS);
    }
    check_data_sources(errors, path, claim);
    let attributes = claim.volume_attributes_class_name.as_deref();
    check_class_name(errors, &path.child("volumeAttributesClassName"), attributes);
}

fn check_class_name(errors: &mut Errors, path: &Path<'_>, name: Option<&str>) {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        errors.invalid_each(path, name, dns1123_subdomain_errors(name));
    }
}

fn check_data_sources(errors: &mut Errors, path: &Path<'_>, claim: &PersistentVolumeClaimSpec) {
    let (source, reference) = (claim.data_source.as_deref(), claim.data_source_ref.as_deref());
    if let Some(source) = source {
        let path = path.child("dataSource");
        check_data_source(errors, &path, &source.name, &source.kind, source.api_group.as_deref());
    }
    if let Some(reference) = reference {
        let path = path.child("dataSourceRef");
        check_data_source(errors, &path, &reference.name, &reference.kind, reference.api_group.as_deref());
        if let Some(namespace) = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
            errors.invalid_each(&path.child("namespace"), namespace, dns1123_label_errors(namespace));
        }
    }
    let (Some(source), Some(reference)) = (source, reference) else { return };
    let elsewhere = reference.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty());
    let same = (&source.api_group, &source.kind, &source.name)
        == (&reference.api_group, &reference.kind, &reference.name);
    // Upstream gives the path for the value, and a path prints as nothing.
    if elsewhere {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path, Json("{}".to_owned()), detail);
    } else if !same {
        errors.invalid(path, Json("{}".to_owned()), "must match dataSourceRef");
    }
}

fn check_data_source(errors: &mut Errors, path: &Path<'_>, name: &str, kind: &str, group: Option<&str>) {
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    if kind.is_empty() {
        errors.required(&path.child("kind"), "");
    }
    let group = group.unwrap_or_default();
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(path, kind, detail);
        }
    } else {
        errors.invalid_each(&path.child("apiGroup"), group, dns1123_subdomain_errors(group));
    }
}
