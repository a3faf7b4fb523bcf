//! The seam: what the agent asks of volumes, and the volumes of a real node.

mod all_at_once;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::core::{Pod, Volume, VolumeSource};
use crablet_core::translate::{MountedVolume, NodeContext};
use crablet_host::clock::Clock;
use crablet_host::lanes::Lanes;
use crablet_metrics::{RegisterError, Registry};
use tokio::time::{Instant, timeout_at};

use crate::beneath::Method;
use crate::claims::{self, Claimed};
use crate::contents::Contents;
use crate::csi::Csi;
use crate::error::{PluginError, SubPathCause, SubPathError, TearDownError, VolumeError};
use crate::events::{Events, VolumeEvent};
use crate::inventory::{Inventory, Meter, PluginName};
use crate::metrics::{self, Metrics, Operation};
use crate::places::Places;
use crate::plugin::{Plugin, kind, persistent_kind};
use crate::plugins::local;
use crate::plugins::{ConfigMap, DownwardApi, EmptyDir, HostPath, Image, Local, Nfs, Projected, Secret};
use crate::stats::{Stats, VolumeStats};
use crate::sub_path::{self, SubPath};
use crate::tear_down::{self, Part};
use crate::tools;
use crate::volume_file::{self, VolumeFile};
use all_at_once::Why;

/// How long a pod's worker waits for its volumes, as upstream.
pub const DEADLINE: Duration = Duration::from_secs(123);

/// When claims in use are looked at, and drivers that want that are asked to publish a volume again: about each minute,
/// as upstream, and spread, so that pods that began together do not look together.
const LOOKS_AFTER: Duration = Duration::from_secs(60);
const SPREAD: Duration = Duration::from_secs(15);

/// The volumes of pods.
///
/// Every call can be repeated. A call that is given up half-way (its future dropped) may still take effect, and until
/// that ends, further calls for the same pod wait. No call waits for another pod.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Makes the volumes that a pod's containers use, or what is missing of them. One that fails does not keep the
    /// others; all that failed are told.
    async fn set_up(
        &self,
        pod: &Pod,
        node: &NodeContext,
    ) -> Result<BTreeMap<String, MountedVolume>, Vec<VolumeError>>;

    /// Brings the files up to date that tell of a pod or of what it refers to. What cannot be brought up to date stays as
    /// it was.
    /// Volumes of kinds that nobody knows, of a pod that another agent began, are left alone.
    async fn refresh(&self, pod: &Pod, node: &NodeContext) -> Result<(), Vec<VolumeError>>;

    /// After what time a pod's volumes want to be refreshed though nothing has changed, if some do.
    fn refresh_after(&self, _uid: &str) -> Option<Duration> {
        None
    }

    /// The groups that a pod's containers join to use its volumes, beside those that the pod names.
    fn groups(&self, _uid: &str) -> Vec<i64> {
        Vec::new()
    }

    /// What happened to a pod's volumes since somebody asked last, beside what calls returned.
    fn take_events(&self, _uid: &str) -> Vec<VolumeEvent> {
        Vec::new()
    }

    /// Waits until there is something for [`Volumes::take_events`].
    async fn wait_for_events(&self, _uid: &str) {
        std::future::pending().await
    }

    /// Makes the part of a volume ready that a mount of a container asks for, and says where it is on the node.
    async fn sub_path(&self, wanted: &SubPath) -> Result<String, SubPathError>;

    /// The beginning of a file in a volume, which containers may write to meanwhile.
    async fn read(&self, file: &VolumeFile, limit: usize) -> io::Result<Vec<u8>>;

    /// How much of a pod's volumes is used, of those that can be measured. What was measured a minute ago is told again.
    async fn stats(&self, _uid: &str) -> Vec<VolumeStats> {
        Vec::new()
    }

    /// Takes a pod's volumes away. Succeeds when there are none. Only for a pod of which no container runs.
    async fn tear_down(&self, uid: &str) -> Result<(), TearDownError>;
}

/// The names of the volumes that a pod's containers mount. Others are not made.
pub fn used_volumes(pod: &Pod) -> BTreeSet<&str> {
    let mounts = pod
        .spec
        .all_containers()
        .flat_map(|container| &container.volume_mounts)
        .map(|mount| mount.name.as_str());
    let devices = pod
        .spec
        .all_containers()
        .flat_map(|container| &container.volume_devices)
        .map(|device| device.name.as_str());
    mounts.chain(devices).collect()
}

/// The volumes of this machine.
pub struct HostVolumes {
    places: Places,
    clock: Clock,
    deadline: Duration,
    contents: Arc<dyn Contents>,
    plugins: Vec<Arc<dyn Plugin>>,
    csi: Option<Csi>,
    local: Local,
    events: Events,
    inventory: Inventory,
    stats: Stats,
    metrics: Option<Arc<Metrics>>,
    lanes: Lanes,
    /// The groups of pods whose volumes have some.
    groups: Mutex<BTreeMap<String, BTreeSet<i64>>>,
}

