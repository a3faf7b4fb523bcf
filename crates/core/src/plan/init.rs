//! How far the init containers of a pod have come, and the sidecars that run beside the others.

use crablet_api::core::{Container, ContainerState as ApiState, ContainerStatus};
use crablet_api::meta::Time;
use crablet_api::{Gate, Text};
use crablet_cri_api::{ContainerState, SandboxStatus};

use super::containers::Fault;
use super::{Input, Kill, Plan, Role, WaitingFor, kill, resize, start, stop_others};
use crate::kill::KillReason;
use crate::probes::ProbeResult;
use crate::status::runtime_id;
use crate::{observed, restart};

/// How far the init containers of a pod have come.
pub(super) enum Initialization {
    /// All are done, and all sidecars have started: the others may start.
    Done,
    /// Not all are done.
    Pending,
    /// One failed and is not to be started again.
    Failed {
        /// Which.
        name: Text,
    },
}

/// What became of one init container in the active sandbox.
enum Progress<'a> {
    NotBegun,
    /// It was done; the runtime may have forgotten, but the status has not.
    Done,
    Seen(&'a observed::Container),
}

/// Starts the init container whose turn it is, and keeps sidecars running.
///
/// Init containers run one after another, so that the last one that has begun tells how far they have come: whatever
/// is before it was done, even if nothing remembers. When a regular container was made in the sandbox, they all were.
/// (Upstream does not know which sandbox a container was in, and so cannot tell when the regular ones have ended.)
pub(super) fn plan(input: &Input, plan: &mut Plan) -> Initialization {
    let containers = &input.pod.spec.init_containers;
    let initialized = input.observed.has_regular_container_in_active_sandbox(&input.pod.spec);
    let progress: Vec<Progress> = containers.iter().map(|container| progress(input, container)).collect();
    let furthest = progress.iter().rposition(|progress| !matches!(progress, Progress::NotBegun));
    let passed = if initialized { containers.len() } else { furthest.unwrap_or(0) };

    for (index, container) in containers.iter().enumerate().take(passed) {
        if restart::is_sidecar(container) {
            keep_running(input, plan, index, container, &progress[index]);
        }
    }
    if initialized || containers.is_empty() {
        return Initialization::Done;
    }
    let Some(furthest) = furthest else {
        start(input, plan, Role::Init, 0, &containers[0]);
        return Initialization::Pending;
    };
    let container = &containers[furthest];
    let done = match &progress[furthest] {
        _ if restart::is_sidecar(container) => {
            keep_running(input, plan, furthest, container, &progress[furthest])
        }
        Progress::NotBegun => false,
        Progress::Done => true,
        Progress::Seen(run) => match run_once(input, plan, furthest, container, run) {
            Some(done) => done,
            None => return Initialization::Failed { name: container.name.clone() },
        },
    };
    match (done, containers.get(furthest + 1)) {
        (true, None) => Initialization::Done,
        (true, Some(next)) => {
            start(input, plan, Role::Init, furthest + 1, next);
            Initialization::Pending
        }
        (false, _) => Initialization::Pending,
    }
}

fn progress<'a>(input: &Input<'a>, container: &'a Container) -> Progress<'a> {
    let Some(sandbox) = input.observed.active_sandbox() else { return Progress::NotBegun };
    let mut runs = input.observed.named(&container.name).peekable();
    if runs.peek().is_some() {
        let here = runs.find(|run| run.sandbox_id == sandbox.id);
        return here.map_or(Progress::NotBegun, Progress::Seen);
    }
    if !restart::is_sidecar(container) && was_done_in(input, container, sandbox) {
        return Progress::Done;
    }
    Progress::NotBegun
}

/// Whether the status remembers that an init container was done in this sandbox. A status has no sandboxes, but an init
/// container that started after the sandbox was made was in it. A status has whole seconds only: what started in the
/// second in which the sandbox was made was in it if it is the first one, and may have been in the one before it
/// otherwise. Then it runs again, since a step done twice is better than a step left out.
fn was_done_in(input: &Input, container: &Container, sandbox: &SandboxStatus) -> bool {
    let Some(made) = sandbox.created_at.map(Time::from) else { return false };
    let was_here = |started: Time| started > made || started == made && sandbox.metadata.attempt == 0;
    match status_of(input, &container.name).and_then(|status| status.state.one()) {
        Some(ApiState::Terminated(terminated)) => {
            terminated.exit_code == 0 && terminated.started_at.is_some_and(was_here)
        }
        Some(ApiState::Waiting(_) | ApiState::Running(_)) | None => false,
    }
}

