//! A stand-in for a node's server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::running::Running;
use crate::stand_in;

type Seen = Arc<Mutex<Vec<(Method, String, HeaderMap, String)>>>;

async fn stand_in(server: &Running) -> (u16, Seen) {
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    let authority = server.directory.path().join("pki/ca.crt");
    (stand_in::listen(&authority, move |request| answer(Arc::clone(&kept), request)).await, seen)
}

async fn answer(seen: Seen, mut request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let is_upgrade = request.headers().contains_key("upgrade");
    let body = match is_upgrade {
        true => String::new(),
        false => String::from_utf8(request.body_mut().collect().await?.to_bytes().to_vec()).unwrap(),
    };
    let path = request.uri().to_string();
    seen.lock().unwrap().push((request.method().clone(), path.clone(), request.headers().clone(), body));
    if is_upgrade && path.starts_with("/exec/") {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).await.unwrap();
            bytes.reverse();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let switch = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let switch = switch.header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
        return Ok(switch
            .header("x-stream-protocol-version", "v4.channel.k8s.io")
            .body(Full::default())
            .unwrap());
    }
    let (code, text) = match path.as_str() {
        path if path.contains("waiting") => {
            (400, "container \"main\" in pod \"waiting\" is waiting to start")
        }
        path if path.contains("missing") => (404, "no such thing"),
        _ => (200, "lines\n"),
    };
    Ok(Response::builder().status(code).header("content-type", "text/plain").body(Full::from(text)).unwrap())
}

async fn with_node() -> (Running, Seen) {
    let server = Running::start().await;
    let (port, seen) = stand_in(&server).await;
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    let answer = server.admin().post("/api/v1/nodes", &node).await;
    assert_eq!(answer.code, 201, "{:?}", answer.body);
    (server, seen)
}

#[tokio::test]
async fn what_is_asked_of_a_node_goes_there_with_our_certificate_and_without_the_senders_credentials() {
    let (server, seen) = with_node().await;
    let admin = server.admin().with_header("authorization", "Basic x").with_header("x-mine", "kept");
    let answer = admin.send(Method::POST, "/api/v1/nodes/n1/proxy/run/a%20b?x=%31", "body").await;
    assert_eq!((answer.code, &*answer.body), (200, &b"lines\n"[..]));
    assert_eq!(answer.header("content-type"), "text/plain");
    let (method, path, headers, body) = seen.lock().unwrap().pop().unwrap();
    assert_eq!((method, path.as_str(), body.as_str()), (Method::POST, "/run/a%20b?x=%31", "body"));
    assert_eq!((headers.get("authorization"), &headers["x-mine"]), (None, &"kept".parse().unwrap()));
    // What the node refuses is passed on as it is.
    let answer = admin.get("/api/v1/nodes/n1/proxy/missing").await;
    assert_eq!((answer.code, &*answer.body), (404, &b"no such thing"[..]));
}

#[tokio::test]
async fn a_stream_goes_through_in_both_directions() {
    let (server, seen) = with_node().await;
    let client = server
        .admin()
        .http1()
        .with_header("connection", "Upgrade")
        .with_header("upgrade", "SPDY/3.1")
        .with_header("x-stream-protocol-version", "v4.channel.k8s.io");
    let request = client.request(Method::POST, "/api/v1/nodes/n1/proxy/exec/default/web/main?command=sh", "");
    let mut response = client.begin(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    stream.write_all(b"12345").await.unwrap();
    let mut echoed = Vec::new();
    let read = stream.read_to_end(&mut echoed);
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
    assert_eq!(echoed, b"54321");
    assert_eq!(seen.lock().unwrap().pop().unwrap().1, "/exec/default/web/main?command=sh");
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_told_of_in_gos_words() {
    let server = Running::start().await;
    let admin = server.admin();
    let answer = admin.get("/api/v1/nodes/gone/proxy/").await;
    assert_eq!((answer.code, answer.json()["message"].as_str()), (404, Some("nodes \"gone\" not found")));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "down"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": free}},
        },
    });
    admin.post("/api/v1/nodes", &node).await;
    let refused = format!("dial tcp 127.0.0.1:{free}: connect: connection refused");
    let answer = admin.get("/api/v1/nodes/down/proxy/x").await;
    let expected = format!("error trying to reach service: {refused}");
    assert_eq!((answer.code, answer.json()["message"].as_str()), (503, Some(expected.as_str())));
    let upgrading = admin.http1().with_header("connection", "upgrade").with_header("upgrade", "websocket");
    let answer = upgrading.get("/api/v1/nodes/down/proxy/x").await;
    let expected = format!("error dialing backend: {refused}");
    assert_eq!((answer.code, answer.json()["message"].as_str()), (500, Some(expected.as_str())));
}
