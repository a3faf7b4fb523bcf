//! What upstream's events say of a volume that failed: which step it was at.

use super::{PluginError, VolumeError};
use crate::expand::Moment;

/// What failed with a volume, which events have words for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Mount,
    /// It was to be a device.
    Map,
    /// It is there, and was to become larger.
    Resize,
    /// The node has no place for it: its pod belongs elsewhere.
    AttachmentLimit,
}

impl VolumeError {
    /// Whether its claim leads nowhere yet: nothing was asked of anybody who has volumes.
    pub fn is_of_claim(&self) -> bool {
        matches!(self.cause, PluginError::Claim(_))
    }

    pub fn kind(&self) -> FailureKind {
        told(self).0
    }
}

/// What failed, and the message of the event.
pub(super) fn told(error: &VolumeError) -> (FailureKind, String) {
    let VolumeError { volume, spec_name, cause } = error;
    let at = |step: &str| format!("{step} for volume \"{spec_name}\" : {cause}");
    match cause {
        PluginError::Claim(why) => (
            FailureKind::Mount,
            format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], \
                 failed to process volumes=[{volume}]: {why}"
            ),
        ),
        PluginError::NotAttached(_) => (
            FailureKind::Mount,
            format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[{volume}], \
                 failed to process volumes=[]: context deadline exceeded"
            ),
        ),
        PluginError::AttachmentLimit(_) => (
            FailureKind::AttachmentLimit,
            format!(
                "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{volume}], \
                 unattached volumes=[{volume}], failed to process volumes=[]: context deadline exceeded"
            ),
        ),
        PluginError::Check { check, .. } => (FailureKind::Mount, at(&format!("{check} check failed"))),
        PluginError::Attachment(_) => (FailureKind::Mount, at("MountVolume.WaitForAttach failed")),
        PluginError::LocalPath(_) => (FailureKind::Mount, at("MountVolume.NewMounter initialization failed")),
        PluginError::MountDevice(_) => (FailureKind::Mount, at("MountVolume.MountDevice failed")),
        PluginError::Expand { moment: Moment::Mount, .. } => {
            (FailureKind::Mount, at("MountVolume.Setup failed while expanding volume"))
        }
        PluginError::Expand { moment: Moment::Map, .. } => {
            (FailureKind::Map, at("MapVolume.MarkVolumeAsMounted failed while expanding volume"))
        }
        PluginError::Expand { moment: Moment::InUse, .. } => {
            (FailureKind::Resize, at("NodeExpandVolume.NodeExpandVolume failed"))
        }
        PluginError::Map { step, .. } => (FailureKind::Map, at(&format!("MapVolume.{step} failed"))),
        PluginError::Kind { .. }
        | PluginError::Refused { .. }
        | PluginError::GitRepo
        | PluginError::NoSource
        | PluginError::LocalBacksteps(_)
        | PluginError::LocalDevice { .. }
        | PluginError::Tool(_)
        | PluginError::NoDriver(_)
        | PluginError::InUse
        | PluginError::OtherLabel(_)
        | PluginError::Labels(_)
        | PluginError::NoLabel(_)
        | PluginError::Csi(_)
        | PluginError::Group { .. }
        | PluginError::Tokens(_)
        | PluginError::NotSupported { .. }
        | PluginError::NotDevice(_)
        | PluginError::LoopDevice(_)
        | PluginError::Left(_)
        | PluginError::StillMounted { .. }
        | PluginError::CsiDriverObject(_)
        | PluginError::CsiMode(_)
        | PluginError::CsiSecret(_)
        | PluginError::VolumeData(_)
        | PluginError::Name { .. }
        | PluginError::HostPathBacksteps(_)
        | PluginError::HostPathType { .. }
        | PluginError::HostPathUnknownType(_)
        | PluginError::Medium(_)
        | PluginError::NoHugePages(_)
        | PluginError::SeveralHugePages(_)
        | PluginError::HugePageSize(_)
        | PluginError::OtherHugePages { .. }
        | PluginError::OtherMount { .. }
        | PluginError::NoDefaultMode
        | PluginError::Downward(_)
        | PluginError::Object { .. }
        | PluginError::NoKey { .. }
        | PluginError::Token(_)
        | PluginError::TrustAnchors { .. }
        | PluginError::Certificate(_)
        | PluginError::NoClient { .. }
        | PluginError::Sources(_)
        | PluginError::Payload(_)
        | PluginError::MountPoint(_)
        | PluginError::Mount(_)
        | PluginError::File(_)
        | PluginError::MountTable(_)
        | PluginError::TimedOut(_)
        | PluginError::Busy(_)
        | PluginError::Panicked => (FailureKind::Mount, at("MountVolume.SetUp failed")),
    }
}
