//! What a kubelet asks of a driver, in plain types.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::error::Result;
use crate::v1;
use crate::v1::node_service_capability::rpc::Type as Rpc;
use crate::v1::volume_capability::AccessType;

/// A driver's node service. Every call ends: by an answer, an error, or its deadline. One that is dropped is
/// *uncertain*, as after an error that is not [final](crate::Error::is_final).
#[async_trait]
pub trait Node: Send + Sync {
    /// `NodeGetInfo`.
    async fn info(&self) -> Result<NodeInfo>;
    /// `NodeGetCapabilities`.
    async fn capabilities(&self) -> Result<NodeCapabilities>;
    /// `NodeStageVolume`.
    async fn stage(&self, volume: StageVolume) -> Result<()>;
    /// `NodeUnstageVolume`.
    async fn unstage(&self, volume_id: &str, staging_target_path: &str) -> Result<()>;
    /// `NodePublishVolume`.
    async fn publish(&self, volume: PublishVolume) -> Result<()>;
    /// `NodeUnpublishVolume`.
    async fn unpublish(&self, volume_id: &str, target_path: &str) -> Result<()>;
    /// `NodeGetVolumeStats`.
    async fn stats(&self, volume_id: &str, volume_path: &str) -> Result<VolumeStats>;
    /// `NodeExpandVolume`: how many bytes the volume has then.
    async fn expand(&self, volume: ExpandVolume) -> Result<i64>;
}

/// What a driver says of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    pub node_id: String,
    /// How many of its volumes the node can have; zero or less where there is no limit.
    pub max_volumes_per_node: i64,
    /// Where the node is; none where the driver does not tell.
    pub accessible_topology: Option<BTreeMap<String, String>>,
}

impl NodeInfo {
    /// What the driver says of where the node is that a label of the node denies, in upstream's words.
    pub fn collision<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        self.accessible_topology.iter().flatten().find_map(|(key, value)| {
            let known = label(key).filter(|known| known != value)?;
            Some(format!(
                "detected topology value collision: driver reported {key:?}:{value:?} but existing label is \
                 {key:?}:{known:?}"
            ))
        })
    }
}

/// What a driver's node service can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCapabilities {
    pub stage_unstage_volume: bool,
    pub get_volume_stats: bool,
    pub expand_volume: bool,
    pub volume_condition: bool,
    pub single_node_multi_writer: bool,
    pub volume_mount_group: bool,
}

/// A volume to stage.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StageVolume {
    pub volume_id: String,
    pub staging_target_path: String,
    pub capability: VolumeCapability,
    pub publish_context: BTreeMap<String, String>,
    pub volume_context: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
}

/// A volume to publish.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PublishVolume {
    pub volume_id: String,
    /// Empty for a driver that does not stage.
    pub staging_target_path: String,
    pub target_path: String,
    pub capability: VolumeCapability,
    pub read_only: bool,
    pub publish_context: BTreeMap<String, String>,
    pub volume_context: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
}

/// A volume to expand.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExpandVolume {
    pub volume_id: String,
    pub volume_path: String,
    /// Empty for a driver that does not stage.
    pub staging_target_path: String,
    pub required_bytes: i64,
    pub capability: VolumeCapability,
    pub secrets: BTreeMap<String, String>,
}

/// What a volume is to be used as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeCapability {
    pub access: Access,
    pub access_mode: AccessMode,
}

/// What a container sees of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// A device.
    Block,
    /// A directory.
    Mount {
        /// Empty for the driver's choice.
        fs_type: String,
        mount_flags: Vec<String>,
        /// The group that the driver makes the volume's files belong to.
        volume_mount_group: Option<i64>,
    },
}

/// A directory of the driver's choice.
impl Default for Access {
    fn default() -> Access {
        Access::Mount { fs_type: String::new(), mount_flags: Vec::new(), volume_mount_group: None }
    }
}

/// Who may use a volume at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessMode {
    #[default]
    Unknown,
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    /// What an access mode of a persistent volume, such as `ReadWriteOnce`, is for a driver.
    pub fn of_persistent_volume(access_mode: &str, capabilities: NodeCapabilities) -> AccessMode {
        match (access_mode, capabilities.single_node_multi_writer) {
            ("ReadWriteOnce", true) => AccessMode::SingleNodeMultiWriter,
            ("ReadWriteOncePod", true) => AccessMode::SingleNodeSingleWriter,
            ("ReadWriteOnce" | "ReadWriteOncePod", false) => AccessMode::SingleNodeWriter,
            ("ReadOnlyMany", _) => AccessMode::MultiNodeReaderOnly,
            ("ReadWriteMany", _) => AccessMode::MultiNodeMultiWriter,
            (_, _) => AccessMode::Unknown,
        }
    }
}

/// What a driver says of a volume that is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeStats {
    pub bytes: Option<Usage>,
    pub inodes: Option<Usage>,
    /// Only drivers that can tell do.
    pub condition: Option<VolumeCondition>,
}

/// How much of something there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub available: i64,
    pub total: i64,
    pub used: i64,
}

/// How a volume is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeCondition {
    pub abnormal: bool,
    pub message: String,
}

impl From<v1::NodeGetInfoResponse> for NodeInfo {
    fn from(info: v1::NodeGetInfoResponse) -> NodeInfo {
        NodeInfo {
            node_id: info.node_id,
            max_volumes_per_node: info.max_volumes_per_node,
            accessible_topology: info.accessible_topology.map(|topology| topology.segments),
        }
    }
}

