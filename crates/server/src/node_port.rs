//! The node's main port, :10250: what the API server, `kubectl`, dashboards and Prometheus ask, for those who may.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get};
use crablet_logging::Handle;
use crablet_metrics::Registries;

use crate::access::{Access, guard};
use crate::admin::{LARGEST_FLAG, set_verbosity};
use crate::container_logs::{ContainerLogs, container_logs_router};
use crate::health::{Health, health_routes};
use crate::node::NodeHandles;
use crate::node_logs::{NodeLogSettings, node_logs_router};
use crate::numbers::numbers_router;
use crate::pods::list;
use crate::read_only::metrics;
use crate::respond::{json, plain, text};

/// What it answers from.
pub struct NodePort {
    pub health: Health,
    pub logging: Handle,
    pub node: NodeHandles,
    pub access: Access,
    /// The configuration in force, as `/configz` shows it.
    pub kubelet_config: serde_json::Value,
    pub container_logs: ContainerLogs,
    pub node_logs: NodeLogSettings,
    /// Whether what shows or changes the insides of containers is there (`enableDebuggingHandlers`).
    pub has_debugging: bool,
}

/// All paths, each of them guarded: nothing is answered to who may not ask for it.
pub fn node_router(port: NodePort) -> Router {
    let NodePort { health, logging, node, access, kubelet_config, .. } = port;
    let debugging = match port.has_debugging {
        true => container_logs_router(port.container_logs)
            .merge(node_logs_router(port.node_logs))
            .route("/debug/flags/v", flags(logging))
            .route("/debug/pprof", any(no_profile))
            .route("/debug/pprof/{*rest}", any(no_profile)),
        false => DEBUGGING.iter().fold(Router::new(), |router, path| router.route(path, any(disabled))),
    };
    let Registries { kubelet, probes } = node.metrics.clone();
    let configz: Arc<str> = serde_json::json!({ "kubeletconfig": kubelet_config }).to_string().into();
    Router::new()
        .route("/metrics", get(metrics).with_state(kubelet))
        .route("/metrics/probes", get(metrics).with_state(probes))
        .route("/configz", get(async move || json(configz.to_string())))
        .merge(numbers_router(node.numbers.clone()))
        .merge(debugging)
        .merge(health_routes(health))
        .merge(Router::new().route("/pods", get(list)).route("/pods/", get(list)).with_state(node))
        .fallback(page_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(access, guard))
}

/// What is not there without debugging.
const DEBUGGING: &[&str] = &[
    "/attach/{*rest}",
    "/containerLogs/{*rest}",
    "/debug/pprof/{*rest}",
    "/exec/{*rest}",
    "/logs/",
    "/logs/{*rest}",
    "/portForward/{*rest}",
    "/run/{*rest}",
    "/runningpods/",
];

async fn disabled() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.\n")
}

fn flags(logging: Handle) -> MethodRouter {
    any(verbosity).layer(DefaultBodyLimit::max(LARGEST_FLAG)).with_state(logging)
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
