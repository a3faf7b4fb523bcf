//! What a worker is told, by whomever: one box per pod, in which the latest word wins.
//!
//! Nothing queues up: a spec that was not read yet is replaced by a newer one, a wish to end is merged with an earlier
//! one (a grace period only ever shrinks), and a hundred hints to look are one.
//!
//! What was told of the pod's end stays in the box when it was heard: a worker that follows one that panicked must
//! hear it too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_api::core::Pod;
use crablet_core::probes::Probes;
use crablet_core::status::Failure;
use tokio::sync::Notify;

/// Something that a worker is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// This is what the pod should be from now on.
    Spec(Arc<Pod>),
    /// Its source has another idea of the pod's status than before; all else is as it was. Most often that is the status
    /// that the worker itself made, on its way back from the API server.
    Reconcile(Arc<Pod>),
    /// The pod should end.
    End(End),
    /// Something happened in the runtime: look.
    Look,
    /// Something changed that the pod refers to: a config map or a secret; or a token of its is to be renewed.
    Objects,
    /// This is what the probes of the pod's containers found.
    Probes(Probes),
}

/// How a pod should end: all that was said of it, in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub cause: Cause,
    /// Why it failed, if the node does not let it go on.
    pub failure: Option<Box<Failure>>,
    /// How long its containers may take, if not as long as the pod itself says.
    pub grace: Option<Duration>,
}

/// Why a pod should end. A later one says more than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The node needs what it uses. Its source still wants it.
    Evicted,
    /// It was deleted, and its source still has it: until the last word on it was written there.
    Deleted,
    /// Its source does not have it any more.
    Removed,
    /// Nobody wants it: it was found on the node.
    Orphaned,
}

impl Cause {
    /// Whether the pod's source still has it. What is left of one that nobody has is removed.
    pub fn is_at_source(self) -> bool {
        match self {
            Cause::Evicted | Cause::Deleted => true,
            Cause::Removed | Cause::Orphaned => false,
        }
    }
}

impl End {
    /// An end because of something that is no failure of the pod.
    pub fn new(cause: Cause, grace: Option<Duration>) -> End {
        End { cause, failure: None, grace }
    }

    /// The node does not let the pod go on.
    pub fn evicted(failure: Failure, grace: Option<Duration>) -> End {
        End { cause: Cause::Evicted, failure: Some(Box::new(failure)), grace }
    }

    /// The cause in a few words.
    pub fn in_words(&self) -> &str {
        match (&self.failure, self.cause) {
            (Some(failure), _) => &failure.message,
            (None, Cause::Evicted) => "the node needs what it uses",
            (None, Cause::Deleted) => "somebody deleted it",
            (None, Cause::Removed) => "its source does not have it any more",
            (None, Cause::Orphaned) => "nobody wants it",
        }
    }

    /// Both wishes in one: the shorter grace period, the cause that says most, and the last failure, as upstream.
    #[must_use]
    pub fn merge(self, later: End) -> End {
        let grace = match (self.grace, later.grace) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        End { cause: self.cause.max(later.cause), failure: later.failure.or(self.failure), grace }
    }
}

/// What was told since the last look into the box.
#[derive(Debug, Default)]
pub struct News {
    /// What the pod should be.
    pub spec: Option<Arc<Pod>>,
    /// The pod with another status.
    pub reconciled: Option<Arc<Pod>>,
    /// How it should end: all that was ever told of that, if something was told since.
    pub end: Option<End>,
    /// Whether something happened in the runtime.
    pub look: bool,
    /// Whether something changed that the pod refers to.
    pub objects: bool,
    /// What probes found.
    pub probes: Option<Probes>,
}

/// What a worker hears that waits.
#[derive(Debug)]
pub enum Heard {
    /// The pod has another status at its source.
    Reconciled(Arc<Pod>),
    /// This is what probes found.
    Probes(Probes),
    /// Something that is worth a pass over the pod, and still in the box.
    Other,
}

impl News {
    /// Whether there is nothing that would be worth a pass over the pod.
    fn is_empty(&self) -> bool {
        let News { spec, reconciled: _, end, look, objects, probes } = self;
        spec.is_none() && end.is_none() && !look && !objects && probes.is_none()
    }
}

