//! Binding pods to nodes.

use crablet_api::validate::{Errors, FieldError};
use serde_json::{Value, json};

use super::super::{Call, Cluster, body};
use super::{created, set_condition};
use crate::admission;
use crate::answer::Document;
use crate::object;
use crate::resources::PODS;
use crate::schema::Expected;
use crate::status::Refusal;

impl Cluster {
    /// Binds the pod that a binding names, whether it was sent to the pod or to all bindings.
    pub(crate) fn bind_pod(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let mut binding =
            body::of_type(call, &Expected { schema: "core.Binding", api_version: "v1", kind: "Binding" })?;
        let namespace = object::namespace(&binding);
        if !namespace.is_empty() && namespace != call.target.namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let name = object::name(&binding).to_owned();
        if !call.target.name.is_empty() && call.target.name != name {
            return Err(Refusal::bad_request("name in URL does not match name in Binding object"));
        }
        admission::check_part(self, call, &mut binding)?;
        let mut errors = Errors::default();
        let kind = object::text(&binding, &["target", "kind"]);
        if !kind.is_empty() && kind != "Node" {
            errors.not_supported("target.kind", kind, &["Node", "<empty>"]);
        }
        if object::text(&binding, &["target", "name"]).is_empty() {
            errors.required("target.name", "");
        }
        if !errors.is_empty() {
            return Err(unnamed(&errors.into_list()));
        }
        let Some(mut pod) = self.state.read(&PODS, &call.target.namespace, &name) else {
            return Err(Refusal::not_found(&PODS, &name));
        };
        check_preconditions(&binding, &pod)?;
        if let Some(why) = problem(&pod) {
            let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
            let mut refusal = Refusal::new(409, "Conflict", message);
            refusal.details = Some(json!({"name": name, "kind": "pods/binding"}));
            return Err(refusal);
        }
        assign(&mut pod, &binding, call);
        if !call.is_dry_run() {
            self.state.put(&PODS, pod);
        }
        Ok(created())
    }
}

/// Why a pod cannot be bound.
fn problem(pod: &Value) -> Option<String> {
    let (name, node) = (object::name(pod), object::text(pod, &["spec", "nodeName"]));
    if object::is_being_deleted(pod) {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return Some(format!("pod {name} is already assigned to node {node:?}"));
    }
    let is_gated = !object::list(pod, &["spec", "schedulingGates"]).is_empty();
    is_gated.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

fn assign(pod: &mut Value, binding: &Value, call: &Call<'_>) {
    pod["spec"]["nodeName"] = object::text(binding, &["target", "name"]).into();
    if let Some(status) = pod.get_mut("status") {
        object::remove(status, "nominatedNodeName");
    }
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            if !pod["metadata"][field].is_object() {
                pod["metadata"][field] = json!({});
            }
            pod["metadata"][field][key] = value.clone();
        }
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    set_condition(pod, condition, call);
}

fn check_preconditions(binding: &Value, pod: &Value) -> Result<(), Refusal> {
    for (what, field) in [("UID", "uid"), ("ResourceVersion", "resourceVersion")] {
        let (wanted, found) = (object::meta(binding, field), object::meta(pod, field));
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Refusal::conflict(&PODS, object::name(pod), &why));
        }
    }
    Ok(())
}

/// Upstream lets these errors through as they are, which makes them the server's.
fn unnamed(errors: &[FieldError]) -> Refusal {
    let lines: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    let message = match lines.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Refusal::new(500, "", message)
}
