//! `/flagz` and `/statusz`: the flags and the state of the process, for a person who looks for a fault.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, WARNING};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use crablet_host::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::accept::{self, Accepted, Version};
use crate::respond::plain;

const COMPONENT: &str = "kubelet";
const WARNS: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                     guarantees and is for debugging purposes only.";

/// Every flag with its value, in order.
pub type Flags = Arc<[(&'static str, Cow<'static, str>)]>;

/// `/flagz`.
pub(crate) fn flagz_router(flags: Flags) -> Router {
    Router::new().route("/flagz", any(flagz)).with_state(flags)
}

async fn flagz(State(flags): State<Flags>, headers: HeaderMap) -> Response {
    respond(
        "Flagz",
        &headers,
        || flags_as_text(&flags),
        || {
            let flags: BTreeMap<&str, &str> = flags.iter().map(|(name, value)| (*name, &**value)).collect();
            json!({ "flags": flags })
        },
    )
}

fn flags_as_text(flags: &Flags) -> String {
    let mut text = format!("\n{COMPONENT} flagz\n{WARNS}\n");
    for (name, value) in flags.iter() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// What `/statusz` tells of the process.
#[derive(Clone)]
pub struct Status {
    pub clock: Clock,
    pub started_at: Timestamp,
    /// The version of Kubernetes, as `1.36.4`.
    pub version: &'static str,
    /// The parts of the API that are named, in order.
    pub(crate) paths: Arc<[&'static str]>,
}

impl Status {
    pub fn new(clock: Clock, started_at: Timestamp, version: &'static str) -> Status {
        Status { clock, started_at, version, paths: Arc::default() }
    }

    /// There is no such thing here; the field has to be.
    const GO_VERSION: &str = "none";

    fn emulated(&self) -> &'static str {
        self.version.rsplit_once('.').map_or(self.version, |(minor, _)| minor)
    }

    fn up(&self) -> i64 {
        self.clock.now().duration_since(self.started_at).as_secs().max(0)
    }

    fn as_text(&self) -> String {
        let up = self.up();
        let started = self.started_at.strftime("%a %b %e %H:%M:%S UTC %Y");
        format!(
            "\n{COMPONENT} statusz\n{WARNS}\n\nStarted= {started}\nUp= {} hr {:02} min {:02} sec\nGo version= {}\n\
             Binary version= {}\nEmulation version= {}\nPaths= {}\n",
            up / 3600,
            up / 60 % 60,
            up % 60,
            Status::GO_VERSION,
            self.version,
            self.emulated(),
            self.paths.join(" "),
        )
    }

    fn as_fields(&self) -> Value {
        json!({
            "startTime": self.started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": self.up(),
            "goVersion": Status::GO_VERSION,
            "binaryVersion": self.version,
            "emulationVersion": self.emulated(),
            "paths": *self.paths,
        })
    }
}

/// `/statusz`.
pub(crate) fn statusz_router(status: Status) -> Router {
    Router::new().route("/statusz", any(statusz)).with_state(status)
}

async fn statusz(State(status): State<Status>, headers: HeaderMap) -> Response {
    respond("Statusz", &headers, || status.as_text(), || status.as_fields())
}

/// The answer in the form that is accepted: text for a person; fields where their kind and version are named.
fn respond(
    kind: &str,
    headers: &HeaderMap,
    text: impl FnOnce() -> String,
    fields: impl FnOnce() -> Value,
) -> Response {
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (version, content_type) = match accept::negotiate(accepts, kind) {
        Some(Accepted::Text) => return plain(StatusCode::OK, text()),
        Some(Accepted::Json(version)) => (version, "application/json"),
        Some(Accepted::Yaml(version)) => (version, "application/yaml"),
        None => return not_acceptable(),
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("config.k8s.io/{}", version.name()),
        "metadata": {"name": COMPONENT},
    });
    if let (Value::Object(object), Value::Object(mut fields)) = (&mut object, fields()) {
        object.append(&mut fields);
    }
    // JSON is YAML too.
    let mut response = ([(CONTENT_TYPE, content_type)], format!("{object}\n")).into_response();
    if version == Version::V1Alpha1 {
        let path = kind.to_ascii_lowercase();
        let warning = format!(
            "299 - \"This version of the {path} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = warning.parse() {
            response.headers_mut().insert(WARNING, warning);
        }
    }
    response
}

