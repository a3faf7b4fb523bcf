//! The conditions of a pod.

use crablet_api::core::{
    Container, ContainerState, ContainerStatus, Pod, PodCondition, PodConditionType, PodPhase, PodStatus,
};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_api::{FeatureGates, Gate, Text};

use super::StatusInput;
use crate::plan::{SandboxNeed, sandbox_need};
use crate::restart;
use crate::translate::go_quote;

/// Whether a condition is the agent's alone to set.
pub(super) fn is_ours(condition: &PodConditionType, features: &FeatureGates) -> bool {
    match condition {
        PodConditionType::PodScheduled
        | PodConditionType::Ready
        | PodConditionType::Initialized
        | PodConditionType::ContainersReady
        | PodConditionType::PodResizeInProgress
        | PodConditionType::PodResizePending => true,
        PodConditionType::PodReadyToStartContainers => {
            features.enabled(Gate::PodReadyToStartContainersCondition)
        }
        PodConditionType::AllContainersRestarting => {
            features.enabled(Gate::RestartAllContainersOnContainerExits)
        }
        PodConditionType::DisruptionTarget | PodConditionType::Other(_) => false,
    }
}

pub(super) fn find<'c>(conditions: &'c [PodCondition], kind: &PodConditionType) -> Option<&'c PodCondition> {
    conditions.iter().find(|condition| condition.r#type == *kind)
}

/// What is said of a condition: whether it holds, why, and more on that.
struct Said {
    holds: bool,
    reason: Text,
    message: Text,
}

impl Said {
    fn new(holds: bool, reason: &str, message: impl Into<Text>) -> Said {
        Said { holds, reason: reason.into(), message: message.into() }
    }

    fn plain(holds: bool) -> Said {
        Said::new(holds, "", "")
    }
}

