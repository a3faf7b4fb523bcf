//! Which sandboxes and containers are to be read, and until when.
//!
//! There is one look per ID, however many hints there are. A hint that comes during a read makes it be read once more.
//! A read that does not agree with the hint yet is repeated after a pause: runtimes tell an event before they answer
//! accordingly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri_api::{ContainerState, SandboxState};
use tokio::time::Instant;

use super::table::State;
use crate::runtime::HintKind;

/// How many reads run at once: one slow answer holds up nobody else's.
const READS_AT_ONCE: usize = 16;
/// How many looks there may be. What comes on top is left to a relist.
const MOST_LOOKS: usize = 4096;
/// How long to wait for an answer that agrees. What takes longer is left to a relist.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after an answer that does not agree is a tenth of the time since the hint, within these bounds: so an
/// exit is seen at most a tenth later than the runtime takes to agree.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long a container that ran out of memory may take to die of it. One that lives then lives on.
const OUT_OF_MEMORY_SETTLES: Duration = Duration::from_millis(200);

/// How far in its life a hint says that something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Created,
    Started,
    Stopped,
    Removed,
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    There(State),
    /// It is there, and not ours.
    NotOurs,
    /// It was known, and is gone.
    Gone,
    /// It is not there, and never was as far as we know.
    Absent,
    /// It is not there, but this was asked before it was known to be.
    TooEarly,
    /// There was no answer.
    Failed,
}

/// What became of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Again,
    /// The runtime agrees with all hints; whether one of them said that it ran out of memory.
    Done { out_of_memory: bool },
    /// It did not agree for too long.
    GivenUp { wanted: Stage, out_of_memory: bool },
}

/// The looks under way.
#[derive(Debug, Default)]
pub(super) struct Looks {
    by_id: BTreeMap<Arc<str>, Look>,
    /// Those that wait, by when they are due and by who came first.
    waiting: BTreeMap<Due, Arc<str>>,
    reading: usize,
    order: u64,
}

type Due = (Instant, u64);

#[derive(Debug)]
struct Look {
    wanted: Stage,
    out_of_memory: OutOfMemory,
    phase: Phase,
    /// When the last hint came.
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfMemory {
    No,
    Hinted,
    /// It was seen to run afterwards, and given time to die.
    Settled,
}

#[derive(Debug)]
enum Phase {
    Waits(Due),
    Reads { hinted_since: bool },
}

impl Looks {
    /// Adds what a hint says, to be read at once. False: there are too many.
    #[must_use]
    pub(super) fn hint(&mut self, id: &str, kind: HintKind, now: Instant) -> bool {
        match kind {
            HintKind::Created => self.add(id, Stage::Created, OutOfMemory::No, now),
            HintKind::Started => self.add(id, Stage::Started, OutOfMemory::No, now),
            HintKind::Stopped => self.add(id, Stage::Stopped, OutOfMemory::No, now),
            HintKind::Removed => self.add(id, Stage::Removed, OutOfMemory::No, now),
            HintKind::OutOfMemory => self.add(id, Stage::Created, OutOfMemory::Hinted, now),
        }
    }

    fn add(&mut self, id: &str, wanted: Stage, out_of_memory: OutOfMemory, now: Instant) -> bool {
        if !self.by_id.contains_key(id) {
            if self.by_id.len() >= MOST_LOOKS {
                return false;
            }
            let id: Arc<str> = id.into();
            let phase = Phase::Waits(self.wait(&id, now));
            let look = Look { wanted, out_of_memory, phase, since: now };
            self.by_id.insert(id, look);
            return true;
        }
        let mut moved = None;
        if let Some(look) = self.by_id.get_mut(id) {
            look.wanted = look.wanted.max(wanted);
            if out_of_memory == OutOfMemory::Hinted {
                look.out_of_memory = OutOfMemory::Hinted;
            }
            look.since = now;
            match &mut look.phase {
                Phase::Reads { hinted_since } => *hinted_since = true,
                Phase::Waits((due, _)) if *due <= now => {}
                Phase::Waits(due) => moved = self.waiting.remove(due),
            }
        }
        if let Some(id) = moved {
            self.wait_until(&id, now);
        }
        true
    }

