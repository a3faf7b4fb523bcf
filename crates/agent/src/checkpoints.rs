//! Writes checkpoints behind the workers' backs: of each pod the latest, one write at a time. Those of different pods are
//! written side by side, so that one that takes long holds up no other, and so that the disk can sync several at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// How many are written at the same time, each by a thread.
const WRITES_AT_ONCE: usize = 16;
/// How long one that nobody waits for is held back: mostly the next one comes soon, and replaces it.
const SOON: Duration = Duration::from_millis(100);
/// The wait after a write that failed; each further one doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// No such wait is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where checkpoints are written. Clones write to the same place.
#[derive(Clone)]
pub struct CheckpointWriter(Arc<Inner>);

struct Inner {
    store: Arc<dyn Checkpoints>,
    /// What is to be done next, by name.
    waiting: Mutex<BTreeMap<String, Waiting>>,
    news: Notify,
}

/// What is to be done to one checkpoint.
struct Waiting {
    change: Change,
    due: Instant,
    /// How long to wait if it fails.
    pause: Duration,
    /// Who is told what became of it. Those who asked for what it replaced are told with them.
    asked: Vec<oneshot::Sender<Written>>,
}

impl Waiting {
    /// Puts another change in place of the one that waits. Who asked for that one to be synced relies on it.
    fn replace(&mut self, mut change: Change) {
        if let (Change::Save(newer), Change::Save(Record { synced: true, .. })) = (&mut change, &self.change)
        {
            newer.synced = true;
        }
        self.change = change;
    }
}

enum Change {
    Save(Record),
    Remove,
}

/// What is written of a pod.
pub struct Record {
    pub bytes: Vec<u8>,
    /// Whether it has to outlive a crash of the machine, and not only one of the agent.
    pub synced: bool,
}

/// What became of a change. Several may have asked for it.
pub type Written = Result<(), Arc<CheckpointError>>;

impl CheckpointWriter {
    /// A writer over a store. [`CheckpointWriter::run`] does the writing.
    pub fn new(store: Arc<dyn Checkpoints>) -> CheckpointWriter {
        CheckpointWriter(Arc::new(Inner { store, waiting: Mutex::default(), news: Notify::new() }))
    }

    /// Has something written soon.
    pub fn write(&self, name: &str, record: Record) {
        self.ask(name, Change::Save(record), None);
    }

    /// Writes something now, in place of what was to be written under that name. It is written, and on disk if it
    /// is to be synced, when this returns. What cannot be written is tried again later.
    pub async fn write_now(&self, name: &str, record: Record) -> Written {
        self.done(name, Change::Save(record)).await
    }

    /// Has what was written under a name removed soon.
    pub fn remove_soon(&self, name: &str) {
        self.ask(name, Change::Remove, None);
    }

    /// Removes what was written under a name.
    pub async fn remove(&self, name: &str) -> Written {
        self.done(name, Change::Remove).await
    }

    /// Writes what is to be written, for ever. What is left when it is dropped was of no importance: it is a status
    /// that the next agent makes anew.
    pub async fn run(self) {
        let (mut under_way, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let mut next = None;
            while under_way.len() < WRITES_AT_ONCE {
                next = self.first(&busy);
                let Some((name, _)) = next.take_if(|(_, due)| *due <= Instant::now()) else { break };
                let Some(waiting) = self.waiting().remove(&name) else { continue };
                under_way.push(self.carry_out(name.clone(), waiting));
                busy.insert(name);
            }
            tokio::select! {
                biased;
                Some(name) = under_way.next() => {
                    busy.remove(&name);
                }
                () = self.0.news.notified() => {}
                () = until(next.map(|(_, due)| due)) => {}
            }
        }
    }

    async fn done(&self, name: &str, change: Change) -> Written {
        let (asked, written) = oneshot::channel();
        self.ask(name, change, Some(asked));
        written.await.unwrap_or_else(|_| Err(Arc::new(CheckpointError::Abandoned)))
    }

    fn ask(&self, name: &str, change: Change, asked: Option<oneshot::Sender<Written>>) {
        let now = Instant::now();
        let mut all = self.waiting();
        match all.get_mut(name) {
            Some(waiting) => {
                waiting.replace(change);
                if asked.is_some() {
                    waiting.due = now;
                }
                waiting.asked.extend(asked);
            }
            None => {
                let due = if asked.is_some() { now } else { now + SOON };
                let asked = asked.into_iter().collect();
                all.insert(name.to_owned(), Waiting { change, due, pause: SHORTEST_PAUSE, asked });
            }
        }
        drop(all);
        self.0.news.notify_one();
    }

