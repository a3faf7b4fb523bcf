//! Which pods the node takes: one owner of what has been granted to whom, who decides in an order.
//!
//! ```text
//!                 ┌─ something of it lives ────────────────► Granted, without being asked
//!   enter ─► line ┼─ it is over ───────────────────────────► Late ── its worker asks ──┐
//!                 ├─ it left something dead ─► Asked ── its worker asks, in its turn ──┤
//!                 └─ nothing of it is there ─────────────────────────── in its turn ──┐ │
//!                                                                                     ▼ ▼
//!               Rejected ◄── no ── does it fit? ── yes ──► Granted      MakesRoom ── room ──► Granted
//!                                    │  ▲       └── it is critical, and others have to go ──┘
//!                  but for its labels ▼  │ once more
//!                            Doubted ── the node is read at the API server
//! ```
//!
//! What runs when the agent begins is taken over first, wherever it comes from. Everything else waits until the
//! runtime has told what that is and all sources were heard (or should have been), and is then decided in an order: what
//! ran before comes first, as after a reboot, and then the oldest. A pod that ran may be over, which its worker finds
//! out; those behind it wait for that, though not for ever. From then on pods are decided in the order in which their
//! sources gave them.
//!
//! Whoever is decided about is told to look. A verdict stays until the pod is released.
//!
//! - [`line`]: who is decided about when.
//! - [`gate`]: what a pod has to pass, beside those that are there.
//! - [`doubt`]: labels that only just changed may let a pod in.
//! - [`room`]: others leave for a critical pod.
//! - [`resize`]: pods that were taken ask for other resources.
//! - [`census`]: who is there.

mod census;
mod doubt;
mod gate;
mod line;
mod resize;
mod room;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::core::Pod;
use crablet_core::admission::Rejection;
use crablet_core::resize::still_having;
use crablet_host::clock::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::allocations::Allocations;
use crate::mailbox::{Input as Told, Mailbox};
use crate::metrics::AdmissionMetrics;
use crate::recorder::Recorder;
use doubt::Word;
use line::Stage;
use resize::{Trigger, Waiting};
use room::MakesRoom;

pub use census::Asked;
pub use gate::Gate;
pub use line::Remains;
pub(crate) use resize::{Resized, Wish};

/// The owner. Clones are the same.
#[derive(Clone)]
pub struct Admission {
    gate: Gate,
    clock: Clock,
    recorder: Recorder,
    allocations: Allocations,
    books: Arc<Mutex<Books>>,
    changes: Arc<Notify>,
    /// Tells when there is somebody in doubt.
    doubts: Arc<Notify>,
    metrics: Option<AdmissionMetrics>,
}

/// What a pod that wants in is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Undecided,
    /// The node takes it.
    Granted {
        /// Whether something of it lived when the agent began.
        was_there: bool,
    },
    /// The node takes it when others have made room, but at this time at the latest.
    MakesRoom {
        /// That time.
        until: Instant,
    },
    /// The node does not take it.
    Rejected(Rejection),
}

#[derive(Default)]
struct Books {
    stage: Stage,
    /// Whether all sources were heard, and their pods entered.
    all_heard: bool,
    pods: BTreeMap<String, Entry>,
    /// Those that ask for other resources than they have.
    resizes: BTreeMap<String, Waiting>,
    /// Those that wait for their turn, as they came.
    line: Vec<String>,
    /// Whether nobody is taken, since the machine is about to be shut down.
    is_closed: bool,
}

struct Entry {
    /// With the resources that it has, or is to have.
    pod: Arc<Pod>,
    /// With what counts beside that, where it is to have less by now: until its containers do.
    still_having: Option<Arc<Pod>>,
    /// What was granted, in the form in which it was asked for, and was not told to the worker yet.
    granted: Option<Arc<Pod>>,
    mailbox: Mailbox,
    state: State,
}

enum State {
    Waits,
    /// Those behind it in the line wait until its worker finds that it is over, or that it is not.
    Asked,
    /// Decided when its worker finds that it is not over. Nobody waits for that.
    Late,
    /// Only the node's labels speak against it, and it is looked whether they still do.
    Doubted,
    Granted {
        was_there: bool,
    },
    MakesRoom(Box<MakesRoom>),
    /// It makes room for another pod, and counts no more.
    Leaves,
    Rejected(Box<Rejection>),
}

impl Entry {
    fn decided(&mut self, state: State) {
        self.state = state;
        self.mailbox.tell(Told::Look);
    }

    fn take_over(&mut self) {
        self.decided(State::Granted { was_there: true });
    }
}

impl Books {
    /// What counts of the pods beside one.
    fn others(&self, uid: &str) -> Vec<Arc<Pod>> {
        let others = self.pods.iter().filter(|(other, entry)| *other != uid && entry.state.counts());
        let what_counts = others.map(|(other, entry)| {
            let has = entry.still_having.as_ref().unwrap_or(&entry.pod);
            // The room that others make for a critical pod is its own already, beside what it still has.
            match self.resizes.get(other).and_then(Waiting::wanted_if_room_is_made) {
                Some(wanted) => still_having(wanted, has).unwrap_or_else(|| Arc::clone(wanted)),
                None => Arc::clone(has),
            }
        });
        what_counts.collect()
    }
}