    /// The next one to read now. [`Looks::finish`] must follow.
    pub(super) fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        if self.next_due()? > now {
            return None;
        }
        let (_, id) = self.waiting.pop_first()?;
        if let Some(look) = self.by_id.get_mut(&id) {
            look.phase = Phase::Reads { hinted_since: false };
            self.reading += 1;
        }
        Some(id)
    }

    /// When the next one may be read; nothing while enough are.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.reading >= READS_AT_ONCE {
            return None;
        }
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// Whether a hint said that it ran out of memory.
    pub(super) fn is_out_of_memory(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|look| look.out_of_memory != OutOfMemory::No)
    }

    /// Whether a hint said that it was removed.
    pub(super) fn is_removed(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|look| look.wanted == Stage::Removed)
    }

    /// Takes in what a read gave.
    pub(super) fn finish(&mut self, id: &Arc<str>, seen: Seen, now: Instant) -> Verdict {
        let Some(look) = self.by_id.get_mut(id) else { return Verdict::Done { out_of_memory: false } };
        self.reading -= 1;
        let due = if matches!(look.phase, Phase::Reads { hinted_since: true }) {
            now
        } else if !agrees(look.wanted, seen) {
            let waited = now.duration_since(look.since);
            if waited >= PATIENCE {
                let verdict = Verdict::GivenUp {
                    wanted: look.wanted,
                    out_of_memory: look.out_of_memory != OutOfMemory::No,
                };
                self.by_id.remove(id);
                return verdict;
            }
            let pause = (waited / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            now + if seen == Seen::Failed { LONGEST_PAUSE } else { pause }
        } else if look.out_of_memory == OutOfMemory::Hinted && is_running(seen) {
            look.out_of_memory = OutOfMemory::Settled;
            now + OUT_OF_MEMORY_SETTLES
        } else {
            let out_of_memory = look.out_of_memory != OutOfMemory::No;
            self.by_id.remove(id);
            return Verdict::Done { out_of_memory };
        };
        self.wait_until(id, due);
        Verdict::Again
    }

    fn wait_until(&mut self, id: &Arc<str>, due: Instant) {
        let due = self.wait(id, due);
        if let Some(look) = self.by_id.get_mut(id) {
            look.phase = Phase::Waits(due);
        }
    }

    fn wait(&mut self, id: &Arc<str>, due: Instant) -> Due {
        self.order += 1;
        let due = (due, self.order);
        self.waiting.insert(due, Arc::clone(id));
        due
    }
}

fn is_running(seen: Seen) -> bool {
    seen == Seen::There(State::Container(ContainerState::Running))
}

/// Whether the runtime answers as the hint makes one expect.
fn agrees(wanted: Stage, seen: Seen) -> bool {
    use ContainerState::{Created, Exited, Running, Unknown};
    match (wanted, seen) {
        (_, Seen::Failed | Seen::TooEarly) => false,
        (_, Seen::NotOurs | Seen::Gone) => true,
        // What was made may not be there yet, and nothing need be told of it: its start will be.
        (Stage::Created, Seen::Absent | Seen::There(_)) => true,
        (Stage::Started, Seen::Absent | Seen::There(State::Container(Created))) => false,
        (Stage::Started, Seen::There(State::Container(Running | Exited | Unknown) | State::Sandbox(_))) => {
            true
        }
        (Stage::Stopped, Seen::Absent) => true,
        (Stage::Stopped, Seen::There(State::Container(state))) => state == Exited,
        (Stage::Stopped, Seen::There(State::Sandbox(state))) => state == SandboxState::NotReady,
        (Stage::Removed, Seen::Absent) => true,
        (Stage::Removed, Seen::There(_)) => false,
    }
}
