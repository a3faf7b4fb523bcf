//! Volumes of CSI drivers: staged once on the node, published to each pod, and back.
//!
//! ```text
//!   worker ──set_up──► Csi ──stage, publish──────► driver
//!   worker ──tear_down─► │ ──unpublish───────────► │
//!                        └──no pod uses it──► run ──unstage─┘
//! ```
//!
//! What may be staged and published is in upstream's `vol_data.json`, which is written before the driver is asked and
//! goes after it has answered: whatever an agent dies at, the next one asks the driver to take it back. In memory is who
//! uses what is staged, which is read from the pods' directories at the start, and what drivers said is done: a mount
//! alone does not tell that nothing is missing behind it, so that a new agent asks again where it needs to know.
//!
//! A call that may have had an effect, since its answer was lost or says so, leaves all of this as it is. Staging and
//! unstaging one volume is one thing at a time; volumes and drivers do not wait for each other. What a driver was asked
//! for is seen through to its end, whoever gives up waiting for it: until then its volume, and its pod, are not touched.
//!
//! [`wanted`]: what a pod wants of a driver. [`labels`]: with which SELinux label. [`files`]: volumes with files.
//! [`block`]: bare devices. [`expand`]: larger volumes. [`uses`]: who uses what. [`left`]: what nobody waits for any
//! more. [`unstage`]: what no pod uses any more; [`elsewhere`]: whether it is mounted elsewhere. [`allocatable`]: how
//! many volumes the node can have. [`vol_data`]: what is written down.

mod allocatable;
mod block;
mod elsewhere;
mod expand;
mod files;
mod labels;
mod left;
mod measured;
mod staged;
mod unstage;
mod uses;
mod vol_data;
mod wanted;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use crablet_api::core::{PersistentVolumeAccessMode, PersistentVolumeSource, VolumeSource};
use crablet_api::storage::{CsiDriver, VolumeLifecycleMode};
use crablet_core::translate::MountedVolume;
use crablet_csi::{
    Driver, Node, NodeCapabilities, NodeInfo, Plugin as Announced, PluginHandler, VolumeStats,
};
use crablet_host::lanes::{Lane, Lanes};
use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::attachments::Attachments;
use crate::claims;
use crate::contents::Contents;
use crate::device_map::during;
use crate::error::{PluginError, TearDownError, failed};
use crate::expand::{Moment, Sizes};
use crate::inventory::PluginName;
use crate::machine::{Host, Machine, work_on};
use crate::metrics::{Metrics, Operation};
use crate::places::Places;
use crate::plugin::{Plugin, Request};
use elsewhere::Look;
use left::Left;
use measured::Measured;
use staged::Staged;
use uses::{InUse, Uses};
use vol_data::VolumeData;
use wanted::{Wanted, pod_info};

/// The CSI drivers of a node and their volumes. Clones are the same.
#[derive(Clone)]
pub struct Csi(Arc<Inner>);

struct Inner {
    machine: Arc<dyn Machine>,
    places: Places,
    node: String,
    contents: Arc<dyn Contents>,
    attachments: Attachments,
    drivers: Mutex<BTreeMap<String, Arc<Registered>>>,
    /// What they say of the node.
    told: watch::Sender<BTreeMap<String, NodeInfo>>,
    /// One thing at a time for each volume that is staged.
    staging: Lanes,
    uses: Uses,
    /// What is staged, by what its driver said, and whether something was mounted at its place then: some drivers do
    /// without.
    staged: Mutex<BTreeMap<Staged, bool>>,
    sizes: Sizes,
    metrics: Arc<OnceLock<Arc<Metrics>>>,
    /// Whether volumes of any access mode are mounted with a label: the gate `SELinuxMount`.
    labels_all: OnceLock<()>,
    /// The next look at the mount table, if somebody waits for one.
    look: Mutex<Option<Look>>,
    left: Left,
    news: Notify,
}

