//! `image`: the content of an image, which the runtime mounts itself.

use async_trait::async_trait;
use crablet_api::core::VolumeSource;
use crablet_core::translate::MountedVolume;
use crablet_cri_api::v1;

use crate::error::PluginError;
use crate::plugin::{Plugin, Request};

/// Volumes of the kind `image`. Nothing is done on the node; who pulls the image replaces the reference by what it got.
#[derive(Debug, Clone, Copy)]
pub struct Image;

#[async_trait]
impl Plugin for Image {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Image(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let VolumeSource::Image(source) = &*request.source else { return Err(PluginError::NoSource) };
        Ok(MountedVolume::Image(v1::ImageSpec {
            image: source.reference.to_string(),
            user_specified_image: source.reference.to_string(),
            ..v1::ImageSpec::default()
        }))
    }
}
