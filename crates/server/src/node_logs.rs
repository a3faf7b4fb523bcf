//! `/logs/`: the node's own logs, as Go's file server shows a directory; and what is asked of its services.

use std::io;
use std::io::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    LAST_MODIFIED, LOCATION,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use crablet_logs::{NodeFile, NodeFileError, NodeLogQuery, NodeLogs, OpenDirectory, OpenFile};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::unfold;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::query::values;
use crate::ranges::{Given, given, http_date, is_known};
use crate::respond::text;

/// What is shown of the node's logs.
#[derive(Debug, Clone, Default)]
pub struct NodeLogSettings {
    /// Where they are.
    pub logs: NodeLogs,
    /// `enableSystemLogHandler`: whether they are shown at all.
    pub is_enabled: bool,
    /// `enableSystemLogQuery`: whether the logs of services can be asked for.
    pub has_query: bool,
}

/// `/logs/` and what is below it.
pub fn node_logs_router(settings: NodeLogSettings) -> Router {
    if !settings.is_enabled {
        let refuse = || async { text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.\n") };
        return Router::new().route("/logs/", any(refuse)).route("/logs/{*path}", any(refuse));
    }
    Router::new()
        .route("/logs/", get(directory))
        .route("/logs/{*path}", get(below))
        .with_state(Arc::new(settings))
}

async fn directory(
    State(settings): State<Arc<NodeLogSettings>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    settings.get("", query.as_deref(), &headers).await
}

async fn below(
    State(settings): State<Arc<NodeLogSettings>>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    settings.get(&path, query.as_deref(), &headers).await
}

impl NodeLogSettings {
    async fn get(&self, path: &str, query: Option<&str>, headers: &HeaderMap) -> Response {
        if !self.has_query {
            return self.show(path, query, headers).await;
        }
        let asked = match NodeLogQuery::parse(|name| values(query, name)) {
            Ok(Some(asked)) => asked,
            Ok(None) => return self.show(path, query, headers).await,
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        if !path.is_empty() && path != "/" {
            return text(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode\n");
        }
        let problem = match asked.file() {
            Some(file) => match self.logs.open(&file).await {
                Ok(_) => None,
                Err(error) => Some(format!("statat {file}: {error}")),
            },
            None => None,
        };
        if let Err(error) = asked.validate(|_| problem.clone()) {
            return text(StatusCode::NOT_ACCEPTABLE, format!("{error}\n"));
        }
        match asked.file() {
            Some(file) => self.show(&file, None, headers).await,
            None => {
                let is_zipped = headers.get(ACCEPT_ENCODING).is_some_and(|accepted| accepted == "gzip");
                services(&self.logs, asked, is_zipped)
            }
        }
    }

    /// A directory or a file.
    async fn show(&self, path: &str, query: Option<&str>, headers: &HeaderMap) -> Response {
        let path = format!("/{}", path.trim_start_matches('/'));
        if path.ends_with("/index.html") {
            return redirect("./".to_owned(), query);
        }
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let (mut response, modified) = match self.logs.open(&path).await {
            Ok(NodeFile::Directory(_)) if !path.ends_with('/') => {
                return redirect(format!("{}/", escaped(last)), query);
            }
            Ok(NodeFile::File(_)) if path.ends_with('/') => {
                return redirect(format!("../{}", escaped(last)), query);
            }
            Ok(NodeFile::Directory(directory)) if is_known(headers, directory.modified) => {
                return not_modified();
            }
            Ok(NodeFile::Directory(directory)) => (listing(&directory), directory.modified),
            Ok(NodeFile::File(file)) => (give(&file, headers), file.modified),
            Err(error) => return refusal(&error),
        };
        if let Ok(date) = HeaderValue::from_str(&http_date(modified))
            && modified != Timestamp::UNIX_EPOCH
            && response.status() != StatusCode::RANGE_NOT_SATISFIABLE
        {
            response.headers_mut().insert(LAST_MODIFIED, date);
        }
        response
    }
}

fn refusal(error: &NodeFileError) -> Response {
    match error {
        NodeFileError::Missing | NodeFileError::Special => {
            text(StatusCode::NOT_FOUND, "404 page not found\n")
        }
        NodeFileError::Outside => text(StatusCode::FORBIDDEN, "403 Forbidden\n"),
        NodeFileError::Failed(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            text(StatusCode::FORBIDDEN, "403 Forbidden\n")
        }
        NodeFileError::Failed(error) => {
            tracing::debug!(%error, "Cannot show a log of the node");
            text(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error\n")
        }
    }
}

fn redirect(mut to: String, query: Option<&str>) -> Response {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        to = format!("{to}?{query}");
    }
    (StatusCode::MOVED_PERMANENTLY, [(LOCATION, to)]).into_response()
}

/// Without a length: it would be taken for that of what was not modified.
fn not_modified() -> Response {
    let nothing = futures_util::stream::empty::<io::Result<Vec<u8>>>();
    (StatusCode::NOT_MODIFIED, Body::from_stream(nothing)).into_response()
}

fn listing(directory: &OpenDirectory) -> Response {
    let mut page =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for entry in &directory.entries {
        let name = format!("{}{}", entry.name, if entry.is_directory { "/" } else { "" });
        page += &format!("<a href=\"{}\">{}</a>\n", escaped(&name), in_html(&name));
    }
    page += "</pre>\n";
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

/// A name as a reference to it.
fn escaped(name: &str) -> String {
    /// What Go lets stand in a path.
    const REST: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'<')
        .add(b'>')
        .add(b'?')
        .add(b'[')
        .add(b'\\')
        .add(b']')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}')
        .add(b'!')
        .add(b'\'')
        .add(b'(')
        .add(b')')
        .add(b'*');
    // Without this, what stands before a colon would be taken for a scheme.
    let prefix = if name.contains(':') { "./" } else { "" };
    format!("{prefix}{}", utf8_percent_encode(name, REST))
}

pub(crate) fn in_html(name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    name.replace('"', "&#34;").replace('\'', "&#39;")
}

fn give(file: &OpenFile, headers: &HeaderMap) -> Response {
    let length = file.length;
    let (status, range) = match given(headers, file.modified, length) {
        Given::Whole => (StatusCode::OK, 0..length),
        Given::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Given::NotModified => return not_modified(),
        Given::ConditionFailed => return StatusCode::PRECONDITION_FAILED.into_response(),
        Given::NoRange => return text(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range\n"),
        Given::NoOverlap => {
            let refusal = text(StatusCode::RANGE_NOT_SATISFIABLE, "invalid range: failed to overlap\n");
            return ([(CONTENT_RANGE, format!("bytes */{length}"))], refusal).into_response();
        }
    };
    let kind = file.first_bytes.as_deref().map_or("application/octet-stream", content_type);
    let part = (status == StatusCode::PARTIAL_CONTENT).then(|| {
        // The last byte is told. An empty part has none, and the one before is told, as Go does, be it -1.
        let last = i128::from(range.end) - 1;
        [(CONTENT_RANGE, format!("bytes {}-{last}/{length}", range.start))]
    });
    let headers = [
        (CONTENT_TYPE, kind.to_owned()),
        (CONTENT_LENGTH, (range.end - range.start).to_string()),
        (ACCEPT_RANGES, "bytes".to_owned()),
    ];
    (status, headers, part, Body::from_stream(file.read_range(range))).into_response()
}

/// What a file is, by its first bytes. Nothing that a browser would run is called so: a log holds what others wrote.
fn content_type(first: &[u8]) -> &'static str {
    let is_text = |byte: &u8| !matches!(byte, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match first {
        [0x1f, 0x8b, 0x08, ..] => "application/x-gzip",
        first if first.iter().all(is_text) => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn services(logs: &NodeLogs, asked: NodeLogQuery, is_zipped: bool) -> Response {
    const TEXT: (axum::http::HeaderName, &str) = (CONTENT_TYPE, "text/plain;charset=UTF-8");
    let answer = logs.query(asked);
    if !is_zipped {
        let pieces = unfold(answer, async |mut answer| {
            let piece = answer.recv().await?;
            Some((Ok::<_, io::Error>(piece), answer))
        });
        return ([TEXT], Body::from_stream(pieces)).into_response();
    }
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let pieces = unfold(Some((answer, encoder)), async |state| {
        let (mut answer, mut encoder) = state?;
        loop {
            let written = match answer.recv().await {
                None => return Some((encoder.finish(), None)),
                Some(piece) => encoder.write_all(&piece),
            };
            if let Err(error) = written {
                return Some((Err(error), None));
            }
            if !encoder.get_ref().is_empty() {
                let zipped = std::mem::take(encoder.get_mut());
                return Some((Ok(zipped), Some((answer, encoder))));
            }
        }
    });
    ([TEXT, (CONTENT_ENCODING, "gzip")], Body::from_stream(pieces)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use axum::http::Request;
    use tower::ServiceExt;

    struct World {
        directory: tempfile::TempDir,
        settings: NodeLogSettings,
    }

    impl World {
        fn new() -> World {
            let directory = tempfile::tempdir().unwrap();
            let logs = directory.path().join("log");
            for name in ["containers", "pods"] {
                fs::create_dir_all(logs.join(name)).unwrap();
            }
            fs::write(directory.path().join("secret"), "secret").unwrap();
            let journalctl = directory.path().join("journalctl");
            fs::write(
                &journalctl,
                "#!/bin/sh\n[ \"$1\" = --field ] && echo kubelet.service || echo journal\n",
            )
            .unwrap();
            fs::set_permissions(&journalctl, fs::Permissions::from_mode(0o755)).unwrap();
            let logs = NodeLogs { directory: logs, journalctl };
            World { directory, settings: NodeLogSettings { logs, is_enabled: true, has_query: false } }
        }

        fn log(&self, name: &str) -> std::path::PathBuf {
            self.directory.path().join("log").join(name)
        }

        async fn ask(&self, path: &str) -> Response {
            self.ask_with(path, &[("accept-encoding", "gzip")]).await
        }

        async fn ask_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
            let request = Request::get(path);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let request = request.body(Body::empty()).unwrap();
            node_logs_router(self.settings.clone()).oneshot(request).await.unwrap()
        }

        async fn get(&self, path: &str) -> String {
            let response = self.ask(path).await;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec();
            let body = match headers.get(CONTENT_ENCODING) {
                None => String::from_utf8(body).unwrap(),
                Some(_) => {
                    let mut text = String::new();
                    flate2::read::GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
                    format!("zipped {text}")
                }
            };
            match headers.get(LOCATION) {
                None => format!("{status} {body}"),
                Some(to) => format!("{status} to {}", to.to_str().unwrap()),
            }
        }
    }

    #[tokio::test]
    async fn a_directory_is_listed_as_it_was_recorded() {
        let world = World::new();
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/data/golden");
        let golden = std::env::var("GOLDEN_DIR").unwrap_or_else(|_| golden.to_owned());
        for name in ["logs-dir", "logs-query"] {
            let recorded = fs::read(format!("{golden}/server/answers/{name}.json")).unwrap();
            let recorded: serde_json::Value = serde_json::from_slice(&recorded).unwrap();
            let response = world.ask(recorded["path"].as_str().unwrap()).await;
            assert_eq!(
                response.headers()[CONTENT_TYPE],
                recorded["headers"]["Content-Type"].as_str().unwrap()
            );
            let answer = world.get(recorded["path"].as_str().unwrap()).await;
            assert_eq!(answer, format!("{} {}", recorded["status"], recorded["body"].as_str().unwrap()));
        }
    }

    #[tokio::test]
    async fn files_are_given_and_nothing_outside_the_directory() {
        let world = World::new();
        fs::write(world.log("pods/a <b>:&.log"), "text\n").unwrap();
        symlink("../secret", world.log("out")).unwrap();
        symlink(world.directory.path(), world.log("up")).unwrap();
        let list = world.get("/logs/pods/").await;
        assert!(list.contains("<a href=\"./a%20%3Cb%3E:&.log\">a &lt;b&gt;:&amp;.log</a>\n"), "{list}");
        let missing = "404 404 page not found\n";
        for (path, expected) in [
            ("/logs/pods/a%20%3Cb%3E:&.log", "200 text\n"),
            ("/logs/pods", "301 to pods/"),
            ("/logs/pods?x=1", "301 to pods/?x=1"),
            ("/logs/pods/a%20%3Cb%3E:&.log/", "301 to .././a%20%3Cb%3E:&.log"),
            ("/logs/pods/index.html", "301 to ./"),
            ("/logs/none", missing),
            ("/logs/out", "403 403 Forbidden\n"),
            ("/logs/up/", "403 403 Forbidden\n"),
            ("/logs/up/secret", "403 403 Forbidden\n"),
            ("/logs/../secret", missing),
            ("/logs/pods/../../secret", missing),
            ("/logs/..%2Fsecret", missing),
            ("/logs/%2e%2e/%2e%2e/%2e%2e/etc/passwd", missing),
            ("/logs/pods%2F..%2F..%2Fsecret", missing),
            ("/logs//etc/passwd", missing),
            ("/logs/a%00b", missing),
        ] {
            assert_eq!(world.get(path).await, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn parts_of_files_are_given_and_nothing_to_who_has_it() {
        let world = World::new();
        fs::write(world.log("own.log"), "0123456789").unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_795_006_800);
        fs::write(world.log("empty.log"), "").unwrap();
        for name in ["own.log", "empty.log", "pods"] {
            fs::File::open(world.log(name)).unwrap().set_modified(time).unwrap();
        }
        let then = "Wed, 18 Nov 2026 13:00:00 GMT";
        let (since, unmodified) = ("if-modified-since", "if-unmodified-since");
        for (path, header, expected) in [
            ("own.log", ("range", "bytes=2-4"), "206 234 bytes 2-4/10 3"),
            ("own.log", ("range", "bytes=-2"), "206 89 bytes 8-9/10 2"),
            ("own.log", ("range", "bytes=0-1,4-5"), "200 0123456789 - 10"),
            ("own.log", ("range", "bytes=10-"), "416 invalid range: failed to overlap\n bytes */10 33"),
            ("own.log", ("range", "lines=1"), "416 invalid range\n - 14"),
            ("own.log", (since, then), "304  - -"),
            ("own.log", (since, "Wed, 18 Nov 2026 12:00:00 GMT"), "200 0123456789 - 10"),
            ("own.log", (unmodified, "Wed, 18 Nov 2026 12:00:00 GMT"), "412  - 0"),
            ("pods/", (since, then), "304  - -"),
            ("empty.log", ("range", "bytes=-5"), "206  bytes 0--1/0 0"),
        ] {
            let response = world.ask_with(&format!("/logs/{path}"), &[header]).await;
            let status = response.status().as_u16();
            let told =
                |name| response.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
            let (range, length) = (told(CONTENT_RANGE), told(CONTENT_LENGTH));
            let is_dated = status != 416 && (path, status) != ("pods/", 304);
            assert_eq!(told(LAST_MODIFIED), if is_dated { then } else { "-" });
            assert_eq!(told(ACCEPT_RANGES) == "bytes", matches!(status, 200 | 206));
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let body = str::from_utf8(&body).unwrap();
            assert_eq!(format!("{status} {body} {range} {length}"), expected, "{path} {header:?}");
        }
    }

    #[tokio::test]
    async fn services_and_files_are_asked_for_where_that_is_enabled() {
        let mut world = World::new();
        fs::write(world.log("own.log"), "own\n").unwrap();
        assert!(world.get("/logs/?query=kubelet").await.starts_with("200 <!doctype html>"));
        world.settings.has_query = true;
        for (path, expected) in [
            ("/logs/?query=kubelet", "200 zipped journal\n"),
            ("/logs/?query=own", "200 zipped own\n"),
            ("/logs/?query=/own.log", "200 own\n"),
            ("/logs/own.log", "200 own\n"),
            ("/logs/pods/?query=kubelet", "406 path not allowed in query mode\n"),
            ("/logs/?query=", "400 query: Invalid value: [\"\"]: may not be empty\n"),
            (
                "/logs/?query=../secret",
                "406 query: Invalid value: [\"../secret\"]: statat ../secret: no such file or directory\n",
            ),
            ("/logs/?query=kubelet&boot=1", "406 boot: Invalid value: 1: must be less than 1\n"),
        ] {
            assert_eq!(world.get(path).await, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn nothing_is_shown_where_that_is_not_enabled() {
        let mut world = World::new();
        world.settings.is_enabled = false;
        for path in ["/logs/", "/logs/pods", "/logs/?query=kubelet"] {
            assert_eq!(world.get(path).await, "405 logs endpoint is disabled.\n");
        }
    }

    #[test]
    fn nothing_is_called_what_a_browser_would_run() {
        assert_eq!(content_type(b"<html><script>"), "text/plain; charset=utf-8");
        assert_eq!(content_type(b"\x1f\x8b\x08rest"), "application/x-gzip");
        assert_eq!(content_type(b"a\0b"), "application/octet-stream");
        assert_eq!(content_type(b""), "text/plain; charset=utf-8");
    }
}
