//! `secret`: the keys of a secret, as files in memory.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{SecretVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;

use super::empty_dir::Medium;
use super::files::show;
use super::keys::{self, Keys};
use crate::atomic_writer::Payload;
use crate::contents::Contents;
use crate::error::PluginError;
use crate::places::SECRET;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `secret`.
pub struct Secret(pub Arc<dyn Contents>);

#[async_trait]
impl Plugin for Secret {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Secret(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::Secret(source) = &*request.source else { return Err(PluginError::NoSource) };
        let collected = collect(request, source, &*self.0).await;
        show(request, SECRET, Medium::Memory, collected).await
    }
}

pub(super) async fn collect(
    request: &Request,
    source: &SecretVolumeSource,
    contents: &dyn Contents,
) -> Result<Payload, PluginError> {
    let keys = Keys {
        namespace: &request.pod.metadata.namespace,
        name: &source.secret_name,
        items: &source.items,
        default_mode: source.default_mode.ok_or(PluginError::NoDefaultMode)?,
        optional: source.optional == Some(true),
    };
    Ok(Payload::new(keys::of_secret(contents, keys).await?)?)
}
