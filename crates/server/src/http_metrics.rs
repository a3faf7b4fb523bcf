//! What is counted of requests to the node, under upstream's names.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Gauge, Histogram, RegisterError, Registry};
use tokio::time::Instant;

/// The first parts of paths that are told apart; of `metrics`, the second too.
const PATHS: &[&str] = &[
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];
/// Those whose requests may take long. Upstream spells the third like this, so that it never is.
const LONG_RUNNING: &[&str] = &["exec", "attach", "portforward", "debug"];
const OTHER: &str = "other";

/// Which of a node's ports is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerType {
    ReadOnly,
    ReadWrite,
}

/// Counters of one port.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    server_type: ServerType,
    total: Family<Counter, 4>,
    duration: Family<Histogram, 4>,
    inflight: Family<Gauge, 4>,
}

impl HttpMetrics {
    pub(crate) fn register(
        registry: &Registry,
        server_type: ServerType,
    ) -> Result<HttpMetrics, RegisterError> {
        let labels = ["method", "path", "server_type", "long_running"];
        Ok(HttpMetrics {
            server_type,
            total: registry.counter_family(
                "kubelet_http_requests_total",
                "[ALPHA] Number of the http requests received since the server started",
                labels,
            )?,
            duration: registry.histogram_family(
                "kubelet_http_requests_duration_seconds",
                "[ALPHA] Duration in seconds to serve http requests",
                labels,
                &DEFAULT_BUCKETS,
            )?,
            inflight: registry.gauge_family(
                "kubelet_http_inflight_requests",
                "[ALPHA] Number of the inflight http requests",
                labels,
            )?,
        })
    }

    fn labels(&self, request: &Request) -> [&'static str; 4] {
        let path = bucket(request.uri().path());
        let long_running = if LONG_RUNNING.contains(&path) { "true" } else { "false" };
        let server_type = match self.server_type {
            ServerType::ReadOnly => "readonly",
            ServerType::ReadWrite => "readwrite",
        };
        [method(request.method()), path, server_type, long_running]
    }
}

/// Counts a request, until its answer begins.
pub(crate) async fn count(State(metrics): State<HttpMetrics>, request: Request, next: Next) -> Response {
    let labels = metrics.labels(&request);
    metrics.total.with(labels).increment();
    let _inflight = Inflight::of(metrics.inflight.with(labels));
    let begun = Instant::now();
    let response = next.run(request).await;
    metrics.duration.with(labels).observe(begun.elapsed().as_secs_f64());
    response
}

/// A request under way, also when who sent it goes before it is answered.
struct Inflight(Gauge);

impl Inflight {
    fn of(gauge: Gauge) -> Inflight {
        gauge.add(1.0);
        Inflight(gauge)
    }
}

impl Drop for Inflight {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

fn bucket(path: &str) -> &'static str {
    let path = path.trim_start_matches('/');
    let mut parts = path.splitn(3, '/');
    let first = parts.next().unwrap_or_default();
    let root = match parts.next() {
        Some(second) if first == "metrics" => &path[..first.len() + 1 + second.len()],
        _ => first,
    };
    PATHS.iter().find(|known| **known == root).copied().unwrap_or(OTHER)
}

fn method(method: &Method) -> &'static str {
    const KNOWN: &[&str] = &["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
    KNOWN.iter().find(|known| **known == method.as_str()).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_known_count_as_one() {
        for (path, expected) in [
            ("/pods", "pods"),
            ("/pods/", "pods"),
            ("/exec/a/b/c", "exec"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/x", OTHER),
            ("/anything", OTHER),
            ("/", OTHER),
        ] {
            assert_eq!(bucket(path), expected, "{path}");
        }
        assert_eq!(method(&Method::PATCH), OTHER);
        assert_eq!(method(&Method::GET), "GET");
    }
}
