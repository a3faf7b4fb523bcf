//! Taking pods in and letting them go, over the admin socket.

use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use crablet_agent::sources::{ApplyError, DeleteError, Outcome};
use crablet_api::core::PodIdentity;
use serde_json::json;
use tokio::time::timeout;

use crate::node::NodeHandles;
use crate::query;
use crate::respond::{json, text};

/// More than the largest manifest that is taken in, so that it is not cut off before it can be refused by its size.
pub(crate) const LARGEST_BODY: usize = 4 << 20;
/// How long it may take until a pod is shown that was taken in.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

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
            shown(&node, uid).await;
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

/// Waits until a pod is shown that was taken in, so that who asks for it next finds it.
async fn shown(node: &NodeHandles, uid: &str) {
    let Ok(agent) = node.agent() else { return };
    let mut version = agent.statuses.version();
    // One that was another kubelet's is shown under its name there.
    let _ = timeout(SHOWN_WITHIN, version.wait_for(|_| agent.statuses.get(uid).is_some())).await;
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
