//! Which pods there are. The runtime is asked each time, and what it said last is remembered: cgroups are there and are told
//! while it restarts or hangs, under the names that they had.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_logging::ErrorChain;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::runtime::{Listing, RuntimeStats};
use crate::stats::StatsError;

/// How long the runtime may take for who can do without it. Who scrapes waits for ten seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many sandboxes it is asked for at once.
const AT_ONCE: usize = 8;

/// Who knows which pods there are.
pub(crate) struct Lister {
    runtime: Arc<dyn RuntimeStats>,
    last: Mutex<Arc<Listing>>,
    /// The images of sandboxes, which never change; nothing where the runtime does not tell. Those that are not listed any
    /// more are forgotten.
    images: Mutex<HashMap<String, Option<String>>>,
}

impl Lister {
    pub(crate) fn new(runtime: Arc<dyn RuntimeStats>) -> Lister {
        Lister { runtime, last: Mutex::default(), images: Mutex::default() }
    }

    /// What there is.
    pub(crate) async fn list(&self) -> Result<Arc<Listing>, StatsError> {
        let (sandboxes, containers) = tokio::join!(self.runtime.sandboxes(), self.runtime.containers());
        let containers = containers.map_err(StatsError::Containers)?;
        let listing = Arc::new(Listing::new(sandboxes.map_err(StatsError::Sandboxes)?, containers));
        *lock(&self.last) = Arc::clone(&listing);
        Ok(listing)
    }

    /// What there is, and that it is so now; or what there was when the runtime answered last.
    pub(crate) async fn list_or_remember(&self) -> (Arc<Listing>, bool) {
        match timeout(PATIENCE, self.list()).await {
            Ok(Ok(listing)) => return (listing, true),
            Ok(Err(error)) => {
                warn!(err = %ErrorChain(&error), "The runtime does not list its pods, they are told by the names they had");
            }
            Err(_) => {
                warn!("The runtime does not list its pods in time, they are told by the names they had");
            }
        }
        (Arc::clone(&lock(&self.last)), false)
    }

    /// The images of sandboxes by their names. The runtime is asked once for each; for one that it does not tell in time,
    /// again the next time.
    pub(crate) async fn sandbox_images(&self, listing: &Listing, may_ask: bool) -> HashMap<String, String> {
        if may_ask {
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
