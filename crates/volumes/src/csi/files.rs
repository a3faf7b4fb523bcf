//! Volumes with files: staged once on the node, and published to each pod that has them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crablet_api::core::SecretReference;
use crablet_api::storage::{CsiDriver, VolumeLifecycleMode};
use crablet_core::translate::Unavailable;
use crablet_csi::{PublishVolume, StageVolume};
use crablet_host::lanes::Lane;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::vol_data::{self, VolumeData};
use super::wanted::{Wanted, pod_info, strings};
use super::{Csi, Ready, hash, is_mount_point, lock, needs_attachment, requires_republish, text};
use crate::claims;
use crate::contents::{Token, TokenRequest};
use crate::error::PluginError;
use crate::metrics::Operation;
use crate::ownership::{self, ChangePolicy, Ownership};
use crate::places::CSI;
use crate::plugin::Request;

/// How long a pod waits for its volume to be attached before it says so.
const ATTACHED_WITHIN: Duration = Duration::from_secs(100);

/// A token as drivers are told of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenStatus {
    token: String,
    expiration_timestamp: Option<String>,
}

impl Csi {
    /// Stages a volume. The lane is that of the volume; without one it is not to be staged.
    pub(super) async fn stage(
        &self,
        request: &Request,
        wanted: &Wanted,
        context: &BTreeMap<String, String>,
        lane: Option<Lane>,
    ) -> Result<Option<PathBuf>, PluginError> {
        let Some(_lane) = lane else { return Ok(None) };
        let staged = wanted.staged();
        let directory = self.0.places.csi_staged(&staged.driver, &staged.handle);
        let place = directory.join(vol_data::STAGED);
        let data = VolumeData {
            se_linux_mount_context: wanted.label.clone(),
            ..VolumeData::of_staged(&staged.driver, &staged.handle)
        };
        let known = lock(&self.0.staged).get(&staged).copied();
        if let Some(was_mounted) = known
            && (!was_mounted || self.is_mounted(request, &place).await?)
        {
            return Ok(Some(place));
        }
        let driver = self.driver(&wanted.driver)?;
        let capabilities = driver.capabilities().await?;
        if !capabilities.stage_unstage_volume {
            return Ok(None);
        }
        lock(&self.0.staged).remove(&staged);
        let volume = StageVolume {
            volume_id: wanted.handle.clone(),
            staging_target_path: text(&place),
            capability: wanted.capability(capabilities, ownership::group_of_pod(&request.pod)),
            publish_context: context.clone(),
            volume_context: wanted.attributes.clone(),
            secrets: self
                .secrets(wanted.stage_secret.as_ref(), ("fetching NodeStageSecretRef", " failed"))
                .await?,
        };
        let made = {
            let (directory, place) = (directory.clone(), place.clone());
            self.work_for(request, move |machine| {
                machine.make_directories(&directory)?;
                // What is mounted there may be on a server that does not answer.
                if !is_mount_point(machine, &place)? {
                    machine.make_directories(&place)?;
                }
                vol_data::write(machine, &directory, &data)
            })
        };
        made.await?;
        match driver.node.stage(volume).await {
            Ok(()) => {
                let is_mounted = self.is_mounted(request, &place).await?;
                lock(&self.0.staged).insert(staged, is_mounted);
                Ok(Some(place))
            }
            Err(error) => {
                if error.is_final() && !self.0.uses.is_used_beside(&staged, request.uid()) {
                    self.forget_refused(request, directory, place).await;
                }
                Err(PluginError::Csi(error))
            }
        }
    }

