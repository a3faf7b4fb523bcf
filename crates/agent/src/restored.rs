//! The checkpoints that the agent before left, until somebody asks for them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use tracing::{info, warn};

use crate::worker::Checkpoint;

/// The checkpoints, by UID.
pub struct Restored(Mutex<BTreeMap<String, Checkpoint>>);

impl Restored {
    /// Reads them. One that cannot be read or understood is as good as none.
    pub(crate) async fn read(checkpoints: &dyn Checkpoints) -> Result<Restored, CheckpointError> {
        let loaded = checkpoints.load_all().await?;
        for error in &loaded.unreadable {
            warn!(%error, "Cannot read the checkpoint of a pod; its state is made anew");
        }
        let mut restored = BTreeMap::new();
        for (uid, bytes) in loaded.checkpoints {
            match Checkpoint::read(&bytes) {
                Ok(checkpoint) => {
                    restored.insert(uid, checkpoint);
                }
                Err(error) => {
                    warn!(uid, error, "Cannot understand the checkpoint of a pod; its state is made anew");
                }
            }
        }
        if !restored.is_empty() {
            info!(pods = restored.len(), "Going on from checkpoints");
        }
        Ok(Restored(Mutex::new(restored)))
    }

    /// The checkpoint of a pod. It is told once.
    pub(crate) fn take(&self, uid: &str) -> Option<Checkpoint> {
        self.left().remove(uid)
    }

    /// Those that nobody took yet.
    pub(crate) fn left(&self) -> MutexGuard<'_, BTreeMap<String, Checkpoint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
