//! Who may pull and use which images.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_core::translate::with_default_tag;
use crablet_credentials::{Credentials, PullRecords, TrackedCredential};
use crablet_cri_api::v1;
use crablet_host::clock::Clock;
use tracing::warn;

use super::error::PullFailure;
use super::service::ImageService;

/// Who may pull and use which images.
#[derive(Clone, Default)]
pub struct Access {
    /// Where credentials come from, beside those that pods bring.
    pub credentials: Arc<Credentials>,
    /// Who pulled what. Without it, an image that is there is everybody's.
    pub records: Option<Arc<PullRecords>>,
}

impl Access {
    /// Finds out what became of the pulls that the agent before did not end, and forgets images that are gone.
    pub(super) async fn resume(&self, service: &dyn ImageService, clock: &Clock) {
        let Some(records) = &self.records else { return };
        for image in records.unfinished() {
            let spec = match with_default_tag(&image) {
                Ok(tagged) => v1::ImageSpec { image: tagged.into_owned(), ..v1::ImageSpec::default() },
                // Nobody can have pulled it.
                Err(_) => {
                    records.resolve(&image, None).await;
                    continue;
                }
            };
            match service.status(&spec).await {
                Ok(found) => {
                    records.resolve(&image, found.as_ref().map(|image| image.id.as_str())).await;
                }
                Err(error) => {
                    warn!(image, %error, "Cannot tell what became of a pull; it counts as under way")
                }
            }
        }
        let before = clock.now();
        match service.list().await {
            Ok(images) => {
                let there: BTreeSet<String> = images.into_iter().map(|image| image.id).collect();
                records.prune(&there, before).await;
            }
            Err(error) => warn!(%error, "Cannot tell which images are gone; what is known of them stays"),
        }
    }

    /// Writes down that a pull begins, which it must not before.
    pub(super) async fn begin(&self, image: &str) -> Result<(), PullFailure> {
        let Some(records) = &self.records else { return Ok(()) };
        let begun = records.begin(image).await;
        begun.map_err(|source| PullFailure::Intent { image: image.to_owned(), source })
    }

    /// Writes down what became of a pull.
    pub(super) async fn end(&self, image: &str, outcome: Result<(&str, Option<&TrackedCredential>), ()>) {
        match (&self.records, outcome) {
            (Some(records), Ok((reference, with))) => records.succeeded(image, reference, with).await,
            (Some(records), Err(())) => records.failed(image).await,
            (None, _) => {}
        }
    }

    /// Writes down that a pull was given up.
    pub(super) fn abandon(&self, image: &str) {
        if let Some(records) = &self.records {
            records.abandoned(image);
        }
    }
}
