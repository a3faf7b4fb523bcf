//! Writes checkpoints behind the workers' backs: the latest of each pod, one write at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tracing::warn;

/// Where checkpoints are written. Clones write to the same place.
#[derive(Clone)]
pub struct Notebook(Arc<Inner>);

struct Inner {
    store: Arc<dyn Checkpoints>,
    /// What is to be written; `None` is to be removed.
    waiting: Mutex<BTreeMap<String, Vec<u8>>>,
    news: Notify,
    /// Held during a write, so that an older checkpoint never lands on a newer one.
    writing: AsyncMutex<()>,
}

impl Notebook {
    /// A notebook over a store. [`Notebook::run`] does the writing.
    pub fn new(store: Arc<dyn Checkpoints>) -> Notebook {
        let inner =
            Inner { store, waiting: Mutex::default(), news: Notify::new(), writing: AsyncMutex::new(()) };
        Notebook(Arc::new(inner))
    }

    /// Has something written soon.
    pub fn write(&self, name: &str, bytes: Vec<u8>) {
        self.waiting().insert(name.to_owned(), bytes);
        self.0.news.notify_one();
    }

    /// Writes something now, and forgets what was to be written under that name.
    pub async fn write_now(&self, name: &str, bytes: Vec<u8>) -> Result<(), CheckpointError> {
        let _writing = self.0.writing.lock().await;
        self.waiting().remove(name);
        self.0.store.save(name, &bytes).await
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
        loop {
            let news = self.0.news.notified();
            while let Some(name) = self.next() {
                let _writing = self.0.writing.lock().await;
                let Some(bytes) = self.waiting().remove(&name) else { continue };
                if let Err(error) = self.0.store.save(&name, &bytes).await {
                    warn!(name, %error, "Cannot write a checkpoint; the next status of the pod tries again");
                }
            }
            news.await;
        }
    }

    fn next(&self) -> Option<String> {
        self.waiting().keys().next().cloned()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
