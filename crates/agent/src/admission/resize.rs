//! Pods that ask for other resources than they have: granted where they fit, in an order, and put off where they do not,
//! until there is room.
//!
//! ```text
//!              ┌─ never ─► Infeasible
//!   Undecided ─┼─ no ────► Deferred ─── there may be room ───┐
//!              ├─ others have to go ──► MakesRoom ── room ───┤
//!              └─ it fits ─────────────────────────────────► granted
//! ```
//!
//! What a pod has counts until its resize is granted, what it asked for from then on, and the larger of both until its
//! containers have that. So what is granted never exceeds the node, and nobody is given what another one still uses. Who
//! is put off is looked at again when another pod has less, ends, or is removed, and every few minutes, since the node may
//! have grown. Nothing is decided before all pods are known that have something.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_core::admission::Rejection;
use crablet_core::qos::PodLevel;
use crablet_core::resize::conditions::{Conditions, Pending, PendingReason};
use crablet_core::resize::decision::Turn;
use crablet_core::resize::{PodResourceInfo, still_having};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Admission, Books, Entry, MakesRoom, State};
use crate::mailbox::{Input as Told, Mailbox};

/// After how long one that is put off is looked at again though nothing was told, as upstream.
const RETRY_AFTER: Duration = Duration::from_secs(3 * 60);

/// A pod that does not have what it asks for.
pub(super) struct Waiting {
    wanted: Arc<Pod>,
    /// Why it was told to wait, and since when for this reason.
    told: Option<(PendingReason, Timestamp)>,
    decision: Decision,
    /// The generation of the form that the decision is about. It may be wanted in another form by now that asks for the same.
    judged: i64,
}

/// What was decided about a resize that is not granted.
enum Decision {
    Undecided,
    Deferred {
        message: Text,
        retry_at: Instant,
    },
    /// Others have to go for it: it is critical.
    MakesRoom(MakesRoom),
    Infeasible {
        message: Text,
    },
}

impl Decision {
    fn pending(&self) -> Option<Pending> {
        let (reason, message) = match self {
            Decision::Undecided | Decision::MakesRoom(_) => return None,
            Decision::Deferred { message, .. } => (PendingReason::Deferred, message),
            Decision::Infeasible { message } => (PendingReason::Infeasible, message),
        };
        Some(Pending { reason, message: message.clone() })
    }

    /// When it is due without anybody's having come or gone.
    fn due_at(&self) -> Option<Instant> {
        match self {
            Decision::Deferred { retry_at, .. } => Some(*retry_at),
            Decision::MakesRoom(room) => Some(room.until),
            Decision::Undecided | Decision::Infeasible { .. } => None,
        }
    }

    /// Whether it has to be decided, whether somebody came or went or not.
    fn is_due(&self, now: Instant) -> bool {
        match self {
            Decision::Undecided => true,
            Decision::Deferred { retry_at, .. } => *retry_at <= now,
            Decision::MakesRoom(room) => room.is_over(now),
            Decision::Infeasible { .. } => false,
        }
    }

    /// Whether it may be decided when somebody came or went.
    fn may_change(&self, now: Instant) -> bool {
        match self {
            Decision::Deferred { .. } => true,
            Decision::Undecided | Decision::MakesRoom(_) | Decision::Infeasible { .. } => self.is_due(now),
        }
    }
}

impl Waiting {
    fn new(wanted: &Arc<Pod>) -> Waiting {
        Waiting { wanted: Arc::clone(wanted), told: None, decision: Decision::Undecided, judged: 0 }
    }

    /// What an agent before told it stands.
    pub(super) fn of_agent_before(wanted: &Arc<Pod>) -> Waiting {
        Waiting { told: Conditions::of(&wanted.status).pending_since(), ..Waiting::new(wanted) }
    }

    /// It is wanted in another form. Those that leave for the one before leave all the same, and it waits for them.
    fn wants(&mut self, pod: &Arc<Pod>, is_other: bool) {
        self.wanted = Arc::clone(pod);
        match self.decision {
            Decision::Undecided | Decision::Deferred { .. } | Decision::Infeasible { .. } if is_other => {
                self.decision = Decision::Undecided;
            }
            Decision::Undecided
            | Decision::Deferred { .. }
            | Decision::Infeasible { .. }
            | Decision::MakesRoom(_) => {}
        }
    }

    /// Says whether that is news to its worker.
    fn decided(&mut self, decision: Decision, now: Timestamp) -> bool {
        let (before, after) = (self.decision.pending(), decision.pending());
        if let Some(Pending { reason, .. }) = after {
            self.told = self.told.filter(|(told, _)| *told == reason).or(Some((reason, now)));
        }
        let generation = self.wanted.metadata.generation;
        let is_news =
            (before, self.judged) != (after, generation) || matches!(decision, Decision::MakesRoom(_));
        self.decision = decision;
        self.judged = generation;
        is_news
    }

    fn was_deferred(&self) -> bool {
        self.told.is_some_and(|(reason, _)| reason == PendingReason::Deferred)
    }

