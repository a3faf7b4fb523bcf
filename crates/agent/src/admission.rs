//! Which pods the node takes: one owner of what has been granted to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_api::core::{Node, Pod};
use crablet_core::admission::{Input, Rejection, admit};
use crablet_core::features::Features;

/// The owner. Clones are the same.
#[derive(Debug, Clone)]
pub struct Admission {
    node: Arc<Node>,
    features: Features,
    granted: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
}

impl Admission {
    /// Nothing has been granted yet. The node is described as the API server would show it.
    pub fn new(node: Node, features: Features) -> Admission {
        Admission { node: Arc::new(node), features, granted: Arc::default() }
    }

    /// Decides whether the node takes a pod, and grants it what it asks for.
    pub fn admit(&self, pod: &Arc<Pod>) -> Result<(), Rejection> {
        let mut granted = self.granted();
        let others: Vec<&Pod> =
            granted.iter().filter(|(uid, _)| **uid != *pod.metadata.uid).map(|(_, pod)| &**pod).collect();
        admit(&Input { pod, node: &self.node, others: &others, features: &self.features })?;
        granted.insert(pod.metadata.uid.to_string(), Arc::clone(pod));
        Ok(())
    }

    /// Grants without asking: for a pod whose containers run already.
    pub fn take_over(&self, pod: &Arc<Pod>) {
        self.granted().insert(pod.metadata.uid.to_string(), Arc::clone(pod));
    }

    /// Takes back what was granted.
    pub fn release(&self, uid: &str) {
        self.granted().remove(uid);
    }

    fn granted(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Pod>>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
