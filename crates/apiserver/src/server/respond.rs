//! From a request to a response.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{info, warn};

use super::api::{Api, BODY_UNIT};
use super::body::Body;
use super::connection::Connection;
use super::{proxy, usage, watching};
use crate::answer::{Answer, Document, JSON, Keeping};
use crate::authentication::openid;
use crate::cluster::LARGEST_BODY;
use crate::request;
use crate::status::Refusal;
use crate::who::User;

/// From which size on documents are compressed for who wants it, as upstream.
const COMPRESSED_FROM: usize = 128 << 10;
/// How long a body may take to come in.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// How long a request waits while there are too many others.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// All that warnings may be together.
const LONGEST_WARNINGS: usize = 4 << 10;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

pub(super) async fn respond(
    api: &Arc<Api>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    let asked = request.headers().get(AUDIT_ID).filter(|id| id.len() <= 64).cloned();
    let audit_id = asked.or_else(|| HeaderValue::from_str(&api.audit_id()).ok());
    let wanted = Wanted::of(&request);
    // One request that we are not up to must not harm the others of its connection.
    let tried = AssertUnwindSafe(try_respond(api, connection, request, &wanted)).catch_unwind().await;
    let mut response = match tried {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => encode(refusal.into(), &wanted, None),
        Err(_) => encode(panicked().into(), &wanted, None),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let headers = response.headers_mut();
    if let Some(audit_id) = audit_id {
        headers.insert(AUDIT_ID, audit_id);
    }
    let caching = match wanted.path.as_str() {
        openid::CONFIGURATION_PATH | openid::KEYS_PATH => "public, max-age=3600",
        _ => "no-cache, private",
    };
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static(caching));
    response
}

/// How a client wants its answer.
struct Wanted {
    path: String,
    gzip: bool,
    yaml: bool,
    /// Without the body.
    head: bool,
    /// Documents that it has already.
    none_match: String,
}

impl Wanted {
    fn of(request: &Request<Incoming>) -> Wanted {
        let text = |name| text(request.headers(), name);
        let gzip = text(header::ACCEPT_ENCODING).split(',').any(|encoding| encoding.trim() == "gzip");
        // The first that can be had counts.
        let accepted = text(header::ACCEPT);
        let mut media = accepted.split(',').map(|item| item.split(';').next().unwrap_or_default().trim());
        let known = media.find(|media| {
            matches!(*media, "application/json" | "*/*" | "application/*" | "application/yaml")
        });
        Wanted {
            path: request.uri().path().to_owned(),
            gzip,
            yaml: known == Some("application/yaml"),
            head: request.method() == Method::HEAD,
            none_match: text(header::IF_NONE_MATCH),
        }
    }
}

impl Wanted {
    /// Says how long the client may keep a document; whether it has it.
    fn say_how_to_keep(&self, headers: &mut HeaderMap, keeping: &Keeping) -> bool {
        let etag = format!("\"{}\"", keeping.etag);
        let mut known = self.none_match.split(',').map(|name| name.trim().trim_start_matches("W/"));
        let is_known = known.any(|name| name == etag || name == "*");
        headers.append(header::VARY, HeaderValue::from_static("Accept"));
        if let Ok(etag) = HeaderValue::try_from(etag) {
            headers.insert(header::ETAG, etag);
        }
        if let Some(control) = keeping.control {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(control));
        }
        let expires = keeping.expires.map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        if let Some(expires) = expires.and_then(|expires| HeaderValue::try_from(expires).ok()) {
            headers.insert(header::EXPIRES, expires);
        }
        is_known
    }
}

async fn try_respond(
    api: &Arc<Api>,
    connection: &Connection,
    mut request: Request<Incoming>,
    wanted: &Wanted,
) -> Result<Response<Body>, Refusal> {
    let user = match authenticate(api, connection, request.headers()) {
        Ok(user) => user,
        Err(refusal) => {
            // Who is not known gets one answer for a connection, as upstream has it: HTTP/2 costs more than it seems.
            connection.close.cancel();
            return Err(refusal);
        }
    };
    if request.version() == http::Version::HTTP_2 && user == User::anonymous() {
        connection.close.cancel();
    }
    if let Err(failed) = api.check_store() {
        return Err(store_failed(&failed.to_string()));
    }
    let is_upgrade = proxy::is_upgrade(&request);
    let query = request.uri().query().unwrap_or_default().to_owned();
    let turn = turn(&api.requests).await?;
    let body = if is_upgrade { Vec::new() } else { body(api, request.body_mut()).await? };
    let mut asked = request::Request {
        method: request.method().clone(),
        path: wanted.path.clone(),
        query,
        accept: if wanted.yaml { JSON.to_owned() } else { text(request.headers(), header::ACCEPT) },
        content_type: text(request.headers(), header::CONTENT_TYPE),
        user,
        body,
    };
    if let Some(other) = api.with(|cluster, _| cluster.impersonate(&asked, request.headers()))? {
        asked.user = other;
    }
    let answer = api.handle(&asked).await.map_err(|failed| store_failed(&failed.to_string()))?;
    match answer {
        Answer::Document(document) => Ok(encode(document, wanted, Some(turn))),
        Answer::Watch(watch) => {
            drop(turn);
            let place = long_running(api)?;
            let mut response = Response::new(match wanted.head {
                true => Body::empty(),
                false => watching::body(Arc::clone(api), watch, &connection.stop, place),
            });
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            Ok(response)
        }
        Answer::Usage(asked) => {
            drop(turn);
            let _place = long_running(api)?;
            Ok(encode(usage::respond(api, &asked).await?, wanted, None))
        }
        Answer::Proxy(target) => {
            drop(turn);
            let place = long_running(api)?;
            proxy::respond(api, &target, request, asked.body, place).await
        }
    }
}

