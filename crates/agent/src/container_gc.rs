//! The containers of all pods that ended, where the node has a limit for them. Workers tell of theirs, and learn which
//! have to go; where those are another pod's, its worker is told to look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crablet_core::container_gc::{Dead, Policy, over_limit};

use crate::mailbox::{Input, Mailbox};

/// The one owner of the limit for the whole node.
pub(crate) struct ContainerGc {
    pub(crate) policy: Policy,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    dead: BTreeMap<String, Vec<Dead>>,
    mailboxes: BTreeMap<String, Mailbox>,
}

impl ContainerGc {
    pub(crate) fn new(policy: Policy) -> ContainerGc {
        ContainerGc { policy, known: Mutex::default() }
    }

    /// Takes in what is dead of a pod, and says which of it has to go.
    pub(crate) fn tell(
        &self,
        uid: &str,
        mailbox: &Mailbox,
        dead: impl FnOnce() -> Vec<Dead>,
    ) -> BTreeSet<String> {
        let Some(most) = self.policy.max_containers else { return BTreeSet::new() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let dead = dead();
        let is_news = known.dead.get(uid) != Some(&dead);
        known.dead.insert(uid.to_owned(), dead);
        known.mailboxes.insert(uid.to_owned(), mailbox.clone());
        let over = over_limit(&known.dead, most);
        // One that cannot remove what is its to remove tries again by itself.
        for (other, dead) in known.dead.iter().filter(|(other, _)| is_news && *other != uid) {
            if dead.iter().any(|dead| over.contains(&dead.id)) {
                known.mailboxes[other].tell(Input::Look);
            }
        }
        over
    }

    /// Nothing is left of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.dead.remove(uid);
        known.mailboxes.remove(uid);
    }
}
