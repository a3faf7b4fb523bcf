//! What the configuration holds when nobody says anything.
//!
//! Three kinds of default: the plain ones are [`Default`] of each type; a zero in a file stands for the default
//! where Kubernetes cannot tell it from nothing ([`drop_zeros`]); and some depend on other fields ([`complete`]).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use crablet_api::document::{Place, Tree, Value};
use crablet_api::{FeatureGates, Gate, GoDuration, Parsed, TimeOrGoDuration};

use crate::kubelet_configuration::*;
use crate::thresholds::Threshold;
use crate::words::*;

/// How many images are pulled at once when the configuration says nothing of it.
pub const PARALLEL_IMAGE_PULLS: i32 = 5;

/// A default that differs from the Go kubelet's, for the reader of the configuration.
pub struct Deviation {
    /// The field.
    pub path: &'static str,
    /// What the Go kubelet has there, in words.
    pub upstream: &'static str,
    /// Whether that is so only where there is no `--config` file.
    pub only_without_file: bool,
}

/// Where our defaults differ from the Go kubelet's: image pulls are parallel, and the secure defaults that it has
/// with a file apply without one too.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation { path: "serializeImagePulls", upstream: "true", only_without_file: false },
    Deviation { path: "maxParallelImagePulls", upstream: "not set", only_without_file: false },
    Deviation { path: "authentication.anonymous.enabled", upstream: "true", only_without_file: true },
    Deviation { path: "authentication.webhook.enabled", upstream: "false", only_without_file: true },
    Deviation { path: "authorization.mode", upstream: "AlwaysAllow", only_without_file: true },
    Deviation { path: "readOnlyPort", upstream: "10255", only_without_file: true },
];

/// Takes out of a file's tree what Kubernetes takes for nothing: a zero number, an empty text or a zero duration
/// in a field that has no other way to be unset.
pub(crate) fn drop_zeros(tree: &mut Tree) {
    for path in ZERO_IS_NOTHING {
        let (name, parents) = path.split_last().expect("the paths below have at least one name");
        let Some(parent) = parents.iter().try_fold(&mut *tree, |node, name| match &mut node.value {
            Value::Map(fields) => fields.get_mut(*name),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => None,
        }) else {
            continue;
        };
        if let Value::Map(fields) = &mut parent.value
            && fields.get(*name).is_some_and(|node| is_zero(&node.value))
        {
            fields.remove(*name);
        }
    }
}

/// Adds to the tree of the `--config` file what the Go kubelet adds before it looks at the drop-ins.
pub(crate) fn complete_file(tree: &mut Tree) {
    if tree.get("nodeStatusReportFrequency").is_none()
        && let Some(update) = tree.get("nodeStatusUpdateFrequency").cloned()
    {
        tree.set(&["nodeStatusReportFrequency"], update);
    }
    let merge_defaults =
        matches!(tree.get("mergeDefaultEvictionSettings"), Some(Tree { value: Value::Bool(true), .. }));
    if tree.get("evictionHard").is_none() || merge_defaults {
        for (signal, threshold) in EVICTION_HARD {
            if tree.at(&["evictionHard", signal]).is_none() {
                let place = Place { source: Arc::from(DEFAULT_SOURCE), line: 0 };
                tree.set(&["evictionHard", signal], Tree { value: Value::Text((*threshold).into()), place });
            }
        }
    }
}

/// Settles the defaults that depend on other fields. `tree` says which fields somebody set.
pub(crate) fn complete(configuration: &mut KubeletConfiguration, tree: &Tree, gates: &FeatureGates) {
    if tree.get("serializeImagePulls").is_none() {
        match configuration.max_parallel_image_pulls {
            None => {
                configuration.serialize_image_pulls = false;
                configuration.max_parallel_image_pulls = Some(PARALLEL_IMAGE_PULLS);
            }
            Some(pulls) => configuration.serialize_image_pulls = pulls < 2,
        }
    }
    if configuration.pod_pids_limit < 0 {
        configuration.pod_pids_limit = -1;
    }
    if gates.enabled(Gate::KubeletCrashLoopBackOffMax) {
        configuration
            .crash_loop_back_off
            .max_container_restart_period
            .get_or_insert(GoDuration::from_secs(300));
    }
    if gates.enabled(Gate::KubeletEnsureSecretPulledImages) {
        configuration
            .image_pull_credentials_verification_policy
            .get_or_insert(ImagePullCredentialsVerificationPolicy::NeverVerifyPreloadedImages);
    }
}

