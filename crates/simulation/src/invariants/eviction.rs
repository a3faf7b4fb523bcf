//! Which pods a node that runs short of something may end.

use std::cmp::Reverse;

use crablet_agent::statuses::Reported;
use crablet_api::core::{Pod, PodConditionType, PodPhase};
use crablet_core::eviction::{PodUsage, Resource, Usages};

use crate::ledger::{Ledger, State};

/// A pod of this priority is critical.
const CRITICAL: i32 = 2_000_000_000;

/// Somebody is told what pods use, to end one of them: notes whom that may be. It is a pod of which nothing is known, or one
/// that no other is to go before of those that are known to run.
pub fn note_ranking(ledger: &Ledger, resource: Resource, usages: &Usages) {
    let mut state = ledger.state();
    let statuses = state.statuses.as_ref().map(|(statuses, _)| statuses.clone());
    let runs = |uid: &str| {
        let shown = statuses.as_ref().and_then(|statuses| statuses.get(uid));
        shown.is_some_and(|shown| shown.status.phase == Some(PodPhase::Running) && !shown.terminated)
    };
    let surely_there = state.lives.iter().filter(|(uid, life)| {
        let is_left_alone =
            life.wanted && life.ends.is_none() && !life.evicted && !life.returned && !life.may_be_shut_down;
        is_left_alone && !life.source.is_static() && !is_critical(&life.pod) && runs(uid)
    });
    let first =
        surely_there.filter_map(|(uid, life)| Some(order(&life.pod, resource, usages.get(uid)?))).min();
    for (uid, life) in &mut state.lives {
        let may_go = match usages.get(uid) {
            None => true,
            Some(usage) => first.as_ref().is_none_or(|first| order(&life.pod, resource, usage) <= *first),
        };
        life.may_be_evicted |= may_go && !is_critical(&life.pod);
    }
}

/// Who goes before whom: one that uses more than it asked for, one that matters less, and one that uses more beyond that.
fn order(pod: &Pod, resource: Resource, usage: &PodUsage) -> (bool, i32, Reverse<i128>) {
    let priority = pod.spec.priority.unwrap_or(0);
    let asked = |name: &str| -> i128 {
        let containers = pod.spec.containers.iter();
        containers
            .filter_map(|one| one.resources.requests.get(name))
            .map(|amount| i128::from(amount.value()))
            .sum()
    };
    let (used, asked) = match resource {
        Resource::Memory => (usage.memory, asked("memory")),
        Resource::EphemeralStorage => (usage.ephemeral_storage, asked("ephemeral-storage")),
        Resource::Inodes => (Some(0), 0),
        Resource::Pids => return (false, priority, Reverse(i128::from(usage.processes.unwrap_or(0)))),
    };
    let used = i128::from(used.unwrap_or(0));
    (used <= asked, priority, Reverse(used - asked))
}

fn is_critical(pod: &Pod) -> bool {
    pod.spec.priority.is_some_and(|priority| priority >= CRITICAL)
}

/// Notes that a pod is shown to be evicted, which it must have been chosen for.
pub(super) fn check_evicted(ledger: &Ledger, state: &mut State, view: &Reported) {
    let uid = view.pod.metadata.uid.as_str();
    let (status, Some(life)) = (&view.status, state.lives.get_mut(uid)) else { return };
    if life.evicted || life.returned {
        return;
    }
    let is_refused = *status.reason == *"Evicted" && status.message.contains("The node had condition");
    let is_told = status.conditions.iter().any(|condition| {
        condition.r#type == PodConditionType::DisruptionTarget
            && condition.message.starts_with("The node was low on resource")
    });
    if !is_refused && !is_told && *status.reason != *"Evicted" {
        return;
    }
    life.evicted = true;
    if is_told && !life.may_be_evicted {
        ledger.broken(state, 19, format!("{uid} is evicted, and others should go before it"));
    }
}
