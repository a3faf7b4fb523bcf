//! Connects clients with the runtime's streaming server, each pair in a task of its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::activity::{Activity, Over};
use crate::backend::{self, BackendError};
use crate::request::{self, TUNNEL, V5};
use crate::translate::{Client, Wanted, translate};
use crate::websocket::{self, BadHandshake};
use crate::{pass, status, tunnel};

/// How many streams there may be at a time.
const MOST_STREAMS: usize = 1024;
/// How long a client may take from our word that protocols are switched to the switch itself.
const SWITCHES_WITHIN: Duration = Duration::from_secs(10);
/// How long a stream that is over may take to tell its client.
const PARTS_WITHIN: Duration = Duration::from_secs(1);

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
/// How commands end, with their exit codes.
const V4: HeaderValue = HeaderValue::from_static("v4.channel.k8s.io");

/// Why a client is not connected.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("Upgrade request required")]
    NoUpgrade,
    #[error("too many streams are open")]
    TooMany,
    #[error("error dialing backend: {0}")]
    Backend(#[from] BackendError),
    #[error("invalid upgrade response: status code {}", .0.as_u16())]
    NotSwitched(StatusCode),
    #[error("unable to upgrade: missing upgrade headers in response")]
    NotSpdy,
    #[error(transparent)]
    BadHandshake(#[from] BadHandshake),
}

impl StreamError {
    pub fn status(&self) -> StatusCode {
        match self {
            StreamError::NoUpgrade
            | StreamError::Backend(_)
            | StreamError::NotSwitched(_)
            | StreamError::NotSpdy => StatusCode::INTERNAL_SERVER_ERROR,
            StreamError::TooMany => StatusCode::SERVICE_UNAVAILABLE,
            StreamError::BadHandshake(bad) => bad.status(),
        }
    }
}

/// Among the extensions of a request: what is dropped no sooner than its stream ends.
#[derive(Clone)]
pub struct Kept {
    _until_then: Arc<dyn Any + Send + Sync>,
}

impl Kept {
    pub fn new(kept: Arc<dyn Any + Send + Sync>) -> Kept {
        Kept { _until_then: kept }
    }
}

/// What a stream has while it lasts.
struct Lasting {
    _kept: Option<Kept>,
    // The last to go: who waits for the end of all streams waits for what they kept, too.
    _place: OwnedSemaphorePermit,
}

/// Connects clients with the runtime. Clones share the places for streams.
#[derive(Clone)]
pub struct Streamer {
    places: Arc<Semaphore>,
    /// After how long without a byte a stream ends; without it, never.
    idle: Option<Duration>,
    stop: CancellationToken,
}

impl Streamer {
    pub fn new(idle: Option<Duration>, stop: CancellationToken) -> Streamer {
        Streamer { places: Arc::new(Semaphore::new(MOST_STREAMS)), idle, stop }
    }

    /// How many streams there are.
    pub fn open(&self) -> usize {
        MOST_STREAMS - self.places.available_permits()
    }

    /// Waits until there is none.
    pub async fn none_open(&self) {
        let _ = self.places.acquire_many(MOST_STREAMS as u32).await;
    }

    /// Passes a request on to the runtime's address, and bytes in both directions after that.
    pub async fn pass<B>(&self, url: &str, mut request: Request<B>) -> Result<Response<Bytes>, StreamError> {
        if !request::is_upgrade(request.headers()) {
            return Err(StreamError::NoUpgrade);
        }
        let lasting = self.lasting(&mut request)?;
        let client = hyper::upgrade::on(&mut request);
        let headers = backend::passed_on(request.headers());
        let mut answered = backend::ask(url, request.method().clone(), headers).await?;
        match answered.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            status if status.as_u16() < 400 => return Err(StreamError::NotSwitched(status)),
            _ => return Ok(backend::whole(answered).await?),
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = backend::passed_on(answered.headers());
        let runtime = hyper::upgrade::on(&mut answered);
        self.spawn(lasting, |activity| async move {
            let (Some(client), Some(runtime)) = (switched(client).await, switched(runtime).await) else {
                return;
            };
            pass::pass(client, runtime, &activity).await;
        });
        Ok(response)
    }

    /// Answers a WebSocket v5 and translates it to SPDY towards the runtime's address. What goes wrong with that is
    /// told on the WebSocket, as upstream tells it.
    pub fn translate<B>(
        &self,
        url: String,
        mut request: Request<B>,
        wanted: Wanted,
    ) -> Result<Response<Bytes>, StreamError> {
        let accept = websocket::accept(request.method(), request.headers())?;
        let lasting = self.lasting(&mut request)?;
        let client = hyper::upgrade::on(&mut request);
        self.spawn(lasting, |activity| async move {
            let Some(client) = switched(client).await else { return };
            let Ok(mut client) = Client::greet(client, wanted).await else { return };
            let mut headers = HeaderMap::new();
            headers.insert(STREAM_PROTOCOL, V4);
            let runtime = match spdy_to(&url, headers).await {
                Ok(runtime) => switched(runtime).await,
                Err(problem) => return client.end(&status::internal_error(&problem)).await,
            };
            match runtime {
                Some(runtime) => translate(&mut client, runtime, wanted, &activity).await,
                None => client.end(&status::internal_error("the container runtime left")).await,
            }
        });
        Ok(websocket::switching(&accept, Some(V5)))
    }

    /// Has the runtime's address switch to the SPDY that a WebSocket carries, and unwraps it.
    pub async fn tunnel<B>(
        &self,
        url: &str,
        mut request: Request<B>,
    ) -> Result<Response<Bytes>, StreamError> {
        let accept = websocket::accept(request.method(), request.headers())?;
        let lasting = self.lasting(&mut request)?;
        let client = hyper::upgrade::on(&mut request);
        let mut headers = backend::passed_on(request.headers());
        for name in [
            SEC_WEBSOCKET_KEY,
            SEC_WEBSOCKET_VERSION,
            SEC_WEBSOCKET_PROTOCOL,
            SEC_WEBSOCKET_EXTENSIONS,
            STREAM_PROTOCOL,
        ] {
            headers.remove(name);
        }
        for protocol in
            request::tunnelled(request.headers()).filter_map(|name| HeaderValue::from_str(name).ok())
        {
            headers.append(STREAM_PROTOCOL, protocol);
        }
        let mut answered = ask_for_spdy(url, headers).await?;
        match answered.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            status if status.as_u16() < 400 => return Err(StreamError::NotSwitched(status)),
            _ => return Ok(backend::whole(answered).await?),
        }
        if !is_spdy(answered.headers()) {
            return Err(StreamError::NotSpdy);
        }
        let protocol = answered.headers().get(STREAM_PROTOCOL).and_then(|chosen| chosen.to_str().ok());
        let protocol = protocol.map(|chosen| format!("{TUNNEL}{}", chosen.trim()));
        let runtime = hyper::upgrade::on(&mut answered);
        self.spawn(lasting, |activity| async move {
            let (Some(client), Some(runtime)) = (switched(client).await, switched(runtime).await) else {
                return;
            };
            tunnel::tunnel(client, runtime, &activity).await;
        });
        Ok(websocket::switching(&accept, protocol.as_deref()))
    }

    fn lasting<B>(&self, request: &mut Request<B>) -> Result<Lasting, StreamError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| StreamError::TooMany)?;
        Ok(Lasting { _kept: request.extensions_mut().remove(), _place: place })
    }

    /// Has a stream live until it ends, is idle for too long, or the node stops.
    fn spawn<F>(&self, lasting: Lasting, stream: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (idle, stop, activity) = (self.idle, self.stop.clone(), Arc::new(Activity::new()));
        let stream = stream(Arc::clone(&activity));
        tokio::spawn(async move {
            let _lasting = lasting;
            tokio::pin!(stream);
            let over = tokio::select! {
                () = &mut stream => return,
                () = activity.idle_for(idle) => Over::Idle,
                () = stop.cancelled() => Over::Stopping,
            };
            debug!(reason = over.reason(), "Closing a stream");
            activity.end(over);
            let _ = tokio::time::timeout(PARTS_WITHIN, stream).await;
        });
    }
}

