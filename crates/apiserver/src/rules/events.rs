//! Events, which both groups keep alike: those of the newer one are checked more strictly.

use crablet_api::dns1123_subdomain_errors;
use crablet_api::qualified_name_errors;
use crablet_api::validate::Errors;
use serde_json::Value;

use super::metadata::{self, check_immutable, check_immutable_object};
use super::{Context, NameForm, Rules, Update};
use crate::object;

pub struct Events;
pub struct NewEvents;

/// What messages about requests of each group call the controller.
const OLD: &str = "reportingComponent";
const NEW: &str = "reportingController";

impl Rules for Events {
    fn name_form(&self) -> NameForm {
        NameForm::PathSegment
    }

    fn validate_create(&self, errors: &mut Errors, event: &Value, _context: &Context<'_>) {
        check(errors, event, OLD);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        check(errors, update.new, OLD);
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

impl Rules for NewEvents {
    fn validate_create(&self, errors: &mut Errors, event: &Value, _context: &Context<'_>) {
        check(errors, event, NEW);
        check_series(errors, event);
        if event["eventTime"].is_null() {
            errors.required("eventTime", "");
        }
        let kind = object::text(event, &["type"]);
        if kind != "Normal" && kind != "Warning" {
            errors.invalid("type", "", format!("has invalid value: {kind}"));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count"] {
            if !event[field].is_null() && event[field] != 0 {
                errors.invalid(field, "", "needs to be unset");
            }
        }
        if ["component", "host"].iter().any(|part| !object::text(event, &["source", part]).is_empty()) {
            errors.invalid("source", "", "needs to be unset");
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        check(errors, new, NEW);
        metadata::check_update(errors, update);
        if new["series"] != old["series"] {
            check_series(errors, new);
        }
        for (field, shown) in [
            ("involvedObject", "involvedObject"),
            ("reason", "reason"),
            ("message", "message"),
            ("source", "source"),
            ("firstTimestamp", "firstTimestamp"),
            ("lastTimestamp", "lastTimestamp"),
            ("count", "count"),
            ("reason", "reason"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            let (now, before) = (&new[field], &old[field]);
            match field {
                "involvedObject" | "related" => {
                    check_immutable_object(errors, shown, "ObjectReference", now, before);
                }
                "source" => check_immutable_object(errors, shown, "EventSource", now, before),
                _ => check_immutable(errors, shown, now, before),
            }
        }
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

fn check(errors: &mut Errors, event: &Value, controller_shown: &str) {
    let namespace = object::namespace(event);
    let regarding = object::text(event, &["involvedObject", "namespace"]);
    let text = |field: &str| object::text(event, &[field]);
    let mut does_not_match = || {
        errors.invalid("involvedObject.namespace", regarding, "does not match event.namespace");
    };
    if event["eventTime"].is_null() {
        let is_of_cluster = regarding.is_empty() && matches!(namespace, "" | "default");
        if !is_of_cluster && regarding != namespace {
            does_not_match();
        }
    } else {
        if regarding.is_empty() && !matches!(namespace, "default" | "kube-system") {
            does_not_match();
        }
        let controller = text("reportingComponent");
        if controller.is_empty() {
            errors.required(controller_shown, "");
        }
        errors.invalid_each(controller_shown, controller, qualified_name_errors(controller));
        for (field, value, is_required, limit) in [
            ("reportingInstance", text("reportingInstance"), true, 128),
            ("action", text("action"), true, 128),
            ("reason", text("reason"), true, 128),
            ("message", text("message"), false, 1024),
        ] {
            if is_required && value.is_empty() {
                errors.required(field, "");
            }
            if value.len() > limit {
                errors.invalid(field, "", format!("can have at most {limit} characters"));
            }
        }
    }
    errors.invalid_each("namespace", namespace, dns1123_subdomain_errors(namespace));
}

fn check_series(errors: &mut Errors, event: &Value) {
    if !event["series"].is_object() {
        return;
    }
    if event["series"]["count"].as_i64().unwrap_or(0) < 2 {
        errors.invalid("series.count", "", "should be at least 2");
    }
    if event["series"]["lastObservedTime"].is_null() {
        errors.required("series.lastObservedTime", "");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::lines;
    use super::*;

    #[test]
    fn an_event_is_in_the_namespace_of_what_it_is_about() {
        for (event, expected) in [
            (json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}}), vec![]),
            (json!({"metadata": {"namespace": "default"}, "involvedObject": {}}), vec![]),
            (
                json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
                vec![
                    "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"
                        .to_owned(),
                ],
            ),
            (
                json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"},
                    "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c", "reason": "r"}),
                vec!["reportingInstance: Required value".to_owned(), "action: Required value".to_owned()],
            ),
        ] {
            assert_eq!(lines(|errors| check(errors, &event, OLD)), expected, "{event}");
        }
    }
}
