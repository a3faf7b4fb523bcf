//! What is done to a part of an object that has its own verbs: bindings, evictions, tokens; and what only the node of a
//! pod can answer.

use super::{Call, Cluster};
use crate::answer::Document;
use crate::resources::Subresource;
use crate::status::Refusal;

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

    pub(super) fn create_subresource(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        Err(Refusal::method_not_allowed(call.target.resource, call.verb.name()))
    }
}
