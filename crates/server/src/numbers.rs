//! `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor`: what the node and its pods use.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use crablet_stats::Stats;
use tracing::error;

use crate::page::page;
use crate::query;
use crate::respond::text;

/// Who answers, from when the node has a runtime. Clones are the same.
#[derive(Clone, Default)]
pub struct Numbers(Arc<OnceLock<Stats>>);

impl Numbers {
    /// From now on this one answers; who was there first stays.
    pub fn answered_by(&self, stats: Stats) {
        let _ = self.0.set(stats);
    }
}

/// The paths, as they are with and without debugging, and on the read-only port.
pub(crate) fn numbers_router(numbers: Numbers) -> Router {
    Router::new()
        .route("/stats/summary", get(summary).post(summary))
        .route("/metrics/resource", any(resource))
        .route("/metrics/cadvisor", any(cadvisor))
        .with_state(numbers)
}

async fn summary(State(numbers): State<Numbers>, RawQuery(query): RawQuery) -> Response {
    let Some(stats) = numbers.0.get() else { return awaited() };
    let mut only = query::values(query.as_deref(), "only_cpu_and_memory");
    let only_cpu_and_memory = only.next().as_deref() == Some("true") && only.next().is_none();
    match stats.summary(only_cpu_and_memory).await {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(reason) => {
            error!(err = %reason, request = "/stats/summary", "HTTP InternalServerError serving");
            let body = format!("Internal Error: {reason}");
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

async fn resource(State(numbers): State<Numbers>, headers: HeaderMap) -> Response {
    let Some(stats) = numbers.0.get() else { return awaited() };
    page(stats.resource_metrics().await, &headers).await
}

async fn cadvisor(State(numbers): State<Numbers>, headers: HeaderMap) -> Response {
    let Some(stats) = numbers.0.get() else { return awaited() };
    page(stats.cadvisor_metrics().await, &headers).await
}

fn awaited() -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, "the container runtime is awaited\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    #[tokio::test]
    async fn there_are_no_numbers_before_there_is_a_runtime_and_no_other_paths() {
        let server = Server::start(numbers_router(Numbers::default())).await;
        for path in ["/stats/summary", "/metrics/resource", "/metrics/cadvisor"] {
            assert_eq!(server.get(path).await.status, 503, "{path}");
        }
        assert_eq!(server.send("POST", "/stats/summary", &["Content-Length: 0"]).await.status, 503);
        assert_eq!(server.send("PUT", "/stats/summary", &["Content-Length: 0"]).await.status, 405);
        assert_eq!(server.get("/stats/").await.status, 404);
    }
}
