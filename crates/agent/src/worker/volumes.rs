//! A pod's volumes: there before anything runs that uses them, current while it runs, and gone after it.
//!
//! Nothing of this is written down. An agent that starts again sets them up again, which leaves what is there as it is,
//! and takes away what it finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::core::{Container, Pod};
use crablet_core::plan::{Plan, Sandbox};
use crablet_core::status::Failure;
use crablet_core::translate::{self, ContainerRefusal, Environment, MountedVolume};
use crablet_volumes::{FailureKind, Occurrence, SubPath, SubPathError, VolumeError, used_volumes};
use futures_util::future::{Either, select};
use tokio::time::Instant;
use tracing::warn;

use crate::recorder::{EventType, Involved, reason};
use crate::story::State;
use crate::worker::retry::What;
use crate::worker::{Next, Worker};

/// What a pod's story calls them.
const WHAT: &str = "volumes";

/// What a worker knows of its pod's volumes.
#[derive(Debug, Default)]
pub(super) struct PodVolumes {
    /// Where they are, once they were set up.
    mounted: BTreeMap<String, MountedVolume>,
    /// Whether their files tell of the pod, and of what it refers to, in its latest form.
    is_current: bool,
    /// When they want to be refreshed though nothing has changed.
    refresh_at: Option<Instant>,
    /// Why they could not be set up the last time.
    failure: Option<String>,
}

impl PodVolumes {
    /// The pod is wanted in another form.
    pub(super) fn pod_changes(&mut self, before: &Pod, after: &Pod) {
        let (one, other) = (&before.metadata, &after.metadata);
        let is_same =
            one.labels == other.labels && one.annotations == other.annotations && before.spec == after.spec;
        self.is_current &= is_same;
    }

    /// Something changed that the pod refers to: their files may tell of it.
    pub(super) fn objects_change(&mut self) {
        self.is_current = false;
    }

    /// Where they are, by their names in the pod.
    pub(super) fn mounted(&self) -> BTreeMap<&str, MountedVolume> {
        self.mounted.iter().map(|(name, volume)| (name.as_str(), volume.clone())).collect()
    }

    /// Where the files of a volume are, if it is there and has some.
    pub(super) fn files(&self, name: &str) -> Option<&str> {
        match self.mounted.get(name)? {
            MountedVolume::Files { host_path, .. } => Some(host_path),
            MountedVolume::Image(_) | MountedVolume::Device { .. } => None,
        }
    }

    /// The volume that a pod with this plan waits for, and why, if the last try failed.
    pub(super) fn waited_for(&self, plan: &Plan) -> Option<&str> {
        self.failure.as_deref().filter(|_| needs(plan))
    }

    pub(super) fn has_all(&self, pod: &Pod) -> bool {
        used_volumes(pod).iter().all(|name| self.mounted.contains_key(*name))
    }
}

