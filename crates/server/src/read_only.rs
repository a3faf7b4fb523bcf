//! The read-only port: what anyone on the machine's network may see.

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::any;
use crablet_metrics::{Registries, Registry};

use crate::health::{Health, health_routes};
use crate::node::NodeHandles;
use crate::numbers::numbers_router;
use crate::pods::list_routes;
use crate::respond::not_found;

/// `/healthz`, `/healthz/<check>`, `/metrics`, `/metrics/probes`, `/pods`, and what the node and its pods use.
pub fn read_only_router(health: Health, node: NodeHandles) -> Router {
    let Registries { kubelet, probes } = node.metrics.clone();
    Router::new()
        .route("/metrics", any(metrics).with_state(kubelet))
        .route("/metrics/probes", any(metrics).with_state(probes))
        .merge(numbers_router(node.numbers.clone()))
        .merge(health_routes(health))
        .merge(list_routes(node))
        .fallback(not_found)
}

pub(crate) async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, crablet_metrics::CONTENT_TYPE)], registry.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, running_node};

    #[tokio::test]
    async fn metrics_health_and_pods_are_served_and_nothing_else() {
        let (node, _agent) = running_node();
        let metrics = node.metrics.clone();
        let server = Server::start(read_only_router(Health::new(), node)).await;
        // A part that is made later counts too.
        metrics.kubelet.counter("runs", "Runs.").unwrap().add(3);
        metrics.probes.counter("probes", "Probes.").unwrap().add(7);
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
