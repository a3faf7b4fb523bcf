//! What is allocated to pods: never more than there is, and given to them in the end.

use crablet_agent::statuses::Reported;
use crablet_api::FeatureGates;
use crablet_api::core::{Pod, PodConditionType, PodStatus};
use crablet_api::document::Limits;
use crablet_core::qos::{Overhead, PodLevel, pod_requests, quantity};
use crablet_core::resize::state_file;
use crablet_core::translate::cpu_shares;
use crablet_cri_sim::ContainerView;

use crate::ledger::Ledger;
use crate::room::MEMORY;
use crate::world::CPUS;

const INVARIANT: u8 = 20;

/// What there is of CPU, in thousandths, and of memory.
const THERE_IS: [i64; 2] = [CPUS * 1000, MEMORY.cast_signed()];

/// Checks what an agent writes down as allocated: together with what containers still have beyond that it is no more than
/// there is. Pods whose end has come need not be taken out of it at once.
pub fn check_allocated(ledger: &Ledger, file: &[u8]) {
    let containers = ledger.simulator.containers();
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
    let (mut total, features) = ([0; 2], FeatureGates::default());
    for (uid, info) in entries.iter().filter(|(uid, _)| counts(uid)) {
        let allocated = info.applied_to(&state.lives[uid].pod, &features);
        let asked = amounts(&allocated);
        // Where the pod as a whole is held to something, shares say how its containers share that.
        let shares_are_its_own = allocated.spec.resources.is_none();
        let still = containers.iter().filter(|run| shares_are_its_own && run.alive && run.pod_uid == *uid);
        // The fewest shares are those of who asks for nothing.
        let still: i64 = still.map(|run| run.cpu_shares).filter(|shares| *shares > 2).map(milli_cpu).sum();
        total = [total[0] + asked[0].max(still), total[1] + asked[1]];
    }
    for (total, (there_is, what)) in
        total.into_iter().zip(THERE_IS.into_iter().zip(["m of CPU", " of memory"]))
    {
        if total > there_is {
            let what = format!("{total}{what} are allocated on a node that has {there_is}{what}");
            ledger.broken(&mut state, INVARIANT, what);
        }
    }
}

/// What a pod asks for of CPU, in thousandths, and of memory: with its sidecars, as a whole, and with its overhead.
fn amounts(pod: &Pod) -> [i64; 2] {
    let requests = pod_requests(pod, PodLevel::Counted, Overhead::Included);
    [quantity(&requests, "cpu").milli_value(), quantity(&requests, "memory").value()]
}

/// The least that is asked for by who has so many shares of the CPU.
fn milli_cpu(shares: i64) -> i64 {
    shares * 1000 / 1024
}

/// Checks that everybody has what was granted, and that nobody waits for what there is, after a long time without faults.
pub fn check_resized(ledger: &Ledger) {
    let containers = ledger.simulator.containers();
    let mut state = ledger.state();
    let Some((statuses, _)) = state.statuses.clone() else { return };
    let views = statuses.list();
    let allocated = |view: &Reported| {
        let list = &view.status.allocated_resources;
        [quantity(list, "cpu").milli_value(), quantity(list, "memory").value()]
    };
    let live: Vec<&Reported> = views.iter().filter(|view| !view.status.is_over()).collect();
    let sum = |total: [i64; 2], view: &&Reported| {
        let [cpu, memory] = allocated(view);
        [total[0] + cpu, total[1] + memory]
    };
    let total = live.iter().fold([0; 2], sum);
    let mut wrong = Vec::new();
    for view in live {
        let uid = view.pod.metadata.uid.as_str();
        if has(&view.status, &PodConditionType::PodResizeInProgress) {
            wrong.push(format!("{uid} is still being resized"));
        }
        let (wanted, allocated) = (amounts(&view.pod), allocated(view));
        let is_pending = has(&view.status, &PodConditionType::PodResizePending);
        let fits = |of: usize| total[of] - allocated[of] + wanted[of] <= THERE_IS[of];
        if is_pending && fits(0) && fits(1) {
            wrong.push(format!("{uid} waits for {wanted:?} of CPU and memory, for which there is room"));
        }
        if !is_pending && wanted != allocated {
            wrong.push(format!(
                "{uid} has {allocated:?} of CPU and memory, asks for {wanted:?}, and does not wait"
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
    let mut shown = view.status.init_container_statuses.iter().chain(&view.status.container_statuses);
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

fn has(status: &PodStatus, kind: &PodConditionType) -> bool {
    status.conditions.iter().any(|condition| condition.r#type == *kind)
}