impl From<v1::NodeGetCapabilitiesResponse> for NodeCapabilities {
    fn from(response: v1::NodeGetCapabilitiesResponse) -> NodeCapabilities {
        let mut capabilities = NodeCapabilities::default();
        for capability in response.capabilities {
            let Some(v1::node_service_capability::Type::Rpc(rpc)) = capability.r#type else { continue };
            match rpc.r#type() {
                Rpc::Unknown => {}
                Rpc::StageUnstageVolume => capabilities.stage_unstage_volume = true,
                Rpc::GetVolumeStats => capabilities.get_volume_stats = true,
                Rpc::ExpandVolume => capabilities.expand_volume = true,
                Rpc::VolumeCondition => capabilities.volume_condition = true,
                Rpc::SingleNodeMultiWriter => capabilities.single_node_multi_writer = true,
                Rpc::VolumeMountGroup => capabilities.volume_mount_group = true,
            }
        }
        capabilities
    }
}

impl From<StageVolume> for v1::NodeStageVolumeRequest {
    fn from(volume: StageVolume) -> v1::NodeStageVolumeRequest {
        v1::NodeStageVolumeRequest {
            volume_id: volume.volume_id,
            publish_context: volume.publish_context,
            staging_target_path: volume.staging_target_path,
            volume_capability: Some(volume.capability.into()),
            secrets: volume.secrets,
            volume_context: volume.volume_context,
        }
    }
}

impl From<PublishVolume> for v1::NodePublishVolumeRequest {
    fn from(volume: PublishVolume) -> v1::NodePublishVolumeRequest {
        v1::NodePublishVolumeRequest {
            volume_id: volume.volume_id,
            publish_context: volume.publish_context,
            staging_target_path: volume.staging_target_path,
            target_path: volume.target_path,
            volume_capability: Some(volume.capability.into()),
            readonly: volume.read_only,
            secrets: volume.secrets,
            volume_context: volume.volume_context,
        }
    }
}

impl From<ExpandVolume> for v1::NodeExpandVolumeRequest {
    fn from(volume: ExpandVolume) -> v1::NodeExpandVolumeRequest {
        v1::NodeExpandVolumeRequest {
            volume_id: volume.volume_id,
            volume_path: volume.volume_path,
            capacity_range: Some(v1::CapacityRange { required_bytes: volume.required_bytes, limit_bytes: 0 }),
            staging_target_path: volume.staging_target_path,
            volume_capability: Some(volume.capability.into()),
            secrets: volume.secrets,
        }
    }
}

impl From<VolumeCapability> for v1::VolumeCapability {
    fn from(capability: VolumeCapability) -> v1::VolumeCapability {
        let access_type = match capability.access {
            Access::Block => AccessType::Block(v1::volume_capability::BlockVolume {}),
            Access::Mount { fs_type, mount_flags, volume_mount_group } => {
                let volume_mount_group =
                    volume_mount_group.map(|group| group.to_string()).unwrap_or_default();
                let mount = v1::volume_capability::MountVolume { fs_type, mount_flags, volume_mount_group };
                AccessType::Mount(mount)
            }
        };
        let mode = v1::volume_capability::access_mode::Mode::from(capability.access_mode);
        v1::VolumeCapability {
            access_mode: Some(v1::volume_capability::AccessMode { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }
}

impl From<AccessMode> for v1::volume_capability::access_mode::Mode {
    fn from(mode: AccessMode) -> v1::volume_capability::access_mode::Mode {
        use v1::volume_capability::access_mode::Mode;
        match mode {
            AccessMode::Unknown => Mode::Unknown,
            AccessMode::SingleNodeWriter => Mode::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
        }
    }
}

/// Of several usages in one unit the last counts, as upstream has it.
impl From<v1::NodeGetVolumeStatsResponse> for VolumeStats {
    fn from(response: v1::NodeGetVolumeStatsResponse) -> VolumeStats {
        let mut stats = VolumeStats {
            condition: response.volume_condition.map(|condition| VolumeCondition {
                abnormal: condition.abnormal,
                message: condition.message,
            }),
            ..VolumeStats::default()
        };
        for usage in response.usage {
            let amount = Usage { available: usage.available, total: usage.total, used: usage.used };
            match usage.unit() {
                v1::volume_usage::Unit::Unknown => {}
                v1::volume_usage::Unit::Bytes => stats.bytes = Some(amount),
                v1::volume_usage::Unit::Inodes => stats.inodes = Some(amount),
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_mode_depends_on_whether_the_driver_tells_writers_on_one_node_apart() {
        let modes = ["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany", "Other"];
        let of = |capabilities| modes.map(|mode| AccessMode::of_persistent_volume(mode, capabilities));
        let able = NodeCapabilities { single_node_multi_writer: true, ..NodeCapabilities::default() };
        use AccessMode::*;
        assert_eq!(
            of(NodeCapabilities::default()),
            [SingleNodeWriter, SingleNodeWriter, MultiNodeReaderOnly, MultiNodeMultiWriter, Unknown]
        );
        assert_eq!(
            of(able),
            [
                SingleNodeMultiWriter,
                SingleNodeSingleWriter,
                MultiNodeReaderOnly,
                MultiNodeMultiWriter,
                Unknown
            ]
        );
    }
}
