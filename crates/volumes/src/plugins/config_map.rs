//! `configMap`: the keys of a config map, as files.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{ConfigMapVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;

use super::empty_dir::Medium;
use super::files::show;
use super::keys::{self, Keys};
use crate::atomic_writer::Payload;
use crate::contents::Contents;
use crate::error::PluginError;
use crate::places::CONFIG_MAP;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `configMap`. They are on disk, as upstream.
pub struct ConfigMap(pub Arc<dyn Contents>);

#[async_trait]
impl Plugin for ConfigMap {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::ConfigMap(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::ConfigMap(source) = &*request.source else { return Err(PluginError::NoSource) };
        let collected = collect(request, source, &*self.0).await;
        show(request, CONFIG_MAP, Medium::Disk, collected).await
    }
}

pub(super) async fn collect(
    request: &Request,
    source: &ConfigMapVolumeSource,
    contents: &dyn Contents,
) -> Result<Payload, PluginError> {
    let keys = Keys {
        namespace: &request.pod.metadata.namespace,
        name: &source.name,
        items: &source.items,
        default_mode: source.default_mode.ok_or(PluginError::NoDefaultMode)?,
        optional: source.optional == Some(true),
    };
    Ok(Payload::new(keys::of_config_map(contents, keys).await?)?)
}
