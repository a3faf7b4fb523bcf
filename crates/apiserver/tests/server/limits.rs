use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::Method;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::running::{CONFIG_MAPS, Running, config_map};

#[tokio::test]
async fn a_body_larger_than_3_mib_is_refused_however_it_comes() {
    let server = Running::start().await;
    let admin = server.admin().with_header("content-type", "application/json");
    for client in [admin.clone(), admin.http1()] {
        let answer = client.send(Method::POST, CONFIG_MAPS, vec![b' '; (3 << 20) + 1]).await;
        let message = "Request entity too large: limit is 3145728";
        assert_eq!((answer.code, answer.json()["message"].as_str()), (413, Some(message)));
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let chunks = std::iter::repeat_n(chunk, 100)
            .map(|chunk| Ok::<_, std::convert::Infallible>(Frame::data(chunk)));
        let body = StreamBody::new(futures_util::stream::iter(chunks).boxed());
        let request = client.request(Method::POST, CONFIG_MAPS, "").map(|_| body);
        match client.begin(request).await {
            Ok(response) => assert_eq!(response.status(), 413),
            // Where the rest is cut off, the client may not come to see the answer.
            Err(error) => assert!(!error.is_timeout(), "{error}"),
        }
    }
    assert_eq!(server.admin().get("/readyz").await.code, 200);
}

#[tokio::test]
async fn documents_come_with_upstreams_headers_and_in_the_form_that_is_wanted() {
    let server = Running::start().await;
    let admin = server.admin();
    admin.post(CONFIG_MAPS, &config_map("small", "1")).await;
    admin.post(CONFIG_MAPS, &config_map("large", &"x".repeat(200_000))).await;
    let get = |client: crate::client::Client, name: &'static str| async move {
        client.get(&format!("{CONFIG_MAPS}/{name}")).await
    };
    let plain = get(admin.clone(), "large").await;
    assert_eq!((plain.header("content-type"), plain.header("content-encoding")), ("application/json", ""));
    assert_eq!(plain.header("cache-control"), "no-cache, private");
    assert_eq!(plain.header("audit-id").len(), 36);
    let zipping = admin.clone().with_header("accept-encoding", "br, gzip");
    let zipped = get(zipping.clone(), "large").await;
    assert_eq!((zipped.header("content-encoding"), zipped.header("vary")), ("gzip", "Accept-Encoding"));
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&*zipped.body).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
    assert_eq!(get(zipping, "small").await.header("content-encoding"), "");
    let yaml = get(admin.clone().with_header("accept", "application/yaml"), "small").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(
        String::from_utf8_lossy(&yaml.body)
            .starts_with("apiVersion: v1\ndata:\n  key: \"1\"\nkind: ConfigMap\n")
    );
    let named = get(admin.clone().with_header("audit-id", "mine"), "small").await;
    assert_eq!(named.header("audit-id"), "mine");
    let small = get(admin.clone(), "small").await;
    for client in [admin.clone(), admin.http1()] {
        let head = client.send(Method::HEAD, &format!("{CONFIG_MAPS}/small"), "").await;
        let length = small.body.len().to_string();
        assert_eq!((head.code, head.body.len(), head.header("content-length")), (200, 0, length.as_str()));
    }
}

#[tokio::test]
async fn what_does_not_change_is_kept_by_clients() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let server = Running::start().await;
    let admin = server.admin();
    let kubectl = admin.clone().with_header("accept", AGGREGATED);
    for path in ["/api", "/apis"] {
        let first = kubectl.get(path).await;
        let etag = first.header("etag").to_owned();
        assert_eq!((first.code, etag.len()), (200, 130), "{path}");
        assert_eq!((first.header("vary"), first.header("cache-control")), ("Accept", "public"));
        let again = kubectl.clone().with_header("if-none-match", &etag).get(path).await;
        assert_eq!((again.code, again.body.len(), again.header("etag")), (304, 0, etag.as_str()));
        assert_eq!(kubectl.clone().with_header("if-none-match", "\"other\"").get(path).await.code, 200);
        // Who asks for less gets nothing to keep.
        assert_eq!(admin.get(path).await.header("etag"), "");
    }
    let index = admin.get("/openapi/v3").await;
    assert_eq!(index.header("cache-control"), "no-cache, private");
    let again = admin.clone().with_header("if-none-match", index.header("etag")).get("/openapi/v3").await;
    assert_eq!(again.code, 304);
    let url = index.json()["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let found = admin.get(&url).await;
    assert_eq!((found.code, found.header("cache-control")), (200, "public, immutable"));
    assert!(found.header("expires").ends_with(" GMT"), "{}", found.header("expires"));
    assert!(url.ends_with(&format!("?hash={}", found.header("etag").trim_matches('"'))));
    let moved = admin.get("/openapi/v3/api/v1?hash=OLD").await;
    assert_eq!((moved.code, moved.header("location")), (301, url.as_str()));
    assert_eq!(admin.get("/openapi/v3/api/v1").await.header("cache-control"), "no-cache, private");
}

