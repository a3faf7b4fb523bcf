//! What is known of every sandbox and container, which is also what was told of it.
//!
//! Reads overlap: a list that was asked for before a container ended may be answered after its end was read. Three
//! rules make the order of answers not matter:
//!
//! - A life only moves forward: Created → Running → Exited → gone. An answer that is behind is ignored, whenever it was
//!   asked for.
//! - Absence counts only in an answer that was asked for after the thing was known: before that, it may not have been
//!   made yet.
//! - What is gone does not come back by an answer that was asked for before it went. So what goes while reads are
//!   under way is remembered until they have ended.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crablet_cri_api::{Container, ContainerState, ContainerStatus, Sandbox, SandboxState, SandboxStatus};
use fnv::FnvHasher;

use super::event::{Event, EventKind, Exit};

/// The label by which a sandbox or a container says whose it is. What has none is not ours.
const POD_UID: &str = "io.kubernetes.pod.uid";

type Labels = BTreeMap<String, String>;

/// A moment in the order of reads and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

/// What came out of an answer.
#[derive(Debug, Default)]
pub struct Found {
    /// What is to be told, in order.
    pub events: Vec<Event>,
    /// Containers that ended by a list, which does not say how: each is to be read.
    pub exited: Vec<Arc<str>>,
}

/// Where a sandbox or a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Sandbox(SandboxState),
    Container(ContainerState),
}

/// What is known, by ID.
#[derive(Debug, Default)]
pub struct Table {
    entries: HashMap<Arc<str>, Entry, BuildHasherDefault<FnvHasher>>,
    /// When each went that may still be in the answer to a read under way.
    gone: BTreeMap<Arc<str>, Moment>,
    /// When the reads under way began, oldest first.
    reading: Vec<Moment>,
    now: Moment,
}

#[derive(Debug)]
struct Entry {
    pod_uid: Arc<str>,
    /// What was told last; nothing while a list says that the container ended and its status was not read yet.
    told: Option<State>,
    /// Whether want of memory was told.
    out_of_memory: bool,
    known_since: Moment,
    told_at: Moment,
    /// The beginning of the last relist that had it.
    listed: Moment,
}

impl Table {
    /// A read begins. [`Table::end`] must follow, whatever becomes of it.
    pub fn begin(&mut self) -> Moment {
        let began = self.tick();
        self.reading.push(began);
        began
    }

    /// A read has ended, and its answer, if there was one, was taken in.
    pub fn end(&mut self, began: Moment) {
        self.reading.retain(|reading| *reading != began);
        match self.reading.first() {
            Some(oldest) => self.gone.retain(|_, went| *oldest < *went),
            None => self.gone.clear(),
        }
    }

    /// What was told last of a sandbox or a container.
    pub fn state(&self, id: &str) -> Option<State> {
        self.entries.get(id)?.told
    }

    /// Whether it is there and ours, as far as is known.
    pub fn is_known(&self, id: &str) -> bool {
        self.entries.contains_key(id)
    }

    /// Takes in two lists. Allocates for what changed only.
    pub fn relist(
        &mut self,
        began: Moment,
        sandboxes: &[Sandbox],
        containers: &[Container],
        found: &mut Found,
    ) {
        let mut missing = self.entries.len();
        for sandbox in sandboxes {
            let (id, state) = (sandbox.id.as_str(), State::Sandbox(sandbox.state));
            missing -= usize::from(self.list(began, id, state, &sandbox.labels, id, found));
        }
        for container in containers {
            let (id, state) = (container.id.as_str(), State::Container(container.state));
            missing -=
                usize::from(self.list(began, id, state, &container.labels, &container.sandbox_id, found));
        }
        if missing > 0 {
            self.sweep(began, found);
        }
    }

    /// Takes in a container's status; whether the container is ours. A hint may have said that it ran out of memory.
    pub fn read_container(
        &mut self,
        began: Moment,
        status: &ContainerStatus,
        out_of_memory: bool,
        found: &mut Found,
    ) -> bool {
        let is_ours = self.entries.contains_key(status.id.as_str())
            || self.insert(began, &status.id, &status.labels, &status.id);
        if is_ours {
            let exit = Exit::of(status, out_of_memory);
            self.take_in(began, &status.id, State::Container(status.state), Some(exit), found);
        }
        is_ours
    }

