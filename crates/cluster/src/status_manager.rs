//! Brings what is shown of pods to the API server: statuses, the mirrors of static pods, and the last word on pods that
//! are deleted there.
//!
//! Each pod has a slot, in which the latest counts, and at most one request under way. What a slot needs next is decided
//! from what is shown and from what the server has ([`View::next_step`]), so that a request whose answer was lost, or a status
//! that somebody else changed, needs no treatment of its own.

mod step;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::mirrors::{ByName, Mirrors, ServerMirrors};
use crablet_agent::sources::{Owners, SourcesReady};
use crablet_agent::statuses::{StatusNews, Statuses};
use crablet_api::core::{Pod, PodStatus};
use crablet_api::meta::{DeleteOptions, ObjectMeta};
use crablet_api::{FeatureGates, Text};
use crablet_client::{Client, Error, PatchType};
use crablet_core::qos::is_static;
use crablet_host::clock::Clock;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::metrics::StatusSyncs;
use crate::node::Identity;
use crate::pod_source::{key, version};
use crate::retry::Backoff;
use step::{Step, Urgency, View, urgency};

/// How many requests are under way at the same time.
const AT_ONCE: usize = 16;
/// The waits after the server said no to something, and while it does not answer at all.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// When something is looked at again that the server's watch should have told of.
const UNTOLD: Duration = Duration::from_secs(10);

/// What it hears and reads.
pub struct Parts {
    pub client: Client,
    pub clock: Clock,
    pub statuses: Statuses,
    /// The mirrors that the server has.
    pub mirrors: watch::Receiver<ServerMirrors>,
    /// The node as the server knows it: mirrors belong to it.
    pub node: watch::Receiver<Option<Identity>>,
    /// Who wants which pod, and whether all were heard.
    pub owners: Owners,
    pub ready: SourcesReady,
    pub features: FeatureGates,
    /// Where it is counted how long it takes.
    pub syncs: StatusSyncs,
}

/// Brings statuses to the API server.
pub struct StatusManager {
    parts: Parts,
    news: StatusNews,
    slots: BTreeMap<String, Slot>,
    /// The server does not answer: one request at a time finds out when it does.
    outage: Option<Outage>,
    /// How often the server had said all that it has when that was last looked at.
    lists: u64,
}

struct Outage {
    backoff: Backoff,
    until: Instant,
}

/// What is known of a pod that is or may be brought up to date.
struct Slot {
    /// When it is to be looked at next, unless nothing is to be done.
    due: Option<Instant>,
    /// Found out when what is shown, or what the server has, changed: not each time that one of a crowd is chosen.
    urgency: Urgency,
    is_under_way: bool,
    /// Since when there is something to tell that was not sent yet.
    untold_since: Option<Instant>,
    /// The same of what is being sent.
    sent_since: Option<Instant>,
    backoff: Backoff,
    /// What the server answered last, until its watch has told as much.
    answer: Option<Arc<Pod>>,
    /// The version that its watch had told before that.
    told: Text,
    /// The patch that it answered.
    sent: Vec<u8>,
    /// The UID of the object that was deleted there, and until when its watch should have told so.
    deleted: Option<(Text, Instant)>,
    has_failed: bool,
    /// Whether the server says that the pod cannot have come to its status from the one before.
    is_invalid: bool,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            due: None,
            urgency: Urgency::Awaited,
            is_under_way: false,
            untold_since: None,
            sent_since: None,
            backoff: Backoff::new(SHORTEST_WAIT, LONGEST_WAIT),
            answer: None,
            told: Text::default(),
            sent: Vec::new(),
            deleted: None,
            has_failed: false,
            is_invalid: false,
        }
    }
}

/// What a request came to, and for which slot.
struct Done {
    uid: String,
    result: Result<Outcome, Error>,
}

enum Outcome {
    /// This is what the server has now.
    Now(Arc<Pod>),
    /// The server's watch will tell.
    Untold,
    /// The object of this UID is gone, and the server's watch will tell.
    Deleted(Text),
}

impl StatusManager {
    pub fn new(parts: Parts) -> StatusManager {
        let news = parts.statuses.news();
        StatusManager { parts, news, slots: BTreeMap::new(), outage: None, lists: 0 }
    }

