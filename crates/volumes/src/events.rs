//! What happens to volumes that is no failure of setting one up, and that people are told of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_api::core::PersistentVolumeClaim;

/// How many are kept for a pod until its worker asks.
const MOST: usize = 32;

/// Something that happened to a volume of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeEvent {
    pub what: Occurrence,
    /// Upstream's message.
    pub message: String,
    /// The claim that it happened to as well, if it did.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence {
    /// A pod got a device.
    Mapped,
    /// Files belong to another group than the pod's, and stay so.
    OtherGroup,
    /// A driver made a volume larger.
    Resized,
    /// A volume is not made larger where it is only read.
    NotResized,
    /// A driver says that something is wrong with a volume.
    Abnormal,
}

/// What happened to the volumes of pods, by their UIDs, until somebody asks. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<Mutex<BTreeMap<String, Vec<VolumeEvent>>>>);

impl Events {
    pub(crate) fn push(&self, uid: &str, event: VolumeEvent) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pod = events.entry(uid.to_owned()).or_default();
        if of_pod.len() < MOST {
            of_pod.push(event);
        }
    }

    pub(crate) fn take(&self, uid: &str) -> Vec<VolumeEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid).unwrap_or_default()
    }
}
