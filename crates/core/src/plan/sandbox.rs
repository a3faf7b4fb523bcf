//! Whether a pod's sandbox will do.

use crablet_api::Gate;
use crablet_api::core::Pod;
use crablet_cri_api::{ContainerState, NetworkNamespace, SandboxState};

use super::{Input, Plan, Role, Sandbox, WaitingFor, WhyEnd, containers, end, keep, kill_all, reset, start};
use crate::{observed, restart};

/// Whether a pod's sandbox will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxNeed {
    /// It will.
    None {
        /// The runtime's name for it.
        id: String,
    },
    /// A new one is needed.
    New {
        /// How many there were before.
        attempt: u32,
        why: WhyNewSandbox,
    },
}

/// Why a new sandbox is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNewSandbox {
    /// There is none.
    Missing,
    /// Several are ready, and which of them is right nobody can tell.
    SeveralReady,
    /// The newest one is not ready: it died, or the machine was restarted.
    NotReady,
    /// It is in the host's network and should not be, or the other way round.
    OtherNetwork,
    NoAddress,
}

/// Whether a pod's sandbox will do, or a new one is needed.
pub fn sandbox_need(pod: &Pod, observed: &observed::Pod) -> SandboxNeed {
    let Some(newest) = observed.sandboxes().first() else {
        return SandboxNeed::New { attempt: 0, why: WhyNewSandbox::Missing };
    };
    let ready = observed.sandboxes().iter().filter(|sandbox| sandbox.state == SandboxState::Ready).count();
    let wanted = if pod.spec.host_network { NetworkNamespace::Node } else { NetworkNamespace::Pod };
    let why = if ready > 1 {
        WhyNewSandbox::SeveralReady
    } else if newest.state != SandboxState::Ready {
        WhyNewSandbox::NotReady
    } else if newest.network != wanted {
        WhyNewSandbox::OtherNetwork
    } else if !pod.spec.host_network && newest.ips.is_empty() {
        WhyNewSandbox::NoAddress
    } else {
        return SandboxNeed::None { id: newest.id.clone() };
    };
    SandboxNeed::New { attempt: newest.metadata.attempt + 1, why }
}

pub(super) fn plan(input: &Input) -> Plan {
    match sandbox_need(input.pod, input.observed) {
        SandboxNeed::None { id } if is_restarting_all(input) => reset::plan(input, keep(id)),
        SandboxNeed::None { id } => containers::plan(input, keep(id)),
        SandboxNeed::New { attempt, why } => plan_new(input, attempt, why),
    }
}

fn is_restarting_all(input: &Input) -> bool {
    input.features.enabled(Gate::RestartAllContainersOnContainerExits)
        && restart::is_restarting_all(input.status)
}

/// Everything is stopped and begins anew in the new sandbox, unless there is nothing left to run in it.
fn plan_new(input: &Input, attempt: u32, why: WhyNewSandbox) -> Plan {
    let spec = &input.pod.spec;
    let has_run = !input.observed.containers().is_empty();
    if !restart::pod_restarts_failures(spec) && has_run {
        return end(input, WhyEnd::SandboxLost);
    }
    let to_start: Vec<usize> = (0..spec.containers.len()).filter(|&index| !is_done(input, index)).collect();
    if to_start.is_empty() && input.observed.has_any_regular_container(spec) {
        return end(input, WhyEnd::ContainersDone);
    }

    // Sandboxes that are not ready are stopped too: their network may still be there.
    let stop = input.observed.sandboxes().iter().map(|sandbox| sandbox.id.clone()).collect();
    let mut plan = Plan {
        sandbox: Sandbox::Create { attempt, why, stop },
        waiting_for: vec![WaitingFor::Sandbox { why }],
        ..keep(String::new())
    };
    if is_restarting_all(input) {
        return reset::plan(input, plan);
    }
    match spec.init_containers.first() {
        Some(first) => start(input, &mut plan, Role::Init, 0, first),
        None => to_start
            .into_iter()
            .for_each(|index| start(input, &mut plan, Role::Main, index, &spec.containers[index])),
    }
    plan.kill = kill_all(input);
    plan.kill.iter_mut().for_each(|kill| kill.starts_anew = true);
    // What init containers did in the old sandbox does not count in the new one.
    let init_names = |name: &str| spec.init_containers.iter().any(|container| *container.name == *name);
    let old = input.observed.containers().iter().filter(|container| init_names(&container.name));
    plan.remove = old.map(|container| container.id.clone()).collect();
    plan
}

/// Whether a container has ended and is not to run again.
fn is_done(input: &Input, index: usize) -> bool {
    let container = &input.pod.spec.containers[index];
    let latest = input.observed.latest(&container.name);
    latest.filter(|latest| latest.state == ContainerState::Exited && !latest.is_replaced).is_some_and(
        |latest| !restart::restarts_after_exit(container, &input.pod.spec, latest.exit_code, input.features),
    )
}
