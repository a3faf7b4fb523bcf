//! A transport whose requests are counted, under upstream's name.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_metrics::{Counter, Family, RegisterError, Registry};
use http::{Request, Response, StatusCode};
use hyper::body::Bytes;

use crate::transport::{Body, Lane, Transport, TransportError};

/// The code of a request that had no answer, as upstream.
const NO_ANSWER: &str = "<error>";

/// How many requests there were, to which host, with which answer. Clones are the same.
#[derive(Clone)]
pub struct Requests(Family<Counter, 3>);

impl Requests {
    pub fn register(registry: &Registry) -> Result<Requests, RegisterError> {
        let total = registry.counter_family(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "host", "method"],
        )?;
        Ok(Requests(total))
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
        let answer = self.transport.send(request, lane).await;
        let status = answer.as_ref().ok().map(Response::status);
        let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
        self.requests.0.with([code, &self.host, method.as_str()]).add(1);
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
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"rest_client_requests_total{code="200",host="server:6443",method="GET"} 2"#,
                r#"rest_client_requests_total{code="<error>",host="server:6443",method="PUT"} 1"#,
            ]
        );
    }
}
