//! Serving connections, within bounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::serve::Listener;
use crablet_host::keep_alive::keep_alive;
use futures_util::future::BoxFuture;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::access::Shown;
use crate::respond::until_end;

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

/// The same over TLS, in HTTP/2 or HTTP/1.1, as the client likes, with other limits: a node that is upgraded is not to be
/// away for long. Answers may have no end: a log that is followed. What the client shows of itself goes with each of its
/// requests.
pub async fn serve_tls(
    listener: TcpListener,
    config: ServerConfig,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serve =
        move |stream, router, place| tls_connection(TLS_LIMITS, stream, acceptor.clone(), router, place);
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
    drain: Duration::from_secs(2),
};
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// A command stands in the path. Upstream takes a megabyte; a path of more than 65,534 bytes `http` does not take.
const LARGEST_HEAD: usize = 128 << 10;
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

async fn tls_connection(
    limits: Limits,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    place: Place,
) {
    // Answers are small, and nobody wants to wait for more of them.
    let _ = stream.set_nodelay(true);
    // A stream without a byte would not learn that its client is gone.
    if let Err(error) = keep_alive(&stream) {
        debug!(err = %error, "A connection cannot be kept alive");
    }
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
    http_connection(limits, TokioIo::new(stream), is_http2, shown, router, place).await;
}

async fn http_connection<S>(
    limits: Limits,
    io: TokioIo<S>,
    is_http2: bool,
    shown: Shown,
    router: Router,
    place: Place,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (under_way, mut requests) = watch::channel(0);
    let service = OfClient { router: TowerToHyperService::new(router), shown, under_way };
    // Two kinds of connections, which have no trait in common.
    macro_rules! serve {
        ($connection:expr) => {{
            let mut connection = pin!($connection);
            tokio::select! {
                biased;
                () = ending(limits, &place) => {}
                () = idle(limits, &mut requests) => {}
                ended = connection.as_mut() => return tell_end(ended),
            }
            connection.as_mut().graceful_shutdown();
            // What was begun late on an old connection, such as a log that is followed, goes on to its own end.
            let rest = async {
                if !place.stopping.is_cancelled() {
                    ending(limits, &place).await;
                }
                sleep(limits.drain).await;
            };
            tokio::select! {
                ended = connection => tell_end(ended),
                () = rest => debug!("Closed a connection whose request took too long"),
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
            .header_read_timeout(limits.header)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(LARGEST_HEAD);
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

/// Waits until nothing was asked on a connection for a while. A client that only answers pings takes a place of others.
async fn idle(limits: Limits, requests: &mut watch::Receiver<usize>) {
    loop {
        if requests.wait_for(|under_way| *under_way == 0).await.is_err() {
            return std::future::pending().await;
        }
        match timeout(limits.header, requests.changed()).await {
            Ok(Ok(())) => {}
            // Whoever counts them is gone, and the connection with it.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
    }
}

fn tell_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        debug!(err = %crablet_logging::ErrorChain(&error), "Connection ended early");
    }
}

/// Requests of a client go with what it has shown of itself, and are counted for as long as they last.
struct OfClient {
    router: TowerToHyperService<Router>,
    shown: Shown,
    under_way: watch::Sender<usize>,
}

impl Service<Request<Incoming>> for OfClient {
    type Response = Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = BoxFuture<'static, Result<Response, Self::Error>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.shown.clone());
        let counted = Counted::new(self.under_way.clone());
        let answer = self.router.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| until_end(body, counted)))
        })
    }
}

/// A request that is under way.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(under_way: watch::Sender<usize>) -> Counted {
        under_way.send_modify(|count| *count += 1);
        Counted(under_way)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