/// A driver that made itself known.
struct Registered {
    node: Arc<dyn Node>,
    /// What it can do does not change while it is registered.
    capabilities: OnceCell<NodeCapabilities>,
}

/// What could not be taken back, if that is known, and why.
type NotTakenBack = (Option<Staged>, PluginError);

/// What comes before a driver is asked, and may be given up while it is waited for.
struct Ready {
    of_cluster: Option<Arc<CsiDriver>>,
    /// What was said when the volume was attached.
    context: BTreeMap<String, String>,
    /// The right to stage the volume, if it is one that outlives the pod.
    lane: Option<Lane>,
}

impl Csi {
    /// Those of a node with this name, whose root directory is there. Who uses what is read from there.
    pub fn open(root: &Path, node: &str, contents: Arc<dyn Contents>, attachments: Attachments) -> Csi {
        Csi::open_on(Arc::new(Host), root, node, contents, attachments)
    }

    /// The same on another machine than this one.
    pub fn open_on(
        machine: Arc<dyn Machine>,
        root: &Path,
        node: &str,
        contents: Arc<dyn Contents>,
        attachments: Attachments,
    ) -> Csi {
        let places = Places::new(root);
        let (uses, bound) = Uses::found(&*machine, &places);
        // Whether it had to be attached is not known yet, and nobody may detach what is still mounted.
        uses.all().iter().for_each(|staged| attachments.uses(&staged.unique_name()));
        Csi(Arc::new(Inner {
            machine,
            places,
            node: node.to_owned(),
            contents,
            attachments,
            drivers: Mutex::default(),
            told: watch::Sender::default(),
            staging: Lanes::default(),
            uses,
            staged: Mutex::new(bound.into_iter().map(|staged| (staged, false)).collect()),
            sizes: Sizes::default(),
            metrics: Arc::default(),
            labels_all: OnceLock::new(),
            look: Mutex::default(),
            left: Left::default(),
            news: Notify::new(),
        }))
    }

    /// Has what is done counted.
    pub(crate) fn count_in(&self, metrics: &Arc<Metrics>) {
        // Once is enough: it is always the same.
        let _ = self.0.metrics.set(Arc::clone(metrics));
    }

    fn count(&self, driver: &str, what: Operation, is_done: bool, since: Instant) {
        if let Some(metrics) = self.0.metrics.get() {
            metrics.operation(&PluginName::of_driver(driver), what, is_done, since.elapsed());
        }
    }

    /// What a driver says of a volume that a pod has, and whether it can say how the volume is.
    pub(crate) async fn stats(
        &self,
        driver: &str,
        handle: &str,
        path: &Path,
    ) -> Result<(VolumeStats, bool), PluginError> {
        let registered = self.driver(driver)?;
        let capabilities = registered.capabilities().await?;
        if !capabilities.get_volume_stats {
            return Err(PluginError::NotSupported { driver: driver.to_owned(), what: "GET_VOLUME_STATS" });
        }
        let stats = registered.node.stats(handle, &text(path)).await.map_err(PluginError::Csi)?;
        Ok((stats, capabilities.volume_condition))
    }

    /// What the drivers that are there say of the node, by their names.
    pub fn drivers(&self) -> watch::Receiver<BTreeMap<String, NodeInfo>> {
        self.0.told.subscribe()
    }

    /// Which of their volumes are in use that others attach.
    pub fn attachments(&self) -> Attachments {
        self.0.attachments.clone()
    }

