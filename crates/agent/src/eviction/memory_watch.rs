//! A look at memory beside what takes long: who has none left is ended by the kernel.

use std::sync::Arc;

use crablet_core::eviction::{Threshold, next_look};
use crablet_host::clock::Clock;
use crablet_host::signals::{DiskReadings, Signals};
use tokio::time::sleep;

use super::BETWEEN_LOOKS;
use super::observe::observations;

/// What is needed for that.
pub(super) struct MemoryWatch {
    pub(super) signals: Arc<dyn Signals>,
    pub(super) clock: Clock,
    /// The thresholds that nothing can wait for.
    pub(super) thresholds: Vec<Threshold>,
}

impl MemoryWatch {
    /// Does something that may take long. It is let go of, with no answer, as soon as memory runs short.
    pub(super) async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.runs_short() => None,
        }
    }

    async fn runs_short(&self) {
        if self.thresholds.is_empty() {
            return std::future::pending().await;
        }
        // Who has just looked need not look again for what takes no time.
        let mut wait = BETWEEN_LOOKS;
        loop {
            sleep(wait).await;
            let seen = observations(&self.signals.read(), &DiskReadings::default(), self.clock.steady());
            if self.thresholds.iter().any(|threshold| threshold.is_met(&seen)) {
                return;
            }
            wait = next_look(&self.thresholds, &seen, |_| false);
        }
    }
}
