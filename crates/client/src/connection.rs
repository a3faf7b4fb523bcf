//! A connection to a server, and places on it.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{Request, Response, Uri, Version, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tracing::debug;

use crate::gathered::Gathered;
use crate::transport::{Body, TransportError};

/// A server that said nothing for so long is asked whether it is there, and how long it may take to answer, as client-go.
const PINGS_AFTER: Duration = Duration::from_secs(30);
const ANSWERS_PINGS_WITHIN: Duration = Duration::from_secs(15);
/// How much a server may send of a body that nobody reads.
const STREAM_WINDOW: u32 = 256 << 10;
/// So much that bodies that nobody reads do not hold up the others.
const CONNECTION_WINDOW: u32 = 64 << 20;
/// How many requests are sent at most on one connection, though a server may allow more.
const MOST_STREAMS: usize = 1000;
/// Who gives up after so long has waited in vain; who does so sooner has changed their mind.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// Bytes in both directions.
pub(crate) trait Bytestream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytestream for S {}

type Http2Io = TokioIo<Gathered<Box<dyn Bytestream>>>;
type Http2Driver = http2::Connection<Http2Io, Full<Bytes>, TokioExecutor>;

pub(crate) struct Connection {
    sender: Sender,
    /// Of the certificates that it was made with.
    pub(crate) generation: u64,
    in_use: AtomicUsize,
    /// Whether somebody gave up waiting for an answer, and there was none since.
    doubtful: AtomicBool,
}

enum Sender {
    Http1(tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>),
    Http2 {
        sender: http2::SendRequest<Full<Bytes>>,
        /// Knows how many requests the server takes at a time. Nothing when the connection is over: what is queued with
        /// it has to go too.
        driver: Arc<Mutex<Option<Http2Driver>>>,
    },
}

impl Connection {
    /// Begins to speak HTTP on a stream that is there.
    pub(crate) async fn begin(
        stream: Box<dyn Bytestream>,
        is_http2: bool,
        generation: u64,
    ) -> Result<Connection, hyper::Error> {
        let sender = match is_http2 {
            true => {
                let (sender, driver) = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .keep_alive_interval(PINGS_AFTER)
                    .keep_alive_timeout(ANSWERS_PINGS_WITHIN)
                    .keep_alive_while_idle(true)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .handshake(TokioIo::new(Gathered::new(stream)))
                    .await?;
                let driver = Arc::new(Mutex::new(Some(driver)));
                tokio::spawn(drive(Arc::clone(&driver)));
                Sender::Http2 { sender, driver }
            }
            false => {
                let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
                // It ends with the sender; what goes wrong is told to who sends.
                tokio::spawn(driver);
                Sender::Http1(tokio::sync::Mutex::new(sender))
            }
        };
        Ok(Connection { sender, generation, in_use: AtomicUsize::new(0), doubtful: AtomicBool::new(false) })
    }

    pub(crate) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.try_lock().map_or(true, |sender| !sender.is_closed()),
            Sender::Http2 { sender, .. } => !sender.is_closed(),
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// A place for a request, if there is one. Who asks at the same time may get one too many: one asks at a time.
    pub(crate) fn place(self: &Arc<Connection>) -> Option<Place> {
        let has_place = !self.is_doubtful() && self.in_use.load(Ordering::Relaxed) < self.places();
        has_place.then(|| {
            self.in_use.fetch_add(1, Ordering::Relaxed);
            Place { connection: Arc::clone(self), waits_since: None }
        })
    }

    fn places(&self) -> usize {
        match &self.sender {
            Sender::Http1(_) => 1,
            Sender::Http2 { driver, .. } => {
                let driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
                driver.as_ref().map_or(0, Http2Driver::current_max_send_streams).min(MOST_STREAMS)
            }
        }
    }
}

/// Lets a connection work until nobody uses it any more.
async fn drive(driver: Arc<Mutex<Option<Http2Driver>>>) {
    let end = poll_fn(|context| {
        let mut held = driver.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(driver) = held.as_mut() else { return Poll::Ready(Ok(())) };
        let end = Pin::new(driver).poll(context);
        if end.is_ready() {
            *held = None;
        }
        end
    });
    if let Err(error) = end.await {
        debug!(err = %Chain(&error), "A connection to the API server is over");
    }
}

/// A request's place on a connection. It is free again when this is dropped.
pub(crate) struct Place {
    connection: Arc<Connection>,
    /// Since when an answer is waited for, if one is.
    waits_since: Option<Instant>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.waits_since.is_some_and(|since| since.elapsed() >= LONG_WAIT) {
            self.connection.doubtful.store(true, Ordering::Relaxed);
        }
        self.connection.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there is no answer.
pub(crate) enum SendError {
    /// The server has certainly not acted on the request.
    Unsent(TransportError),
    Failed(TransportError),
}

impl Place {
    /// Sends a request to an URL.
    pub(crate) async fn send(
        mut self,
        request: Request<Bytes>,
        url: Uri,
    ) -> Result<Response<Body>, SendError> {
        let mut request = request.map(Full::new);
        self.waits_since = Some(Instant::now());
        let sent = match &self.connection.sender {
            Sender::Http1(sender) => {
                to_http1(&mut request, url);
                let mut sender = sender.lock().await;
                match sender.ready().await {
                    Ok(()) => sender.try_send_request(request).await,
                    Err(error) => {
                        self.waits_since = None;
                        return Err(SendError::Unsent(TransportError::new(Chain(&error).to_string())));
                    }
                }
            }
            Sender::Http2 { sender, .. } => {
                *request.uri_mut() = url;
                *request.version_mut() = Version::HTTP_2;
                sender.clone().try_send_request(request).await
            }
        };
        self.waits_since = None;
        let answer = sent.map_err(send_error)?;
        self.connection.doubtful.store(false, Ordering::Relaxed);
        Ok(answer.map(|body| self.follow(body)))
    }

    /// A body that keeps the place for as long as it is there.
    fn follow(self, body: Incoming) -> Body {
        Box::pin(body.into_data_stream().map(move |part| {
            let _place = &self;
            part.map_err(|error| TransportError::new(Chain(&error).to_string()))
        }))
    }
}

/// The path alone, and the host beside it.
fn to_http1(request: &mut Request<Full<Bytes>>, url: Uri) {
    let host = url.authority().and_then(|authority| authority.as_str().parse().ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    let path = url.into_parts().path_and_query.map(Uri::from);
    *request.uri_mut() = path.unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
}

fn send_error(mut error: TrySendError<Request<Full<Bytes>>>) -> SendError {
    let never_left = error.take_message().is_some();
    let error = error.into_error();
    let told = TransportError::new(Chain(&error).to_string());
    match never_left || is_refused(&error) {
        true => SendError::Unsent(told),
        false => SendError::Failed(told),
    }
}

/// Whether the server says that it has not looked at the request: it stops, or has too many.
fn is_refused(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_remote()
                && (error.reason() == Some(h2::Reason::REFUSED_STREAM)
                    || (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)));
        }
        cause = error.source();
    }
    false
}

/// An error with its causes.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn StdError + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
