//! A pod in a row. `crablet pods` prints the same words of pods of its own kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
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
    let row = Row::of(pod);
    vec![
        name(pod),
        format!("{}/{}", row.ready, row.total).into(),
        row.status.into(),
        row.restarts.shown(now).into(),
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

/// How the containers of a pod are, in sum.
struct Row {
    ready: usize,
    total: usize,
    status: String,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(container["restartCount"].as_i64().unwrap_or(0));
        self.last = self.last.max(age::time(&container["lastState"]["terminated"]["finishedAt"]));
    }

    fn shown(&self, now: Timestamp) -> String {
        match (self.count, self.last) {
            (0, _) | (_, None) => self.count.to_string(),
            (count, Some(last)) => {
                format!("{count} ({} ago)", age::human_duration(now.duration_since(last).as_secs()))
            }
        }
    }
}

impl Row {
    fn of(pod: &Value) -> Row {
        let init_containers = object::list(pod, &["spec", "initContainers"]);
        let is_always = |container: &Value| container["restartPolicy"] == "Always";
        let is_sidecar = |status: &Value| {
            let known = init_containers.iter().rev().find(|container| container["name"] == status["name"]);
            known.is_some_and(is_always)
        };
        let sidecars = init_containers.iter().filter(|container| is_always(container)).count();
        let mut row = Row {
            ready: 0,
            total: object::list(pod, &["spec", "containers"]).len() + sidecars,
            status: first_word(pod).to_owned(),
            restarts: Restarts::default(),
        };
        let initializing = row.initializing(pod, &is_sidecar);
        if !initializing || is_true(pod, "Initialized") {
            row.restarts = Restarts::default();
            let statuses = object::list(pod, &["status", "initContainerStatuses"]).iter();
            statuses.filter(|status| is_sidecar(status)).for_each(|status| row.restarts.add(status));
            row.running(pod);
        }
        if object::is_being_deleted(pod) {
            if object::text(pod, &["status", "reason"]) == "NodeLost" {
                row.status = "Unknown".to_owned();
            } else if !matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
                row.status = "Terminating".to_owned();
            }
        }
        row
    }

    /// Looks at the init containers up to the first that holds the pod up. Says whether one does.
    fn initializing(&mut self, pod: &Value, is_sidecar: &dyn Fn(&Value) -> bool) -> bool {
        let total = object::list(pod, &["spec", "initContainers"]).len();
        for (place, container) in object::list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            self.restarts.add(container);
            let (ended, waiting) = (&container["state"]["terminated"], waiting_reason(container));
            let word = if !ended.is_null() && exit_code(ended) == 0 {
                continue;
            } else if is_sidecar(container) && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            } else if !ended.is_null() {
                end_word(ended)
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                waiting.to_owned()
            } else {
                format!("{place}/{total}")
            };
            self.status = format!("Init:{word}");
            return true;
        }
        false
    }

    fn running(&mut self, pod: &Value) {
        let mut has_running = false;
        let mut failure = None;
        for container in object::list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let (ended, waiting) = (&container["state"]["terminated"], waiting_reason(container));
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if !ended.is_null() {
                self.status = end_word(ended);
                if exit_code(ended) != 0 {
                    failure = Some(self.status.clone());
                }
            } else if container["ready"] == true && !container["state"]["running"].is_null() {
                has_running = true;
                self.ready += 1;
            }
        }
        // The first container has completed, but that is not how the pod is if others run or failed.
        if self.status == "Completed" {
            if has_running && is_true(pod, "Ready") {
                self.status = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.status = failure;
            } else if has_running {
                self.status = "NotReady".to_owned();
            }
        }
    }
}

fn first_word(pod: &Value) -> &str {
    let mut conditions = object::list(pod, &["status", "conditions"]).iter();
    if conditions.any(|known| known["type"] == "PodScheduled" && known["reason"] == "SchedulingGated") {
        return "SchedulingGated";
    }
    match object::text(pod, &["status", "reason"]) {
        "" => object::text(pod, &["status", "phase"]),
        reason => reason,
    }
}

fn waiting_reason(container: &Value) -> &str {
    object::text(container, &["state", "waiting", "reason"])
}

fn exit_code(ended: &Value) -> i64 {
    ended["exitCode"].as_i64().unwrap_or(0)
}

