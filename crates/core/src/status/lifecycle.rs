//! Statuses at the ends of a pod's life, and what of a status goes to the API server.

use crablet_api::FeatureGates;
use crablet_api::core::{
    Container, ContainerState, ContainerStatus, Pod, PodCondition, PodConditionType, PodPhase, PodStatus,
};
use crablet_api::meta::{ConditionStatus, Time};
use jiff::Timestamp;

use super::conditions::{find, is_ours, reason_of_end, timed};
use super::containers::{NOT_LOCATED, STATUS_UNKNOWN, UNKNOWN_EXIT_CODE, ended, is_ended};
use super::transition::is_running;
use crate::admission::Rejection;
use crate::{qos, restart};

/// The status of a pod that the node did not take.
pub fn rejected(pod: &Pod, rejection: &Rejection, features: &FeatureGates, now: Timestamp) -> PodStatus {
    PodStatus {
        qos_class: Some(qos::qos_class_for_status(pod, qos::PodLevel::from(features))),
        phase: Some(PodPhase::Failed),
        reason: rejection.reason.clone(),
        message: format!("Pod was rejected: {}", rejection.message).into(),
        start_time: pod.status.start_time.or(Some(Time::from(now))),
        observed_generation: pod.status.observed_generation.max(pod.metadata.generation),
        ..PodStatus::default()
    }
}

/// The last status of a pod that has terminated: no container looks as if it ran on. What is not known to have gone
/// well has failed.
pub fn terminated(pod: &Pod, last: &PodStatus) -> PodStatus {
    let mut status = last.clone();
    let lost = || ended(STATUS_UNKNOWN, NOT_LOCATED, UNKNOWN_EXIT_CODE);
    if has_initialized(pod) {
        let running = status.container_statuses.iter_mut().filter(|status| !is_ended(&status.state));
        running.for_each(|status| status.state = lost());
    }
    // Those after the last one that has begun were never started.
    let begun = status.init_container_statuses.iter().rposition(has_begun);
    let running = status.init_container_statuses.iter_mut().take(begun.unwrap_or(0) + 1);
    running.filter(|status| !is_ended(&status.state)).for_each(|status| status.state = lost());
    if !qos::is_static(pod) && !status.is_over() {
        status.phase = Some(PodPhase::Failed);
    }
    status
}

fn has_begun(status: &ContainerStatus) -> bool {
    is_ended(&status.last_state) || !matches!(status.state.one(), Some(ContainerState::Waiting(_)))
}

/// Whether the API server's status has a trace of the pod's init containers having done their work.
fn has_initialized(pod: &Pod) -> bool {
    let Some(last) = pod.spec.init_containers.last() else { return true };
    let is_done = |last: &Container, status: &ContainerStatus| {
        if restart::is_sidecar(last) {
            return is_running(status) && status.started == Some(true);
        }
        [&status.state, &status.last_state]
            .into_iter()
            .any(|state| matches!(state.one(), Some(ContainerState::Terminated(end)) if end.exit_code == 0))
    };
    pod.status.container_statuses.iter().any(has_begun)
        || pod.status.init_container_statuses.last().is_some_and(|status| is_done(last, status))
}

/// What of a new status goes to the API server, given the one that is there (`pod.status`): what others own is left as
/// it is, and a pod does not come to its end while its containers may still run.
pub fn to_publish(
    pod: &Pod,
    new: &PodStatus,
    may_have_running_containers: bool,
    features: &FeatureGates,
    now: Timestamp,
) -> PodStatus {
    let old = &pod.status;
    let ends = !old.is_over() && new.is_over();

    let foreign = old.conditions.iter().filter(|condition| !is_ours(&condition.r#type, features));
    let mut conditions: Vec<PodCondition> = foreign.cloned().collect();
    for condition in &new.conditions {
        if is_ours(&condition.r#type, features) {
            conditions.push(condition.clone());
        } else if condition.r#type == PodConditionType::DisruptionTarget
            && ends
            && !may_have_running_containers
        {
            conditions.retain(|other| other.r#type != PodConditionType::DisruptionTarget);
            conditions.push(timed(condition.clone(), old, now.into()));
        }
    }
    let mut status = PodStatus {
        conditions: conditions.into(),
        resource_claim_statuses: old.resource_claim_statuses.clone(),
        extended_resource_claim_status: old.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: old.node_allocatable_resource_claim_statuses.clone(),
        ..new.clone()
    };
    if ends && may_have_running_containers {
        status.phase = old.phase.clone();
        status.reason = old.reason.clone();
        status.message = old.message.clone();
    }
    if let Some(phase) = status.phase.clone().filter(PodPhase::is_terminal) {
        deny_readiness(pod, &mut status, &phase, now);
    }
    status
}

/// A pod that has come to its end is never ready.
fn deny_readiness(pod: &Pod, status: &mut PodStatus, phase: &PodPhase, now: Timestamp) {
    let kinds = [PodConditionType::ContainersReady, PodConditionType::Ready];
    let holds = |kind: &PodConditionType| {
        find(&status.conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True)
    };
    if !kinds.iter().any(holds) {
        return;
    }
    let before = status.clone();
    for condition in status.conditions.iter_mut().filter(|condition| kinds.contains(&condition.r#type)) {
        let denied = PodCondition {
            r#type: condition.r#type.clone(),
            observed_generation: pod.metadata.generation,
            status: ConditionStatus::False,
            reason: reason_of_end(phase).into(),
            ..PodCondition::default()
        };
        *condition = timed(denied, &before, now.into());
    }
}
