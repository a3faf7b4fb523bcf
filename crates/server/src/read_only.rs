//! The read-only port: what anyone on the machine's network may see.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;
use crablet_metrics::{RegisterError, Registries, Registry};

use crate::health::{Health, health_routes, slis_routes};
use crate::http_metrics::{HttpMetrics, ServerType, count};
use crate::node::NodeHandles;
use crate::node_port::{disabled_router, method_not_allowed};
use crate::numbers::numbers_router;
use crate::page::page;
use crate::pods::list_routes;
use crate::respond::not_found;

/// `/healthz`, `/healthz/<check>`, `/metrics`, `/metrics/probes`, `/pods` and what the node and its pods use; of what
/// shows more, that it is not there.
pub fn read_only_router(health: Health, node: NodeHandles) -> Result<Router, RegisterError> {
    let counted = HttpMetrics::register(&node.metrics.kubelet, ServerType::ReadOnly)?;
    let Registries { kubelet, probes } = node.metrics.clone();
    let router = Router::new()
        .route("/metrics", any(metrics).with_state(kubelet))
        .route("/metrics/probes", any(metrics).with_state(probes))
        .merge(numbers_router(node.numbers.clone()))
        .merge(slis_routes(&health))
        .merge(health_routes(health))
        .merge(list_routes(node))
        .merge(disabled_router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    Ok(router.layer(from_fn_with_state(counted, count)))
}

/// Some of what is told is read from files when it is asked for, which no task has to wait for.
pub(crate) async fn metrics(State(registry): State<Registry>, headers: HeaderMap) -> Response {
    let rendered = tokio::task::spawn_blocking(move || registry.render()).await.unwrap_or_default();
    page(rendered, &headers).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, running_node};

    #[tokio::test]
    async fn metrics_health_and_pods_are_served_and_nothing_else() {
        let (node, _agent) = running_node();
        let metrics = node.metrics.clone();
        let server = Server::start(read_only_router(Health::new(), node).unwrap()).await;
        // A part that is made later counts too.
        metrics.kubelet.counter("runs", "Runs.").unwrap().add(3);
        metrics.probes.counter("probes", "Probes.").unwrap().add(7);
        let answer = server.get("/metrics").await;
        assert!(answer.body.ends_with("# HELP runs Runs.\n# TYPE runs counter\nruns 3\n"), "{}", answer.body);
        let counted = "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readonly\"} 1\n";
        assert!(answer.body.contains(counted), "{}", answer.body);
        let written = "content-type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores\r\n";
        assert!(answer.head.contains(written), "{}", answer.head);
        assert!(!answer.head.contains("content-encoding"), "{}", answer.head);
        let probes = server.get("/metrics/probes").await;
        assert_eq!(probes.body, "# HELP probes Probes.\n# TYPE probes counter\nprobes 7\n");
        assert_eq!(server.get("/healthz").await.body, "ok");
        assert_eq!(server.get("/pods").await.status, 200);
        for path in ["/explain", "/configz", "/flagz", "/statusz", "/debug/flags/v", "/checkpoint/a/b/c"] {
            assert_eq!(server.get(path).await.status, 404, "{path}");
        }
        for path in ["/exec/a/b/c", "/run/a/b/c", "/containerLogs/a/b/c", "/logs/", "/runningpods/"] {
            let answer = server.get(path).await;
            let expected = (405, "Debug endpoints are disabled.\n");
            assert_eq!((answer.status, answer.body.as_str()), expected, "{path}");
        }
        assert_eq!(server.send("POST", "/pods", &[]).await.body, "405: Method Not Allowed");
    }
}
