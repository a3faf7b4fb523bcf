//! One piece of work at a time for each pod: what was given up and still goes on in its thread is waited for, and no pod
//! waits for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// For each pod, whether somebody works on something of its.
#[derive(Debug, Default)]
pub struct Lanes(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// The right to work on a pod. It ends with its last clone.
#[derive(Debug, Clone)]
pub struct Lane(#[expect(dead_code, reason = "held, not read")] Arc<OwnedMutexGuard<()>>);

impl Lanes {
    /// Waits for the work that others do on this pod.
    pub async fn enter(&self, uid: &str) -> Lane {
        Lane(Arc::new(self.of(uid).lock_owned().await))
    }

    fn of(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Pods that nobody works on need no entry: whoever works or waits has a second hold.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        Arc::clone(lanes.entry(uid.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_for_itself_and_for_no_other() {
        let lanes = Lanes::default();
        let one = lanes.enter("one").await;
        let clone = one.clone();
        drop(one);
        let _two = lanes.enter("two").await;
        assert!(timeout(Duration::from_secs(9), lanes.enter("one")).await.is_err());
        drop(clone);
        drop(lanes.enter("one").await);
        let _three = lanes.enter("three").await;
        assert_eq!(lanes.0.lock().unwrap().len(), 2, "pods without work are forgotten");
    }
}
