//! The node's main port, :10250: what the API server, `kubectl`, dashboards and Prometheus ask, for those who may.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, get};
use crablet_logging::Handle;
use crablet_metrics::Registries;

use crate::access::{Access, guard};
use crate::admin::{LARGEST_FLAG, set_verbosity};
use crate::health::{Health, health_routes};
use crate::node::NodeHandles;
use crate::pods::list;
use crate::read_only::metrics;
use crate::respond::{json, plain};

/// What it answers from.
pub struct NodePort {
    pub health: Health,
    pub logging: Handle,
    pub node: NodeHandles,
    pub access: Access,
    /// The configuration in force, as `/configz` shows it.
    pub kubelet_config: serde_json::Value,
}

/// All paths, each of them guarded: nothing is answered to who may not ask for it.
pub fn node_router(port: NodePort) -> Router {
    let NodePort { health, logging, node, access, kubelet_config } = port;
    let Registries { kubelet, probes } = node.metrics.clone();
    let configz: Arc<str> = serde_json::json!({ "kubeletconfig": kubelet_config }).to_string().into();
    let flags = any(verbosity).layer(DefaultBodyLimit::max(LARGEST_FLAG)).with_state(logging);
    Router::new()
        .route("/metrics", get(metrics).with_state(kubelet))
        .route("/metrics/probes", get(metrics).with_state(probes))
        .route("/configz", get(async move || json(configz.to_string())))
        .route("/debug/flags/v", flags)
        .route("/debug/pprof", any(no_profile))
        .route("/debug/pprof/{*rest}", any(no_profile))
        .merge(health_routes(health))
        .merge(Router::new().route("/pods", get(list)).route("/pods/", get(list)).with_state(node))
        .fallback(page_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(access, guard))
}

async fn verbosity(State(logging): State<Handle>, method: Method, body: String) -> Response {
    set_verbosity(&logging, &method, &body)
}

async fn no_profile() -> Response {
    let why = "this kubelet is not written in Go and has no such profiles: use `perf record -p <pid>` on the node, and \
               /metrics for its memory and threads\n";
    plain(StatusCode::NOT_IMPLEMENTED, why)
}

async fn page_not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404: Page Not Found")
}

async fn method_not_allowed() -> Response {
    plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
}

#[cfg(test)]
mod tests;
