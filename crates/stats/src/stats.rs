//! Who answers: one collects for all who ask at once, and what was collected is good for a moment.

mod usages;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri::Error;
use crablet_cri_api::v1;
use crablet_host::cgroup::{Hierarchy, Layout};
use crablet_host::clock::Clock;
use crablet_host::machine::{Machine, running_processes};
use crablet_logging::ErrorChain;
use crablet_volumes::{VolumeStats, Volumes};
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::cadvisor::cadvisor_page;
use crate::cgroup::{Depth, Trees};
use crate::file_systems::Room;
use crate::known::KnownCgroups;
use crate::lister::{Lister, Names};
use crate::machine::MachineFacts;
use crate::rates::Rates;
use crate::resource::resource_page;
use crate::runtime::{ListedPod, Listing, RuntimeStats};
use crate::snapshot::{APART, Place, SystemContainer};
use crate::summarize::{About, summarize};
use crate::summary::Time;
use crate::view::{PodStorage, Storage, View, Walk, Whole};

/// For how long what was collected is told again, where nobody says otherwise.
pub const CACHED_FOR: Duration = Duration::from_secs(1);

/// How many times as long limits are told again: for a minute. Upstream reads them anew after five seconds.
const LIMITS_FOR: u32 = 60;

/// What a node is, as far as it is told here.
pub struct Settings {
    /// Where the machine's files are: `/`.
    pub root: PathBuf,
    pub node_name: String,
    pub root_dir: PathBuf,
    pub pod_logs_dir: PathBuf,
    pub hierarchy: Hierarchy,
    pub layout: Layout,
    pub machine: Machine,
    /// The cgroups of the agent, the runtime and the rest of the system, where they have one of their own.
    pub kubelet_cgroup: String,
    pub runtime_cgroup: String,
    pub system_cgroup: String,
    /// For how long what was collected is told again.
    pub cached_for: Duration,
}

/// What is asked for what only it knows.
pub struct Parts {
    pub runtime: Arc<dyn RuntimeStats>,
    pub volumes: Arc<dyn VolumeMeter>,
    pub clock: Clock,
    /// The names of the images of containers, by the runtime's names for these.
    pub images: Arc<dyn Fn() -> HashMap<String, String> + Send + Sync>,
}

/// Who measures volumes.
#[async_trait]
pub trait VolumeMeter: Send + Sync {
    async fn of_pod(&self, uid: &str) -> Vec<VolumeStats>;
}

#[async_trait]
impl VolumeMeter for Arc<dyn Volumes> {
    async fn of_pod(&self, uid: &str) -> Vec<VolumeStats> {
        self.stats(uid).await
    }
}

/// Why there are no numbers. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    #[error("failed to get root cgroup stats: failed to get cgroup stats for \"/\": there is no such cgroup")]
    NoRoot,
    #[error("failed to get rootFs stats: failed to get rootFs info: {0}")]
    RootFs(#[source] std::io::Error),
    #[error("failed to get imageFs stats: {0}")]
    ImageFs(#[source] Error),
    #[error("failed to get imageFs stats: imageFs information is unavailable")]
    NoImageFs,
    #[error(
        "failed to list pod stats: failed to get pod or container map: failed to list all containers: {0}"
    )]
    Containers(#[source] Error),
    #[error(
        "failed to list pod stats: failed to get pod or container map: failed to list all pod sandboxes: {0}"
    )]
    Sandboxes(#[source] Error),
    #[error("failed to list pod stats: failed to list all container stats: {0}")]
    ContainerStats(#[source] Error),
    #[error("no pod has a cgroup, and the container runtime does not tell what pods use")]
    NoUsages,
    #[error("the thread that reads ended by a panic")]
    Panicked,
}

/// What the node uses. Clones are the same.
#[derive(Clone)]
pub struct Stats(Arc<Inner>);

struct Inner {
    place: Place,
    parts: Parts,
    lister: Lister,
    about: About,
    machine: MachineFacts,
    has_pressure: bool,
    root: PathBuf,
    sys: PathBuf,
    root_dir: PathBuf,
    pod_logs_dir: PathBuf,
    most_processes: Option<u64>,
    rates: Rates,
    /// Held by the thread that asks disks how much room they have.
    measuring: Arc<tokio::sync::Mutex<()>>,
    /// Held by the thread that looks at what pods have on disk.
    walking: Arc<tokio::sync::Mutex<()>>,
    cached_for: Duration,
    /// What was read last of the kernel: every answer that needs no more is made from it.
    walked: Kept<Walk>,
    /// What was collected last for each of the answers, and when the kernel was read for it.
    collected: [Kept<View>; 4],
}

/// What is told again for a moment, and since when it is.
type Kept<T> = Mutex<Option<(Instant, Arc<T>)>>;

/// What is collected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Resource,
    CpuAndMemory,
    Summary,
    Cadvisor,
}

