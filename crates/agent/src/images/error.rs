//! Why an image is not there.

use std::fmt;

use crablet_core::backoff::PullError;
use crablet_cri::Error;
use crablet_host::checkpoint::CheckpointError;
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

    /// The message of the event that says that the container cannot be made.
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

/// What a runtime could not do about an image, in the words that events and statuses carry.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// It named an image without saying what it is.
    #[error("Id or size of image {0:?} is not set")]
    Incomplete(String),
    /// It pulled an image and did not say how to refer to it.
    #[error("imageRef of image {0:?} is not set")]
    NoReference(String),
    /// It could not say what is there.
    #[error("{}", .0.in_go_words())]
    Inspect(Error),
    /// It could not pull.
    #[error("{}", of_pull(.0.in_go_words()))]
    Pull(Error),
}

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullFailure {
    /// Nobody would know of the pull if the agent ended now.
    #[error("Failed to record image pull intent for container image {image:?}: {source}")]
    Intent { image: String, source: CheckpointError },
    /// What the runtime said, for each credential.
    #[error("{}", aggregated(.0))]
    Runtime(Vec<ServiceError>),
    /// Its task is gone.
    #[error("the pull was abandoned")]
    Abandoned,
}

/// Why nothing is known of an image that was pulled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageUnknown {
    /// The runtime does not have it.
    #[error("image {0:?} is not there after its pull")]
    NotThere(String),
    /// The runtime would not say.
    #[error("{}", without_code(&.0.to_string()))]
    NotTold(ServiceError),
}

/// The code `Unknown` adds nothing, and upstream leaves it out: what is left may begin with a word that says why.
fn of_pull(error: String) -> String {
    match error.strip_prefix("rpc error: code = Unknown desc = ") {
        Some(message) => message.to_owned(),
        None => error,
    }
}

/// An error without gRPC's code, as upstream shows it where it says why a container cannot be made.
fn without_code(error: &str) -> &str {
    match error.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = ")) {
        Some((_, message)) => message,
        None => error,
    }
}

/// Several errors in one text, as Go's aggregates have it: each text once, in brackets where there is more than one.
fn aggregated(errors: &[ServiceError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match &mut texts[..] {
        [only] => std::mem::take(only),
        texts => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn an_unknown_code_is_left_out_of_the_error_of_a_pull() {
        for (words, expected) in [
            ("rpc error: code = Unknown desc = RegistryUnavailable: no", "RegistryUnavailable: no"),
            ("rpc error: code = NotFound desc = no", "rpc error: code = NotFound desc = no"),
        ] {
            assert_eq!(of_pull(words.to_owned()), expected);
        }
    }

    #[test]
    fn a_code_can_be_left_out_of_any_error() {
        for (words, expected) in [
            ("rpc error: code = Internal desc = no desc = yes", "no desc = yes"),
            ("Id or size of image \"x\" is not set", "Id or size of image \"x\" is not set"),
        ] {
            assert_eq!(without_code(words), expected);
        }
    }

    #[test]
    fn the_same_error_of_several_credentials_is_said_once() {
        let said = |errors: &[&str]| {
            let errors = errors.iter().map(|error| ServiceError::Pull(testing::error(error)));
            PullFailure::Runtime(errors.collect()).to_string()
        };
        assert_eq!(said(&["a"]), "a");
        assert_eq!(said(&["a", "a"]), "a");
        assert_eq!(said(&["a", "b", "a"]), "[a, b]");
    }
}
