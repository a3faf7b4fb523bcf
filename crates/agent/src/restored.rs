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
                    warn!(uid, %error, "Cannot understand the checkpoint of a pod; its state is made anew");
                    // Nobody else would remove it if the pod is gone: a power cut during its end can leave such a one.
                    if let Err(error) = checkpoints.remove(&uid).await {
                        warn!(uid, %error, "Cannot remove the checkpoint of a pod");
                    }
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

#[cfg(test)]
mod tests {
    use crablet_host::checkpoint::SimulatedCheckpoints;

    use super::*;

    #[tokio::test]
    async fn a_checkpoint_that_a_power_cut_left_empty_is_as_good_as_none_and_does_not_stay() {
        let store = SimulatedCheckpoints::new();
        store.save("whole", br#"{"name":"p"}"#).await.unwrap();
        store.save("empty", b"").await.unwrap();
        let restored = Restored::read(&store).await.unwrap();
        assert_eq!(restored.take("whole").unwrap().name, "p");
        assert!(restored.take("empty").is_none());
        assert_eq!(store.content().into_keys().collect::<Vec<_>>(), ["whole"]);
    }
}
