//! A pod in a line, as kubectl prints it.

use crate::core::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodConditionType, PodPhase,
};
use crate::defaults::is_sidecar;
use crate::human_duration::human_duration;
use crate::meta::{ConditionStatus, Time};

/// What a line says of a pod. The rules are kubectl's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRow {
    /// How many containers are ready.
    pub ready: usize,
    /// How many are to be.
    pub total: usize,
    /// One word for how it is.
    pub status: String,
    /// How often its containers were restarted, and when last.
    pub restarts: i64,
    pub last_restart: Option<Time>,
}

impl PodRow {
    pub fn of(pod: &Pod) -> PodRow {
        let inits = &pod.spec.init_containers;
        let sidecars = inits.iter().filter(|init| is_sidecar(init)).count();
        let mut row = PodRow {
            ready: 0,
            total: pod.spec.containers.len() + sidecars,
            status: first_word(pod),
            restarts: 0,
            last_restart: None,
        };
        let is_sidecar = |status: &ContainerStatus| {
            inits.iter().rev().find(|init| init.name == status.name).is_some_and(is_sidecar)
        };
        let initializing = row.initializing(pod, &is_sidecar);
        if !initializing || is_true(pod, &PodConditionType::Initialized) {
            (row.restarts, row.last_restart) = (0, None);
            for sidecar in pod.status.init_container_statuses.iter().filter(|status| is_sidecar(status)) {
                row.count_restarts(sidecar);
            }
            row.running(pod);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if *pod.status.reason == *"NodeLost" {
                row.status = "Unknown".to_owned();
            } else if !pod.status.is_over() {
                row.status = "Terminating".to_owned();
            }
        }
        row
    }

    /// The restarts in words.
    pub fn restarts(&self, now: i64) -> String {
        match (self.restarts, self.last_restart) {
            (0, _) | (_, None) => self.restarts.to_string(),
            (count, Some(last)) => format!("{count} ({} ago)", human_duration(now - last.unix_seconds())),
        }
    }

    /// Looks at the init containers up to the first that holds the pod up. Says whether one does.
    fn initializing(&mut self, pod: &Pod, is_sidecar: &dyn Fn(&ContainerStatus) -> bool) -> bool {
        for (place, container) in pod.status.init_container_statuses.iter().enumerate() {
            self.count_restarts(container);
            let word = match container.state.one() {
                Some(ContainerState::Terminated(ended)) if ended.exit_code == 0 => continue,
                _ if is_sidecar(container) && container.started == Some(true) => {
                    self.ready += usize::from(container.ready);
                    continue;
                }
                Some(ContainerState::Terminated(ended)) => end_word(ended),
                Some(ContainerState::Waiting(waiting))
                    if !waiting.reason.is_empty() && *waiting.reason != *"PodInitializing" =>
                {
                    waiting.reason.to_string()
                }
                Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => {
                    format!("{place}/{}", pod.spec.init_containers.len())
                }
            };
            self.status = format!("Init:{word}");
            return true;
        }
        false
    }

    fn running(&mut self, pod: &Pod) {
        let mut has_running = false;
        let mut failure = None;
        for container in pod.status.container_statuses.iter().rev() {
            self.count_restarts(container);
            match container.state.one() {
                Some(ContainerState::Waiting(waiting)) if !waiting.reason.is_empty() => {
                    self.status = waiting.reason.to_string();
                }
                Some(ContainerState::Terminated(ended)) => {
                    self.status = end_word(ended);
                    if ended.exit_code != 0 {
                        failure = Some(self.status.clone());
                    }
                }
                Some(ContainerState::Running(_)) if container.ready => {
                    has_running = true;
                    self.ready += 1;
                }
                Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => {}
            }
        }
        // The first container has completed, but that is not how the pod is if others run or failed.
        if self.status == "Completed" {
            if has_running && is_true(pod, &PodConditionType::Ready) {
                self.status = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.status = failure;
            } else if has_running {
                self.status = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, container: &ContainerStatus) {
        self.restarts += i64::from(container.restart_count);
        if let Some(ContainerState::Terminated(ended)) = container.last_state.one() {
            self.last_restart = self.last_restart.max(ended.finished_at);
        }
    }
}

fn first_word(pod: &Pod) -> String {
    let gated = pod.status.conditions.iter().any(|condition| {
        condition.r#type == PodConditionType::PodScheduled && *condition.reason == *"SchedulingGated"
    });
    match &*pod.status.reason {
        _ if gated => "SchedulingGated".to_owned(),
        "" => pod.status.phase.as_ref().map_or("", PodPhase::as_str).to_owned(),
        reason => reason.to_owned(),
    }
}

fn end_word(ended: &ContainerStateTerminated) -> String {
    match (&*ended.reason, ended.signal) {
        ("", 0) => format!("ExitCode:{}", ended.exit_code),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_true(pod: &Pod, r#type: &PodConditionType) -> bool {
    let mut conditions = pod.status.conditions.iter();
    conditions.any(|condition| condition.r#type == *r#type && condition.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_768_953_600;

    fn ago(seconds: i64) -> Value {
        Time::from_unix_seconds(NOW - seconds).to_string().into()
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
        let row = PodRow::of(&Pod::deserialize(&pod).unwrap());
        let shown = format!("{}/{} {} {}", row.ready, row.total, row.status, row.restarts(NOW));
        assert_eq!(shown, expected, "{pod}");
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
}
