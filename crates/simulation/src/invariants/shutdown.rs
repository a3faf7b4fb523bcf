//! A machine that is about to be shut down: who ends when, and who does not begin again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crablet_agent::statuses::Reported;
use crablet_api::core::{Pod, PodPhase, PodStatus};
use crablet_core::shutdown::{NOT_ADMITTED_REASON, Period, REASON};
use crablet_cri_sim::ContainerView;
use tokio::time::Instant;

use crate::ledger::{GoingDown, Ledger, Life, State};

const INVARIANT: u8 = 21;

/// How long pods have, from the lowest priority on.
const PERIODS: [(i32, u64); 3] = [(0, 15), (100, 10), (1000, 10)];
/// An agent that lives for so long knows who runs.
const KNOWS_AFTER: Duration = Duration::from_secs(30);
/// How long an agent may not listen.
const HEARS_WITHIN: Duration = Duration::from_secs(15);

pub fn periods() -> Vec<Period> {
    let period = |(priority, length)| Period { priority, length: Duration::from_secs(length) };
    PERIODS.into_iter().map(period).collect()
}

/// Notes that the machine is about to be shut down, and who has to end for that.
pub fn note_shutdown(ledger: &Ledger) {
    let mut state = ledger.state();
    let statuses = state.statuses.as_ref().map(|(statuses, _)| statuses.clone());
    let runs = |uid: &str| {
        let shown = statuses.as_ref().and_then(|statuses| statuses.get(uid));
        shown.is_some_and(|shown| shown.status.phase == Some(PodPhase::Running) && !shown.terminated)
    };
    let knows = state.runtime_answers && state.agent_since.is_some_and(|since| since.elapsed() > KNOWS_AFTER);
    let mut groups = BTreeMap::new();
    for (uid, life) in &mut state.lives {
        // Who was there in an earlier one may have been told to end by that.
        let was_there = std::mem::replace(&mut life.may_be_shut_down, true);
        if knows && !was_there && is_left_alone(life) && runs(uid) {
            groups.insert(uid.clone(), group_of(&life.pod));
        }
    }
    state.going_down = Some(GoingDown { since: Instant::now(), groups, ended: BTreeSet::new() });
}

/// Notes that there is no shutdown any more: static pods run again.
pub fn note_no_shutdown(ledger: &Ledger) {
    let mut state = ledger.state();
    if state.going_down.take().is_none() {
        return;
    }
    state.shutdown_may_last = Some(Instant::now() + HEARS_WITHIN);
    for life in state.lives.values_mut().filter(|life| life.source.is_static()) {
        (life.over, life.was_over_undisturbed, life.returned, life.harmed) = (false, false, true, true);
    }
}

/// A container that lives is stopped. Who is left alone is stopped for nothing but the shutdown.
pub(super) fn check_ends(
    ledger: &Ledger,
    state: &mut State,
    containers: &[ContainerView],
    container: &ContainerView,
    words: &str,
) {
    let State { lives, going_down: Some(down), .. } = state else { return };
    let (uid, now) = (&container.pod_uid, Instant::now());
    let (Some(life), Some(group)) = (lives.get(uid), down.groups.get(uid)) else { return };
    if !is_left_alone(life) || !life.is_main(&container.name) || life.failed_commands.contains(&container.id)
    {
        return;
    }
    let runs = |uid: &str| containers.iter().any(|other| other.alive && other.pod_uid == *uid);
    let ends_first = down.groups.iter().find(|(other, earlier)| {
        let had_its_time =
            PERIODS.get(**earlier).is_none_or(|(_, length)| down.since + Duration::from_secs(*length) <= now);
        **earlier < *group && !had_its_time && lives.get(*other).is_some_and(is_left_alone) && runs(other)
    });
    let broken = ends_first.map(|(other, _)| format!("{words} while {other} runs, which ends before it"));
    down.ended.insert(uid.clone());
    if let Some(what) = broken {
        ledger.broken(state, INVARIANT, what);
    }
}

/// Something of a pod is begun.
pub(super) fn check_begins(ledger: &Ledger, state: &mut State, uid: &str, words: &str) {
    let was_ended = state.going_down.as_ref().is_some_and(|down| down.ended.contains(uid));
    if was_ended && !state.disk_failed {
        ledger.broken(state, INVARIANT, format!("{words}, which was ended because the machine goes down"));
    }
}

/// A pod is shown that was ended, or not taken, because the machine goes down.
pub(super) fn check_shut_down(ledger: &Ledger, state: &mut State, view: &Reported) {
    let uid = view.pod.metadata.uid.as_str();
    let State { lives, going_down, .. } = &mut *state;
    let Some(life) = lives.get(uid).filter(|_| was_shut_down(&view.status)) else { return };
    if !life.may_be_shut_down {
        let what = format!("{uid} is said to be ended by a shutdown that there was not");
        return ledger.broken(state, INVARIANT, what);
    }
    // What came back may show the end of its earlier life.
    if let Some(down) = going_down.as_mut().filter(|_| !life.returned) {
        down.ended.insert(uid.to_owned());
    }
}

/// Whether a status says that a shutdown ended a pod, or kept it out.
pub(super) fn was_shut_down(status: &PodStatus) -> bool {
    status.is_over() && (status.reason == REASON || status.reason == NOT_ADMITTED_REASON)
}

/// Whether nobody has done anything to a pod for which it could stop.
fn is_left_alone(life: &Life) -> bool {
    let is_touched = life.edited || life.harmed || life.returned || life.may_be_evicted || life.over;
    life.wanted && life.ends.is_none() && !is_touched && life.pod.spec.active_deadline_seconds.is_none()
}

fn group_of(pod: &Pod) -> usize {
    let priority = pod.spec.priority.unwrap_or(0);
    PERIODS.iter().rposition(|(least, _)| *least <= priority).unwrap_or(0)
}