pub(super) fn fill(input: &StatusInput, status: &mut PodStatus) {
    let StatusInput { pod, previous, features, .. } = *input;
    let foreign = pod.status.conditions.iter().filter(|condition| !is_ours(&condition.r#type, features));
    let mut all: Vec<PodCondition> = foreign.cloned().collect();
    let has_ended = input.finished || status.is_over();
    if !has_ended {
        all.extend(input.resize_conditions.iter().cloned());
    }
    let disruption = input.failure.and_then(|failure| failure.disruption.as_ref());
    if let Some(disruption) = disruption.or(find(&previous.conditions, &PodConditionType::DisruptionTarget)) {
        all.retain(|condition| condition.r#type != PodConditionType::DisruptionTarget);
        all.push(timed(disruption.clone(), previous, input.now.into()));
    }

    let phase = status.phase.as_ref();
    let containers_ready = containers_ready(pod, status, phase);
    let ready = ready(pod, &containers_ready, &all);
    let mut set = |kind, said: Said, counts_generation: bool| {
        let condition = PodCondition {
            r#type: kind,
            observed_generation: if counts_generation { pod.metadata.generation } else { 0 },
            status: if said.holds { ConditionStatus::True } else { ConditionStatus::False },
            reason: said.reason,
            message: said.message,
            ..PodCondition::default()
        };
        all.push(timed(condition, previous, input.now.into()));
    };
    if features.enabled(Gate::PodReadyToStartContainersCondition) {
        let has_sandbox = matches!(sandbox_need(pod, input.observed), SandboxNeed::None { .. });
        set(PodConditionType::PodReadyToStartContainers, Said::plain(has_sandbox), true);
    }
    set(PodConditionType::Initialized, initialized(input, status, phase), true);
    set(PodConditionType::Ready, ready, true);
    set(PodConditionType::ContainersReady, containers_ready, true);
    set(PodConditionType::PodScheduled, Said::plain(true), true);
    if features.enabled(Gate::RestartAllContainersOnContainerExits) && restart::could_restart_all(&pod.spec) {
        set(PodConditionType::AllContainersRestarting, restarting_all(input, phase), false);
    }
    status.conditions = all.into();
}

/// Keeps the time of the last change where nothing changed.
pub(super) fn timed(mut condition: PodCondition, previous: &PodStatus, now: Time) -> PodCondition {
    let before = find(&previous.conditions, &condition.r#type);
    let same = before.filter(|before| before.status == condition.status);
    condition.last_transition_time = same.and_then(|same| same.last_transition_time).or(Some(now));
    condition
}

/// Why a pod in a terminal phase is not ready.
pub(super) fn reason_of_end(phase: &PodPhase) -> &'static str {
    if *phase == PodPhase::Succeeded { "PodCompleted" } else { "PodFailed" }
}

fn containers_ready(pod: &Pod, status: &PodStatus, phase: Option<&PodPhase>) -> Said {
    let sidecars = pod.spec.init_containers.iter().filter(|container| restart::is_sidecar(container));
    let unready = names_of(sidecars.chain(&pod.spec.containers), status, |_, status| !status.ready);
    match phase {
        Some(phase) if phase.is_terminal() => Said::new(false, reason_of_end(phase), ""),
        Some(_) | None => match complaint("unready", &unready) {
            Some(message) => Said::new(false, "ContainersNotReady", message),
            None => Said::plain(true),
        },
    }
}

/// All containers are ready, and so say all who were asked to.
fn ready(pod: &Pod, containers_ready: &Said, conditions: &[PodCondition]) -> Said {
    if !containers_ready.holds {
        return Said::new(false, &containers_ready.reason, containers_ready.message.clone());
    }
    let complaints: Vec<String> = pod
        .spec
        .readiness_gates
        .iter()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match find(conditions, kind) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {} does not exist.",
                    go_quote(kind.as_str())
                )),
                Some(condition) if condition.status != ConditionStatus::True => Some(format!(
                    "the status of pod readiness gate {} is not \"True\", but {}",
                    go_quote(kind.as_str()),
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if complaints.is_empty() {
        Said::plain(true)
    } else {
        Said::new(false, "ReadinessGatesNotReady", complaints.join(", "))
    }
}

/// Whether those who are asked whether a pod is ready have said something else since: its readiness gates.
pub fn readiness_gates_differ(before: &Pod, after: &Pod) -> bool {
    let mut gates = after.spec.readiness_gates.iter();
    gates.any(|gate| {
        let said = |pod: &Pod| {
            find(&pod.status.conditions, &gate.condition_type).map(|condition| condition.status.clone())
        };
        said(before) != said(after)
    })
}

fn initialized(input: &StatusInput, status: &PodStatus, phase: Option<&PodPhase>) -> Said {
    let StatusInput { pod, previous, features, .. } = *input;
    let incomplete = names_of(&pod.spec.init_containers, status, |container, status| {
        if restart::is_sidecar(container) { status.started != Some(true) } else { !status.ready }
    });
    if phase == Some(&PodPhase::Succeeded) {
        return Said::new(true, "PodCompleted", "");
    }
    // Sidecars that start again do not undo it.
    if status.container_statuses.iter().any(has_run) {
        return Said::plain(true);
    }
    let was = find(&previous.conditions, &PodConditionType::Initialized);
    let stays = features.enabled(Gate::RestartAllContainersOnContainerExits)
        && was.is_some_and(|condition| condition.status == ConditionStatus::True);
    match complaint("incomplete", &incomplete) {
        Some(message) if !stays => Said::new(false, "ContainersNotInitialized", message),
        Some(_) | None => Said::plain(true),
    }
}

fn has_run(status: &ContainerStatus) -> bool {
    match status.state.one() {
        Some(ContainerState::Running(_) | ContainerState::Terminated(_)) => true,
        Some(ContainerState::Waiting(_)) | None => false,
    }
}

fn restarting_all(input: &StatusInput, phase: Option<&PodPhase>) -> Said {
    let StatusInput { pod, observed, previous, .. } = *input;
    match phase {
        Some(phase) if phase.is_terminal() => Said::new(false, reason_of_end(phase), ""),
        Some(_) | None
            if restart::all_are_to_restart(pod, observed, previous)
                && !restart::all_are_removed(pod, observed) =>
        {
            let message = "container exited with restart policy rule";
            Said::new(true, "RestartAllContainersStarted", message)
        }
        Some(_) | None => Said::plain(false),
    }
}

/// The names of the containers whose statuses are such.
fn names_of<'c>(
    containers: impl IntoIterator<Item = &'c Container>,
    status: &PodStatus,
    is_such: impl Fn(&Container, &ContainerStatus) -> bool,
) -> Vec<&'c str> {
    let such = containers.into_iter().filter(|container| {
        status.find_container_status(&container.name).is_some_and(|status| is_such(container, status))
    });
    such.map(|container| container.name.as_str()).collect()
}

fn complaint(what: &str, names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| format!("containers with {what} status: [{}]", names.join(" ")))
}
