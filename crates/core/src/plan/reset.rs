//! Restarting all containers of a pod in place.

use super::{Input, Plan, WaitingFor, kill};
use crate::kill::KillReason;
use crate::{observed, restart};
use crablet_api::core::Container;
use crablet_cri_api::ContainerState;

/// Removes all containers, and when nothing else is left those whose exit asked for it: as long as one of them is there,
/// an agent that restarts in between knows what it was about. The plan after that starts the pod from its first init
/// container.
pub(super) fn plan(input: &Input, mut plan: Plan) -> Plan {
    let spec = &input.pod.spec;
    let (asked, others): (Vec<_>, Vec<_>) = [&spec.containers, &spec.init_containers]
        .into_iter()
        .flatten()
        .flat_map(|container| input.observed.named(&container.name).map(move |run| (container, run)))
        .partition(|(container, run)| asked_for_it(container, run));
    let first = if others.is_empty() { asked } else { others };
    for (_, run) in first {
        if run.may_live() {
            let stop = kill(input, run, KillReason::RestartOfAll, "killing".into());
            plan.kill.push(stop);
        }
        plan.remove.push(run.id.clone());
    }
    plan.waiting_for.push(WaitingFor::RestartOfAll);
    plan
}

fn asked_for_it(container: &Container, run: &observed::Container) -> bool {
    run.state == ContainerState::Exited && restart::restarts_all(container, run.exit_code)
}
