//! The read-only port: what anyone on the machine's network may see.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::any;
use crablet_metrics::Registry;

use crate::health::{Health, health_routes};
use crate::respond::not_found;

/// `/healthz`, `/healthz/<check>` and `/metrics`.
pub fn read_only_router(health: Health, registry: Registry) -> Router {
    Router::new()
        .route("/metrics", any(metrics))
        .with_state(registry)
        .merge(health_routes(health))
        .fallback(not_found)
}

async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, crablet_metrics::CONTENT_TYPE)], registry.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    #[tokio::test]
    async fn metrics_and_health_are_served_and_nothing_else() {
        let registry = Registry::new();
        registry.counter("runs", "Runs.").unwrap().add(3);
        let server = Server::start(read_only_router(Health::new(), registry)).await;
        let answer = server.get("/metrics").await;
        assert_eq!(answer.body, "# HELP runs Runs.\n# TYPE runs counter\nruns 3\n");
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert_eq!(server.get("/healthz").await.body, "ok");
        assert_eq!(server.get("/pods").await.status, 404);
    }
}
