//! Pods that ask for other resources than they have: granted where they fit, in an order, and put off where they do not,
//! until there is room.
//!
//! What a pod has counts until its resize is granted, and what it asked for from then on. So what is granted never exceeds
//! the node. Who is put off is looked at again when another pod asks for less, ends, or is removed, and every few minutes,
//! since the node may have grown.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::Pod;
use crablet_api::{FeatureGates, Text};
use crablet_core::qos::PodLevel;
use crablet_core::resize::PodResourceInfo;
use crablet_core::resize::conditions::{Conditions, Pending, PendingReason};
use crablet_core::resize::decision::{Turn, infeasible};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Admission, Books, MakesRoom, Stage};
use crate::mailbox::Input as Told;

/// After how long one that is put off is looked at again though nothing was told, as upstream.
const RETRY_AFTER: Duration = Duration::from_secs(3 * 60);

/// A pod that does not have what it asks for.
pub(super) struct Waiting {
    wanted: Arc<Pod>,
    /// Since when it was told to wait.
    since: Option<Timestamp>,
    /// What was decided; nothing yet.
    pending: Option<Pending>,
    /// When it is looked at again.
    retry_at: Option<Instant>,
    /// Who has to go for it: it is critical.
    room: Option<MakesRoom>,
}

impl Waiting {
    pub(super) fn new(wanted: &Arc<Pod>) -> Waiting {
        let since = Conditions::of(&wanted.status).pending_since();
        Waiting { wanted: Arc::clone(wanted), since, pending: None, retry_at: None, room: None }
    }

    fn has_reason(&self, reason: PendingReason) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.reason == reason)
    }

    /// Whether it is worth a look. Others that leave for it have their time.
    fn can_be_decided(&self, now: Instant) -> bool {
        let waits_for_others =
            self.room.as_ref().is_some_and(|room| !room.leaving.is_empty() && now < room.until);
        !self.has_reason(PendingReason::Infeasible) && !waits_for_others
    }

    /// Another pod is gone. Says whether it was the last one that had to.
    pub(super) fn leaves(&mut self, uid: &str) {
        if let Some(room) = &mut self.room {
            room.leaving.remove(uid);
        }
    }
}

/// Why those that wait are looked at again, in upstream's words for its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    PodUpdated,
    PodsAdded,
    PodsRemoved,
    PodTerminated,
    Periodic,
}

impl Trigger {
    fn label(self) -> &'static str {
        match self {
            Trigger::PodUpdated => "pod_updated",
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
    /// Why these are not what it asks for.
    pub(crate) pending: Option<Pending>,
    /// When to ask again.
    pub(crate) retry_at: Option<Instant>,
}

impl Admission {
    /// A pod that the node took is wanted in this form by now: what it has of that. A pod that counts no more has what it
    /// had.
    pub(crate) fn resize(&self, pod: &Arc<Pod>) -> Option<Resized> {
        let uid = &*pod.metadata.uid;
        let mut books = self.books();
        let entry = books.pods.get_mut(uid)?;
        if Arc::ptr_eq(&entry.pod, pod) {
            return Some(Resized { allocated: Arc::clone(pod), pending: None, retry_at: None });
        }
        let features = self.features();
        let wanted = PodResourceInfo::of(pod, &features);
        entry.pod = PodResourceInfo::of(&entry.pod, &features).applied_to(pod, &features);
        if Arc::ptr_eq(&entry.pod, pod) {
            books.resizes.remove(uid);
            self.changes.notify_waiters();
        } else {
            let known = books.resizes.get_mut(uid);
            match known.filter(|known| PodResourceInfo::of(&known.wanted, &features) == wanted) {
                Some(known) => {
                    known.wanted = Arc::clone(pod);
                    if known.retry_at.is_some_and(|at| at <= Instant::now()) {
                        self.retry(&mut books, Trigger::Periodic, Some(uid));
                    }
                }
                None => {
                    books.resizes.insert(uid.to_owned(), Waiting::new(pod));
                    self.retry(&mut books, Trigger::PodUpdated, Some(uid));
                }
            }
        }
        let allocated = Arc::clone(&books.pods.get(uid)?.pod);
        let waiting = books.resizes.get(uid);
        let retry_at = waiting.and_then(|waiting| {
            let room = waiting.room.as_ref().map(|room| room.until);
            room.or(waiting.retry_at)
        });
        Some(Resized { allocated, pending: waiting.and_then(|waiting| waiting.pending.clone()), retry_at })
    }

    /// A pod with what it has, or is to have, if it counts or wants in.
    pub(crate) fn allocated(&self, uid: &str) -> Option<Arc<Pod>> {
        self.books().pods.get(uid).map(|entry| Arc::clone(&entry.pod))
    }

