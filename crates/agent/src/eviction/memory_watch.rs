//! A look at memory beside what takes long: who has none left is ended by the kernel.

use std::sync::Arc;

use crablet_core::eviction::{LONGEST_WAIT, Threshold, next_look};
use crablet_host::clock::Clock;
use crablet_host::signals::{DiskReadings, Signals};
use tokio::time::{Instant, sleep};

use super::BETWEEN_LOOKS;
use super::observe::observations;

/// What is needed for that.
pub(super) struct MemoryWatch {
    pub(super) signals: Arc<dyn Signals>,
    pub(super) clock: Clock,
    /// The thresholds that nothing can wait for, from these times on.
    pub(super) thresholds: Vec<(Threshold, Instant)>,
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
            let now = Instant::now();
            let (count, later): (Vec<_>, Vec<_>) = self.thresholds.iter().partition(|(_, from)| *from <= now);
            let count: Vec<Threshold> = count.into_iter().map(|(threshold, _)| threshold.clone()).collect();
            if count.iter().any(|threshold| threshold.is_met(&seen)) {
                return;
            }
            let next = later.into_iter().map(|(_, from)| *from - now).min();
            wait = next_look(&count, &seen, |_| false).min(next.unwrap_or(LONGEST_WAIT));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use crablet_core::eviction::{Amount, Signal};
    use crablet_host::signals::{MemoryReading, SimulatedSignals};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_nothing_is_done_about_for_a_while_counts_again_afterwards() {
        let signals = SimulatedSignals::new();
        let memory = MemoryReading { capacity: 100, usage: 99, working_set: 99 };
        signals.change(|readings| readings.memory = Some(memory));
        let began = Instant::now();
        let threshold = Threshold::hard(Signal::MemoryAvailable, Amount::Percentage(10.0));
        let held = Duration::from_secs(7);
        let watch = MemoryWatch {
            signals: Arc::new(signals),
            clock: Clock::simulated(jiff::Timestamp::UNIX_EPOCH),
            thresholds: vec![(threshold, began + held)],
        };
        assert_eq!(watch.meanwhile(sleep(held)).await, Some(()), "it does not count yet");
        assert_eq!(watch.meanwhile(pending::<()>()).await, None);
        assert!(began.elapsed() <= held + 2 * BETWEEN_LOOKS, "{:?}", began.elapsed());
    }
}