/// A connection whose protocol was switched, if it was.
async fn switched(switching: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    match tokio::time::timeout(SWITCHES_WITHIN, switching).await {
        Ok(Ok(upgraded)) => Some(TokioIo::new(upgraded)),
        Ok(Err(error)) => {
            debug!(err = %error, "A protocol was not switched");
            None
        }
        Err(_) => None,
    }
}

async fn ask_for_spdy(
    url: &str,
    mut headers: HeaderMap,
) -> Result<Response<hyper::body::Incoming>, BackendError> {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, SPDY);
    backend::ask(url, Method::POST, headers).await
}

/// Has the runtime's address switch to SPDY, or says in words why it does not.
async fn spdy_to(url: &str, headers: HeaderMap) -> Result<OnUpgrade, String> {
    let mut answered =
        ask_for_spdy(url, headers).await.map_err(|error| format!("error dialing backend: {error}"))?;
    if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
        let whole = backend::whole(answered).await.map_err(|error| error.to_string())?;
        return Err(format!("unable to upgrade connection: {}", String::from_utf8_lossy(whole.body())));
    }
    if !is_spdy(answered.headers()) || answered.headers().get(STREAM_PROTOCOL) != Some(&V4) {
        return Err("unable to upgrade: missing upgrade headers in response".to_owned());
    }
    Ok(hyper::upgrade::on(&mut answered))
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    request::is_upgrade(headers) && upgrade.to_ascii_lowercase().contains("spdy/3.1")
}