/// Who asks: the first of the certificate and the token that is believed. What was shown and is not believed is worse
/// than nothing.
fn authenticate(api: &Api, connection: &Connection, headers: &HeaderMap) -> Result<User, Refusal> {
    let certified = match &connection.certified {
        Ok(Some(certified)) => certified.user(api.clock().now()),
        Ok(None) => Ok(None),
        Err(_) => return token_user(api, headers)?.ok_or_else(Refusal::unauthorized),
    };
    match certified {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Ok(token_user(api, headers)?.unwrap_or_else(User::anonymous)),
        Err(error) => {
            info!(err = %error, "Unable to authenticate the request");
            token_user(api, headers)?.ok_or_else(Refusal::unauthorized)
        }
    }
}

/// None without a bearer token.
fn token_user(api: &Api, headers: &HeaderMap) -> Result<Option<User>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let value = value.to_str().unwrap_or_default().trim();
    let mut parts = value.splitn(3, ' ');
    let (scheme, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Ok(None);
    }
    match api.authenticate_token(token) {
        Ok(authenticated) => Ok(Some(authenticated.user)),
        Err(error) => {
            info!(err = %error, "Unable to authenticate the request");
            Err(Refusal::unauthorized())
        }
    }
}

fn panicked() -> Refusal {
    Refusal::internal("This request caused apiserver to panic. Look in the logs for details.")
}

/// Nothing that is in memory may be told, because it may be more than what is on disk.
fn store_failed(why: &str) -> Refusal {
    Refusal::internal(why)
}

async fn turn(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    match tokio::time::timeout(TURN_WITHIN, Arc::clone(places).acquire_owned()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => Err(too_many()),
    }
}

fn long_running(api: &Api) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(&api.long_running).try_acquire_owned().map_err(|_| too_many())
}

fn too_many() -> Refusal {
    Refusal::too_many_requests("Too many requests, please try again later.", 1)
}

/// The body of a request, as far as it is allowed to go.
async fn body(api: &Api, incoming: &mut Incoming) -> Result<Vec<u8>, Refusal> {
    if incoming.is_end_stream() {
        return Ok(Vec::new());
    }
    let too_large = || Refusal::too_large(LARGEST_BODY);
    let expected = incoming
        .size_hint()
        .upper()
        .map_or(LARGEST_BODY, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if expected > LARGEST_BODY {
        return Err(too_large());
    }
    let units = u32::try_from(expected.div_ceil(BODY_UNIT)).unwrap_or(u32::MAX);
    let read = async {
        let room = api.bodies.acquire_many(units).await;
        let collected = Limited::new(incoming, LARGEST_BODY).collect().await;
        drop(room);
        collected
    };
    match tokio::time::timeout(BODY_WITHIN, read).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Refusal::bad_request(format!("the body cannot be read: {error}"))),
        Err(_) => {
            Err(Refusal::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"))
        }
    }
}

/// A document on its way to the client.
fn encode(document: Document, wanted: &Wanted, permit: Option<OwnedSemaphorePermit>) -> Response<Body> {
    let Document { mut code, mut content_type, mut body, warnings, retry_after, location, keeping, .. } =
        document;
    if wanted.yaml && content_type == JSON {
        match yaml(&body) {
            Some(text) => (content_type, body) = ("application/yaml", text),
            None => warn!(path = wanted.path, "An answer could not be written as YAML"),
        }
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(location) = location.and_then(|location| HeaderValue::try_from(location).ok()) {
        headers.insert(header::LOCATION, location);
    }
    if let Some(keeping) = keeping
        && wanted.say_how_to_keep(&mut headers, &keeping)
    {
        (code, body) = (304, Vec::new());
        headers.remove(header::CONTENT_TYPE);
    }
    if wanted.gzip
        && body.len() > COMPRESSED_FROM
        && let Some(compressed) = gzip(&body)
    {
        body = compressed;
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let mut written = 0;
    for (position, warning) in warnings.iter().enumerate() {
        if warnings[..position].contains(warning) {
            continue;
        }
        written += warning.len();
        if written > LONGEST_WARNINGS {
            break;
        }
        if let Some(value) = warning_header(warning).filter(|_| !warning.is_empty()) {
            headers.append(header::WARNING, value);
        }
    }
    let body = match wanted.head {
        true => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            Body::empty()
        }
        false => Body::document(body, permit),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// `299 - "text"`; none for a text that no header can have.
fn warning_header(text: &str) -> Option<HeaderValue> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()).ok()
}

fn yaml(json: &[u8]) -> Option<Vec<u8>> {
    use crablet_api::document;
    let text = std::str::from_utf8(json).ok()?;
    let (tree, _) = document::parse("the answer", text, document::Limits::API).ok()?;
    Some(document::write_yaml(&tree, &|_| None).into_bytes())
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    // The same header twice means a list.
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_headers_as_kubectl_reads_them() {
        let wanted =
            Wanted { path: String::new(), gzip: false, yaml: false, head: false, none_match: String::new() };
        let texts = ["unknown field \"spec.x\"", "unknown field \"spec.x\"", "a\\b ü", "two\nlines", ""];
        let mut warnings: Vec<String> = texts.map(str::to_owned).to_vec();
        warnings.push("x".repeat(5_000));
        let document = Document { warnings, retry_after: Some(3), ..Document::text(201, "") };
        let response = encode(document, &wanted, None);
        let told: Vec<_> =
            response.headers().get_all(header::WARNING).iter().map(HeaderValue::as_bytes).collect();
        let expected = ["299 - \"unknown field \\\"spec.x\\\"\"", "299 - \"a\\\\b ü\""];
        assert_eq!(told, expected.map(str::as_bytes));
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
            (201, &"3".parse().unwrap())
        );
    }
}
