//! A GET request: one connection, closed after it, and all of it in the one future, so that nothing is left when that
//! is let go of.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

use crablet_core::probes::target::{HttpTarget, Redirect};
use crablet_http_exchange::ExchangeError;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, LOCATION};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

use super::Answer;
use super::connect::{ConnectError, connect, in_go_words};
use super::tls::connector;

/// How much of a body is read.
const MOST: usize = 10 << 10;
/// How many redirects are followed.
const MOST_REDIRECTS: usize = 10;

/// An answer.
pub(crate) struct HttpAnswer {
    status: StatusCode,
    location: Option<String>,
    body: Vec<u8>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// No connection.
    Connect(ConnectError),
    /// The time was up before there was an answer.
    Timeout,
    /// The time was up, or the connection went away, while the body was read.
    Body(String),
    /// Somebody who does not speak TLS answered.
    NotTls,
    /// Too many redirects.
    Redirects,
    /// Anything else.
    Other(String),
}

impl Display for HttpError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Connect(error) if error.is_timeout() => {
                write!(f, "{error} (Client.Timeout exceeded while awaiting headers)")
            }
            HttpError::Connect(error) => error.fmt(f),
            HttpError::Timeout => {
                f.write_str("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
            }
            HttpError::NotTls => f.write_str("http: server gave HTTP response to HTTPS client"),
            HttpError::Redirects => f.write_str("stopped after 10 redirects"),
            HttpError::Body(message) | HttpError::Other(message) => f.write_str(message),
        }
    }
}

/// Asks a container, following redirects to itself.
pub(super) async fn probe(target: &HttpTarget, deadline: Instant) -> Answer {
    match get(target, deadline).await {
        Ok(answer) => judge(&answer),
        Err((_, HttpError::Body(message))) => Answer::Error { state: "failure", message },
        Err((url, error)) => Answer::Failure(format!("Get {url:?}: {error}")),
    }
}

fn judge(answer: &HttpAnswer) -> Answer {
    match answer.status.as_u16() {
        200..300 => Answer::Success,
        300..400 => {
            let body = String::from_utf8_lossy(&answer.body);
            Answer::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        status => Answer::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// The answer of a container, after redirects to itself; or why there is none, and from which URL.
pub(crate) async fn get(target: &HttpTarget, deadline: Instant) -> Result<HttpAnswer, (String, HttpError)> {
    let mut target = target.clone();
    for _ in 0..MOST_REDIRECTS {
        let answer = get_once(&target, deadline).await.map_err(|error| (target.url(), error))?;
        let is_redirect = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let Some(location) = answer.location.as_ref().filter(|_| is_redirect) else { return Ok(answer) };
        match target.redirect(location) {
            Redirect::Follow(next) => target = *next,
            Redirect::Elsewhere => return Ok(answer),
        }
    }
    Err((target.url(), HttpError::Redirects))
}

async fn get_once(target: &HttpTarget, deadline: Instant) -> Result<HttpAnswer, HttpError> {
    let request = request(target)?;
    let stream = connect(&target.address, deadline).await.map_err(HttpError::Connect)?;
    if !target.secure {
        return exchange(stream, request, deadline).await;
    }
    let connector = connector().map_err(|error| HttpError::Other(error.to_string()))?;
    let name = ServerName::try_from(target.address.host.clone())
        .unwrap_or_else(|_| ServerName::from(std::net::IpAddr::from(Ipv4Addr::UNSPECIFIED)));
    match timeout_at(deadline, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => exchange(stream, request, deadline).await,
        Ok(Err(error)) => Err(of_handshake(&error)),
        Err(_) => Err(HttpError::Timeout),
    }
}

fn of_handshake(error: &std::io::Error) -> HttpError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        // What begins with `HTTP/` is no TLS record.
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => HttpError::NotTls,
        Some(tls) => HttpError::Other(format!("tls: {tls}")),
        None => HttpError::Other(in_go_words(error)),
    }
}

fn request(target: &HttpTarget) -> Result<Request<Bytes>, HttpError> {
    let other = |error: &dyn Display| HttpError::Other(error.to_string());
    let uri: Uri = target.path.parse().map_err(|error| other(&error))?;
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(&target.host_header).map_err(|error| other(&error))?);
    for (name, value) in &target.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| other(&error))?;
        let mut value = HeaderValue::from_str(value).map_err(|error| other(&error))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Bytes>,
    deadline: Instant,
) -> Result<HttpAnswer, HttpError> {
    let mut has_head = false;
    let most = |_: &Parts| {
        has_head = true;
        MOST
    };
    let answer = timeout_at(deadline, crablet_http_exchange::exchange(stream, request, most)).await;
    let answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(ExchangeError::Head(error))) => return Err(HttpError::Other(words(&error))),
        Ok(Err(ExchangeError::Body(error))) => return Err(HttpError::Body(words(&error))),
        Err(_) if has_head => {
            let message =
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
            return Err(HttpError::Body(message.into()));
        }
        Err(_) => return Err(HttpError::Timeout),
    };
    let (head, body) = answer.into_parts();
    let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    Ok(HttpAnswer { status: head.status, location: location.map(ToOwned::to_owned), body })
}

fn words(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error);
    match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(io) => format!("read: {}", in_go_words(io)),
        None if error.is_incomplete_message() => "EOF".into(),
        None => error.to_string(),
    }
}
