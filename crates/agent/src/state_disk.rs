//! Whether the agent can write down what it has to remember. When it cannot, as on a full disk, nothing that relies on it is
//! done, and people are told: once for as long as it lasts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::checkpoint::{CheckpointError, Checkpoints, Loaded};
use crablet_logging::ErrorChain;
use tokio::time::Instant;

use crate::recorder::{EventType, Involved, Recorder, reason};

/// Failures that are no further apart belong together: what fails is tried again within a minute, or when somebody asks.
const LASTS: Duration = Duration::from_secs(600);

/// The disk, or disks, that state is written to. Clones are the same.
#[derive(Clone)]
pub(crate) struct StateDisk(Arc<Inner>);

struct Inner {
    recorder: Recorder,
    node: Involved,
    failed_last: Mutex<Option<Instant>>,
}

impl StateDisk {
    pub(crate) fn new(recorder: Recorder, node: Involved) -> StateDisk {
        StateDisk(Arc::new(Inner { recorder, node, failed_last: Mutex::default() }))
    }

    /// Something could not be written down.
    pub(crate) fn failed(&self, error: &CheckpointError) {
        let now = Instant::now();
        let before = self.0.failed_last.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        if before.is_some_and(|before| now - before <= LASTS) {
            return;
        }
        let message = format!("The node cannot write down its state: {}", ErrorChain(error));
        self.0.recorder.event(&self.0.node, EventType::Warning, reason::FAILED_SYNC, message);
    }

    /// A store of which it is told when it cannot be written to.
    pub(crate) fn watch(&self, store: Arc<dyn Checkpoints>) -> Arc<dyn Checkpoints> {
        Arc::new(Watched { store, disk: self.clone() })
    }
}

struct Watched {
    store: Arc<dyn Checkpoints>,
    disk: StateDisk,
}

impl Watched {
    fn told(&self, written: Result<(), CheckpointError>) -> Result<(), CheckpointError> {
        written.inspect_err(|error| self.disk.failed(error))
    }
}

#[async_trait]
impl Checkpoints for Watched {
    async fn load_all(&self) -> Result<Loaded, CheckpointError> {
        self.store.load_all().await
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.told(self.store.save(name, bytes).await)
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.told(self.store.save_unsynced(name, bytes).await)
    }

    async fn remove(&self, name: &str) -> Result<(), CheckpointError> {
        self.store.remove(name).await
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
    use crablet_host::clock::Clock;
    use crablet_host::simulation::Fault;
    use jiff::Timestamp;
    use tokio::time::advance;

    use super::*;
    use crate::story::Stories;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_told_once_and_the_next_one_again() {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        let recorder = Recorder::new(clock.clone(), Stories::new(clock));
        let events = recorder.queue();
        let disk = SimulatedCheckpoints::new();
        let store = StateDisk::new(recorder, Involved::node("n")).watch(Arc::new(disk.clone()));
        let mut told = Vec::new();
        for (fails, wait) in
            [(true, 1), (true, 60), (false, 60), (true, 590), (true, 601), (false, 0), (true, 0)]
        {
            if fails {
                disk.plan(Some(Operation::Save), 1, Fault::Fails(ErrorKind::StorageFull));
            }
            assert_eq!(store.save("a", b"1").await.is_err(), fails);
            told.push(events.try_next().is_some());
            advance(Duration::from_secs(wait)).await;
        }
        assert_eq!(told, [true, false, false, false, false, false, true]);
    }
}