    /// Takes a driver in, or another one of its name.
    pub async fn register_node(&self, name: &str, node: Arc<dyn Node>) -> Result<(), String> {
        let metrics = Arc::clone(&self.0.metrics);
        let node: Arc<dyn Node> = Arc::new(Measured { driver: name.to_owned(), node, metrics });
        let info = node.info().await.map_err(|error| error.to_string())?;
        // The API server refuses it, and all that is written with it.
        if info.node_id.is_empty() {
            return Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned());
        }
        if let Some(why) = self.0.attachments.collision(&info) {
            return Err(format!("error updating Node object with CSI driver node info: {why}"));
        }
        info!(driver = name, node_id = info.node_id, "A CSI driver is there");
        let registered = Registered { node, capabilities: OnceCell::new() };
        lock(&self.0.drivers).insert(name.to_owned(), Arc::new(registered));
        // It may be another version, which wants or can do more for pods that run. They look when they are told of it.
        self.0.uses.may_republish(name);
        self.0.told.send_modify(|told| drop(told.insert(name.to_owned(), info)));
        Ok(())
    }

    fn driver(&self, name: &str) -> Result<Arc<Registered>, PluginError> {
        let found = lock(&self.0.drivers).get(name).cloned();
        found.ok_or_else(|| PluginError::NoDriver(name.to_owned()))
    }

    /// A pod does not use what is staged after all. Nobody does then, if nobody else does.
    fn use_no_more(&self, staged: &Staged, uid: &str) {
        if self.0.uses.remove(staged, uid) {
            self.0.news.notify_one();
        }
    }

    /// Whether a pod has a volume that is to be looked at now and then: its driver wants to publish it again, or can
    /// make it larger.
    pub(crate) fn looks(&self, uid: &str) -> bool {
        self.0.uses.republishes(uid) || self.0.uses.has_expandable(uid)
    }

    async fn of_cluster(&self, driver: &str) -> Result<Option<Arc<CsiDriver>>, PluginError> {
        let found = self.0.contents.csi_driver(driver).await;
        found.map_err(|why| PluginError::CsiDriverObject(claims::words(&why, "csidrivers", driver)))
    }

    /// Asks drivers to take back what they published to a pod. Nothing of the pod runs, and nothing is mounted on it.
    pub(crate) async fn tear_down(&self, uid: &str) -> Result<(), TearDownError> {
        self.0.uses.remove_published(uid);
        let (files, devices) = tokio::join!(self.tear_down_files(uid), self.tear_down_devices(uid));
        let failed: Vec<_> = files.into_iter().chain(devices).collect();
        // Be it that something was staged for it and never published, the pod uses nothing else any more. Nothing is
        // known of what cannot be read.
        if failed.iter().all(|(staged, _)| staged.is_some()) {
            let kept = failed.iter().filter_map(|(staged, _)| staged.as_ref()).collect();
            for staged in self.0.uses.remove_all(uid, &kept) {
                self.0.sizes.forget(&staged.key());
                self.0.news.notify_one();
            }
        }
        match failed.into_iter().next() {
            Some((_, error)) => Err(TearDownError::Csi(error.to_string())),
            None => Ok(()),
        }
    }

    /// What could not be taken back is told of.
    async fn tear_down_files(&self, uid: &str) -> Vec<NotTakenBack> {
        let (places, of_pod) = (self.0.places.clone(), uid.to_owned());
        let read = work_on(&self.0.machine, move |machine| Ok(vol_data::of_pod(machine, &places, &of_pod)));
        let published = match read.await {
            Ok(published) => published,
            Err(error) => return vec![(None, error)],
        };
        // One driver that is away keeps no other from taking its own back.
        let taken = join_all(published.into_iter().map(async |volume| {
            // Nothing of a driver's is unmounted by anybody else: what cannot be read is not passed over.
            let (directory, data) = volume.map_err(|error| (None, error))?;
            let target = directory.join("mount");
            let taken = self.take_back(&data, &target).await;
            taken
                .map(|()| (directory, target, Staged::of(&data)))
                .map_err(|error| (Some(Staged::of(&data)), error))
        }));
        let (mut failed, mut to_forget) = (Vec::new(), Vec::new());
        for taken in taken.await {
            match taken {
                Ok(volume) => to_forget.push(volume),
                Err(error) => failed.push(error),
            }
        }
        let forgotten = work_on(&self.0.machine, move |machine| {
            let forgotten = to_forget.into_iter().filter_map(|(directory, target, staged)| {
                let error = forget(machine, &directory, &target).err()?;
                Some((Some(staged), error))
            });
            Ok(forgotten.collect::<Vec<_>>())
        });
        failed.extend(forgotten.await.unwrap_or_else(|error| vec![(None, error)]));
        failed
    }

    /// Asks a driver to take back what it published.
    async fn take_back(&self, data: &VolumeData, target: &Path) -> Result<(), PluginError> {
        let driver = self.driver(&data.driver_name)?;
        driver.node.unpublish(&data.volume_handle, &text(target)).await.map_err(PluginError::Csi)
    }

    /// Waits for what comes before a driver is asked.
    async fn ready(&self, request: &Request, wanted: &mut Wanted) -> Result<Ready, PluginError> {
        let ready = async {
            let of_cluster = self.of_cluster(&wanted.driver).await?;
            if wanted.mode != VolumeLifecycleMode::Persistent {
                return Ok(Ready { of_cluster, context: BTreeMap::new(), lane: None });
            }
            let staged = block::staged(request, wanted);
            let used = self.0.uses.add(&staged, request.uid(), is_for_one_pod(request));
            used.map_err(|InUse| PluginError::InUse)?;
            let context = self.publish_context(wanted, of_cluster.as_deref()).await?;
            let lane = Some(self.0.staging.enter(&staged.key()).await);
            wanted.label = self.label(request, &staged, of_cluster.as_deref()).await?;
            Ok(Ready { of_cluster, context, lane })
        };
        match block::is_wanted(request) {
            true => ready.await.map_err(during("SetUpDevice")),
            false => ready.await,
        }
    }

    /// Makes a volume, or what is missing of it.
    async fn make(
        &self,
        request: &Request,
        wanted: &Wanted,
        ready: Ready,
    ) -> Result<MountedVolume, PluginError> {
        if block::is_wanted(request) {
            let mounted = self.set_up_device(request, wanted, ready).await?;
            self.expand_if_smaller(request, wanted, Moment::Map).await?;
            return Ok(mounted);
        }
        let target = self.set_up_files(request, wanted, ready).await?;
        self.expand_if_smaller(request, wanted, Moment::Mount).await?;
        // Whatever is mounted with a label has it.
        let relabel = self.0.machine.has_selinux() && wanted.label.is_none() && {
            let place = target.clone();
            let labels = move |machine: &dyn Machine| machine.has_labels(&place);
            self.work_for(request, move |machine| labels(machine).map_err(PluginError::MountTable)).await?
        };
        Ok(MountedVolume::Files { host_path: text(&target), read_only: wanted.read_only, relabel })
    }

    /// Does work for a pod that may wait. Until it ends nothing else is done to the pod's volumes.
    async fn work_for<T: Send + 'static>(
        &self,
        request: &Request,
        work: impl FnOnce(&dyn Machine) -> Result<T, PluginError> + Send + 'static,
    ) -> Result<T, PluginError> {
        let held = (request.clone(), request.thread().await);
        let work = move |machine: &dyn Machine| {
            let _held = held;
            work(machine)
        };
        work_on(&self.0.machine, work).await
    }

    async fn is_mounted(&self, request: &Request, place: &Path) -> Result<bool, PluginError> {
        let place = place.to_owned();
        self.work_for(request, move |machine| is_mount_point(machine, &place)).await
    }

    /// Forgets a volume that a driver refused for good, where nothing came of it. The driver's error is the one to tell.
    async fn forget_refused(&self, request: &Request, directory: PathBuf, place: PathBuf) {
        let forgotten = self.work_for(request, move |machine| match is_mount_point(machine, &place)? {
            true => Ok(()),
            false => forget(machine, &directory, &place),
        });
        if let Err(error) = forgotten.await {
            warn!(%error, "Cannot forget a volume that its driver refused");
        }
    }
}

