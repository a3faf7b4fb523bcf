//! Serving connections, within bounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::access::Shown;

/// Serves `router` on `listener` until `shutdown` completes, then lets requests that are under way finish for up
/// to five seconds.
///
/// At most 256 connections are open at a time; who comes after waits to be accepted. A connection that sends no
/// request for half a minute is closed, and so is one after five minutes, when its current request is answered:
/// clients open a new one.
pub async fn serve<L: Listener>(listener: L, router: Router, shutdown: impl Future<Output = ()>) {
    let serve = |stream, router, place| plain_connection(LIMITS, TokioIo::new(stream), router, place);
    serve_within(LIMITS, listener, router, shutdown, serve).await;
}

/// The same over TLS, in HTTP/2 or HTTP/1.1, as the client likes. Answers may have no end: a log that is followed. What the
/// client shows of itself goes with each of its requests.
pub async fn serve_tls(
    listener: TcpListener,
    config: ServerConfig,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serve = move |stream, router, place| tls_connection(stream, acceptor.clone(), router, place);
    serve_within(TLS_LIMITS, listener, router, shutdown, serve).await;
}

const LIMITS: Limits = Limits {
    connections: 256,
    header: Duration::from_secs(30),
    lifetime: Duration::from_secs(300),
    drain: Duration::from_secs(5),
};

/// As upstream, but that it takes any number of connections.
const TLS_LIMITS: Limits = Limits {
    connections: 4096,
    header: Duration::from_secs(90),
    lifetime: Duration::from_secs(4 * 60 * 60),
    drain: Duration::from_secs(5),
};
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
const LARGEST_HEAD: usize = 64 << 10;
const MOST_STREAMS: u32 = 250;

#[derive(Clone, Copy)]
struct Limits {
    connections: usize,
    /// From when a request can be sent until its header is there. For a kept-alive connection, its idle time.
    header: Duration,
    lifetime: Duration,
    drain: Duration,
}

/// A connection's place among those that may be open, and when it is to end.
struct Place {
    stopping: CancellationToken,
    _permit: Option<OwnedSemaphorePermit>,
}

async fn serve_within<L: Listener, F: Future<Output = ()> + Send + 'static>(
    limits: Limits,
    mut listener: L,
    router: Router,
    shutdown: impl Future<Output = ()>,
    serve: impl Fn(L::Io, Router, Place) -> F,
) {
    let stopping = CancellationToken::new();
    // Connections end as well if whoever called this stops polling it.
    let _stop_on_drop = stopping.clone().drop_guard();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let permit = places.clone().acquire_owned().await.ok();
            let (stream, _) = listener.accept().await;
            (permit, stream)
        };
        let (permit, stream) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            next = next => next,
        };
        let place = Place { stopping: stopping.clone(), _permit: permit };
        connections.spawn(serve(stream, router.clone(), place));
    }
    drop(listener);
    stopping.cancel();
    connections.close();
    // Each connection gives up by itself; the second more is for one that blocks its thread.
    if timeout(limits.drain + Duration::from_secs(1), connections.wait()).await.is_err() {
        warn!(connections = connections.len(), "Left connections behind that did not end");
    }
}

async fn plain_connection<S>(limits: Limits, stream: TokioIo<S>, router: Router, place: Place)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header)
            .serve_connection(stream, TowerToHyperService::new(router))
    );
    tokio::select! {
        biased;
        () = ending(limits, &place) => {}
        ended = connection.as_mut() => return tell_end(ended),
    }
    connection.as_mut().graceful_shutdown();
    if timeout(limits.drain, connection).await.is_err() {
        debug!("Closed a connection whose request took too long");
    }
}

async fn tls_connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router, place: Place) {
    // Answers are small, and nobody wants to wait for more of them.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE_WITHIN, acceptor.accept(stream));
    let stream = match place.stopping.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            debug!(err = %error, "A TLS handshake failed");
            return;
        }
        Some(Err(_)) | None => return,
    };
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let shown = session.peer_certificates().unwrap_or_default();
    let shown = Shown(shown.iter().map(|certificate| certificate.clone().into_owned()).collect());
    let (service, io) = (OfClient { router: TowerToHyperService::new(router), shown }, TokioIo::new(stream));
    // Two kinds of connections, which have no trait in common.
    macro_rules! serve {
        ($connection:expr) => {{
            let mut connection = pin!($connection);
            tokio::select! {
                biased;
                () = ending(TLS_LIMITS, &place) => {}
                ended = connection.as_mut() => return tell_end(ended),
            }
            connection.as_mut().graceful_shutdown();
            if timeout(TLS_LIMITS.drain, connection).await.is_err() {
                debug!("Closed a connection whose request took too long");
            }
        }};
    }
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let builder = builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15))
            .max_send_buf_size(128 << 10);
        serve!(builder.serve_connection(io, service));
    } else {
        let mut builder = http1::Builder::new();
        let builder = builder
            .timer(TokioTimer::new())
            .header_read_timeout(TLS_LIMITS.header)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(128 << 10);
        serve!(builder.serve_connection(io, service).with_upgrades());
    }
}

/// Waits until a connection is to end after its current request.
async fn ending(limits: Limits, place: &Place) {
    tokio::select! {
        () = place.stopping.cancelled() => {}
        () = sleep(limits.lifetime) => {}
    }
}

fn tell_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        debug!(err = %crablet_logging::ErrorChain(&error), "Connection ended early");
    }
}

/// Requests of a client go with what it has shown of itself.
struct OfClient {
    router: TowerToHyperService<Router>,
    shown: Shown,
}

impl Service<Request<Incoming>> for OfClient {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.shown.clone());
        self.router.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

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
        let limits =
            Limits { lifetime: Duration::from_millis(100), header: Duration::from_secs(60), ..QUICK };
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
}
