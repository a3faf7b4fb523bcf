//! A pod in a row.

use crablet_api::PodRow;
use crablet_api::core::Pod;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::printer::{Column, Printer, age as age_of, is_true, name, text_or};
use crate::object;

pub(super) static PODS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Ready"),
        Column::text("Status"),
        Column::text("Restarts"),
        Column::AGE,
        Column::text("IP").wide(),
        Column::text("Node").wide(),
        Column::text("Nominated Node").wide(),
        Column::text("Readiness Gates").wide(),
    ],
    cells,
    condition,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    // What is stored can be read; of what could not, the row says nothing.
    let row = PodRow::of(&Pod::deserialize(pod).unwrap_or_default());
    let restarts = row.restarts(now.as_second());
    vec![
        name(pod),
        format!("{}/{}", row.ready, row.total).into(),
        row.status.into(),
        restarts.into(),
        age_of(pod, now),
        address(pod),
        text_or(pod, &["spec", "nodeName"], "<none>"),
        text_or(pod, &["status", "nominatedNodeName"], "<none>"),
        readiness_gates(pod).into(),
    ]
}

fn condition(pod: &Value) -> Option<Value> {
    let (reason, message) = match object::text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// The first of the addresses. The one that a kubelet says alone counts more than a list.
fn address(pod: &Value) -> Value {
    let first = &object::list(pod, &["status", "podIPs"]).first().unwrap_or(&Value::Null)["ip"];
    text_or(pod, &["status", "podIP"], first.as_str().filter(|ip| !ip.is_empty()).unwrap_or("<none>"))
}

fn readiness_gates(pod: &Value) -> String {
    let gates = object::list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates
        .iter()
        .filter(|gate| gate["conditionType"].as_str().is_some_and(|condition| is_true(pod, condition)));
    format!("{}/{}", met.count(), gates.len())
}

#[cfg(test)]
mod tests {
    use super::super::printer::check::{ago, now};
    use super::*;

    #[test]
    fn wide_columns_say_where_a_pod_is() {
        let pod = json!({
            "metadata": {"name": "test1", "creationTimestamp": ago(300)},
            "spec": {
                "nodeName": "test1",
                "readinessGates": [{"conditionType": "c1"}, {"conditionType": "c2"}, {"conditionType": "c3"}],
            },
            "status": {
                "conditions": [{"type": "c1", "status": "False"}, {"type": "c2", "status": "True"}],
                "podIPs": [{"ip": "1.1.1.1"}, {"ip": "2001:db8::"}],
                "nominatedNodeName": "node1",
            },
        });
        let shown = cells(&pod, now());
        assert_eq!(json!(shown[4..]), json!(["5m", "1.1.1.1", "test1", "node1", "1/3"]));
        assert_eq!(address(&json!({"status": {"podIP": "1.2.3.4"}})), "1.2.3.4");
        let nothing = cells(&json!({}), now());
        assert_eq!(json!(nothing[4..]), json!(["<unknown>", "<none>", "<none>", "<none>", "<none>"]));
    }

    #[test]
    fn rows_of_pods_that_have_ended_say_so() {
        let of = |phase: &str| condition(&json!({"status": {"phase": phase}}));
        assert_eq!(of("Running"), None);
        let completed = |reason: &str, message: &str| {
            Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
        };
        assert_eq!(of("Succeeded"), completed("Succeeded", "The pod has completed successfully."));
        assert_eq!(of("Failed"), completed("Failed", "The pod failed."));
    }
}
