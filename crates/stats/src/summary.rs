//! The form of `/stats/summary`: upstream's `stats/v1alpha1`, in its order.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

#[derive(Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) node: NodeStats,
    pub(crate) pods: Vec<PodStats>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeStats {
    pub(crate) node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) system_containers: Vec<ContainerStats>,
    pub(crate) start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<CpuStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<NetworkStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rlimit: Option<RlimitStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swap: Option<SwapStats>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuntimeStats {
    pub(crate) image_fs: FsStats,
    pub(crate) container_fs: FsStats,
}

#[derive(Debug, Serialize)]
pub(crate) struct RlimitStats {
    pub(crate) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maxpid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) curproc: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodStats {
    pub(crate) pod_ref: PodReference,
    pub(crate) start_time: Option<Time>,
    pub(crate) containers: Vec<ContainerStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<CpuStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<NetworkStats>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) volume: Vec<VolumeStats>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub(crate) ephemeral_storage: Option<FsStats>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub(crate) process_stats: Option<ProcessStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swap: Option<SwapStats>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct PodReference {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStats {
    pub(crate) name: String,
    pub(crate) start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<CpuStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<MemoryStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rootfs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swap: Option<SwapStats>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CpuStats {
    pub(crate) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_nano_cores: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_core_nano_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) psi: Option<PsiStats>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryStats {
    pub(crate) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) working_set_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) major_page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) psi: Option<PsiStats>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct IoStats {
    pub(crate) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) psi: Option<PsiStats>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PsiStats {
    pub(crate) full: PsiData,
    pub(crate) some: PsiData,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PsiData {
    pub(crate) total: u64,
    #[serde(serialize_with = "plain_float")]
    pub(crate) avg10: f64,
    #[serde(serialize_with = "plain_float")]
    pub(crate) avg60: f64,
    #[serde(serialize_with = "plain_float")]
    pub(crate) avg300: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SwapStats {
    pub(crate) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swap_available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) swap_usage_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsStats {
    /// Nothing where nothing was measured: it is told as `null`.
    pub(crate) time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inodes_used: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct NetworkStats {
    pub(crate) time: Time,
    /// The one that is the default; its name is empty where there is none of that name.
    #[serde(flatten)]
    pub(crate) default: InterfaceStats,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<InterfaceStats>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterfaceStats {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tx_errors: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProcessStats {
    #[serde(rename = "process_count")]
    pub(crate) process_count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeStats {
    #[serde(flatten)]
    pub(crate) fs: FsStats,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pvc_ref: Option<PvcReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) volume_health_stats: Option<VolumeHealthStats>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PvcReference {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct VolumeHealthStats {
    pub(crate) abnormal: bool,
}

/// A time, told in whole seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Timestamp);

impl Time {
    pub(crate) fn from_nanoseconds(nanoseconds: i64) -> Time {
        Time(Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default())
    }

    pub(crate) fn milliseconds(self) -> i64 {
        self.0.as_millisecond()
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = Timestamp::from_second(self.0.as_second()).unwrap_or_default();
        serializer.collect_str(&seconds)
    }
}

/// A number without a fraction is written without one, as Go does.
fn plain_float<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match value.fract() == 0.0 && value.abs() < 1e15 {
        true => serializer.serialize_i64(*value as i64),
        false => serializer.serialize_f64(*value),
    }
}
