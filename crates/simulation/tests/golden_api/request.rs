//! Requests, recorded ones and ours.

use crablet_simulation::api_server::Asked;
use http::Method;
use serde_json::Value as Json;

use crate::words::{plain, plain_text};

/// A request, with words in place of what differs from run to run.
#[derive(Debug, Clone)]
pub struct Request {
    pub verb: Verb,
    /// Such as `pods` or `leases`.
    pub resource: String,
    /// Empty of a collection.
    pub name: String,
    /// Such as `status`; empty of the object itself.
    pub subresource: String,
    /// Which of a collection are asked for.
    pub selector: String,
    pub code: u16,
    pub body: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// By a get, a list or a watch.
    Read,
    Create,
    Update,
    Patch,
    Delete,
}

/// The requests of a recording.
pub fn recorded(recording: &Json) -> Vec<Request> {
    let requests = recording.as_array().unwrap().iter();
    requests
        .map(|request| {
            let verb = match request["verb"].as_str().unwrap() {
                "get" | "list" | "watch" => Verb::Read,
                "create" => Verb::Create,
                "update" => Verb::Update,
                "patch" => Verb::Patch,
                "delete" | "deletecollection" => Verb::Delete,
                other => panic!("no use for {other}"),
            };
            let code = u16::try_from(request["code"].as_u64().unwrap()).unwrap();
            Request::new(verb, request["uri"].as_str().unwrap(), code, &request["body"])
        })
        .collect()
}

/// What nodes asked of a server.
pub fn ours(asked: &[Asked]) -> Vec<Request> {
    asked
        .iter()
        .map(|asked| {
            let verb = match asked.method {
                Method::GET => Verb::Read,
                Method::POST => Verb::Create,
                Method::PUT => Verb::Update,
                Method::PATCH => Verb::Patch,
                Method::DELETE => Verb::Delete,
                ref other => panic!("no use for {other}"),
            };
            let body = match asked.body.as_slice() {
                [] => Json::Null,
                body => serde_json::from_slice(body).unwrap(),
            };
            Request::new(verb, &asked.path, asked.code.unwrap_or_default(), &body)
        })
        .collect()
}

impl Request {
    fn new(verb: Verb, uri: &str, code: u16, body: &Json) -> Request {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let words: Vec<&str> = path.split('/').skip(1).collect();
        // The group and its version.
        let words = if words[0] == "api" { &words[2..] } else { &words[3..] };
        let words = if words[0] == "namespaces" && words.len() > 2 { &words[2..] } else { words };
        let word = |index: usize| plain_text(words.get(index).copied().unwrap_or_default());
        let (resource, name, subresource) = (word(0), word(1), word(2));
        let selector = query.split('&').find_map(|part| part.strip_prefix("fieldSelector="));
        let selector = match (selector, name.as_str()) {
            (Some(selector), _) => plain_text(&selector.replace("%3D", "=").replace("%21", "!")),
            (None, "") => String::new(),
            (None, name) => format!("metadata.name={name}"),
        };
        Request { verb, resource, name, subresource, selector, code, body: plain(body) }
    }

    pub fn is_refused(&self) -> bool {
        self.code >= 300
    }
}
