//! `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), every field of Kubernetes 1.36, typed.
//!
//! The types say what a field can hold; [`Default`] is what it holds when nobody says anything (see
//! [`crate::defaults`] for the defaults that depend on other fields). What is written back is what the Go kubelet
//! writes: `skip_serializing_if` stands where it leaves a field out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crablet_api::{Cidr, CpuSet, GoDuration, Parsed, Quantity, Taint, TimeOrGoDuration};
use serde::{Deserialize, Serialize};

use crate::thresholds::{Percentage, Threshold};
use crate::words::*;

/// The API group and version of the kubelet's configuration.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The kind of the kubelet's configuration.
pub const KIND: &str = "KubeletConfiguration";

/// The configuration of a kubelet.
///
/// What each field means is Kubernetes' to say; see its reference for this kind and version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    pub api_version: Box<str>,
    pub kind: Box<str>,

    // Where pods come from.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub static_pod_path: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub pod_logs_dir: Box<str>,
    pub sync_frequency: GoDuration,
    pub file_check_frequency: GoDuration,
    pub http_check_frequency: GoDuration,
    #[serde(rename = "staticPodURL", skip_serializing_if = "str::is_empty")]
    pub static_pod_url: Box<str>,
    #[serde(rename = "staticPodURLHeader", skip_serializing_if = "Headers::is_empty")]
    pub static_pod_url_header: Headers,

    // The node's own servers.
    pub enable_server: bool,
    pub address: IpAddr,
    pub port: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub read_only_port: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tls_cert_file: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tls_private_key_file: Box<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tls_cipher_suites: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tls_curve_preferences: Vec<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tls_min_version: Box<str>,
    #[serde(skip_serializing_if = "is_false")]
    pub rotate_certificates: bool,
    #[serde(rename = "serverTLSBootstrap", skip_serializing_if = "is_false")]
    pub server_tls_bootstrap: bool,
    pub authentication: Authentication,
    pub authorization: Authorization,
    pub enable_debugging_handlers: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub enable_contention_profiling: bool,
    pub enable_profiling_handler: bool,
    pub enable_debug_flags_handler: bool,
    pub enable_system_log_handler: bool,
    pub enable_system_log_query: bool,
    pub streaming_connection_idle_timeout: GoDuration,
    pub healthz_port: i32,
    pub healthz_bind_address: IpAddr,

    // Images.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    pub registry_burst: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_credentials_verification_policy: Option<ImagePullCredentialsVerificationPolicy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preloaded_images_verification_allowlist: Vec<Box<str>>,
    pub serialize_image_pulls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,

    // The node in its cluster.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    pub event_burst: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cluster_domain: Box<str>,
    #[serde(rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    pub cluster_dns: Vec<Box<str>>,
    pub node_status_update_frequency: GoDuration,
    pub node_status_report_frequency: GoDuration,
    pub node_lease_duration_seconds: i32,
    pub node_status_max_images: i32,
    pub content_type: Box<str>,
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: i32,
    pub config_map_and_secret_change_detection_strategy: ChangeDetectionStrategy,
    #[serde(rename = "providerID", skip_serializing_if = "str::is_empty")]
    pub provider_id: Box<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub register_with_taints: Vec<Taint>,
    pub register_node: bool,
    pub enable_controller_attach_detach: bool,

    // Cgroups and what is reserved.
    pub volume_stats_agg_period: GoDuration,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kubelet_cgroups: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub system_cgroups: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cgroup_root: Box<str>,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    pub cgroup_driver: CgroupDriver,
    #[serde(rename = "failCgroupV1")]
    pub fail_cgroup_v1: bool,
    pub oom_score_adj: i32,
    #[serde(rename = "singleProcessOOMKill", skip_serializing_if = "Option::is_none")]
    pub single_process_oom_kill: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub qos_reserved: BTreeMap<Box<str>, Parsed<Percentage>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub system_reserved: BTreeMap<Box<str>, Parsed<Quantity>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kube_reserved: BTreeMap<Box<str>, Parsed<Quantity>>,
    #[serde(rename = "reservedSystemCPUs", skip_serializing_if = "is_empty_text")]
    pub reserved_system_cpus: Parsed<CpuSet>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub system_reserved_cgroup: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kube_reserved_cgroup: Box<str>,
    pub enforce_node_allocatable: Vec<NodeAllocatableEnforcement>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_memory: Vec<MemoryReservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_throttling_factor: Option<f64>,
    pub memory_reservation_policy: MemoryReservationPolicy,
    pub memory_swap: MemorySwap,
    pub fail_swap_on: bool,

    // Resource managers.
    pub cpu_manager_policy: CpuManagerPolicy,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_manager_policy_options: BTreeMap<Box<str>, Box<str>>,
    pub cpu_manager_reconcile_period: GoDuration,
    pub memory_manager_policy: MemoryManagerPolicy,
    pub topology_manager_policy: TopologyManagerPolicy,
    pub topology_manager_scope: TopologyManagerScope,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub topology_manager_policy_options: BTreeMap<Box<str>, Box<str>>,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,

    // Pods.
    pub max_pods: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_per_core: i32,
    pub pod_pids_limit: i64,
    #[serde(rename = "podCIDR", skip_serializing_if = "is_empty_text")]
    pub pod_cidr: Parsed<PodCidrs>,
    pub resolv_conf: Box<str>,
    #[serde(skip_serializing_if = "is_false")]
    pub run_once: bool,
    pub max_open_files: i64,
    pub hairpin_mode: HairpinMode,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_unsafe_sysctls: Vec<Box<str>>,
    pub seccomp_default: bool,
    pub crash_loop_back_off: CrashLoopBackOff,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_namespaces: Option<UserNamespaces>,
    pub container_log_max_size: Parsed<Quantity>,
    pub container_log_max_files: i32,
    pub container_log_max_workers: i32,
    pub container_log_monitor_interval: GoDuration,
    pub volume_plugin_dir: Box<str>,
    pub local_storage_capacity_isolation: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub protect_kernel_defaults: bool,
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    pub iptables_masquerade_bit: i32,
    pub iptables_drop_bit: i32,

    // Eviction and shutdown.
    pub eviction_hard: BTreeMap<EvictionSignal, Parsed<Threshold>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_soft: BTreeMap<EvictionSignal, Parsed<Threshold>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_soft_grace_period: BTreeMap<EvictionSignal, Parsed<GoDuration>>,
    pub eviction_pressure_transition_period: GoDuration,
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_max_pod_grace_period: i32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_minimum_reclaim: BTreeMap<EvictionSignal, Parsed<Threshold>>,
    pub merge_default_eviction_settings: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub kernel_memcg_notification: bool,
    pub shutdown_grace_period: GoDuration,
    pub shutdown_grace_period_critical_pods: GoDuration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority>,

    // The runtime, and the agent itself.
    pub container_runtime_endpoint: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub image_service_endpoint: Box<str>,
    pub runtime_request_timeout: GoDuration,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<Box<str>, bool>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub show_hidden_metrics_for_version: Box<str>,
    pub logging: Logging,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
}

