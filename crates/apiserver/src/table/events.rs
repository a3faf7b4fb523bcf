//! Rows of events, whichever group they are asked for in.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::printer::{Column, Printer, name, text};
use crate::object;

pub(super) static EVENTS: Printer = Printer::new(
    &[
        Column::text("Last Seen"),
        Column::text("Type"),
        Column::text("Reason"),
        Column::text("Object"),
        Column::text("Subobject").wide(),
        Column::text("Source").wide(),
        Column::text("Message"),
        Column::text("First Seen").wide(),
        Column::text("Count").wide(),
        Column::NAME.wide(),
    ],
    event,
);

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let is_said = |time: &Value| age::time(time).is_some();
    let first = match &event["firstTimestamp"] {
        first if is_said(first) => age::since(first, now),
        _ => age::since(&event["eventTime"], now),
    };
    let series = &event["series"];
    let last = match &event["lastTimestamp"] {
        _ if !series.is_null() => age::since(&series["lastObservedTime"], now),
        last if is_said(last) => age::since(last, now),
        _ => first.clone(),
    };
    let count = match event["count"].as_i64().unwrap_or(0) {
        _ if !series.is_null() => series["count"].as_i64().unwrap_or(0),
        // One that was not repeated does not say so in the new API.
        0 => 1,
        count => count,
    };
    let kind = object::text(event, &["involvedObject", "kind"]).to_lowercase();
    let target = match object::text(event, &["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        text(event, &["type"]),
        text(event, &["reason"]),
        target.into(),
        text(event, &["involvedObject", "fieldPath"]),
        event_source(event).into(),
        object::text(event, &["message"]).trim().into(),
        first.into(),
        count.into(),
        name(event),
    ]
}

fn event_source(event: &Value) -> String {
    let either = |old: &str, new: &str| match object::text(event, &["source", old]) {
        "" => object::text(event, &[new]).to_owned(),
        said => said.to_owned(),
    };
    let component = either("component", "reportingComponent");
    match either("host", "reportingInstance").as_str() {
        "" => component,
        host => format!("{component}, {host}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::printer::check::{check, days_ago, now};
    use super::*;

    #[test]
    fn an_event_was_first_and_last_seen_when_any_of_its_times_say_so() {
        let (two, three) = (days_ago(2), days_ago(3));
        for (times, last, first, count) in [
            (json!({"firstTimestamp": three, "lastTimestamp": two, "count": 6}), "2d", "3d", 6),
            (json!({"eventTime": three, "lastTimestamp": three, "count": 1}), "3d", "3d", 1),
            (json!({"eventTime": two, "firstTimestamp": three}), "3d", "3d", 1),
            (json!({"eventTime": three, "count": 1}), "3d", "3d", 1),
            (json!({"eventTime": three, "series": {"count": 2, "lastObservedTime": two}}), "2d", "3d", 2),
            (json!({"eventTime": null, "firstTimestamp": null}), "<unknown>", "<unknown>", 1),
        ] {
            let cells = event(&times, now());
            assert_eq!(
                (&cells[0], &cells[7], &cells[8]),
                (&json!(last), &json!(first), &json!(count)),
                "{times}"
            );
        }
    }

    #[test]
    fn an_event_says_what_it_is_about_and_who_told_it() {
        check(
            &EVENTS,
            json!({
                "metadata": {"name": "event2"},
                "source": {"component": "kubelet", "host": "Node1"},
                "involvedObject": {"kind": "Deployment", "name": "Deployment Name", "fieldPath": "spec.containers{foo}"},
                "reason": "Event Reason",
                "message": " Message Data\n",
                "type": "Warning",
            }),
            json!([
                "<unknown>",
                "Warning",
                "Event Reason",
                "deployment/Deployment Name",
                "spec.containers{foo}",
                "kubelet, Node1",
                "Message Data",
                "<unknown>",
                1,
                "event2",
            ]),
        );
        for (event, expected) in [
            (json!({"source": {"component": "kubelet"}}), "kubelet"),
            (
                json!({"source": {}, "reportingComponent": "kubelet", "reportingInstance": "test"}),
                "kubelet, test",
            ),
        ] {
            assert_eq!(event_source(&event), expected);
        }
    }
}
