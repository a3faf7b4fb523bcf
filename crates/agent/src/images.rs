//! The owner of the node's images: sees to it that an image is there before a container is made from it.
//!
//! ```text
//!   worker ──ensure──► is it there? ──────────────────────────────► its reference
//!                          │ no                                          ▲
//!                          ▼                                             │
//!                      did the last pull fail just now? ──► back-off     │
//!                          │ no                                          │
//!                          ▼                                             │
//!                      flights: one pull per image, for all who wait ────┘
//!                          a slot, a turn, the runtime's PullImage
//! ```
//!
//! Whether an image is there is asked of the runtime without waiting for any pull, so that a large image never holds
//! up a container whose image is present. Events and messages are upstream's, to the letter.
//!
//! What differs from upstream: many pods that wait for one image share one pull; and when pulls come faster than
//! `registryPullQPS` allows they wait their turn, where upstream fails them with "pull QPS exceeded" and backs off.
//! A pull secret that cannot be read is an `ErrImagePull` that names the secret, where upstream's reason is whatever
//! Go's decoder said.

mod access;
#[cfg(test)]
mod access_tests;
mod backoff;
mod error;
mod flight;
mod service;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crablet_api::GoDuration;
use crablet_api::core::{PullPolicy, Secret};
use crablet_core::backoff::PullError;
use crablet_core::translate::{repository, with_default_tag};
use crablet_credentials::{BadSecret, PodCredentials, TrackedCredential};
use crablet_cri::Runtime;
use crablet_cri_api::{Image, v1};
use crablet_host::clock::Clock;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

pub use access::Access;
pub use error::{ImageError, ImageErrorReason, ImageUnknown, ServiceError};
pub use flight::Pull;

use crate::metrics::ImageMetrics;
use crate::recorder::bucket::Rate;
use crate::recorder::{EventType, Involved, InvolvedObject, Recorder, reason};
use backoff::{Backoff, Held};
use flight::{Flights, Pulled, Wanted};
use service::ImageService;

/// How pulls are bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// How many pulls run at once; as many as are wanted, if nothing is said.
    parallel: Option<usize>,
    rate: Option<Rate>,
}

impl Settings {
    /// By the configuration's `serializeImagePulls`, `maxParallelImagePulls`, `registryPullQPS` and `registryBurst`.
    pub fn new(serialize: bool, max_parallel: Option<i32>, pulls_per_second: i32, burst: i32) -> Settings {
        let max_parallel = max_parallel.and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0);
        let per_second = u32::try_from(pulls_per_second).ok().filter(|rate| *rate > 0);
        let rate = per_second.map(|per_second| Rate {
            burst: u32::try_from(burst).unwrap_or_default(),
            every: Duration::from_secs(1) / per_second,
        });
        Settings { parallel: if serialize { Some(1) } else { max_parallel }, rate }
    }
}

/// An image that a container needs.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The container, which the events are about. Its pod's UID is whose back-off it is.
    pub involved: &'a Involved,
    /// The image as the container's spec has it.
    pub image: &'a str,
    /// When to pull it. Without one it is always pulled; defaults are set long before.
    pub policy: Option<&'a PullPolicy>,
    /// The secrets that the pod names for pulls, as far as they are there.
    pub secrets: &'a [Arc<Secret>],
    /// The pod's service account, if it has one.
    pub service_account: &'a str,
    /// The runtime handler, where the runtime keeps images apart by it; empty otherwise.
    pub runtime_handler: &'a str,
    /// The pod's sandbox. Its annotations go with the image, too.
    pub sandbox: Option<&'a v1::PodSandboxConfig>,
}

/// An image that is there.
#[derive(Debug, Clone)]
pub struct Ensured {
    /// What to make a container from.
    pub reference: String,
    /// What the runtime says of the image, or why it would not say after the pull. Nobody knows then which
    /// user its containers would run as.
    pub image: Result<Image, ImageUnknown>,
    /// Whether it was pulled for this.
    pub was_pulled: bool,
}

/// The node's images. Clones are the same owner; pulls end when the last one is dropped.
#[derive(Clone)]
pub struct Images {
    service: Arc<dyn ImageService>,
    access: Access,
    clock: Clock,
    recorder: Recorder,
    flights: Flights,
    backoff: Arc<Backoff>,
    metrics: Option<ImageMetrics>,
}