/// The source of values that nobody wrote.
pub(crate) const DEFAULT_SOURCE: &str = "default";

const EVICTION_HARD: &[(&str, &str)] = &[
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

const ZERO_IS_NOTHING: &[&[&str]] = &[
    &["syncFrequency"],
    &["fileCheckFrequency"],
    &["httpCheckFrequency"],
    &["address"],
    &["port"],
    &["authentication", "webhook", "cacheTTL"],
    &["authorization", "mode"],
    &["authorization", "webhook", "cacheAuthorizedTTL"],
    &["authorization", "webhook", "cacheUnauthorizedTTL"],
    &["registryBurst"],
    &["imagePullCredentialsVerificationPolicy"],
    &["eventBurst"],
    &["healthzBindAddress"],
    &["streamingConnectionIdleTimeout"],
    &["nodeStatusReportFrequency"],
    &["nodeStatusUpdateFrequency"],
    &["nodeLeaseDurationSeconds"],
    &["imageMinimumGCAge"],
    &["volumeStatsAggPeriod"],
    &["cgroupDriver"],
    &["cpuManagerPolicy"],
    &["cpuManagerReconcilePeriod"],
    &["memoryManagerPolicy"],
    &["topologyManagerPolicy"],
    &["topologyManagerScope"],
    &["runtimeRequestTimeout"],
    &["hairpinMode"],
    &["maxPods"],
    &["maxOpenFiles"],
    &["contentType"],
    &["kubeAPIBurst"],
    &["evictionPressureTransitionPeriod"],
    &["memorySwap", "swapBehavior"],
    &["containerLogMaxSize"],
    &["configMapAndSecretChangeDetectionStrategy"],
    &["volumePluginDir"],
    &["logging", "format"],
    &["logging", "flushFrequency"],
    &["memoryReservationPolicy"],
    &["containerRuntimeEndpoint"],
    &["podLogsDir"],
];

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Int(number) => *number == 0,
        Value::Text(text) => {
            text.is_empty() || text.parse::<GoDuration>().is_ok_and(|duration| duration.is_zero())
        }
        Value::Null => true,
        Value::Bool(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => false,
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Parsed<T> {
    text.parse().expect("the texts of the defaults are valid: a test reads them all")
}

impl Default for KubeletConfiguration {
    fn default() -> KubeletConfiguration {
        KubeletConfiguration {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            static_pod_path: "".into(),
            pod_logs_dir: "/var/log/pods".into(),
            sync_frequency: GoDuration::from_secs(60),
            file_check_frequency: GoDuration::from_secs(20),
            http_check_frequency: GoDuration::from_secs(20),
            static_pod_url: "".into(),
            static_pod_url_header: Headers::default(),
            enable_server: true,
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: 10250,
            read_only_port: 0,
            tls_cert_file: "".into(),
            tls_private_key_file: "".into(),
            tls_cipher_suites: Vec::new(),
            tls_curve_preferences: Vec::new(),
            tls_min_version: "".into(),
            rotate_certificates: false,
            server_tls_bootstrap: false,
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            enable_debugging_handlers: true,
            enable_contention_profiling: false,
            enable_profiling_handler: true,
            enable_debug_flags_handler: true,
            enable_system_log_handler: true,
            enable_system_log_query: false,
            streaming_connection_idle_timeout: GoDuration::from_secs(4 * 60 * 60),
            healthz_port: 10248,
            healthz_bind_address: Ipv4Addr::LOCALHOST.into(),
            registry_pull_qps: 5,
            registry_burst: 10,
            image_pull_credentials_verification_policy: None,
            preloaded_images_verification_allowlist: Vec::new(),
            serialize_image_pulls: false,
            max_parallel_image_pulls: None,
            image_minimum_gc_age: GoDuration::from_secs(120),
            image_maximum_gc_age: GoDuration::ZERO,
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            event_record_qps: 50,
            event_burst: 100,
            cluster_domain: "".into(),
            cluster_dns: Vec::new(),
            node_status_update_frequency: GoDuration::from_secs(10),
            node_status_report_frequency: GoDuration::from_secs(300),
            node_lease_duration_seconds: 40,
            node_status_max_images: 50,
            content_type: "application/vnd.kubernetes.protobuf".into(),
            kube_api_qps: 50,
            kube_api_burst: 100,
            config_map_and_secret_change_detection_strategy: ChangeDetectionStrategy::Watch,
            provider_id: "".into(),
            register_with_taints: Vec::new(),
            register_node: true,
            enable_controller_attach_detach: true,
            volume_stats_agg_period: GoDuration::from_secs(60),
            kubelet_cgroups: "".into(),
            system_cgroups: "".into(),
            cgroup_root: "".into(),
            cgroups_per_qos: true,
            cgroup_driver: CgroupDriver::Cgroupfs,
            fail_cgroup_v1: true,
            oom_score_adj: -999,
            single_process_oom_kill: None,
            qos_reserved: BTreeMap::new(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            reserved_system_cpus: parsed(""),
            system_reserved_cgroup: "".into(),
            kube_reserved_cgroup: "".into(),
            enforce_node_allocatable: vec![NodeAllocatableEnforcement::Pods],
            reserved_memory: Vec::new(),
            memory_throttling_factor: Some(0.9),
            memory_reservation_policy: MemoryReservationPolicy::None,
            memory_swap: MemorySwap::default(),
            fail_swap_on: true,
            cpu_manager_policy: CpuManagerPolicy::None,
            cpu_manager_policy_options: BTreeMap::new(),
            cpu_manager_reconcile_period: GoDuration::from_secs(10),
            memory_manager_policy: MemoryManagerPolicy::None,
            topology_manager_policy: TopologyManagerPolicy::None,
            topology_manager_scope: TopologyManagerScope::Container,
            topology_manager_policy_options: BTreeMap::new(),
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: GoDuration::from_millis(100),
            max_pods: 110,
            pods_per_core: 0,
            pod_pids_limit: -1,
            pod_cidr: parsed(""),
            resolv_conf: "/etc/resolv.conf".into(),
            run_once: false,
            max_open_files: 1_000_000,
            hairpin_mode: HairpinMode::PromiscuousBridge,
            allowed_unsafe_sysctls: Vec::new(),
            seccomp_default: false,
            crash_loop_back_off: CrashLoopBackOff::default(),
            user_namespaces: None,
            container_log_max_size: parsed("10Mi"),
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: GoDuration::from_secs(10),
            volume_plugin_dir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".into(),
            local_storage_capacity_isolation: true,
            protect_kernel_defaults: false,
            make_iptables_util_chains: true,
            iptables_masquerade_bit: 14,
            iptables_drop_bit: 15,
            // Without a file the Go kubelet has no hard thresholds; with one, `complete_file` adds them.
            eviction_hard: BTreeMap::<EvictionSignal, Parsed<Threshold>>::new(),
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_pressure_transition_period: GoDuration::from_secs(300),
            eviction_max_pod_grace_period: 0,
            eviction_minimum_reclaim: BTreeMap::new(),
            merge_default_eviction_settings: false,
            kernel_memcg_notification: false,
            shutdown_grace_period: GoDuration::ZERO,
            shutdown_grace_period_critical_pods: GoDuration::ZERO,
            shutdown_grace_period_by_pod_priority: Vec::new(),
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".into(),
            image_service_endpoint: "".into(),
            runtime_request_timeout: GoDuration::from_secs(120),
            feature_gates: BTreeMap::new(),
            show_hidden_metrics_for_version: "".into(),
            logging: Logging::default(),
            tracing: None,
        }
    }
}

impl Default for WebhookAuthentication {
    fn default() -> WebhookAuthentication {
        WebhookAuthentication { enabled: true, cache_ttl: GoDuration::from_secs(120) }
    }
}

impl Default for Authorization {
    fn default() -> Authorization {
        Authorization { mode: AuthorizationMode::Webhook, webhook: WebhookAuthorization::default() }
    }
}

impl Default for WebhookAuthorization {
    fn default() -> WebhookAuthorization {
        WebhookAuthorization {
            cache_authorized_ttl: GoDuration::from_secs(300),
            cache_unauthorized_ttl: GoDuration::from_secs(30),
        }
    }
}

impl Default for Logging {
    fn default() -> Logging {
        Logging {
            format: LogFormat::Text,
            flush_frequency: TimeOrGoDuration {
                duration: GoDuration::from_secs(5),
                serialize_as_string: true,
            },
            verbosity: 0,
            vmodule: Vec::new(),
            options: LogOptions::default(),
        }
    }
}
