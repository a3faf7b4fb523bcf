//! What is counted of requests to the node, under upstream's names.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Gauge, Histogram, RegisterError, Registry};
use crablet_streams::Kept;
use tokio::time::Instant;

use crate::respond::until_end;

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

/// Counts a request until its answer has ended, or the stream that it became.
pub(crate) async fn count(State(metrics): State<HttpMetrics>, mut request: Request, next: Next) -> Response {
    let labels = metrics.labels(&request);
    metrics.total.with(labels).increment();
    let under_way = Arc::new(UnderWay::begin(metrics, labels));
    request.extensions_mut().insert(Kept::new(Arc::clone(&under_way) as _));
    let response = next.run(request).await;
    response.map(|body| until_end(body, under_way))
}

/// A request under way, also when who sent it goes before it is answered.
struct UnderWay {
    metrics: HttpMetrics,
    labels: [&'static str; 4],
    begun: Instant,
}

impl UnderWay {
    fn begin(metrics: HttpMetrics, labels: [&'static str; 4]) -> UnderWay {
        metrics.inflight.with(labels).add(1.0);
        UnderWay { metrics, labels, begun: Instant::now() }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.metrics.inflight.with(self.labels).add(-1.0);
        self.metrics.duration.with(self.labels).observe(self.begun.elapsed().as_secs_f64());
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

    #[tokio::test]
    async fn a_request_is_under_way_until_its_answer_has_ended() {
        use axum::Router;
        use axum::body::Body;
        use axum::middleware::from_fn_with_state;
        use axum::routing::get;
        use http_body_util::BodyExt as _;
        use tower::ServiceExt as _;

        let registry = Registry::new();
        let metrics = HttpMetrics::register(&registry, ServerType::ReadOnly).unwrap();
        let (lines, followed) = tokio::sync::mpsc::channel::<Result<&'static str, std::io::Error>>(1);
        let followed = Arc::new(std::sync::Mutex::new(Some(followed)));
        let follow = move || async move {
            let followed = followed.lock().unwrap().take().unwrap();
            Body::from_stream(futures_util::stream::unfold(followed, async |mut followed| {
                Some((followed.recv().await?, followed))
            }))
        };
        let router = Router::new()
            .route("/logs/", get(follow))
            .route("/pods", get(|| async { "[]" }))
            .layer(from_fn_with_state(metrics, count));
        let ask = |path: &str| router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
        let of = |name: &str, path: &str| {
            let labels =
                format!("{{long_running=\"false\",method=\"GET\",path=\"{path}\",server_type=\"readonly\"}}");
            let text = registry.render();
            text.lines().find_map(|line| line.strip_prefix(&format!("{name}{labels} ")).map(str::to_owned))
        };
        let (inflight, ended) =
            ("kubelet_http_inflight_requests", "kubelet_http_requests_duration_seconds_count");

        let answer = ask("/pods").await.unwrap();
        assert_eq!(answer.headers()["content-length"], "2", "the length is still known");
        drop(answer);
        assert_eq!((of(inflight, "pods").as_deref(), of(ended, "pods").as_deref()), (Some("0"), Some("1")));

        let mut answer = ask("/logs/").await.unwrap();
        lines.send(Ok("line")).await.unwrap();
        assert!(answer.body_mut().frame().await.unwrap().is_ok());
        assert_eq!((of(inflight, "logs").as_deref(), of(ended, "logs")), (Some("1"), None));
        drop(lines);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "");
        assert_eq!((of(inflight, "logs").as_deref(), of(ended, "logs").as_deref()), (Some("0"), Some("1")));
    }
}
