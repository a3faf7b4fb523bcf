//! The containers of all pods that ended, where the node has a limit for them. Workers tell of theirs, and learn which
//! have to go; where those are another pod's, its worker is told to look.
//!
//! A node that runs short of disk has the workers of pods that are over remove all that these left
//! ([`ContainerGc::reclaim`]). Pods that go on keep what the node's limits leave them, for who reads their logs.
//!
//! There are no passes over all containers, as upstream has each minute. Where these would fail, people are told all the
//! same ([`tell_of_failures`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_core::container_gc::{Dead, Policy, over_limit};
use crablet_cri::{Error, observer};
use crablet_host::clock::Clock;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use crate::mailbox::{Input, Mailbox};
use crate::recorder::{EventType, Involved, Recorder, reason};

/// How long workers have to remove what pods left. One that hangs is not waited for.
const RECLAIMING_TAKES: Duration = Duration::from_secs(10);

/// How often people are told that the runtime cannot be listed: upstream's passes are so far apart.
const BETWEEN_PASSES: Duration = Duration::from_secs(60);

/// Tells people, as often as upstream's passes would fail, that the runtime cannot be listed. While it can, no time is
/// waited for.
pub(crate) async fn tell_of_failures(
    mut listing: watch::Receiver<observer::Status>,
    node: Involved,
    recorder: Recorder,
    clock: Clock,
) {
    // Who lists ends with the agent.
    while listing.wait_for(|status| status.not_listed.is_some()).await.is_ok() {
        sleep_until(clock.next_beat(BETWEEN_PASSES)).await;
        let failed = listing.borrow().not_listed.as_ref().map(Error::in_go_words);
        if let Some(message) = failed {
            recorder.event(&node, EventType::Warning, reason::CONTAINER_GC_FAILED, message);
        }
    }
}

/// The one owner of the limit for the whole node.
pub(crate) struct ContainerGc {
    policy: Policy,
    known: Mutex<Known>,
    reclaimed: Notify,
}

#[derive(Default)]
struct Known {
    dead: BTreeMap<String, Vec<Dead>>,
    mailboxes: BTreeMap<String, Mailbox>,
    /// The pods whose workers are to remove what these left, if they are over.
    reclaiming: BTreeSet<String>,
    last_removal: Option<Instant>,
}

impl ContainerGc {
    pub(crate) fn new(policy: Policy) -> ContainerGc {
        ContainerGc { policy, known: Mutex::default(), reclaimed: Notify::new() }
    }

    /// A pod has a worker, which hears this mailbox.
    pub(crate) fn enter(&self, uid: &str, mailbox: &Mailbox) {
        self.known().mailboxes.insert(uid.to_owned(), mailbox.clone());
    }

    /// What pods are held to.
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Has removed what pods left that are over, and waits for that, though not for long.
    pub(crate) async fn reclaim(&self, is_over: impl Fn(&str) -> bool) {
        {
            let mut known = self.known();
            known.reclaiming = known.mailboxes.keys().filter(|uid| is_over(uid)).cloned().collect();
            let of_those = known.mailboxes.iter().filter(|(uid, _)| known.reclaiming.contains(*uid));
            of_those.for_each(|(_, mailbox)| mailbox.tell(Input::Look));
        }
        let all = async {
            loop {
                let reclaimed = self.reclaimed.notified();
                if self.known().reclaiming.is_empty() {
                    return;
                }
                reclaimed.await;
            }
        };
        if timeout(RECLAIMING_TAKES, all).await.is_err() {
            let late = std::mem::take(&mut self.known().reclaiming);
            debug!(pods = late.len(), "Not of all pods that are over the containers have been removed");
        }
    }

    /// Whether a pod's worker is to remove what the pod left, if it is over.
    pub(crate) fn is_reclaiming(&self, uid: &str) -> bool {
        self.known().reclaiming.contains(uid)
    }

    /// A worker has been through its pod since it was to remove what that left.
    pub(crate) fn pruned(&self, uid: &str) {
        if self.known().reclaiming.remove(uid) {
            self.reclaimed.notify_waiters();
        }
    }

    /// The runtime has removed containers.
    pub(crate) fn removed(&self) {
        self.known().last_removal = Some(Instant::now());
    }

    /// When it last did.
    pub(crate) fn last_removal(&self) -> Option<Instant> {
        self.known().last_removal
    }

    /// Takes in what is dead of a pod, and says which of it has to go.
    pub(crate) fn tell(&self, uid: &str, dead: impl FnOnce() -> Vec<Dead>) -> BTreeSet<String> {
        let mut known = self.known();
        let Some(most) = self.policy.max_containers else { return BTreeSet::new() };
        let dead = dead();
        let is_news = known.dead.get(uid) != Some(&dead);
        known.dead.insert(uid.to_owned(), dead);
        let over = over_limit(&known.dead, most);
        // One that cannot remove what is its to remove tries again by itself.
        for (other, dead) in known.dead.iter().filter(|(other, _)| is_news && *other != uid) {
            if dead.iter().any(|dead| over.contains(&dead.id))
                && let Some(mailbox) = known.mailboxes.get(other)
            {
                mailbox.tell(Input::Look);
            }
        }
        over
    }

    /// Nothing is left of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        let mut known = self.known();
        known.dead.remove(uid);
        known.mailboxes.remove(uid);
        if known.reclaiming.remove(uid) {
            self.reclaimed.notify_waiters();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