impl Images {
    /// The images of a runtime.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        access: Access,
        recorder: Recorder,
        clock: Clock,
        settings: Settings,
    ) -> Images {
        Images::of(Arc::new(runtime), access, recorder, clock, settings)
    }

    fn of(
        service: Arc<dyn ImageService>,
        access: Access,
        recorder: Recorder,
        clock: Clock,
        settings: Settings,
    ) -> Images {
        let flights =
            Flights::new(service.clone(), access.clone(), clock.clone(), settings.parallel, settings.rate);
        Images { service, access, clock, recorder, flights, backoff: Arc::default(), metrics: None }
    }

    /// Has it counted what is asked for and pulled.
    pub(crate) fn counted_in(self, metrics: ImageMetrics) -> Images {
        Images { metrics: Some(metrics), ..self }
    }

    /// Counts an image that was asked for: whether it was there, and whether it has to be pulled, as far as that is known.
    fn count(&self, policy: Option<&PullPolicy>, is_present: Option<bool>, is_pulled: Option<bool>) {
        if let Some(metrics) = &self.metrics {
            let policy = match policy {
                Some(PullPolicy::Always) => "always",
                Some(PullPolicy::Never) => "never",
                Some(PullPolicy::IfNotPresent) => "ifnotpresent",
                Some(PullPolicy::Other(_)) | None => "",
            };
            metrics.ensured(policy, is_present, is_pulled);
        }
    }

    /// Finds out what became of the pulls that the agent before did not end. Until then their images are nobody's.
    pub(crate) async fn resume(self) {
        self.access.resume(&*self.service, &self.clock).await;
    }

    /// Sees to it that an image is there. Takes as long as the pull does. To stop waiting, drop the future: the pull
    /// goes on for those who still wait, and ends a little later if nobody does.
    ///
    /// On an error, upstream's caller records one more event about the container:
    /// [`reason::FAILED`](crate::recorder::reason::FAILED) with [`ImageError::event_message`].
    pub async fn ensure(&self, request: Request<'_>) -> Result<Ensured, ImageError> {
        let image = with_default_tag(request.image).map_err(|error| {
            let message = error.to_string();
            self.warn(request.involved, reason::INSPECT_FAILED, &message);
            ImageError::new(ImageErrorReason::InvalidImageName, message)
        })?;
        let spec = v1::ImageSpec {
            image: image.into_owned(),
            annotations: request.sandbox.map(|sandbox| sandbox.annotations.clone()).unwrap_or_default(),
            runtime_handler: request.runtime_handler.to_owned(),
            ..v1::ImageSpec::default()
        };
        // What has a tag has a repository.
        let repository = repository(request.image).unwrap_or_default();
        let pod = PodCredentials {
            secrets: request.secrets,
            service_account: request.service_account,
            pod: match &request.involved.object {
                InvolvedObject::Pod(pod) => Some(pod),
                InvolvedObject::Node(_) | InvolvedObject::Claim { .. } => None,
            },
        };
        let found = OnceCell::new();
        let credentials = async || {
            let credentials = found.get_or_try_init(|| self.access.credentials.of(&repository, pod)).await;
            credentials.cloned()
        };
        loop {
            let landed = self.flights.landed();
            let present = match self.present(&request, &spec).await {
                Ok(present) => present,
                Err(error) => {
                    let is_present = (error.reason == ImageErrorReason::ErrImageNeverPull).then_some(false);
                    self.count(request.policy, is_present, None);
                    return Err(error);
                }
            };
            let is_present = looks_first(request.policy).then_some(present.is_some());
            if let Some(image) = present {
                if self.may_use(&request, &spec, &image, credentials()).await {
                    self.count(request.policy, is_present, Some(false));
                    return Ok(Ensured { reference: image.id.clone(), image: Ok(image), was_pulled: false });
                }
                // That it is there is not for this pod to know.
                self.unless_never_pulled(&request)?;
            }
            if let Some(held) = self.backoff.held(request.involved.uid(), request.image) {
                let Held { event, message, until } = held;
                self.tell(request.involved, reason::BACK_OFF, event);
                return Err(ImageError::new(ImageErrorReason::ImagePullBackOff, message).retry_at(until));
            }
            let credentials = credentials().await;
            let wanted = Wanted {
                spec: spec.clone(),
                image: request.image.to_owned(),
                credentials: credentials.map_err(|error| self.failed(&request, &error))?,
                sandbox: request.sandbox.cloned(),
            };
            // A pull that ended since the runtime was asked may have been the one for this image.
            let unless_since = looks_first(request.policy).then_some(landed);
            let Some(seat) = self.flights.board(wanted, unless_since) else { continue };
            self.count(request.policy, is_present, Some(true));
            self.tell(request.involved, reason::PULLING, format!("Pulling image {:?}", request.image));
            let asked = Instant::now();
            return match seat.arrival().await.as_ref() {
                Ok(pulled) => Ok(self.pulled(&request, pulled, asked.elapsed())),
                Err(error) => Err(self.failed(&request, error)),
            };
        }
    }

    /// Forgets about the pulls that failed for a pod, which is gone.
    pub fn forget(&self, pod_uid: &str) {
        self.backoff.forget(pod_uid);
    }

    /// The pulls that run or wait for their turn, in the order in which they were wanted.
    pub fn pulls(&self) -> Vec<Pull> {
        self.flights.list()
    }

    /// Those of the pulls that are for one of these images, named as the specs of containers name them.
    pub fn pulls_of<'a>(&self, images: impl IntoIterator<Item = &'a str>) -> Vec<Pull> {
        let wanted: Vec<_> = images.into_iter().filter_map(|image| with_default_tag(image).ok()).collect();
        let is_wanted = |pull: &Pull| wanted.iter().any(|image| *image == pull.image);
        self.pulls().into_iter().filter(is_wanted).collect()
    }

    /// Changes whenever [`Images::pulls`] would give another list.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.flights.changes()
    }

    /// The image, if the policy lets one that is there do.
    async fn present(
        &self,
        request: &Request<'_>,
        spec: &v1::ImageSpec,
    ) -> Result<Option<Image>, ImageError> {
        if !looks_first(request.policy) {
            return Ok(None);
        }
        let image = self.service.status(spec).await.map_err(|error| {
            // Upstream names no image here, and has said so for years.
            let message = format!("Failed to inspect image \"\": {error}");
            self.warn(request.involved, reason::INSPECT_FAILED, &message);
            ImageError::new(ImageErrorReason::ImageInspectError, message)
        })?;
        if image.is_none() {
            self.unless_never_pulled(request)?;
        }
        Ok(image)
    }

    /// Whether the pod may use an image that is there without pulling it.
    async fn may_use(
        &self,
        request: &Request<'_>,
        spec: &v1::ImageSpec,
        image: &Image,
        credentials: impl Future<Output = Result<Vec<TrackedCredential>, BadSecret>>,
    ) -> bool {
        let (may, whose) = match &self.access.records {
            // A secret that cannot be read proves nothing; the pull will tell of it.
            Some(records) => (
                records.may_use(request.image, &spec.image, &image.id, credentials).await.unwrap_or(false),
                " and can be accessed by the pod",
            ),
            None => (true, ""),
        };
        if may {
            let message = format!("Container image {:?} already present on machine{whose}", request.image);
            self.tell(request.involved, reason::PULLED, message);
        }
        may
    }

    fn unless_never_pulled(&self, request: &Request<'_>) -> Result<(), ImageError> {
        if request.policy != Some(&PullPolicy::Never) {
            return Ok(());
        }
        let message = format!("Container image {:?} is not present with pull policy of Never", request.image);
        self.warn(request.involved, reason::ERR_IMAGE_NEVER_PULL, &message);
        Err(ImageError::new(ImageErrorReason::ErrImageNeverPull, message))
    }

    fn pulled(&self, request: &Request<'_>, pulled: &Pulled, waited: Duration) -> Ensured {
        // Who joined a pull late waited for less than it took.
        let (took, waited) = (go_millis(pulled.took.min(waited)), go_millis(waited));
        let size = pulled.image.as_ref().map_or(0, |image| image.size);
        if let Some(metrics) = &self.metrics {
            metrics.pulled(size, pulled.took);
        }
        let message = format!(
            "Successfully pulled image {:?} in {took} ({waited} including waiting). Image size: {size} bytes.",
            request.image
        );
        self.tell(request.involved, reason::PULLED, message);
        self.backoff.forget_what_is_long_ago();
        Ensured { reference: pulled.reference.clone(), image: pulled.image.clone(), was_pulled: true }
    }

    fn failed(&self, request: &Request<'_>, error: &dyn std::error::Error) -> ImageError {
        self.warn(
            request.involved,
            reason::FAILED,
            &format!("Failed to pull image {:?}: {error}", request.image),
        );
        let error = PullError::from_runtime(request.image, &error.to_string());
        let until = self.backoff.failed(request.involved.uid(), request.image, &error);
        ImageError::from(error).retry_at(until)
    }

    fn tell(&self, involved: &Involved, reason: &str, message: String) {
        self.recorder.event(involved, EventType::Normal, reason, message);
    }

    fn warn(&self, involved: &Involved, reason: &str, message: &str) {
        self.recorder.event(involved, EventType::Warning, reason, message);
    }
}

fn looks_first(policy: Option<&PullPolicy>) -> bool {
    match policy {
        Some(PullPolicy::IfNotPresent | PullPolicy::Never) => true,
        Some(PullPolicy::Always | PullPolicy::Other(_)) | None => false,
    }
}

fn go_millis(duration: Duration) -> GoDuration {
    GoDuration::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