    /// What is due first, of what is not being written.
    fn first(&self, busy: &BTreeSet<String>) -> Option<(String, Instant)> {
        let all = self.waiting();
        let free = all.iter().filter(|(name, _)| !busy.contains(*name));
        free.min_by_key(|(_, waiting)| waiting.due).map(|(name, waiting)| (name.clone(), waiting.due))
    }

    async fn carry_out(&self, name: String, waiting: Waiting) -> String {
        let Waiting { change, due: _, pause, asked } = waiting;
        let done = match &change {
            Change::Save(Record { bytes, synced: true }) => self.0.store.save(&name, bytes).await,
            Change::Save(Record { bytes, synced: false }) => self.0.store.save_unsynced(&name, bytes).await,
            Change::Remove => self.0.store.remove(&name).await,
        };
        let done = done.map_err(Arc::new);
        if let Err(error) = &done {
            if asked.is_empty() {
                warn!(name, %error, "Cannot write or remove a checkpoint; trying again later");
            }
            match change {
                // Who asked for it knows, and asks again.
                Change::Remove if !asked.is_empty() => {}
                Change::Remove | Change::Save(_) => self.try_again(&name, change, pause),
            }
        }
        for asked in asked {
            // Nobody waits for it any more.
            let _ = asked.send(done.clone());
        }
        name
    }

