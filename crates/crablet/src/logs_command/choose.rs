//! Which log is meant.

use anyhow::bail;
use crablet_api::core::{ContainerState, ContainerStatus, Pod, PodIdentity};

/// The annotation that names the container of a pod that is meant where nobody says which.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// A log that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) pod: PodIdentity,
    pub(super) container: String,
    /// How often the container was restarted before.
    pub(super) attempt: i32,
    /// Whether it may write more.
    pub(super) is_running: bool,
}

/// Whether there is a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Log {
    There(Chosen),
    /// Not yet: this is why.
    NotYet(String),
}

/// The container that is meant, and what the person should know about the choice.
pub(super) fn container(pod: &Pod, wanted: Option<&str>) -> anyhow::Result<(String, Option<String>)> {
    let spec = &pod.spec;
    let main: Vec<&str> = spec.containers.iter().map(|container| &*container.name).collect();
    let init = spec.init_containers.iter().map(|init| &*init.name);
    let ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| &*ephemeral.container.name);
    let others: Vec<(&str, &str)> =
        ephemeral.map(|name| (name, "ephemeral")).chain(init.map(|name| (name, "init"))).collect();
    let is_there = |name: &str| main.contains(&name) || others.iter().any(|(other, _)| *other == name);
    let all = || {
        let others = others.iter().map(|(name, kind)| format!("{name} ({kind})"));
        main.iter().map(|name| (*name).to_owned()).chain(others).collect::<Vec<_>>().join(", ")
    };
    let by_annotation = pod.metadata.annotations.get(DEFAULT_CONTAINER).map(|name| &**name);
    match (wanted, by_annotation.filter(|name| is_there(name)), main.first()) {
        (Some(name), ..) if is_there(name) => Ok((name.to_owned(), None)),
        (Some(name), ..) => bail!("pod {} has no container {name:?}; it has {}", pod.metadata.name, all()),
        (None, Some(name), _) => Ok((name.to_owned(), None)),
        (None, None, Some(first)) if main.len() + others.len() == 1 => Ok(((*first).to_owned(), None)),
        (None, None, Some(first)) => {
            Ok(((*first).to_owned(), Some(format!("Defaulted container {first:?} out of: {}", all()))))
        }
        (None, None, None) => bail!("pod {} has no containers", pod.metadata.name),
    }
}

/// The log of a container, the latest or the one before its last restart.
pub(super) fn log(pod: &Pod, container: &str, previous: bool) -> anyhow::Result<Log> {
    let statuses = [
        &pod.status.container_statuses,
        &pod.status.init_container_statuses,
        &pod.status.ephemeral_container_statuses,
    ];
    let status = statuses.into_iter().flatten().find(|status| *status.name == *container);
    let attempt = status.map_or(0, |status| status.restart_count);
    let chosen = |attempt, is_running| Chosen {
        pod: pod.identity(),
        container: container.to_owned(),
        attempt,
        is_running,
    };
    if previous {
        // One that waits has no later run than the one that its last state tells of.
        let waits = status.is_some_and(|status| {
            matches!(status.state.one(), Some(ContainerState::Waiting(_))) && ran_before(status)
        });
        if waits {
            return Ok(Log::There(chosen(attempt, false)));
        }
        if attempt == 0 {
            bail!(
                "container {container:?} of pod {} was not restarted, so there is none before",
                pod.metadata.name
            );
        }
        return Ok(Log::There(chosen(attempt - 1, false)));
    }
    let not_yet = |why: String| {
        Log::NotYet(format!("container {container:?} of pod {} has not started yet{why}", pod.metadata.name))
    };
    Ok(match status.and_then(|status| status.state.one()) {
        Some(ContainerState::Running(_)) => Log::There(chosen(attempt, true)),
        Some(ContainerState::Terminated(_)) => Log::There(chosen(attempt, false)),
        Some(ContainerState::Waiting(_)) if status.is_some_and(ran_before) => {
            Log::There(chosen(attempt, false))
        }
        Some(ContainerState::Waiting(waiting)) => match (&*waiting.reason, &*waiting.message) {
            ("", _) => not_yet(String::new()),
            (reason, "") => not_yet(format!(": {reason}")),
            (reason, message) => not_yet(format!(": {reason}: {message}")),
        },
        None => not_yet(String::new()),
    })
}

/// Whether its last state tells of a run. Where all containers begin anew, it tells of none.
fn ran_before(status: &ContainerStatus) -> bool {
    matches!(status.last_state.one(), Some(ContainerState::Terminated(end)) if !end.container_id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::document::Limits;

    fn pod(spec: &str, statuses: &str) -> Pod {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","namespace":"default","uid":"u"}},
                "spec":{{{spec}}},"status":{{"containerStatuses":[{statuses}]}}}}"#
        );
        crablet_api::from_json(json.as_bytes(), Limits::API).unwrap()
    }

    #[test]
    fn the_first_container_is_meant_unless_somebody_says_otherwise() {
        let one = pod(r#""containers":[{"name":"a"}]"#, "");
        let mut several =
            pod(r#""containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}]"#, "");
        assert_eq!(container(&one, None).unwrap(), ("a".to_owned(), None));
        let note = "Defaulted container \"a\" out of: a, b, i (init)";
        assert_eq!(container(&several, None).unwrap(), ("a".to_owned(), Some(note.to_owned())));
        assert_eq!(container(&several, Some("i")).unwrap(), ("i".to_owned(), None));
        let error = container(&several, Some("x")).unwrap_err().to_string();
        assert_eq!(error, "pod web has no container \"x\"; it has a, b, i (init)");
        several.metadata.annotations.insert(DEFAULT_CONTAINER, "b".into());
        assert_eq!(container(&several, None).unwrap(), ("b".to_owned(), None));
    }

    #[test]
    fn the_log_follows_from_the_status() {
        let check = |status: &str, previous, expected: &str| {
            let pod = pod(r#""containers":[{"name":"a"}]"#, status);
            let found = match log(&pod, "a", previous) {
                Ok(Log::There(chosen)) => format!("{} {}", chosen.attempt, chosen.is_running),
                Ok(Log::NotYet(reason)) => reason,
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{status}");
        };
        let status = |count: i32, state: &str, last: &str| {
            format!(
                r#"{{"name":"a","ready":false,"restartCount":{count},"state":{{{state}}},"lastState":{{{last}}}}}"#
            )
        };
        let (runs, ended) = (r#""running":{}"#, r#""terminated":{"exitCode":1,"containerID":"c://1"}"#);
        let waits = r#""waiting":{"reason":"CrashLoopBackOff","message":"back-off"}"#;
        check(&status(0, runs, ""), false, "0 true");
        check(&status(2, runs, ended), false, "2 true");
        check(&status(2, runs, ended), true, "1 false");
        check(&status(1, ended, ""), false, "1 false");
        check(&status(2, waits, ended), false, "2 false");
        check(&status(2, waits, ended), true, "2 false");
        let removed = (
            r#""waiting":{"reason":"RestartingAllContainers"}"#,
            r#""terminated":{"reason":"RestartingAllContainers","exitCode":137}"#,
        );
        check(&status(2, removed.0, removed.1), true, "1 false");
        check(
            &status(0, waits, ""),
            false,
            "container \"a\" of pod web has not started yet: CrashLoopBackOff: back-off",
        );
        check("", false, "container \"a\" of pod web has not started yet");
        check(
            &status(0, runs, ""),
            true,
            "container \"a\" of pod web was not restarted, so there is none before",
        );
    }
}
