//! A call of the gRPC health service, `grpc.health.v1.Health/Check`. The whole exchange is in the one future, so that
//! nothing is left when that is let go of.

use std::pin::pin;
use std::time::Duration;

use crablet_core::probes::target::Address;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, TE, USER_AGENT};
use hyper::{HeaderMap, Method, Request};
use percent_encoding::percent_decode_str;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::Answer;
use super::connect::connect;

/// How much of an answer is read: it is a number.
const MOST: usize = 1 << 10;

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// What a call came to.
enum Called {
    /// The number of its state.
    Health(i32),
    /// The server's refusal.
    Status { code: u32, message: String },
    /// The connection failed.
    Broken(String),
}

/// Asks a server about a service.
pub(super) async fn probe(address: &Address, service: &str, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    let (at, seconds) = (address.in_url(), timeout.as_secs());
    let stream = match connect(address, deadline).await {
        Ok(stream) => stream,
        Err(error) if error.is_timeout() => {
            return Answer::Failure(format!(
                "timeout: failed to connect service {at:?} within {seconds}s: context deadline exceeded"
            ));
        }
        Err(error) => return Answer::Failure(format!("error: failed to connect service at {at:?}: {error}")),
    };
    let Ok(called) = timeout_at(deadline, call(stream, &at, service)).await else {
        return Answer::Failure(format!("timeout: health rpc did not complete within {seconds}s"));
    };
    match called {
        Called::Health(1) => Answer::Success,
        Called::Health(state) => {
            let state = match state {
                0 => "UNKNOWN".to_owned(),
                2 => "NOT_SERVING".to_owned(),
                3 => "SERVICE_UNKNOWN".to_owned(),
                other => other.to_string(),
            };
            Answer::Failure(format!("service unhealthy (responded with {state:?})"))
        }
        Called::Status { code: 12, message } => Answer::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Called::Status { code, message } => Answer::Failure(format!(
            "error: health rpc probe failed: rpc error: code = {} desc = {message}",
            code_name(code)
        )),
        Called::Broken(reason) => Answer::Failure(format!(
            "error: health rpc probe failed: rpc error: code = Unavailable desc = connection error: {reason}"
        )),
    }
}

async fn call(stream: TcpStream, authority: &str, service: &str) -> Called {
    let (sender, connection) = match h2::client::handshake(stream).await {
        Ok(both) => both,
        Err(error) => return Called::Broken(error.to_string()),
    };
    let (mut exchange, mut connection) = (pin!(exchange(sender, authority, service)), pin!(connection));
    let called = tokio::select! {
        biased;
        called = &mut exchange => called,
        // Whatever it ended with, the exchange knows it too.
        _ = &mut connection => exchange.await,
    };
    called.unwrap_or_else(|error| Called::Broken(error.to_string()))
}

async fn exchange(
    sender: h2::client::SendRequest<Bytes>,
    authority: &str,
    service: &str,
) -> Result<Called, h2::Error> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, "kube-probe/1.36")
        .body(());
    let request = match request {
        Ok(request) => request,
        Err(error) => return Ok(Called::Broken(error.to_string())),
    };
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(framed(service), true)?;
    let (head, mut answer) = response.await?.into_parts();
    if head.status != 200 {
        let message = format!("unexpected HTTP status code received from server: {}", head.status);
        return Ok(Called::Status { code: 14, message });
    }
    if let Some(status) = status_in(&head.headers) {
        return Ok(status);
    }
    let mut data = Vec::new();
    while let Some(chunk) = answer.data().await {
        let chunk = chunk?;
        let _ = answer.flow_control().release_capacity(chunk.len());
        data.extend_from_slice(&chunk);
        if data.len() > MOST {
            return Ok(Called::Status { code: 8, message: "received message larger than max".into() });
        }
    }
    match answer.trailers().await?.as_ref().and_then(status_in) {
        Some(Called::Status { code: 0, .. }) | None => {}
        Some(status) => return Ok(status),
    }
    Ok(match data.get(5..).map(HealthCheckResponse::decode) {
        Some(Ok(health)) => Called::Health(health.status),
        Some(Err(_)) | None => Called::Status { code: 13, message: "the answer is no health".into() },
    })
}

/// A message as gRPC frames it: not compressed, and its length before it.
fn framed(service: &str) -> Bytes {
    let message = HealthCheckRequest { service: service.to_owned() }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

fn status_in(headers: &HeaderMap) -> Option<Called> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some(Called::Status { code, message: percent_decode_str(message).decode_utf8_lossy().into_owned() })
}

/// Go's name of a gRPC code.
fn code_name(code: u32) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    usize::try_from(code).ok().and_then(|code| NAMES.get(code)).copied().unwrap_or("Unknown")
}