#[async_trait]
impl PluginHandler for Csi {
    async fn register(&self, plugin: Announced) -> Result<(), String> {
        self.register_node(&plugin.name, Arc::new(Driver::new(&plugin.endpoint))).await
    }

    async fn deregister(&self, name: &str) {
        info!(driver = name, "A CSI driver is gone");
        lock(&self.0.drivers).remove(name);
        self.0.told.send_modify(|told| drop(told.remove(name)));
    }
}

#[async_trait]
impl Plugin for Csi {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Csi(_))
    }

    fn supports_persistent(&self, source: &PersistentVolumeSource) -> bool {
        matches!(source, PersistentVolumeSource::Csi(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let mut wanted = Wanted::of(request)?;
        let ready = self.ready(request, &mut wanted).await?;
        let (csi, request) = (self.clone(), request.clone());
        self.see_through(async move { csi.make(&request, &wanted, ready).await }).await
    }

    /// What is there is not looked at, but where a driver wants to publish it again.
    async fn refresh(&self, request: &Request) -> Result<(), PluginError> {
        let mut wanted = Wanted::of(request)?;
        let mut again = None;
        if self.0.uses.republishes(request.uid()) {
            let of_cluster = self.of_cluster(&wanted.driver).await?;
            let republishes = requires_republish(of_cluster.as_deref());
            let name = request.spec_name();
            self.0.uses.note_republished(request.uid(), name, &wanted.driver, republishes);
            if republishes {
                again = Some(self.ready(request, &mut wanted).await?);
            }
        }
        let (csi, request) = (self.clone(), request.clone());
        let refreshed = async move {
            match again {
                Some(ready) if block::is_wanted(&request) => {
                    csi.set_up_device(&request, &wanted, ready).await.map(drop)?;
                }
                Some(ready) => csi.set_up_files(&request, &wanted, ready).await.map(drop)?,
                None => {}
            }
            csi.expand_if_smaller(&request, &wanted, Moment::InUse).await
        };
        self.see_through(refreshed).await
    }
}

impl Registered {
    async fn capabilities(&self) -> Result<NodeCapabilities, PluginError> {
        self.capabilities
            .get_or_try_init(|| self.node.capabilities())
            .await
            .copied()
            .map_err(PluginError::Csi)
    }
}

/// Whether no two pods may have a volume. Where it has several access modes nobody knows by which the pod means to.
fn is_for_one_pod(request: &Request) -> bool {
    let modes = request.claimed.as_ref().map(|claimed| &*claimed.volume.spec.access_modes);
    modes == Some(&[PersistentVolumeAccessMode::ReadWriteOncePod])
}

fn requires_republish(of_cluster: Option<&CsiDriver>) -> bool {
    of_cluster.is_some_and(|driver| driver.spec.requires_republish == Some(true))
}

/// Whether a driver's volumes have to be attached: those of one that nobody knows more of do.
fn needs_attachment(of_cluster: Option<&CsiDriver>) -> bool {
    of_cluster.is_none_or(|driver| driver.spec.attach_required != Some(false))
}

/// Whether something is mounted at a place. Nothing is where no directory is.
fn is_mount_point(machine: &dyn Machine, place: &Path) -> Result<bool, PluginError> {
    match machine.is_mount_point(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map_err(PluginError::MountTable),
    }
}

/// Forgets a volume that the driver has taken back: a place to mount something on, and what was written of it.
fn forget(machine: &dyn Machine, directory: &Path, place: &Path) -> Result<(), PluginError> {
    remove_place(machine, place)?;
    vol_data::remove(machine, directory)?;
    remove_place(machine, directory)
}

/// Removes an empty directory that nothing is mounted on.
fn remove_place(machine: &dyn Machine, place: &Path) -> Result<(), PluginError> {
    match machine.remove_directory(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", place)(error).into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What a volume is called that a pod has of a driver by itself.
pub(crate) fn ephemeral_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", hash(&[uid, volume]))
}

pub(crate) fn hash(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
