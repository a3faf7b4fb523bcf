//! Whether containers have started and are ready, by what their probes found.
//!
//! A probe that has found nothing yet, because the container or the agent was started just now, leaves a container
//! that is the same as before as it was before: readiness does not change because the agent restarted.

use crablet_api::core::{Container, ContainerState, ContainerStatus, PodStatus};

use super::StatusInput;
use crate::probes::{ContainerProbes, ProbeResult};
use crate::restart;

pub(super) fn fill(input: &StatusInput, status: &mut PodStatus) {
    let spec = &input.pod.spec;
    for status in &mut status.container_statuses {
        if let Some(container) = spec.containers.iter().find(|container| container.name == status.name) {
            fill_container(input, container, &input.previous.container_statuses, status);
        }
    }
    for status in &mut status.init_container_statuses {
        let Some(container) = spec.init_containers.iter().find(|container| container.name == status.name)
        else {
            continue;
        };
        fill_container(input, container, &input.previous.init_container_statuses, status);
        if !restart::is_sidecar(container) {
            // It has no probes: it is ready when it is done.
            status.ready =
                matches!(status.state.one(), Some(ContainerState::Terminated(end)) if end.exit_code == 0);
        }
    }
}

fn fill_container(
    input: &StatusInput,
    container: &Container,
    previous: &[ContainerStatus],
    status: &mut ContainerStatus,
) {
    let same = previous
        .iter()
        .find(|previous| previous.container_id == status.container_id && !status.container_id.is_empty());
    let probes = input.probes.of(runtime_id(status));
    let running = matches!(status.state.one(), Some(ContainerState::Running(_)));
    let started = running && has_started(container, &probes, same);
    status.started = Some(started);
    status.ready = started && is_ready(container, &probes, same);
}

fn has_started(container: &Container, probes: &ContainerProbes, same: Option<&ContainerStatus>) -> bool {
    match probes.startup {
        _ if container.startup_probe.is_none() => true,
        Some(ProbeResult::Success) => true,
        Some(ProbeResult::Failure) => false,
        Some(ProbeResult::Unknown) | None => same.is_some_and(|same| same.started == Some(true)),
    }
}

fn is_ready(container: &Container, probes: &ContainerProbes, same: Option<&ContainerStatus>) -> bool {
    match probes.readiness {
        _ if container.readiness_probe.is_none() => true,
        Some(ProbeResult::Success) => true,
        Some(ProbeResult::Failure | ProbeResult::Unknown) => false,
        None => same.is_some_and(|same| same.ready),
    }
}

/// `containerd://abc` is `abc` to the runtime.
pub(crate) fn runtime_id(status: &ContainerStatus) -> &str {
    status.container_id.split_once("://").map_or("", |(_, id)| id)
}
