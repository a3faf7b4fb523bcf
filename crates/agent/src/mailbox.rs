//! What a worker is told, by whomever: one box per pod, in which the latest word wins.
//!
//! Nothing queues up: a spec that was not read yet is replaced by a newer one, a wish to end is merged with an earlier
//! one (a grace period only ever shrinks), and a hundred hints to look are one.

use std::sync::{Arc, Mutex, PoisonError};
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
    /// The pod should end.
    End(End),
    /// Something happened in the runtime: look.
    Look,
    /// This is what the probes of the pod's containers found.
    Probes(Probes),
}

/// How a pod should end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub cause: Cause,
    /// How long its containers may take, if not as long as the pod itself says.
    pub grace: Option<Duration>,
}

/// Why a pod should end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Its source does not have it any more.
    Removed,
    /// Somebody asked for it to be deleted.
    Deleted,
    /// Nobody wants it: it was found in the runtime.
    Orphaned,
    /// The node needs what it uses.
    Evicted(Box<Failure>),
}

impl Cause {
    /// The cause in a few words.
    pub fn in_words(&self) -> &str {
        match self {
            Cause::Removed => "its source does not have it any more",
            Cause::Deleted => "somebody deleted it",
            Cause::Orphaned => "nobody wants it",
            Cause::Evicted(failure) => &failure.message,
        }
    }
}

impl End {
    /// The node does not let the pod go on.
    pub fn evicted(failure: Failure, grace: Option<Duration>) -> End {
        End { cause: Cause::Evicted(Box::new(failure)), grace }
    }

    /// The cause in a few words.
    pub fn in_words(&self) -> &str {
        self.cause.in_words()
    }

    /// Both wishes in one: the shorter grace period, and the first cause, because that is what began it.
    pub fn merge(self, later: End) -> End {
        let grace = match (self.grace, later.grace) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        End { cause: self.cause, grace }
    }
}

/// What was told since the last look into the box.
#[derive(Debug, Default)]
pub struct News {
    /// What the pod should be.
    pub spec: Option<Arc<Pod>>,
    /// How it should end.
    pub end: Option<End>,
    /// Whether something happened in the runtime.
    pub look: bool,
    /// What probes found.
    pub probes: Option<Probes>,
}

impl News {
    fn add(&mut self, input: Input) {
        match input {
            Input::Spec(pod) => self.spec = Some(pod),
            Input::End(end) => {
                self.end = Some(match self.end.take() {
                    None => end,
                    Some(earlier) => earlier.merge(end),
                });
            }
            Input::Look => self.look = true,
            Input::Probes(probes) => self.probes = Some(probes),
        }
    }

    fn is_empty(&self) -> bool {
        self.spec.is_none() && self.end.is_none() && !self.look && self.probes.is_none()
    }
}

/// The box. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Mailbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    told: Mutex<News>,
    news: Notify,
}

impl Mailbox {
    /// An empty box.
    pub fn new() -> Mailbox {
        Mailbox::default()
    }

    /// Tells the worker something.
    pub fn tell(&self, input: Input) {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner).add(input);
        // Not one: an end and anything else may be waited for at once.
        self.0.news.notify_waiters();
    }

    /// What was told since the last time, which may be nothing.
    pub fn take(&self) -> News {
        std::mem::take(&mut *self.0.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something was told. It is still in the box then.
    pub async fn wait(&self) {
        self.wait_until(|told| !told.is_empty()).await;
    }

    /// Waits until an end was told. It is still in the box then.
    pub async fn wait_for_end(&self) {
        self.wait_until(|told| told.end.is_some()).await;
    }

    /// Waits until something was told that probes found, and takes it out.
    pub async fn wait_for_probes(&self) -> Probes {
        loop {
            self.wait_until(|told| told.probes.is_some()).await;
            let probes = self.0.told.lock().unwrap_or_else(PoisonError::into_inner).probes.take();
            if let Some(probes) = probes {
                return probes;
            }
        }
    }

    async fn wait_until(&self, is_there: impl Fn(&News) -> bool) {
        loop {
            let news = self.0.news.notified();
            if is_there(&self.0.told.lock().unwrap_or_else(PoisonError::into_inner)) {
                return;
            }
            news.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(cause: Cause, seconds: Option<u64>) -> Input {
        Input::End(End { cause, grace: seconds.map(Duration::from_secs) })
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
        assert_eq!(told, Some(End { cause: Cause::Deleted, grace: Some(Duration::from_secs(10)) }));
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