    /// Takes in a sandbox's status; whether the sandbox is ours.
    pub fn read_sandbox(&mut self, began: Moment, status: &SandboxStatus, found: &mut Found) -> bool {
        let is_ours = self.entries.contains_key(status.id.as_str())
            || self.insert(began, &status.id, &status.labels, &status.id);
        if is_ours {
            self.take_in(began, &status.id, State::Sandbox(status.state), None, found);
        }
        is_ours
    }

    /// Takes in that the runtime does not have it; whether it is gone for good. What was never known may only not be
    /// there yet, unless a hint said that it was removed.
    pub fn read_absent(&mut self, began: Moment, id: &str, was_removed: bool, found: &mut Found) -> bool {
        match self.entries.get(id) {
            Some(entry) if entry.known_since > began => return false,
            Some(_) => {
                if let Some((id, entry)) = self.entries.remove_entry(id) {
                    self.bury(id, &entry, &mut found.events);
                }
            }
            None if was_removed => {
                let now = self.tick();
                self.gone.insert(id.into(), now);
            }
            None => {}
        }
        true
    }

    /// Takes in that the kernel killed one of its processes for want of memory: told once for a container that has
    /// ended, and each time for one that lives on.
    pub fn out_of_memory(&mut self, id: &str, found: &mut Found) {
        let Some((key, _)) = self.entries.get_key_value(id) else { return };
        let key = Arc::clone(key);
        let Some(entry) = self.entries.get_mut(id) else { return };
        let was_told = std::mem::replace(&mut entry.out_of_memory, true);
        match entry.told {
            Some(State::Container(ContainerState::Exited)) if was_told => {}
            Some(State::Container(_)) => {
                let pod_uid = Arc::clone(&entry.pod_uid);
                found.events.push(Event { pod_uid, id: key, kind: EventKind::ContainerOutOfMemory });
            }
            None | Some(State::Sandbox(_)) => {}
        }
    }

    /// Takes in one line of a list; whether it was known before, and this list did not have it yet.
    fn list(
        &mut self,
        began: Moment,
        id: &str,
        state: State,
        labels: &Labels,
        sandbox_id: &str,
        found: &mut Found,
    ) -> bool {
        let mut was_missing = false;
        if let Some(entry) = self.entries.get_mut(id) {
            was_missing = std::mem::replace(&mut entry.listed, began) != began;
            if entry.told == Some(state) {
                return was_missing;
            }
        } else if !self.insert(began, id, labels, sandbox_id) {
            return false;
        }
        self.take_in(began, id, state, None, found);
        was_missing
    }

    /// Makes an entry for what is ours, and did not go since this read began.
    fn insert(&mut self, began: Moment, id: &str, labels: &Labels, sandbox_id: &str) -> bool {
        let Some(uid) = labels.get(POD_UID) else { return false };
        if self.gone.get(id).is_some_and(|went| *went > began) {
            return false;
        }
        // A pod's containers share its UID with their sandbox.
        let pod_uid = match self.entries.get(sandbox_id) {
            Some(sandbox) if *sandbox.pod_uid == **uid => Arc::clone(&sandbox.pod_uid),
            Some(_) | None => uid.as_str().into(),
        };
        let now = self.tick();
        let entry = Entry {
            pod_uid,
            told: None,
            out_of_memory: false,
            known_since: now,
            told_at: Moment::default(),
            listed: began,
        };
        self.entries.insert(id.into(), entry);
        true
    }

    /// Moves an entry on to a state, if that is ahead.
    fn take_in(&mut self, began: Moment, id: &str, state: State, exit: Option<Exit>, found: &mut Found) {
        let now = self.tick();
        let Some((key, _)) = self.entries.get_key_value(id) else { return };
        let key = Arc::clone(key);
        let Some(entry) = self.entries.get_mut(id) else { return };
        let kind = match next(entry.told, state, entry.told_at < began) {
            Next::Behind => return,
            Next::Quiet => None,
            Next::Tell(kind) => Some(kind),
            Next::Died => {
                let Some(mut exit) = exit else {
                    found.exited.push(key);
                    return;
                };
                exit.out_of_memory |= entry.out_of_memory;
                entry.out_of_memory = exit.out_of_memory;
                Some(EventKind::ContainerDied(Some(exit)))
            }
        };
        entry.told = Some(state);
        entry.told_at = now;
        let pod_uid = Arc::clone(&entry.pod_uid);
        found.events.extend(kind.map(|kind| Event { pod_uid, id: key, kind }));
    }

