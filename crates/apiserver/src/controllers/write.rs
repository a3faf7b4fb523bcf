//! How controllers write: on the way of everybody's requests, as an admin.

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::resource_of;
use crate::cluster::delete::DeleteOptions;
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::request::{Query, Request, Target, Verb};
use crate::resources::{EVENTS, Resource};
use crate::rules;
use crate::state::Key;
use crate::who::{MASTERS, User};

/// What is told about an object.
pub(super) struct Told<'t> {
    pub(super) component: &'t str,
    pub(super) kind: EventType,
    pub(super) reason: &'t str,
    /// What was done, for events of the newer form; empty for the older one.
    pub(super) action: &'t str,
    pub(super) message: &'t str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventType {
    Normal,
    Warning,
}

fn request() -> Request {
    Request {
        method: Method::POST,
        path: String::new(),
        query: String::new(),
        accept: String::new(),
        content_type: String::new(),
        user: User::new("system:kube-controller-manager", &[MASTERS]),
        body: Vec::new(),
    }
}

fn call<'r>(
    request: &'r Request,
    resource: &'static Resource,
    namespace: &str,
    name: &str,
    verb: Verb,
    now: Timestamp,
) -> Call<'r> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let target = Target { resource, namespace, name, subresource: None, rest: String::new() };
    Call { request, target, query: Query::default(), verb, now, warnings: Vec::new() }
}

impl Cluster {
    /// Creates an object of the cluster's own; what has come of it, or none if something was against it.
    pub(super) fn create_own(
        &mut self,
        resource: &'static Resource,
        mut object: Value,
        now: Timestamp,
    ) -> Option<Value> {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let request = request();
        let mut call = call(&request, resource, object::namespace(&object), "", Verb::Create, now);
        match self.create_object(&mut call, object) {
            Ok(created) => Some(created),
            Err(refusal) if refusal.reason == "AlreadyExists" => None,
            Err(refusal) => {
                tracing::warn!(
                    kind = resource.kind,
                    "the cluster's own object was refused: {}",
                    refusal.message
                );
                None
            }
        }
    }

    /// Writes a new form of an object; one that was only kept by what it no longer has goes.
    pub(super) fn update_own(&mut self, resource: &'static Resource, object: Value) {
        let key = Key::new(resource, object::namespace(&object), object::name(&object));
        let goes = object::is_being_deleted(&object) && rules::of(resource).is_deletable(&object);
        self.state.put(resource, object);
        if goes {
            self.state.remove(resource, &key);
        }
    }

    /// Deletes an object as somebody would who says no more than how long it may take.
    pub(super) fn delete_own(&mut self, key: &Key, options: &DeleteOptions, now: Timestamp) {
        let Some(resource) = resource_of(key.resource) else { return };
        let request = request();
        let mut call = call(&request, resource, &key.namespace, &key.name, Verb::Delete, now);
        match self.delete_one(&mut call, options) {
            Err(refusal) if refusal.code != 404 => {
                tracing::warn!(kind = resource.kind, name = %key.name, "could not be deleted: {}", refusal.message);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Tells something of an object as an event. The same again only counts.
    pub(super) fn tell(
        &mut self,
        resource: &'static Resource,
        about: &Value,
        told: &Told<'_>,
        now: Timestamp,
    ) {
        let namespace = event_namespace(about);
        let uid = object::uid(about);
        let name = event_name(about, told);
        if let Some(mut event) = self.state.read(&EVENTS, namespace, &name) {
            event["count"] = (event["count"].as_i64().unwrap_or(1) + 1).into();
            event["lastTimestamp"] = object::time(now);
            self.state.put(&EVENTS, event);
            return;
        }
        let kind = match told.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let mut event = json!({
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": resource.kind,
                "apiVersion": resource.api_version(),
                "name": object::name(about),
                "uid": uid,
                "resourceVersion": object::meta(about, "resourceVersion"),
            },
            "reason": told.reason,
            "message": told.message,
            "source": {"component": told.component},
            "firstTimestamp": object::time(now),
            "lastTimestamp": object::time(now),
            "count": 1,
            "type": kind,
            "eventTime": null,
            "reportingComponent": told.component,
            "reportingInstance": "",
        });
        if !object::namespace(about).is_empty() {
            event["involvedObject"]["namespace"] = namespace.into();
        }
        if !told.action.is_empty() {
            event["action"] = told.action.into();
        }
        self.create_own(&EVENTS, event, now);
    }

    /// Whether an event says something of an object already.
    pub(super) fn has_told(&self, about: &Value, told: &Told<'_>) -> bool {
        let key = Key::new(&EVENTS, event_namespace(about), &event_name(about, told));
        self.state.get(&key).is_some()
    }
}

/// Events of what is in no namespace are in the default one.
fn event_namespace(about: &Value) -> &str {
    match object::namespace(about) {
        "" => "default",
        namespace => namespace,
    }
}

/// One name for one story, so that telling it again finds the first time.
fn event_name(about: &Value, told: &Told<'_>) -> String {
    let story = format!("{}\0{}\0{}\0{}", object::uid(about), told.component, told.reason, told.message);
    let digest = Sha256::digest(story.as_bytes());
    let suffix: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let base: String = object::name(about).chars().take(200).collect();
    format!("{base}.{suffix}")
}