/// Who may speak to the node's API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Authentication {
    pub x509: X509Authentication,
    pub webhook: WebhookAuthentication,
    pub anonymous: AnonymousAuthentication,
}

/// Client certificates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct X509Authentication {
    #[serde(rename = "clientCAFile", skip_serializing_if = "str::is_empty")]
    pub client_ca_file: Box<str>,
}

/// Bearer tokens, checked by the API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookAuthentication {
    pub enabled: bool,
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

/// Requests without credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct AnonymousAuthentication {
    pub enabled: bool,
}

/// Who may do what on the node's API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Authorization {
    pub mode: AuthorizationMode,
    pub webhook: WebhookAuthorization,
}

/// How long answers of the API server count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookAuthorization {
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

/// Memory kept back on one NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryReservation {
    pub numa_node: i32,
    pub limits: BTreeMap<Box<str>, Quantity>,
}

/// How long pods of a priority have when the node shuts down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownGracePeriodByPodPriority {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

/// What containers may use of swap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct MemorySwap {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_behavior: Option<SwapBehavior>,
}

/// How long a crashing container waits at the most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct CrashLoopBackOff {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_container_restart_period: Option<GoDuration>,
}

/// User namespaces of pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct UserNamespaces {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_per_pod: Option<i64>,
}

/// How the agent logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logging {
    pub format: LogFormat,
    pub flush_frequency: TimeOrGoDuration,
    pub verbosity: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<VModuleItem>,
    pub options: LogOptions,
}

/// The verbosity of some source files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct VModuleItem {
    pub file_pattern: Box<str>,
    pub verbosity: u32,
}

/// Options of each log format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LogOptions {
    pub text: OutputRouting,
    pub json: OutputRouting,
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputRouting {
    #[serde(skip_serializing_if = "is_false")]
    pub split_stream: bool,
    pub info_buffer_size: Quantity,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate_per_million: Option<i32>,
}

/// HTTP headers, which may carry credentials: they do not show in `Debug`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<Box<str>, Vec<Box<str>>>);

/// The addresses of pods: one range, or one of each family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodCidrs(pub Vec<Cidr>);

impl Headers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "<masked>"))).finish()
    }
}

impl std::str::FromStr for PodCidrs {
    type Err = <Cidr as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<PodCidrs, Self::Err> {
        match text {
            "" => Ok(PodCidrs::default()),
            text => Ok(PodCidrs(text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?)),
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

fn is_empty_text<T>(parsed: &Parsed<T>) -> bool {
    parsed.text.is_empty()
}
