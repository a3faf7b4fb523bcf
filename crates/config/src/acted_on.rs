//! Which fields and flags the agent acts on so far. What is set and not listed here is named in one warning at
//! start: accepted, but never silently. An issue that makes a field work adds it here.

use crablet_api::GoDuration;
use crablet_api::document::{Path, Tree, Value};

use crate::defaults::DEFAULT_SOURCE;
use crate::kubelet_configuration::KubeletConfiguration;
use crate::words::NodeAllocatableEnforcement;

/// Fields of the configuration, by path; what is below a listed one counts as listed.
const FIELDS: &[&str] = &[
    "address",
    "allowedUnsafeSysctls",
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupDriver",
    "cgroupRoot",
    "clusterDNS",
    "clusterDomain",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "crashLoopBackOff",
    "enableControllerAttachDetach",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imagePullCredentialsVerificationPolicy",
    "imageServiceEndpoint",
    "kind",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReserved",
    "localStorageCapacityIsolation",
    "logging.format",
    "logging.verbosity",
    "logging.vmodule",
    "makeIPTablesUtilChains",
    "maxParallelImagePulls",
    "maxPods",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "podLogsDir",
    "podPidsLimit",
    "podsPerCore",
    "port",
    "preloadedImagesVerificationAllowlist",
    "providerID",
    "readOnlyPort",
    "registerNode",
    "registerWithTaints",
    "registryBurst",
    "registryPullQPS",
    "resolvConf",
    "rotateCertificates",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "singleProcessOOMKill",
    "staticPodPath",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemReserved",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
    "userNamespaces",
    "volumeStatsAggPeriod",
];

/// Flags that are not fields.
const FLAGS: &[&str] = &[
    "bootstrap-kubeconfig",
    "cert-dir",
    "cloud-provider",
    "config",
    "config-dir",
    "exit-on-lock-contention",
    "hostname-override",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "kubeconfig",
    "lock-file",
    "maximum-dead-containers",
    "maximum-dead-containers-per-container",
    "minimum-container-ttl-duration",
    "node-ip",
    "node-labels",
    "root-dir",
    "start-remembered-pods",
    "version",
];

/// What a kubelet does by default and the agent does not so far. Who set nothing would learn of it nowhere else.
pub(crate) struct NotDone {
    /// What it is.
    pub(crate) what: &'static str,
    /// The field that it is turned off by.
    pub(crate) path: &'static str,
    /// Whether a configuration has it on.
    pub(crate) is_on: fn(&KubeletConfiguration) -> bool,
}

/// An issue that makes one of them work takes it out.
pub(crate) const NOT_DONE: &[NotDone] = &[
    NotDone {
        what: "eviction",
        path: "evictionHard",
        is_on: |configuration| {
            !(configuration.eviction_hard.is_empty() && configuration.eviction_soft.is_empty())
        },
    },
    NotDone {
        what: "image garbage collection",
        path: "imageGCHighThresholdPercent",
        is_on: |configuration| {
            configuration.image_gc_high_threshold_percent < 100
                || configuration.image_maximum_gc_age > GoDuration::ZERO
        },
    },
    NotDone {
        what: "node allocatable enforcement",
        path: "enforceNodeAllocatable",
        is_on: |configuration| {
            let levels = &configuration.enforce_node_allocatable;
            levels.iter().any(|level| *level != NodeAllocatableEnforcement::None)
        },
    },
];

/// What a configuration has on and the agent does not do so far.
pub(crate) fn not_done(configuration: &KubeletConfiguration) -> impl Iterator<Item = &'static NotDone> {
    NOT_DONE.iter().filter(|not_done| (not_done.is_on)(configuration))
}

/// Whether the agent acts on the field at a path.
pub(crate) fn field(path: &str) -> bool {
    FIELDS.iter().any(|field| {
        path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// The fields and flags that somebody set and the agent does not act on.
pub(crate) fn missing(configuration: &Tree, flags: &Tree) -> Vec<String> {
    let mut missing = Vec::new();
    collect(configuration, Path::Root, &mut missing);
    if let Value::Map(fields) = &flags.value {
        missing.extend(
            fields.keys().filter(|name| !FLAGS.contains(&name.as_ref())).map(|name| format!("--{name}")),
        );
    }
    missing
}

fn collect(node: &Tree, path: Path<'_>, missing: &mut Vec<String>) {
    match &node.value {
        // Down to the fields that the list above speaks of, and no further.
        Value::Map(fields) if matches!(path, Path::Root) || has_listed_parts(&path.to_string()) => {
            for (name, node) in fields {
                collect(node, Path::Field(&path, name), missing);
            }
        }
        _ if node.place.source.as_ref() == DEFAULT_SOURCE => {}
        _ if field(&path.to_string()) => {}
        _ => missing.push(path.to_string()),
    }
}

fn has_listed_parts(path: &str) -> bool {
    FIELDS.iter().any(|field| field.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}