    /// What a pod that comes has already: what an agent before granted it.
    pub(super) fn granted_before(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let uid = &*pod.metadata.uid;
        let known = self.allocations.allocated(uid).or_else(|| self.allocations.actuated(uid));
        known.map_or_else(|| Arc::clone(pod), |known| known.applied_to(pod, &self.features()))
    }

    /// A pod is taken with what it has. It is written down before it is acted on.
    pub(super) fn write_down(&self, pod: &Pod) {
        self.allocations.set_allocated(&pod.metadata.uid, &PodResourceInfo::of(pod, &self.features()));
    }

    /// Pods that no source has are forgotten: all sources were heard.
    pub(crate) fn forget_strangers(&self) {
        let books = self.books();
        self.allocations.retain(|uid| books.pods.contains_key(uid));
    }

    fn features(&self) -> FeatureGates {
        self.facts.now().translation.features
    }

    /// Decides about those of whom nothing was said yet.
    pub(super) fn decide_resizes(&self, books: &mut Books) {
        if books.resizes.values().any(|waiting| waiting.pending.is_none() && waiting.room.is_none()) {
            self.retry(books, Trigger::PodsAdded, None);
        }
    }

    /// Looks at all that wait, in their order. Who asks need not be told.
    pub(super) fn retry(&self, books: &mut Books, trigger: Trigger, asking: Option<&str>) {
        // Before it is known who runs, there is no telling what is free.
        match books.stage {
            Stage::Beginning | Stage::Gathering(_) => return,
            Stage::Asking(_) | Stage::Open(_) if !books.line.is_empty() => return,
            Stage::Asking(_) | Stage::Open(_) => {}
        }
        let (now, pod_level) = (Instant::now(), PodLevel::from(&self.features()));
        let waiting = books.resizes.iter().filter(|(_, waiting)| waiting.can_be_decided(now));
        let mut line: Vec<(Turn, String)> = waiting
            .filter_map(|(uid, waiting)| {
                let entry = books.pods.get(uid).filter(|entry| entry.counts())?;
                let turn = Turn::of(&waiting.wanted, &entry.pod, pod_level, waiting.since);
                Some((turn, uid.clone()))
            })
            .collect();
        line.sort();
        for (_, uid) in line {
            let is_news = self.decide_resize(books, &uid, trigger);
            if is_news
                && asking != Some(&*uid)
                && let Some(entry) = books.pods.get(&uid)
            {
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
        let (wanted, allocated) = (Arc::clone(&waiting.wanted), Arc::clone(&entry.pod));
        let facts = self.facts.now();
        let pending = match infeasible(&wanted, &allocated, &facts.translation, self.exclusive) {
            Some(why) => {
                if let Some(metrics) = &self.metrics {
                    metrics.infeasible_resize(why.detail);
                }
                Pending { reason: PendingReason::Infeasible, message: why.message }
            }
            None => {
                let others: Vec<&Pod> = books
                    .pods
                    .iter()
                    .filter(|(other, entry)| *other != uid && entry.counts())
                    .map(|(_, entry)| &*entry.pod)
                    .collect();
                match self.admit(&wanted, &others) {
                    Ok(victims) if victims.is_empty() => {
                        self.grant_resize(books, uid, wanted, trigger);
                        return true;
                    }
                    Ok(victims) => {
                        self.count_preemptions(&wanted, &others, victims.len());
                        let room = self.preempt(books, &wanted, victims);
                        if let Some(waiting) = books.resizes.get_mut(uid) {
                            waiting.room = Some(room);
                        }
                        return true;
                    }
                    Err(rejection) => deferred(rejection.message),
                }
            }
        };
        let Some(waiting) = books.resizes.get_mut(uid) else { return false };
        waiting.retry_at = (pending.reason == PendingReason::Deferred).then(|| Instant::now() + RETRY_AFTER);
        waiting.room = None;
        let is_news = waiting.pending.as_ref() != Some(&pending);
        waiting.pending = Some(pending);
        is_news
    }

    fn grant_resize(&self, books: &mut Books, uid: &str, wanted: Arc<Pod>, trigger: Trigger) {
        self.write_down(&wanted);
        if let Some(entry) = books.pods.get_mut(uid) {
            entry.pod = wanted;
        }
        let was_deferred =
            books.resizes.remove(uid).is_some_and(|waiting| waiting.has_reason(PendingReason::Deferred));
        if let Some(metrics) = self.metrics.as_ref().filter(|_| was_deferred) {
            metrics.deferred_resize_accepted(trigger.label());
        }
    }
}

fn deferred(message: Text) -> Pending {
    Pending { reason: PendingReason::Deferred, message }
}
