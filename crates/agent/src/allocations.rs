//! What is allocated to pods, and what their containers were given last, on disk in upstream's two state files: the next
//! agent goes on from them, whether it is ours or the Go kubelet.
//!
//! Who changes something says so at once, and waits until it is [`written`](Allocations::written) before it is acted on.
//! One task writes, so that what many pods change at the same time is one write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use crablet_api::document::Limits;
use crablet_core::resize::PodResourceInfo;
use crablet_core::resize::state_file::{self, StateFileError};
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use crablet_host::files::ReadError;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::state_disk::StateDisk;

/// The files, in the root directory.
pub const STATE_FILES: [&str; 2] = ["allocated_pods_state", "actuated_pods_state"];
/// The largest file: what thousands of pods have.
pub const LARGEST_STATE_FILE: usize = 64 << 20;

const LIMITS: Limits = Limits { bytes: LARGEST_STATE_FILE, nodes: 10_000_000, ..Limits::API };

/// Why it is not known what pods have. To go on would give the same to two of them, or restart containers.
#[derive(Debug, thiserror::Error)]
pub enum AllocationsError {
    #[error(transparent)]
    Disk(#[from] CheckpointError),
    #[error("cannot read a state file")]
    Unreadable(#[from] ReadError),
    /// A file does not say what it should.
    #[error(
        "could not restore state from checkpoint, please drain this node and delete pod resource information \
         checkpoint file {name:?} in the root directory before restarting the kubelet"
    )]
    Content {
        name: &'static str,
        /// Why.
        source: StateFileError,
    },
}

/// What is on disk, and what is to be. Clones are the same.
#[derive(Clone)]
pub struct Allocations(Arc<Inner>);

struct Inner {
    store: Arc<dyn Checkpoints>,
    books: Mutex<Books>,
    news: Notify,
    attempts: watch::Sender<Attempt>,
}

/// One of [`STATE_FILES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    Allocated,
    Actuated,
}

impl File {
    /// What was given first: without that, what is allocated would be taken for it.
    const IN_ORDER: [File; 2] = [File::Actuated, File::Allocated];

    fn name(self) -> &'static str {
        let [allocated, actuated] = STATE_FILES;
        match self {
            File::Allocated => allocated,
            File::Actuated => actuated,
        }
    }
}

/// Something of each file.
#[derive(Debug, Clone, Default)]
struct OfEach<T> {
    allocated: T,
    actuated: T,
}

impl<T> OfEach<T> {
    fn of(&self, file: File) -> &T {
        match file {
            File::Allocated => &self.allocated,
            File::Actuated => &self.actuated,
        }
    }

    fn of_mut(&mut self, file: File) -> &mut T {
        match file {
            File::Allocated => &mut self.allocated,
            File::Actuated => &mut self.actuated,
        }
    }
}

#[derive(Default)]
struct Books {
    /// What each file has of each pod, by UID. Mostly it is the same text.
    pods: BTreeMap<Box<str>, OfEach<Option<Text>>>,
    is_changed: OfEach<bool>,
    /// Counts what was changed, and asked to be written again.
    change: u64,
}

/// The last attempt to write what there was to be written.
#[derive(Default, Clone)]
struct Attempt {
    /// All changes up to this one were in it.
    change: u64,
    error: Option<Arc<CheckpointError>>,
}

impl Allocations {
    /// Nothing yet.
    pub fn new(store: Arc<dyn Checkpoints>) -> Allocations {
        Allocations::with(store, Books::default())
    }

    /// Goes on from what is in the files. One that is not there holds nothing.
    pub async fn open(store: Arc<dyn Checkpoints>) -> Result<Allocations, AllocationsError> {
        let mut loaded = store.load_all().await?;
        if let Some(error) = loaded.unreadable.pop() {
            return Err(error.into());
        }
        let mut books = Books::default();
        for file in File::IN_ORDER {
            let name = file.name();
            let Some(bytes) = loaded.checkpoints.remove(name) else { continue };
            let content = state_file::decode(&bytes, LIMITS)
                .map_err(|source| AllocationsError::Content { name, source })?;
            if content.entries.is_empty() && !content.unknown.is_empty() {
                let holds = content.unknown.join(", ");
                warn!(
                    name,
                    holds, "A state file of another version names no pods: nothing counts as allocated"
                );
            }
            for (uid, info) in content.entries {
                books.put(file, &uid, &state_file::entry(&info));
            }
        }
        Ok(Allocations::with(store, books))
    }

    fn with(store: Arc<dyn Checkpoints>, books: Books) -> Allocations {
        let attempts = watch::Sender::default();
        Allocations(Arc::new(Inner { store, books: Mutex::new(books), news: Notify::new(), attempts }))
    }

    /// What is allocated to a pod.
    pub(crate) fn allocated(&self, uid: &str) -> Option<PodResourceInfo> {
        self.books().get(File::Allocated, uid)
    }