fn not_acceptable() -> Response {
    let status = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \
                  \"message\": \"only the following media types are accepted: application/json, application/yaml, \
                  text/plain\",\n  \"reason\": \"NotAcceptable\",\n  \"code\": 406\n}";
    (StatusCode::NOT_ACCEPTABLE, [(CONTENT_TYPE, "application/json")], status).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    fn flags() -> Flags {
        let flags: [(&str, Cow<'static, str>); 2] = [("address", "0.0.0.0".into()), ("v", "4".into())];
        flags.into()
    }

    fn status() -> Status {
        let clock = Clock::simulated("2026-11-15T17:24:29Z".parse().unwrap());
        let mut status = Status::new(clock, "2026-11-15T17:13:38Z".parse().unwrap(), "1.36.4");
        status.paths = ["/configz", "/debug", "/flagz", "/healthz", "/metrics"].into();
        status
    }

    fn recorded(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[tokio::test]
    async fn the_state_of_the_process_is_told_as_recorded() {
        let recorded = recorded(include_str!("../tests/data/golden/answers/statusz.json"));
        let expected = recorded["body"].as_str().unwrap().replace("go1.26.6", "none");
        let server = Server::start(statusz_router(status())).await;
        let answer = server.get("/statusz").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, expected.as_str()));
        assert!(answer.head.contains("content-type: text/plain; charset=utf-8\r\n"), "{}", answer.head);
    }

    #[tokio::test]
    async fn flags_are_told_as_text_unless_their_kind_is_asked_for() {
        let server = Server::start(flagz_router(flags())).await;
        let answer = server.get("/flagz").await;
        let expected = format!("\nkubelet flagz\n{WARNS}\naddress=0.0.0.0\nv=4\n");
        assert_eq!((answer.status, &answer.body), (200, &expected));
        let any = server.send("GET", "/flagz", &["Accept: */*"]).await;
        assert_eq!((any.status, any.body), (200, expected));

        let recorded = recorded(include_str!("../tests/data/golden/answers/flagz-accept.json"));
        let refused = server.send("GET", "/flagz", &["Accept: application/json"]).await;
        assert_eq!(refused.status, recorded["status"]);
        assert_eq!(refused.body, recorded["body"].as_str().unwrap());

        let accept = "Accept: application/json;as=Flagz;v=v1alpha1;g=config.k8s.io";
        let fields = server.send("GET", "/flagz", &[accept]).await;
        assert_eq!(fields.status, 200);
        assert!(
            fields.head.contains("warning: 299 - \"This version of the flagz endpoint"),
            "{}",
            fields.head
        );
        assert_eq!(
            serde_json::from_str::<Value>(&fields.body).unwrap(),
            json!({
                "kind": "Flagz", "apiVersion": "config.k8s.io/v1alpha1", "metadata": {"name": "kubelet"},
                "flags": {"address": "0.0.0.0", "v": "4"},
            })
        );
    }

    #[tokio::test]
    async fn the_state_has_fields_for_programs() {
        let server = Server::start(statusz_router(status())).await;
        let accept = "Accept: application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io";
        let answer = server.send("GET", "/statusz", &[accept]).await;
        assert!(answer.head.contains("content-type: application/yaml\r\n"), "{}", answer.head);
        assert!(!answer.head.contains("warning"), "{}", answer.head);
        let fields: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (&fields["uptimeSeconds"], &fields["startTime"]),
            (&json!(651), &json!("2026-11-15T17:13:38Z"))
        );
        assert_eq!(fields["paths"], json!(["/configz", "/debug", "/flagz", "/healthz", "/metrics"]));
    }
}
