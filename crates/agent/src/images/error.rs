//! Why an image is not there.

use std::fmt;

use crablet_core::backoff::PullError;
use tokio::time::Instant;

/// Why an image is not there, in the word that a container's status has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageErrorReason {
    /// Its name is none.
    InvalidImageName,
    /// The runtime could not say whether it is there.
    ImageInspectError,
    /// It is not there, and may not be pulled.
    ErrImageNeverPull,
    /// It could not be pulled.
    ErrImagePull,
    /// It could not be pulled, because its registry is away.
    RegistryUnavailable,
    /// It was not accepted, because of its signature.
    SignatureValidationFailed,
    /// It could not be pulled a moment ago, and the next try comes later.
    ImagePullBackOff,
}

impl ImageErrorReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            ImageErrorReason::InvalidImageName => "InvalidImageName",
            ImageErrorReason::ImageInspectError => "ImageInspectError",
            ImageErrorReason::ErrImageNeverPull => "ErrImageNeverPull",
            ImageErrorReason::ErrImagePull => "ErrImagePull",
            ImageErrorReason::RegistryUnavailable => "RegistryUnavailable",
            ImageErrorReason::SignatureValidationFailed => "SignatureValidationFailed",
            ImageErrorReason::ImagePullBackOff => "ImagePullBackOff",
        }
    }
}

impl fmt::Display for ImageErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An image is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct ImageError {
    /// Why, in a word.
    pub reason: ImageErrorReason,
    /// Why, in a sentence, for the container's status.
    pub message: String,
    /// When asking again can first give another answer, if that is known. Asking before is in vain.
    pub retry_at: Option<Instant>,
}

impl ImageError {
    pub(super) fn new(reason: ImageErrorReason, message: String) -> ImageError {
        ImageError { reason, message, retry_at: None }
    }

    pub(super) fn retry_at(self, moment: Instant) -> ImageError {
        ImageError { retry_at: Some(moment), ..self }
    }

    /// What the event says by which a container tells that it cannot be made.
    pub fn event_message(&self) -> String {
        format!("Error: {}", self.reason)
    }
}

impl From<PullError> for ImageError {
    fn from(error: PullError) -> ImageError {
        let known = [ImageErrorReason::RegistryUnavailable, ImageErrorReason::SignatureValidationFailed];
        let reason = known.into_iter().find(|known| known.as_str() == error.reason);
        ImageError::new(reason.unwrap_or(ImageErrorReason::ErrImagePull), error.message.into())
    }
}
