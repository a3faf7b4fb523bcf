//! What an update of a pod may change: little.

use crablet_api::validate::{self, Errors, inclusive_range};
use serde_json::Value;

use super::super::metadata::{self, entries, same};
use super::super::{Update, diff};
use super::typed;
use crate::object;

const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";

/// The gates and terms that a pod which may not be scheduled yet can change.
const AFFINITY_TERMS: [&str; 4] =
    ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];

pub(super) fn validate(errors: &mut Errors, update: &Update<'_>) {
    let Update { new, old, .. } = *update;
    metadata::check_update(errors, update);
    check_whole(errors, new);
    check_annotations(errors, new, old);
    check_change(errors, &new["spec"], &old["spec"]);
}

pub(super) fn validate_ephemeral(errors: &mut Errors, update: &Update<'_>) {
    let Update { new, old, .. } = *update;
    if is_mirror(old) {
        return errors.forbidden("[]", "static pods do not support ephemeral containers");
    }
    metadata::check_update(errors, update);
    check_whole(errors, new);
    check_annotations(errors, new, old);
    let path = "spec.ephemeralContainers";
    let containers = object::list(new, &["spec", "ephemeralContainers"]);
    for known in object::list(old, &["spec", "ephemeralContainers"]) {
        let name = known["name"].as_str().unwrap_or_default();
        match containers.iter().rev().find(|container| container["name"] == known["name"]) {
            None => {
                errors.forbidden(path, format!("existing ephemeral containers {name:?} may not be removed\n"))
            }
            Some(container) if same(container, known) => {}
            Some(container) => {
                let changed = diff::of("EphemeralContainer", known, container);
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n{changed}");
                errors.forbidden(path, detail);
            }
        }
    }
}

/// The pod as it is to be.
pub(super) fn check_whole(errors: &mut Errors, pod: &Value) {
    match typed(pod) {
        Ok(pod) => errors.extend(validate::validate_changed_pod(&pod, &super::features())),
        Err(error) => errors.extend([error]),
    }
}

pub(super) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

pub(super) fn check_annotations(errors: &mut Errors, new: &Value, old: &Value) {
    let (annotations, known) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let path = "metadata.annotations";
    for (key, value) in entries(known) {
        if annotations[key] == value {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(format_args!("{path}[{key}]"), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(format_args!("{path}[{key}]"), "may not remove or update mirror pod annotation");
        }
    }
    for (key, _) in entries(annotations).filter(|(key, _)| known.get(key).is_none()) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(format_args!("{path}[{key}]"), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(format_args!("{path}[{key}]"), "may not add mirror pod annotation");
        }
    }
}

fn check_change(errors: &mut Errors, new: &Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let (containers, known) = (object::list(new, &[list]), object::list(old, &[list]));
        if containers.len() != known.len() {
            errors.forbidden(format_args!("spec.{list}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in containers.iter().enumerate() {
            let image = container["image"].as_str().unwrap_or_default();
            if image.is_empty() {
                errors.required(format_args!("spec.{list}[{index}].image"), "");
            }
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.invalid(format_args!("spec.{list}[{index}].image"), image, detail);
            }
        }
    }
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64();
    match (deadline(new), deadline(old)) {
        (Some(deadline), _) if !(0..=i64::from(i32::MAX)).contains(&deadline) => {
            let detail = inclusive_range(0, i64::from(i32::MAX));
            errors.invalid("spec.activeDeadlineSeconds", deadline, detail);
            return;
        }
        (Some(deadline), Some(known)) if known < deadline => {
            let detail = "must be less than or equal to previous value";
            errors.invalid("spec.activeDeadlineSeconds", deadline, detail);
            return;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid("spec.activeDeadlineSeconds", &Value::Null, detail);
        }
        (Some(_) | None, _) => {}
    }
    check_tolerations(errors, new, old);
    let gates = object::list(old, &["schedulingGates"]);
    for (index, gate) in object::list(new, &["schedulingGates"]).iter().enumerate() {
        if !gates.contains(gate) {
            let name = gate["name"].as_str().unwrap_or_default();
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(format_args!("spec.schedulingGates[{index}].name"), detail);
        }
    }
    if same(new, old) {
        return;
    }
    let mut munged = new.clone();
    munge(errors, &mut munged, old);
    if !same(&munged, old) {
        let changed = diff::of("PodSpec", old, &munged);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{changed}");
        errors.forbidden("spec", detail);
    }
}

fn check_tolerations(errors: &mut Errors, new: &Value, old: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        object::remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    let tolerations: Vec<Value> = object::list(new, &["tolerations"]).iter().map(without_seconds).collect();
    let mut known = object::list(old, &["tolerations"]).iter().map(without_seconds);
    if known.any(|known| !tolerations.contains(&known)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", detail);
    }
}

/// Takes back what may change, so that what is left to compare may not.
fn munge(errors: &mut Errors, munged: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let known = object::list(old, &[list]);
        let containers = munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, known) in containers.zip(known) {
            restore(container, known, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(munged, old, field);
    }
    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    if grace(old).is_some_and(|grace| grace < 0) && grace(munged) == Some(1) {
        restore(munged, old, "terminationGracePeriodSeconds");
    }
    if object::list(old, &["schedulingGates"]).is_empty() {
        return;
    }
    if !same(&munged["nodeSelector"], &old["nodeSelector"]) {
        if entries(&old["nodeSelector"]).any(|(key, value)| munged["nodeSelector"][key] != value) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid("spec.nodeSelector", &munged["nodeSelector"], detail);
        }
        restore(munged, old, "nodeSelector");
    }
    if !same(&munged["affinity"]["nodeAffinity"], &old["affinity"]["nodeAffinity"]) {
        check_affinity(errors, munged, old);
        let known = old["affinity"]["nodeAffinity"].clone();
        if !munged["affinity"].is_object() {
            if !known.is_null() {
                munged["affinity"] = serde_json::json!({"nodeAffinity": known});
            }
        } else {
            restore(&mut munged["affinity"], &old["affinity"], "nodeAffinity");
            if old["affinity"].is_null() && same(&munged["affinity"], &Value::Null) {
                object::remove(munged, "affinity");
            }
        }
    }
}

fn check_affinity(errors: &mut Errors, new: &Value, old: &Value) {
    let (terms, known) = (object::list(new, &AFFINITY_TERMS), object::list(old, &AFFINITY_TERMS));
    let path = format!("spec.{}", AFFINITY_TERMS.join("."));
    if known.is_empty() {
        return;
    }
    if known.len() != terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(&path, diff::shown_list("NodeSelectorTerm", terms), detail);
        return;
    }
    for (index, (term, known)) in terms.iter().zip(known).enumerate() {
        let lists = ["matchExpressions", "matchFields"]
            .map(|field| (object::list(term, &[field]), object::list(known, &[field])));
        let was_empty = lists.iter().all(|(_, known)| known.is_empty());
        let is_empty = lists.iter().all(|(now, _)| now.is_empty());
        if (was_empty && !is_empty) || lists.iter().any(|(now, known)| !now.starts_with(known)) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(format_args!("{path}[{index}]"), diff::shown("NodeSelectorTerm", term), detail);
        }
    }
}

/// Sets a field to what it was.
pub(super) fn restore(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(known) => new[field] = known.clone(),
        None => drop(object::remove(new, field)),
    }
}
