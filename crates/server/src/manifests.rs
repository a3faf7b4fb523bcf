//! Taking pods in and letting them go, over the admin socket.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use crablet_agent::sources::{ApplyError, DeleteError, Outcome};
use crablet_api::core::PodIdentity;
use serde_json::json;

use crate::node::NodeHandles;
use crate::query;
use crate::respond::{json, text};

/// More than the largest manifest that is taken in, so that it is not cut off before it can be refused by its size.
pub(crate) const LARGEST_BODY: usize = 4 << 20;

/// `POST /pods?source=<file>`: takes in the pod of a manifest, which is the body.
pub(crate) async fn apply(
    State(node): State<NodeHandles>,
    RawQuery(query): RawQuery,
    body: String,
) -> Response {
    let Some(push) = &node.push else { return nobody_keeps_pods() };
    let source = query::value(query.as_deref(), "source").unwrap_or_else(|| "manifest".to_owned());
    match push.apply(&source, &body).await {
        Ok(applied) => {
            let outcome = match applied.outcome {
                Outcome::Created => "created",
                Outcome::Changed => "changed",
                Outcome::Unchanged => "unchanged",
            };
            let PodIdentity { namespace, name, uid } = &applied.pod;
            let answer =
                json!({ "outcome": outcome, "namespace": **namespace, "name": **name, "uid": **uid });
            json(answer.to_string().into_bytes())
        }
        Err(error) => {
            let status = match &error {
                ApplyError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                ApplyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                ApplyError::TooMany | ApplyError::Clash { .. } => StatusCode::CONFLICT,
                ApplyError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let reason = match &error {
                // Each of its lines begins with the file already.
                ApplyError::Invalid(_) => error.to_string(),
                other => format!("{source}: {}", crablet_logging::ErrorChain(other)),
            };
            text(status, reason + "\n")
        }
    }
}

/// `DELETE /pods/<namespace>/<name>`: lets a pod go that was taken in.
pub(crate) async fn delete(
    State(node): State<NodeHandles>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let Some(push) = &node.push else { return nobody_keeps_pods() };
    match push.delete(&namespace, &name).await {
        Ok(()) => text(StatusCode::OK, ""),
        Err(error) => {
            let status = match &error {
                DeleteError::NotFound { .. } => StatusCode::NOT_FOUND,
                DeleteError::NotOurs { .. } => StatusCode::CONFLICT,
                DeleteError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            text(status, format!("{}\n", crablet_logging::ErrorChain(&error)))
        }
    }
}

fn nobody_keeps_pods() -> Response {
    text(StatusCode::NOT_IMPLEMENTED, "this agent takes no pods in\n")
}