/// What is in the box.
#[derive(Debug, Default)]
struct Content {
    told: News,
    /// All that was ever told of the pod's end.
    end: Option<Box<End>>,
    /// Whether another pod of this UID begins when nothing of this one is left.
    has_heir: bool,
}

impl Content {
    fn add(&mut self, input: Input) {
        let told = &mut self.told;
        match input {
            Input::Spec(pod) => (told.spec, told.reconciled) = (Some(pod), None),
            Input::Reconcile(pod) => match &mut told.spec {
                Some(spec) => *spec = pod,
                None => told.reconciled = Some(pod),
            },
            Input::End(end) => {
                let all = match self.end.as_deref() {
                    None => end,
                    Some(earlier) => earlier.clone().merge(end),
                };
                if self.end.as_deref() != Some(&all) {
                    told.end = Some(all.clone());
                    self.end = Some(Box::new(all));
                }
            }
            Input::Look => told.look = true,
            Input::Objects => told.objects = true,
            Input::Probes(probes) => told.probes = Some(probes),
        }
    }
}

/// The box. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Mailbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    content: Mutex<Content>,
    news: Notify,
}

impl Mailbox {
    /// An empty box.
    pub fn new() -> Mailbox {
        Mailbox::default()
    }

    /// Tells the worker something.
    pub fn tell(&self, input: Input) {
        self.content().add(input);
        // Not one: an end and anything else may be waited for at once.
        self.0.news.notify_waiters();
    }

    /// Tells a worker that follows one that panicked what was told of the pod's end, and to look.
    pub fn tell_again(&self) {
        let mut content = self.content();
        content.told.end = content.end.as_deref().cloned();
        content.add(Input::Look);
    }

    /// Says whether another pod of this UID waits for this one to be gone.
    pub fn set_heir(&self, has_heir: bool) {
        self.content().has_heir = has_heir;
    }

    /// Whether another pod of this UID waits for this one to be gone. It goes on where this one was.
    pub fn has_heir(&self) -> bool {
        self.content().has_heir
    }

    /// What was told since the last time, which may be nothing.
    pub fn take(&self) -> News {
        std::mem::take(&mut self.content().told)
    }

    /// Waits until something was told that is worth a pass over the pod. It is still in the box then.
    pub async fn wait(&self) {
        self.wait_until(|told| !told.is_empty()).await;
    }

    /// Waits until an end was told. It is still in the box then.
    pub async fn wait_for_end(&self) {
        self.wait_until(|told| told.end.is_some()).await;
    }

    /// Waits until something was told that probes found, and takes it out.
    pub async fn wait_for_probes(&self) -> Probes {
        self.wait_for(|told| told.probes.take()).await
    }

    /// Waits until something was told. What may not be worth a pass over the pod is taken out.
    pub async fn hear(&self) -> Heard {
        self.wait_for(|told| {
            let News { spec, reconciled, end, look, objects, probes } = told;
            if spec.is_some() || end.is_some() || *look || *objects {
                return Some(Heard::Other);
            }
            reconciled.take().map(Heard::Reconciled).or_else(|| probes.take().map(Heard::Probes))
        })
        .await
    }

    async fn wait_until(&self, is_there: impl Fn(&News) -> bool) {
        self.wait_for(|told| is_there(told).then_some(())).await;
    }

