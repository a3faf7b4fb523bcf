//! The node's main port, :10250: what the API server, `kubectl`, dashboards and Prometheus ask, for those who may.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use crablet_cri::Runtime;
use crablet_logging::Handle;
use crablet_metrics::{RegisterError, Registries};

use crate::access::{Access, Guard, guard};
use crate::admin::{LARGEST_FLAG, set_verbosity};
use crate::checkpoint::{ContainerCheckpoints, checkpoint_router};
use crate::container_logs::{ContainerLogs, container_logs_router};
use crate::health::{Health, health_routes, slis_routes};
use crate::http_metrics::{HttpMetrics, ServerType, count};
use crate::node::NodeHandles;
use crate::node_logs::{NodeLogSettings, in_html, node_logs_router};
use crate::numbers::numbers_router;
use crate::pods::list_routes;
use crate::read_only::metrics;
use crate::respond::{json, plain, text};
use crate::running_pods::running_pods_router;
use crate::streams::{Streams, streams_router};
use crate::zpages::{Flags, Status, flagz_router, statusz_router};

/// What it answers from.
pub struct NodePort {
    pub health: Health,
    pub logging: Handle,
    pub node: NodeHandles,
    pub access: Access,
    pub runtime: Arc<dyn Runtime>,
    /// The configuration in force, as `/configz` shows it.
    pub kubelet_config: serde_json::Value,
    pub container_logs: ContainerLogs,
    pub node_logs: NodeLogSettings,
    pub streams: Streams,
    /// What else is there; nothing of it if debugging is not wanted (`enableDebuggingHandlers`).
    pub debugging: Option<Debugging>,
}

/// What is there where debugging is wanted.
pub struct Debugging {
    /// Whether profiles may be asked for (`enableProfilingHandler`).
    pub profiling: bool,
    /// Whether the log's verbosity may be changed (`enableDebugFlagsHandler`).
    pub flags_handler: bool,
    /// What containers are written to archives with, if they may be (`ContainerCheckpoint`).
    pub checkpoints: Option<ContainerCheckpoints>,
    /// What `/flagz` shows, if it is there (`ComponentFlagz`).
    pub flagz: Option<Flags>,
    /// What `/statusz` shows, if it is there (`ComponentStatusz`).
    pub statusz: Option<Status>,
}

impl Debugging {
    /// The first parts of paths that there are not.
    fn missing(&self) -> Vec<&'static str> {
        let parts = [
            ("checkpoint", self.checkpoints.is_some()),
            ("flagz", self.flagz.is_some()),
            ("statusz", self.statusz.is_some()),
        ];
        parts.into_iter().filter(|(_, is_there)| !is_there).map(|(part, _)| part).collect()
    }
}

/// All paths, each of them guarded: nothing is answered to who may not ask for it.
pub fn node_router(port: NodePort) -> Result<Router, RegisterError> {
    let access = port.access.clone();
    let counted = HttpMetrics::register(&port.node.metrics.kubelet, ServerType::ReadWrite)?;
    let (router, missing) = unguarded(port);
    let guarded = router.layer(from_fn_with_state(Guard { access, missing }, guard));
    Ok(guarded.layer(from_fn_with_state(counted, count)))
}

/// All paths, and the first parts of those that there are not.
fn unguarded(port: NodePort) -> (Router, Arc<[&'static str]>) {
    let NodePort { health, logging, node, runtime, kubelet_config, .. } = port;
    let Registries { kubelet, probes } = node.metrics.clone();
    let router = Router::new()
        .route("/metrics", any(metrics).with_state(kubelet))
        .route("/metrics/probes", any(metrics).with_state(probes))
        .merge(numbers_router(node.numbers.clone()))
        .merge(slis_routes(&health))
        .merge(health_routes(health))
        .merge(list_routes(node));
    let (router, missing) = match port.debugging {
        None => (router.merge(disabled_router()), vec!["checkpoint", "configz", "flagz", "statusz"]),
        Some(debugging) => {
            let configz: Arc<str> = serde_json::json!({ "kubeletconfig": kubelet_config }).to_string().into();
            let missing = debugging.missing();
            let router = router
                .route("/configz", any(async move || json(configz.to_string())))
                .merge(container_logs_router(port.container_logs))
                .merge(node_logs_router(port.node_logs))
                .merge(running_pods_router(runtime))
                .merge(streams_router(port.streams))
                .merge(debugging_router(debugging, logging));
            let router = ["/runningpods", "/logs", "/debug/pprof"]
                .into_iter()
                .fold(router, |router, path| router.route(path, any(slash_missing)));
            (router, missing)
        }
    };
    let router = router.fallback(page_not_found).method_not_allowed_fallback(method_not_allowed);
    (router, missing.into())
}

/// What stands below these paths shows or changes the insides of containers and of the node.
const DEBUGGING: &[&str] = &[
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/containerLogs/",
    "/runningpods/",
    "/debug/pprof/",
    "/logs/",
];

/// What is said instead where debugging is not wanted.
pub(crate) fn disabled_router() -> Router {
    DEBUGGING.iter().fold(Router::new(), |router, path| {
        router
            .route(path, any(disabled))
            .route(&format!("{path}{{*rest}}"), any(disabled))
            .route(path.trim_end_matches('/'), any(slash_missing))
    })
}

async fn disabled() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "Debug endpoints are disabled.\n")
}

/// Sends who forgot the slash at the end of a path there, as Go's router does.
async fn slash_missing(method: Method, uri: Uri) -> Response {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let to = format!("{}/{query}", uri.path());
    let page = match method {
        Method::GET => format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", in_html(&to)),
        _ => String::new(),
    };
    let mut response = (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)], page).into_response();
    let headers = response.headers_mut();
    headers.remove(CONTENT_TYPE);
    if matches!(method, Method::GET | Method::HEAD) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
    response
}

fn debugging_router(debugging: Debugging, logging: Handle) -> Router {
    let Debugging { profiling, flags_handler, checkpoints, flagz, statusz } = debugging;
    let profile = || if profiling { any(no_profile) } else { any(profiling_disabled) };
    let flags = if flags_handler { flags(logging) } else { any(flags_disabled) };
    let mut router = Router::new()
        .route("/debug/flags/v", flags)
        .route("/debug/pprof/", profile())
        .route("/debug/pprof/{*rest}", profile());
    if let Some(checkpoints) = checkpoints {
        router = router.merge(checkpoint_router(checkpoints));
    }
    let mut paths = vec!["/configz", "/debug", "/healthz", "/metrics"];
    if let Some(flags) = flagz {
        router = router.merge(flagz_router(flags));
        paths.push("/flagz");
    }
    if let Some(mut status) = statusz {
        paths.sort_unstable();
        status.paths = paths.into();
        router = router.merge(statusz_router(status));
    }
    router
}

async fn profiling_disabled() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "profiling endpoint is disabled.\n")
}

async fn flags_disabled() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "flags endpoint is disabled.\n")
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

/// Says which methods there are, of paths that do not take all.
pub(crate) async fn method_not_allowed(uri: Uri) -> Response {
    let methods = match uri.path().split('/').nth(1) {
        Some("run" | "checkpoint") => "POST",
        Some("exec" | "attach" | "portForward") => "GET, POST",
        _ => "GET",
    };
    let headers = [(ALLOW, methods), (CONTENT_TYPE, "text/plain; charset=utf-8")];
    (StatusCode::METHOD_NOT_ALLOWED, headers, "405: Method Not Allowed").into_response()
}

#[cfg(test)]
mod tests;
