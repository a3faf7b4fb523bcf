//! Room for a critical pod: others have to leave, and have their time to.

use std::collections::BTreeSet;
use std::time::Duration;

use crablet_api::core::Pod;
use crablet_core::status::Failure;
use tokio::time::Instant;
use tracing::info_span;

use super::{Admission, Books, State};
use crate::mailbox::{End, Input as Told};
use crate::pod_span::pod_span;
use crate::recorder::{EventType, Involved, reason};

/// The least time that pods have to make room for a critical one. It does not wait for longer than one and a half times
/// their grace period.
const LEAST_TIME_TO_MAKE_ROOM: u64 = 10;

/// Who has to leave for a pod.
pub(super) struct MakesRoom {
    leaving: BTreeSet<String>,
    /// The pod does not wait for longer.
    pub(super) until: Instant,
}

impl MakesRoom {
    /// Whether the pod waits no longer.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.leaving.is_empty() || self.until <= now
    }

    /// A pod is gone. Says whether it was the last one that had to leave.
    pub(super) fn leaves(&mut self, uid: &str) -> bool {
        self.leaving.remove(uid) && self.leaving.is_empty()
    }
}

impl Admission {
    /// Tells pods to make room for a critical one.
    pub(super) fn preempt(&self, books: &mut Books, pod: &Pod, leaving: BTreeSet<String>) -> MakesRoom {
        if let Some(metrics) = &self.metrics {
            let resource = self.gate.scarce(pod, &books.others(&pod.metadata.uid)).unwrap_or_default();
            leaving.iter().for_each(|_| metrics.preempted(&resource));
        }
        let now = Instant::now();
        let mut until = now;
        for uid in &leaving {
            let Some(entry) = books.pods.get_mut(uid) else { continue };
            let victim = &entry.pod;
            let _span = pod_span(&victim.identity()).entered();
            let _cause = info_span!("preemption", critical = %pod.identity()).entered();
            let failure = Failure::preempted(victim);
            let message = failure.message.clone();
            let involved = Involved::version_of(victim);
            self.recorder.event(&involved, EventType::Warning, reason::PREEMPTING, message);
            let grace = victim.spec.termination_grace_period_seconds.unwrap_or(0).unsigned_abs();
            let time = Duration::from_secs(grace.saturating_add(grace / 2).max(LEAST_TIME_TO_MAKE_ROOM));
            until = until.max(now.checked_add(time).unwrap_or(until));
            entry.state = State::Leaves;
            entry.mailbox.tell(Told::End(End::evicted(failure, None)));
        }
        MakesRoom { leaving, until }
    }

    /// Says of pods that their time to leave is over.
    pub(super) fn tell_slow(&self, books: &Books, room: &MakesRoom) {
        for pod in room.leaving.iter().filter_map(|uid| books.pods.get(uid)).map(|entry| &entry.pod) {
            self.recorder.exceeded_grace_period(pod);
        }
    }

    /// A critical pod waits no longer when all have left that were to, or had their time to.
    pub(super) fn grant_if_there_is_room(&self, books: &mut Books, uid: &str) {
        let now = Instant::now();
        let Some(entry) = books.pods.get_mut(uid) else { return };
        let granted = match &entry.state {
            State::MakesRoom(room) if room.is_over(now) => State::Granted { was_there: false },
            State::MakesRoom(_)
            | State::Waits
            | State::Asked
            | State::Late
            | State::Doubted
            | State::Granted { .. }
            | State::Leaves
            | State::Rejected(_) => return,
        };
        if let State::MakesRoom(room) = std::mem::replace(&mut entry.state, granted) {
            self.tell_slow(books, &room);
        }
        self.decide_resizes(books);
        self.changes.notify_waiters();
    }
}
