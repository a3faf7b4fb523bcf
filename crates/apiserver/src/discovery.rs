//! What there is besides objects: groups, versions and kinds; health, version and OpenAPI.
//!
//! [`kinds`] says what is served, [`documents`] in which shape a client is told of it, [`health`] how the server is.

mod documents;
mod health;
mod kinds;

use http::Method;
use jiff::{Span, Timestamp};
use serde_json::{Value, json};

use crate::accept::{self, Conversion};
use crate::answer::{Document, Keeping};
use crate::cluster::{Cluster, Settings};
use crate::request::{Query, Request};
use crate::schema::openapi;
use crate::status::Refusal;

/// What a client must be told that it gets, or it does not take it for what it asked for.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer to a path that is no object's; none if nothing is there, though it could be: within a group that is
/// served. The keys of service accounts are asked before.
pub(crate) fn answer(
    cluster: &Cluster,
    request: &Request,
    now: Timestamp,
) -> Result<Option<Document>, Refusal> {
    let settings = &cluster.settings;
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [""] => json(request, &documents::index()),
        [check @ ("healthz" | "livez" | "readyz"), rest @ ..] => {
            Ok(Some(health::answer(check, &rest.join("/"), &Query::parse(&request.query))))
        }
        ["version"] => {
            only_get(request)?;
            let version = serde_json::to_vec_pretty(&version(settings)).unwrap_or_default();
            Ok(Some(Document::encoded(200, version)))
        }
        ["api"] => {
            only_get(request)?;
            match wants_aggregated(request) {
                true => aggregated(&documents::aggregated(&kinds::GROUPS[..1])),
                false => json(request, &documents::core_versions(&settings.address)),
            }
        }
        ["api", "v1"] => {
            only_get(request)?;
            json(request, &documents::resources("", "v1"))
        }
        ["apis"] => match wants_aggregated(request) {
            true => aggregated(&documents::aggregated(&kinds::GROUPS[1..])),
            false => json(request, &documents::groups(&kinds::GROUPS[1..])),
        },
        ["apis", name] if let Some(group) = kinds::group(name) => json(request, &documents::group(group)),
        ["apis", name, version]
            if kinds::group(name).is_some_and(|group| group.versions.contains(version)) =>
        {
            only_get(request)?;
            json(request, &documents::resources(name, version))
        }
        ["openapi", "v2"] if wants_protobuf(request) => {
            only_get(request)?;
            let content_type = openapi::protobuf::CONTENT_TYPE;
            Ok(Some(Document { content_type, ..Document::encoded(200, openapi::v2_protobuf()) }))
        }
        ["openapi", ..] => match openapi::document(&request.path) {
            Some(document) => {
                only_get(request)?;
                Ok(json(request, &document)?.map(|document| kept(document, request, now)))
            }
            None => Ok(Some(Document::text(404, "404 page not found\n"))),
        },
        ["api" | "version", ..] => Ok(None),
        ["apis", name, ..] if kinds::group(name).is_some() => Ok(None),
        _ => Ok(Some(Document::text(404, "404 page not found\n"))),
    }
}

fn only_get(request: &Request) -> Result<(), Refusal> {
    match request.method == Method::GET {
        true => Ok(()),
        false => Err(Refusal::no_such_method()),
    }
}

/// Whether everything is wanted in one document.
fn wants_aggregated(request: &Request) -> bool {
    let wanted = Conversion { kind: "APIGroupDiscoveryList", group: "apidiscovery.k8s.io", version: "v2" };
    let mut clauses = accept::clauses(&request.accept).into_iter();
    clauses.any(|clause| clause.takes_json() && clause.conversion() == Some(wanted))
}

/// Whether OpenAPI is wanted as protobuf, rather than as JSON.
fn wants_protobuf(request: &Request) -> bool {
    let mut wanted =
        request.accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    let first = wanted.next().unwrap_or_default();
    [openapi::protobuf::CONTENT_TYPE, openapi::protobuf::OLD_CONTENT_TYPE].contains(&first)
}

fn aggregated(body: &Value) -> Result<Option<Document>, Refusal> {
    let document = Document::json(200, body);
    let keeping = Keeping { etag: openapi::digest(&document.body), control: Some("public"), expires: None };
    Ok(Some(Document { content_type: AGGREGATED, keeping: Some(keeping), ..document }))
}

/// A part of OpenAPI, which whoever asks for it by the name that it has now never asks for again; whoever has an old
/// name is told the new one.
fn kept(document: Document, request: &Request, now: Timestamp) -> Document {
    let root = request.path.trim_matches('/').strip_prefix("openapi/v3/");
    let etag = match root {
        Some(_) => openapi::hash(),
        None => openapi::digest(&document.body),
    };
    let query = Query::parse(&request.query);
    let keeping = match (root, query.text("hash")) {
        (None, _) | (Some(_), "") => Keeping { etag, control: None, expires: None },
        (Some(_), said) if said == etag => Keeping {
            etag,
            control: Some("public, immutable"),
            expires: Some(now.saturating_add(365 * Span::new().hours(24)).unwrap_or(now)),
        },
        (Some(root), _) => {
            let location = format!("/openapi/v3/{root}?hash={etag}");
            let body = format!("<a href=\"{location}\">Moved Permanently</a>.\n\n");
            return Document {
                content_type: "text/html; charset=utf-8",
                location: Some(location),
                ..Document::text(301, &body)
            };
        }
    };
    Document { keeping: Some(keeping), ..document }
}

