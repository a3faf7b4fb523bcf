//! The line of those that want in, and the beginning of the agent: what runs is taken over, the rest is decided about when
//! it is known who runs.

use std::collections::BTreeMap;

use super::{Admission, Books, Entry, State, Word};

/// What the runtime had of a pod when the agent began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remains {
    /// Only what is dead.
    Dead,
    /// A sandbox that is ready, or a container that did not end.
    Live,
}

/// How far the beginning of the agent has come, and what the runtime had of pods that were not asked for yet.
#[derive(Default)]
pub(super) enum Stage {
    /// The runtime has not told yet what it has.
    #[default]
    Beginning,
    /// Sources may still want what runs.
    Gathering(BTreeMap<String, Remains>),
    /// Everybody is decided about in the order of the line, which waits for the workers of those that ran.
    Asking(BTreeMap<String, Remains>),
    /// Everybody is decided about when they come.
    Open(BTreeMap<String, Remains>),
}

impl Stage {
    /// Whether it is known who runs, as far as sources told within their time.
    pub(super) fn knows_who_runs(&self) -> bool {
        match self {
            Stage::Beginning | Stage::Gathering(_) => false,
            Stage::Asking(_) | Stage::Open(_) => true,
        }
    }

    /// What the runtime had of pods that were not asked for yet, once it has told.
    pub(super) fn found_mut(&mut self) -> Option<&mut BTreeMap<String, Remains>> {
        match self {
            Stage::Beginning => None,
            Stage::Gathering(found) | Stage::Asking(found) | Stage::Open(found) => Some(found),
        }
    }
}

impl Admission {
    /// The runtime has told what it has: what lives is taken over from here on.
    pub fn take_over(&self, found: BTreeMap<String, Remains>) {
        let mut books = self.books();
        books.stage = Stage::Gathering(found);
        self.move_on(&mut books);
    }

    /// All sources were heard, or should have been: the others are decided about from here on.
    pub fn open(&self) {
        let mut books = self.books();
        let found = books.stage.found_mut().map(std::mem::take).unwrap_or_default();
        // Where they compete for the node, what ran before comes first, and then the oldest.
        let Books { line, pods, .. } = &mut *books;
        line.sort_by_key(|uid| {
            let created = pods.get(uid).and_then(|entry| entry.pod.metadata.creation_timestamp);
            (!found.contains_key(uid), created)
        });
        books.stage = Stage::Asking(found);
        self.move_on(&mut books);
    }

    /// The workers of those that ran had their time to ask: nobody waits for them any longer.
    pub fn wait_no_longer(&self) {
        let mut books = self.books();
        if let Stage::Asking(found) = &mut books.stage {
            books.stage = Stage::Open(std::mem::take(found));
            self.move_on(&mut books);
        }
    }

    /// A worker found that its pod is over: nobody waits for it.
    pub fn found_over(&self, uid: &str) {
        let mut books = self.books();
        if let Some(entry @ Entry { state: State::Asked, .. }) = books.pods.get_mut(uid) {
            entry.state = State::Late;
            self.move_on(&mut books);
        }
    }

    /// Completes when somebody may have come, been decided about, or gone since this was called. Those who wait are woken
    /// in the order in which they began to, so that a simulated run replays.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changes.notified()
    }

    /// Completes when it is known who runs, as far as sources told within their time.
    pub async fn knows_who_runs(&self) {
        loop {
            let changed = self.changed();
            if self.books().stage.knows_who_runs() {
                return;
            }
            changed.await;
        }
    }

    /// Decides about those in the line whose turn it is.
    pub(super) fn move_on(&self, books: &mut Books) {
        let mut still = Vec::new();
        let mut is_held_up = false;
        for uid in std::mem::take(&mut books.line) {
            let Some(entry) = books.pods.get_mut(&uid) else { continue };
            let is_deleted = entry.pod.metadata.deletion_timestamp.is_some();
            let (remains, waits_for_workers) = match &mut books.stage {
                Stage::Gathering(found) if found.get(&uid) == Some(&Remains::Live) => {
                    (found.remove(&uid), true)
                }
                Stage::Beginning | Stage::Gathering(_) => {
                    still.push(uid);
                    continue;
                }
                Stage::Asking(found) => (found.remove(&uid), true),
                Stage::Open(found) => (found.remove(&uid), false),
            };
            let is_asked = remains == Some(Remains::Dead) || matches!(entry.state, State::Asked);
            if remains == Some(Remains::Live) {
                entry.take_over();
            } else if matches!(entry.state, State::Late) || is_deleted || (is_asked && !waits_for_workers) {
                // It is over, it is not going to run, or nobody waits for it any longer.
                entry.decided(State::Late);
            } else if is_asked {
                if remains.is_some() {
                    entry.decided(State::Asked);
                }
                is_held_up = true;
                still.push(uid);
            } else if is_held_up {
                still.push(uid);
            } else {
                self.decide(books, &uid, Word::First);
            }
        }
        books.line = still;
        self.decide_resizes(books);
        self.changes.notify_waiters();
    }
}
