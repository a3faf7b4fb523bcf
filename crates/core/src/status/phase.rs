//! Where a pod is in its life, by its containers.

use crablet_api::Gate;
use crablet_api::core::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodPhase, PodStatus, RestartPolicy,
};
use crablet_cri_api::ContainerState as Seen;

use super::StatusInput;
use super::containers::RESTARTING_ALL;
use crate::{qos, restart};

/// What became of a container, as far as the phase goes.
enum Life<'a> {
    Waiting,
    Running {
        started: bool,
    },
    /// It ended, and may have been waiting to be started again since.
    Ended {
        now: bool,
        how: &'a ContainerStateTerminated,
    },
}

/// The phase that a pod's containers make.
pub(super) fn phase(input: &StatusInput, status: &PodStatus) -> PodPhase {
    let (init, sidecars): (Vec<_>, Vec<_>) =
        input.pod.spec.init_containers.iter().partition(|container| !restart::is_sidecar(container));
    if init.iter().any(|container| has_failed(input, container, &life(status, container))) {
        return PodPhase::Failed;
    }
    let initializing = init.iter().any(|container| match life(status, container) {
        Life::Waiting | Life::Running { .. } => true,
        Life::Ended { .. } => false,
    });

    let mut counts = Counts::default();
    let mut sidecar_pending = false;
    for life in sidecars.iter().map(|container| life(status, container)) {
        match life {
            // One that ended does not count: it is started again, or the pod is over.
            Life::Ended { .. } => {}
            Life::Waiting => counts.waiting += 1,
            Life::Running { started } => {
                counts.running += 1;
                sidecar_pending |= !started;
            }
        }
    }
    for container in &input.pod.spec.containers {
        match life(status, container) {
            Life::Waiting => counts.waiting += 1,
            Life::Running { .. } => counts.running += 1,
            Life::Ended { now, how } => {
                counts.stopped += 1;
                counts.replaced += u32::from(is_replaced(input, container));
                counts.restartable += u32::from(is_restarted(input, container, how));
                counts.succeeded += u32::from(now && how.exit_code == 0);
            }
        }
    }

    // Sidecars that start again do not put a pod back that had come further.
    let sidecar_pending =
        sidecar_pending && !input.observed.has_regular_container_in_active_sandbox(&input.pod.spec);
    if initializing || sidecar_pending || counts.waiting > 0 {
        PodPhase::Pending
    } else if counts.running > 0 {
        PodPhase::Running
    } else if counts.stopped == 0 {
        PodPhase::Pending
    } else {
        counts.phase_when_all_stopped(input)
    }
}

#[derive(Default)]
struct Counts {
    waiting: u32,
    running: u32,
    stopped: u32,
    replaced: u32,
    restartable: u32,
    succeeded: u32,
}

impl Counts {
    fn phase_when_all_stopped(&self, input: &StatusInput) -> PodPhase {
        let ended = if self.stopped == self.succeeded { PodPhase::Succeeded } else { PodPhase::Failed };
        let policy = &input.pod.spec.restart_policy;
        if input.finished && !qos::is_static(input.pod) {
            ended
        } else if self.replaced > 0 {
            PodPhase::Running
        } else if input.features.enabled(Gate::ContainerRestartRules) {
            if self.restartable > 0 { PodPhase::Running } else { ended }
        } else {
            match (policy, ended) {
                (Some(RestartPolicy::Never), ended) => ended,
                (Some(RestartPolicy::OnFailure), PodPhase::Succeeded) => PodPhase::Succeeded,
                (
                    Some(RestartPolicy::OnFailure | RestartPolicy::Always | RestartPolicy::Other(_)) | None,
                    _,
                ) => PodPhase::Running,
            }
        }
    }
}

fn life<'s>(status: &'s PodStatus, container: &Container) -> Life<'s> {
    let Some(status) = status.find_container_status(&container.name) else { return Life::Waiting };
    match status.state.one() {
        Some(ContainerState::Running(_)) => Life::Running { started: status.started == Some(true) },
        Some(ContainerState::Terminated(how)) => Life::Ended { now: true, how },
        Some(ContainerState::Waiting(_)) | None => match last_end(status) {
            Some(how) => Life::Ended { now: false, how },
            None => Life::Waiting,
        },
    }
}

fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    match status.last_state.one()? {
        ContainerState::Terminated(how) => Some(how),
        ContainerState::Waiting(_) | ContainerState::Running(_) => None,
    }
}

/// Whether an init container failed for good.
fn has_failed(input: &StatusInput, container: &Container, life: &Life) -> bool {
    match life {
        Life::Waiting | Life::Running { .. } => false,
        Life::Ended { how, .. } => how.exit_code != 0 && !is_restarted(input, container, how),
    }
}

fn is_restarted(input: &StatusInput, container: &Container, how: &ContainerStateTerminated) -> bool {
    restart::restarts_after_exit(container, &input.pod.spec, how.exit_code, input.features)
        || is_replaced(input, container)
        || (input.features.enabled(Gate::RestartAllContainersOnContainerExits)
            && how.reason == RESTARTING_ALL)
}

/// Whether a container was stopped to be started anew, or the next one is made already and has yet to be started.
fn is_replaced(input: &StatusInput, container: &Container) -> bool {
    let latest = input.observed.latest(&container.name);
    latest.is_some_and(|latest| latest.is_replaced || latest.state == Seen::Created)
}