fn json(request: &Request, body: &Value) -> Result<Option<Document>, Refusal> {
    let clauses = accept::clauses(&request.accept);
    match clauses.iter().any(|clause| clause.takes_json() && clause.conversion().is_none()) {
        true => Ok(Some(Document::json(200, body))),
        false => Err(Refusal::not_acceptable(&["application/json"])),
    }
}

fn version(settings: &Settings) -> Value {
    let mut numbers = settings.git_version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let previous = minor.parse().map(|minor: u32| minor.saturating_sub(1).to_string()).unwrap_or_default();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": previous,
        "gitVersion": settings.git_version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "rust",
        "compiler": "rustc",
        "platform": format!("{}/{architecture}", std::env::consts::OS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, JSON};
    use crate::state::State;
    use crate::who::User;

    /// What kubectl 1.36 asks with.
    const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

    fn ask(method: Method, path: &str, accept: &str) -> Document {
        let settings = Settings { address: "127.0.0.1:6443".to_owned(), ..Settings::default() };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            accept: accept.to_owned(),
            content_type: String::new(),
            user: User::new("admin", &["system:masters"]),
            body: Vec::new(),
        };
        let mut cluster = Cluster::new(State::default(), settings, 1);
        match cluster.handle(&request, "2026-01-01T00:00:00Z".parse().unwrap()) {
            Answer::Document(document) => document,
            other => panic!("{other:?}"),
        }
    }

    fn get(path: &str, accept: &str) -> (u16, &'static str, String) {
        let document = ask(Method::GET, path, accept);
        (document.code, document.content_type, String::from_utf8(document.body).unwrap())
    }

    fn kind(path: &str, accept: &str) -> (String, String) {
        let body: Value = serde_json::from_str(&get(path, accept).2).unwrap();
        let said = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
        (said("kind"), said("apiVersion"))
    }

    #[test]
    fn documents_are_of_the_kinds_and_versions_that_upstream_gives_them() {
        for (path, accept, expected, version) in [
            ("/api", "", "APIVersions", ""),
            ("/api/", "*/*", "APIVersions", ""),
            ("/api/v1", "application/json", "APIResourceList", ""),
            ("/apis", "", "APIGroupList", "v1"),
            ("/apis/storage.k8s.io", "", "APIGroup", "v1"),
            ("/apis/storage.k8s.io/v1", "", "APIResourceList", "v1"),
            ("/api", KUBECTL, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"),
            ("/apis", KUBECTL, "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"),
            ("/apis/storage.k8s.io/v1", KUBECTL, "APIResourceList", "v1"),
        ] {
            assert_eq!(kind(path, accept), (expected.to_owned(), version.to_owned()), "{path} {accept}");
        }
        assert_eq!(get("/api", KUBECTL).1, AGGREGATED);
        assert_eq!(get("/api", "").1, JSON);
    }

    #[test]
    fn what_is_not_there_is_not_found_as_upstream_says_it() {
        let status = |code: u16, reason: &str, message: &str| {
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "details": {}, "code": code,
            });
            (code, JSON, body.to_string())
        };
        let missing = || status(404, "NotFound", "the server could not find the requested resource");
        let text = || (404, "text/plain; charset=utf-8", "404 page not found\n".to_owned());
        for (path, expected) in [
            ("/api/v2", missing()),
            ("/api/v1/nonsense", missing()),
            ("/api/v1/namespaces/default/deployments", missing()),
            ("/apis/storage.k8s.io/v7", missing()),
            ("/apis/storage.k8s.io/v1/nonsense", missing()),
            ("/version/x", missing()),
            ("/apis/apps/v1", text()),
            ("/apis/apps/v1/deployments", text()),
            ("/apis/apps", text()),
            ("/nonsense", text()),
            ("/readyz/nonsense", text()),
        ] {
            assert_eq!(get(path, ""), expected, "{path}");
        }
        for path in ["/api", "/api/v1", "/apis/storage.k8s.io/v1", "/version"] {
            let document = ask(Method::POST, path, "");
            let body = String::from_utf8(document.body).unwrap();
            let message = "the server does not allow this method on the requested resource";
            assert_eq!((document.code, JSON, body), status(405, "MethodNotAllowed", message), "{path}");
        }
    }

    #[test]
    fn who_does_not_take_json_gets_nothing() {
        for accept in ["text/html", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
            assert_eq!(get("/apis", accept).0, 406, "{accept}");
        }
    }

    #[test]
    fn the_version_is_the_one_whose_api_is_served() {
        let version: Value = serde_json::from_str(&get("/version", "").2).unwrap();
        let shown = ["major", "minor", "gitVersion", "minCompatibilityMinor"].map(|field| &version[field]);
        assert_eq!(shown, ["1", "36", "v1.36.4", "35"]);
    }

    #[test]
    fn health_can_be_asked_in_full_and_in_part() {
        let text = "text/plain; charset=utf-8";
        for (path, expected) in [
            ("/healthz", "ok"),
            ("/readyz/ping", "ok"),
            ("/livez?verbose", "[+]ping ok\nlivez check passed\n"),
            ("/readyz?verbose&exclude=ping", "[+]ping excluded: ok\nreadyz check passed\n"),
            (
                "/healthz?verbose=true&exclude=etcd",
                "[+]ping ok\nwarn: some health checks cannot be excluded: no matches for \"etcd\"\nhealthz check passed\n",
            ),
        ] {
            assert_eq!(get(path, ""), (200, text, expected.to_owned()), "{path}");
        }
    }
}