/// Why parts of volumes are not ready for a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubPathsError {
    #[error(transparent)]
    Refused(#[from] ContainerRefusal),
    #[error(transparent)]
    NotReady(#[from] SubPathError),
}

/// Whether a plan cannot be carried out without volumes.
pub(super) fn needs(plan: &Plan) -> bool {
    match plan.sandbox {
        Sandbox::Keep { .. } => !plan.start.is_empty(),
        Sandbox::Create { .. } => true,
        Sandbox::End { .. } => false,
    }
}

impl Worker {
    /// Sets up the volumes that the pod's containers use, where that is still to be done. Those that are there and cannot
    /// be brought up to date keep nobody from being started: they show what they showed before, and are tried again.
    pub(super) async fn set_up_volumes(&mut self) -> Result<(), Next> {
        let used = used_volumes(&self.pod);
        let has_all = self.volumes.has_all(&self.pod);
        let is_current = self.volumes.is_current || self.retries.held(&What::Refresh).is_some();
        if used.is_empty() || (has_all && is_current) {
            return Ok(());
        }
        if let Some(until) = self.retries.held(&What::Volumes) {
            return Err(Next::Wait(Some(until)));
        }
        // What went wrong before stays in the headline while it is tried again.
        if self.volumes.failure.is_none() {
            let names: Vec<&str> = used.into_iter().collect();
            self.story.headline(State::Waiting, format_args!("its volumes ({})", names.join(", ")));
        }
        let began = Instant::now();
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        let facts = node.facts.now();
        let mut set_up = node.host.volumes.set_up(&pod, &facts.translation);
        let set_up = loop {
            // What people should know of is told though the rest takes long.
            let events = node.host.volumes.wait_for_events(&pod.metadata.uid);
            match self.attend(select(&mut set_up, events)).await {
                Some(Either::Left((set_up, _))) => break set_up,
                Some(Either::Right(_)) => self.tell_of_events(),
                None => return Err(Next::Again),
            }
        };
        self.tell_of_events();
        match set_up {
            Ok(mounted) => {
                self.retries.worked(&What::Volumes);
                self.retries.worked(&What::Refresh);
                let count = mounted.len();
                self.story.step(WHAT, began.elapsed(), format_args!("set up its volumes ({count})"));
                let refresh_at = self.refresh_at();
                self.volumes = PodVolumes { mounted, is_current: true, refresh_at, failure: None };
                Ok(())
            }
            Err(errors) => {
                let full = errors.iter().find(|error| error.kind() == FailureKind::AttachmentLimit);
                if let Some(error) = full.filter(|_| !has_all) {
                    return Err(self.reject_for_volumes(&error.to_string()).await);
                }
                self.tell_of_volumes(&errors);
                if has_all {
                    self.retries.failed(What::Refresh);
                    return Ok(());
                }
                let first = errors.first();
                let failure = first.map(|error| format!("volume {}: {}", error.volume, error.cause));
                self.story.headline(State::Waiting, format_args!("{}", failure.as_deref().unwrap_or(WHAT)));
                self.volumes.failure = failure;
                // Nobody tells of a claim that is bound, and upstream does not wait for longer with it either.
                let until = match errors.iter().any(VolumeError::is_of_claim) {
                    true => self.retries.failed_for_now(What::Volumes),
                    false => self.retries.failed(What::Volumes),
                };
                Err(Next::Wait(Some(until)))
            }
        }
    }

    /// The node has no place for the pod's volumes, as admission would have said if it had known.
    async fn reject_for_volumes(&mut self, message: &str) -> Next {
        self.warn_pod(reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED, message);
        self.failure
            .get_or_insert_with(|| Failure::rejected(reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED, message));
        self.stop_by_itself("the node has reached its volume attachment limit").await
    }

    /// The groups that the pod's containers join for its volumes, and that it does not name itself.
    pub(super) fn extra_groups(&self) -> Vec<i64> {
        let mut groups = self.node.host.volumes.groups(&self.owner.uid);
        let context = self.pod.spec.security_context.as_ref();
        groups.retain(|group| !context.is_some_and(|own| own.supplemental_groups.contains(group)));
        groups
    }

    fn refresh_at(&self) -> Option<Instant> {
        self.node.host.volumes.refresh_after(&self.owner.uid).map(|after| Instant::now() + after)
    }

    fn tell_of_volumes(&self, errors: &[VolumeError]) {
        for error in errors {
            let reason = match error.kind() {
                FailureKind::Mount | FailureKind::AttachmentLimit => reason::FAILED_MOUNT,
                FailureKind::Map => reason::FAILED_MAP_VOLUME,
                FailureKind::Resize => reason::VOLUME_RESIZE_FAILED,
            };
            self.warn_pod(reason, &error.to_string());
        }
    }

    fn tell_of_events(&self) {
        for event in self.node.host.volumes.take_events(&self.owner.uid) {
            let (kind, reason) = match event.what {
                Occurrence::Mapped => (EventType::Normal, reason::SUCCESSFUL_MOUNT_VOLUME),
                Occurrence::OtherGroup => (EventType::Warning, reason::ALREADY_MOUNTED_VOLUME),
                Occurrence::Resized => (EventType::Normal, reason::FILE_SYSTEM_RESIZE_SUCCESSFUL),
                Occurrence::NotResized => (EventType::Warning, reason::FILE_SYSTEM_RESIZE_FAILED),
                Occurrence::GroupTakesLong => {
                    (EventType::Warning, reason::VOLUME_PERMISSION_CHANGE_IN_PROGRESS)
                }
                Occurrence::Abnormal => (EventType::Warning, reason::VOLUME_CONDITION_ABNORMAL),
            };
            let mut involved = vec![self.involved()];
            involved.extend(event.claim.as_deref().map(Involved::version_of_claim));
            for involved in involved {
                self.node.reports.recorder.event(&involved, kind, reason, event.message.as_str());
            }
        }
    }

    /// Brings the files up to date that tell of the pod and of what it refers to. What cannot be stays as it was, and is
    /// tried again.
    pub(super) async fn refresh_volumes(&mut self) -> Next {
        let refresh_at = self.volumes.refresh_at;
        let is_due = refresh_at.is_some_and(|at| at <= Instant::now());
        if (self.volumes.is_current && !is_due) || used_volumes(&self.pod).is_empty() {
            return Next::Wait(refresh_at);
        }
        if let Some(until) = self.retries.held(&What::Refresh) {
            return Next::Wait(Some(until));
        }
        let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
        let facts = node.facts.now();
        let Some(refreshed) = self.attend(node.host.volumes.refresh(&pod, &facts.translation)).await else {
            return Next::Again;
        };
        self.tell_of_events();
        match refreshed {
            Ok(()) => {
                self.retries.worked(&What::Refresh);
                self.volumes.is_current = true;
                self.volumes.refresh_at = self.refresh_at();
                Next::Wait(self.volumes.refresh_at)
            }
            Err(errors) => {
                self.tell_of_volumes(&errors);
                Next::Wait(Some(self.retries.failed(What::Refresh)))
            }
        }
    }

    /// Makes the parts of volumes ready that a container mounts, and says where they are, by the mounts' places in the
    /// list. An error says nothing of the node's files, which are not the user's to know: the log does.
    pub(super) async fn sub_paths(
        &mut self,
        container: &Container,
        environment: &Environment,
    ) -> Result<BTreeMap<usize, String>, SubPathsError> {
        let mut ready = BTreeMap::new();
        for (index, mount) in container.volume_mounts.iter().enumerate() {
            // One without a volume, and one that is no directory, are told of by the translation.
            let Some(host_path) = self.volumes.files(&mount.name) else { continue };
            let path = translate::sub_path(mount, environment)?;
            let Some(path) = path else { continue };
            let wanted = SubPath {
                uid: self.owner.uid.to_string(),
                container: container.name.to_string(),
                index,
                volume: mount.name.to_string(),
                volume_path: host_path.into(),
                path,
            };
            let node = Arc::clone(&self.node);
            let made = self.see_through(node.host.volumes.sub_path(&wanted)).await.inspect_err(|error| {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                warn!(
                    container = wanted.container,
                    volume = wanted.volume,
                    cause,
                    "Cannot make a sub path ready"
                );
            })?;
            ready.insert(index, made);
        }
        Ok(ready)
    }

    /// Takes the pod's volumes away, when nothing runs that could use them.
    pub(super) async fn tear_down_volumes(&mut self) -> Result<(), Next> {
        self.story.headline(State::Terminating, format_args!("its volumes are being taken away"));
        let began = Instant::now();
        let (node, uid) = (Arc::clone(&self.node), self.owner.uid.clone());
        match self.see_through(node.host.volumes.tear_down(&uid)).await {
            Ok(()) => {
                self.retries.worked(&What::Volumes);
                self.volumes = PodVolumes::default();
                Ok(())
            }
            Err(error) => {
                let until = self.retries.failed(What::Volumes);
                self.story.failed(WHAT, began.elapsed(), format_args!("{error}"));
                self.story
                    .headline(State::Terminating, format_args!("its volumes cannot be taken away: {error}"));
                Err(Next::Wait(Some(until)))
            }
        }
    }
}