/// How volumes are measured.
#[derive(Debug, Clone)]
pub struct Measuring {
    /// For how long what was measured is told: `volumeStatsAggPeriod`. Without, nothing is measured.
    pub period: Option<Duration>,
    /// Whether it is told how drivers say that volumes are: the gate `CSIVolumeHealth`.
    pub tells_health: bool,
}

impl fmt::Debug for HostVolumes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostVolumes").field("places", &self.places).finish_non_exhaustive()
    }
}

impl HostVolumes {
    /// Below `--root-dir`, with the plugins that need nobody but the node and whoever has the `contents`.
    pub fn new(root: impl Into<PathBuf>, clock: Clock, contents: Arc<dyn Contents>) -> HostVolumes {
        let local = Local::new(Arc::clone(&contents));
        let plugins: Vec<Arc<dyn Plugin>> = vec![
            Arc::new(EmptyDir),
            Arc::new(HostPath),
            Arc::new(DownwardApi),
            Arc::new(ConfigMap(Arc::clone(&contents))),
            Arc::new(Secret(Arc::clone(&contents))),
            Arc::new(Projected(Arc::clone(&contents))),
            Arc::new(Image),
            Arc::new(local.clone()),
            Arc::new(Nfs(tools::mount)),
        ];
        let places = Places::new(root);
        let inventory = Inventory::default();
        let events = Events::default();
        let stats = Stats::new(inventory.clone(), clock.clone(), events.clone());
        HostVolumes {
            places,
            clock,
            deadline: DEADLINE,
            contents,
            plugins,
            csi: None,
            local,
            events,
            inventory,
            stats,
            metrics: None,
            lanes: Lanes::default(),
            groups: Mutex::default(),
        }
    }

    /// With one more plugin. Of two that support the same source, the later one gets it.
    #[must_use]
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>) -> HostVolumes {
        self.plugins.insert(0, plugin);
        self
    }

    /// With the volumes of CSI drivers.
    #[must_use]
    pub fn with_csi(mut self, csi: Csi) -> HostVolumes {
        self.csi = Some(csi.clone());
        self.stats.csi = Some(csi.clone());
        self.with_plugin(Arc::new(csi))
    }

    /// With what is done and measured told to a registry. Comes after all else that it is made with.
    pub fn counted_in(
        mut self,
        registry: &Registry,
        measuring: &Measuring,
    ) -> Result<HostVolumes, RegisterError> {
        let metrics = Arc::new(Metrics::new(registry)?);
        self.local.count_in(&metrics);
        if let Some(csi) = &self.csi {
            csi.count_in(&metrics);
        }
        self.stats.metrics = Some(Arc::clone(&metrics));
        self.stats.period = measuring.period;
        self.stats.tells_health = measuring.tells_health;
        self.metrics = Some(metrics);
        metrics::register_collectors(registry, self.inventory.clone(), self.stats.clone());
        Ok(self)
    }

    fn count(&self, plugin: &PluginName, what: Operation, is_done: bool, since: Instant) {
        if let Some(metrics) = &self.metrics {
            metrics.operation(plugin, what, is_done, since.elapsed());
        }
    }

    /// A volume is there.
    fn note_mounted(&self, uid: &str, volume: &Volume, claimed: Option<&Claimed>, plugin: &PluginName) {
        let meter = Meter::new(&self.places, uid, volume, claimed);
        if let Some(group) = claimed.and_then(|claimed| claims::group(&claimed.volume)) {
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            groups.entry(uid.to_owned()).or_default().insert(group);
        }
        let since = self.inventory.mounted(uid, &volume.name, meter);
        if let (Some(metrics), Some(since)) = (&self.metrics, since) {
            metrics.mounted(plugin, since.elapsed());
        }
    }

    /// With another deadline for each call than [`DEADLINE`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> HostVolumes {
        self.deadline = deadline;
        self
    }

    fn looks(&self, uid: &str) -> bool {
        self.local.looks(uid)
            || self.csi.as_ref().is_some_and(|csi| csi.looks(uid) || self.stats.tells_health)
    }

    fn plugin(
        &self,
        source: &VolumeSource,
        claimed: Option<&Claimed>,
    ) -> Result<&Arc<dyn Plugin>, PluginError> {
        let mut plugins = self.plugins.iter();
        let Some(claimed) = claimed else {
            let found = plugins.find(|plugin| plugin.supports(source));
            return found.ok_or_else(|| PluginError::of_kind(kind(source)));
        };
        let source = claimed.volume.spec.source.one().ok_or(PluginError::NoSource)?;
        let found = plugins.find(|plugin| plugin.supports_persistent(source));
        found.ok_or_else(|| PluginError::of_kind(persistent_kind(source)))
    }

    /// Does work on a pod's volumes on a thread of its own, when nobody else works on them. None when it takes longer
    /// than the deadline.
    async fn alone<T: Send + 'static>(
        &self,
        uid: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Result<T, tokio::task::JoinError>> {
        let done = async {
            let lane = self.lanes.enter(uid).await;
            let work = move || {
                let _lane = lane;
                work()
            };
            tokio::task::spawn_blocking(work).await
        };
        timeout_at(Instant::now() + self.deadline, done).await.ok()
    }
}

