//! Writes checkpoints behind the workers' backs: the latest of each pod, one write at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tracing::warn;

/// The wait after a write that failed; each further one doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// No such wait is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where checkpoints are written. Clones write to the same place.
#[derive(Clone)]
pub struct CheckpointWriter(Arc<Inner>);

struct Inner {
    store: Arc<dyn Checkpoints>,
    /// What is to be written.
    waiting: Mutex<BTreeMap<String, Vec<u8>>>,
    news: Notify,
    /// Held during a write, so that an older checkpoint never lands on a newer one.
    writing: AsyncMutex<()>,
}

impl CheckpointWriter {
    /// A writer over a store. [`CheckpointWriter::run`] does the writing.
    pub fn new(store: Arc<dyn Checkpoints>) -> CheckpointWriter {
        let inner =
            Inner { store, waiting: Mutex::default(), news: Notify::new(), writing: AsyncMutex::new(()) };
        CheckpointWriter(Arc::new(inner))
    }

    /// Has something written soon.
    pub fn write(&self, name: &str, bytes: Vec<u8>) {
        self.waiting().insert(name.to_owned(), bytes);
        self.0.news.notify_one();
    }

    /// Writes something now, in place of what was to be written under that name. What cannot be written is tried again
    /// later.
    pub async fn write_now(&self, name: &str, bytes: Vec<u8>) -> Result<(), CheckpointError> {
        let _writing = self.0.writing.lock().await;
        self.waiting().remove(name);
        let saved = self.0.store.save(name, &bytes).await;
        if saved.is_err() {
            self.write(name, bytes);
        }
        saved
    }

    /// Removes what was written under a name.
    pub async fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        let _writing = self.0.writing.lock().await;
        self.waiting().remove(name);
        self.0.store.remove(name).await
    }

    /// Writes what is to be written, for ever. What is left when it is dropped was of no importance: it is a status
    /// that the next agent makes anew.
    pub async fn run(self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let names: Vec<String> = self.waiting().keys().cloned().collect();
            if names.is_empty() {
                self.0.news.notified().await;
                continue;
            }
            let mut failed = false;
            for name in names {
                failed |= self.write_waiting(&name).await.is_err();
            }
            if failed {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                pause = SHORTEST_PAUSE;
            }
        }
    }

    async fn write_waiting(&self, name: &str) -> Result<(), CheckpointError> {
        let _writing = self.0.writing.lock().await;
        let Some(bytes) = self.waiting().remove(name) else { return Ok(()) };
        let saved = self.0.store.save(name, &bytes).await;
        if let Err(error) = &saved {
            warn!(name, %error, "Cannot write a checkpoint; trying again later");
            self.waiting().entry(name.to_owned()).or_insert(bytes);
        }
        saved
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
