//! The runtime's streaming server, at the address that it gave for one stream.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Response, Uri};
use http_body_util::{Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::debug;

const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take to switch protocols, or to say that it does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How much of what it says of a failure is passed on, and how long that may take.
const LONGEST_MESSAGE: usize = 64 << 10;
const SAYS_WITHIN: Duration = Duration::from_secs(10);

/// What is about one connection alone, and who a client is: the runtime does not need to know.
const NOT_PASSED_ON: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::PROXY_AUTHORIZATION,
    header::COOKIE,
];

/// Why the runtime's streaming server could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("the container runtime gave no address of a streaming server: {0:?}")]
    Address(String),
    #[error(
        "the container runtime's streaming server at {0} speaks TLS, which is not supported: have it stream without \
         (containerd: enable_tls_streaming = false; CRI-O: stream_enable_tls = false)"
    )]
    Tls(String),
    #[error("dial tcp {address}: {source}")]
    Dial { address: String, source: std::io::Error },
    #[error("dial tcp {0}: i/o timeout")]
    DialTimeout(String),
    #[error("{0}")]
    Asking(#[from] hyper::Error),
    #[error("the container runtime's streaming server does not answer")]
    Silent,
}

/// The headers of a client's request that go on to the runtime.
pub(crate) fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let meant = headers.iter().filter(|(name, _)| !NOT_PASSED_ON.contains(name));
    meant.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Asks it to switch protocols, and gives its answer, with which the connection goes.
pub(crate) async fn ask(
    url: &str,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Incoming>, BackendError> {
    let bad = || BackendError::Address(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let authority = uri.authority().ok_or_else(bad)?;
    match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => {}
        Some(scheme) if *scheme == Scheme::HTTPS => return Err(BackendError::Tls(authority.to_string())),
        Some(_) | None => return Err(bad()),
    }
    let (host, port) = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
    let address = authority.to_string();
    let stream = match tokio::time::timeout(CONNECTS_WITHIN, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(source)) => return Err(BackendError::Dial { address, source }),
        Err(_) => return Err(BackendError::DialTimeout(address)),
    };
    // Keys are typed one by one.
    let _ = stream.set_nodelay(true);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(&address).map_err(|_| bad())?);
    let asking = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                debug!(err = %error, "A connection to the container runtime's streaming server ended badly");
            }
        });
        sender.send_request(request).await
    };
    Ok(tokio::time::timeout(ANSWERS_WITHIN, asking).await.map_err(|_| BackendError::Silent)??)
}

/// An answer that is none to a switch of protocols, whole.
pub(crate) async fn whole(response: Response<Incoming>) -> Result<Response<Bytes>, BackendError> {
    use http_body_util::BodyExt as _;
    let (parts, body) = response.into_parts();
    let body = tokio::time::timeout(SAYS_WITHIN, Limited::new(body, LONGEST_MESSAGE).collect()).await;
    let body = body.map_err(|_| BackendError::Silent)?.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = passed_on(&parts.headers);
    for name in [header::CONNECTION, header::UPGRADE] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_wants_tls_is_told_from_who_gives_no_address() {
        for (url, expected) in [
            ("https://127.0.0.1:1/exec/token", "at 127.0.0.1:1 speaks TLS, which is not supported"),
            ("/exec/token", "gave no address of a streaming server: \"/exec/token\""),
            ("unix:///run/x", "gave no address of a streaming server"),
        ] {
            let error = ask(url, Method::POST, HeaderMap::new()).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!url.starts_with("https") || !error.contains("token"), "{error}");
        }
    }
}