impl Answer {
    fn depth(self) -> Depth {
        match self {
            Answer::Resource | Answer::CpuAndMemory => Depth::CpuAndMemory,
            Answer::Summary => Depth::Summary,
            Answer::Cadvisor => Depth::Everything,
        }
    }
}

impl Stats {
    /// Nothing is read yet. Without the trees that are counted in there is nothing to tell.
    pub fn new(settings: Settings, parts: Parts) -> Option<Stats> {
        let sys = settings.root.join("sys");
        let trees = Trees::of(&settings.hierarchy)?;
        let machine = MachineFacts::new(&settings.machine, &settings.root);
        let proc = settings.root.join("proc");
        let kubelet = match settings.kubelet_cgroup.is_empty() {
            true => own_cgroup(&proc, &trees).unwrap_or_default(),
            false => settings.kubelet_cgroup,
        };
        let pods = settings.layout.path(&settings.layout.kubepods());
        let system = [
            (SystemContainer::Kubelet, kubelet),
            (SystemContainer::Runtime, settings.runtime_cgroup),
            (SystemContainer::Misc, settings.system_cgroup),
            (SystemContainer::Pods, pods),
        ];
        let place = Place {
            trees,
            layout: settings.layout,
            mounts: proc.join("self/mountinfo"),
            proc,
            memory: machine.memory(),
            booted: settings.machine.boot_time,
            system: system.into_iter().filter(|(_, path)| !path.is_empty()).collect(),
            clock: parts.clock.clone(),
            known: std::sync::Mutex::new(KnownCgroups::new(settings.cached_for.saturating_mul(LIMITS_FOR))),
        };
        let about = About {
            node_name: settings.node_name,
            booted: settings.machine.boot_time.map(Time),
            began: Time(parts.clock.now()),
        };
        Some(Stats(Arc::new(Inner {
            has_pressure: place.trees.have_pressure(),
            place,
            lister: Lister::new(Arc::clone(&parts.runtime), settings.cached_for),
            parts,
            about,
            machine,
            root: settings.root,
            sys,
            root_dir: settings.root_dir,
            pod_logs_dir: settings.pod_logs_dir,
            most_processes: settings.machine.processes,
            rates: Rates::default(),
            measuring: Arc::default(),
            walking: Arc::default(),
            cached_for: settings.cached_for,
            walked: Mutex::default(),
            collected: Default::default(),
        })))
    }

    /// `/stats/summary`, as JSON.
    pub async fn summary(&self, only_cpu_and_memory: bool) -> Result<Vec<u8>, StatsError> {
        let answer = if only_cpu_and_memory { Answer::CpuAndMemory } else { Answer::Summary };
        let view = self.collect(answer).await?;
        let inner = Arc::clone(&self.0);
        let render = move || serde_json::to_vec(&summarize(&view, &inner.about)).unwrap_or_default();
        spawn_blocking(render).await.map_err(|_| StatsError::Panicked)
    }

    /// `/metrics/resource`.
    pub async fn resource_metrics(&self) -> String {
        let view = self.collect_or_say("/metrics/resource", Answer::Resource).await;
        let inner = Arc::clone(&self.0);
        let render = move || {
            let summary = view.map(|view| summarize(&view, &inner.about));
            resource_page(summary.as_ref())
        };
        spawn_blocking(render).await.unwrap_or_else(|_| resource_page(None))
    }

    /// `/metrics/cadvisor`.
    pub async fn cadvisor_metrics(&self) -> String {
        let view = self.collect_or_say("/metrics/cadvisor", Answer::Cadvisor).await;
        let of_sandboxes = match &view {
            Some(view) => self.0.lister.sandbox_images(&view.listing, view.names).await,
            None => HashMap::new(),
        };
        let inner = Arc::clone(&self.0);
        let render = move || {
            let mut images = (inner.parts.images)();
            images.extend(of_sandboxes);
            let now = inner.place.clock.now();
            cadvisor_page(view.as_deref(), &inner.machine, &images, inner.has_pressure, &inner.sys, now)
        };
        spawn_blocking(render).await.unwrap_or_default()
    }

    async fn collect_or_say(&self, path: &str, answer: Answer) -> Option<Arc<View>> {
        let collected = self.collect(answer).await;
        collected
            .inspect_err(|error| warn!(path, err = %ErrorChain(error), "There are no numbers to tell"))
            .ok()
    }

