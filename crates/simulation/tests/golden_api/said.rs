//! What requests mean: what whoever looks at the API server sees of them.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::request::{Request, Verb};

/// What was said to an API server.
#[derive(Debug, Default)]
pub struct Said {
    /// The statuses that writes left an object with, in order. One that is made anew under its name is another one.
    pub statuses: BTreeMap<String, Vec<Json>>,
    /// What was made, by resource, in order.
    pub created: Json,
    /// What leases were replaced by; the same counts once.
    pub renewed: Vec<Json>,
    pub deleted: Json,
    /// Events, by what they say.
    pub events: Json,
    /// What they say, in order, by what part of what they are about.
    pub order: BTreeMap<String, Vec<String>>,
    /// What was asked for.
    pub read: BTreeSet<String>,
    /// How many requests it took, beside those that say that the node is alive.
    pub requests: usize,
    /// Writes that left a pod as it was.
    pub vain: Vec<Json>,
    /// Writes that the server did not do.
    pub refused: Vec<Json>,
}

impl Said {
    pub fn from(requests: &[Request]) -> Said {
        let mut teller = Teller::default();
        requests.iter().for_each(|request| teller.take(request));
        teller.said.requests = requests.iter().filter(|request| request.resource != "leases").count();
        let Teller { mut said, created, renewed, deleted, events, .. } = teller;
        said.created = json!(created);
        said.renewed = renewed;
        said.deleted = json!(deleted);
        said.events = json!(events);
        said
    }
}

#[derive(Default)]
struct Teller {
    said: Said,
    created: BTreeMap<String, Vec<Json>>,
    renewed: Vec<Json>,
    deleted: Vec<Json>,
    events: BTreeMap<String, Json>,
    /// How often an object of a name was made.
    generations: BTreeMap<String, usize>,
}

impl Teller {
    fn take(&mut self, request: &Request) {
        let Request { verb, resource, subresource, .. } = request;
        if *verb == Verb::Read {
            self.said.read.insert(format!("{resource} {}", request.selector));
            return;
        }
        if request.is_refused() {
            self.said.refused.push(json!(format!("{verb:?} {resource} {}: {}", request.name, request.code)));
            return;
        }
        match (verb, resource.as_str(), subresource.as_str()) {
            (Verb::Create, "events", _) => self.event(&request.body),
            // They are counted, and how often something happens is a matter of timing.
            (Verb::Patch, "events", _) => {}
            (Verb::Create, ..) => self.create(request),
            (Verb::Patch, "pods" | "nodes", "status") => self.patch(request),
            (Verb::Update, "leases", "") => {
                let lease = without_nulls(&request.body);
                if !self.renewed.contains(&lease) {
                    self.renewed.push(lease);
                }
            }
            (Verb::Delete, ..) => {
                let mut options = without_nulls(&request.body);
                if let Some(options) = options.as_object_mut() {
                    options.retain(|name, _| !["kind", "apiVersion"].contains(&name.as_str()));
                }
                let object = format!("{resource} {}{}", request.name, request.selector_of_collection());
                self.deleted.push(json!({"object": object, "options": options}));
            }
            (Verb::Read | Verb::Update | Verb::Patch, ..) => {
                panic!("no use for {verb:?} {resource}/{subresource}")
            }
        }
    }

    fn event(&mut self, body: &Json) {
        let mut event = without_nulls(body);
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let about = &event["involvedObject"];
        let part = format!("{} {} {}", text(&about["kind"]), text(&about["name"]), text(&about["fieldPath"]));
        let key = format!("{part} {}: {}", text(&event["reason"]), text(&event["message"]));
        for name in ["count", "firstTimestamp", "lastTimestamp"] {
            event.as_object_mut().unwrap().remove(name);
        }
        // Who limits cgroups waits for nobody, and nobody for them: when they are done is a matter of chance.
        let has_an_order = !key.contains("NodeAllocatableEnforced");
        if self.events.insert(key.clone(), event).is_none() && has_an_order {
            self.said.order.entry(part).or_default().push(key);
        }
    }

