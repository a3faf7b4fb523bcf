//! Objects that are followed by name, each by one watch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crablet_agent::objects::Interests;
use crablet_agent::tasks::Tasks;
use crablet_api::Text;
use crablet_client::{Chance, Client, Event, Follower, Selection};
use crablet_core::translate::Unavailable;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::{KNOWN_WITHIN, Referred, not_kept, not_known};
use crate::memory::{Key, Memory};
use crate::registry::Registry;

/// The objects of a kind that somebody refers to, each followed by one watch.
pub(super) struct Following<T> {
    client: Client,
    interests: Interests,
    tasks: Tasks,
    chance: Mutex<Chance>,
    memory: Option<Memory>,
    followed: Registry<(Text, Text), Followed<T>>,
}

/// An object that is followed for as long as somebody has a hold of this.
pub(super) struct Followed<T> {
    seen: watch::Receiver<Seen<T>>,
    /// Whether somebody asked for it before it was known, and got no answer.
    missed: Arc<AtomicBool>,
    _stop: DropGuard,
}

/// What was seen of an object last.
enum Seen<T> {
    /// Nothing yet; and what keeps it.
    NotYet(Option<String>),
    Absent,
    There(Arc<T>),
}

impl<T: Referred> Following<T> {
    pub(super) fn new(
        client: Client,
        interests: Interests,
        tasks: Tasks,
        chance: Chance,
        memory: Option<Memory>,
    ) -> Following<T> {
        Following { client, interests, tasks, chance: Mutex::new(chance), memory, followed: Registry::new() }
    }

    /// Follows an object, if nobody has it followed yet.
    pub(super) fn hold(&self, namespace: &str, name: &str) -> Arc<Followed<T>> {
        self.followed.get_or_make((namespace.into(), name.into()), || {
            let chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner).split();
            let follower = Follower::new(self.client.clone(), &Selection::named(namespace, name), chance);
            let (sender, seen) = watch::channel(Seen::NotYet(None));
            let (missed, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
            let task = Task {
                key: (namespace.into(), name.into()),
                seen: sender,
                missed: Arc::clone(&missed),
                interests: self.interests.clone(),
                memory: self.memory.clone(),
            };
            let stopped = stop.clone().cancelled_owned();
            self.tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = stopped => {}
                    () = task.run(follower) => {}
                }
            });
            Followed { seen, missed, _stop: stop.drop_guard() }
        })
    }

    /// An object that somebody refers to, when it is known whether it is there; or what is kept of it, while pods are run
    /// from memory.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        let key = (namespace.into(), name.into());
        let Some(followed) = self.followed.get(&key) else {
            return Err(Unavailable::Other(format!("object {namespace:?}/{name:?} not registered")));
        };
        let away_since = self.memory.as_ref().and_then(Memory::away_since);
        let mut seen = followed.seen.clone();
        let known = seen.wait_for(|seen| match seen {
            // It was asked for in vain, and is not waited for again each time.
            Seen::NotYet(trouble) => trouble.is_some() && away_since.is_some(),
            Seen::Absent | Seen::There(_) => true,
        });
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
        let seen = followed.seen.borrow();
        let trouble = match &*seen {
            Seen::There(object) => return Ok(Arc::clone(object)),
            Seen::Absent => return Err(Unavailable::NotFound),
            Seen::NotYet(trouble) => trouble,
        };
        // After trouble the server may be back already, and its word on this one still to come.
        let recalled = self.memory.as_ref().filter(|_| away_since.is_some() || trouble.is_some());
        if let Some(object) = recalled.and_then(|memory| T::recalled(memory, &key)) {
            return Ok(object);
        }
        followed.missed.store(true, Ordering::Relaxed);
        Err(match away_since {
            Some(since) => not_kept(T::REFERENCE, &key, since),
            None => not_known(T::REFERENCE.lower(), trouble.as_deref()),
        })
    }
}

/// Who follows one object.
struct Task<T> {
    key: Key,
    seen: watch::Sender<Seen<T>>,
    missed: Arc<AtomicBool>,
    interests: Interests,
    memory: Option<Memory>,
}

impl<T: Referred> Task<T> {
    async fn run(self, mut follower: Follower<T>) {
        loop {
            let object = match follower.next().await {
                Event::All(all) => all.into_iter().find(|object| object.metadata().name == self.key.1),
                Event::Set(object) => Some(object),
                Event::Gone(_) => None,
                Event::Trouble { error, again_in } => {
                    let (kind, (namespace, name)) = (T::REFERENCE.lower(), &self.key);
                    debug!(kind, %namespace, %name, err = %error, ?again_in, "Cannot follow an object that pods refer to");
                    self.note_trouble(&error.to_string());
                    continue;
                }
                Event::Resumed => continue,
            };
            // What can never change is not followed any further.
            let is_last = object.as_ref().is_some_and(T::is_immutable);
            self.show(object);
            if is_last {
                return;
            }
        }
    }

    /// What is known stays known, whoever does not answer.
    fn note_trouble(&self, trouble: &str) {
        self.seen.send_if_modified(|seen| {
            let Seen::NotYet(why) = seen else { return false };
            *why = Some(trouble.to_owned());
            true
        });
    }

    fn show(&self, object: Option<T>) {
        let next = match object {
            Some(mut object) => {
                object.strip();
                Seen::There(Arc::new(object))
            }
            None => Seen::Absent,
        };
        // What pods were given from memory was known to them.
        let recalled = self.memory.as_ref().and_then(|memory| T::recalled(memory, &self.key));
        let (mut was_known, mut is_same) = (true, false);
        self.seen.send_if_modified(|seen| {
            let before = match &*seen {
                Seen::There(before) => Some(before),
                Seen::Absent => None,
                Seen::NotYet(_) => {
                    was_known = recalled.is_some();
                    recalled.as_ref()
                }
            };
            let now = if let Seen::There(now) = &next { Some(now) } else { None };
            is_same = match (before, now) {
                (Some(before), Some(now)) => before.says_the_same_as(now),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if let Some(memory) = &self.memory {
                T::keep(memory, &self.key, before.map(|before| &**before), now.map(|now| &**now));
            }
            let was_awaited = matches!(seen, Seen::NotYet(_));
            *seen = next;
            was_awaited || !is_same
        });
        // Who asks for the first time waits for it anyway.
        let is_told = if was_known { !is_same } else { self.missed.load(Ordering::Relaxed) };
        if is_told {
            let (namespace, name) = &self.key;
            self.interests.changed(T::REFERENCE, namespace, name);
        }
    }
}