    /// What a pod was given.
    pub(crate) fn actuated(&self, uid: &str) -> Option<PodResourceInfo> {
        self.books().get(File::Actuated, uid)
    }

    pub(crate) fn set_allocated(&self, uid: &str, info: &PodResourceInfo) {
        self.set(File::Allocated, uid, info);
    }

    pub(crate) fn set_actuated(&self, uid: &str, info: &PodResourceInfo) {
        self.set(File::Actuated, uid, info);
    }

    fn set(&self, file: File, uid: &str, info: &PodResourceInfo) {
        let entry = state_file::entry(info);
        let mut books = self.books();
        if books.put(file, uid, &entry) {
            *books.is_changed.of_mut(file) = true;
            books.change += 1;
            self.0.news.notify_one();
        }
    }

    /// A pod is gone. As upstream, that is on disk with the next change: nothing stands on it.
    pub(crate) fn forget(&self, uid: &str) {
        self.books().pods.remove(uid);
    }

    /// Forgets all pods but some.
    pub(crate) fn retain(&self, mut stays: impl FnMut(&str) -> bool) {
        self.books().pods.retain(|uid, _| stays(uid));
    }

    /// Waits until all that was set so far is on disk, or could not be put there.
    pub(crate) async fn written(&self) -> Result<(), Arc<CheckpointError>> {
        let mut attempts = self.0.attempts.subscribe();
        let change = {
            let mut books = self.books();
            let is_changed = books.is_changed.allocated || books.is_changed.actuated;
            if !is_changed && self.0.attempts.borrow().change >= books.change {
                return Ok(());
            }
            // An attempt that failed is made again.
            books.change += 1;
            books.change
        };
        self.0.news.notify_one();
        let attempt = attempts.wait_for(|attempt| attempt.change >= change).await;
        // The sender is as old as this.
        attempt.map_or(Ok(()), |attempt| attempt.error.clone().map_or(Ok(()), Err))
    }

