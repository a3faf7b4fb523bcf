//! A transport whose requests are counted, under upstream's names.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use crablet_metrics::{Counter, Family, Histogram, RegisterError, Registry};
use futures_util::Stream;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Bytes;
use tokio::time::Instant;

use crate::exec::{Credential, ExecError};
use crate::transport::{Body, Lane, Transport, TransportError};

/// The code of a request that had no answer, as upstream.
const NO_ANSWER: &str = "<error>";

const DURATIONS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const RESOLUTIONS: [f64; 11] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0];
const SIZES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// How long a request waited for its turn. It goes with the request, since who makes it wait does not know the host.
#[derive(Clone, Copy)]
pub(crate) struct Waited(pub(crate) Duration);

/// How many requests there were, to which host, with which answer, and how large and slow they were; and what it took to
/// get there. Clones are the same.
#[derive(Clone)]
pub struct Requests {
    total: Family<Counter, 3>,
    duration: Family<Histogram, 2>,
    size: Family<Histogram, 2>,
    response_size: Family<Histogram, 2>,
    waits: Family<Histogram, 2>,
    resolutions: Family<Histogram, 1>,
    plugin_calls: Family<Counter, 2>,
}

impl Requests {
    pub fn register(registry: &Registry) -> Result<Requests, RegisterError> {
        let total = registry.counter_family(
            "rest_client_requests_total",
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "host", "method"],
        )?;
        let duration = registry.histogram_family(
            "rest_client_request_duration_seconds",
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            &DURATIONS,
        )?;
        let size = registry.histogram_family(
            "rest_client_request_size_bytes",
            "[ALPHA] Request size in bytes. Broken down by verb and host.",
            ["verb", "host"],
            &SIZES,
        )?;
        let response_size = registry.histogram_family(
            "rest_client_response_size_bytes",
            "[ALPHA] Response size in bytes. Broken down by verb and host.",
            ["verb", "host"],
            &SIZES,
        )?;
        let waits = registry.histogram_family(
            "rest_client_rate_limiter_duration_seconds",
            "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            &DURATIONS,
        )?;
        let resolutions = registry.histogram_family(
            "rest_client_dns_resolution_duration_seconds",
            "[ALPHA] DNS resolver latency in seconds. Broken down by host.",
            ["host"],
            &RESOLUTIONS,
        )?;
        let plugin_calls = registry.counter_family(
            "rest_client_exec_plugin_call_total",
            "[ALPHA] Number of calls to an exec plugin, partitioned by the type of event encountered (no_error, plugin_execution_error, plugin_not_found_error, client_internal_error) and an optional exit code. The exit code will be set to 0 if and only if the plugin call was successful.",
            ["code", "call_status"],
        )?;
        Ok(Requests { total, duration, size, response_size, waits, resolutions, plugin_calls })
    }

    /// The address behind a name was asked for.
    pub(crate) fn resolved(&self, host: &str, took: Duration) {
        self.resolutions.with([host]).observe(took.as_secs_f64());
    }

    /// A credential plugin was run. What it answered is another matter, as upstream has it.
    pub(crate) fn ran_plugin(&self, outcome: Result<&Credential, &ExecError>) {
        let (code, status) = match outcome {
            Ok(_)
            | Err(ExecError::TooLong { .. } | ExecError::Undecodable { .. } | ExecError::Nothing { .. }) => {
                (0, "no_error")
            }
            // Go's number for who was ended by a signal.
            Err(ExecError::Late { .. }) => (-1, "plugin_execution_error"),
            Err(ExecError::Failed { how, .. }) => (how.code().unwrap_or(-1), "plugin_execution_error"),
            Err(ExecError::Start { .. }) => (1, "plugin_not_found_error"),
        };
        self.plugin_calls.with([&code.to_string(), status]).increment();
    }
}

/// The way to a host, with what goes there counted.
pub struct Counted {
    transport: Arc<dyn Transport>,
    host: String,
    requests: Requests,
}

impl Counted {
    pub fn new(transport: Arc<dyn Transport>, host: String, requests: Requests) -> Counted {
        Counted { transport, host, requests }
    }
}

