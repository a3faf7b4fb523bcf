//! The kinds of volumes that the node of the recordings had and that need an API server: where they are counts here, and
//! not what they show.

use std::collections::BTreeMap;

use async_trait::async_trait;
use crablet_api::core::VolumeSource;
use crablet_core::translate::MountedVolume;
use crablet_volumes::{Payload, Plugin, PluginError, Request, show};

pub struct OfCluster;

#[async_trait]
impl Plugin for OfCluster {
    fn supports(&self, source: &VolumeSource) -> bool {
        directory(source).is_some()
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let directory = directory(&request.source).ok_or(PluginError::NoSource)?;
        show(request, directory, Payload::new(BTreeMap::new())?).await
    }
}

fn directory(source: &VolumeSource) -> Option<&'static str> {
    match source {
        VolumeSource::ConfigMap(_) => Some("kubernetes.io~configmap"),
        VolumeSource::Secret(_) => Some("kubernetes.io~secret"),
        VolumeSource::Projected(_) => Some("kubernetes.io~projected"),
        _ => None,
    }
}