    /// What was collected a moment ago, or anew. Who comes meanwhile waits and gets the same.
    async fn collect(&self, answer: Answer) -> Result<Arc<View>, StatsError> {
        let inner = &self.0;
        let mut collected = inner.collected[answer as usize].lock().await;
        if let Some((at, view)) = &*collected
            && at.elapsed() < inner.cached_for
        {
            return Ok(Arc::clone(view));
        }
        let (at, view) = self.collect_now(answer).await?;
        let view = Arc::new(view);
        if !inner.cached_for.is_zero() {
            *collected = Some((at, Arc::clone(&view)));
            drop(collected);
            tokio::spawn(self.clone().let_go());
        }
        Ok(view)
    }

    /// Nothing stays in memory while nobody asks.
    async fn let_go(self) {
        let cached_for = self.0.cached_for;
        sleep(cached_for).await;
        let is_old = |at: &Instant| at.elapsed() >= cached_for;
        self.0.walked.lock().await.take_if(|(at, _)| is_old(at));
        for collected in &self.0.collected {
            collected.lock().await.take_if(|(at, _)| is_old(at));
        }
    }

    async fn collect_now(&self, answer: Answer) -> Result<(Instant, View), StatsError> {
        let inner = &self.0;
        let (at, mut view) = match answer {
            Answer::Cadvisor => self.walk_by_names().await?,
            Answer::Resource | Answer::CpuAndMemory | Answer::Summary => {
                // Nobody waits for a runtime that hangs because of another who needs it more.
                let listing = inner.lister.list().await?;
                let (at, walk) = self.walk(answer, &listing).await?;
                (at, View::new(walk, listing, Names::Told))
            }
        };
        if answer == Answer::Summary || (answer != Answer::Cadvisor && view.lacks_some()) {
            self.ask_runtime(&mut view).await?;
        }
        if answer == Answer::Summary {
            let (whole, storage) = tokio::join!(self.whole(&view), self.storage(&view));
            let mut whole = whole?;
            whole.storage = storage?;
            view.whole = Some(whole);
        }
        inner.rates.forget_old(inner.place.clock.now());
        Ok((at, view))
    }

    /// What the kernel says, under the names that the runtime gave. It is asked for names where it has not named all that
    /// there is, and can be away.
    async fn walk_by_names(&self) -> Result<(Instant, View), StatsError> {
        let lister = &self.0.lister;
        if let Some(listing) = lister.remembered() {
            let (at, walk) = self.walk(Answer::Cadvisor, &listing).await?;
            if !walk.snapshot.has_strangers {
                return Ok((at, View::new(walk, listing, Names::Remembered)));
            }
            *self.0.walked.lock().await = None;
        }
        let (listing, names) = lister.list_or_remember().await;
        let (at, walk) = self.walk(Answer::Cadvisor, &listing).await?;
        if walk.snapshot.has_strangers {
            lister.note_strangers();
        }
        Ok((at, View::new(walk, listing, names)))
    }

    /// What the kernel says, read a moment ago or anew. Who comes meanwhile waits, and gets the same if that is enough.
    async fn walk(&self, answer: Answer, listing: &Arc<Listing>) -> Result<(Instant, Arc<Walk>), StatsError> {
        let inner = &self.0;
        let mut walked = inner.walked.lock().await;
        let recent =
            walked.take_if(|(at, walk)| at.elapsed() < inner.cached_for && walk.depth >= answer.depth());
        let (at, mut walk) = match recent {
            Some(recent) => recent,
            None => self.walk_now(answer.depth(), Arc::clone(listing)).await?,
        };
        let wants_rates = matches!(answer, Answer::Summary | Answer::CpuAndMemory);
        if wants_rates && walk.snapshot.lacks_rates() {
            sleep(APART).await;
            walk = self
                .blocking(move |inner| {
                    Arc::make_mut(&mut walk).snapshot.settle_rates(&inner.place, &inner.rates);
                    walk
                })
                .await?;
        }
        if !inner.cached_for.is_zero() {
            *walked = Some((at, Arc::clone(&walk)));
        }
        Ok((at, walk))
    }

    async fn walk_now(
        &self,
        depth: Depth,
        listing: Arc<Listing>,
    ) -> Result<(Instant, Arc<Walk>), StatsError> {
        let at = Instant::now();
        let walk = self
            .blocking(move |inner| {
                let mut snapshot = inner.place.read(&listing, depth);
                snapshot.take_rates(&inner.rates);
                Walk { time: inner.place.clock.now(), depth, snapshot }
            })
            .await?;
        match walk.snapshot.root.sample.cpu {
            Some(_) => Ok((at, Arc::new(walk))),
            None => Err(StatsError::NoRoot),
        }
    }