fn end_word(ended: &Value) -> String {
    match (ended["reason"].as_str().unwrap_or_default(), ended["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", exit_code(ended)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
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
    use super::*;

    fn now() -> Timestamp {
        "2026-01-21T00:00:00Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Value {
        object::time(now() - jiff::SignedDuration::from_secs(seconds))
    }

    /// A container's status that has restarted so often, and when last.
    fn restarted(times: i64, last: i64, mut status: Value) -> Value {
        status["restartCount"] = times.into();
        status["lastState"] = json!({"terminated": {"exitCode": 0, "finishedAt": ago(last)}});
        status
    }

    fn running(ready: bool) -> Value {
        json!({"ready": ready, "state": {"running": {}}})
    }

    fn waiting(reason: &str) -> Value {
        json!({"ready": false, "state": {"waiting": {"reason": reason}}})
    }

    fn ended(reason: &str, exit_code: i64) -> Value {
        json!({"ready": false, "state": {"terminated": {"reason": reason, "exitCode": exit_code}}})
    }

    fn init(name: &str, started: bool, mut status: Value) -> Value {
        status["name"] = name.into();
        status["started"] = started.into();
        status
    }

    /// Ready, status and restarts of a pod with so many containers.
    #[track_caller]
    fn check(containers: usize, status: Value, expected: &str) {
        check_pod(json!({"spec": {"containers": vec![json!({}); containers]}, "status": status}), expected);
    }

    #[track_caller]
    fn check_pod(pod: Value, expected: &str) {
        let cells = cells(&pod, now());
        let shown: Vec<&str> = cells[1..4].iter().filter_map(Value::as_str).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn the_first_container_with_something_to_say_gives_the_status() {
        let three = |mut status: Value| {
            status["restartCount"] = 3.into();
            status
        };
        let (up, plain) = (three(running(true)), three(json!({})));
        let check = |statuses: &[&Value], expected: &str| {
            check(2, json!({"phase": "podPhase", "containerStatuses": statuses}), expected);
        };
        check(&[&up, &plain], "1/2 podPhase 6");
        check(&[&up, &three(waiting("Waits"))], "1/2 Waits 6");
        check(&[&three(waiting("Waits")), &three(ended("Ends", 0))], "0/2 Waits 6");
        check(&[&up, &three(json!({"ready": true}))], "1/2 podPhase 6");
        check(&[&three(ended("", 5)), &plain], "0/2 ExitCode:5 6");
        check(&[&three(json!({"state": {"terminated": {"signal": 9, "exitCode": 137}}}))], "0/2 Signal:9 3");
        check(&[&waiting("CrashLoopBackOff"), &up], "1/2 CrashLoopBackOff 3");
    }

    #[test]
    fn a_reason_counts_more_than_the_phase_and_a_gate_more_than_both() {
        check(2, json!({"phase": "Failed", "reason": "Evicted"}), "0/2 Evicted 0");
        let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        check(2, json!({"phase": "Pending", "reason": "x", "conditions": gated}), "0/2 SchedulingGated 0");
    }

    #[test]
    fn a_completed_container_is_not_the_whole_pod() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let half = json!([ended("Completed", 0), running(true)]);
        check(2, json!({"phase": "Running", "containerStatuses": half}), "1/2 NotReady 0");
        check(
            2,
            json!({"phase": "Running", "containerStatuses": half, "conditions": ready}),
            "1/2 Running 0",
        );
        let failed = json!([ended("Completed", 0), running(true), ended("podCrash", 1)]);
        check(3, json!({"phase": "Failed", "containerStatuses": failed}), "1/3 podCrash 0");
        let failed = json!([running(false), ended("podCrash", 1), ended("", 0)]);
        check(3, json!({"phase": "Failed", "containerStatuses": failed}), "0/3 podCrash 0");
        check(
            1,
            json!({"phase": "Succeeded", "containerStatuses": [ended("Completed", 0)]}),
            "0/1 Completed 0",
        );
        check(1, json!({"phase": "Failed", "containerStatuses": [ended("Error", 1)]}), "0/1 Error 0");
    }

    #[test]
    fn init_containers_hold_a_pod_up() {
        let check = |inits: usize, statuses: Value, expected: &str| {
            let pod = json!({
                "spec": {"initContainers": vec![json!({}); inits], "containers": [{}]},
                "status": {"phase": "Pending", "initContainerStatuses": statuses, "containerStatuses": [waiting("")]},
            });
            check_pod(pod, expected);
        };
        let restarts = restarted(3, 10, running(false));
        check(1, json!([restarts]), "0/1 Init:0/1 3 (10s ago)");
        check(2, json!([restarts, waiting("")]), "0/1 Init:0/2 3 (10s ago)");
        check(2, json!([ended("", 0), restarts]), "0/1 Init:1/2 3 (10s ago)");
        check(2, json!([restarted(2, 120, ended("", 0)), restarts]), "0/1 Init:1/2 5 (10s ago)");
        check(1, json!([waiting("PodInitializing")]), "0/1 Init:0/1 0");
        check(1, json!([waiting("CrashLoopBackOff")]), "0/1 Init:CrashLoopBackOff 0");
        check(1, json!([ended("Error", 1)]), "0/1 Init:Error 0");
        check(1, json!([ended("", 1)]), "0/1 Init:ExitCode:1 0");
        check(1, json!([{"state": {"terminated": {"signal": 9, "exitCode": 1}}}]), "0/1 Init:Signal:9 0");
    }

    #[test]
    fn restarts_of_init_containers_are_forgotten_once_the_pod_runs() {
        let pod = json!({
            "spec": {"initContainers": [{}], "containers": [{}]},
            "status": {
                "phase": "Running",
                "initContainerStatuses": [restarted(2, 120, ended("", 0))],
                "containerStatuses": [restarted(4, 20, running(false))],
            },
        });
        check_pod(pod, "0/1 Running 4 (20s ago)");
    }

    #[test]
    fn the_last_restart_of_all_containers_counts() {
        const DAY: i64 = 24 * 3600;
        let check = |statuses: Value, containers: usize, expected: &str| {
            check(containers, json!({"phase": "Running", "containerStatuses": statuses}), expected);
        };
        check(json!([restarted(3, 5 * DAY, running(true))]), 1, "1/1 Running 3 (5d ago)");
        check(json!([running(true), restarted(3, 10 * DAY, running(true))]), 2, "2/2 Running 3 (10d ago)");
        check(
            json!([restarted(6, 5 * DAY, running(true)), restarted(3, 20 * DAY, running(true))]),
            2,
            "2/2 Running 9 (5d ago)",
        );
    }

    #[test]
    fn sidecars_count_as_containers() {
        let check = |phase: &str, inits: Value, containers: Value, initialized: &str, expected: &str| {
            let pod = json!({
                "spec": {
                    "initContainers": [
                        {"name": "first", "restartPolicy": "Always"},
                        {"name": "second", "restartPolicy": "Always"},
                    ],
                    "containers": [{"name": "main"}],
                },
                "status": {
                    "phase": phase,
                    "initContainerStatuses": inits,
                    "containerStatuses": containers,
                    "conditions": [{"type": "Initialized", "status": initialized}],
                },
            });
            check_pod(pod, expected);
        };
        let first = |started| init("first", started, restarted(3, 10, running(false)));
        let second = |started, status| init("second", started, status);
        check(
            "Pending",
            json!([first(false), second(false, waiting(""))]),
            json!([waiting("")]),
            "False",
            "0/3 Init:0/2 3 (10s ago)",
        );
        check(
            "Pending",
            json!([first(true), second(false, running(false))]),
            json!([waiting("")]),
            "False",
            "0/3 Init:1/2 3 (10s ago)",
        );
        check(
            "Running",
            json!([first(true), second(true, running(true))]),
            json!([restarted(4, 20, running(true))]),
            "True",
            "2/3 Running 7 (10s ago)",
        );
        check(
            "Succeeded",
            json!([
                init("first", false, restarted(3, 10, ended("Error", 137))),
                second(false, ended("Error", 137)),
            ]),
            json!([restarted(4, 20, ended("Completed", 0))]),
            "True",
            "0/3 Completed 7 (10s ago)",
        );
    }

    #[test]
    fn statuses_of_containers_that_are_not_there_do_no_harm() {
        let pod = json!({
            "spec": {
                "initContainers": [{"name": "init1"}, {"name": "sidecar1", "restartPolicy": "Always"}],
                "containers": [{"name": "container1"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{"name": "initinvalid"}, {"name": "init1"}, {"name": "sidecar1"}],
                "containerStatuses": [{"name": "containerinvalid"}, {"name": "container1"}],
            },
        });
        check_pod(pod, "0/2 Init:0/2 0");
    }

    #[test]
    fn a_pod_that_is_deleted_terminates_unless_it_has_ended_or_its_node_is_lost() {
        let check = |status: Value, expected: &str| {
            let pod = json!({
                "metadata": {"deletionTimestamp": ago(10)},
                "spec": {"containers": [{}]},
                "status": status,
            });
            check_pod(pod, expected);
        };
        check(json!({"phase": "Pending"}), "0/1 Terminating 0");
        check(json!({"phase": "Running", "containerStatuses": [running(false)]}), "0/1 Terminating 0");
        check(json!({"phase": "Succeeded", "containerStatuses": [ended("Completed", 0)]}), "0/1 Completed 0");
        check(json!({"phase": "Running", "reason": "NodeLost"}), "0/1 Unknown 0");
    }

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
