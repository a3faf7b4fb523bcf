//! A pod in a line, as kubectl prints it.

use crablet_api::core::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodConditionType, PodPhase,
};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_core::restart::is_sidecar;

/// What a line says of a pod. The rules are kubectl's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRow {
    /// How many containers are ready.
    pub(crate) ready: usize,
    /// How many are to be.
    pub(crate) total: usize,
    /// One word for how it is.
    pub(crate) status: String,
    /// How often its containers were restarted, and when last.
    pub(crate) restarts: i64,
    pub(crate) last_restart: Option<Time>,
}

impl PodRow {
    pub(crate) fn of(pod: &Pod) -> PodRow {
        let sidecars = || pod.spec.init_containers.iter().filter(|init| is_sidecar(init));
        let mut row = PodRow {
            ready: 0,
            total: pod.spec.containers.len() + sidecars().count(),
            status: first_word(pod),
            restarts: 0,
            last_restart: None,
        };
        let is_sidecar = |status: &ContainerStatus| sidecars().any(|sidecar| sidecar.name == status.name);
        let initializing = row.initializing(pod, &is_sidecar);
        if !initializing || is_true(pod, &PodConditionType::Initialized) {
            (row.restarts, row.last_restart) = (0, None);
            for sidecar in pod.status.init_container_statuses.iter().filter(|status| is_sidecar(status)) {
                row.count_restarts(sidecar);
            }
            row.running(pod);
        }
        let is_terminal = matches!(pod.status.phase, Some(PodPhase::Succeeded | PodPhase::Failed));
        if pod.metadata.deletion_timestamp.is_some() {
            if *pod.status.reason == *"NodeLost" {
                row.status = "Unknown".to_owned();
            } else if !is_terminal {
                row.status = "Terminating".to_owned();
            }
        }
        row
    }

    /// The restarts in words.
    pub(crate) fn restarts(&self, now: i64) -> String {
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
        for container in pod.status.container_statuses.iter().rev() {
            self.count_restarts(container);
            match container.state.one() {
                Some(ContainerState::Waiting(waiting)) if !waiting.reason.is_empty() => {
                    self.status = waiting.reason.to_string();
                }
                Some(ContainerState::Terminated(ended)) => self.status = end_word(ended),
                Some(ContainerState::Running(_)) if container.ready => {
                    has_running = true;
                    self.ready += 1;
                }
                Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => {}
            }
        }
        if self.status == "Completed" && has_running {
            let is_ready = is_true(pod, &PodConditionType::Ready);
            self.status = if is_ready { "Running" } else { "NotReady" }.to_owned();
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
    match (&pod.status.phase, &*pod.status.reason) {
        _ if gated => "SchedulingGated".to_owned(),
        (Some(phase), "") => phase.as_str().to_owned(),
        (None, "") => "Unknown".to_owned(),
        (_, reason) => reason.to_owned(),
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

/// Seconds in at most two units, the finer the shorter it is.
pub(crate) fn human_duration(seconds: i64) -> String {
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        // Clocks may differ a little.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#""spec":{"containers":[{"name":"a"},{"name":"b"}]}"#;
    const INIT: &str = r#""spec":{"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}],"containers":[{"name":"a"}]}"#;

    /// Ready, status and restarts of a pod with this status.
    fn check(spec: &str, metadata: &str, status: &str, expected: &str) {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{{metadata}}},{spec},"status":{{{status}}}}}"#
        );
        let pod: Pod = crablet_api::from_json(json.as_bytes(), crablet_api::document::Limits::API).unwrap();
        let row = PodRow::of(&pod);
        let now = "2026-11-15T04:00:00Z".parse::<Time>().unwrap().unix_seconds();
        assert_eq!(
            format!("{}/{} {} {}", row.ready, row.total, row.status, row.restarts(now)),
            expected,
            "{status}"
        );
    }