    async fn wait_for<T>(&self, find: impl Fn(&mut News) -> Option<T>) -> T {
        loop {
            let news = self.0.news.notified();
            if let Some(found) = find(&mut self.content().told) {
                return found;
            }
            news.await;
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(cause: Cause, seconds: Option<u64>) -> Input {
        Input::End(End::new(cause, seconds.map(Duration::from_secs)))
    }

    #[tokio::test]
    async fn the_latest_spec_wins_and_hints_are_one() {
        let mailbox = Mailbox::new();
        for _ in 0..3 {
            mailbox.tell(Input::Look);
            mailbox.tell(Input::Spec(Arc::default()));
        }
        let last = Arc::new(Pod::default());
        mailbox.tell(Input::Spec(Arc::clone(&last)));
        mailbox.wait().await;
        let told = mailbox.take();
        assert!(told.look && Arc::ptr_eq(&told.spec.unwrap(), &last));
        assert!(mailbox.take().is_empty());
    }

    #[test]
    fn a_grace_period_only_shrinks() {
        let mailbox = Mailbox::new();
        mailbox.tell(end(Cause::Deleted, None));
        mailbox.tell(end(Cause::Removed, Some(10)));
        mailbox.tell(end(Cause::Removed, Some(30)));
        let told = mailbox.take().end;
        assert_eq!(told, Some(End::new(Cause::Removed, Some(Duration::from_secs(10)))));
    }

    #[test]
    fn an_eviction_and_a_deletion_lose_nothing_of_each_other_whichever_was_first() {
        let failure = || Failure::evicted(&Pod::default(), "The node had no disk left");
        let evicted = || Input::End(End::evicted(failure(), Some(Duration::from_secs(5))));
        for order in [[evicted(), end(Cause::Deleted, Some(30))], [end(Cause::Deleted, Some(30)), evicted()]]
        {
            let mailbox = Mailbox::new();
            order.into_iter().for_each(|input| mailbox.tell(input));
            let told = mailbox.take().end.unwrap();
            assert_eq!((told.cause, told.grace), (Cause::Deleted, Some(Duration::from_secs(5))));
            assert_eq!(told.failure.as_deref(), Some(&failure()));
            assert_eq!(told.in_words(), "The node had no disk left");
        }
    }

    #[test]
    fn of_several_failures_the_last_is_told() {
        let mailbox = Mailbox::new();
        mailbox.tell(Input::End(End::evicted(Failure::evicted(&Pod::default(), "low"), None)));
        mailbox.tell(Input::End(End::evicted(Failure::node_shutdown(&Pod::default()), None)));
        mailbox.tell(end(Cause::Removed, None));
        let told = mailbox.take().end.unwrap();
        assert_eq!(told.failure.as_deref(), Some(&Failure::node_shutdown(&Pod::default())));
    }

    #[test]
    fn what_was_told_of_an_end_stays_for_a_worker_that_comes_after() {
        let mailbox = Mailbox::new();
        mailbox.tell(end(Cause::Deleted, Some(30)));
        assert!(mailbox.take().end.is_some());
        mailbox.tell(end(Cause::Deleted, Some(30)));
        assert!(mailbox.take().is_empty(), "the same again is no news");
        mailbox.tell(end(Cause::Removed, None));
        let whole = End::new(Cause::Removed, Some(Duration::from_secs(30)));
        assert_eq!(mailbox.take().end, Some(whole.clone()), "with what was told before");
        mailbox.tell_again();
        let told = mailbox.take();
        assert!(told.look && told.end == Some(whole));
    }

    #[tokio::test(start_paused = true)]
    async fn another_status_wakes_nobody_but_who_waits_for_it() {
        let mailbox = Mailbox::new();
        let pod = || Arc::new(Pod::default());
        mailbox.tell(Input::Reconcile(pod()));
        assert!(tokio::time::timeout(Duration::from_secs(1), mailbox.wait()).await.is_err());
        assert!(matches!(mailbox.hear().await, Heard::Reconciled(_)));
        assert!(mailbox.take().reconciled.is_none());
        // What comes after a spec that was not read yet is newer than that, and what came before it is older.
        let (first, second, third) = (pod(), pod(), pod());
        mailbox.tell(Input::Reconcile(first));
        mailbox.tell(Input::Spec(second));
        mailbox.tell(Input::Reconcile(Arc::clone(&third)));
        let told = mailbox.take();
        assert!(told.reconciled.is_none() && Arc::ptr_eq(&told.spec.unwrap(), &third));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_something_is_told_and_not_before() {
        let mailbox = Mailbox::new();
        let patience = Duration::from_secs(1);
        assert!(tokio::time::timeout(patience, mailbox.wait()).await.is_err());
        mailbox.tell(Input::Look);
        mailbox.take();
        // The notice of what was read already is no news.
        assert!(tokio::time::timeout(patience, mailbox.wait()).await.is_err());
    }
}
