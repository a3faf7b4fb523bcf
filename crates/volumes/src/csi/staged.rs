//! A volume on the node, whoever uses it there.

use super::vol_data::VolumeData;

/// A volume that is, or may be, staged: its driver and what the driver calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Staged {
    pub(super) driver: String,
    pub(super) handle: String,
    /// The name of the piece of storage, if it is a device: its directories are called so.
    pub(super) device: Option<String>,
}

impl Staged {
    pub(super) fn of(data: &VolumeData) -> Staged {
        Staged { driver: data.driver_name.clone(), handle: data.volume_handle.clone(), device: None }
    }

    pub(super) fn device(data: &VolumeData, name: &str) -> Staged {
        Staged { device: Some(name.to_owned()), ..Staged::of(data) }
    }

    /// No two of the same key are in the same directory.
    pub(super) fn key(&self) -> String {
        match &self.device {
            Some(name) => name.clone(),
            None => format!("{}^{}", self.driver, self.handle),
        }
    }

    /// Whether it is the same to whoever attaches it, be it with files or a device.
    pub(super) fn is_same_volume(&self, other: &Staged) -> bool {
        (&self.driver, &self.handle) == (&other.driver, &other.handle)
    }

    /// What the node's object calls it.
    pub(super) fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^{}", self.driver, self.handle)
    }
}