    pub(super) fn wanted_if_room_is_made(&self) -> Option<&Arc<Pod>> {
        match self.decision {
            Decision::MakesRoom(_) => Some(&self.wanted),
            Decision::Undecided | Decision::Deferred { .. } | Decision::Infeasible { .. } => None,
        }
    }

    /// Another pod is gone.
    pub(super) fn leaves(&mut self, uid: &str) {
        if let Decision::MakesRoom(room) = &mut self.decision {
            room.leaves(uid);
        }
    }
}

/// Why those that wait are looked at again, in upstream's words for its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    PodUpdated,
    PodResized,
    PodsAdded,
    PodsRemoved,
    PodTerminated,
    Periodic,
}

impl Trigger {
    fn label(self) -> &'static str {
        match self {
            Trigger::PodUpdated => "pod_updated",
            Trigger::PodResized => "pod_resized",
            Trigger::PodsAdded => "pods_added",
            Trigger::PodsRemoved => "pods_removed",
            Trigger::PodTerminated => "pod_terminated",
            Trigger::Periodic => "periodic_retry",
        }
    }
}

/// What a pod has by now.
#[derive(Debug, Clone)]
pub(crate) struct Resized {
    /// The pod with the resources that the node granted it.
    pub(crate) allocated: Arc<Pod>,
    /// What was granted since this was asked the last time, in the form in which it was asked for.
    pub(crate) granted: Option<Arc<Pod>>,
    pub(crate) wish: Wish,
    /// Whether more counts than that, until its containers have it.
    pub(crate) still_counts: bool,
    /// When to ask again.
    pub(crate) retry_at: Option<Instant>,
}

/// What became of what a pod asks for.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// It has that.
    Granted,
    /// Nothing yet: what was told before stands.
    Undecided,
    /// It is put off, or cannot be.
    Pending {
        wanted: Arc<Pod>,
        /// Which generation of the pod this was decided about.
        generation: i64,
        why: Pending,
    },
}

impl Admission {
    /// A pod with what it has: what an agent before granted it, or what it asks for.
    pub(super) fn entry(&self, pod: &Arc<Pod>, mailbox: &Mailbox) -> Entry {
        let (uid, features) = (&*pod.metadata.uid, self.gate.features());
        let actuated = self.allocations.actuated(uid);
        // An agent may have died between writing down the one and the other.
        let granted = self.allocations.allocated(uid);
        let granted = granted.or_else(|| Some(actuated.clone()?.without_whole(pod)));
        let allocated = granted.map_or_else(|| Arc::clone(pod), |known| known.applied_to(pod, &features));
        let has = actuated.map(|known| known.most().applied_to(&allocated, &features));
        Entry {
            still_having: has.and_then(|has| still_having(&allocated, &has)),
            pod: allocated,
            granted: None,
            mailbox: mailbox.clone(),
            state: State::Waits,
        }
    }

    /// A pod is wanted in this form by now.
    pub(crate) fn wants(&self, pod: &Arc<Pod>) {
        let (uid, features) = (&*pod.metadata.uid, self.gate.features());
        let mut books = self.books();
        let Some(entry) = books.pods.get_mut(uid) else { return };
        entry.pod = PodResourceInfo::of(&entry.pod, &features).applied_to(pod, &features);
        if Arc::ptr_eq(&entry.pod, pod) {
            if books.resizes.remove(uid).is_some() {
                self.retry(&mut books, Trigger::PodUpdated);
            }
            return;
        }
        let wanted = PodResourceInfo::of(pod, &features);
        let known = books.resizes.get(uid).map(|waiting| PodResourceInfo::of(&waiting.wanted, &features));
        let is_other = known != Some(wanted);
        let waiting = books.resizes.entry(uid.to_owned()).or_insert_with(|| Waiting::new(pod));
        waiting.wants(pod, is_other);
        // Another form that asks for the same changes nothing of what was decided.
        if is_other {
            self.retry(&mut books, Trigger::PodUpdated);
        }
    }

    /// What a pod has by now that wants in, or is in. One that counts no more has what it had.
    pub(crate) fn resized(&self, pod: &Arc<Pod>) -> Option<Resized> {
        let (uid, features, now) = (&*pod.metadata.uid, self.gate.features(), Instant::now());
        let mut books = self.books();
        if books.resizes.get(uid).is_some_and(|waiting| waiting.decision.is_due(now)) {
            self.retry(&mut books, Trigger::Periodic);
        }
        let Books { pods, resizes, .. } = &mut *books;
        let (entry, waiting) = (pods.get_mut(uid)?, resizes.get(uid));
        // Nobody keeps the object that it was before.
        if waiting.is_none() && !Arc::ptr_eq(&entry.pod, pod) {
            entry.pod = PodResourceInfo::of(&entry.pod, &features).applied_to(pod, &features);
        }
        Some(Resized {
            allocated: Arc::clone(&entry.pod),
            granted: entry.granted.take(),
            wish: match waiting.map(|waiting| (waiting, waiting.decision.pending())) {
                None => Wish::Granted,
                Some((_, None)) => Wish::Undecided,
                Some((Waiting { wanted, judged, .. }, Some(why))) => {
                    Wish::Pending { wanted: Arc::clone(wanted), generation: *judged, why }
                }
            },
            still_counts: entry.still_having.is_some(),
            // What is due and cannot be decided yet is when that changes.
            retry_at: waiting.and_then(|waiting| waiting.decision.due_at()).filter(|at| *at > now),
        })
    }

