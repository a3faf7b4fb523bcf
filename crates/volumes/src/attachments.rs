//! Volumes that somebody attaches to the node before they are mounted: which of them the node uses, and what the API
//! server has of that.
//!
//! ```text
//!   Csi ──uses──► in_use ──► the node's object: volumesInUse ──► whoever attaches
//!    ▲                                                               │
//!    └──attached── AtServer ◄── the node's object: volumesAttached ◄─┘
//! ```
//!
//! What is in use is told before it is mounted: nobody detaches it then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_api::core::Node;
use crablet_api::{Map, Text};
use crablet_csi::NodeInfo;
use tokio::sync::watch;

/// What is between volumes and the node's object. Clones are the same.
#[derive(Clone, Default)]
pub struct Attachments(Arc<Inner>);

#[derive(Default)]
struct Inner {
    in_use: watch::Sender<BTreeSet<Text>>,
    at_server: watch::Sender<AtServer>,
    /// How the node is labelled there.
    labels: Mutex<Map<Text>>,
}

/// What the API server has.
#[derive(Default, PartialEq, Eq)]
struct AtServer {
    in_use: BTreeSet<Text>,
    attached: BTreeSet<Text>,
}

impl Attachments {
    /// The volumes that the node uses, by upstream's names for them.
    pub fn in_use(&self) -> watch::Receiver<BTreeSet<Text>> {
        self.0.in_use.subscribe()
    }

    /// Takes note of the node's object as the API server has it.
    pub fn note(&self, node: &Node) {
        let now = AtServer {
            in_use: node.status.volumes_in_use.iter().cloned().collect(),
            attached: node.status.volumes_attached.iter().map(|volume| volume.name.clone()).collect(),
        };
        self.0.labels.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&node.metadata.labels);
        self.0.at_server.send_if_modified(|known| {
            let is_other = *known != now;
            *known = now;
            is_other
        });
    }

    /// What a driver says of where the node is that a label of the node denies, in upstream's words.
    pub(crate) fn collision(&self, info: &NodeInfo) -> Option<String> {
        let labels = self.0.labels.lock().unwrap_or_else(PoisonError::into_inner);
        info.collision(|key| labels.get(key).map(|label| &**label))
    }

    pub(crate) fn uses(&self, volume: &str) {
        self.0.in_use.send_if_modified(|in_use| in_use.insert(volume.into()));
    }

    pub(crate) fn uses_no_more(&self, volume: &str) {
        self.0.in_use.send_if_modified(|in_use| in_use.remove(volume));
        // Who uses it again waits until the server has heard of that, whatever it knew before.
        self.0.at_server.send_if_modified(|known| known.in_use.remove(volume));
    }

    /// Waits until the API server knows that the node uses a volume, and says that it is attached.
    pub(crate) async fn attached(&self, volume: &str) {
        let is_so = |known: &AtServer| known.in_use.contains(volume) && known.attached.contains(volume);
        // The sender is here as well, so that this never ends by an error.
        let _ = self.0.at_server.subscribe().wait_for(is_so).await;
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::core::AttachedVolume;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_volume_is_attached_when_the_server_knows_both() {
        let (attachments, mut node) = (Attachments::default(), Node::default());
        let is_attached = || attachments.attached("v").now_or_never().is_some();
        attachments.uses("v");
        assert_eq!(attachments.in_use().borrow().len(), 1);
        node.status.volumes_attached =
            [AttachedVolume { name: "v".into(), ..AttachedVolume::default() }].into();
        attachments.note(&node);
        assert!(!is_attached(), "it may be on its way off");
        node.status.volumes_in_use = ["v".into()].into();
        attachments.note(&node);
        assert!(is_attached());
        let attached = std::mem::take(&mut node.status.volumes_attached);
        attachments.note(&node);
        assert!(!is_attached());
        node.status.volumes_attached = attached;
        attachments.note(&node);
        attachments.uses_no_more("v");
        assert!(attachments.in_use().borrow().is_empty());
        attachments.uses("v");
        assert!(!is_attached(), "the server is about to hear that it is not in use");
    }
}