    /// Works until it is dropped.
    pub async fn run(mut self) {
        let mut under_way = FuturesUnordered::new();
        let mut ready = self.parts.ready.clone();
        let mut has_swept = false;
        loop {
            let next = self.begin_what_is_due(&mut under_way);
            tokio::select! {
                biased;
                Some(done) = under_way.next() => self.take(done),
                uids = self.news.next() => {
                    // The mirror of one that is gone may have to go too, or make place for the next.
                    if uids.iter().any(|uid| self.parts.statuses.get(uid).is_none()) {
                        self.mirrors_changed();
                    }
                    let now = Instant::now();
                    for uid in uids {
                        self.is_due(&uid).untold_since.get_or_insert(now);
                    }
                }
                Ok(()) = self.parts.mirrors.changed() => {
                    let lists = self.parts.mirrors.borrow().as_ref().map_or(0, |mirrors| mirrors.lists);
                    if lists != self.lists {
                        self.lists = lists;
                        self.server_said_all();
                    }
                    self.mirrors_changed();
                }
                // Mirrors cannot be made before.
                Ok(()) = self.parts.node.changed() => self.all_are_due(),
                () = ready.ready(), if !has_swept => {
                    has_swept = true;
                    self.mirrors_changed();
                }
                () = until(next) => {}
            }
        }
    }

    fn is_due(&mut self, uid: &str) -> &mut Slot {
        let urgency = self.urgency_of(uid);
        let slot = self.slots.entry(uid.to_owned()).or_default();
        slot.urgency = urgency;
        // What the server does not take, it will not take sooner because there is more of it.
        if !slot.has_failed {
            let now = Instant::now();
            // Who changes all the time is not behind those who do not.
            slot.due = Some(slot.due.map_or(now, |due| due.min(now)));
        }
        slot
    }

    fn all_are_due(&mut self) {
        for report in self.parts.statuses.list() {
            self.is_due(&report.pod.metadata.uid);
        }
    }

    /// The server has said all that it has. It may have been restored from a backup: what it answered before counts no
    /// more, whatever its version.
    fn server_said_all(&mut self) {
        for slot in self.slots.values_mut() {
            slot.answer = None;
        }
        self.all_are_due();
    }

    /// Every mirror concerns the static pod of its name, or nobody.
    fn mirrors_changed(&mut self) {
        for report in self.parts.statuses.list().iter().filter(|report| is_static(&report.pod)) {
            self.is_due(&report.pod.metadata.uid);
        }
        let mirrors = self.parts.mirrors.borrow_and_update().clone();
        for mirror in mirrors.iter().flat_map(|mirrors| mirrors.pods.values()) {
            self.is_due(&mirror.metadata.uid);
        }
    }

    /// Begins as much as may be under way; says when the next thing is due.
    fn begin_what_is_due(
        &mut self,
        under_way: &mut FuturesUnordered<BoxFuture<'static, Done>>,
    ) -> Option<Instant> {
        let now = Instant::now();
        let at_once = match &self.outage {
            Some(outage) if outage.until > now => return Some(outage.until),
            Some(_) => 1,
            None => AT_ONCE,
        };
        let free = |slot: &Slot| !slot.is_under_way;
        while under_way.len() < at_once {
            let is_due = |slot: &Slot| free(slot) && slot.due.is_some_and(|due| due <= now);
            let due = self.slots.iter().filter(|(_, slot)| is_due(slot));
            let first = due.min_by_key(|(_, slot)| (Reverse(slot.urgency), slot.due));
            let Some(uid) = first.map(|(uid, _)| uid.clone()) else { break };
            // Where nothing is to be done, it is not due any more.
            let Some(step) = self.step_now(&uid, now) else { continue };
            if let Some(slot) = self.slots.get_mut(&uid) {
                (slot.is_under_way, slot.due) = (true, None);
                slot.sent_since = slot.untold_since.take();
                slot.sent = step.patch().to_vec();
            }
            under_way.push(Box::pin(carry_out(self.parts.client.clone(), uid, step)));
        }
        // Without a place nobody needs to know what is next: a crowd that waits for its turn costs nothing.
        if under_way.len() >= at_once {
            return None;
        }
        let waiting = self.slots.values().filter(|slot| free(slot)).filter_map(|slot| slot.due);
        waiting.filter(|due| *due > now).min()
    }

    /// What is to be done about a pod now, if anything is.
    fn step_now(&mut self, uid: &str, now: Instant) -> Option<Step> {
        let Some(step) = self.step_for(uid) else {
            self.is_up_to_date(uid);
            return None;
        };
        let Some(until) = self.in_vain_until(uid, &step, now) else { return Some(step) };
        let slot = self.slots.get_mut(uid)?;
        (slot.due, slot.sent) = (Some(until), Vec::new());
        None
    }

    /// How urgent it is to look at a pod. What is to be done is found out when its turn has come.
    fn urgency_of(&self, uid: &str) -> Urgency {
        let Some(report) = self.parts.statuses.get(uid) else { return Urgency::Awaited };
        let answer = self.slots.get(uid).and_then(|slot| slot.answer.clone());
        let at_server = answer.or_else(|| match is_static(&report.pod) {
            false => Some(Arc::clone(&report.pod)),
            true => self.parts.mirrors.borrow().as_ref()?.pods.get(&key(&report.pod)).cloned(),
        });
        at_server.map_or(Urgency::Awaited, |pod| urgency(&pod.status, &report.status))
    }