    pub(super) async fn publish(
        &self,
        request: &Request,
        wanted: &Wanted,
        staged: Option<PathBuf>,
        context: BTreeMap<String, String>,
        of_cluster: Option<&CsiDriver>,
    ) -> Result<PathBuf, PluginError> {
        let driver = self.driver(&wanted.driver)?;
        wanted.check_mode(of_cluster)?;
        let capabilities = driver.capabilities().await?;
        let directory = self.0.places.volume(request.uid(), CSI, request.spec_name());
        let target = directory.join("mount");
        let data = VolumeData {
            spec_vol_id: Some(request.spec_name().to_owned()),
            node_name: Some(self.0.node.clone()),
            volume_lifecycle_mode: Some(wanted.mode.clone()),
            attachment_id: Some(self.attachment(wanted)),
            se_linux_mount_context: wanted.label.clone(),
            ..VolumeData::of_staged(&wanted.driver, &wanted.handle)
        };
        let is_known = self.0.uses.is_published(request.uid(), &directory);
        let is_published = is_known && self.is_mounted(request, &target).await?;
        let republishes = requires_republish(of_cluster);
        self.0.uses.note_republished(request.uid(), request.spec_name(), &wanted.driver, republishes);
        if is_published && !republishes {
            return Ok(target);
        }
        let mut attributes = wanted.attributes.clone();
        if of_cluster.is_some_and(|driver| driver.spec.pod_info_on_mount == Some(true)) {
            attributes.extend(pod_info(request, &wanted.mode));
        }
        let not_had = |cause| PluginError::Tokens(Box::new(cause));
        let mut secrets = self
            .secrets(wanted.publish_secret.as_ref(), ("fetching NodePublishSecretRef", " failed"))
            .await?;
        if let Some(driver) = of_cluster
            && let Some(tokens) = self.tokens(request, driver).await.map_err(not_had)?
        {
            let in_secrets = driver.spec.service_account_token_in_secrets == Some(true);
            let place = if in_secrets { &mut secrets } else { &mut attributes };
            place.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), tokens);
        }
        let group = ownership::group_of_pod(&request.pod);
        let volume = PublishVolume {
            volume_id: wanted.handle.clone(),
            staging_target_path: staged.as_deref().map(text).unwrap_or_default(),
            target_path: text(&target),
            capability: wanted.capability(capabilities, group),
            read_only: wanted.read_only,
            publish_context: context,
            volume_context: attributes,
            secrets,
        };
        let made = {
            let directory = directory.clone();
            self.work_for(request, move |machine| {
                machine.make_directories(&directory)?;
                vol_data::write(machine, &directory, &data)
            })
        };
        made.await?;
        if let Err(error) = driver.node.publish(volume).await {
            if error.is_final() && !is_published {
                self.forget_refused(request, directory, target).await;
            }
            return Err(PluginError::Csi(error));
        }
        if let Some(group) = group.filter(|_| !capabilities.volume_mount_group)
            && wanted.belongs_to_group(of_cluster)
        {
            let (place, began) = (target.clone(), Instant::now());
            let given = request.blocking(move |request| {
                let policy = ChangePolicy::of_pod(&request.pod);
                let ownership = Ownership { group, read_only: false, policy };
                Ok(ownership::give(request, &place, &place, ownership)?)
            });
            let given = given.await;
            self.count(&wanted.driver, Operation::ApplyAccessControl, given.is_ok(), began);
            given.map_err(|cause| PluginError::Group {
                handle: wanted.handle.clone(),
                cause: Box::new(cause),
            })?;
        }
        self.0.uses.add_published(request.uid(), directory);
        Ok(target)
    }

    /// What the driver's controller said when it attached the volume, if it has to be.
    pub(super) async fn publish_context(
        &self,
        wanted: &Wanted,
        of_cluster: Option<&CsiDriver>,
    ) -> Result<BTreeMap<String, String>, PluginError> {
        if wanted.mode != VolumeLifecycleMode::Persistent || !needs_attachment(of_cluster) {
            return Ok(BTreeMap::new());
        }
        let volume = wanted.staged().unique_name();
        self.0.attachments.uses(&volume);
        if timeout(ATTACHED_WITHIN, self.0.attachments.attached(&volume)).await.is_err() {
            return Err(match self.is_exhausted(wanted, of_cluster).await {
                true => PluginError::AttachmentLimit(volume),
                false => PluginError::NotAttached(volume),
            });
        }
        let name = self.attachment(wanted);
        let found = self.0.contents.volume_attachment(&name).await;
        let found = found.map_err(|why| {
            let why = claims::words(&why, "volumeattachments.storage.k8s.io", &name);
            let handle = &wanted.handle;
            PluginError::Attachment(format!(
                "volume {handle} has GET error for volume attachment {name}: {why}"
            ))
        })?;
        self.note_attachment(wanted, of_cluster, &found);
        if found.metadata.deletion_timestamp.is_some() {
            return Err(PluginError::Attachment("volume attachment is being deleted".to_owned()));
        }
        match (found.status.attached, &found.status.attach_error) {
            (true, _) => Ok(strings(found.status.attachment_metadata.iter())),
            (false, Some(error)) => Err(PluginError::Attachment(error.message.to_string())),
            (false, None) => Err(PluginError::Attachment(format!(
                "volume {} is not attached for volume attachment {name}",
                wanted.handle
            ))),
        }
    }

    pub(super) fn attachment(&self, wanted: &Wanted) -> String {
        format!("csi-{}", hash(&[&wanted.handle, &wanted.driver, &self.0.node]))
    }

    /// The tokens that a driver wants of the pod, by their audiences, as a JSON text.
    pub(super) async fn tokens(
        &self,
        request: &Request,
        driver: &CsiDriver,
    ) -> Result<Option<String>, PluginError> {
        let pod = &request.pod;
        let mut tokens = BTreeMap::new();
        for wanted in &driver.spec.token_requests {
            let asked = TokenRequest {
                namespace: pod.metadata.namespace.clone(),
                service_account: pod.spec.service_account_name.clone(),
                service_account_uid: None,
                audiences: Some(wanted.audience.clone()).filter(|it| !it.is_empty()).into_iter().collect(),
                expiration_seconds: wanted.expiration_seconds,
                pod: pod.metadata.name.clone(),
                pod_uid: pod.metadata.uid.clone(),
            };
            let token = self.0.contents.service_account_token(&asked).await.map_err(PluginError::Token)?;
            let token = token.ok_or(PluginError::Token(Unavailable::NoClient))?;
            tokens.insert(wanted.audience.to_string(), token);
        }
        let told = |token: &Token| TokenStatus {
            token: token.reveal().to_owned(),
            expiration_timestamp: token.expires().map(str::to_owned),
        };
        let told: BTreeMap<&String, TokenStatus> =
            tokens.iter().map(|(audience, token)| (audience, told(token))).collect();
        let text =
            serde_json::to_string(&told).map_err(|error| PluginError::VolumeData(error.to_string()))?;
        Ok((!told.is_empty()).then_some(text))
    }

    /// What is in a secret that storage refers to. What an error says is around the secret's name.
    pub(super) async fn secrets(
        &self,
        reference: Option<&SecretReference>,
        (before, after): (&str, &str),
    ) -> Result<BTreeMap<String, String>, PluginError> {
        let Some(SecretReference { namespace, name }) = reference else { return Ok(BTreeMap::new()) };
        let found = self.0.contents.secret_of_storage(namespace, name).await;
        let failed =
            |why: String| PluginError::CsiSecret(format!("{before} {namespace}/{name}{after}: {why}"));
        let found = found.map_err(|why| {
            let why = claims::words(&why, "secrets", name);
            failed(format!(
                "kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {why}"
            ))
        })?;
        // Drivers are told texts, and one that was changed on the way opens nothing.
        let entries = found.data.iter().map(|(key, value)| match std::str::from_utf8(value) {
            Ok(value) => Ok((key.to_owned(), value.to_owned())),
            Err(_) => Err(failed(format!("the value of {key:?} is not UTF-8"))),
        });
        entries.collect()
    }

    pub(super) async fn set_up_files(
        &self,
        request: &Request,
        wanted: &Wanted,
        ready: Ready,
    ) -> Result<PathBuf, PluginError> {
        let Ready { of_cluster, context, lane } = ready;
        let staged = self.stage(request, wanted, &context, lane).await;
        let staged = staged.map_err(|cause| PluginError::MountDevice(Box::new(cause)))?;
        self.publish(request, wanted, staged, context, of_cluster.as_deref()).await
    }
}
