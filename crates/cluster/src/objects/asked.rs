//! Objects that are asked for, and taken for current for some time.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crablet_api::Text;
use crablet_client::Client;
use crablet_core::translate::Unavailable;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Referred, not_kept, unavailable};
use crate::memory::{Key, Memory};
use crate::registry::Registry;

/// For how long an answer is taken for current where nobody says otherwise.
const CACHED_FOR: Duration = Duration::from_secs(60);

/// For how long the node's object says that answers may be taken for current, if it does. A cluster of many nodes is asked
/// less often so. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ObjectTtl(Arc<std::sync::Mutex<Option<Duration>>>);

impl ObjectTtl {
    pub(crate) fn set(&self, ttl: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ttl;
    }
}

/// For how long an answer is taken for current.
#[derive(Clone, Debug)]
pub(super) enum KeepsFor {
    NoTime,
    Ttl(ObjectTtl),
}

impl KeepsFor {
    fn now(&self) -> Duration {
        match self {
            KeepsFor::NoTime => Duration::ZERO,
            KeepsFor::Ttl(ttl) => ttl.0.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(CACHED_FOR),
        }
    }
}

/// The objects of a kind that somebody refers to, and that are asked for.
pub(super) struct Asked<T> {
    client: Client,
    keeps_for: KeepsFor,
    memory: Option<Memory>,
    entries: Registry<(Text, Text), Entry<T>>,
}

/// The last answer, for as long as somebody has a hold of this. Who asks meanwhile waits for the one who asks already.
pub(super) struct Entry<T>(Mutex<Option<Answer<T>>>);

struct Answer<T> {
    /// The object, or nothing if it was not there.
    object: Option<Arc<T>>,
    /// When it was asked for, if it counts as current.
    at: Option<Instant>,
}

impl<T: Referred> Asked<T> {
    pub(super) fn new(client: Client, keeps_for: KeepsFor, memory: Option<Memory>) -> Asked<T> {
        Asked { client, keeps_for, memory, entries: Registry::new() }
    }

    /// Somebody refers to an object, and shall have it as it is now.
    pub(super) fn hold(&self, namespace: &str, name: &str) -> Arc<Entry<T>> {
        let entry = self.entries.get_or_make((namespace.into(), name.into()), || Entry(Mutex::new(None)));
        // Whoever asks for it at this moment gets it as it is now.
        if let Ok(mut answer) = entry.0.try_lock()
            && let Some(answer) = &mut *answer
        {
            answer.at = None;
        }
        entry
    }

    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<T>, Unavailable> {
        let key = (namespace.into(), name.into());
        let Some(entry) = self.entries.get(&key) else {
            return Err(Unavailable::Other(format!("object {namespace:?}/{name:?} not registered")));
        };
        let mut last = entry.0.lock().await;
        let keeps_for = self.keeps_for.now();
        let is_current = |answer: &Answer<T>| {
            answer.object.is_some() && answer.at.is_some_and(|at| at.elapsed() < keeps_for)
        };
        if !last.as_ref().is_some_and(is_current) {
            let asked_at = Instant::now();
            match self.client.get::<T>(namespace, name).await {
                Ok(mut object) => {
                    object.strip();
                    self.keep(&key, last.as_ref(), Some(&object));
                    *last = Some(Answer { object: Some(Arc::new(object)), at: Some(asked_at) });
                }
                Err(error) if error.is_not_found() => {
                    self.keep(&key, last.as_ref(), None);
                    *last = Some(Answer { object: None, at: Some(asked_at) });
                }
                // What was seen before is better than nothing.
                Err(error) => {
                    if last.as_ref().is_none_or(|answer| answer.object.is_none()) {
                        return self.recalled(&key).unwrap_or_else(|| Err(unavailable(&error)));
                    }
                }
            }
        }
        last.as_ref().and_then(|answer| answer.object.clone()).ok_or(Unavailable::NotFound)
    }

    fn keep(&self, key: &Key, before: Option<&Answer<T>>, now: Option<&T>) {
        let Some(memory) = &self.memory else { return };
        let recalled = T::recalled(memory, key);
        let before = before.and_then(|answer| answer.object.clone()).or(recalled);
        T::keep(memory, key, before.as_deref(), now);
    }

    /// What is kept of an object; or that it is not, while pods are run from memory.
    fn recalled(&self, key: &Key) -> Option<Result<Arc<T>, Unavailable>> {
        let memory = self.memory.as_ref()?;
        match T::recalled(memory, key) {
            Some(object) => Some(Ok(object)),
            None => Some(Err(not_kept(T::REFERENCE, key, memory.away_since()?))),
        }
    }
}
