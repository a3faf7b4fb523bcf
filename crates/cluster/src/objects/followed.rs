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

use super::{KNOWN_WITHIN, Referred, not_known};
use crate::registry::Registry;

/// The objects of a kind that somebody refers to, each followed by one watch.
pub(super) struct Following<T> {
    client: Client,
    interests: Interests,
    tasks: Tasks,
    chance: Mutex<Chance>,
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
    pub(super) fn new(client: Client, interests: Interests, tasks: Tasks, chance: Chance) -> Following<T> {
        Following { client, interests, tasks, chance: Mutex::new(chance), followed: Registry::new() }
    }

    /// Follows an object, if nobody has it followed yet.
    pub(super) fn hold(&self, namespace: &str, name: &str) -> Arc<Followed<T>> {
        self.followed.get_or_make((namespace.into(), name.into()), || {
            let chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner).split();
            let follower = Follower::new(self.client.clone(), &Selection::named(namespace, name), chance);
            let (sender, seen) = watch::channel(Seen::NotYet(None));
            let (missed, stop) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
            let task = Task {
                namespace: namespace.into(),
                name: name.into(),
                seen: sender,
                missed: Arc::clone(&missed),
                interests: self.interests.clone(),
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

    /// An object that somebody refers to, when it is known whether it is there.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        let Some(followed) = self.followed.get(&(namespace.into(), name.into())) else {
            return Err(Unavailable::Other(format!("object {namespace:?}/{name:?} not registered")));
        };
        let mut seen = followed.seen.clone();
        let known = seen.wait_for(|seen| !matches!(seen, Seen::NotYet(_)));
        if tokio::time::timeout(KNOWN_WITHIN, known).await.is_err() {
            followed.missed.store(true, Ordering::Relaxed);
        }
        match &*followed.seen.borrow() {
            Seen::There(object) => Ok(Arc::clone(object)),
            Seen::Absent => Err(Unavailable::NotFound),
            Seen::NotYet(trouble) => Err(not_known(T::REFERENCE.lower(), trouble.as_deref())),
        }
    }
}

/// Who follows one object.
struct Task<T> {
    namespace: Text,
    name: Text,
    seen: watch::Sender<Seen<T>>,
    missed: Arc<AtomicBool>,
    interests: Interests,
}

impl<T: Referred> Task<T> {
    async fn run(self, mut follower: Follower<T>) {
        loop {
            let object = match follower.next().await {
                Event::All(all) => all.into_iter().find(|object| object.metadata().name == self.name),
                Event::Set(object) => Some(object),
                Event::Gone(_) => None,
                Event::Trouble { error, again_in } => {
                    let (kind, namespace, name) = (T::REFERENCE.lower(), &self.namespace, &self.name);
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
            if let Seen::NotYet(why) = seen {
                *why = Some(trouble.to_owned());
            }
            false
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
        let mut was_known = true;
        let changed = self.seen.send_if_modified(|seen| {
            let is_same = match (&*seen, &next) {
                (Seen::There(before), Seen::There(after)) => before.says_the_same_as(after),
                (Seen::Absent, Seen::Absent) => true,
                (Seen::NotYet(_), _) => {
                    was_known = false;
                    false
                }
                (Seen::There(_) | Seen::Absent, _) => false,
            };
            *seen = next;
            !is_same
        });
        // Who asks for the first time waits for it anyway.
        if changed && (was_known || self.missed.load(Ordering::Relaxed)) {
            self.interests.changed(T::REFERENCE, &self.namespace, &self.name);
        }
    }
}
