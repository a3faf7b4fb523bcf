//! Containers that run and are to have other resources.

use crablet_api::core::{Container, ResourceRequirements, ResourceResizeRestartPolicy};

use super::{Input, Kill, Plan, Role, Update, kill, start};
use crate::kill::KillReason;
use crate::observed;
use crate::resize::{Resource, allocated, effective};

/// Gives a container that runs what is allocated to it. The answer is whether it goes on running: it may have asked to
/// be restarted for that.
pub(super) fn plan(
    input: &Input,
    plan: &mut Plan,
    role: Role,
    index: usize,
    container: &Container,
    run: &observed::Container,
) -> bool {
    let Some(actuated) = input.actuated.get(&run.name) else { return true };
    let allocated = effective(input.allocated, allocated(input.allocated, container), input.features);
    let changed: Vec<Resource> = Resource::ALL
        .into_iter()
        .filter(|resource| resource.of(&allocated) != resource.of(actuated))
        .collect();
    if changed.iter().any(|resource| needs_restart(container, *resource)) {
        let message = format!("Container {} resize requires restart", container.name);
        plan.kill.push(Kill { starts_anew: true, ..kill(input, run, KillReason::Resize, message) });
        start(input, plan, role, index, container);
        return false;
    }
    // What is not known, since an agent died amid a resize, is told as it is allocated: each update tells all.
    let unknown = changed.iter().filter(|resource| resource.of(actuated).is_nothing());
    let mut given = unknown.fold(actuated.clone(), |given, resource| resource.taken_from(&allocated, given));
    for resource in changed {
        given = resource.taken_from(&allocated, given);
        let (to, from) = (resource.of(&allocated), resource.of(actuated));
        let grows = if to.limit == from.limit { to.request > from.request } else { to.limit > from.limit };
        let shrinks = to.limit > 0 && (from.limit == 0 || to.limit < from.limit);
        plan.update.push(Update {
            id: run.id.clone(),
            name: container.name.clone(),
            resources: given.clone(),
            less_memory: Some(to.limit).filter(|_| resource == Resource::Memory && shrinks),
            order: (resource, grows),
        });
    }
    true
}

impl Update {
    /// What is known of a container that has these resources, while it is being given others: not the one that changes.
    pub fn under_way(&self, known: ResourceRequirements) -> ResourceRequirements {
        let (resource, _) = self.order;
        resource.taken_from(&ResourceRequirements::default(), known)
    }
}

fn needs_restart(container: &Container, resource: Resource) -> bool {
    let mut policies = container.resize_policy.iter();
    policies
        .find(|policy| *policy.resource_name == *resource.name())
        .is_some_and(|policy| policy.restart_policy == ResourceResizeRestartPolicy::RestartContainer)
}

/// What takes less goes before what takes more, so that there is room for it.
pub(super) fn put_in_order(plan: &mut Plan) {
    plan.update.sort_by_key(|update| update.order);
}
