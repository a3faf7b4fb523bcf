//! What is allocated to pods: never more than there is, and given to them in the end.

use crablet_agent::statuses::Reported;
use crablet_api::Quantity;
use crablet_api::core::{PodConditionType, PodStatus, ResourceRequirements};
use crablet_api::document::Limits;
use crablet_core::resize::state_file;
use crablet_core::translate::cpu_shares;
use crablet_cri_sim::ContainerView;

use crate::ledger::Ledger;
use crate::world::CPUS;

const INVARIANT: u8 = 20;

/// Checks what an agent writes down as allocated. Pods whose end has come need not be taken out of it at once.
pub fn check_allocated(ledger: &Ledger, file: &[u8]) {
    let mut state = ledger.state();
    let entries = match state_file::decode(file, Limits::API) {
        Ok(content) => content.entries,
        Err(error) => return ledger.broken(&mut state, INVARIANT, format!("a state file is none: {error}")),
    };
    let counts = |uid: &str| {
        let status = state.statuses.as_ref().and_then(|(statuses, _)| statuses.get(uid));
        state.lives.get(uid).is_some_and(|life| life.wanted)
            && !status.is_some_and(|view| view.status.is_over())
    };
    let mut total = 0;
    for (uid, info) in entries.iter().filter(|(uid, _)| counts(uid)) {
        let containers = state.lives[uid].pod.spec.containers.iter();
        let asked = containers.filter_map(|container| info.get(&container.name)).map(cpu);
        total += asked.sum::<i64>();
    }
    if total > CPUS * 1000 {
        let what = format!("{total} thousandths of a CPU are allocated on a node that has {CPUS} CPUs");
        ledger.broken(&mut state, INVARIANT, what);
    }
}

/// Checks that everybody has what was granted, and that nobody waits for what there is, after a long time without faults.
pub fn check_resized(ledger: &Ledger) {
    let containers = ledger.simulator.containers();
    let mut state = ledger.state();
    let Some((statuses, _)) = state.statuses.clone() else { return };
    let views = statuses.list();
    let allocated =
        |view: &Reported| view.status.allocated_resources.get("cpu").map_or(0, Quantity::milli_value);
    let live: Vec<&Reported> = views.iter().filter(|view| !view.status.is_over()).collect();
    let total: i64 = live.iter().map(|view| allocated(view)).sum();
    let mut wrong = Vec::new();
    for view in live {
        let uid = view.pod.metadata.uid.as_str();
        if has(&view.status, &PodConditionType::PodResizeInProgress) {
            wrong.push(format!("{uid} is still being resized"));
        }
        let wanted: i64 = view.pod.spec.containers.iter().map(|container| cpu(&container.resources)).sum();
        let is_pending = has(&view.status, &PodConditionType::PodResizePending);
        if is_pending && total - allocated(view) + wanted <= CPUS * 1000 {
            wrong.push(format!("{uid} waits for {wanted} thousandths of a CPU, for which there is room"));
        }
        if !is_pending && wanted != allocated(view) {
            wrong.push(format!(
                "{uid} has {} thousandths of a CPU, asks for {wanted}, and does not wait",
                allocated(view)
            ));
        }
        wrong.extend(unequal(view, &containers));
    }
    for what in wrong {
        ledger.broken(&mut state, INVARIANT, what);
    }
}

/// A container that runs without what is allocated to it.
fn unequal(view: &Reported, containers: &[ContainerView]) -> Option<String> {
    let uid = view.pod.metadata.uid.as_str();
    let mut shown = view.status.container_statuses.iter();
    shown.find_map(|shown| {
        let request = shown.allocated_resources.get("cpu")?;
        let is_it = |run: &&ContainerView| run.alive && run.pod_uid == uid && run.name == *shown.name;
        let run = containers.iter().find(is_it)?;
        let wanted = cpu_shares(request.milli_value());
        (run.cpu_shares != wanted).then(|| {
            format!(
                "{} of {uid} has {} shares of the CPU, and {wanted} are allocated to it",
                run.name, run.cpu_shares
            )
        })
    })
}

fn cpu(resources: &ResourceRequirements) -> i64 {
    resources.requests.get("cpu").map_or(0, Quantity::milli_value)
}

fn has(status: &PodStatus, kind: &PodConditionType) -> bool {
    status.conditions.iter().any(|condition| condition.r#type == *kind)
}