#[async_trait]
impl Volumes for HostVolumes {
    async fn set_up(
        &self,
        pod: &Pod,
        node: &NodeContext,
    ) -> Result<BTreeMap<String, MountedVolume>, Vec<VolumeError>> {
        match self.each(pod, node, Why::SetUp).await {
            (done, errors) if errors.is_empty() => Ok(done),
            (_, errors) => Err(errors),
        }
    }

    async fn refresh(&self, pod: &Pod, node: &NodeContext) -> Result<(), Vec<VolumeError>> {
        let (_, mut errors) = self.each(pod, node, Why::Refresh).await;
        if self.stats.tells_health {
            // What is wrong with them is told as an event.
            drop(self.stats.of_pod(&pod.metadata.uid).await);
        }
        errors.retain(|error| !error.cause.is_of_kind());
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn refresh_after(&self, uid: &str) -> Option<Duration> {
        let spread = SPREAD.mul_f64(f64::from(spread_by(uid)) / f64::from(u16::MAX));
        self.looks(uid).then_some(LOOKS_AFTER + spread)
    }

    fn groups(&self, uid: &str) -> Vec<i64> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get(uid).into_iter().flatten().copied().collect()
    }

    fn take_events(&self, uid: &str) -> Vec<VolumeEvent> {
        self.events.take(uid)
    }

    async fn wait_for_events(&self, uid: &str) {
        self.events.come(uid).await;
    }

    async fn sub_path(&self, wanted: &SubPath) -> Result<String, SubPathError> {
        let not_prepared = |source| SubPathError::NotPrepared {
            mount: wanted.volume.clone(),
            container: wanted.container.clone(),
            source,
        };
        let (places, owned) = (self.places.clone(), wanted.clone());
        let work = move || sub_path::prepare(&places, &owned, Method::Kernel);
        match self.alone(&wanted.uid, work).await {
            Some(Ok(prepared)) => prepared.map(|path| path.display().to_string()),
            Some(Err(_)) => Err(not_prepared(SubPathCause::Panicked)),
            None => Err(not_prepared(SubPathCause::TimedOut(self.deadline))),
        }
    }

    async fn read(&self, file: &VolumeFile, limit: usize) -> io::Result<Vec<u8>> {
        let owned = file.clone();
        match self.alone(&file.uid, move || volume_file::read(&owned, limit, Method::Kernel)).await {
            Some(read) => read.map_err(io::Error::other)?,
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn tear_down(&self, uid: &str) -> Result<(), TearDownError> {
        let began = Instant::now();
        let done = self.take_away(uid).await;
        let kinds = match &done {
            Ok(()) => self.inventory.remove(uid),
            Err(_) => self.inventory.kinds(uid),
        };
        for plugin in kinds {
            self.count(&plugin, Operation::Unmount, done.is_ok(), began);
        }
        done
    }

    async fn stats(&self, uid: &str) -> Vec<VolumeStats> {
        self.stats.of_pod(uid).await
    }
}

impl HostVolumes {
    async fn take_away(&self, uid: &str) -> Result<(), TearDownError> {
        let (places, owned) = (self.places.clone(), uid.to_owned());
        drop(self.events.take(uid));
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        let mut taken_back = Ok(());
        if let Some(csi) = &self.csi {
            // What is mounted on parts of a volume would keep its driver from taking it back.
            let (places, owned) = (places.clone(), owned.clone());
            let unmount = move || tear_down::unmount_sub_paths(&places, &owned);
            match self.alone(uid, unmount).await {
                Some(Ok(done)) => done?,
                Some(Err(_)) => return Err(TearDownError::Panicked),
                None => return Err(TearDownError::TimedOut(self.deadline)),
            }
            taken_back = csi.tear_down(uid).await;
        }
        let part = if taken_back.is_ok() { Part::All } else { Part::AllButCsi };
        let work = move || {
            tear_down::tear_down(&places, &owned, part, Method::Kernel).map(|()| local::mounted(&places))
        };
        let mounted = match self.alone(uid, work).await {
            Some(Ok(done)) => taken_back.and(done)?,
            Some(Err(_)) => return Err(TearDownError::Panicked),
            None => return Err(TearDownError::TimedOut(self.deadline)),
        };
        self.local.forget(uid);
        self.local.unmount_unused(&self.places, mounted);
        Ok(())
    }
}

/// A number that differs from pod to pod, and is always the same for one.
fn spread_by(uid: &str) -> u16 {
    uid.bytes().fold(0, |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

#[cfg(test)]
mod tests;