    fn statuses(field: &str, containers: &[&str]) -> String {
        let containers: Vec<String> = containers.iter().map(|text| format!("{{{text}}}")).collect();
        format!(r#""{field}":[{}]"#, containers.join(","))
    }

    const RUNS: &str = r#""ready":true,"restartCount":0,"state":{"running":{}}"#;

    #[test]
    fn phases_and_reasons_are_shown_where_no_container_says_more() {
        check(BASE, "", r#""phase":"Pending""#, "0/2 Pending 0");
        check(BASE, "", "", "0/2 Unknown 0");
        check(BASE, "", r#""phase":"Failed","reason":"Evicted""#, "0/2 Evicted 0");
        check(
            BASE,
            "",
            r#""phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]"#,
            "0/2 SchedulingGated 0",
        );
    }

    #[test]
    fn the_first_container_that_is_not_well_names_the_status() {
        let two = |first: &str, second: &str| {
            format!(
                r#""phase":"Running",{}"#,
                statuses(
                    "containerStatuses",
                    &[&format!(r#""name":"a",{first}"#), &format!(r#""name":"b",{second}"#)]
                )
            )
        };
        let waits = |reason: &str| {
            format!(r#""ready":false,"restartCount":0,"state":{{"waiting":{{"reason":"{reason}"}}}}"#)
        };
        let ended = |parts: &str| {
            format!(r#""ready":false,"restartCount":0,"state":{{"terminated":{{"exitCode":1{parts}}}}}"#)
        };
        check(BASE, "", &two(RUNS, RUNS), "2/2 Running 0");
        check(
            BASE,
            "",
            &two(&waits("ContainerCreating"), &waits("ContainerCreating")),
            "0/2 ContainerCreating 0",
        );
        check(BASE, "", &two(&waits("ErrImagePull"), RUNS), "1/2 ErrImagePull 0");
        check(
            BASE,
            "",
            &two(&waits("CrashLoopBackOff"), &waits("ImagePullBackOff")),
            "0/2 CrashLoopBackOff 0",
        );
        check(BASE, "", &two(RUNS, &ended(r#","reason":"Completed""#)), "1/2 NotReady 0");
        check(BASE, "", &two(RUNS, &ended(r#","reason":"OOMKilled""#)), "1/2 OOMKilled 0");
        check(BASE, "", &two(RUNS, &ended("")), "1/2 ExitCode:1 0");
        check(BASE, "", &two(RUNS, &ended(r#","signal":9"#)), "1/2 Signal:9 0");
        let ready = r#""conditions":[{"type":"Ready","status":"True"}],"#;
        check(
            BASE,
            "",
            &(ready.to_owned() + &two(RUNS, &ended(r#","reason":"Completed""#))),
            "1/2 Running 0",
        );
    }

    #[test]
    fn restarts_are_counted_with_the_last_of_them() {
        let crashed = r#""name":"a","ready":true,"restartCount":3,"state":{"running":{}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-11-15T03:55:00Z"}}"#;
        let later = r#""name":"b","ready":true,"restartCount":1,"state":{"running":{}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-11-15T03:59:10Z"}}"#;
        let status = format!(r#""phase":"Running",{}"#, statuses("containerStatuses", &[crashed, later]));
        check(BASE, "", &status, "2/2 Running 4 (50s ago)");
    }

    #[test]
    fn init_containers_come_first() {
        let init = |first: &str, second: &str| {
            let waits = r#""name":"a","ready":false,"restartCount":0,"state":{"waiting":{"reason":"PodInitializing"}}"#;
            let both = [format!(r#""name":"i",{first}"#), format!(r#""name":"s",{second}"#)];
            format!(
                r#""phase":"Pending",{},{}"#,
                statuses("initContainerStatuses", &[&both[0], &both[1]]),
                statuses("containerStatuses", &[waits])
            )
        };
        let waits = r#""ready":false,"restartCount":0,"state":{"waiting":{"reason":"PodInitializing"}}"#;
        let done =
            r#""ready":true,"restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}"#;
        let failed = r#""ready":false,"restartCount":2,"state":{"terminated":{"exitCode":7}}"#;
        let crashes = r#""ready":false,"restartCount":2,"state":{"waiting":{"reason":"CrashLoopBackOff"}}"#;
        let sidecar = r#""ready":true,"started":true,"restartCount":1,"state":{"running":{}}"#;
        check(INIT, "", &init(waits, waits), "0/2 Init:0/2 0");
        check(INIT, "", &init(RUNS, waits), "0/2 Init:0/2 0");
        check(INIT, "", &init(done, waits), "0/2 Init:1/2 0");
        check(INIT, "", &init(failed, waits), "0/2 Init:ExitCode:7 2");
        check(INIT, "", &init(crashes, waits), "0/2 Init:CrashLoopBackOff 2");
        check(INIT, "", &init(done, sidecar), "1/2 PodInitializing 1");
        let initialized = r#""conditions":[{"type":"Initialized","status":"True"}],"#;
        check(INIT, "", &(initialized.to_owned() + &init(done, crashes)), "0/2 PodInitializing 2");
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_terminating_until_it_is_over() {
        let deleted = r#""deletionTimestamp":"2026-11-15T04:00:00Z""#;
        check(BASE, deleted, r#""phase":"Running""#, "0/2 Terminating 0");
        check(BASE, deleted, r#""phase":"Succeeded""#, "0/2 Succeeded 0");
        check(BASE, deleted, r#""phase":"Running","reason":"NodeLost""#, "0/2 Unknown 0");
    }

    #[test]
    fn durations_are_kubectls() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (7 * 3600 + 300, "7h5m"),
            (8 * 3600 + 300, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (3000 * 86400, "8y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
