//! Connections end when they should, and not before.

use super::*;
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2 as http2_client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const QUICK: Limits = Limits {
    connections: 1,
    header: Duration::from_millis(200),
    lifetime: Duration::from_secs(60),
    drain: Duration::from_millis(200),
};

struct Running {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    done: JoinHandle<()>,
    entered: Arc<Notify>,
    release: Arc<Notify>,
}

/// Serves `/quick`, and `/slow`, which tells that it was entered and answers when released.
async fn run(limits: Limits) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, entered, release) =
        (CancellationToken::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (entered.clone(), release.clone());
    let slow = move || async move {
        tell.notify_one();
        wait.notified().await;
        "slow"
    };
    let router = Router::new().route("/quick", get(|| async { "quick" })).route("/slow", get(slow));
    let shutdown = stop.clone().cancelled_owned();
    let done =
        tokio::spawn(serve_within(limits, listener, router, shutdown, move |stream, router, place| {
            plain_connection(limits, TokioIo::new(stream), router, place)
        }));
    Running { address, stop, done, entered, release }
}

async fn send(address: std::net::SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_request_under_way_is_answered_after_shutdown_began() {
    let running = run(Limits { drain: Duration::from_secs(60), ..QUICK }).await;
    let stream = send(running.address, "/slow").await;
    running.entered.notified().await;
    running.stop.cancel();
    running.release.notify_one();
    assert!(read_to_end(stream).await.ends_with("\r\n\r\nslow"));
    running.done.await.unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_up_the_shutdown() {
    let running = run(QUICK).await;
    let stream = send(running.address, "/slow").await;
    running.entered.notified().await;
    running.stop.cancel();
    running.done.await.unwrap();
    assert_eq!(read_to_end(stream).await, "");
}

#[tokio::test]
async fn an_idle_connection_ends_at_shutdown_without_delay() {
    let running =
        run(Limits { header: Duration::from_secs(60), drain: Duration::from_secs(60), ..QUICK }).await;
    let mut stream = send(running.address, "/quick").await;
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    running.stop.cancel();
    running.done.await.unwrap();
    assert!(read_to_end(stream).await.ends_with("quick"));
}

#[tokio::test]
async fn who_sends_no_request_is_disconnected_and_makes_room() {
    let running = run(QUICK).await;
    let silent = TcpStream::connect(running.address).await.unwrap();
    // The only place is taken, so this one is answered once the silent one is gone.
    let next = send(running.address, "/quick").await;
    assert_eq!(read_to_end(silent).await, "");
    // Kept alive, it is idle after its answer and closed for that.
    assert!(read_to_end(next).await.ends_with("quick"));
}

#[tokio::test]
async fn a_connection_does_not_live_forever() {
    let limits = Limits { lifetime: Duration::from_millis(100), header: Duration::from_secs(60), ..QUICK };
    let running = run(limits).await;
    let silent = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(read_to_end(silent).await, "");
}

#[tokio::test]
async fn connections_end_when_the_server_is_dropped() {
    let running = run(Limits { header: Duration::from_secs(60), ..QUICK }).await;
    let stream = send(running.address, "/slow").await;
    running.entered.notified().await;
    running.done.abort();
    assert_eq!(read_to_end(stream).await, "");
}

/// A client of HTTP/2, and the end of its connection to a server of these limits.
async fn http2(limits: Limits, router: Router) -> (http2_client::SendRequest<Body>, JoinHandle<Duration>) {
    let (client, server) = tokio::io::duplex(1 << 16);
    let place = Place { stopping: CancellationToken::new(), _permit: None };
    tokio::spawn(http_connection(limits, TokioIo::new(server), true, Shown::default(), router, place));
    let (sender, connection) =
        http2_client::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    let began = Instant::now();
    let ended = tokio::spawn(async move {
        // How it ends is not the point.
        let _ = connection.await;
        began.elapsed()
    });
    (sender, ended)
}

fn get_of(path: &str) -> Request<Body> {
    Request::get(format!("http://node{path}")).body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_answers_pings_and_asks_nothing_makes_room() {
    let (_sender, ended) = http2(TLS_LIMITS, Router::new()).await;
    let after = ended.await.unwrap();
    assert!(after >= TLS_LIMITS.header && after < 2 * TLS_LIMITS.header, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_begun_late_on_an_old_connection_goes_on() {
    let (text, rest) = tokio::sync::mpsc::channel::<Result<&'static str, std::io::Error>>(1);
    let rest = Arc::new(std::sync::Mutex::new(Some(rest)));
    let follow = get(move || async move {
        let rest = rest.lock().unwrap().take().unwrap();
        Body::from_stream(futures_util::stream::unfold(rest, async |mut rest| {
            Some((rest.recv().await?, rest))
        }))
    });
    let router = Router::new().route("/follow", follow).route("/quick", get(|| async { "quick" }));
    let (mut sender, ended) = http2(TLS_LIMITS, router).await;
    let began = Instant::now();
    while began.elapsed() < TLS_LIMITS.lifetime - Duration::from_secs(60) {
        let quick = sender.send_request(get_of("/quick")).await.unwrap();
        assert_eq!(quick.into_body().collect().await.unwrap().to_bytes(), "quick");
        sleep(Duration::from_secs(50)).await;
    }
    let mut followed = sender.send_request(get_of("/follow")).await.unwrap().into_body();
    for _ in 0..5 {
        sleep(Duration::from_secs(50)).await;
        text.send(Ok("line")).await.unwrap();
        assert_eq!(followed.frame().await.unwrap().unwrap().into_data().unwrap(), "line");
    }
    assert!(began.elapsed() > TLS_LIMITS.lifetime + 2 * TLS_LIMITS.drain);
    assert!(!ended.is_finished());
    drop(text);
    assert_eq!(followed.collect().await.unwrap().to_bytes(), "");
    ended.await.unwrap();
}

/// Whether the server asks by itself whether the client of this connection is there: by the timer that the kernel tells.
fn is_kept_alive(client: &TcpStream) -> bool {
    let (near, far) = (client.peer_addr().unwrap().port(), client.local_addr().unwrap().port());
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_it = |fields: &Vec<&str>| {
        fields[1].ends_with(&format!(":{near:04X}")) && fields[2].ends_with(&format!(":{far:04X}"))
    };
    let mut lines = sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(is_it).is_some_and(|fields| fields[5].starts_with("02:"))
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
    tokio::spawn(serve_tls(listener, config, Router::new(), std::future::pending()));
    let client = TcpStream::connect(address).await.unwrap();
    let kept = async {
        while !is_kept_alive(&client) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), kept).await.expect("the server's socket asks for signs of life");
}

/// What a server says to a request of one path with headers of this size together.
async fn asked(target: &str, headers: usize) -> String {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let router = Router::new().route("/quick", get(|| async { "quick" }));
    let place = Place { stopping: CancellationToken::new(), _permit: None };
    tokio::spawn(http_connection(QUICK, TokioIo::new(server), false, Shown::default(), router, place));
    let headers: String = (0..headers / 1000).map(|at| format!("X-{at}: {}\r\n", "x".repeat(990))).collect();
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_command_may_be_long_and_not_longer_than_that() {
    let long = format!("/quick?command={}", "x".repeat(65_000));
    let answer = asked(&long, 30_000).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("quick"), "{answer}");
    let answer = asked("/quick", 90_000).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = asked(&long, 99_000).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let too_long = format!("/quick?command={}", "x".repeat(66_000));
    let answer = asked(&too_long, 0).await;
    assert!(answer.starts_with("HTTP/1.1 414 "), "{answer}");
}
