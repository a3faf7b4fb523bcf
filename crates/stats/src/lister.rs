//! Which pods there are. What the runtime said last is remembered: cgroups are there and are told while it restarts or hangs,
//! under the names that they had. It is not asked for names again while it has named all that there is: they do not change.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_logging::ErrorChain;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use crate::runtime::{Listing, RuntimeStats};
use crate::stats::StatsError;

/// How long the runtime may take for who can do without it. Who scrapes waits for ten seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// How many sandboxes it is asked for at once.
const AT_ONCE: usize = 8;

/// Who knows which pods there are.
pub(crate) struct Lister {
    runtime: Arc<dyn RuntimeStats>,
    /// For how long what it said is told again.
    cached_for: Duration,
    last: Mutex<Last>,
    /// The images of sandboxes, which never change; nothing where the runtime does not tell. Those that are not listed any
    /// more are forgotten.
    images: Mutex<HashMap<String, Option<String>>>,
}

/// What the runtime said last.
#[derive(Default)]
struct Last {
    at: Option<Instant>,
    listing: Arc<Listing>,
    /// Whether there were cgroups that it did not name.
    has_strangers: bool,
}

/// How names were come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// The runtime said them now.
    Told,
    /// It said them some time ago.
    Remembered,
    /// The same, because it does not answer.
    NotToBeHad,
}

impl Lister {
    pub(crate) fn new(runtime: Arc<dyn RuntimeStats>, cached_for: Duration) -> Lister {
        Lister { runtime, cached_for, last: Mutex::default(), images: Mutex::default() }
    }

    /// What there is.
    pub(crate) async fn list(&self) -> Result<Arc<Listing>, StatsError> {
        {
            let last = lock(&self.last);
            if last.at.is_some_and(|at| at.elapsed() < self.cached_for) {
                return Ok(Arc::clone(&last.listing));
            }
        }
        let at = Instant::now();
        let (sandboxes, containers) = tokio::join!(self.runtime.sandboxes(), self.runtime.containers());
        let containers = containers.map_err(StatsError::Containers)?;
        let listing = Arc::new(Listing::new(sandboxes.map_err(StatsError::Sandboxes)?, containers));
        *lock(&self.last) = Last { at: Some(at), listing: Arc::clone(&listing), has_strangers: false };
        Ok(listing)
    }

    /// The names of all there is, if the runtime has said them all before.
    pub(crate) fn remembered(&self) -> Option<Arc<Listing>> {
        let last = lock(&self.last);
        let is_told_again = last.at.is_some() && !last.has_strangers && !self.cached_for.is_zero();
        is_told_again.then(|| Arc::clone(&last.listing))
    }

    /// There are cgroups that the runtime does not name.
    pub(crate) fn note_strangers(&self) {
        lock(&self.last).has_strangers = true;
    }

    /// What there is; or what there was when the runtime answered last.
    pub(crate) async fn list_or_remember(&self) -> (Arc<Listing>, Names) {
        match timeout(PATIENCE, self.list()).await {
            Ok(Ok(listing)) => return (listing, Names::Told),
            Ok(Err(error)) => {
                warn!(err = %ErrorChain(&error), "The runtime does not list its pods, they are told by the names they had");
            }
            Err(_) => {
                warn!("The runtime does not list its pods in time, they are told by the names they had");
            }
        }
        (Arc::clone(&lock(&self.last).listing), Names::NotToBeHad)
    }

    /// The images of sandboxes by their names. The runtime is asked once for each; for one that it does not tell in time,
    /// again the next time.
    pub(crate) async fn sandbox_images(&self, listing: &Listing, names: Names) -> HashMap<String, String> {
        if names != Names::NotToBeHad {
            let listed: HashSet<&str> = listing.all().map(|pod| &*pod.sandbox).collect();
            let unknown: Vec<&str> = {
                let mut known = lock(&self.images);
                known.retain(|id, _| listed.contains(&**id));
                listed.into_iter().filter(|id| !known.contains_key(*id)).collect()
            };
            let ask = |id| async move {
                match self.runtime.sandbox_image(id).await {
                    Ok(image) => drop(lock(&self.images).insert(str::to_owned(id), image)),
                    Err(error) => {
                        debug!(id, err = %ErrorChain(&error), "The runtime does not tell a sandbox's image")
                    }
                }
            };
            let _ = timeout(PATIENCE, stream::iter(unknown).for_each_concurrent(AT_ONCE, ask)).await;
        }
        let known = lock(&self.images);
        known.iter().filter_map(|(id, image)| Some((id.clone(), image.clone()?))).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
