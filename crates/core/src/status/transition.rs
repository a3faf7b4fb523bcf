//! Whether a container may go from one state to another.

use crablet_api::core::{Container, ContainerState, ContainerStatus, Pod, PodStatus, RestartPolicy};
use crablet_api::{FeatureGates, Gate, Text};

use super::containers::is_ended;
use crate::restart;

/// The container, if there is one, that ended for good in `old` and has not in `new`. A status that says so is wrong and
/// is not published: something forgot a container, and it must not look as if it ran once more.
pub fn illegal_transition(
    pod: &Pod,
    old: &PodStatus,
    new: &PodStatus,
    features: &FeatureGates,
) -> Option<Text> {
    let spec = &pod.spec;
    let any_may_restart = spec.restart_policy == Some(RestartPolicy::Always)
        || (features.enabled(Gate::RestartAllContainersOnContainerExits) && restart::could_restart_all(spec));
    if any_may_restart {
        return None;
    }
    let for_good = |container: &Container, status: &ContainerStatus| {
        let Some(ContainerState::Terminated(end)) = status.state.one() else { return false };
        container.name == status.name
            && !restart::restarts_after_exit(container, spec, end.exit_code, features)
    };
    let revived = |container: &Container, old: &[ContainerStatus], new: &[ContainerStatus]| {
        old.iter().any(|old| for_good(container, old))
            && new.iter().any(|new| new.name == container.name && !is_ended(&new.state))
    };
    let (old_init, new_init) = (&old.init_container_statuses, &new.init_container_statuses);
    // Sidecars always restart.
    let mut init = spec.init_containers.iter().filter(|container| !restart::is_sidecar(container));
    let mut regular = spec.containers.iter();
    let found = regular
        .find(|container| revived(container, &old.container_statuses, &new.container_statuses))
        .or_else(|| init.find(|container| revived(container, old_init, new_init)));
    found.map(|container| container.name.clone())
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    matches!(status.state.one(), Some(ContainerState::Running(_)))
}
