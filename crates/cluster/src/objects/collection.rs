//! All objects of a kind, by one watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_agent::tasks::Tasks;
use crablet_api::Text;
use crablet_api::core::Service;
use crablet_api::node::RuntimeClass;
use crablet_client::{Chance, Client, Event, Follower, Resource, Selection};
use crablet_core::translate::Unavailable;
use tokio::sync::watch;
use tracing::debug;

use super::{KNOWN_WITHIN, not_known, strip};

/// All objects of a kind.
pub(super) struct Collection<T>(watch::Receiver<Seen<T>>);

/// Objects by namespace and name.
type Found<T> = BTreeMap<(Text, Text), Arc<T>>;

/// What was seen of them.
enum Seen<T> {
    /// Nothing yet; and what keeps it.
    NotYet(Option<String>),
    All(Found<T>),
}

/// A kind of which all objects are followed.
pub(super) trait Collected: Resource {
    /// What it is called in messages.
    const WORD: &'static str;

    /// Drops what nobody on the node asks for.
    fn strip(&mut self);
}

impl Collected for Service {
    const WORD: &'static str = "service";

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }
}

impl Collected for RuntimeClass {
    const WORD: &'static str = "runtimeclass";

    fn strip(&mut self) {
        strip(&mut self.metadata);
    }
}

impl<T: Collected> Collection<T> {
    /// Follows them for as long as the node runs.
    pub(super) fn follow(
        client: Client,
        selection: &Selection,
        chance: Chance,
        tasks: &Tasks,
    ) -> Collection<T> {
        let (sender, seen) = watch::channel(Seen::NotYet(None));
        tasks.spawn(run(Follower::new(client, selection, chance), sender));
        Collection(seen)
    }

    /// All of them; nothing before they were seen.
    pub(super) fn all(&self) -> Option<Vec<Arc<T>>> {
        match &*self.0.borrow() {
            Seen::All(found) => Some(found.values().cloned().collect()),
            Seen::NotYet(_) => None,
        }
    }

    /// One of them, when they were seen.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        let mut seen = self.0.clone();
        let known = seen.wait_for(|seen| matches!(seen, Seen::All(_)));
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        match &*self.0.borrow() {
            Seen::All(found) => {
                found.get(&(namespace.into(), name.into())).cloned().ok_or(Unavailable::NotFound)
            }
            Seen::NotYet(trouble) => Err(not_known(T::WORD, trouble.as_deref())),
        }
    }
}

async fn run<T: Collected>(mut follower: Follower<T>, seen: watch::Sender<Seen<T>>) {
    let entry = |mut object: T| {
        object.strip();
        let metadata = object.metadata();
        ((metadata.namespace.clone(), metadata.name.clone()), Arc::new(object))
    };
    loop {
        match follower.next().await {
            Event::All(all) => {
                seen.send_replace(Seen::All(all.into_iter().map(entry).collect()));
            }
            Event::Set(object) => {
                let (key, object) = entry(object);
                change(&seen, |found| drop(found.insert(key, object)));
            }
            Event::Gone(object) => {
                let (key, _) = entry(object);
                change(&seen, |found| drop(found.remove(&key)));
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

fn change<T>(seen: &watch::Sender<Seen<T>>, change: impl FnOnce(&mut Found<T>)) {
    seen.send_if_modified(|seen| {
        if let Seen::All(found) = seen {
            change(found);
        }
        true
    });
}