    /// Has something written after a pause, unless there is something newer, which waits instead if it can.
    fn try_again(&self, name: &str, change: Change, pause: Duration) {
        let (due, next_pause) = (Instant::now() + pause, (pause * 2).min(LONGEST_PAUSE));
        let mut all = self.waiting();
        match all.get_mut(name) {
            Some(newer) => {
                if let (Change::Save(newer), Change::Save(record)) = (&mut newer.change, &change) {
                    newer.synced |= record.synced;
                }
                newer.pause = next_pause;
                if newer.asked.is_empty() {
                    newer.due = due;
                }
            }
            None => {
                all.insert(name.to_owned(), Waiting { change, due, pause: next_pause, asked: Vec::new() });
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
    use crablet_host::simulation::Fault;
    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn start() -> (SimulatedCheckpoints, CheckpointWriter) {
        let store = SimulatedCheckpoints::new();
        let writer = CheckpointWriter::new(Arc::new(store.clone()));
        tokio::spawn(writer.clone().run());
        (store, writer)
    }

    fn now(writer: &CheckpointWriter, name: &'static str, text: &str) -> tokio::task::JoinHandle<Written> {
        let (writer, record) = (writer.clone(), record(text));
        tokio::spawn(async move { writer.write_now(name, record).await })
    }

    fn record(text: &str) -> Record {
        Record { bytes: text.into(), synced: true }
    }

    fn text(store: &SimulatedCheckpoints, name: &str) -> String {
        store.content().get(name).map_or("-".into(), |bytes| String::from_utf8(bytes.clone()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_checkpoint_never_lands_on_a_newer_one() {
        let (store, writer) = start();
        store.slow_down("a", SECOND);
        let began = Instant::now();
        let first = now(&writer, "a", "1");
        sleep(SECOND / 2).await;
        let (second, third) = (now(&writer, "a", "2"), now(&writer, "a", "3"));
        first.await.unwrap().unwrap();
        assert_eq!((text(&store, "a").as_str(), began.elapsed()), ("1", SECOND));
        second.await.unwrap().unwrap();
        assert_eq!((text(&store, "a").as_str(), began.elapsed()), ("3", 2 * SECOND));
        third.await.unwrap().unwrap();
        assert_eq!(store.calls(), [Operation::Save; 2], "what was replaced before its turn is not written");
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_wins_and_costs_one_write() {
        let (store, writer) = start();
        for text in ["1", "2", "3"] {
            writer.write("a", record(text));
            sleep(SOON / 4).await;
        }
        assert_eq!(text(&store, "a"), "-");
        sleep(SOON).await;
        assert_eq!((text(&store, "a").as_str(), store.calls()), ("3", vec![Operation::Save]));
        writer.write("a", record("4"));
        writer.write_now("a", record("5")).await.unwrap();
        assert_eq!(text(&store, "a"), "5");
        sleep(SECOND).await;
        assert_eq!((text(&store, "a").as_str(), store.calls().len()), ("5", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_replaces_one_that_is_to_be_synced_is_synced_too() {
        let (store, writer) = start();
        let unsynced = |text: &str| Record { bytes: text.into(), synced: false };
        writer.write("a", unsynced("1"));
        sleep(SECOND).await;
        writer.write("a", record("2"));
        writer.write("a", unsynced("3"));
        sleep(SECOND).await;
        assert_eq!(text(&store, "a"), "3");
        assert_eq!(store.calls(), [Operation::SaveUnsynced, Operation::Save]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_nobody_waits_for_is_tried_until_it_works() {
        let (store, writer) = start();
        writer.write_now("a", record("1")).await.unwrap();
        store.plan(Some(Operation::Remove), 1, Fault::Fails(ErrorKind::ResourceBusy));
        writer.remove_soon("a");
        sleep(SECOND / 2).await;
        assert_eq!(text(&store, "a"), "1");
        sleep(SECOND).await;
        assert_eq!(text(&store, "a"), "-");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_long_holds_up_no_other() {
        let (store, writer) = start();
        store.slow_down("a", 1000 * SECOND);
        writer.write("a", record("1"));
        sleep(SECOND).await;
        let (slow, began) = (now(&writer, "a", "2"), Instant::now());
        writer.write_now("b", record("1")).await.unwrap();
        writer.remove("b").await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(!slow.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_written_at_once_than_that() {
        let (store, writer) = start();
        let names: Vec<String> = (0..2 * WRITES_AT_ONCE + 1).map(|number| number.to_string()).collect();
        names.iter().for_each(|name| store.slow_down(name, SECOND));
        let began = Instant::now();
        join_all(names.iter().map(|name| writer.write_now(name, record("")))).await;
        assert_eq!(began.elapsed(), 3 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_removed_while_it_is_written_does_not_come_back() {
        let (store, writer) = start();
        store.slow_down("a", SECOND);
        let write = now(&writer, "a", "1");
        sleep(SECOND / 2).await;
        writer.write("a", record("2"));
        writer.remove("a").await.unwrap();
        write.await.unwrap().unwrap();
        sleep(100 * SECOND).await;
        assert_eq!(
            (text(&store, "a").as_str(), store.calls()),
            ("-", vec![Operation::Save, Operation::Remove])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_given_up_is_written_all_the_same_and_before_the_next() {
        let (store, writer) = start();
        store.slow_down("a", SECOND);
        let given_up = tokio::time::timeout(SECOND / 2, writer.write_now("a", record("1")));
        assert!(given_up.await.is_err());
        writer.write_now("a", record("2")).await.unwrap();
        assert_eq!((text(&store, "a").as_str(), store.calls().len()), ("2", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_is_told_and_tried_again_ever_later_and_no_other_waits() {
        let (store, writer) = start();
        for nth in 1..=3 {
            store.plan(Some(Operation::Save), nth, Fault::Fails(ErrorKind::StorageFull));
        }
        let began = Instant::now();
        writer.write_now("a", record("1")).await.unwrap_err();
        sleep(SECOND / 2).await;
        // What is newer is not tried any sooner, unless somebody waits for it.
        writer.write("a", record("2"));
        sleep(3 * SECOND).await;
        assert_eq!(
            (text(&store, "a").as_str(), store.calls().len()),
            ("-", 3),
            "after 1 s and after 2 s more"
        );
        writer.write_now("b", record("1")).await.unwrap();
        assert_eq!(began.elapsed(), SECOND * 7 / 2);
        sleep(SECOND * 7 / 2 - SECOND / 1000).await;
        assert_eq!(text(&store, "a"), "-");
        sleep(SECOND / 100).await;
        assert_eq!(text(&store, "a"), "2", "after 4 s more");

        store.plan(Some(Operation::Remove), 1, Fault::Fails(ErrorKind::Other));
        writer.remove("a").await.unwrap_err();
        writer.remove("a").await.unwrap();
        assert_eq!(text(&store, "a"), "-");
    }
}
