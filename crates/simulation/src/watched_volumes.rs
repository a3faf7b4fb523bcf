//! The volumes as the agent sees them, with somebody looking over its shoulder.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::Pod;
use crablet_core::translate::{MountedVolume, NodeContext};
use crablet_volumes::{
    SimulatedVolumes, SubPath, SubPathError, TearDownError, VolumeError, VolumeFile, Volumes,
};

use crate::invariants::{Doing, check_call};
use crate::ledger::Ledger;
use crate::lies::Lie;
use crate::storage::Storage;

/// Volumes, watched.
pub struct WatchedVolumes {
    inner: SimulatedVolumes,
    storage: Option<Arc<Storage>>,
    ledger: Arc<Ledger>,
    lie: Option<Lie>,
}

impl WatchedVolumes {
    /// Watches volumes, of which a lie may be told.
    pub fn new(
        inner: SimulatedVolumes,
        storage: Option<Arc<Storage>>,
        ledger: Arc<Ledger>,
        lie: Option<Lie>,
    ) -> WatchedVolumes {
        WatchedVolumes { inner, storage, ledger, lie }
    }
}

#[async_trait]
impl Volumes for WatchedVolumes {
    async fn set_up(
        &self,
        pod: &Pod,
        node: &NodeContext,
    ) -> Result<BTreeMap<String, MountedVolume>, Vec<VolumeError>> {
        if self.lie == Some(Lie::VolumesAreKept) {
            let _ = self.tear_down(&pod.metadata.uid).await;
        }
        let done = self.inner.set_up(pod, node).await;
        let how = if done.is_ok() { "ok" } else { "failed" };
        self.ledger.trace.note(format_args!("    set up volumes of {}: {how}", pod.metadata.uid));
        done
    }

    async fn refresh(&self, pod: &Pod, node: &NodeContext) -> Result<(), Vec<VolumeError>> {
        self.inner.refresh(pod, node).await
    }

    fn groups(&self, uid: &str) -> Vec<i64> {
        self.inner.groups(uid)
    }

    async fn sub_path(&self, wanted: &SubPath) -> Result<String, SubPathError> {
        self.inner.sub_path(wanted).await
    }

    async fn read(&self, file: &VolumeFile, limit: usize) -> std::io::Result<Vec<u8>> {
        self.inner.read(file, limit).await
    }

    async fn tear_down(&self, uid: &str) -> Result<(), TearDownError> {
        let words = check_call(&self.ledger, &Doing::TearDownVolumes { uid });
        let done = self.inner.tear_down(uid).await;
        if let Some(storage) = self.storage.as_ref().filter(|_| done.is_ok()) {
            storage.remove_pod(&self.ledger, uid);
        }
        let how = if done.is_ok() { "ok" } else { "failed" };
        self.ledger.trace.note(format_args!("    {words}: {how}"));
        done
    }
}
