//! What the runtime runs, and what the agent shows.

use std::collections::BTreeSet;

use crablet_agent::statuses::Reported;
use crablet_api::core::{ContainerState as Shown, PodConditionType};
use crablet_api::meta::ConditionStatus;
use crablet_cri_api::ContainerState;
use crablet_cri_sim::ContainerView;

use super::eviction::check_evicted;
use super::shutdown::check_shut_down;
use crate::ledger::{Ledger, State};

/// Checks all that can be seen now.
pub fn check_state(ledger: &Ledger, state: &mut State, containers: &[ContainerView]) {
    one_of_a_name(ledger, state, containers);
    remember_what_is_done(state, containers);
    let statuses = state.statuses.as_ref().map(|(statuses, _)| statuses.list()).unwrap_or_default();
    for view in &statuses {
        check_view(ledger, state, containers, view);
    }
    for container in containers.iter().filter(|container| container.alive) {
        if !state.disk_failed && state.lives.get(&container.pod_uid).is_some_and(|life| life.over) {
            let what = format!("{} runs, and its pod was over", ledger.describe(container));
            return ledger.broken(state, 3, what);
        }
    }
}

fn one_of_a_name(ledger: &Ledger, state: &mut State, containers: &[ContainerView]) {
    let mut seen = BTreeSet::new();
    for container in containers.iter().filter(|container| container.alive) {
        if !seen.insert((&container.pod_uid, &container.name)) {
            let what = format!("{} runs beside another one of its name", ledger.describe(container));
            return ledger.broken(state, 2, what);
        }
    }
}

/// Init containers that are done must not run again in their sandbox.
fn remember_what_is_done(state: &mut State, containers: &[ContainerView]) {
    for container in containers {
        let done = container.state == ContainerState::Exited && container.exit_code == 0;
        if let Some(life) = state.lives.get_mut(&container.pod_uid).filter(|_| done)
            && life.inits().any(|(name, is_sidecar)| name == container.name && !is_sidecar)
        {
            life.done.insert((container.sandbox_id.clone(), container.name.clone()));
        }
    }
}

fn check_view(ledger: &Ledger, state: &mut State, containers: &[ContainerView], view: &Reported) {
    let uid = view.pod.metadata.uid.as_str();
    let status = &view.status;
    let alive: BTreeSet<String> = containers
        .iter()
        .filter(|container| container.alive && container.pod_uid == uid)
        .map(|container| container.id.clone())
        .collect();
    check_evicted(ledger, state, view);
    check_shut_down(ledger, state, view);
    let is_over = status.is_over();
    // Of what nobody wants any more, no more is known than could be written down.
    let is_unknown = state.disk_failed && state.lives.get(uid).is_some_and(|life| !life.wanted);
    if is_over && !alive.is_empty() && !is_unknown {
        let what = format!("{uid} is shown to be over while {} of its containers run", alive.len());
        return ledger.broken(state, 4, what);
    }
    for shown in status.init_and_regular_statuses() {
        let id = shown.container_id.rsplit('/').next().unwrap_or_default();
        if matches!(shown.state.one(), Some(Shown::Terminated(_))) && alive.contains(id) {
            let what = format!("{} of {uid} is shown to have ended while it runs", shown.name);
            return ledger.broken(state, 11, what);
        }
    }
    let is_ready = status.conditions.iter().any(|condition| {
        condition.r#type == PodConditionType::Ready && condition.status == ConditionStatus::True
    });
    let Some(life) = state.lives.get_mut(uid) else { return };
    // What came back may show the end of its earlier life.
    life.over |= is_over && !life.returned;
    let is_disturbed =
        status.conditions.iter().any(|condition| condition.r#type == PodConditionType::DisruptionTarget);
    life.was_over_undisturbed |= is_over && !is_disturbed;
    // The same containers run: nothing but the agent, or the runtime's silence, can have made the difference.
    let flipped = life.readiness.as_ref().is_some_and(|(ran, was_ready)| {
        let is_touched = life.ends.is_some()
            || life.edited
            || life.returned
            || life.may_be_evicted
            || life.may_be_shut_down;
        *was_ready && !is_ready && *ran == alive && !is_touched
    });
    // A status may be older than what it is about: only one that can be true counts.
    let sidecars = life.inits().filter(|(_, is_sidecar)| *is_sidecar).map(|(name, _)| name);
    let mains = life.pod.spec.containers.iter().map(|main| main.name.as_str());
    let works = sidecars
        .chain(mains)
        .all(|name| containers.iter().any(|other| alive.contains(&other.id) && other.name == name));
    let has_deadline = life.pod.spec.active_deadline_seconds.is_some();
    let may_go = life.may_be_evicted || life.may_be_shut_down;
    let is_left_alone = works && life.ends.is_none() && !life.edited && !has_deadline && !may_go;
    life.readiness = is_left_alone.then_some((alive, is_ready));
    // An agent that could not write anything down has the runtime's word alone, and a call may fail.
    if flipped && !state.disk_failed {
        let invariant = if state.runtime_answers { 5 } else { 11 };
        ledger.broken(state, invariant, format!("{uid} is not ready any more, and nothing happened to it"));
    }
}
