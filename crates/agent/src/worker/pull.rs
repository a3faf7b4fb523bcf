//! The images that a container needs: its own, and those that it mounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::Gate;
use crablet_api::core::{Container, PullPolicy, Secret, VolumeSource};
use crablet_core::status::StartError;
use crablet_cri_api::v1;
use tokio::time::Instant;

use crate::images::{Ensured, ImageError, ImageErrorReason, Request};
use crate::recorder::{Involved, reason};
use crate::story::State;
use crate::worker::Worker;
use crate::worker::carry_out::NotStarted;
use crate::worker::runtime_config::SandboxConfig;

/// The images of a container that is to be made. All of them are there.
pub(super) struct ContainerImages {
    /// What it is made from.
    pub(super) own: Ensured,
    /// What is mounted into it, by the names of the pod's volumes.
    pub(super) volumes: BTreeMap<String, v1::ImageSpec>,
}

/// An image, and for whom it is pulled.
struct Wanted<'a> {
    involved: &'a Involved,
    image: &'a str,
    policy: Option<&'a PullPolicy>,
    /// What it is to the container, in the words of the pod's story.
    what: String,
}

impl Worker {
    /// Gets the images of a container, which may take long: what probes find of other containers is shown meanwhile.
    /// The answer is nothing when the pod was told to end.
    pub(super) async fn ensure_images(
        &mut self,
        container: &Container,
        sandbox: &SandboxConfig,
    ) -> Result<Option<ContainerImages>, NotStarted> {
        let secrets = self.pull_secrets().await;
        let Some(volumes) = self.ensure_volumes(container, sandbox, &secrets).await? else {
            return Ok(None);
        };
        let involved = self.involved().in_container(self.kind_of(&container.name), &container.name);
        let wanted = Wanted {
            involved: &involved,
            image: &container.image,
            policy: container.image_pull_policy.as_ref(),
            what: format!("container {}", container.name),
        };
        match self.ensure_image(container, wanted, sandbox, &secrets).await {
            None => Ok(None),
            Some(Ok(own)) => Ok(Some(ContainerImages { own, volumes })),
            Some(Err(error)) => Err(self.image_failed(container, error)),
        }
    }

    /// Gets the images that a container mounts. Their events are about the pod, as a volume is no container's own; why
    /// the container is not made is told of it. As upstream, the others are pulled all the same where one fails.
    async fn ensure_volumes(
        &mut self,
        container: &Container,
        sandbox: &SandboxConfig,
        secrets: &[Arc<Secret>],
    ) -> Result<Option<BTreeMap<String, v1::ImageSpec>>, NotStarted> {
        let (mut volumes, mut failed) = (BTreeMap::new(), None);
        if !self.node.facts.now().translation.features.enabled(Gate::ImageVolume) {
            return Ok(Some(volumes));
        }
        let (pod, involved) = (Arc::clone(&self.pod), self.involved());
        for mount in &container.volume_mounts {
            let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name);
            let source = volume.and_then(|volume| volume.source.one());
            let Some(VolumeSource::Image(source)) = source else { continue };
            if volumes.contains_key(&*mount.name) {
                continue;
            }
            let wanted = Wanted {
                involved: &involved,
                image: &source.reference,
                policy: source.pull_policy.as_ref(),
                what: format!("volume {}", mount.name),
            };
            match self.ensure_image(container, wanted, sandbox, secrets).await {
                None => return Ok(None),
                Some(Ok(ensured)) => {
                    let spec = v1::ImageSpec {
                        image: ensured.reference,
                        user_specified_image: source.reference.to_string(),
                        annotations: sandbox.config.annotations.clone(),
                        ..v1::ImageSpec::default()
                    };
                    volumes.insert(mount.name.to_string(), spec);
                }
                Some(Err(error)) => failed = Some(self.image_failed(container, error)),
            }
        }
        failed.map_or(Ok(Some(volumes)), Err)
    }

    /// Gets one image. The answer is nothing when the pod was told to end.
    async fn ensure_image(
        &mut self,
        container: &Container,
        wanted: Wanted<'_>,
        sandbox: &SandboxConfig,
        secrets: &[Arc<Secret>],
    ) -> Option<Result<Ensured, ImageError>> {
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        let Wanted { involved, image, policy, what } = wanted;
        let request = Request {
            involved,
            image,
            policy,
            secrets,
            service_account: &pod.spec.service_account_name,
            runtime_handler: match node
                .facts
                .now()
                .translation
                .features
                .enabled(Gate::RuntimeClassInImageCriApi)
            {
                true => &sandbox.handler,
                false => "",
            },
            sandbox: Some(&sandbox.config),
        };
        // What went wrong before stays in the headline while it is tried again.
        if !self.starts.errors.contains_key(&container.name) {
            self.story.headline(State::Waiting, format_args!("image {image} of {what}"));
        }
        let asked = Instant::now();
        let ensured = self.attend(node.images.ensure(request)).await;
        match &ensured {
            Some(Ok(Ensured { was_pulled: true, .. })) => self.startup.pulled(asked),
            Some(Err(_)) => self.startup.not_pulled(asked),
            Some(Ok(_)) | None => {}
        }
        ensured
    }

    fn image_failed(&self, container: &Container, error: ImageError) -> NotStarted {
        self.warn(&container.name, reason::FAILED, &error.event_message());
        // What just failed is asked for again soon all the same: then it says that it waits, and until when.
        let waits = error.reason == ImageErrorReason::ImagePullBackOff;
        NotStarted {
            until: error.retry_at.filter(|_| waits),
            error: StartError::new(error.reason.as_str(), error.message),
            has_event: true,
        }
    }

    /// The secrets that the pod names for pulls. What cannot be had is told, and done without.
    async fn pull_secrets(&mut self) -> Vec<Arc<Secret>> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (node, pod, namespace) =
            (Arc::clone(&self.node), Arc::clone(&self.pod), self.owner.namespace.clone());
        let names = pod.spec.image_pull_secrets.iter().map(|secret| secret.name.as_str());
        for name in names.filter(|name| !name.is_empty()) {
            match self.see_through(node.objects.secret(&namespace, name)).await {
                Ok(secret) => found.push(secret),
                Err(_) => missing.push(name),
            }
        }
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.warn_pod(reason::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, &message);
        }
        found
    }
}