    fn create(&mut self, request: &Request) {
        let Request { resource, subresource, .. } = request;
        let mut object = without_nulls(&request.body);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match (resource.as_str(), subresource.as_str()) {
            ("pods", "") => {
                // What it says of its status, the server does not hear.
                object.as_object_mut().unwrap().remove("status");
                *self.generations.entry(format!("pods {name}")).or_insert(0) += 1;
            }
            ("nodes", "") => {
                object["status"]["conditions"] = by_type(&object["status"]["conditions"]);
                // They are the runtime's.
                object["status"].as_object_mut().unwrap().remove("images");
                let status = object.as_object_mut().unwrap().remove("status").unwrap();
                self.said.statuses.entry(format!("nodes {name}")).or_default().push(status);
            }
            // The recordings only have what it is about.
            (_, "token") => object = object.get("spec").cloned().unwrap_or(object),
            ("certificatesigningrequests", "") => {
                let request = object["spec"]["request"].as_str().unwrap();
                object["spec"]["request"] = signing_request(request).into();
            }
            _ => {}
        }
        let what =
            if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
        self.created.entry(what).or_default().push(object);
    }

    fn patch(&mut self, request: &Request) {
        let Request { resource, name, body, .. } = request;
        let key = format!("{resource} {name}");
        let key = match self.generations.get(&key) {
            Some(generation) => format!("{key} ({generation})"),
            None => key,
        };
        // Only that it is still so.
        if resource == "nodes" && is_heartbeat(&body["status"]) {
            return;
        }
        let history = self.said.statuses.entry(key).or_default();
        let before = history.last().cloned().unwrap_or_else(|| json!({"phase": "Pending"}));
        let mut after = before.clone();
        merge(&mut after, &body["status"]);
        let after = without_nulls(&after);
        if resource == "pods" && after == before {
            self.said.vain.push(body.clone());
        }
        if history.last() != Some(&after) {
            history.push(after);
        }
    }
}

impl Request {
    fn selector_of_collection(&self) -> &str {
        if self.name.is_empty() { &self.selector } else { "" }
    }
}

/// Applies a strategic merge patch to a status. Conditions become a map by their types: their order means nothing.
fn merge(status: &mut Json, patch: &Json) {
    for (name, change) in patch.as_object().into_iter().flatten() {
        match (name.as_str(), change) {
            (name, _) if name.starts_with('$') => {}
            (name, Json::Null) => drop(status.as_object_mut().unwrap().remove(name)),
            ("conditions", change) => merge(&mut status["conditions"], &by_type(change)),
            ("podIPs" | "hostIPs", Json::Array(list)) => {
                let is_directive = |one: &&Json| one.get("$patch").is_some();
                assert!(list.iter().find(is_directive).is_none(), "no use for {change}");
                status[name] = change.clone();
            }
            (name, Json::Object(_)) => {
                if !status[name].is_object() {
                    status[name] = json!({});
                }
                merge(&mut status[name], change);
            }
            (name, change) => status[name] = change.clone(),
        }
    }
}

fn is_heartbeat(patch: &Json) -> bool {
    let fields = patch.as_object().into_iter().flatten();
    let mut told = fields.filter(|(name, _)| !name.starts_with('$'));
    told.all(|(name, conditions)| {
        let mut conditions = conditions.as_array().into_iter().flatten().filter_map(Json::as_object);
        let is_heartbeat = |name: &String| ["type", "lastHeartbeatTime"].contains(&name.as_str());
        name == "conditions" && conditions.all(|condition| condition.keys().all(is_heartbeat))
    })
}

fn by_type(conditions: &Json) -> Json {
    let named = |condition: &Json| {
        let mut condition = condition.clone();
        let kind = condition.as_object_mut().unwrap().remove("type").unwrap();
        (kind.as_str().unwrap().to_owned(), condition)
    };
    Json::Object(conditions.as_array().into_iter().flatten().map(named).collect())
}

/// To a Go program, what is null or an empty list and what is not there are the same.
fn without_nulls(json: &Json) -> Json {
    match json {
        Json::Array(list) => list.iter().map(without_nulls).collect(),
        Json::Object(fields) => {
            let is_empty = |value: &Json| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            let fields = fields.iter().filter(|(_, value)| !is_empty(value));
            Json::Object(
                fields.map(|(name, value)| (name.clone(), without_nulls(value))).collect::<Map<_, _>>(),
            )
        }
        other => other.clone(),
    }
}

/// Whose certificate is asked for: names are in the clear in a request.
fn signing_request(request: &str) -> &'static str {
    let pem = String::from_utf8(STANDARD.decode(request).unwrap()).unwrap();
    let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let request = STANDARD.decode(lines).unwrap();
    let says = |text: &[u8]| request.windows(text.len()).any(|window| window == text);
    assert!(says(b"system:nodes") && says(b"system:node:"), "{pem}");
    "a node's"
}
