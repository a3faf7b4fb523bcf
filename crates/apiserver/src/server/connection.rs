//! Connections: TLS, then HTTP/2 or HTTP/1.1 as the client wants. Each of them costs little until it has said who it
//! is, and there are only so many at a time: the next one waits until one of them ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crablet_host::keep_alive::keep_alive;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::api::Api;
use super::respond;
use super::write_timeout::WriteTimeout;
use crate::authentication::{CertificateRefused, CertifiedUser};

const MOST_CONNECTIONS: usize = 1_000;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of a request, as upstream.
const HEAD_WITHIN: Duration = Duration::from_secs(32);
/// A command stands in the path. Upstream takes a megabyte; a path of more than 65,534 bytes `http` does not take.
const LARGEST_HEAD: usize = 128 << 10;
const MOST_STREAMS: u32 = 250;
/// How long a connection without requests is kept, as upstream.
const IDLE: Duration = Duration::from_secs(90);
/// How long a client may take nothing of what it is sent.
const TAKES_WITHIN: Duration = Duration::from_secs(60);
/// When the process has no more files, another try at once would be in vain.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What a connection knows of its client.
pub(super) struct Connection {
    pub(super) certified: Result<Option<CertifiedUser>, CertificateRefused>,
    active: AtomicUsize,
    served: AtomicU64,
    /// Ends the connection when its requests are answered.
    pub(super) close: CancellationToken,
    /// The server stops.
    pub(super) stop: CancellationToken,
}

impl Connection {
    /// Waits until there was no request for a while.
    async fn idle(&self) {
        loop {
            let before = self.served.load(Ordering::Relaxed);
            tokio::time::sleep(IDLE).await;
            let is_idle = self.active.load(Ordering::Relaxed) == 0;
            if is_idle && self.served.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

/// Takes connections until told to stop.
pub(super) async fn accept(
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    api: &Arc<Api>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let Some((place, accepted)) = stop.run_until_cancelled(accepted).await else { return };
        match accepted {
            Ok((stream, _)) => {
                let (acceptor, api, stop) = (acceptor.clone(), Arc::clone(api), stop.clone());
                tasks.spawn(async move {
                    serve(stream, acceptor, api, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(err = %error, "Cannot accept a connection");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, api: Arc<Api>, stop: CancellationToken) {
    // Answers are small, and nobody wants to wait for more of them.
    let _ = stream.set_nodelay(true);
    // Who watches says nothing, and would not be missed.
    if let Err(error) = keep_alive(&stream) {
        debug!(err = %error, "A connection cannot be kept alive");
    }
    let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream));
    let stream = match stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            debug!(err = %error, "A TLS handshake failed");
            return;
        }
        Some(Err(_)) | None => return,
    };
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let chain = session.peer_certificates().unwrap_or_default();
    let certified = api.certificates.user(chain, api.clock().now());
    if let Err(error) = &certified {
        info!(err = %error, "A client showed a certificate that is not ours");
    }
    let connection = Arc::new(Connection {
        certified,
        active: AtomicUsize::new(0),
        served: AtomicU64::new(0),
        close: CancellationToken::new(),
        stop: stop.clone(),
    });
    let service = service_fn({
        let connection = Arc::clone(&connection);
        move |request| {
            let (connection, api) = (Arc::clone(&connection), Arc::clone(&api));
            async move {
                let _active = Active::of(&connection);
                Ok::<_, Infallible>(respond::respond(&api, &connection, request).await)
            }
        }
    });
    let io = TokioIo::new(WriteTimeout::new(stream, TAKES_WITHIN));
    let served = if is_http2 {
        let served = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15))
            .max_send_buf_size(128 << 10)
            .serve_connection(io, service);
        let mut served = std::pin::pin!(served);
        tokio::select! {
            served = served.as_mut() => served,
            () = connection.wants_to_end() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        }
    } else {
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_header_size(LARGEST_HEAD)
            .max_buf_size(LARGEST_HEAD)
            .serve_connection(io, service)
            .with_upgrades();
        let mut served = std::pin::pin!(served);
        tokio::select! {
            served = served.as_mut() => served,
            () = connection.wants_to_end() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        }
    };
    if let Err(error) = served {
        debug!(err = %error, "A connection ended badly");
    }
}

impl Connection {
    async fn wants_to_end(&self) {
        tokio::select! {
            () = self.close.cancelled() => {}
            () = self.stop.cancelled() => {}
            () = self.idle() => {}
        }
    }
}

/// A request that is being answered.
struct Active<'c>(&'c Connection);

impl Active<'_> {
    fn of(connection: &Connection) -> Active<'_> {
        connection.active.fetch_add(1, Ordering::Relaxed);
        connection.served.fetch_add(1, Ordering::Relaxed);
        Active(connection)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
