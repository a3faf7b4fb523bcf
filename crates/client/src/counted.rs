//! A transport whose requests are counted, under upstream's name.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_metrics::{Counter, Family, Histogram, RegisterError, Registry};
use http::{Request, Response, StatusCode};
use hyper::body::Bytes;
use tokio::time::Instant;

use crate::transport::{Body, Lane, Transport, TransportError};

/// The code of a request that had no answer, as upstream.
const NO_ANSWER: &str = "<error>";

const DURATIONS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const SIZES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// How many requests there were, to which host, with which answer, and how large and slow they were. Clones are the same.
#[derive(Clone)]
pub struct Requests {
    total: Family<Counter, 3>,
    duration: Family<Histogram, 2>,
    size: Family<Histogram, 2>,
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
        Ok(Requests { total, duration, size })
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
        self.requests.size.with([method.as_str(), &self.host]).observe(request.body().len() as f64);
        let begun = Instant::now();
        let answer = self.transport.send(request, lane).await;
        let took = begun.elapsed().as_secs_f64();
        self.requests.duration.with([method.as_str(), &self.host]).observe(took);
        let status = answer.as_ref().ok().map(Response::status);
        let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
        self.requests.total.with([code, &self.host, method.as_str()]).add(1);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OnlyGet;

    #[async_trait]
    impl Transport for OnlyGet {
        async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
            match *request.method() {
                http::Method::GET => {
                    let body: Body = Box::pin(futures_util::stream::empty());
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
    }
}
