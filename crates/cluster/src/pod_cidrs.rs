//! Some runtimes make their network's configuration from the addresses that a cluster gives to the node's pods: they are
//! told, as often as it takes.

use std::time::Duration;

use crablet_cri::Runtime;
use tokio::time::Instant;
use tracing::{info, warn};

/// When a runtime that did not listen is told again.
const AGAIN: Duration = Duration::from_secs(10);

/// What the runtime was told.
#[derive(Default)]
pub(crate) struct PodCidrs {
    told: String,
    again_at: Option<Instant>,
}

impl PodCidrs {
    /// Tells the runtime, if the cluster says something new.
    pub(crate) async fn tell(&mut self, runtime: &dyn Runtime, cidrs: String) {
        self.again_at = None;
        if cidrs.is_empty() || cidrs == self.told {
            return;
        }
        match runtime.update_pod_cidr(&cidrs).await {
            Ok(()) => {
                info!(original = self.told, new = cidrs, "Updating Pod CIDR");
                self.told = cidrs;
            }
            Err(error) => {
                warn!(%error, "Cannot tell the runtime the pod CIDR; it is tried again");
                self.again_at = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// When it is to be told again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }
}
