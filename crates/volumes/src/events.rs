//! What happens to volumes that is no failure of setting one up, and that people are told of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::core::PersistentVolumeClaim;
use tokio::sync::Notify;

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
    /// A volume was made larger.
    Resized,
    /// A volume is not made larger where it is only read.
    NotResized,
    /// A driver says that something is wrong with a volume.
    Abnormal,
    /// It takes long to give a volume's files to the pod's group.
    GroupTakesLong,
}

/// What happened to the volumes of pods, by their UIDs, until somebody asks. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    of_pods: Mutex<BTreeMap<String, Vec<VolumeEvent>>>,
    news: Notify,
}

impl Events {
    pub(crate) fn push(&self, uid: &str, event: VolumeEvent) {
        let mut events = self.lock();
        let of_pod = events.entry(uid.to_owned()).or_default();
        if of_pod.len() < MOST {
            of_pod.push(event);
        }
        drop(events);
        self.0.news.notify_waiters();
    }

    /// Waits until something has happened to the volumes of a pod that nobody has asked for yet.
    pub(crate) async fn come(&self, uid: &str) {
        loop {
            // It counts what happens from here on, looked at or not.
            let news = self.0.news.notified();
            if self.lock().contains_key(uid) {
                return;
            }
            news.await;
        }
    }

    pub(crate) fn take(&self, uid: &str) -> Vec<VolumeEvent> {
        self.lock().remove(uid).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<VolumeEvent>>> {
        self.0.of_pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_waits_hears_of_its_own_pod_alone_and_until_somebody_has_asked() {
        let events = Events::default();
        let event = VolumeEvent { what: Occurrence::GroupTakesLong, message: "slow".to_owned(), claim: None };
        let mut waits = Box::pin(events.come("a"));
        assert!(waits.as_mut().now_or_never().is_none());
        events.push("b", event.clone());
        assert!(waits.as_mut().now_or_never().is_none());
        events.push("a", event.clone());
        waits.await;
        events.come("a").await;
        assert_eq!(events.take("a"), [event]);
        assert!(events.come("a").now_or_never().is_none());
    }
}
