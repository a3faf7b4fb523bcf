//! [`Driver`]: a CSI driver behind its socket.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::connection::{ANSWER_LIMIT, Connection};
use crate::error::Result;
use crate::node::{ExpandVolume, Node, NodeCapabilities, NodeInfo, PublishVolume, StageVolume, VolumeStats};
use crate::v1;
use crate::v1::node_client::NodeClient;

/// How long a driver has for an answer.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A CSI driver behind its socket. Clones share their connection.
#[derive(Debug, Clone)]
pub struct Driver {
    connection: Connection,
    timeout: Duration,
}

impl Driver {
    /// The driver that listens on a unix socket. Nothing is opened yet: the first call does that, and so does the first
    /// one after the connection was lost. Must be called within a tokio runtime.
    pub fn new(endpoint: &Path) -> Driver {
        Driver { connection: Connection::new(endpoint), timeout: TIMEOUT }
    }

    /// The same with another time for each answer.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Driver {
        Driver { timeout, ..self }
    }

    fn node(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(self.connection.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }
}

#[async_trait]
impl Node for Driver {
    async fn info(&self) -> Result<NodeInfo> {
        let (mut node, question) = (self.node(), v1::NodeGetInfoRequest::default());
        let ask = |request| async move { node.node_get_info(request).await };
        Ok(self.connection.call(self.timeout, question, ask).await?.into())
    }

    async fn capabilities(&self) -> Result<NodeCapabilities> {
        let (mut node, question) = (self.node(), v1::NodeGetCapabilitiesRequest::default());
        let ask = |request| async move { node.node_get_capabilities(request).await };
        Ok(self.connection.call(self.timeout, question, ask).await?.into())
    }

    async fn stage(&self, volume: StageVolume) -> Result<()> {
        let (mut node, question) = (self.node(), v1::NodeStageVolumeRequest::from(volume));
        let ask = |request| async move { node.node_stage_volume(request).await };
        self.connection.call(self.timeout, question, ask).await.map(|_| ())
    }

    async fn unstage(&self, volume_id: &str, staging_target_path: &str) -> Result<()> {
        let mut node = self.node();
        let question = v1::NodeUnstageVolumeRequest {
            volume_id: volume_id.to_owned(),
            staging_target_path: staging_target_path.to_owned(),
        };
        let ask = |request| async move { node.node_unstage_volume(request).await };
        self.connection.call(self.timeout, question, ask).await.map(|_| ())
    }

    async fn publish(&self, volume: PublishVolume) -> Result<()> {
        let (mut node, question) = (self.node(), v1::NodePublishVolumeRequest::from(volume));
        let ask = |request| async move { node.node_publish_volume(request).await };
        self.connection.call(self.timeout, question, ask).await.map(|_| ())
    }

    async fn unpublish(&self, volume_id: &str, target_path: &str) -> Result<()> {
        let mut node = self.node();
        let question = v1::NodeUnpublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            target_path: target_path.to_owned(),
        };
        let ask = |request| async move { node.node_unpublish_volume(request).await };
        self.connection.call(self.timeout, question, ask).await.map(|_| ())
    }

    async fn stats(&self, volume_id: &str, volume_path: &str) -> Result<VolumeStats> {
        let mut node = self.node();
        let question = v1::NodeGetVolumeStatsRequest {
            volume_id: volume_id.to_owned(),
            volume_path: volume_path.to_owned(),
            staging_target_path: String::new(),
        };
        let ask = |request| async move { node.node_get_volume_stats(request).await };
        Ok(self.connection.call(self.timeout, question, ask).await?.into())
    }

    async fn expand(&self, volume: ExpandVolume) -> Result<i64> {
        let (mut node, question) = (self.node(), v1::NodeExpandVolumeRequest::from(volume));
        let ask = |request| async move { node.node_expand_volume(request).await };
        Ok(self.connection.call(self.timeout, question, ask).await?.capacity_bytes)
    }
}
