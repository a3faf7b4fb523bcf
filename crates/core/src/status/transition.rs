//! Which states a container does not leave any more.

use crablet_api::core::{Container, ContainerState, ContainerStatus, Pod, PodStatus, RestartPolicy};
use crablet_api::{FeatureGates, Gate};

use super::containers::is_ended;
use crate::restart;

/// Leaves containers as the API server has them (`pod.status`) that ended there for good by the pod's policy, and run again
/// all the same: init containers in another sandbox. The server takes no other state of such a container, and with it
/// nothing else of the status. Upstream tells nothing more of the pod.
pub fn keep_what_ended(pod: &Pod, new: &mut PodStatus, features: &FeatureGates) {
    let (spec, old) = (&pod.spec, &pod.status);
    let any_may_restart = spec.restart_policy == Some(RestartPolicy::Always)
        || (features.enabled(Gate::RestartAllContainersOnContainerExits) && restart::could_restart_all(spec));
    if any_may_restart {
        return;
    }
    let for_good = |container: &Container, status: &ContainerStatus| {
        let Some(ContainerState::Terminated(end)) = status.state.one() else { return false };
        !restart::restarts_after_exit(container, spec, end.exit_code, features)
    };
    let keep = |container: &Container, old: &[ContainerStatus], new: &mut [ContainerStatus]| {
        let ended = old.iter().find(|old| old.name == container.name && for_good(container, old));
        let revived = new.iter_mut().find(|new| new.name == container.name && !is_ended(&new.state));
        if let (Some(ended), Some(revived)) = (ended, revived) {
            *revived = ended.clone();
        }
    };
    // Sidecars always restart.
    for container in spec.init_containers.iter().filter(|container| !restart::is_sidecar(container)) {
        keep(container, &old.init_container_statuses, &mut new.init_container_statuses);
    }
    for container in &spec.containers {
        keep(container, &old.container_statuses, &mut new.container_statuses);
    }
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    matches!(status.state.one(), Some(ContainerState::Running(_)))
}
