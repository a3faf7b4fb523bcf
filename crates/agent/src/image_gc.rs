//! Images that nobody uses: one owner of what is known of their use, who removes them when their disk fills, when they are
//! too old, or when a node that runs short of disk lets go of all it can.
//!
//! What is known is written down when another image is there or in use than before, and once an hour: a newer agent takes the
//! time since then for time in which everything was used, and so removes nothing too early. Nor does it remove anything
//! before it has watched for as long as an image has to be there: which pods are to run it hears meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::VolumeSource;
use crablet_api::document::Limits;
use crablet_api::{GoDuration, Text};
use crablet_core::image_gc::{NoCapacity, Policy, Records, Unused, image_of};
use crablet_core::labels::POD_UID;
use crablet_core::translate::with_default_tag;
use crablet_credentials::PullRecords;
use crablet_cri::{Error, Runtime};
use crablet_cri_api::{ContainerFilter, Image, SandboxFilter, v1};
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use crablet_host::clock::Clock;
use crablet_host::signals::{Places, Signals};
use crablet_logging::ErrorChain;
use jiff::SignedDuration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use crate::metrics::ImageGcMetrics;
use crate::recorder::{EventType, Involved, Recorder, reason};
use crate::statuses::Statuses;

/// How often it is looked whether images have to go, as upstream.
const BETWEEN_LOOKS: Duration = Duration::from_secs(300);
/// How often what is known is written down though only times have changed.
const BETWEEN_WRITES: Duration = Duration::from_secs(3600);
/// What the record is called where it is kept.
const RECORD: &str = "images";

/// What an owner works with.
pub(crate) struct Parts {
    pub(crate) node_name: Text,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Clock,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) statuses: Statuses,
    pub(crate) recorder: Recorder,
    /// Where what is known is kept.
    pub(crate) kept: Arc<dyn Checkpoints>,
    /// Who pulled which image, where that is recorded.
    pub(crate) pulls: Option<Arc<PullRecords>>,
    pub(crate) metrics: ImageGcMetrics,
}

/// The owner.
pub(crate) struct ImageGc {
    parts: Parts,
    policy: Policy,
    began: Instant,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Nothing before it was read what the agent before knew.
    records: Option<Records>,
    /// How far the wall clock was ahead of the time that passed since the start, at the last look.
    ahead: Option<SignedDuration>,
    written: Option<(Instant, Records)>,
    /// The sandbox that was asked for its image last.
    asked: String,
}

/// Why images could not be removed, or not enough of them. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageGcError {
    #[error(transparent)]
    Runtime(#[from] Error),
    #[error(transparent)]
    NoCapacity(#[from] NoCapacity),
    #[error("failed to get imageFs stats: imageFs information is unavailable")]
    NoRoom,
    #[error("{0}")]
    NotEnough(String),
    #[error("wanted to free images older than {max_age}, encountered errors in image deletion: {source}")]
    Old { max_age: GoDuration, source: Error },
    #[error(
        "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {source}"
    )]
    Space { wanted: u64, freed: u64, source: Error },
}

/// Why an image goes, in the words of the metric.
#[derive(Debug, Clone, Copy)]
enum Why {
    Age,
    Space,
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Why::Age => "age",
            Why::Space => "space",
        }
    }
}

/// What a look found.
struct Look {
    /// How many images there are.
    images: usize,
    unused: Vec<Unused>,
}

impl ImageGc {
    pub(crate) fn new(parts: Parts, policy: Policy) -> ImageGc {
        ImageGc { parts, policy, began: Instant::now(), known: Mutex::default() }
    }

    /// Whether it is known by now who uses what: an image is of age when an agent has seen it unused for long enough. Who
    /// begins has not heard yet which pods are to run.
    fn has_watched(&self) -> bool {
        SignedDuration::try_from(self.began.elapsed()).is_ok_and(|watched| watched >= self.policy.min_age)
    }