    /// Writes what is changed.
    pub(crate) async fn run(self, disk: StateDisk) {
        let mut attempted = 0;
        loop {
            self.0.news.notified().await;
            let (change, files) = {
                let mut books = self.books();
                if std::mem::replace(&mut attempted, books.change) == books.change {
                    continue;
                }
                let is_changed = std::mem::take(&mut books.is_changed);
                let files = File::IN_ORDER.into_iter().filter(|file| *is_changed.of(*file));
                let files: Vec<_> = files.map(|file| (file, books.encoded(file))).collect();
                (books.change, files)
            };
            let mut attempt = Attempt { change, error: None };
            let mut files = files.into_iter();
            for (file, bytes) in files.by_ref() {
                let name = file.name();
                if let Err(error) = self.0.store.save(name, &bytes).await {
                    warn!(name, %error, "Cannot write down what is allocated to pods");
                    disk.failed(&error);
                    *self.books().is_changed.of_mut(file) = true;
                    attempt.error = Some(Arc::new(error));
                    break;
                }
            }
            // What comes later would be wrong without what comes before it.
            for (file, _) in files {
                *self.books().is_changed.of_mut(file) = true;
            }
            self.0.attempts.send_replace(attempt);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn get(&self, file: File, uid: &str) -> Option<PodResourceInfo> {
        let entry = self.pods.get(uid)?.of(file).as_ref()?;
        crablet_api::from_json(entry.as_bytes(), Limits::API).ok()
    }

    /// Says whether that is something else than before.
    fn put(&mut self, file: File, uid: &str, entry: &str) -> bool {
        let pod = self.pods.entry(uid.into()).or_default();
        if pod.of(file).as_deref() == Some(entry) {
            return false;
        }
        let mut known = File::IN_ORDER.iter().filter_map(|file| pod.of(*file).as_ref());
        let shared = known.find(|known| known.as_str() == entry).cloned();
        *pod.of_mut(file) = Some(shared.unwrap_or_else(|| entry.into()));
        true
    }

    fn encoded(&self, file: File) -> Vec<u8> {
        let entries = self.pods.iter().filter_map(|(uid, pod)| Some((&**uid, pod.of(file).as_deref()?)));
        state_file::encode(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};

    use crablet_api::FeatureGates;
    use crablet_api::testing::pod_yaml;
    use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
    use crablet_host::clock::Clock;
    use crablet_host::simulation::Fault;
    use jiff::Timestamp;

    use super::*;
    use crate::recorder::{Involved, Recorder};
    use crate::story::Stories;

    fn info(cpu: &str) -> PodResourceInfo {
        let pod = pod_yaml(&format!(
            "spec: {{containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}"
        ));
        PodResourceInfo::of(&pod, &FeatureGates::default())
    }

    async fn open(disk: &SimulatedCheckpoints) -> Allocations {
        let allocations = Allocations::open(Arc::new(disk.clone())).await.unwrap();
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        let recorder = Recorder::new(clock.clone(), Stories::new(clock));
        tokio::spawn(allocations.clone().run(StateDisk::new(recorder, Involved::node("n"))));
        allocations
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_agent_knows_what_was_written_and_nothing_of_pods_that_are_gone() {
        let disk = SimulatedCheckpoints::new();
        let allocations = open(&disk).await;
        allocations.written().await.unwrap();
        assert_eq!(disk.content().len(), 0, "nothing is written for nothing");
        allocations.set_allocated("a", &info("2"));
        allocations.set_actuated("a", &info("1"));
        allocations.set_allocated("b", &info("3"));
        allocations.written().await.unwrap();
        let next = open(&disk).await;
        assert_eq!((next.allocated("a"), next.actuated("a")), (Some(info("2")), Some(info("1"))));
        assert_eq!((next.allocated("b"), next.actuated("b")), (Some(info("3")), None));
        next.forget("a");
        next.set_allocated("c", &info("1"));
        next.retain(|uid| uid != "b");
        next.set_allocated("c", &info("2"));
        next.written().await.unwrap();
        let next = open(&disk).await;
        assert_eq!(["a", "b", "c"].map(|uid| next.allocated(uid).is_some()), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_many_change_at_the_same_time_is_few_writes_and_the_same_again_is_none() {
        let disk = SimulatedCheckpoints::new();
        let allocations = open(&disk).await;
        let changes = (0..50).map(|number| {
            let allocations = allocations.clone();
            async move {
                allocations.set_allocated(&format!("uid-{number}"), &info("1"));
                allocations.written().await.unwrap();
            }
        });
        futures_util::future::join_all(changes).await;
        let saves = |disk: &SimulatedCheckpoints| {
            disk.calls().iter().filter(|call| **call == Operation::Save).count()
        };
        let after = saves(&disk);
        assert!(after <= 2, "{after}");
        allocations.set_allocated("uid-7", &info("1"));
        allocations.written().await.unwrap();
        assert_eq!(saves(&disk), after);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_disk_keeps_what_it_has_and_who_waits_is_told_and_may_ask_again() {
        let disk = SimulatedCheckpoints::new();
        let allocations = open(&disk).await;
        allocations.set_allocated("a", &info("1"));
        allocations.written().await.unwrap();
        disk.plan(Some(Operation::Save), 1, Fault::Fails(ErrorKind::StorageFull));
        allocations.set_allocated("a", &info("2"));
        allocations.written().await.unwrap_err();
        assert_eq!(open(&disk).await.allocated("a"), Some(info("1")));
        allocations.written().await.unwrap();
        assert_eq!(open(&disk).await.allocated("a"), Some(info("2")));
    }

    /// What is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_of_another_version_that_names_no_pods_is_told_of() {
        let log = Log::default();
        let (subscriber, _handle) =
            crablet_logging::subscriber(crablet_logging::Settings::default(), log.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        // The checksums are those of upstream.
        let old = r#"{"data":"{\"allocationEntries\":{\"u\":{}}}","checksum":2405921080}"#;
        for (file, is_told) in [(r#"{"data":"{}","checksum":694314937}"#, false), (old, true)] {
            let disk = SimulatedCheckpoints::new();
            disk.save("allocated_pods_state", file.as_bytes()).await.unwrap();
            Allocations::open(Arc::new(disk)).await.map(drop).unwrap();
            let said = String::from_utf8(std::mem::take(&mut *log.0.lock().unwrap())).unwrap();
            let tells = said.contains("allocated_pods_state") && said.contains("allocationEntries");
            assert_eq!(tells, is_told, "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_allocated_is_not_written_before_what_was_given() {
        let disk = SimulatedCheckpoints::new();
        let allocations = open(&disk).await;
        disk.plan(Some(Operation::Save), 1, Fault::Fails(ErrorKind::StorageFull));
        allocations.set_allocated("a", &info("2"));
        allocations.set_actuated("a", &info("1"));
        allocations.written().await.unwrap_err();
        assert_eq!(disk.content().len(), 0);
        allocations.written().await.unwrap();
        let next = open(&disk).await;
        assert_eq!((next.allocated("a"), next.actuated("a")), (Some(info("2")), Some(info("1"))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_torn_keeps_the_agent_from_starting_and_is_left_as_it_is() {
        let disk = SimulatedCheckpoints::new();
        let allocations = open(&disk).await;
        allocations.set_actuated("a", &info("1"));
        allocations.written().await.unwrap();
        let whole = disk.content()["actuated_pods_state"].clone();
        let torn = &whole[..whole.len() - 3];
        disk.save("actuated_pods_state", torn).await.unwrap();
        let error = Allocations::open(Arc::new(disk.clone())).await.map(drop).unwrap_err();
        let expected = "could not restore state from checkpoint, please drain this node and delete pod resource \
                        information checkpoint file \"actuated_pods_state\" in the root directory before restarting \
                        the kubelet";
        assert_eq!(error.to_string(), expected);
        assert_eq!(disk.content()["actuated_pods_state"], torn);
    }
}
