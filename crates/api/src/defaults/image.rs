//! Whether an image is pulled every time: it is where its reference names something that moves.

use crate::core::PullPolicy;
use crate::image_reference::ImageReference;

/// When to pull an image, by its reference. `latest` moves, and so does what names neither a tag nor a digest. A
/// reference that cannot be understood names nothing that could move; whether it is valid is not decided here.
pub(super) fn pull_policy(reference: &str) -> PullPolicy {
    match ImageReference::parse(reference).map(|reference| (reference.tag, reference.digest)) {
        Ok((Some("latest"), _) | (None, None)) => PullPolicy::Always,
        Ok((Some(_), _) | (None, Some(_))) | Err(_) => PullPolicy::IfNotPresent,
    }
}
