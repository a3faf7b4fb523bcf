//! `projected`: files from several sources in one directory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use crablet_api::core::{VolumeProjection, VolumeSource};
use crablet_core::translate::MountedVolume;

use super::downward_api::collect;
use super::files::show;
use crate::atomic_writer::Payload;
use crate::error::PluginError;
use crate::places::PROJECTED;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `projected`, so far as their sources need nobody but the node.
#[derive(Debug, Clone, Copy)]
pub struct Projected;

#[async_trait]
impl Plugin for Projected {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Projected(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::Projected(projected) = &*request.source else { return Err(PluginError::NoSource) };
        let mode = projected.default_mode.ok_or(PluginError::NoDefaultMode)?;
        let mut files = BTreeMap::new();
        let mut errors = Vec::new();
        for source in &projected.sources {
            let not_yet = |kind| Err(PluginError::Projection { kind });
            match source.one() {
                Some(VolumeProjection::DownwardApi(downward)) => {
                    files.extend(collect(request, &downward.items, mode, &mut errors));
                }
                Some(VolumeProjection::Secret(_)) => return not_yet("secret"),
                Some(VolumeProjection::ConfigMap(_)) => return not_yet("configMap"),
                Some(VolumeProjection::ServiceAccountToken(_)) => return not_yet("serviceAccountToken"),
                Some(VolumeProjection::ClusterTrustBundle(_)) => return not_yet("clusterTrustBundle"),
                Some(VolumeProjection::PodCertificate(_)) => return not_yet("podCertificate"),
                None => {}
            }
        }
        match errors.is_empty() {
            true => show(request, PROJECTED, Payload::new(files)?).await,
            false => Err(PluginError::Downward(errors)),
        }
    }
}
