//! The containers of a pod whose sandbox will do.

use std::fmt::{self, Display, Formatter};

use crablet_api::core::Container;
use crablet_cri_api::ContainerState;

use super::init::{self, Initialization};
use super::{Input, Kill, Plan, Role, WhyEnd, end, kill, resize, start, stop_others};
use crate::kill::KillReason;
use crate::probes::ProbeResult;
use crate::{observed, restart};

pub(super) fn plan(input: &Input, mut plan: Plan) -> Plan {
    let spec = &input.pod.spec;
    for (index, ephemeral) in spec.ephemeral_containers.iter().enumerate() {
        // They run once, whatever becomes of the pod's other containers.
        if input.observed.latest(&ephemeral.container.name).is_none() {
            start(input, &mut plan, Role::Ephemeral, index, &ephemeral.container);
        }
    }
    match init::plan(input, &mut plan) {
        Initialization::Failed { name } => return end(input, WhyEnd::InitContainerFailed { name }),
        Initialization::Pending => {}
        Initialization::Done => {
            let mut needed = false;
            for (index, container) in spec.containers.iter().enumerate() {
                needed |= plan_container(input, &mut plan, index, container);
            }
            if !needed {
                // Sidecars do not keep a pod alive.
                return end(input, WhyEnd::ContainersDone);
            }
        }
    }
    plan.remove.extend(outdated_init_containers(input));
    resize::put_in_order(&mut plan);
    plan
}

/// Whether the container runs on, or will.
fn plan_container(input: &Input, plan: &mut Plan, index: usize, container: &Container) -> bool {
    let latest = input.observed.latest(&container.name);
    let Some(running) = latest.filter(|latest| latest.state == ContainerState::Running) else {
        if !restart::is_to_be_started(container, input.pod, input.observed, input.features) {
            return false;
        }
        if let Some(unknown) = latest.filter(|latest| latest.state == ContainerState::Unknown) {
            let message = "Container is in \"unknown\" state, try killing it before restart".to_owned();
            plan.kill.push(Kill { starts_anew: true, ..kill(input, unknown, KillReason::Unknown, message) });
        }
        start(input, plan, Role::Main, index, container);
        return true;
    };
    let Some(fault) = fault(input, running, container) else {
        if resize::plan(input, plan, Role::Main, index, container, running) {
            stop_others(input, plan, &container.name, Some(&running.id));
        }
        return true;
    };
    // A container that changed is started anew whatever the policy.
    let restarts = match fault {
        Fault::OldSandbox | Fault::DefinitionChanged => true,
        Fault::LivenessProbe | Fault::StartupProbe => {
            restart::restarts_without_exit_code(container, &input.pod.spec, input.features)
        }
    };
    let mut message = format!("Container {} {fault}", container.name);
    if restarts {
        message += ", will be restarted";
    }
    plan.kill.push(Kill { starts_anew: restarts, ..kill(input, running, fault.into(), message) });
    if restarts {
        start(input, plan, Role::Main, index, container);
    }
    restarts
}

fn fault(input: &Input, running: &observed::Container, wanted: &Container) -> Option<Fault> {
    let probes = input.probes.of(&running.id);
    Fault::of_definition(input, running, wanted).or(match (probes.liveness, probes.startup) {
        (Some(ProbeResult::Failure), _) => Some(Fault::LivenessProbe),
        (_, Some(ProbeResult::Failure)) => Some(Fault::StartupProbe),
        (_, _) => None,
    })
}

/// Why a container that runs cannot go on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    OldSandbox,
    DefinitionChanged,
    LivenessProbe,
    StartupProbe,
}

impl Fault {
    /// Whether a container is not, or not where, the pod asks for.
    pub(super) fn of_definition(
        input: &Input,
        running: &observed::Container,
        wanted: &Container,
    ) -> Option<Fault> {
        let active = input.observed.active_sandbox();
        if active.is_some_and(|sandbox| sandbox.id != running.sandbox_id) {
            return Some(Fault::OldSandbox);
        }
        running.differs_from(wanted).then_some(Fault::DefinitionChanged)
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::OldSandbox => "runs in an old sandbox",
            Fault::DefinitionChanged => "definition changed",
            Fault::LivenessProbe => "failed liveness probe",
            Fault::StartupProbe => "failed startup probe",
        })
    }
}

impl From<Fault> for KillReason {
    fn from(fault: Fault) -> KillReason {
        match fault {
            Fault::OldSandbox => KillReason::OldSandbox,
            Fault::DefinitionChanged => KillReason::DefinitionChanged,
            Fault::LivenessProbe => KillReason::LivenessProbe,
            Fault::StartupProbe => KillReason::StartupProbe,
        }
    }
}

/// Of every init container the newest run is kept, for its status and its logs.
fn outdated_init_containers(input: &Input) -> Vec<String> {
    let spec = &input.pod.spec;
    let ended = |run: &&observed::Container| match run.state {
        ContainerState::Exited | ContainerState::Unknown => true,
        ContainerState::Created | ContainerState::Running => false,
    };
    let outdated =
        |container| input.observed.named(container).filter(ended).skip(1).map(|run| run.id.clone());
    spec.init_containers.iter().flat_map(|container| outdated(&container.name)).collect()
}