    /// Until when a step is not worth its request. A server that has its own idea of a status is not asked without end;
    /// and of what was deleted there, its watch tells.
    fn in_vain_until(&self, uid: &str, step: &Step, now: Instant) -> Option<Instant> {
        let slot = self.slots.get(uid)?;
        if slot.answer.is_some() && !slot.sent.is_empty() && slot.sent == step.patch() {
            return Some(now + UNTOLD);
        }
        let (deleted, until) = slot.deleted.as_ref()?;
        (step.about() == Some(deleted) && *until > now).then_some(*until)
    }

    /// Nothing is to be done about a pod. One that is gone needs no slot.
    fn is_up_to_date(&mut self, uid: &str) {
        let is_there = self.parts.statuses.get(uid).is_some();
        if let Some(slot) = self.slots.get_mut(uid) {
            (slot.due, slot.has_failed, slot.sent) = (None, false, Vec::new());
            slot.untold_since = None;
            if !is_there {
                self.slots.remove(uid);
            }
        }
    }

    fn step_for(&mut self, uid: &str) -> Option<Step> {
        let report = self.parts.statuses.get(uid);
        let mirrors = self.parts.mirrors.borrow().clone();
        // Before the server has said what it has, nothing can be compared with that.
        let Mirrors { pods: mirrors, told, .. } = &mirrors?;
        let Some(report) = report else { return self.step_for_mirror(uid, mirrors) };
        let slot = self.slots.get_mut(uid)?;
        let known = match is_static(&report.pod) {
            false => Some(Arc::clone(&report.pod)),
            true => mirrors.get(&key(&report.pod)).cloned(),
        };
        // What the server answered is newer until its watch has told it too. What the watch has told before tells
        // nothing of that: the versions of a server that was restored from a backup are smaller than they were.
        if let (Some(answer), Some(known)) = (&slot.answer, &known)
            && (answer.metadata.uid != known.metadata.uid
                || (version(known) >= version(answer) && known.metadata.resource_version != slot.told))
        {
            slot.answer = None;
        }
        // A mirror that its watch does not have, though it has told of something newer, is gone.
        if known.is_none() && slot.answer.as_ref().is_some_and(|answer| version(answer) <= *told) {
            slot.answer = None;
        }
        if slot.answer.is_none() {
            slot.told =
                known.as_ref().map(|known| known.metadata.resource_version.clone()).unwrap_or_default();
        }
        let at_server = slot.answer.clone().or(known);
        let is_invalid = slot.is_invalid;
        let (namespace, name) = key(&report.pod);
        let owners = self.parts.owners.of(&namespace, &name);
        let view = View {
            report: &report,
            is_wanted: owners.iter().any(|owner| *owner.uid == *uid),
            is_invalid,
            comes_after_another: is_static(&report.pod) && self.shows_another(&report.pod),
            at_server: at_server.as_ref(),
            node: self.parts.node.borrow().clone(),
            features: &self.parts.features,
            now: self.parts.clock.now(),
        };
        view.next_step()
    }

    /// A mirror whose pod is not on the node any more goes. Before all sources were heard nobody can tell.
    fn step_for_mirror(&self, uid: &str, mirrors: &ByName) -> Option<Step> {
        let mirror = mirrors.values().find(|mirror| mirror.metadata.uid == *uid)?;
        let (namespace, name) = key(mirror);
        let is_wanted = || {
            let owners = self.parts.owners.of(&namespace, &name);
            owners.iter().any(|owner| owner.source.is_static())
        };
        if !self.parts.ready.is_ready() || is_wanted() || self.shows_another(mirror) {
            return None;
        }
        Some(Step::Delete { namespace, name, uid: mirror.metadata.uid.clone() })
    }

    /// Whether a static pod is shown that has the name of this one.
    fn shows_another(&self, pod: &Pod) -> bool {
        self.parts.statuses.list().iter().any(|report| {
            let other = &report.pod;
            is_static(other) && other.metadata.uid != pod.metadata.uid && key(other) == key(pod)
        })
    }

    fn take(&mut self, done: Done) {
        let Done { uid, result } = done;
        self.note(&uid, result);
        let urgency = self.urgency_of(&uid);
        if let Some(slot) = self.slots.get_mut(&uid) {
            slot.urgency = urgency;
        }
    }

