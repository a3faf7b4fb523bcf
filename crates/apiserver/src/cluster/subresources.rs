//! What is done to a part of an object that has its own verbs: bindings, evictions, tokens; and what only the node of a
//! pod can answer.

mod binding;
mod eviction;
mod node;
mod token;

use serde_json::{Value, json};

use super::{Call, Cluster};
use crate::answer::{Answer, Document};
use crate::object;
use crate::request::Verb;
use crate::resources::{BINDINGS, Subresource};
use crate::status::Refusal;

/// Whether a verb can be used on a part of an object.
pub(super) fn check_verb(call: &Call<'_>) -> Result<(), Refusal> {
    let is_allowed = match (call.verb, call.target.subresource) {
        (verb, None) => call.target.resource.key() != BINDINGS.key() || verb == Verb::Create,
        (verb, Some(part)) => match part {
            Subresource::Proxy => true,
            Subresource::Attach | Subresource::Exec | Subresource::PortForward => {
                matches!(verb, Verb::Get | Verb::Create)
            }
            Subresource::Log => verb == Verb::Get,
            Subresource::Binding | Subresource::Eviction | Subresource::Token => verb == Verb::Create,
            Subresource::Finalize => verb == Verb::Update,
            Subresource::Approval
            | Subresource::EphemeralContainers
            | Subresource::Resize
            | Subresource::Status => matches!(verb, Verb::Get | Verb::Update | Verb::Patch),
        },
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Refusal::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

impl Cluster {
    /// Whether a request is for the node and not for us.
    pub(super) fn is_for_the_node(&self, call: &Call<'_>) -> bool {
        match call.target.subresource {
            Some(
                Subresource::Attach
                | Subresource::Exec
                | Subresource::Log
                | Subresource::PortForward
                | Subresource::Proxy,
            ) => true,
            Some(
                Subresource::Approval
                | Subresource::Binding
                | Subresource::EphemeralContainers
                | Subresource::Eviction
                | Subresource::Finalize
                | Subresource::Resize
                | Subresource::Status
                | Subresource::Token,
            )
            | None => false,
        }
    }

    /// Where a request goes on.
    pub(super) fn proxy(&self, call: &Call<'_>) -> Result<Answer, Refusal> {
        node::answer(self, call)
    }

    pub(super) fn create_subresource(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        match call.target.subresource {
            Some(Subresource::Binding) => self.bind_pod(call),
            Some(Subresource::Eviction) => self.evict_pod(call),
            Some(Subresource::Token) => self.request_token(call),
            Some(
                Subresource::Approval
                | Subresource::Attach
                | Subresource::EphemeralContainers
                | Subresource::Exec
                | Subresource::Finalize
                | Subresource::Log
                | Subresource::PortForward
                | Subresource::Proxy
                | Subresource::Resize
                | Subresource::Status,
            )
            | None => Err(Refusal::method_not_allowed(call.target.resource, call.verb.name())),
        }
    }
}

/// What went well, without anything to show.
fn created() -> Document {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Document::json(201, &status)
}

/// Sets a condition of a pod. Its time changes with its status.
fn set_condition(pod: &mut Value, mut condition: Value, call: &Call<'_>) {
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let mut conditions = object::list(pod, &["status", "conditions"]).to_vec();
    let known = conditions.iter_mut().find(|known| known["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &known {
        Some(known) if known["status"] == condition["status"] => known["lastTransitionTime"].clone(),
        Some(_) | None => object::time(call.now),
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    pod["status"]["conditions"] = conditions.into();
}