fn status_of<'a>(input: &Input<'a>, name: &str) -> Option<&'a ContainerStatus> {
    input.status.init_container_statuses.iter().find(|status| *status.name == *name)
}

/// Whether an init container that is not a sidecar is done, or `None` where it failed for good.
fn run_once(
    input: &Input,
    plan: &mut Plan,
    index: usize,
    container: &Container,
    run: &observed::Container,
) -> Option<bool> {
    let restarts = match run.state {
        ContainerState::Running => {
            if input.features.enabled(Gate::InPlacePodVerticalScalingInitContainers) {
                resize::plan(input, plan, Role::Init, index, container, run);
            }
            stop_others(input, plan, &container.name, Some(&run.id));
            plan.waiting_for.push(WaitingFor::InitContainer { name: container.name.clone() });
            return Some(false);
        }
        // It was made and never started: the agent ended in between, or the runtime failed.
        ContainerState::Created => true,
        ContainerState::Exited if run.is_replaced => true,
        ContainerState::Exited if run.exit_code == 0 && run.reason != "OOMKilled" => return Some(true),
        ContainerState::Exited => may_retry(input, container, run.exit_code),
        ContainerState::Unknown => {
            restart::restarts_without_exit_code(container, &input.pod.spec, input.features)
        }
    };
    if !restarts {
        return None;
    }
    stop_unknown(input, plan, run);
    start(input, plan, Role::Init, index, container);
    Some(false)
}

fn may_retry(input: &Input, container: &Container, exit_code: i32) -> bool {
    let pod = input.pod;
    if !input.features.enabled(Gate::ContainerRestartRules) {
        return restart::pod_restarts_failures(&pod.spec);
    }
    pod.metadata.deletion_timestamp.is_none()
        && restart::restarts_after_exit(container, &pod.spec, exit_code, input.features)
}

/// Keeps a sidecar running; the answer is whether it has started.
fn keep_running(
    input: &Input,
    plan: &mut Plan,
    index: usize,
    container: &Container,
    progress: &Progress,
) -> bool {
    let run = match progress {
        Progress::Seen(run) if run.state == ContainerState::Running => run,
        Progress::Seen(run) => {
            stop_unknown(input, plan, run);
            start(input, plan, Role::Init, index, container);
            return false;
        }
        Progress::NotBegun | Progress::Done => {
            start(input, plan, Role::Init, index, container);
            return false;
        }
    };
    let started = has_started(input, container, run);
    match sidecar_fault(input, container, run, started) {
        Some(fault) => {
            let message = format!("Init container {} {fault}", container.name);
            plan.kill.push(Kill { starts_anew: true, ..kill(input, run, fault.into(), message) });
            start(input, plan, Role::Init, index, container);
        }
        None => {
            if resize::plan(input, plan, Role::Init, index, container, run) {
                stop_others(input, plan, &container.name, Some(&run.id));
            }
        }
    }
    if !started {
        plan.waiting_for.push(WaitingFor::SidecarStartup { name: container.name.clone() });
    }
    started
}

/// Why a sidecar that runs cannot go on. Its liveness counts from when it has started.
fn sidecar_fault(
    input: &Input,
    container: &Container,
    run: &observed::Container,
    started: bool,
) -> Option<Fault> {
    let probes = input.probes.of(&run.id);
    if container.startup_probe.is_some() && probes.startup == Some(ProbeResult::Failure) {
        return Some(Fault::StartupProbe);
    }
    let dead = started && container.liveness_probe.is_some() && probes.liveness == Some(ProbeResult::Failure);
    Fault::of_definition(input, run, container).or(dead.then_some(Fault::LivenessProbe))
}

/// Whether a sidecar that runs has started: its startup probe succeeded, now or before the agent was restarted.
fn has_started(input: &Input, container: &Container, run: &observed::Container) -> bool {
    match input.probes.of(&run.id).startup {
        _ if container.startup_probe.is_none() => true,
        Some(ProbeResult::Success) => true,
        Some(ProbeResult::Failure) => false,
        Some(ProbeResult::Unknown) | None => status_of(input, &container.name)
            .is_some_and(|status| status.started == Some(true) && runtime_id(status) == run.id),
    }
}

fn stop_unknown(input: &Input, plan: &mut Plan, run: &observed::Container) {
    if run.state == ContainerState::Unknown {
        let message = "Init container is in \"unknown\" state, try killing it before restart".to_owned();
        plan.kill.push(Kill { starts_anew: true, ..kill(input, run, KillReason::Unknown, message) });
    }
}
