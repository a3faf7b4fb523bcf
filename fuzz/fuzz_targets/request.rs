//! Whatever is asked of the API server, it answers; a refusal is a `Status` with its code; and what it has taken can be
//! listed, and written again as it is.
//!
//! A text is `METHOD /path?query`, a line with the content type, and the body.
#![no_main]

use crablet_apiserver::answer::Answer;
use crablet_apiserver::cluster::{Cluster, LARGEST_BODY, Settings};
use crablet_apiserver::request::Request;
use crablet_apiserver::state::State;
use crablet_apiserver::who::User;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let mut text = || lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let (Some(first), Some(content_type)) = (text(), text()) else { return };
    let Some((method, path)) = first.split_once(' ') else { return };
    let body = lines.next().unwrap_or_default();
    if body.len() > LARGEST_BODY || method.parse::<http::Method>().is_err() {
        return;
    }
    let settings = Settings { controllers: false, ..Settings::default() };
    let mut cluster = Cluster::new(State::default(), settings, 1);
    ask(
        &mut cluster,
        "POST",
        "/api/v1/namespaces",
        "application/json",
        br#"{"metadata":{"name":"default"}}"#,
    );
    let account = br#"{"metadata":{"name":"default"}}"#;
    ask(&mut cluster, "POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", account);
    for (path, name) in [("pods", "p"), ("configmaps", "c")] {
        let object = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}"#
        );
        let path = format!("/api/v1/namespaces/default/{path}?fieldValidation=Ignore");
        let (code, body) = ask(&mut cluster, "POST", &path, "application/json", object.as_bytes()).unwrap();
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
    }

    let Some((code, body)) = ask(&mut cluster, method, path, content_type, body) else { return };
    assert!((200..600).contains(&code), "{code}");
    if code >= 400 {
        let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
        // Where nothing could be, and of health, it is said in plain text, as upstream has it.
        let is_text = body.ends_with(b"\n");
        assert!(is_text || refusal["code"] == code, "{code}: {}", String::from_utf8_lossy(&body));
    }
    for kind in ["pods", "configmaps", "secrets", "services"] {
        let listed = ask(&mut cluster, "GET", &format!("/api/v1/{kind}"), "", b"");
        let Some((200, list)) = listed else { panic!("{listed:?}") };
        let list: Value = serde_json::from_slice(&list).unwrap();
        for object in list["items"].as_array().unwrap() {
            let (name, namespace) = (&object["metadata"]["name"], &object["metadata"]["namespace"]);
            let (Some(name), Some(namespace)) = (name.as_str(), namespace.as_str()) else {
                panic!("{object}")
            };
            let path = format!("/api/v1/namespaces/{namespace}/{kind}/{name}");
            let written = serde_json::to_vec(object).unwrap();
            let answer = ask(&mut cluster, "PUT", &path, "application/json", &written);
            assert!(matches!(answer, Some((200, _))), "{object}: {answer:?}");
        }
    }
});

/// The code and the body of an answer; none where it goes on.
fn ask(
    cluster: &mut Cluster,
    method: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> Option<(u16, Vec<u8>)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = Request {
        method: method.parse().ok()?,
        path: path.to_owned(),
        query: query.to_owned(),
        accept: "application/json".to_owned(),
        content_type: content_type.to_owned(),
        user: User::new("admin", &["system:masters", "system:authenticated"]),
        body: body.to_owned(),
    };
    match cluster.handle(&request, NOW) {
        Answer::Document(document) => Some((document.code, document.body)),
        Answer::Watch(mut watch) => {
            // What there is already is told.
            let _ = watch.next(&cluster.state, u64::MAX, NOW);
            None
        }
        Answer::Proxy(_) | Answer::Usage(_) => None,
    }
}
