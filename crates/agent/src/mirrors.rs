//! The mirrors that an API server has of the node's static pods. An agent that begins may learn from them what another
//! kubelet told of such a pod last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_core::labels::{CONFIG_HASH, CONFIG_MIRROR};
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

/// How long static pods that run when the agent begins wait for what the API server shows of them, from when the first
/// of them asks.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// Pods by namespace and name.
pub type ByName = BTreeMap<(Text, Text), Arc<Pod>>;

/// What an API server has of the node's static pods: nothing before its first complete list.
pub type ServerMirrors = Option<Mirrors>;

/// The mirrors that an API server has.
#[derive(Clone, Debug)]
pub struct Mirrors {
    pub pods: Arc<ByName>,
    /// How often it has said all that it has: what was known before may not be so any more.
    pub lists: u64,
    /// The newest version of one that its watch has told of, be it that it is gone.
    pub told: Option<u64>,
}

/// Whether a mirror shows a static pod as it is.
pub fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    let hash = |pod: &Pod, name: &str| pod.metadata.annotations.get(name).cloned();
    mirror.metadata.deletion_timestamp.is_none() && hash(mirror, CONFIG_MIRROR) == hash(pod, CONFIG_HASH)
}

/// What the API server showed when the agent began. Without an API server that is nothing, at once.
pub(crate) struct FirstMirrors {
    mirrors: watch::Receiver<ServerMirrors>,
    /// Those who wait for it go on in the order in which they came, so that a simulated run replays.
    shown: OnceCell<Option<Arc<ByName>>>,
}

impl FirstMirrors {
    pub(crate) fn new(mirrors: watch::Receiver<ServerMirrors>) -> FirstMirrors {
        FirstMirrors { mirrors, shown: OnceCell::new() }
    }

    /// The mirror of a static pod. A server that does not answer is not waited for long: it may be a static pod itself.
    pub(crate) async fn of(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let shown = self.shown.get_or_init(|| async {
            let mut mirrors = self.mirrors.clone();
            let known = timeout(SHOWN_WITHIN, mirrors.wait_for(Option::is_some)).await.ok()?.ok()?;
            known.as_ref().map(|known| Arc::clone(&known.pods))
        });
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let mirror = shown.await.as_ref()?.get(&name)?;
        is_mirror_of(mirror, pod).then(|| Arc::clone(mirror))
    }
}
