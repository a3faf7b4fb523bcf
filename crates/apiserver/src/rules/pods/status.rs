//! Updates of a pod's status, which is what the node does most of all: nothing here decodes the pod.

use std::net::IpAddr;

use crablet_api::validate::{Errors, Word, check_address};
use crablet_api::{dns1123_subdomain_errors, qualified_name_errors};
use serde_json::Value;

use super::super::metadata::{self, IMMUTABLE};
use super::super::{Update, diff};
use super::update::check_annotations;
use crate::object;
use crate::state::excerpt::Wanted;

/// Conditions whose names need no prefix.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// What of a pod is looked at here, by admission and by selectors.
pub(super) static LOOKED_AT: Wanted = Wanted::Fields(&[
    ("apiVersion", Wanted::All),
    ("kind", Wanted::All),
    ("metadata", Wanted::All),
    ("spec", SPEC),
    ("status", Wanted::All),
]);
const SPEC: Wanted = Wanted::Fields(&[
    ("nodeName", Wanted::All),
    ("restartPolicy", Wanted::All),
    ("schedulerName", Wanted::All),
    ("serviceAccountName", Wanted::All),
    ("hostNetwork", Wanted::All),
    ("resourceClaims", Wanted::All),
    ("initContainers", CONTAINER),
    ("containers", CONTAINER),
]);
const CONTAINER: Wanted = Wanted::Fields(&[
    ("name", Wanted::All),
    ("restartPolicy", Wanted::All),
    ("restartPolicyRules", Wanted::All),
]);

/// Takes back all but the status, labels, annotations and finalizers.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let owners = old["metadata"].get("ownerReferences").cloned();
    super::super::keep_other_parts(new, old, Some(crate::resources::Subresource::Status));
    match owners {
        Some(owners) => new["metadata"]["ownerReferences"] = owners,
        None => drop(object::remove(&mut new["metadata"], "ownerReferences")),
    }
    if !new["status"].is_object() {
        new["status"] = Value::Object(Default::default());
    }
    let (status, known) = (&mut new["status"], &old["status"]);
    for field in ["qosClass", "observedGeneration"] {
        if status.get(field).is_none()
            && let Some(value) = known.get(field)
        {
            status[field] = value.clone();
        }
    }
    let mut generations: Vec<(&Value, &Value)> = object::list(known, &["conditions"])
        .iter()
        .map(|condition| (&condition["type"], &condition["observedGeneration"]))
        .collect();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in conditions {
        let Some(place) = generations.iter().position(|(kind, _)| **kind == condition["type"]) else {
            continue;
        };
        let (_, generation) = generations.remove(place);
        if condition.get("observedGeneration").is_none() && !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

pub(super) fn validate(errors: &mut Errors, update: &Update<'_>) {
    let Update { new, old, .. } = *update;
    metadata::check_update(errors, update);
    check_annotations(errors, new, old);
    let (status, known) = (&new["status"], &old["status"]);
    for (index, condition) in object::list(status, &["conditions"]).iter().enumerate() {
        check_generation(
            errors,
            &format!("status.conditions[{index}].observedGeneration"),
            &condition["observedGeneration"],
        );
        let kind = condition["type"].as_str().unwrap_or_default();
        if !SYSTEM_CONDITIONS.contains(&kind) {
            let path = format!("status.conditions[{index}].Type");
            errors.invalid_each(path, kind, qualified_name_errors(kind));
        }
    }
    let nominated = object::text(status, &["nominatedNodeName"]);
    if !nominated.is_empty() && status["nominatedNodeName"] != known["nominatedNodeName"] {
        let path = "status.nominatedNodeName";
        errors.invalid_each(path, nominated, dns1123_subdomain_errors(nominated));
        if !object::text(old, &["spec", "nodeName"]).is_empty() {
            errors.forbidden(path, "may not be set on pods that are already bound to a node");
        }
    }
    check_generation(errors, "status.observedGeneration", &status["observedGeneration"]);
    if status["qosClass"] != known["qosClass"] {
        let class = Word(status["qosClass"].as_str().unwrap_or_default());
        errors.invalid("status.qosClass", class, IMMUTABLE);
    }
    check_transitions(errors, status, known, &old["spec"]);
    check_claims(errors, status, &new["spec"]);
    check_addresses(errors, "podIPs", status, known);
    let host_addresses = object::list(status, &["hostIPs"]);
    if let Some(first) = host_addresses.first()
        && first["ip"] != status["hostIP"]
    {
        errors.invalid("status.hostIPs[0].ip", &first["ip"], "must be equal to `hostIP`");
    }
    check_addresses(errors, "hostIPs", status, known);
    for (index, status) in object::list(status, &["ephemeralContainerStatuses"]).iter().enumerate() {
        if !object::list(status, &["allocatedResourcesStatus"]).is_empty() {
            let path = format!("status.ephemeralContainerStatuses[{index}].allocatedResourcesStatus");
            errors.forbidden(path, "must not be specified in container status");
        }
    }
}

fn check_generation(errors: &mut Errors, path: &str, generation: &Value) {
    if let Some(generation) = generation.as_i64().filter(|generation| *generation < 0) {
        errors.invalid(path, generation, "must be a non-negative integer");
    }
}

/// A container that is not to be started again does not run again.
fn check_transitions(errors: &mut Errors, status: &Value, known: &Value, spec: &Value) {
    let rules = ["initContainers", "containers"].into_iter().flat_map(|list| object::list(spec, &[list]));
    let mut rules = rules.flat_map(|container| object::list(container, &["restartPolicyRules"]));
    let can_all_restart = rules.any(|rule| rule["action"] == "RestartAllContainers");
    for (field, list) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        if can_all_restart && list.is_some() {
            continue;
        }
        for (index, before) in object::list(known, &[field]).iter().enumerate() {
            let terminated = &before["state"]["terminated"];
            if !terminated.is_object() {
                continue;
            }
            let now = object::list(status, &[field]).iter().find(|now| now["name"] == before["name"]);
            if now.is_none_or(|now| now["state"]["terminated"].is_object()) {
                continue;
            }
            let container = list.and_then(|list| {
                object::list(spec, &[list]).iter().find(|container| container["name"] == before["name"])
            });
            let code = terminated["exitCode"].as_i64().unwrap_or(0);
            if !container.is_some_and(|container| restarts(container, spec, code)) {
                let path = format!("status.{field}[{index}].state");
                errors.forbidden(path, "may not be transitioned to non-terminated state");
            }
        }
    }
}

fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    let by_policy = |policy: &Value| match policy.as_str() {
        Some("Always") => Some(true),
        Some("OnFailure") => Some(code != 0),
        Some("Never") => Some(false),
        Some(_) | None => None,
    };
    if container["restartPolicy"].is_string() {
        let rule = object::list(container, &["restartPolicyRules"]).iter().find(|rule| {
            let has = object::list(rule, &["exitCodes", "values"]).iter().any(|value| value == code);
            match rule["exitCodes"]["operator"].as_str() {
                Some("In") => has,
                Some("NotIn") => !has,
                Some(_) | None => false,
            }
        });
        if rule.is_some_and(|rule| rule["action"] == "Restart" || rule["action"] == "RestartAllContainers") {
            return true;
        }
        if let Some(restarts) = by_policy(&container["restartPolicy"]) {
            return restarts;
        }
    }
    by_policy(&spec["restartPolicy"]).unwrap_or(true)
}

fn check_claims(errors: &mut Errors, status: &Value, spec: &Value) {
    let statuses = object::list(status, &["resourceClaimStatuses"]);
    for (index, status) in statuses.iter().enumerate() {
        let path = format!("status.resourceClaimStatuses[{index}]");
        let name = status["name"].as_str().unwrap_or_default();
        if !object::list(spec, &["resourceClaims"]).iter().any(|claim| claim["name"] == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(format_args!("{path}.name"), name, detail);
        }
        if statuses.iter().take(index).any(|other| other["name"] == name) {
            errors.duplicate(format_args!("{path}.name"), name);
        }
        if let Some(claim) = status["resourceClaimName"].as_str() {
            for detail in dns1123_subdomain_errors(claim) {
                errors.invalid(format_args!("{path}.resourceClaimName"), Word(claim), detail);
            }
        }
    }
}

fn check_addresses(errors: &mut Errors, field: &str, status: &Value, known: &Value) {
    let (addresses, known) = (object::list(status, &[field]), object::list(known, &[field]));
    for (index, address) in addresses.iter().enumerate() {
        if !known.iter().any(|known| known["ip"] == address["ip"]) {
            let address = address["ip"].as_str().unwrap_or_default();
            check_address(errors, format_args!("status.{field}[{index}]"), address, true);
        }
    }
    if addresses.len() > 1 {
        let parsed = addresses.iter().filter_map(|address| address["ip"].as_str()?.parse::<IpAddr>().ok());
        let (fours, sixes): (Vec<_>, Vec<_>) = parsed.partition(IpAddr::is_ipv4);
        if (fours.len(), sixes.len()) != (1, 1) || addresses.len() > 2 {
            let detail = "may specify no more than one IP for each IP family";
            let shown = diff::shown_list("PodIP", addresses);
            errors.invalid(format_args!("status.{field}"), shown, detail);
        }
    }
}