    /// A pod's containers have what was allocated to it in this form: nothing else of it counts, unless something else was
    /// granted since, of which its worker does not know.
    pub(crate) fn has_what_is_allocated(&self, allocated: &Pod) {
        let features = self.gate.features();
        let mut books = self.books();
        let entry = books.pods.get_mut(&*allocated.metadata.uid);
        let has = PodResourceInfo::of(allocated, &features);
        let entry = entry.filter(|entry| PodResourceInfo::of(&entry.pod, &features) == has);
        if entry.and_then(|entry| entry.still_having.take()).is_some() {
            self.retry(&mut books, Trigger::PodResized);
        }
    }

    /// A pod is taken with what it has. It is written down before it is acted on.
    pub(super) fn write_down(&self, pod: &Pod) {
        self.allocations.set_allocated(&pod.metadata.uid, &PodResourceInfo::of(pod, &self.gate.features()));
    }

    /// All sources were heard, and their pods entered: who has something is known. What no source has is forgotten.
    pub(crate) fn all_heard(&self) {
        let mut books = self.books();
        self.allocations.retain(|uid| books.pods.contains_key(uid));
        books.all_heard = true;
        self.decide_resizes(&mut books);
    }

    /// Decides about those that are due.
    pub(super) fn decide_resizes(&self, books: &mut Books) {
        let now = Instant::now();
        if books.resizes.values().any(|waiting| waiting.decision.is_due(now)) {
            self.retry(books, Trigger::PodsAdded);
        }
    }

    /// Looks at all that wait, in their order.
    pub(super) fn retry(&self, books: &mut Books, trigger: Trigger) {
        // Before it is known who is there, there is no telling what is free.
        if !books.all_heard || !books.stage.knows_who_runs() || !books.line.is_empty() {
            return;
        }
        let (now, pod_level) = (Instant::now(), PodLevel::from(&self.gate.features()));
        let waiting = books.resizes.iter().filter(|(_, waiting)| waiting.decision.may_change(now));
        let mut line: Vec<(Turn, String)> = waiting
            .filter_map(|(uid, waiting)| {
                let entry = books.pods.get(uid).filter(|entry| entry.state.counts())?;
                let since = waiting.told.map(|(_, since)| since);
                Some((Turn::of(&waiting.wanted, &entry.pod, pod_level, since), uid.clone()))
            })
            .collect();
        line.sort();
        for (_, uid) in line {
            let is_news = self.decide_resize(books, &uid, trigger);
            if let Some(entry) = books.pods.get(&uid).filter(|_| is_news) {
                entry.mailbox.tell(Told::Look);
            }
        }
        self.changes.notify_waiters();
    }

    /// Decides about one. Says whether that changed anything.
    fn decide_resize(&self, books: &mut Books, uid: &str, trigger: Trigger) -> bool {
        let (Some(waiting), Some(entry)) = (books.resizes.get(uid), books.pods.get(uid)) else {
            return false;
        };
        if let Decision::MakesRoom(room) = &waiting.decision {
            self.tell_slow(books, room);
        }
        let wanted = Arc::clone(&waiting.wanted);
        let decision = match self.gate.infeasible(&wanted, &entry.pod) {
            Some(why) => {
                if let Some(metrics) = &self.metrics {
                    metrics.infeasible_resize(why.detail);
                }
                Decision::Infeasible { message: why.message }
            }
            None => match self.gate.admit(&wanted, &books.others(uid), books.is_closed) {
                Ok(victims) if victims.is_empty() => {
                    self.grant_resize(books, uid, wanted, trigger);
                    return true;
                }
                Ok(victims) => Decision::MakesRoom(self.preempt(books, &wanted, victims)),
                Err(Rejection { message, .. }) => {
                    Decision::Deferred { message, retry_at: Instant::now() + RETRY_AFTER }
                }
            },
        };
        let now = self.clock.now();
        books.resizes.get_mut(uid).is_some_and(|waiting| waiting.decided(decision, now))
    }

    fn grant_resize(&self, books: &mut Books, uid: &str, wanted: Arc<Pod>, trigger: Trigger) {
        self.write_down(&wanted);
        if let Some(entry) = books.pods.get_mut(uid) {
            let had = entry.still_having.take().unwrap_or_else(|| Arc::clone(&entry.pod));
            entry.still_having = still_having(&wanted, &had);
            entry.granted = Some(Arc::clone(&wanted));
            entry.pod = wanted;
        }
        let was_deferred = books.resizes.remove(uid).is_some_and(|waiting| waiting.was_deferred());
        if let Some(metrics) = self.metrics.as_ref().filter(|_| was_deferred) {
            metrics.deferred_resize_accepted(trigger.label());
        }
    }
}
