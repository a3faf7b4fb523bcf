//! What is asked of a runtime about images. Errors are in the words that events and statuses carry.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_cri::{ImagePull, Runtime};
use crablet_cri_api::{Image, v1};

/// Where images are, and where they are pulled to.
#[async_trait]
pub(super) trait ImageService: Send + Sync {
    /// The image, if it is there.
    async fn status(&self, image: &v1::ImageSpec) -> Result<Option<Image>, String>;
    /// All images that are there.
    async fn list(&self) -> Result<Vec<Image>, String>;
    /// Pulls an image, and gives the reference to make containers from.
    async fn pull(&self, pull: ImagePull) -> Result<String, String>;
}

#[async_trait]
impl ImageService for Arc<dyn Runtime> {
    async fn status(&self, spec: &v1::ImageSpec) -> Result<Option<Image>, String> {
        match self.image_status(spec).await {
            Ok(Some(image)) if image.id.is_empty() || image.size == 0 => {
                Err(format!("Id or size of image {:?} is not set", spec.image))
            }
            Ok(image) => Ok(image),
            Err(error) => Err(error.in_go_words()),
        }
    }

    async fn list(&self) -> Result<Vec<Image>, String> {
        self.list_images().await.map_err(|error| error.in_go_words())
    }

    async fn pull(&self, pull: ImagePull) -> Result<String, String> {
        let image = pull.image.image.clone();
        match self.pull_image(pull).await {
            Ok(reference) if reference.is_empty() => Err(format!("imageRef of image {image:?} is not set")),
            Ok(reference) => Ok(reference),
            Err(error) => Err(of_pull(error.in_go_words())),
        }
    }
}

/// The code `Unknown` adds nothing, and upstream leaves it out: what is left may begin with a word that says why.
fn of_pull(error: String) -> String {
    match error.strip_prefix("rpc error: code = Unknown desc = ") {
        Some(message) => message.to_owned(),
        None => error,
    }
}

/// An error without gRPC's code, as upstream shows it where it says why a container cannot be made.
pub(super) fn without_code(error: &str) -> &str {
    match error.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = ")) {
        Some((_, message)) => message,
        None => error,
    }
}

/// Several errors in one text, as Go's aggregates have it: each text once, in brackets where there is more than one.
pub(super) fn aggregated(errors: Vec<String>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        if !texts.contains(&error) {
            texts.push(error);
        }
    }
    match &mut texts[..] {
        [only] => std::mem::take(only),
        texts => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
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
        let said = |errors: &[&str]| aggregated(errors.iter().map(|error| (*error).to_owned()).collect());
        assert_eq!(said(&["a"]), "a");
        assert_eq!(said(&["a", "a"]), "a");
        assert_eq!(said(&["a", "b", "a"]), "[a, b]");
    }
}