#[tokio::test]
async fn slow_and_silent_connections_keep_nobody_else_from_being_served() {
    let server = Running::start().await;
    let client = server.anybody().http1();
    let mut idle = Vec::new();
    for _ in 0..150 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = client.connect().await;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\nX-Slow: ").await.unwrap();
        slow.push(stream);
    }
    assert_eq!(server.admin().get("/readyz").await.code, 200);
    // A head that never ends is cut off.
    let mut endless = client.connect().await;
    endless.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    let line = format!("X-More: {}\r\n", "x".repeat(1000));
    for _ in 0..200 {
        if endless.write_all(line.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(server.admin().get("/readyz").await.code, 200);
}

const SLOW: usize = 10_000;
/// The server has a thousand connections at a time, and gives each ten seconds for its handshake: these are ten rounds, and
/// half as many again for whoever the machine has no place for when one begins.
const ANSWERED_WITHIN: Duration = Duration::from_secs(150);
/// Who the machine took for connected and has no place for hears that within some minute: as much again.
const WAITED_OUT_WITHIN: Duration = Duration::from_secs(300);
/// As long as a connection for which the machine has a place waits for its turn: two rounds.
const TRY: Duration = Duration::from_secs(20);

/// Begins a handshake, and sees the server give it up. The machine turns connections away while too many wait.
async fn begin_slowly(address: SocketAddr, tried: Arc<Semaphore>) {
    tried.add_permits(1);
    let mut stream = loop {
        if let Ok(connected) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
            break connected.unwrap();
        }
    };
    // It may have been given up already.
    let _ = stream.write_all(b"\x16\x03\x01").await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
#[ignore = "takes as long as ten rounds of handshakes may, and thousands of files: make soak"]
async fn soak_ten_thousand_slow_connections_are_waited_out() {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    let server = Running::start().await;
    let tried = Arc::new(Semaphore::new(0));
    let slow = (0..SLOW).map(|_| begin_slowly(server.address, Arc::clone(&tried)));
    let mut slow: JoinSet<()> = slow.collect();
    let _all = tried.acquire_many(u32::try_from(SLOW).unwrap()).await.unwrap();
    let admin = async {
        loop {
            if let Ok(answer) = timeout(TRY, server.admin().get("/readyz")).await {
                break answer.code;
            }
        }
    };
    assert_eq!(timeout(ANSWERED_WITHIN, admin).await, Ok(200));
    let mut waited_out = 0;
    let ends = async {
        while let Some(ended) = slow.join_next().await {
            ended.unwrap();
            waited_out += 1;
        }
    };
    let ended = timeout(WAITED_OUT_WITHIN, ends).await;
    assert_eq!((ended, waited_out), (Ok(()), SLOW));
    assert_eq!(server.admin().get("/readyz").await.code, 200);
}

#[tokio::test]
async fn bad_requests_get_a_status_and_harm_nobody() {
    let server = Running::start().await;
    let admin = server.admin().with_header("content-type", "application/json");
    let unrecognized = |why: &str| {
        let unrecognized = "the object provided is unrecognized (must be of type ConfigMap)";
        (400, format!("{unrecognized}: couldn't get version/kind; json parse error: {why}"))
    };
    let struct_ = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let no_name =
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    let no_metadata = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into \
        Go struct field ConfigMap.metadata of type v1.ObjectMeta";
    let no_object = format!("json: cannot unmarshal array into Go value of type {struct_} (5b5d)");
    for (body, expected) in [
        ("{", unrecognized("unexpected end of JSON input ({)")),
        ("[]", unrecognized(&no_object)),
        ("\"", unrecognized("unexpected end of JSON input (22)")),
        ("\u{0}", unrecognized("invalid character '\\x00' looking for beginning of value (00)")),
        ("null", (422, no_name.to_owned())),
        (r#"{"metadata":5}"#, (400, no_metadata.to_owned())),
        (&"[".repeat(100_000), unrecognized(&format!("exceeded max depth ({} ...)", "5b".repeat(30)))),
    ] {
        let answer = admin.send(Method::POST, CONFIG_MAPS, body.to_owned()).await;
        let status = answer.json();
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.code, message), expected);
        assert_eq!(status["kind"], json!("Status"));
    }
    for path in
        ["/api/v1/%00", "/%ff", "/apis/../x", "/api/v1/namespaces/default/configmaps?limit=x&continue=%"]
    {
        let answer = admin.clone().http1().get(path).await;
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.code);
    }
    let mut raw = server.anybody().http1().connect().await;
    raw.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = raw.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 400"));
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let _ = plain.read_to_end(&mut answer).await;
    assert_eq!(server.admin().get("/readyz").await.code, 200);
}
