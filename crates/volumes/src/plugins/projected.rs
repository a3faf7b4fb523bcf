//! `projected`: files from several sources in one directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{
    ClusterTrustBundleProjection, Pod, PodCertificateProjection, ProjectedVolumeSource,
    ServiceAccountTokenProjection, VolumeProjection, VolumeSource,
};
use crablet_core::translate::{MountedVolume, Unavailable};

use super::downward_api;
use super::empty_dir::Medium;
use super::files::show;
use super::keys::{self, Keys};
use crate::atomic_writer::{Payload, ProjectedFile};
use crate::contents::{CertificateOf, Contents, TokenRequest};
use crate::error::PluginError;
use crate::ownership::{group_of_pod, user_of_pod};
use crate::places::PROJECTED;
use crate::plugin::{Plugin, Request};

/// The permissions of a file that belongs to somebody. A change of group widens them.
const OWN_MODE: u32 = 0o600;

/// Volumes of the kind `projected`.
pub struct Projected(pub Arc<dyn Contents>);

#[async_trait]
impl Plugin for Projected {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Projected(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::Projected(source) = &*request.source else { return Err(PluginError::NoSource) };
        let collected = collect(request, source, &*self.0).await;
        show(request, PROJECTED, Medium::Memory, collected).await
    }
}

/// All files of all sources, or why some cannot be had. Of two with the same path, the later one is shown.
pub(super) async fn collect(
    request: &Request,
    source: &ProjectedVolumeSource,
    contents: &dyn Contents,
) -> Result<Payload, PluginError> {
    let mode = source.default_mode.ok_or(PluginError::NoDefaultMode)?;
    let (mut files, mut errors, mut is_incomplete) = (BTreeMap::new(), Vec::new(), false);
    for (index, projection) in source.sources.iter().enumerate() {
        let Some(projection) = projection.one() else { continue };
        match files_of(request, (index, projection), mode, contents).await {
            Ok(Some(more)) => files.extend(more),
            Ok(None) => is_incomplete = true,
            Err(
                PluginError::Object { why: Unavailable::NoClient, .. }
                | PluginError::Token(Unavailable::NoClient),
            ) => {
                return Err(PluginError::NoClient { volume: request.volume.to_string() });
            }
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true if is_incomplete => Ok(Payload::new(files)?.incomplete()),
        true => Ok(Payload::new(files)?),
        false => Err(PluginError::Sources(errors)),
    }
}

/// The files of a source; nothing while they are still to come.
async fn files_of(
    request: &Request,
    (index, projection): (usize, &VolumeProjection),
    default_mode: i32,
    contents: &dyn Contents,
) -> Result<Option<BTreeMap<String, ProjectedFile>>, PluginError> {
    let namespace = &request.pod.metadata.namespace;
    let files = match projection {
        VolumeProjection::DownwardApi(source) => downward_api::files(request, &source.items, default_mode),
        VolumeProjection::ConfigMap(source) => {
            let (name, items, optional) = (&source.name, &source.items, source.optional == Some(true));
            keys::of_config_map(contents, Keys { namespace, name, items, default_mode, optional }).await
        }
        VolumeProjection::Secret(source) => {
            let (name, items, optional) = (&source.name, &source.items, source.optional == Some(true));
            keys::of_secret(contents, Keys { namespace, name, items, default_mode, optional }).await
        }
        VolumeProjection::ServiceAccountToken(source) => {
            let file = token(&request.pod, source, default_mode, contents).await?;
            return Ok(file.map(|file| [(source.path.to_string(), file)].into()));
        }
        VolumeProjection::ClusterTrustBundle(source) => {
            let file = trust_bundle(&request.pod, source, default_mode, contents).await?;
            Ok([(source.path.to_string(), file)].into())
        }
        VolumeProjection::PodCertificate(source) => {
            certificate(request, index, source, default_mode, contents).await
        }
    };
    files.map(Some)
}

async fn token(
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
    default_mode: i32,
    contents: &dyn Contents,
) -> Result<Option<ProjectedFile>, PluginError> {
    let audience = Some(source.audience.clone()).filter(|audience| !audience.is_empty());
    let request = TokenRequest {
        namespace: pod.metadata.namespace.clone(),
        service_account: pod.spec.service_account_name.clone(),
        service_account_uid: None,
        audiences: audience.into_iter().collect(),
        expiration_seconds: source.expiration_seconds,
        pod: pod.metadata.name.clone(),
        pod_uid: pod.metadata.uid.clone(),
    };
    let token = contents.service_account_token(&request).await.map_err(PluginError::Token)?;
    let Some(token) = token else { return Ok(None) };
    Ok(Some(file_of(pod, token.reveal(), default_mode)))
}

/// Whom to trust; nobody, where that may be missing.
async fn trust_bundle(
    pod: &Pod,
    source: &ClusterTrustBundleProjection,
    default_mode: i32,
    contents: &dyn Contents,
) -> Result<ProjectedFile, PluginError> {
    let anchors = match contents.trust_anchors(source).await {
        Err(Unavailable::NotFound) if source.optional == Some(true) => String::new(),
        Err(why) => {
            let name = source.name.as_ref().map(ToString::to_string);
            return Err(PluginError::TrustAnchors { name, why });
        }
        Ok(anchors) => anchors,
    };
    Ok(file_of(pod, &anchors, default_mode))
}

/// The files of a certificate: it and its key in one, or each in its own.
async fn certificate(
    request: &Request,
    index: usize,
    source: &PodCertificateProjection,
    default_mode: i32,
    contents: &dyn Contents,
) -> Result<BTreeMap<String, ProjectedFile>, PluginError> {
    let wanted = CertificateOf { pod: &request.pod, volume: &request.volume, index };
    let found = contents.pod_certificate(&wanted).await.map_err(PluginError::Certificate)?;
    let (key, chain) = (found.reveal_key(), found.chain());
    let files = [
        (&source.credential_bundle_path, [key, chain].concat()),
        (&source.key_path, key.to_owned()),
        (&source.certificate_chain_path, chain.to_owned()),
    ];
    let named = files.into_iter().filter(|(path, _)| !path.is_empty());
    Ok(named
        .map(|(path, content)| (path.to_string(), file_of(&request.pod, &content, default_mode)))
        .collect())
}

fn file_of(pod: &Pod, content: &str, default_mode: i32) -> ProjectedFile {
    let user = user_of_pod(pod);
    let mode = match user.is_some() || group_of_pod(pod).is_some() {
        true => OWN_MODE,
        false => default_mode.cast_unsigned() & 0o777,
    };
    ProjectedFile { content: content.as_bytes().to_owned(), mode, user }
}
