//! Pods: what the server fills in, checks, and lets an update change.

mod qos;
mod resize;
mod status;
mod update;
mod warnings;

use crablet_api::core::Pod;
use crablet_api::validate::{self, ErrorKind, Errors, FieldError};
use crablet_api::{FeatureGates, Gate, default_pod};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Context, Rules, Update};
use crate::object;
use crate::resources::{Resource, Subresource};
use crate::schema;
use crate::state::excerpt::Wanted;

pub(crate) use qos::{class as qos_class, quantity};
pub(crate) use warnings::deprecated_label;

pub struct Pods;

/// The lists of containers in a spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The gates of a server: those of 1.36, and on for the kinds that are served beyond.
pub(crate) fn features() -> FeatureGates {
    FeatureGates::default()
        .with(Gate::ClusterTrustBundle, true)
        .with(Gate::ClusterTrustBundleProjection, true)
        .with(Gate::PodCertificateRequest, true)
}

impl Rules for Pods {
    /// It is looked at together with the rest of the pod.
    fn validate_metadata(&self, _errors: &mut Errors, _resource: &Resource, _object: &Value) {}

    fn default(&self, object: &mut Value, part: Option<Subresource>) {
        if part == Some(Subresource::Status) {
            return;
        }
        let Ok(mut pod) = typed(object) else { return };
        default_pod(&mut pod, &features());
        let Ok(defaulted) = serde_json::to_value(&pod) else { return };
        let Ok(decoded) = schema::normalise("core.Pod", &defaulted) else { return };
        let (api_version, kind) = (object["apiVersion"].take(), object["kind"].take());
        *object = decoded.object;
        object["apiVersion"] = api_version;
        object["kind"] = kind;
    }

    fn prepare_create(&self, pod: &mut Value, context: &Context<'_>) {
        let mut status = json!({"phase": "Pending", "qosClass": qos_class(&pod["spec"])});
        drop_disabled(pod);
        if !object::list(pod, &["spec", "schedulingGates"]).is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": null,
                "lastTransitionTime": object::time(context.now),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        pod["status"] = status;
        let labels = pod["metadata"]["labels"].clone();
        apply_label_keys(&mut pod["spec"], &labels);
    }

    fn validate_create(&self, errors: &mut Errors, pod: &Value, _context: &Context<'_>) {
        match typed(pod) {
            Ok(pod) => errors.extend(validate::validate_pod(&pod, &features())),
            Err(error) => errors.extend([error]),
        }
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        match part {
            Some(Subresource::Status) => status::prepare(new, old),
            Some(Subresource::EphemeralContainers) => {
                let containers = new["spec"]["ephemeralContainers"].take();
                *new = old.clone();
                match containers.as_array().is_some_and(|containers| !containers.is_empty()) {
                    true => new["spec"]["ephemeralContainers"] = containers,
                    false => drop(object::remove(&mut new["spec"], "ephemeralContainers")),
                }
            }
            Some(Subresource::Resize) => resize::prepare(new, old),
            Some(_) | None => {
                super::keep_other_parts(new, old, None);
                if object::at(old, &["spec", "schedulingGroup"]).is_null() {
                    drop_disabled(new);
                }
            }
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        match update.part {
            Some(Subresource::Status) => status::validate(errors, update),
            Some(Subresource::EphemeralContainers) => update::validate_ephemeral(errors, update),
            Some(Subresource::Resize) => resize::validate(errors, update),
            Some(_) | None => update::validate(errors, update),
        }
    }

    fn looked_at_for_status(&self) -> Option<&'static Wanted> {
        Some(&status::LOOKED_AT)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match old {
            None => warnings::of(new),
            Some(_) => Vec::new(),
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn grace(&self, pod: &Value, asked: Option<i64>) -> Option<i64> {
        let wanted = asked.or(pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
        let is_unscheduled = object::text(pod, &["spec", "nodeName"]).is_empty();
        let is_finished = matches!(object::text(pod, &["status", "phase"]), "Failed" | "Succeeded");
        Some(match wanted {
            _ if is_unscheduled || is_finished => 0,
            wanted if wanted < 0 => 1,
            wanted => wanted,
        })
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

/// The pod as a type.
pub(crate) fn typed(pod: &Value) -> Result<Pod, FieldError> {
    Pod::deserialize(pod).map_err(|error| FieldError {
        path: "spec".to_owned(),
        kind: ErrorKind::Invalid,
        value: None,
        detail: error.to_string(),
    })
}

/// Takes away what only features that are off know.
fn drop_disabled(pod: &mut Value) {
    let features = features();
    if !features.enabled(Gate::GenericWorkload) {
        object::remove(&mut pod["spec"], "schedulingGroup");
    }
    if !features.enabled(Gate::ContainerStopSignals) {
        for list in CONTAINER_LISTS {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let dropped = container.get_mut("lifecycle").and_then(|it| object::remove(it, "stopSignal"));
                let is_empty = container["lifecycle"].as_object().is_some_and(serde_json::Map::is_empty);
                if dropped.is_some() && is_empty {
                    object::remove(container, "lifecycle");
                }
            }
        }
    }
}

/// Adds the pod's own labels to selectors that name them by key.
fn apply_label_keys(spec: &mut Value, labels: &Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else {
            continue;
        };
        let preferred = affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution");
        for term in preferred.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                apply_label_keys_to(term, labels);
            }
        }
        let required = affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
        for term in required.and_then(Value::as_array_mut).into_iter().flatten() {
            apply_label_keys_to(term, labels);
        }
    }
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        apply_label_keys_to(constraint, labels);
    }
}

fn apply_label_keys_to(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in object::list(term, &[field]).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    match term["labelSelector"]["matchExpressions"].as_array_mut() {
        Some(expressions) => expressions.extend(added),
        None => term["labelSelector"]["matchExpressions"] = added.into(),
    }
}
