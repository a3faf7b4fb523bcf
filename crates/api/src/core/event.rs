//! [`Event`]: something that happened to an object, told to people.

use crate::meta::{MicroTime, ObjectMeta, Time};
use crate::object::{object, words};
use crate::text::Text;

use super::ObjectReference;

object! {
    /// Something that happened to an object, told to people.
    pub struct Event: "v1" "Event" {
        metadata: ObjectMeta = "metadata",
        involved_object: ObjectReference = "involvedObject",
        reason: Text = "reason",
        message: Text = "message",
        source: EventSource = "source",
        first_timestamp: Option<Time> = "firstTimestamp" always,
        last_timestamp: Option<Time> = "lastTimestamp" always,
        count: i32 = "count",
        r#type: Option<EventType> = "type" word,
        event_time: Option<MicroTime> = "eventTime" always,
        series: Option<Box<EventSeries>> = "series",
        action: Text = "action",
        related: Option<Box<ObjectReference>> = "related",
        reporting_component: Text = "reportingComponent" always,
        reporting_instance: Text = "reportingInstance" always,
    }
}

object! {
    /// Who tells of an event.
    pub struct EventSource {
        component: Text = "component",
        host: Text = "host",
    }
}

object! {
    /// How often an event has happened.
    pub struct EventSeries {
        count: i32 = "count",
        last_observed_time: Option<MicroTime> = "lastObservedTime" always,
    }
}

words! {
    /// Whether an event is a reason for concern.
    pub enum EventType {
        Normal = "Normal",
        Warning = "Warning",
    }
}
