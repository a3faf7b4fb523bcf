//! The read-only port: what anyone on the machine's network may see.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::any;
use crablet_metrics::Registry;

use crate::health::{Health, health_routes};
use crate::node::NodeHandles;
use crate::pods::list_routes;
use crate::respond::not_found;

/// `/healthz`, `/healthz/<check>`, `/metrics`, `/metrics/probes` and `/pods`.
pub fn read_only_router(health: Health, registry: Registry, node: NodeHandles) -> Router {
    Router::new()
        .route("/metrics", any(metrics))
        .with_state(registry)
        .merge(Router::new().route("/metrics/probes", any(probes)).with_state(node.clone()))
        .merge(health_routes(health))
        .merge(list_routes(node))
        .fallback(not_found)
}

async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, crablet_metrics::CONTENT_TYPE)], registry.render())
}

/// Nothing is counted before there is an agent.
async fn probes(State(node): State<NodeHandles>) -> impl IntoResponse {
    let text = node.agent().map(|agent| agent.probe_metrics.render()).unwrap_or_default();
    ([(CONTENT_TYPE, crablet_metrics::CONTENT_TYPE)], text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, running_node};

    #[tokio::test]
    async fn metrics_health_and_pods_are_served_and_nothing_else() {
        let registry = Registry::new();
        registry.counter("runs", "Runs.").unwrap().add(3);
        let (node, agent) = running_node();
        agent.probe_metrics.counter("probes", "Probes.").unwrap().add(7);
        let server = Server::start(read_only_router(Health::new(), registry, node)).await;
        let answer = server.get("/metrics").await;
        assert_eq!(answer.body, "# HELP runs Runs.\n# TYPE runs counter\nruns 3\n");
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let probes = server.get("/metrics/probes").await;
        assert_eq!(probes.body, "# HELP probes Probes.\n# TYPE probes counter\nprobes 7\n");
        assert_eq!(server.get("/healthz").await.body, "ok");
        assert_eq!(server.get("/pods").await.status, 200);
        assert_eq!(server.get("/explain").await.status, 404);
    }
}