    /// Tells the end of what a relist did not have, though it was known before.
    fn sweep(&mut self, began: Moment, found: &mut Found) {
        let is_gone = |entry: &Entry| entry.listed != began && entry.known_since < began;
        let mut swept: Vec<(Arc<str>, Entry)> = self.entries.extract_if(|_, entry| is_gone(entry)).collect();
        // A pod's containers go before their sandbox, and always in the same order.
        swept.sort_by(|(a, entry), (b, other)| (entry.is_sandbox(), a).cmp(&(other.is_sandbox(), b)));
        for (id, entry) in swept {
            self.bury(id, &entry, &mut found.events);
        }
    }

    /// Tells the end of what is gone, and that it is.
    fn bury(&mut self, id: Arc<str>, entry: &Entry, events: &mut Vec<Event>) {
        let mut tell = |kind| {
            let (pod_uid, id) = (Arc::clone(&entry.pod_uid), Arc::clone(&id));
            events.push(Event { pod_uid, id, kind });
        };
        match entry.told {
            None
            | Some(State::Container(
                ContainerState::Created | ContainerState::Running | ContainerState::Unknown,
            )) => {
                tell(EventKind::ContainerDied(None));
                tell(EventKind::ContainerRemoved);
            }
            Some(State::Container(ContainerState::Exited)) => tell(EventKind::ContainerRemoved),
            Some(State::Sandbox(SandboxState::Ready)) => {
                tell(EventKind::SandboxStopped);
                tell(EventKind::SandboxRemoved);
            }
            Some(State::Sandbox(SandboxState::NotReady)) => tell(EventKind::SandboxRemoved),
        }
        let now = self.tick();
        self.gone.insert(id, now);
    }

    fn tick(&mut self) -> Moment {
        self.now.0 += 1;
        self.now
    }
}

impl Entry {
    fn is_sandbox(&self) -> bool {
        matches!(self.told, Some(State::Sandbox(_)))
    }
}

/// What a state means for somebody who was told another one.
enum Next {
    /// It is known, or older than what is known.
    Behind,
    /// It is ahead, and nobody's business.
    Quiet,
    /// It is ahead.
    Tell(EventKind),
    /// It is ahead: a container has ended.
    Died,
}

/// Unknown has no place in the order, so there the order of reads decides: `is_newer` says that this one began after
/// the state was told.
fn next(told: Option<State>, state: State, is_newer: bool) -> Next {
    use ContainerState::{Created, Exited, Running, Unknown};
    use SandboxState::{NotReady, Ready};
    match (told, state) {
        (None, State::Sandbox(Ready)) => Next::Tell(EventKind::SandboxStarted),
        (None | Some(State::Sandbox(Ready)), State::Sandbox(NotReady)) => {
            Next::Tell(EventKind::SandboxStopped)
        }
        (Some(State::Sandbox(_)), State::Sandbox(_)) => Next::Behind,

        (Some(State::Container(Exited)), State::Container(_)) => Next::Behind,
        (_, State::Container(Exited)) => Next::Died,
        (Some(State::Container(Unknown)), State::Container(Unknown)) => Next::Behind,
        (Some(State::Container(Unknown)), State::Container(_)) if !is_newer => Next::Behind,
        (Some(State::Container(_)), State::Container(Unknown)) if !is_newer => Next::Behind,
        (_, State::Container(Unknown)) => Next::Tell(EventKind::ContainerChanged),
        (Some(State::Container(Running)), State::Container(Created | Running)) => Next::Behind,
        (_, State::Container(Running)) => Next::Tell(EventKind::ContainerStarted),
        (Some(State::Container(Created)), State::Container(Created)) => Next::Behind,
        (_, State::Container(Created)) => Next::Quiet,

        // No ID is a sandbox's and a container's.
        (Some(State::Container(_)), State::Sandbox(_)) => Next::Behind,
    }
}

#[cfg(test)]
mod tests;
