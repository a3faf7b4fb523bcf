//! All objects of a kind, by one watch.

use std::sync::Arc;

use crablet_agent::tasks::Tasks;
use crablet_api::certificates::ClusterTrustBundle;
use crablet_api::core::{Service, ServiceStatus};
use crablet_api::node::RuntimeClass;
use crablet_api::storage::CsiDriver;
use crablet_client::{Chance, Client, Event, Follower, Selection};
use crablet_core::translate::Unavailable;
use tokio::sync::watch;
use tracing::debug;

use super::{KNOWN_WITHIN, not_known, strip};
use crate::memory::{Kept, Memory, Shelf};

/// All objects of a kind.
pub(super) struct Collection<T> {
    seen: watch::Receiver<Seen<T>>,
    memory: Option<Memory>,
}

/// What was seen of them.
enum Seen<T> {
    /// Nothing yet; and what keeps it.
    NotYet(Option<String>),
    All(Shelf<T>),
}

/// A kind of which all objects are followed.
pub(super) trait Collected: Kept {
    /// What it is called in messages.
    const WORD: &'static str;

    /// Drops what nobody on the node asks for.
    fn strip(&mut self);
}

impl Collected for Service {
    const WORD: &'static str = "service";

    fn strip(&mut self) {
        strip(&mut self.metadata);
        self.status = ServiceStatus::default();
    }
}

impl Collected for RuntimeClass {
    const WORD: &'static str = "runtimeclass";

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }
}

impl Collected for CsiDriver {
    const WORD: &'static str = "csidriver";

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }
}

impl Collected for ClusterTrustBundle {
    const WORD: &'static str = "clustertrustbundle";

    /// Labels are what they are selected by.
    fn strip(&mut self) {
        let labels = std::mem::take(&mut self.metadata.labels);
        strip(&mut self.metadata);
        self.metadata.labels = labels;
    }
}

impl<T: Collected> Collection<T> {
    /// Follows them for as long as the node runs.
    pub(super) fn follow(
        client: Client,
        selection: &Selection,
        chance: Chance,
        tasks: &Tasks,
        memory: Option<Memory>,
    ) -> Collection<T> {
        let (sender, seen) = watch::channel(Seen::NotYet(None));
        tasks.spawn(run(Follower::new(client, selection, chance), sender, memory.clone()));
        Collection { seen, memory }
    }

    /// All of them; nothing before they were seen, but for what is kept of them.
    pub(super) fn all(&self) -> Option<Vec<Arc<T>>> {
        match &*self.seen.borrow() {
            Seen::All(found) => Some(found.values().cloned().collect()),
            Seen::NotYet(trouble) => Some(self.recalled(trouble.as_deref())?.into_values().collect()),
        }
    }

    /// What is kept of them, if they were asked for in vain or pods are run from memory.
    fn recalled(&self, trouble: Option<&str>) -> Option<Shelf<T>> {
        let memory = self.memory.as_ref().filter(|memory| trouble.is_some() || memory.away_since().is_some());
        Some(memory?.all_recalled()).filter(|recalled| !recalled.is_empty())
    }

    /// All of them, when they were seen.
    pub(super) async fn known(&self) -> Result<Vec<Arc<T>>, Unavailable> {
        let mut seen = self.seen.clone();
        let known = seen.wait_for(|seen| matches!(seen, Seen::All(_)));
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        self.all().ok_or_else(|| match &*self.seen.borrow() {
            Seen::All(_) => not_known(T::WORD, None),
            Seen::NotYet(trouble) => not_known(T::WORD, trouble.as_deref()),
        })
    }

    /// Calls back whenever one of them came, went or changed, for as long as they are followed.
    pub(super) fn on_change(&self, tasks: &Tasks, tell: impl Fn() + Send + 'static) {
        let mut seen = self.seen.clone();
        tasks.spawn(async move {
            while seen.changed().await.is_ok() {
                tell();
            }
        });
    }

    /// One of them, when they were seen.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        let mut seen = self.seen.clone();
        let known = seen.wait_for(|seen| matches!(seen, Seen::All(_)));
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        let key = (namespace.into(), name.into());
        match &*self.seen.borrow() {
            Seen::All(found) => found.get(&key).cloned().ok_or(Unavailable::NotFound),
            Seen::NotYet(trouble) => {
                let recalled =
                    self.recalled(trouble.as_deref()).and_then(|mut recalled| recalled.remove(&key));
                recalled.ok_or_else(|| not_known(T::WORD, trouble.as_deref()))
            }
        }
    }

    /// Waits until one of them is something else, or is not there.
    pub(super) async fn other_than(&self, namespace: &str, name: &str, known: Option<&T>)
    where
        T: PartialEq,
    {
        let key = (namespace.into(), name.into());
        let is_other = |seen: &Seen<T>| match seen {
            Seen::All(found) => found.get(&key).map(|found| &**found) != known,
            Seen::NotYet(_) => false,
        };
        if self.seen.clone().wait_for(is_other).await.is_err() {
            // Nobody follows them any more.
            std::future::pending::<()>().await;
        }
    }
}

async fn run<T: Collected>(mut follower: Follower<T>, seen: watch::Sender<Seen<T>>, memory: Option<Memory>) {
    let entry = |mut object: T| {
        object.strip();
        let metadata = object.metadata();
        ((metadata.namespace.clone(), metadata.name.clone()), Arc::new(object))
    };
    loop {
        match follower.next().await {
            Event::All(all) => {
                let now: Shelf<T> = all.into_iter().map(entry).collect();
                if let Some(memory) = &memory {
                    match &*seen.borrow() {
                        Seen::All(before) => memory.keep_all(before, &now),
                        Seen::NotYet(_) => memory.keep_all(&memory.all_recalled(), &now),
                    }
                }
                seen.send_replace(Seen::All(now));
            }
            Event::Set(object) => {
                let (key, object) = entry(object);
                change(&seen, |found| {
                    let before = found.insert(key.clone(), Arc::clone(&object));
                    if let Some(memory) = &memory {
                        memory.keep(&key, before.as_deref(), Some(&*object));
                    }
                });
            }
            Event::Gone(object) => {
                let (key, _) = entry(object);
                change(&seen, |found| {
                    let before = found.remove(&key);
                    if let Some(memory) = &memory {
                        memory.keep(&key, before.as_deref(), None);
                    }
                });
            }
            Event::Trouble { error, again_in } => {
                debug!(kind = T::WORD, err = %error, ?again_in, "Cannot follow the objects of a kind");
                seen.send_if_modified(|seen| {
                    if let Seen::NotYet(why) = seen {
                        *why = Some(error.to_string());
                    }
                    false
                });
            }
            Event::Resumed => {}
        }
    }
}

fn change<T>(seen: &watch::Sender<Seen<T>>, change: impl FnOnce(&mut Shelf<T>)) {
    seen.send_if_modified(|seen| {
        if let Seen::All(found) = seen {
            change(found);
        }
        true
    });
}
