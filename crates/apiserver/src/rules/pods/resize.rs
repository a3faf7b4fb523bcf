//! Changing the resources of a pod that runs.

use crablet_api::validate::{Errors, Word};
use serde_json::Value;

use super::super::Update;
use super::super::metadata::{self, same};
use super::qos_class;
use super::update::{check_whole, is_mirror, restore};
use crate::object;

const RESIZED: [&str; 2] = ["cpu", "memory"];

/// Takes back all but the resources. Where containers were added, removed or renamed, that is left to validation.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let count = |pod: &Value, list: &str| object::list(pod, &["spec", list]).len();
    if lists.iter().any(|list| count(new, list) != count(old, list)) {
        new["status"] = old["status"].clone();
        return;
    }
    let mut spec = old["spec"].clone();
    restore(&mut spec, &new["spec"], "resources");
    for list in lists {
        let (containers, known) = (object::list(new, &["spec", list]), object::list(old, &["spec", list]));
        if containers.iter().zip(known).any(|(container, known)| container["name"] != known["name"]) {
            spec[list] = new["spec"][list].clone();
            continue;
        }
        let kept = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (kept, container) in kept.zip(containers) {
            restore(kept, container, "resources");
            restore(kept, container, "resizePolicy");
        }
    }
    *new = old.clone();
    new["spec"] = spec;
}

pub(super) fn validate(errors: &mut Errors, update: &Update<'_>) {
    let Update { new, old, .. } = *update;
    if is_mirror(old) {
        return errors.forbidden("[]", "static pods cannot be resized");
    }
    if old["spec"]["os"]["name"] == "windows" {
        return errors.forbidden("[]", "windows pods cannot be resized");
    }
    let mut found = Errors::default();
    metadata::check_update(&mut found, update);
    check_whole(&mut found, new);
    let has_errors = !found.is_empty();
    errors.extend(found.into_list());
    check(errors, new, old, has_errors);
}

fn check(errors: &mut Errors, new: &Value, old: &Value, has_errors: bool) {
    let class = match object::text(old, &["status", "qosClass"]) {
        "" => qos_class(&old["spec"]),
        class => class,
    };
    if class != qos_class(&new["spec"]) {
        let shown = Word(object::text(new, &["status", "qosClass"]));
        errors.invalid("spec", shown, "Pod QOS Class may not change as a result of resizing");
    }
    let running = object::list(old, &["status", "containerStatuses"]);
    let running = running.iter().find(|status| status["state"]["running"].is_object());
    if running.is_some_and(|status| status["resources"].is_null()) {
        errors.forbidden("spec", "Pod running on node without support for resize");
    }
    let mut munged = new["spec"].clone();
    check_pod_level(errors, &mut munged, &old["spec"]);
    if !object::list(old, &["status", "nodeAllocatableResourceClaimStatuses"]).is_empty() {
        errors.forbidden("spec", "pods with node allocatable resource claims cannot be resized");
    }
    if !check_order(errors, &new["spec"], &old["spec"]) {
        return;
    }
    for list in ["initContainers", "containers"] {
        let known = object::list(old, &["spec", list]);
        for (index, (container, known)) in object::list(new, &["spec", list]).iter().zip(known).enumerate() {
            for (what, field) in [("requests", "requests"), ("limits", "limits")] {
                if is_removed(&container["resources"][field], &known["resources"][field]) {
                    let path = format!("spec.{list}[{index}].resources.{what}");
                    errors.forbidden(path, format!("resource {what} cannot be removed"));
                }
            }
        }
    }
    check_containers(errors, &mut munged, &old["spec"]);
    if !has_errors && errors.is_empty() && !same(&munged, &old["spec"]) {
        errors.forbidden("spec", "only cpu and memory resources are mutable");
    }
}

fn check_pod_level(errors: &mut Errors, munged: &mut Value, old: &Value) {
    let is_set = |spec: &Value| {
        ["requests", "limits"].iter().any(|field| !same(&spec["resources"][field], &Value::Null))
    };
    if !is_set(munged) && !is_set(old) {
        return;
    }
    if old["resources"].is_object() && munged["resources"].is_null() {
        return errors.forbidden("spec.resources", "pod-level resources cannot be removed");
    }
    for field in ["requests", "limits"] {
        if old["resources"].is_object() && is_removed(&munged["resources"][field], &old["resources"][field]) {
            let detail = format!("pod-level resource {field} cannot be removed");
            errors.forbidden(format_args!("spec.resources.{field}"), detail);
        }
    }
    restore_resized(munged, old);
    let is_empty = |field: &str| same(&munged["resources"][field], &Value::Null);
    if old["resources"].is_null() && ["requests", "limits", "claims"].into_iter().all(is_empty) {
        object::remove(munged, "resources");
    }
    if !same(&munged["resources"], &old["resources"]) {
        errors.forbidden("spec", "only cpu and memory resources are mutable at pod-level");
    }
}

fn check_order(errors: &mut Errors, new: &Value, old: &Value) -> bool {
    let mut is_kept = true;
    for list in ["containers", "initContainers"] {
        let (containers, known) = (object::list(new, &[list]), object::list(old, &[list]));
        if containers.len() != known.len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.forbidden(format_args!("spec.{list}"), detail);
            is_kept = false;
            continue;
        }
        for (index, (container, known)) in containers.iter().zip(known).enumerate() {
            if container["name"] != known["name"] {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(format_args!("spec.{list}[{index}].name"), detail);
                is_kept = false;
            }
        }
    }
    is_kept
}

fn check_containers(errors: &mut Errors, munged: &mut Value, old: &Value) {
    let regular = munged.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten();
    for (container, known) in regular.zip(object::list(old, &["containers"])) {
        restore_resized(container, known);
        if !same(container, known) {
            errors.forbidden("spec", "only cpu and memory resources are mutable");
        }
    }
    let init = munged.get_mut("initContainers").and_then(Value::as_array_mut).into_iter().flatten();
    for (index, (container, known)) in init.zip(object::list(old, &["initContainers"])).enumerate() {
        let (path, is_changed) = (format!("spec.initContainers[{index}]"), !same(container, known));
        restore_resized(container, known);
        if !same(container, known) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&path, detail);
        }
        let restarts = |policy: &Value| policy["restartPolicy"] == "RestartContainer";
        if is_changed && container["restartPolicy"] != "Always" {
            for _ in object::list(container, &["resizePolicy"]).iter().filter(|policy| restarts(policy)) {
                let detail =
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(&path, detail);
            }
        }
    }
}

/// Gives CPU and memory back the amounts they had.
fn restore_resized(holder: &mut Value, old: &Value) {
    for field in ["requests", "limits"] {
        let known = &old["resources"][field];
        for name in RESIZED {
            match known.get(name) {
                Some(amount) => {
                    if !holder["resources"].is_object() {
                        holder["resources"] = Value::Object(Default::default());
                    }
                    if !holder["resources"][field].is_object() {
                        holder["resources"][field] = Value::Object(Default::default());
                    }
                    holder["resources"][field][name] = amount.clone();
                }
                None => {
                    if let Some(list) = holder.get_mut("resources").and_then(|it| it.get_mut(field)) {
                        object::remove(list, name);
                    }
                }
            }
        }
    }
}

fn is_removed(now: &Value, known: &Value) -> bool {
    let mut names = known.as_object().into_iter().flatten().map(|(name, _)| name);
    names.any(|name| now.get(name).is_none())
}