    /// Notes what came of a request.
    fn note(&mut self, uid: &str, result: Result<Outcome, Error>) {
        let Some(slot) = self.slots.get_mut(uid) else { return };
        slot.is_under_way = false;
        let now = Instant::now();
        let since = slot.sent_since.take();
        match &result {
            // Mirrors that are made and pods that are deleted are no statuses.
            Ok(_) if slot.sent.is_empty() => slot.untold_since = since.or(slot.untold_since),
            Ok(_) => {
                if let Some(since) = since {
                    self.parts.syncs.told(now.duration_since(since));
                }
            }
            Err(_) => slot.untold_since = since.or(slot.untold_since),
        }
        if let Err(error @ (Error::Transport(_) | Error::TimedOut(_))) = &result {
            slot.due = Some(now);
            let mut backoff = match &self.outage {
                Some(outage) => outage.backoff,
                None => {
                    warn!(%error, "The API server does not answer; statuses wait until it does");
                    Backoff::new(SHORTEST_WAIT, LONGEST_WAIT)
                }
            };
            let until = now + backoff.after(error);
            self.outage = Some(Outage { backoff, until });
            return;
        }
        if self.outage.take().is_some() {
            info!("The API server answers again; statuses are brought up to date");
        }
        match result {
            Ok(outcome) => {
                (slot.has_failed, slot.is_invalid) = (false, false);
                // A mirror that was replaced may be of no more use than the one before.
                if !slot.sent.is_empty() {
                    slot.backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
                }
                (slot.answer, slot.due) = match outcome {
                    // What was shown meanwhile comes next.
                    Outcome::Now(pod) => (Some(pod), Some(now)),
                    Outcome::Untold => (None, Some(now + UNTOLD)),
                    Outcome::Deleted(uid) => {
                        slot.deleted = Some((uid, now + UNTOLD));
                        (None, Some(now + UNTOLD))
                    }
                };
            }
            Err(error) => {
                let wait = slot.backoff.after(&error);
                // Of a pod that the server does not have any more, or of another one by that name, its watch tells.
                let is_gone = error.is_not_found() || error.is_conflict();
                if !slot.has_failed && !is_gone {
                    warn!(uid, %error, ?wait, "The API server does not take what is told of a pod; trying again");
                }
                slot.is_invalid |= error.is_invalid() && !slot.sent.is_empty();
                (slot.has_failed, slot.answer, slot.due) = (true, None, Some(now + wait));
            }
        }
    }
}

async fn carry_out(client: Client, uid: String, step: Step) -> Done {
    let result = match step {
        Step::Patch { at_server, status, patch } => {
            let (namespace, name) = key(&at_server);
            let kind = PatchType::StrategicMerge;
            let patched = client.patch_for_metadata::<Pod>(&namespace, &name, "/status", kind, patch).await;
            patched.map(|metadata| Outcome::Now(told(at_server, metadata, *status)))
        }
        Step::Delete { namespace, name, uid } => {
            match client.delete::<Pod>(&namespace, &name, &DeleteOptions::now(&uid)).await {
                Ok(()) => {
                    info!(pod = format_args!("{namespace}/{name}"), %uid, "Deleted a pod at the API server");
                    Ok(Outcome::Deleted(uid))
                }
                Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Deleted(uid)),
                Err(error) => Err(error),
            }
        }
        Step::CreateMirror(mirror) => match client.create(&*mirror).await {
            Ok(made) => Ok(Outcome::Now(Arc::new(made))),
            Err(error) if error.is_already_exists() => Ok(Outcome::Untold),
            Err(error) => Err(error),
        },
    };
    Done { uid, result }
}

/// What the server has after it took a status: that one, in an object with new metadata. If it makes something else of it,
/// its watch tells; if nothing at all, the object is what it was.
fn told(before: Arc<Pod>, metadata: ObjectMeta, status: PodStatus) -> Arc<Pod> {
    match metadata.resource_version == before.metadata.resource_version {
        true => before,
        false => Arc::new(Pod { metadata, status, spec: before.spec.clone() }),
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::core::PodPhase;
    use crablet_api::testing::pod;

    use super::*;

    #[test]
    fn a_status_that_was_taken_is_what_the_server_has_unless_it_says_that_nothing_changed() {
        let mut before = pod("p").container("c", "i").build();
        before.metadata.resource_version = "5".into();
        let before = Arc::new(before);
        let status = || PodStatus { phase: Some(PodPhase::Running), ..PodStatus::default() };
        let metadata =
            |version: &str| ObjectMeta { resource_version: version.into(), ..before.metadata.clone() };
        let now = told(Arc::clone(&before), metadata("6"), status());
        assert_eq!((&*now.metadata.resource_version, &now.status, &now.spec), ("6", &status(), &before.spec));
        assert!(Arc::ptr_eq(&told(Arc::clone(&before), metadata("5"), status()), &before));
    }
}
