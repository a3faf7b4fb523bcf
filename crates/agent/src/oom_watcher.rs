//! Tells people when the kernel ended a process because the whole machine ran out of memory, and workers of which containers it
//! ended one: a runtime that comes too late to see why a container ended says `Error`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_api::Text;
use crablet_core::oom::{OutOfMemory, Reader};
use crablet_host::kernel_log::KernelLog;
use crablet_logging::ErrorChain;
use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};

use crate::pods::Evictor;
use crate::recorder::{EventType, Involved, reason};
use crate::shared::Shared;

/// What happened so long before the agent began is not told: an agent before this one did that. The agent itself may be
/// what was ended.
const LONGEST_AGO: Duration = Duration::from_secs(300);
/// A container that goes on when one of its processes was ended does not end for that later.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// Of so many containers it is known, of those that were hit last.
const MOST: usize = 512;

/// The containers of which the kernel ended a process for want of memory, and when.
#[derive(Debug, Default)]
pub(crate) struct OomKills(Mutex<VecDeque<(String, Timestamp)>>);

impl OomKills {
    fn note(&self, container: &str, at: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, _)| other != container);
        known.truncate(MOST - 1);
        known.push_front((container.to_owned(), at));
    }

    /// Whether a container that ended at a time did so because of that.
    pub(crate) fn explain(&self, container: &str, ended: Timestamp) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|(known, at)| known == container && ended.duration_since(*at).abs() <= ENDS_WITHIN)
    }
}

/// Reads on until the log ends, which it does not.
pub(crate) async fn watch(
    mut log: Box<dyn KernelLog>,
    node_name: Text,
    shared: Arc<Shared>,
    evictor: Evictor,
) {
    let node = Involved::node(node_name);
    let mut reader = Reader::default();
    loop {
        let record = match log.next().await {
            Ok(record) => record,
            Err(error) => {
                warn!(err = %ErrorChain(&error), "Cannot read the kernel's log; processes that it ends are not told of");
                return;
            }
        };
        let Some(ended) = reader.read(&record.message) else { continue };
        let at = shared.clock.now().checked_sub(record.age).unwrap_or(Timestamp::UNIX_EPOCH);
        if let Some(uid) = note_container(&shared, &ended, at) {
            // Its end may have been seen before.
            evictor.look(&uid).await;
        }
        if record.age > LONGEST_AGO {
            continue;
        }
        if ended.is_of_machine() {
            let message = ended.message();
            shared.reports.recorder.event(&node, EventType::Warning, reason::SYSTEM_OOM, message);
        } else {
            let OutOfMemory { process, pid, limited, cgroup } = ended;
            info!(
                process,
                pid,
                cgroup,
                limited,
                "The kernel ended a process of a cgroup that reached its limit of memory"
            );
        }
    }
}

/// Notes that a container was hit, if it was one of a pod, whose UID this gives.
fn note_container(shared: &Shared, ended: &OutOfMemory, at: Timestamp) -> Option<String> {
    let facts = shared.facts.now();
    let layout = facts.translation.settings.cgroups.as_ref()?;
    let (uid, container) = layout.container_from_path(&ended.cgroup)?;
    shared.oom_kills.note(container, at);
    Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_explained_by_what_hit_the_container_shortly_before_or_after_it_was_seen() {
        let kills = OomKills::default();
        let at = |seconds: i64| Timestamp::from_second(1000 + seconds).unwrap();
        kills.note("a", at(0));
        for (seconds, expected) in [(-11, false), (-10, true), (0, true), (10, true), (11, false)] {
            assert_eq!(kills.explain("a", at(seconds)), expected, "{seconds}");
        }
        assert!(!kills.explain("b", at(0)));
        kills.note("a", at(100));
        assert!(kills.explain("a", at(100)) && !kills.explain("a", at(0)));
    }

    #[test]
    fn no_more_are_known_than_that_however_many_are_hit() {
        let kills = OomKills::default();
        for number in 0..2 * MOST {
            kills.note(&number.to_string(), Timestamp::UNIX_EPOCH);
        }
        let is_known = |number: usize| kills.explain(&number.to_string(), Timestamp::UNIX_EPOCH);
        assert_eq!((0..2 * MOST).filter(|number| is_known(*number)).count(), MOST);
        assert!(is_known(2 * MOST - 1) && !is_known(0));
    }
}
