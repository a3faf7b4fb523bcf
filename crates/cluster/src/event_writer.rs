//! Tells the API server what happens: events, each created once and then counted. Nobody waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::recorder::{Event as Recorded, EventQueue, EventType, InvolvedObject};
use crablet_api::core::{Event, EventSource, EventType as ApiEventType, ObjectReference};
use crablet_api::meta::Time;
use crablet_api::{Text, dns1123_subdomain_errors};
use crablet_client::{Client, Error, PatchType, Priority};
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::retry::Backoff;

/// Who tells, as upstream says it.
const COMPONENT: &str = "kubelet";
/// Where events about nodes are: a node has no namespace.
const NAMESPACE_OF_NODES: &str = "default";
/// How often an event is tried before it is given up, as upstream.
const TRIES: usize = 12;
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Of how many events it is known that the server has them.
const KNOWN: usize = 4096;

/// Writes events.
pub struct EventWriter {
    client: Client,
    queue: EventQueue,
    node: Text,
    /// The names of events that the server has, the latest last.
    known: VecDeque<(Text, Text)>,
}

impl EventWriter {
    pub fn new(client: Client, queue: EventQueue, node: Text) -> EventWriter {
        EventWriter { client: client.with_priority(Priority::Low), queue, node, known: VecDeque::new() }
    }

    /// Writes events as they come, for ever.
    pub async fn run(mut self) {
        loop {
            let event = self.queue.next().await;
            self.write(&event).await;
        }
    }

    async fn write(&mut self, event: &Arc<Recorded>) {
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let object = to_api(event, &self.node);
        let key = (object.metadata.namespace.clone(), object.metadata.name.clone());
        for _ in 0..TRIES {
            match self.try_to_write(&object, &key).await {
                Ok(()) => {
                    self.remember(key);
                    return;
                }
                // As upstream: what the server does not take now it will not take later.
                Err(error) if !error.is_passing() => {
                    let in_one_that_ends = error.is_forbidden() || error.is_not_found();
                    match in_one_that_ends {
                        true => {
                            debug!(%error, event = %object.metadata.name, "The API server does not take an event")
                        }
                        false => {
                            warn!(%error, event = %object.metadata.name, "The API server does not take an event")
                        }
                    }
                    return;
                }
                Err(error) => {
                    let wait = backoff.after(&error);
                    debug!(%error, ?wait, "Cannot write an event; trying again");
                    sleep(wait).await;
                }
            }
        }
        warn!(event = %object.metadata.name, "Gave up writing an event");
    }

    async fn try_to_write(&mut self, object: &Event, key: &(Text, Text)) -> Result<(), Error> {
        if object.count > 1 && self.known.contains(key) {
            let patch = json!({
                "count": object.count,
                "lastTimestamp": object.last_timestamp,
                "message": object.message,
            });
            let patch = patch.to_string().into_bytes();
            let patched = self.client.patch::<Event>(&key.0, &key.1, "", PatchType::StrategicMerge, patch);
            match patched.await {
                Err(error) if error.is_not_found() => {}
                other => return other.map(drop),
            }
        }
        match self.client.create(object).await {
            // One that was created, and whose answer was lost.
            Err(error) if error.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    }

    fn remember(&mut self, key: (Text, Text)) {
        if self.known.contains(&key) {
            return;
        }
        if self.known.len() >= KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(key);
    }
}

/// An event as the API has it.
fn to_api(event: &Recorded, node: &Text) -> Event {
    let involved_object = match &event.involved.object {
        InvolvedObject::Pod(pod) => ObjectReference {
            kind: "Pod".into(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            api_version: "v1".into(),
            resource_version: event.involved.version.clone(),
            field_path: event.involved.field_path.clone(),
        },
        InvolvedObject::Claim { namespace, name, uid } => ObjectReference {
            kind: "PersistentVolumeClaim".into(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            api_version: "v1".into(),
            resource_version: event.involved.version.clone(),
            field_path: event.involved.field_path.clone(),
        },
        InvolvedObject::Node(name) => ObjectReference {
            kind: "Node".into(),
            name: name.clone(),
            api_version: "v1".into(),
            ..ObjectReference::default()
        },
    };
    let namespace = match involved_object.namespace.is_empty() {
        true => NAMESPACE_OF_NODES.into(),
        false => involved_object.namespace.clone(),
    };
    let mut object = Event {
        reason: event.reason.clone(),
        message: event.message.clone(),
        source: EventSource { component: COMPONENT.into(), host: node.clone() },
        first_timestamp: Some(time(event.first)),
        last_timestamp: Some(time(event.last)),
        count: i32::try_from(event.count).unwrap_or(i32::MAX),
        r#type: Some(match event.event_type {
            EventType::Normal => ApiEventType::Normal,
            EventType::Warning => ApiEventType::Warning,
        }),
        reporting_component: COMPONENT.into(),
        reporting_instance: node.clone(),
        ..Event::default()
    };
    object.metadata.name = event_name(&involved_object.name, event.first);
    object.metadata.namespace = namespace;
    object.metadata.annotations = event.annotations.clone();
    object.involved_object = involved_object;
    object
}

/// The moment it happened first is part of its name, by which it is found again when it is counted. Where that is no name,
/// most of all because the pod's is long, a digest of it in the form of a UUID stands in.
fn event_name(involved: &str, first: Timestamp) -> Text {
    let name = format!("{involved}.{:x}", first.as_nanosecond());
    if dns1123_subdomain_errors(&name).is_empty() {
        return name.into();
    }
    let digest: String = Sha256::digest(name).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = digest.split_at(8);
    let (second, rest) = rest.split_at(4);
    let (third, rest) = rest.split_at(4);
    let (fourth, fifth) = rest.split_at(4);
    format!("{first}-{second}-{third}-{fourth}-{fifth}").into()
}

fn time(at: Timestamp) -> Time {
    Time::from_unix_seconds(at.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_name_that_the_server_takes_however_long_its_pods_is() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(event_name("web", at(16)), "web.3b9aca000");
        let (long, longer) = ("a".repeat(240), "a".repeat(253));
        assert!(event_name(&long, at(16)).starts_with(&long));
        let name = event_name(&longer, at(16));
        let lengths: Vec<usize> = name.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(event_name(&longer, at(16)), name, "it is found again when it is counted");
        assert_ne!(event_name(&longer, at(17)), name);
    }
}