impl Admission {
    /// Nothing has been granted yet.
    pub fn new(gate: Gate, clock: Clock, recorder: Recorder, allocations: Allocations) -> Admission {
        Admission {
            gate,
            clock,
            recorder,
            allocations,
            books: Arc::default(),
            changes: Arc::default(),
            doubts: Arc::default(),
            metrics: None,
        }
    }

    /// Has it counted who is not taken, and who has to leave.
    pub(crate) fn counted_in(self, metrics: AdmissionMetrics) -> Admission {
        Admission { metrics: Some(metrics), ..self }
    }

    /// A pod wants in. One that `is_over` is not decided about unless its worker finds that it is not.
    pub fn enter(&self, pod: &Arc<Pod>, mailbox: &Mailbox, is_over: bool) {
        let uid = pod.metadata.uid.to_string();
        let state = if is_over { State::Late } else { State::Waits };
        let entry = Entry { state, ..self.entry(pod, mailbox) };
        let mut books = self.books();
        if !Arc::ptr_eq(&entry.pod, pod) {
            books.resizes.insert(uid.clone(), Waiting::of_agent_before(pod));
        }
        books.pods.insert(uid.clone(), entry);
        books.line.push(uid);
        self.move_on(&mut books);
    }

    /// What was decided about a pod. One that was to be decided when its worker asks is decided now, or in its turn.
    pub fn verdict(&self, uid: &str) -> Verdict {
        let mut books = self.books();
        let is_open = books.stage.knows_who_runs();
        match books.pods.get_mut(uid) {
            Some(entry @ Entry { state: State::Asked, .. }) => {
                entry.state = State::Waits;
                self.move_on(&mut books);
            }
            Some(Entry { state: State::Late, .. }) if is_open => {
                self.decide(&mut books, uid, Word::First);
                self.decide_resizes(&mut books);
                self.changes.notify_waiters();
            }
            Some(_) | None => {}
        }
        self.grant_if_there_is_room(&mut books, uid);
        let Some(entry) = books.pods.get(uid) else { return Verdict::Undecided };
        match &entry.state {
            State::Waits | State::Asked | State::Late | State::Doubted | State::Leaves => Verdict::Undecided,
            State::Granted { was_there } => {
                self.write_down(&entry.pod);
                Verdict::Granted { was_there: *was_there }
            }
            State::MakesRoom(room) => Verdict::MakesRoom { until: room.until },
            State::Rejected(rejection) => Verdict::Rejected((**rejection).clone()),
        }
    }

    /// A pod that has what it asks for is another object by now, which asks for the same.
    pub fn replace(&self, before: &Arc<Pod>, pod: &Arc<Pod>) {
        let mut books = self.books();
        let entry = books.pods.get_mut(&*pod.metadata.uid);
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.pod, before)) {
            entry.pod = Arc::clone(pod);
        }
    }

    /// A pod counts no more: its source does not want it, or nothing of it is left.
    pub fn release(&self, uid: &str) {
        self.free(uid, Trigger::PodsRemoved);
    }

    /// A pod counts no more: it has terminated.
    pub fn release_terminated(&self, uid: &str) {
        self.free(uid, Trigger::PodTerminated);
    }

    fn free(&self, uid: &str, trigger: Trigger) {
        self.allocations.forget(uid);
        let mut books = self.books();
        if let Some(found) = books.stage.found_mut() {
            found.remove(uid);
        }
        if books.pods.remove(uid).is_none() {
            return;
        }
        books.resizes.remove(uid);
        books.resizes.values_mut().for_each(|waiting| waiting.leaves(uid));
        for entry in books.pods.values_mut() {
            if let State::MakesRoom(room) = &mut entry.state
                && room.leaves(uid)
            {
                entry.mailbox.tell(Told::Look);
            }
        }
        self.move_on(&mut books);
        self.retry(&mut books, trigger);
    }

    fn decide(&self, books: &mut Books, uid: &str, word: Word) {
        let Some(pod) = books.pods.get(uid).map(|entry| Arc::clone(&entry.pod)) else { return };
        let others = books.others(uid);
        let state = match self.gate.admit(&pod, &others, books.is_closed) {
            Err(_) if word == Word::First && self.gate.only_labels_refuse(&pod, &others) => {
                self.doubts.notify_one();
                State::Doubted
            }
            Err(rejection) => {
                if let Some(metrics) = &self.metrics {
                    metrics.rejected(&rejection.reason);
                }
                State::Rejected(Box::new(rejection))
            }
            Ok(victims) if victims.is_empty() => State::Granted { was_there: false },
            Ok(victims) => State::MakesRoom(Box::new(self.preempt(books, &pod, victims))),
        };
        if let Some(entry) = books.pods.get_mut(uid) {
            entry.decided(state);
        }
    }

    /// Nobody is taken from now on: the machine is about to be shut down. What lives when the agent begins is taken over all
    /// the same.
    pub fn close(&self) {
        self.books().is_closed = true;
    }

    /// The machine stays up: pods are taken again.
    pub fn reopen(&self) {
        self.books().is_closed = false;
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
