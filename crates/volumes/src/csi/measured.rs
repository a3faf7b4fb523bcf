//! A driver whose answers are timed.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use crablet_csi::{
    ExpandVolume, Node, NodeCapabilities, NodeInfo, PublishVolume, Result, StageVolume, VolumeStats,
};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// A driver, and where it is told how long its answers take, if that is told.
pub(super) struct Measured {
    pub(super) driver: String,
    pub(super) node: Arc<dyn Node>,
    pub(super) metrics: Arc<OnceLock<Arc<Metrics>>>,
}

impl Measured {
    async fn timed<T>(&self, method: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let answer = call.await;
        if let Some(metrics) = self.metrics.get() {
            let code = answer.as_ref().map_or_else(|error| error.code_name(), |_| "OK");
            metrics.of_driver(&self.driver, &format!("/csi.v1.Node/{method}"), code, began.elapsed());
        }
        answer
    }
}

#[async_trait]
impl Node for Measured {
    async fn info(&self) -> Result<NodeInfo> {
        self.timed("NodeGetInfo", self.node.info()).await
    }

    async fn capabilities(&self) -> Result<NodeCapabilities> {
        self.timed("NodeGetCapabilities", self.node.capabilities()).await
    }

    async fn stage(&self, volume: StageVolume) -> Result<()> {
        self.timed("NodeStageVolume", self.node.stage(volume)).await
    }

    async fn unstage(&self, volume_id: &str, staging_target_path: &str) -> Result<()> {
        self.timed("NodeUnstageVolume", self.node.unstage(volume_id, staging_target_path)).await
    }

    async fn publish(&self, volume: PublishVolume) -> Result<()> {
        self.timed("NodePublishVolume", self.node.publish(volume)).await
    }

    async fn unpublish(&self, volume_id: &str, target_path: &str) -> Result<()> {
        self.timed("NodeUnpublishVolume", self.node.unpublish(volume_id, target_path)).await
    }

    async fn stats(&self, volume_id: &str, volume_path: &str) -> Result<VolumeStats> {
        self.timed("NodeGetVolumeStats", self.node.stats(volume_id, volume_path)).await
    }

    async fn expand(&self, volume: ExpandVolume) -> Result<i64> {
        self.timed("NodeExpandVolume", self.node.expand(volume)).await
    }
}