    /// Removes what has to go, now and then, until it is dropped.
    pub(crate) async fn run(self: Arc<ImageGc>) {
        let mut has_failed = false;
        loop {
            match self.collect().await {
                Ok(()) => has_failed = false,
                Err(error) if has_failed => {
                    error!(err = %ErrorChain(&error), "Image garbage collection failed multiple times in a row");
                    self.tell(reason::IMAGE_GC_FAILED, error.to_string());
                }
                Err(error) => {
                    warn!(err = %ErrorChain(&error), "Image garbage collection failed once");
                    has_failed = true;
                }
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Removes all images that nobody uses and that are of age: the node needs their room for pods.
    pub(crate) async fn delete_unused(&self) {
        let mut known = self.known.lock().await;
        let freed = async {
            let look = self.look(&mut known).await?;
            let freed = self.free(&mut known, look.unused, u64::MAX).await?;
            self.forget_pulls().await;
            Ok::<_, ImageGcError>(freed)
        };
        match freed.await {
            Ok(bytes) => info!(bytes, "Removed the images that nobody uses"),
            Err(error) => warn!(err = %ErrorChain(&error), "Cannot remove all images that nobody uses"),
        }
        self.write(&mut known).await;
    }

    async fn collect(&self) -> Result<(), ImageGcError> {
        let mut known = self.known.lock().await;
        let collected = self.collect_by_policy(&mut known).await;
        self.write(&mut known).await;
        collected
    }

    async fn collect_by_policy(&self, known: &mut Known) -> Result<(), ImageGcError> {
        let look = self.look(known).await?;
        if self.policy.is_off() || !self.has_watched() {
            // It is known what was used when, should the node run short.
            return Ok(());
        }
        let unused = self.free_old(known, look.unused).await?;
        let places = self.places().await?;
        let room = self.parts.signals.read_disks(&places).await.image_fs.ok_or(ImageGcError::NoRoom)?;
        let need = self.policy.need(room.capacity, room.available).inspect_err(|error| {
            self.tell(reason::INVALID_DISK_CAPACITY, error.to_string());
        })?;
        let Some(need) = need else { return Ok(()) };
        info!(
            usage = need.usage_percent,
            bytes = need.bytes,
            images = look.images,
            "The disk of images is fuller than it may be; removing those that nobody uses"
        );
        let freed = self.free(known, unused, need.bytes).await?;
        self.forget_pulls().await;
        if freed < need.bytes {
            let message = need.not_met(freed);
            self.tell(reason::FREE_DISK_SPACE_FAILED, message.clone());
            return Err(ImageGcError::NotEnough(message));
        }
        Ok(())
    }

    /// Takes in which images there are, and which of them somebody uses.
    async fn look(&self, known: &mut Known) -> Result<Look, ImageGcError> {
        let runtime = &self.parts.runtime;
        let now = self.parts.clock.now();
        if known.records.is_none() {
            known.records = Some(self.recall().await);
        }
        let ahead = now.duration_since(self.parts.clock.steady());
        let was_ahead = known.ahead.replace(ahead).unwrap_or(ahead);
        if let Some(records) = &mut known.records {
            records.clock_was_set(ahead.saturating_sub(was_ahead));
        }
        let images = runtime.list_images().await?;
        let wanted = self.image_volumes();
        let mut used = BTreeSet::new();
        for reference in wanted.values().flatten() {
            let Ok(image) = with_default_tag(reference) else { continue };
            let image = v1::ImageSpec { image: image.into_owned(), ..v1::ImageSpec::default() };
            // A name that the runtime makes nothing of keeps no image, and holds up nobody else's.
            match runtime.image_status(&image).await {
                Ok(found) => used.extend(found.map(|image| image.id)),
                Err(error) => {
                    debug!(reference, err = %ErrorChain(&error), "Cannot tell which image a volume has")
                }
            }
        }
        let sandbox_images = self.sandbox_images(&mut known.asked).await?;
        // Last: what an image was used for since they were listed keeps it, and what came since is no candidate.
        for container in runtime.list_containers(ContainerFilter::default()).await? {
            used.insert(image_of(&container).to_owned());
            let pod = container.labels.get(POD_UID).map_or("", String::as_str);
            if wanted.contains_key(pod) {
                used.extend(self.mounted(&container.id, &images).await?);
            }
        }
        let records = known.records.get_or_insert_default();
        if let Some(image) = sandbox_images {
            records.set_sandbox_images([image]);
        }
        records.look(&images, &used, now);
        Ok(Look { unused: records.unused(&images), images: images.len() })
    }

    /// The images that pods have as volumes, by the UIDs of those pods. One that has terminated needs none any more: what is
    /// mounted in containers that are left of it is all that it keeps.
    fn image_volumes(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut references: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for shown in self.parts.statuses.list() {
            for volume in &shown.pod.spec.volumes {
                if let Some(VolumeSource::Image(image)) = volume.source.one() {
                    let of_pod = references.entry(shown.pod.metadata.uid.to_string()).or_default();
                    if !shown.terminated {
                        of_pod.insert(image.reference.to_string());
                    }
                }
            }
        }
        references
    }

    /// The images that are mounted in a container: those that it was made with, whatever their names stand for by now.
    async fn mounted(&self, container: &str, images: &[Image]) -> Result<Vec<String>, Error> {
        let status = match self.parts.runtime.container_status(container).await {
            Ok(status) => status,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mounted = status.mounts.iter().filter_map(|mount| mount.image.as_ref());
        let named: BTreeSet<&str> = mounted.map(|image| &*image.image).collect();
        let is_mounted = |image: &&Image| {
            named.contains(&*image.id) || image.repo_digests.iter().any(|digest| named.contains(&**digest))
        };
        Ok(images.iter().filter(is_mounted).map(|image| image.id.clone()).collect())
    }

    /// What the newest sandbox was made from, which is asked once: not every runtime keeps that image by itself.
    async fn sandbox_images(&self, asked: &mut String) -> Result<Option<String>, Error> {
        let sandboxes = self.parts.runtime.list_sandboxes(SandboxFilter::default()).await?;
        let Some(newest) = sandboxes.into_iter().max_by_key(|sandbox| sandbox.created_at) else {
            return Ok(None);
        };
        if newest.id == *asked {
            return Ok(None);
        }
        match self.parts.runtime.sandbox_image(&newest.id).await {
            Ok(image) => {
                *asked = newest.id;
                Ok(image)
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn places(&self) -> Result<Places, ImageGcError> {
        let told = self.parts.runtime.image_file_systems().await?;
        let first = told.image_filesystems.into_iter().next().and_then(|usage| usage.fs_id);
        Ok(Places { images: first.map(|id| PathBuf::from(id.mountpoint)), containers: None })
    }

    /// Removes those that nobody used for too long, and gives the others.
    async fn free_old(&self, known: &mut Known, unused: Vec<Unused>) -> Result<Vec<Unused>, ImageGcError> {
        let Some(max_age) = self.policy.max_age else { return Ok(unused) };
        let now = self.parts.clock.now();
        let (mut left, mut failed) = (Vec::new(), None);
        for image in unused {
            if !image.is_too_old(&self.policy, now) {
                left.push(image);
            } else if let Err(error) = self.remove(known, &image, Why::Age).await {
                failed = failed.or(Some(error));
                left.push(image);
            }
        }
        match failed {
            None => Ok(left),
            Some(source) => {
                let nanoseconds = i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX);
                Err(ImageGcError::Old { max_age: GoDuration::from_nanos(nanoseconds), source })
            }
        }
    }

    /// Removes images until so much is freed, and says how much was.
    async fn free(&self, known: &mut Known, unused: Vec<Unused>, wanted: u64) -> Result<u64, ImageGcError> {
        let now = self.parts.clock.now();
        let is_of_age = |image: &&Unused| self.has_watched() && image.is_of_age(&self.policy, now);
        let (mut freed, mut failed) = (0_u64, None);
        for image in unused.iter().filter(is_of_age) {
            if freed >= wanted {
                break;
            }
            match self.remove(known, image, Why::Space).await {
                Ok(()) => freed = freed.saturating_add(image.size),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(freed),
            Some(source) => Err(ImageGcError::Space { wanted, freed, source }),
        }
    }

    async fn remove(&self, known: &mut Known, image: &Unused, why: Why) -> Result<(), Error> {
        info!(
            image = image.id,
            size = image.size,
            reason = why.as_str(),
            "Removing an image that nobody uses"
        );
        self.parts.runtime.remove_image(&image.id).await?;
        known.records.get_or_insert_default().forget(&image.id);
        self.parts.metrics.collected(why.as_str());
        Ok(())
    }

    /// Who pulled an image that is gone is nobody's business any more.
    async fn forget_pulls(&self) {
        let Some(pulls) = &self.parts.pulls else { return };
        let began = self.parts.clock.now();
        match self.parts.runtime.list_images().await {
            Ok(images) => {
                let left = images.into_iter().map(|image| image.id).collect();
                pulls.prune(&left, began).await;
            }
            Err(error) => debug!(err = %ErrorChain(&error), "Cannot tell which images are left"),
        }
    }

    /// What the agent before knew.
    async fn recall(&self) -> Records {
        let kept = match self.parts.kept.load_all().await {
            Ok(loaded) => {
                loaded.checkpoints.get(RECORD).map(|bytes| crablet_api::from_json(bytes, Limits::API))
            }
            Err(error) => {
                warn!(err = %ErrorChain(&error), "Cannot read when images were used; they count as new");
                None
            }
        };
        let mut records: Records = match kept {
            Some(Ok(records)) => records,
            Some(Err(error)) => {
                warn!(%error, "The record of when images were used cannot be understood; they count as new");
                Records::default()
            }
            None => Records::default(),
        };
        records.resume(self.parts.clock.now());
        records
    }

    async fn write(&self, known: &mut Known) {
        let Some(records) = &known.records else { return };
        let is_due = known.written.as_ref().is_none_or(|(at, written)| {
            at.elapsed() >= BETWEEN_WRITES || !written.tells_the_same_as(records)
        });
        if !is_due {
            return;
        }
        let written: Result<(), CheckpointError> =
            self.parts.kept.save(RECORD, &crablet_api::to_json(records)).await;
        match written {
            Ok(()) => known.written = Some((Instant::now(), records.clone())),
            Err(error) => {
                warn!(err = %ErrorChain(&error), "Cannot write down when images were used; trying again");
            }
        }
    }

    fn tell(&self, reason: &str, message: String) {
        let node = Involved::node(self.parts.node_name.clone());
        self.parts.recorder.event(&node, EventType::Warning, reason, message);
    }
}