#[async_trait]
impl Transport for Counted {
    async fn send(&self, request: Request<Bytes>, lane: Lane) -> Result<Response<Body>, TransportError> {
        let method = request.method().clone();
        let has_end = !is_watch(request.uri());
        if let Some(Waited(waited)) = request.extensions().get() {
            self.requests.waits.with([method.as_str(), &self.host]).observe(waited.as_secs_f64());
        }
        self.requests.size.with([method.as_str(), &self.host]).observe(request.body().len() as f64);
        let begun = Instant::now();
        let answer = self.transport.send(request, lane).await;
        let took = begun.elapsed().as_secs_f64();
        self.requests.duration.with([method.as_str(), &self.host]).observe(took);
        let status = answer.as_ref().ok().map(Response::status);
        let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
        self.requests.total.with([code, &self.host, method.as_str()]).add(1);
        let answer = answer?;
        if !has_end {
            return Ok(answer);
        }
        let sizes = self.requests.response_size.with([method.as_str(), &self.host]);
        Ok(answer.map(|body| -> Body { Box::pin(Weighed { body, bytes: 0, sizes }) }))
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

/// A body whose bytes are counted. How many there were is told when it has been read, or is given up.
struct Weighed {
    body: Body,
    bytes: usize,
    sizes: Histogram,
}

impl Stream for Weighed {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.body.as_mut().poll_next(context);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.bytes += bytes.len();
        }
        polled
    }
}

impl Drop for Weighed {
    fn drop(&mut self) {
        self.sizes.observe(self.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use serde_json::Value;

    use super::*;
    use crate::{Client, Limit};

    struct OnlyGet;

    #[async_trait]
    impl Transport for OnlyGet {
        async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
            match *request.method() {
                http::Method::GET => {
                    let parts = ["twelve", " bytes"].map(|part| Ok(Bytes::from(part)));
                    let body: Body = Box::pin(futures_util::stream::iter(parts));
                    Ok(Response::new(body))
                }
                _ => Err(TransportError::new("no")),
            }
        }
    }

    #[tokio::test]
    async fn answers_count_by_their_code_and_the_lack_of_one_as_an_error() {
        let registry = Registry::new();
        let counted =
            Counted::new(Arc::new(OnlyGet), "server:6443".to_owned(), Requests::register(&registry).unwrap());
        for method in ["GET", "GET", "PUT"] {
            let request = Request::builder().method(method).uri("/x").body(Bytes::new()).unwrap();
            // Whether there is an answer is what is counted.
            let _ = counted.send(request, Lane::Common).await;
        }
        let text = registry.render();
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("rest_client_requests_total{")).collect();
        assert_eq!(
            lines,
            [
                r#"rest_client_requests_total{code="200",host="server:6443",method="GET"} 2"#,
                r#"rest_client_requests_total{code="<error>",host="server:6443",method="PUT"} 1"#,
            ]
        );
        let count = r#"rest_client_request_duration_seconds_count{host="server:6443",verb="GET"} 2"#;
        assert!(text.lines().any(|line| line == count), "{text}");
        assert!(!text.contains("rest_client_rate_limiter_duration_seconds_count"), "nothing waited: {text}");
    }

    #[tokio::test]
    async fn an_answer_is_weighed_when_it_has_been_read_and_a_watch_is_not() {
        let registry = Registry::new();
        let counted =
            Counted::new(Arc::new(OnlyGet), "server".to_owned(), Requests::register(&registry).unwrap());
        for path in ["/x?limit=5", "/x?watch=true&timeoutSeconds=5"] {
            let request = Request::builder().uri(path).body(Bytes::new()).unwrap();
            let answer = counted.send(request, Lane::Common).await.unwrap();
            let parts: Vec<_> = answer.into_body().collect().await;
            assert_eq!(parts.len(), 2, "{path}");
        }
        let text = registry.render();
        for line in [
            r#"rest_client_response_size_bytes_sum{host="server",verb="GET"} 12"#,
            r#"rest_client_response_size_bytes_count{host="server",verb="GET"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_turn_is_seen_to() {
        let registry = Registry::new();
        let counted =
            Counted::new(Arc::new(OnlyGet), "server".to_owned(), Requests::register(&registry).unwrap());
        let client = Client::new(Arc::new(counted), "test").with_limit(Limit::new(1.0, 1));
        for _ in 0..3 {
            // What it says is no object.
            assert!(client.read::<Value>("/x").await.is_err());
        }
        let text = registry.render();
        for line in [
            r#"rest_client_rate_limiter_duration_seconds_bucket{host="server",verb="GET",le="0.005"} 1"#,
            r#"rest_client_rate_limiter_duration_seconds_bucket{host="server",verb="GET",le="2"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
