//! `Debug` of what can hold a secret: it says that something is there, and not what.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::{ExpandVolume, PublishVolume, StageVolume};
use crate::v1;

/// Where the tokens of a pod's service account are in a volume's context.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Secrets by their keys alone.
struct Hidden<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, "<hidden>"))).finish()
    }
}

/// A volume's context, in which tokens are hidden.
struct Context<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(key, value): (&'_ String, &'_ String)| match key == TOKENS {
            true => (key.clone(), "<hidden>".to_owned()),
            false => (key.clone(), value.clone()),
        };
        f.debug_map().entries(self.0.iter().map(shown)).finish()
    }
}

impl fmt::Debug for StageVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageVolume")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("capability", &self.capability)
            .field("publish_context", &self.publish_context)
            .field("volume_context", &Context(&self.volume_context))
            .field("secrets", &Hidden(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for PublishVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishVolume")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("capability", &self.capability)
            .field("read_only", &self.read_only)
            .field("publish_context", &self.publish_context)
            .field("volume_context", &Context(&self.volume_context))
            .field("secrets", &Hidden(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for ExpandVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpandVolume")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("staging_target_path", &self.staging_target_path)
            .field("required_bytes", &self.required_bytes)
            .field("capability", &self.capability)
            .field("secrets", &Hidden(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for v1::NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("secrets", &Hidden(&self.secrets))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for v1::NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("target_path", &self.target_path)
            .field("secrets", &Hidden(&self.secrets))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for v1::NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("secrets", &Hidden(&self.secrets))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_a_log_shows_no_secret() {
        let map = |key: &str| BTreeMap::from([(key.to_owned(), "hunter2".to_owned())]);
        let stage = StageVolume {
            volume_id: "vol".to_owned(),
            secrets: map("password"),
            volume_context: map(TOKENS),
            ..StageVolume::default()
        };
        let publish = PublishVolume {
            volume_id: "vol".to_owned(),
            secrets: map("password"),
            volume_context: map(TOKENS),
            ..PublishVolume::default()
        };
        let expand =
            ExpandVolume { volume_id: "vol".to_owned(), secrets: map("password"), ..ExpandVolume::default() };
        let plain = format!("{stage:?} {publish:?} {expand:?}");
        let messages = format!(
            "{:?} {:?} {:?}",
            v1::NodeStageVolumeRequest::from(stage),
            v1::NodePublishVolumeRequest::from(publish),
            v1::NodeExpandVolumeRequest::from(expand)
        );
        for text in [plain, messages] {
            assert!(text.matches("password").count() == 3 && text.contains("vol"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