    async fn ask_runtime(&self, view: &mut View) -> Result<(), StatsError> {
        let stats = self.0.parts.runtime.container_stats(None).await.map_err(StatsError::ContainerStats)?;
        self.take_runtime_stats(view, stats);
        Ok(())
    }

    fn take_runtime_stats(&self, view: &mut View, stats: impl IntoIterator<Item = v1::ContainerStats>) {
        for stats in stats {
            let Some(id) = stats.attributes.as_ref().map(|attributes| attributes.id.clone()) else {
                continue;
            };
            let usage =
                stats.cpu.as_ref().and_then(|cpu| Some((cpu.timestamp, cpu.usage_core_nano_seconds?)));
            let rate = usage.and_then(|(time, usage)| {
                self.0.rates.take(&id, Time::from_nanoseconds(time).0, usage.value)
            });
            view.by_runtime.insert(id, (stats, rate));
        }
    }

    async fn whole(&self, view: &View) -> Result<Whole, StatsError> {
        let file_systems = self.0.parts.runtime.image_file_systems().await.map_err(StatsError::ImageFs)?;
        let image = file_systems.into_iter().next().ok_or(StatsError::NoImageFs)?;
        let layers = view.by_runtime.values().filter_map(|(stats, _)| stats.writable_layer.as_ref());
        let mut places: Vec<String> =
            layers.filter_map(|layer| Some(layer.fs_id.as_ref()?.mountpoint.clone())).collect();
        places.sort_unstable();
        places.dedup();
        // Behind a disk that does not answer there is one thread.
        let measuring = Arc::clone(&self.0.measuring).lock_owned().await;
        self.blocking(move |inner| {
            let _measuring = measuring;
            let root = Room::of(&inner.root_dir).map_err(StatsError::RootFs)?;
            let at = |place: &str| Room::of(Path::new(place)).ok();
            let room = image.fs_id.as_ref().and_then(|id| at(&id.mountpoint));
            let rooms = places.into_iter().filter_map(|place| Some((at(&place)?, place)));
            Ok(Whole {
                root,
                image: Some((image, room)),
                rooms: rooms.map(|(room, place)| (place, room)).collect(),
                processes: (inner.most_processes, running_processes(&inner.root).ok()),
                ..Whole::default()
            })
        })
        .await?
    }

    /// What pods have on disk. Volumes that do not answer are left out.
    async fn storage(&self, view: &View) -> Result<HashMap<String, PodStorage>, StatsError> {
        let pods: Vec<ListedPod> = view.running().cloned().collect();
        let uids: Vec<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let volumes = join_all(uids.iter().map(|uid| self.0.parts.volumes.of_pod(uid)));
        // As for file systems: a log on a disk that hangs takes one thread, whoever asks how often.
        let walking = Arc::clone(&self.0.walking);
        let on_disk = async {
            let walking = walking.lock_owned().await;
            let walk = move |inner: &Inner| {
                let _walking = walking;
                let mut storage = Storage::open(&inner.root_dir, &inner.pod_logs_dir);
                let measured = pods.iter().map(|pod| (pod.uid.clone(), storage.measure(pod)));
                measured.collect::<HashMap<_, _>>()
            };
            self.blocking(walk).await
        };
        let (volumes, on_disk) = tokio::join!(volumes, on_disk);
        let mut on_disk = on_disk?;
        for (uid, volumes) in uids.iter().zip(volumes) {
            if let Some(storage) = on_disk.get_mut(uid) {
                storage.volumes = volumes;
            }
        }
        Ok(on_disk)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> T + Send + 'static,
    ) -> Result<T, StatsError> {
        let inner = Arc::clone(&self.0);
        spawn_blocking(move || work(&inner)).await.map_err(|_| StatsError::Panicked)
    }
}

/// The cgroup of this process, unless it is the root, which is told anyway.
fn own_cgroup(proc: &Path, trees: &Trees) -> Option<String> {
    let text = std::fs::read_to_string(proc.join("self/cgroup")).ok()?;
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_meant = match trees {
            Trees::V1 { .. } => controllers.split(',').any(|controller| controller == "cpu"),
            Trees::V2 { .. } => controllers.is_empty(),
        };
        is_meant.then(|| path.to_owned())
    })?;
    Some(path).filter(|path| path != "/")
}
