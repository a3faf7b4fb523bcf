//! The transport against servers that misbehave in ways of their own, and against the embedded API server.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod certificates;
mod connections;
mod credentials;
mod embedded;
mod proxies;
mod server;

use crablet_client::{Body, Https, Kubeconfig, Lane, ProxyEnvironment, Transport, TransportError};
use crablet_host::clock::Clock;
use futures_util::StreamExt as _;
use http::Request;
use hyper::body::Bytes;

fn https(config: &Kubeconfig) -> Https {
    Https::new(config, &ProxyEnvironment::default(), Clock::system()).unwrap()
}

/// The answer to a request, as text, with its code where that is not 200.
async fn get(https: &Https, path: &str, lane: Lane) -> Result<String, TransportError> {
    let request = Request::get(path).body(Bytes::new()).unwrap();
    let answer = https.send(request, lane).await?;
    let code = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(part) = body.next().await {
        text.extend_from_slice(&part?);
    }
    let text = String::from_utf8(text).unwrap();
    Ok(if code == 200 { text } else { format!("{code}{text}") })
}

/// A body that has no end.
async fn watch(https: &Https) -> Body {
    let request = Request::get("/watch").body(Bytes::new()).unwrap();
    https.send(request, Lane::Common).await.unwrap().into_body()
}

async fn next_line(body: &mut Body) -> String {
    String::from_utf8(body.next().await.unwrap().unwrap().to_vec()).unwrap()
}
