//! Serving connections, within bounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Serves `router` on `listener` until `shutdown` completes, then lets requests that are under way finish for up
/// to five seconds.
///
/// At most 256 connections are open at a time; who comes after waits to be accepted. A connection that sends no
/// request for half a minute is closed, and so is one after five minutes, when its current request is answered:
/// clients open a new one.
pub async fn serve<L: Listener>(listener: L, router: Router, shutdown: impl Future<Output = ()>) {
    serve_within(LIMITS, listener, router, shutdown).await;
}

const LIMITS: Limits = Limits {
    connections: 256,
    header: Duration::from_secs(30),
    lifetime: Duration::from_secs(300),
    drain: Duration::from_secs(5),
};

#[derive(Clone, Copy)]
struct Limits {
    connections: usize,
    /// From when a request can be sent until its header is there. For a kept-alive connection, its idle time.
    header: Duration,
    lifetime: Duration,
    drain: Duration,
}

async fn serve_within<L: Listener>(
    limits: Limits,
    mut listener: L,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let stopping = CancellationToken::new();
    // Connections end as well if whoever called this stops polling it.
    let _stop_on_drop = stopping.clone().drop_guard();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.ok();
            let (stream, _) = listener.accept().await;
            (place, stream)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            next = next => next,
        };
        connections.spawn(connection(limits, TokioIo::new(stream), router.clone(), stopping.clone(), place));
    }
    drop(listener);
    stopping.cancel();
    connections.close();
    // Each connection gives up by itself; the second more is for one that blocks its thread.
    if timeout(limits.drain + Duration::from_secs(1), connections.wait()).await.is_err() {
        warn!(connections = connections.len(), "Left connections behind that did not end");
    }
}

async fn connection<S>(
    limits: Limits,
    stream: TokioIo<S>,
    router: Router,
    stopping: CancellationToken,
    _place: Option<OwnedSemaphorePermit>,
) where
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
        () = stopping.cancelled() => {}
        () = sleep(limits.lifetime) => {}
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                debug!(err = %crablet_logging::ErrorChain(&error), "Connection ended early");
            }
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    if timeout(limits.drain, connection).await.is_err() {
        debug!("Closed a connection whose request took too long");
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
        let done = tokio::spawn(serve_within(limits, listener, router, shutdown));
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
