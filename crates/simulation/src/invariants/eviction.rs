//! Which pods a node that runs short of something may end.

use std::cmp::Reverse;
use std::time::Duration;

use crablet_agent::statuses::Reported;
use crablet_api::core::{Pod, PodConditionType, PodPhase};
use crablet_core::eviction::{PodUsage, Resource, Usages};
use crablet_core::qos::{Overhead, PodLevel, pod_level_resources_set, pod_requests, quantity};
use tokio::time::Instant;

use crate::ledger::{Ledger, Life, State};

/// A pod of this priority is critical.
const CRITICAL: i32 = 2_000_000_000;
/// Who was chosen is shown to be evicted within so long, whatever goes wrong.
const IS_SHOWN_WITHIN: Duration = Duration::from_secs(300);

/// Somebody is told what pods use, to end one of them: notes whom that may be. It is a pod of which nothing is known, or one
/// that no other is to go before of those that are known to run.
pub fn note_ranking(ledger: &Ledger, resource: Resource, usages: &Usages, is_short: bool) {
    let mut state = ledger.state();
    let now = Instant::now();
    if is_short {
        state.measured_short = Some(now);
    }
    // What it was granted may be what it asked for in any of its forms.
    let orders = |life: &Life, usage| life.forms().map(|pod| order(pod, resource, usage)).collect::<Vec<_>>();
    let first =
        surely_there(&state).filter_map(|(uid, life)| orders(life, usages.get(uid)?).into_iter().max()).min();
    let runtime_answers = state.runtime_answers;
    for (uid, life) in &mut state.lives {
        let may_go = match usages.get(uid) {
            None => true,
            Some(usage) => {
                first.as_ref().is_none_or(|first| orders(life, usage).iter().any(|order| order <= first))
            }
        };
        let may_go = may_go && !is_critical(&life.pod);
        life.may_be_evicted |= may_go;
        life.may_be_leaving |= may_go && is_short && !runtime_answers;
        if may_go && is_short {
            life.may_go_until = Some(now + IS_SHOWN_WITHIN);
        }
    }
}

/// The pods that are known to run, with nothing that would keep them from being evicted.
fn surely_there(state: &State) -> impl Iterator<Item = (&String, &Life)> {
    let runs = |uid: &str| {
        let shown = state.statuses.as_ref().and_then(|(statuses, _)| statuses.get(uid));
        shown.is_some_and(|shown| shown.status.phase == Some(PodPhase::Running) && !shown.terminated)
    };
    state.lives.iter().filter(move |(uid, life)| {
        let may_be_ending = life.evicted || life.may_be_leaving || life.may_be_shut_down || life.returned;
        let is_left_alone = life.wanted && life.ends.is_none() && !may_be_ending;
        is_left_alone && !life.source.is_static() && !is_critical(&life.pod) && runs(uid)
    })
}

/// Whether somebody could go, and how many went.
pub fn those_who_go(ledger: &Ledger) -> (bool, usize) {
    let state = ledger.state();
    let went = state.lives.values().filter(|life| life.evicted).count();
    (surely_there(&state).next().is_some(), went)
}

/// Who goes before whom: one that uses more than it asked for, one that matters less, and one that uses more beyond that.
fn order(pod: &Pod, resource: Resource, usage: &PodUsage) -> (bool, i32, Reverse<i128>) {
    let priority = pod.spec.priority.unwrap_or(0);
    let requests = match &pod.spec.resources {
        Some(whole) if pod_level_resources_set(pod) => &whole.requests,
        _ => &pod_requests(pod, PodLevel::Ignored, Overhead::Excluded),
    };
    let asked = |name| i128::from(quantity(requests, name).value());
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

/// Notes that a pod is shown to be evicted, which it must have been chosen for, and once.
pub(super) fn check_evicted(ledger: &Ledger, state: &mut State, view: &Reported) {
    let uid = view.pod.metadata.uid.as_str();
    let now = Instant::now();
    let disk_fails = state.disk_fails_until.is_some_and(|until| now <= until);
    let was_short = state.measured_short.is_some_and(|at| now - at <= IS_SHOWN_WITHIN);
    let (status, Some(life)) = (&view.status, state.lives.get_mut(uid)) else { return };
    if life.returned {
        return;
    }
    let told = status.conditions.iter().find(|condition| {
        condition.r#type == PodConditionType::DisruptionTarget
            && condition.message.starts_with("The node was low on resource")
    });
    let told = told.map(|condition| condition.message.to_string());
    if life.evicted {
        let is_another = told.is_some() && life.evicted_for.is_some() && told != life.evicted_for;
        // What a shutdown told to end since may be chosen by an agent that knows no more than that.
        if is_another && life.eviction_is_written && !life.may_be_shut_down {
            ledger.broken(state, 19, format!("{uid} is evicted twice"));
        }
        return;
    }
    if told.is_none() && *status.reason != *"Evicted" {
        return;
    }
    life.evicted = true;
    life.eviction_is_written = !disk_fails;
    let is_right = told.is_none() || life.may_go_until.is_some_and(|until| now <= until);
    life.evicted_for = told;
    if !is_right {
        let why = if was_short { "others should go before it" } else { "nothing was short" };
        ledger.broken(state, 19, format!("{uid} is evicted, and {why}"));
    }
}
