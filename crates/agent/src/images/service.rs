//! What is asked of a runtime about images.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_cri::{ImagePull, Runtime};
use crablet_cri_api::{Image, v1};

use super::error::ServiceError;

/// Where images are, and where they are pulled to.
#[async_trait]
pub(super) trait ImageService: Send + Sync {
    /// The image, if it is there.
    async fn status(&self, image: &v1::ImageSpec) -> Result<Option<Image>, ServiceError>;
    /// All images that are there.
    async fn list(&self) -> Result<Vec<Image>, ServiceError>;
    /// Pulls an image, and gives the reference to make containers from.
    async fn pull(&self, pull: ImagePull) -> Result<String, ServiceError>;
}

#[async_trait]
impl ImageService for Arc<dyn Runtime> {
    async fn status(&self, spec: &v1::ImageSpec) -> Result<Option<Image>, ServiceError> {
        match self.image_status(spec).await {
            Ok(Some(image)) if image.id.is_empty() || image.size == 0 => {
                Err(ServiceError::Incomplete(spec.image.clone()))
            }
            Ok(image) => Ok(image),
            Err(error) => Err(ServiceError::Inspect(error)),
        }
    }

    async fn list(&self) -> Result<Vec<Image>, ServiceError> {
        self.list_images().await.map_err(ServiceError::Inspect)
    }

    async fn pull(&self, pull: ImagePull) -> Result<String, ServiceError> {
        let image = pull.image.image.clone();
        match self.pull_image(pull).await {
            Ok(reference) if reference.is_empty() => Err(ServiceError::NoReference(image)),
            Ok(reference) => Ok(reference),
            Err(error) => Err(ServiceError::Pull(error)),
        }
    }
}
