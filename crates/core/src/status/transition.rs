//! Whether a container may go from one state to another.

use crablet_api::Text;
use crablet_api::core::{Container, ContainerState, ContainerStatus, Pod, PodStatus, RestartPolicy};

use super::containers::is_ended;
use crate::features::Features;
use crate::restart;

/// The container, if there is one, that ended for good in `old` and has not in `new`. A status that says so is wrong and
/// is not published: something forgot a container, and it must not look as if it ran once more.
pub fn illegal_transition(pod: &Pod, old: &PodStatus, new: &PodStatus, features: &Features) -> Option<Text> {
    let spec = &pod.spec;
    let any_may_restart = spec.restart_policy == Some(RestartPolicy::Always)
        || (features.restart_all_containers && restart::could_restart_all(spec));
    if any_may_restart {
        return None;
    }
    let for_good = |containers: &[Container], status: &ContainerStatus| {
        let Some(ContainerState::Terminated(end)) = status.state.one() else { return false };
        let container = containers.iter().find(|container| container.name == status.name);
        container
            .is_some_and(|container| !restart::restarts_after_exit(container, spec, end.exit_code, features))
    };
    let revived = |containers: &[Container], old: &[ContainerStatus], new: &[ContainerStatus]| {
        let ended = old.iter().filter(|old| for_good(containers, old));
        let mut names = ended.map(|old| old.name.clone());
        names.find(|name| new.iter().any(|new| new.name == *name && !is_ended(&new.state)))
    };
    revived(&spec.containers, &old.container_statuses, &new.container_statuses).or_else(|| {
        let (old, new) = (&old.init_container_statuses, &new.init_container_statuses);
        revived(&spec.init_containers, old, new)
    })
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    matches!(status.state.one(), Some(ContainerState::Running(_)))
}
