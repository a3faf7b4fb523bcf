//! Events of both groups are the same objects: kept as the core's, shown by either group's names.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// A field in the core's event and in the other group's, and how each writes it where it is empty.
struct Field {
    core: (&'static str, Empty),
    events: (&'static str, Empty),
}

/// What is written for a field that is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    LeftOut,
    Null,
    Text,
    Object,
}

use Empty::{LeftOut, Null, Object, Text};

const fn field(core: (&'static str, Empty), events: (&'static str, Empty)) -> Field {
    Field { core, events }
}

const FIELDS: [Field; 15] = [
    field(("metadata", Object), ("metadata", Object)),
    field(("involvedObject", Object), ("regarding", Object)),
    field(("reason", LeftOut), ("reason", LeftOut)),
    field(("message", LeftOut), ("note", LeftOut)),
    field(("source", Object), ("deprecatedSource", Object)),
    field(("firstTimestamp", Null), ("deprecatedFirstTimestamp", Null)),
    field(("lastTimestamp", Null), ("deprecatedLastTimestamp", Null)),
    field(("count", LeftOut), ("deprecatedCount", LeftOut)),
    field(("type", LeftOut), ("type", LeftOut)),
    field(("eventTime", Null), ("eventTime", Null)),
    field(("series", LeftOut), ("series", LeftOut)),
    field(("action", LeftOut), ("action", LeftOut)),
    field(("related", LeftOut), ("related", LeftOut)),
    field(("reportingComponent", Text), ("reportingController", LeftOut)),
    field(("reportingInstance", Text), ("reportingInstance", LeftOut)),
];

/// An object as clients of a resource see it, from the one that is kept.
pub fn shown(resource: &Resource, object: Value) -> Value {
    match resource.storage() == resource {
        true => object,
        false => to_events(object),
    }
}

/// The same of one that is kept on.
pub fn seen<'o>(resource: &Resource, object: &'o Value) -> Cow<'o, Value> {
    match resource.storage() == resource {
        true => Cow::Borrowed(object),
        false => Cow::Owned(to_events(object.clone())),
    }
}

/// An object as it is kept, from the one that a client of a resource sent.
pub fn kept(resource: &Resource, object: Value) -> Value {
    match resource.storage() == resource {
        true => object,
        false => to_core(object),
    }
}

/// The core's event for one of `events.k8s.io`.
pub fn to_core(event: Value) -> Value {
    convert(event, "v1", |field| (field.events, field.core))
}

/// The event of `events.k8s.io` for one of the core.
pub fn to_events(event: Value) -> Value {
    let mut event = convert(event, "events.k8s.io/v1", |field| (field.core, field.events));
    // A series counts in this group even where there is nothing to count.
    if let Some(series) = event.get_mut("series").and_then(Value::as_object_mut) {
        series.entry("count").or_insert_with(|| 0.into());
    }
    event
}

type Sides = ((&'static str, Empty), (&'static str, Empty));

fn convert(mut event: Value, api_version: &str, sides: fn(&Field) -> Sides) -> Value {
    let mut converted = Map::new();
    converted.insert("kind".to_owned(), "Event".into());
    converted.insert("apiVersion".to_owned(), api_version.into());
    for ((from, _), (to, empty)) in FIELDS.iter().map(sides) {
        let value = event.get_mut(from).map(Value::take).unwrap_or_default();
        let is_empty = value.is_null() || value == "" || value == 0;
        let written = match (is_empty, empty) {
            (true, LeftOut) => continue,
            (true, Null) => Value::Null,
            (true, Text) => "".into(),
            (true, Object) => json!({}),
            (false, _) => value,
        };
        converted.insert(to.to_owned(), written);
    }
    Value::Object(converted)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::answer::Answer;
    use crate::cluster::{Cluster, Settings};
    use crate::request::Request;
    use crate::state::State;
    use crate::who::User;

    fn core() -> Value {
        json!({
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "reason": "Started",
            "message": "hello",
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": null,
            "count": 2,
            "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
            "action": "Starting",
            "related": {"kind": "Node", "name": "n1"},
            "reportingComponent": "kubelet",
            "reportingInstance": "n1",
        })
    }

    #[test]
    fn an_event_has_other_names_in_the_other_group() {
        let expected = json!({
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": "a", "namespace": "default"},
            "regarding": {"kind": "Pod", "name": "p"},
            "reason": "Started",
            "note": "hello",
            "deprecatedSource": {"component": "kubelet", "host": "n1"},
            "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedLastTimestamp": null,
            "deprecatedCount": 2,
            "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
            "action": "Starting",
            "related": {"kind": "Node", "name": "n1"},
            "reportingController": "kubelet",
            "reportingInstance": "n1",
        });
        assert_eq!(to_events(core()), expected);
        assert_eq!(to_core(expected), core());
    }

    #[test]
    fn empty_fields_are_written_as_each_group_does() {
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {}, "involvedObject": {}, "source": {},
            "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let events = json!({
            "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {}, "regarding": {},
            "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
            "eventTime": null,
        });
        assert_eq!(to_events(core.clone()), events);
        assert_eq!(to_core(events), core);
        assert_eq!(to_core(json!({})), core);
        assert_eq!(to_core(Value::Null), core);
        let series = to_events(json!({"series": {"lastObservedTime": null}}));
        assert_eq!(series["series"]["count"], 0);
    }

    fn ask(cluster: &mut Cluster, method: &str, path: &str, body: &Value) -> Value {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: String::new(),
            content_type: "application/json".to_owned(),
            user: User::new("admin", &["system:masters"]),
            body: body.to_string().into_bytes(),
        };
        match cluster.handle(&request, "2026-01-01T00:00:00Z".parse().unwrap()) {
            Answer::Document(document) => serde_json::from_slice(&document.body).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_event_that_is_written_by_one_group_is_read_and_changed_by_the_other() {
        const OLD: &str = "/api/v1/namespaces/default/events";
        const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick("2026-01-01T00:00:00Z".parse().unwrap());
        let created = ask(&mut cluster, "POST", OLD, &core());
        assert_eq!((&created["message"], &created["apiVersion"]), (&json!("hello"), &json!("v1")));
        let mut read = ask(&mut cluster, "GET", &format!("{OLD}/a"), &Value::Null);
        assert_eq!((&read["message"], &read["apiVersion"]), (&json!("hello"), &json!("v1")));
        read["message"] = "changed".into();
        ask(&mut cluster, "PUT", &format!("{OLD}/a"), &read);
        let list = ask(&mut cluster, "GET", &format!("{NEW}?fieldSelector=regarding.name=p"), &Value::Null);
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("events.k8s.io/v1")));
        assert_eq!(list["items"][0]["note"], "changed");
        let mut changed = list["items"][0].clone();
        changed["metadata"]["labels"] = json!({"seen": "yes"});
        let changed = ask(&mut cluster, "PUT", &format!("{NEW}/a"), &changed);
        assert_eq!(changed["note"], "changed");
        let read = ask(&mut cluster, "GET", &format!("{OLD}/a"), &Value::Null);
        assert_eq!(
            (&read["metadata"]["labels"]["seen"], &read["involvedObject"]["name"]),
            (&json!("yes"), &json!("p"))
        );
        let missing = ask(&mut cluster, "GET", &format!("{NEW}/b"), &Value::Null);
        assert_eq!(missing["message"], "events \"b\" not found");
    }
}
