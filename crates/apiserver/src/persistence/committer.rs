//! The thread that writes to the store: all that is waiting goes into one batch, and then the version that is on
//! disk is told.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;
use tracing::error;

use super::Store;
use crate::state::Write;

/// How far the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All up to this version is on disk.
    UpTo(u64),
    /// Something could not be written, so that what is in memory is more than what is on disk. Nothing is acknowledged
    /// any more; a new start begins with what is on disk.
    Failed(StoreFailed),
}

/// Why nothing is acknowledged any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store failed, and nothing is served until the server is started anew: {why}")]
pub struct StoreFailed {
    why: Arc<str>,
}

impl StoreFailed {
    fn new(why: &str) -> StoreFailed {
        StoreFailed { why: why.into() }
    }
}

/// Takes what is to be written. What is waiting is bounded by those who wait for it.
#[derive(Debug)]
pub struct Committer {
    queue: Arc<Queue>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    writes: Vec<Write>,
    is_closed: bool,
}

impl Committer {
    /// Starts the thread. All up to a version is in the store already.
    pub fn start(store: Store, revision: u64) -> std::io::Result<Committer> {
        let queue = Arc::<Queue>::default();
        let (told, progress) = watch::channel(Progress::UpTo(revision));
        let thread = std::thread::Builder::new().name("store".into()).spawn({
            let queue = Arc::clone(&queue);
            move || commit(store, &queue, &told)
        })?;
        Ok(Committer { queue, progress, thread: Some(thread) })
    }

    /// Hands over what happened. It must come in its order, so whoever calls this holds what keeps the order.
    pub fn enqueue(&self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).writes.extend(writes);
        self.queue.changed.notify_one();
    }

    pub fn subscribe(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Whether it still works.
    pub fn check(&self) -> Result<(), StoreFailed> {
        match &*self.progress.borrow() {
            Progress::UpTo(_) => Ok(()),
            Progress::Failed(failed) => Err(failed.clone()),
        }
    }

    /// Waits until all up to a version is on disk.
    pub async fn wait_for(&self, revision: u64) -> Result<(), StoreFailed> {
        let mut progress = self.subscribe();
        let reached = progress.wait_for(|progress| match progress {
            Progress::UpTo(durable) => *durable >= revision,
            Progress::Failed(_) => true,
        });
        match reached.await.as_deref() {
            Ok(Progress::UpTo(_)) => Ok(()),
            Ok(Progress::Failed(failed)) => Err(failed.clone()),
            Err(_) => Err(StoreFailed::new("its thread died")),
        }
    }
}

/// What is waiting is written before the thread ends.
impl Drop for Committer {
    fn drop(&mut self) {
        self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

fn commit(mut store: Store, queue: &Queue, told: &watch::Sender<Progress>) {
    loop {
        let writes = {
            let waiting = queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let wait =
                queue.changed.wait_while(waiting, |waiting| waiting.writes.is_empty() && !waiting.is_closed);
            std::mem::take(&mut wait.unwrap_or_else(PoisonError::into_inner).writes)
        };
        let Some(last) = writes.last() else { return };
        let written = store.write(&writes).and_then(|()| {
            told.send_replace(Progress::UpTo(last.revision));
            // Nobody waits for this who has not something else to be written.
            store.tidy_up()
        });
        if let Err(failure) = written {
            let mut why = failure.to_string();
            let mut source = std::error::Error::source(&failure);
            while let Some(cause) = source {
                why.push_str(": ");
                why.push_str(&cause.to_string());
                source = cause.source();
            }
            error!(err = why, "The store cannot be written; nothing is served until a new start");
            told.send_replace(Progress::Failed(StoreFailed::new(&why)));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::simulated_disk::SimulatedDisk;
    use super::*;
    use crate::resources::CONFIG_MAPS;
    use crate::state::State;

    fn put(state: &mut State, name: &str) -> Vec<Write> {
        state.put(&CONFIG_MAPS, json!({"metadata": {"name": name, "namespace": "default"}}));
        state.take_unwritten()
    }

    #[tokio::test]
    async fn what_is_waiting_goes_into_one_batch() {
        let disk = SimulatedDisk::default();
        let (store, restored) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let committer = Committer::start(store, restored.revision).unwrap();
        let mut state = State::default();
        let release = disk.hold_syncs();
        let before = disk.syncs();
        for turn in 0..100 {
            committer.enqueue(put(&mut state, &format!("m{turn}")));
        }
        assert_eq!(*committer.subscribe().borrow(), Progress::UpTo(0), "nothing is on disk yet");
        drop(release);
        committer.wait_for(100).await.unwrap();
        let syncs = disk.syncs() - before;
        assert!(syncs < 20, "{syncs} syncs for 100 writes");
        drop(committer);
        assert_eq!(Store::open_on(disk.clone(), disk.journal()).unwrap().1.revision, 100);
    }

    #[tokio::test]
    async fn a_store_that_cannot_write_says_so_and_acknowledges_nothing_any_more() {
        let disk = SimulatedDisk::default();
        let (store, restored) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let committer = Committer::start(store, restored.revision).unwrap();
        let mut state = State::default();
        committer.enqueue(put(&mut state, "a"));
        committer.wait_for(1).await.unwrap();
        disk.die_now();
        committer.enqueue(put(&mut state, "b"));
        let failed = committer.wait_for(2).await.unwrap_err();
        assert!(failed.to_string().contains("cannot write to the store"), "{failed}");
        committer.enqueue(put(&mut state, "c"));
        assert_eq!(committer.wait_for(3).await, Err(failed.clone()));
        assert_eq!(committer.check(), Err(failed));
    }

    #[tokio::test]
    async fn what_is_waiting_when_it_ends_is_written() {
        let disk = SimulatedDisk::default();
        let (store, restored) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let committer = Committer::start(store, restored.revision).unwrap();
        let mut state = State::default();
        committer.enqueue(put(&mut state, "a"));
        drop(committer);
        assert_eq!(Store::open_on(disk.clone(), disk.journal()).unwrap().1.revision, 1);
    }
}
