use std::time::Duration;

use crablet_api::core::ConfigMap;
use crablet_client::{Body, Client, Lane, Requests};
use crablet_metrics::Registry;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as flag;

use crate::server::{Manner, Server};
use crate::{get, https, next_line, watch};

#[tokio::test]
async fn requests_and_watches_share_a_connection_and_heartbeats_have_one_of_their_own() {
    let server = Server::start(Manner::default()).await;
    let https = https(&server.kubeconfig());
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(watch(&https).await);
    }
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    assert_eq!(get(&https, "/b", Lane::Heartbeat).await.unwrap(), "/b 2 nobody");
    assert_eq!(get(&https, "/c", Lane::Heartbeat).await.unwrap(), "/c 2 nobody");
    server.tell(5);
    for watch in &mut watches {
        assert_eq!(next_line(watch).await, "5\n");
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_name_is_asked_for_when_a_connection_is_made_and_that_is_timed() {
    let server = Server::start(Manner::default()).await;
    let by_address = https(&server.kubeconfig());
    let mut config = server.kubeconfig();
    // Whoever listens there: nothing but the way to it matters.
    config.cluster.server = format!("https://localhost:{}", server.address.port());
    let by_name = https(&config);
    let registry = Registry::new();
    let requests = Requests::register(&registry).unwrap();
    for https in [by_address, by_name] {
        https.counted_in(&requests);
        let _ = get(&https, "/a", Lane::Common).await;
    }
    let text = registry.render();
    let counts =
        text.lines().filter(|line| line.starts_with("rest_client_dns_resolution_duration_seconds_count"));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [r#"rest_client_dns_resolution_duration_seconds_count{host="localhost"} 1"#]
    );
}

#[tokio::test]
async fn a_further_connection_is_made_when_a_server_takes_no_more_on_one() {
    let server = Server::start(Manner { most_streams: 5, ..Manner::default() }).await;
    let https = https(&server.kubeconfig());
    get(&https, "/settled", Lane::Common).await.unwrap();
    let mut watches: Vec<Body> = Vec::new();
    for _ in 0..12 {
        watches.push(watch(&https).await);
    }
    assert_eq!(server.connections(), 3);
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 3 nobody");
    server.tell(1);
    for watch in &mut watches {
        assert_eq!(next_line(watch).await, "1\n");
    }
    // Places that are free again are used again.
    watches.truncate(4);
    assert_eq!(get(&https, "/b", Lane::Common).await.unwrap(), "/b 1 nobody");
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn many_who_come_at_once_make_one_connection() {
    let server = Server::start(Manner::default()).await;
    let https = https(&server.kubeconfig());
    let asking = (0..50).map(|_| get(&https, "/a", Lane::Common));
    let answers = futures_util::future::join_all(asking).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == "/a 1 nobody"));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_server_of_http_1_gets_a_connection_for_each_request_under_way() {
    for manner in [
        Manner { protocols: &["http/1.1"], ..Manner::default() },
        Manner { protocols: &[], ..Manner::default() },
        Manner { tls: false, ..Manner::default() },
    ] {
        let plain = !manner.tls;
        let server = Server::start(manner).await;
        let mut config = server.kubeconfig();
        if plain {
            config.cluster.server = server.address.to_string();
            config.cluster.certificate_authority = None;
        }
        let https = https(&config);
        assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
        assert_eq!(get(&https, "/b", Lane::Common).await.unwrap(), "/b 1 nobody");
        let mut watching = watch(&https).await;
        assert_eq!(get(&https, "/c", Lane::Common).await.unwrap(), "/c 2 nobody");
        assert_eq!(get(&https, "/d", Lane::Common).await.unwrap(), "/d 2 nobody");
        server.tell(1);
        assert_eq!(next_line(&mut watching).await, "1\n");
    }
}

#[tokio::test]
async fn a_path_prefix_of_the_server_is_kept() {
    let server = Server::start(Manner::default()).await;
    let mut config = server.kubeconfig();
    config.cluster.server.push_str("/k8s/clusters/c-1/");
    assert_eq!(get(&https(&config), "/a", Lane::Common).await.unwrap(), "/k8s/clusters/c-1/a 1 nobody");
}

#[tokio::test]
async fn a_server_that_lets_go_of_a_connection_finishes_what_is_under_way_and_gets_a_new_one() {
    let server = Server::start(Manner::default()).await;
    let https = https(&server.kubeconfig());
    let mut watching = watch(&https).await;
    server.shut_connections_down();
    // What is sent before the word has come here is answered too.
    while get(&https, "/a", Lane::Common).await.unwrap() != "/a 2 nobody" {}
    server.tell(9);
    assert_eq!(next_line(&mut watching).await, "9\n");
}

#[tokio::test]
async fn a_connection_on_which_somebody_waited_in_vain_gets_no_more_requests() {
    let server = Server::start(Manner::default()).await;
    let https = https(&server.kubeconfig());
    let mut watching = watch(&https).await;
    let hangs = || get(&https, "/hang", Lane::Common);
    assert!(tokio::time::timeout(Duration::from_millis(50), hangs()).await.is_err());
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody", "it was not waited for long");
    tokio::time::pause();
    assert!(tokio::time::timeout(Duration::from_secs(6), hangs()).await.is_err());
    tokio::time::resume();
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 2 nobody");
    server.tell(3);
    assert_eq!(next_line(&mut watching).await, "3\n");
}

#[tokio::test]
async fn who_is_told_to_wait_is_told_for_how_long() {
    let server = Server::start(Manner::default()).await;
    let busy = std::sync::Arc::new(Busy(https(&server.kubeconfig())));
    // Who has more time than that waits.
    let client = Client::new(busy, "test").within(Duration::from_secs(5));
    let error = client.get::<ConfigMap>("default", "a").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert!(error.is_passing());
    assert_eq!(error.to_string(), "the server answers 429 Too Many Requests");
}

/// A transport that asks for what the server is too busy for.
struct Busy(crablet_client::Https);

#[async_trait::async_trait]
impl crablet_client::Transport for Busy {
    async fn send(
        &self,
        mut request: http::Request<hyper::body::Bytes>,
        lane: Lane,
    ) -> Result<http::Response<Body>, crablet_client::TransportError> {
        *request.uri_mut() = "/busy".parse().unwrap();
        self.0.send(request, lane).await
    }
}

/// Passes bytes on to a server, until it is told to pass on nothing more though all stays open.
async fn wire(to: std::net::SocketAddr, is_cut: flag::Receiver<bool>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (ours, _) = listener.accept().await.unwrap();
            // Who comes after the cut gets through.
            let cut = match *is_cut.borrow() {
                true => None,
                false => Some(is_cut.clone()),
            };
            let theirs = TcpStream::connect(to).await.unwrap();
            let (mut our_read, mut our_write) = ours.into_split();
            let (mut their_read, mut their_write) = theirs.into_split();
            let other = cut.clone();
            tokio::spawn(async move { pass_on(&mut our_read, &mut their_write, cut).await });
            tokio::spawn(async move { pass_on(&mut their_read, &mut our_write, other).await });
        }
    });
    address
}

async fn pass_on(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    cut: Option<flag::Receiver<bool>>,
) {
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        if cut.as_ref().is_some_and(|cut| *cut.borrow()) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_dead_connection_is_found_and_replaced() {
    let server = Server::start(Manner::default()).await;
    let (cut, is_cut) = flag::channel(false);
    let mut config = server.kubeconfig();
    config.cluster.server = format!("https://{}", wire(server.address, is_cut).await);
    let https = https(&config);
    let mut watching = watch(&https).await;
    cut.send_replace(true);
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    watching.next().await.unwrap().unwrap_err();
    let after = began.elapsed();
    assert!(after > Duration::from_secs(40) && after < Duration::from_secs(50), "{after:?}");
    tokio::time::resume();
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 2 nobody");
}

#[tokio::test]
async fn a_server_that_is_away_is_named_and_all_who_wait_are_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = Server::start(Manner::default()).await;
    let mut config = server.kubeconfig();
    config.cluster.server = format!("https://{address}");
    let error = get(&https(&config), "/a", Lane::Common).await.unwrap_err();
    let expected = format!("cannot connect to {address}: Connection refused (os error 111)");
    assert_eq!(error.to_string(), expected);
}
