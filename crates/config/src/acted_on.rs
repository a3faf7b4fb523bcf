//! Which fields and flags the agent acts on so far. What is set and not listed here is named in one warning at
//! start: accepted, but never silently. An issue that makes a field work adds it here.

use crablet_api::document::{Path, Tree, Value};
use crablet_api::features::{FeatureGates, Gate};

use crate::defaults::DEFAULT_SOURCE;

/// Fields of the configuration, by path; what is below a listed one counts as listed.
const FIELDS: &[&str] = &[
    "address",
    "allowedUnsafeSysctls",
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupDriver",
    "cgroupRoot",
    "cgroupsPerQOS",
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
    "enforceNodeAllocatable",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "imagePullCredentialsVerificationPolicy",
    "imageServiceEndpoint",
    "kernelMemcgNotification",
    "kind",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReserved",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "localStorageCapacityIsolation",
    "logging.format",
    "logging.verbosity",
    "logging.vmodule",
    "makeIPTablesUtilChains",
    "maxParallelImagePulls",
    "maxPods",
    "memoryReservationPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "mergeDefaultEvictionSettings",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "oomScoreAdj",
    "podLogsDir",
    "podPidsLimit",
    "podsPerCore",
    "port",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "providerID",
    "readOnlyPort",
    "registerNode",
    "registerWithTaints",
    "registryBurst",
    "registryPullQPS",
    "reservedSystemCPUs",
    "resolvConf",
    "rotateCertificates",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "singleProcessOOMKill",
    "staticPodPath",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "systemReserved",
    "systemReservedCgroup",
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
    "experimental-allocatable-ignore-eviction",
    "hostname-override",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "keep-kernel-settings",
    "kubeconfig",
    "lock-file",
    "maximum-dead-containers",
    "maximum-dead-containers-per-container",
    "minimum-container-ttl-duration",
    "node-ip",
    "node-labels",
    "root-dir",
    "runtime-cgroups",
    "start-remembered-pods",
    "version",
];

/// Gates, off by default, by which a kubelet does something in another way and the agent does not.
const GATES: &[Gate] = &[
    // The numbers of containers are the kernel's; the runtime's stand in only where no cgroup is found.
    Gate::PodAndContainerStatsFromCRI,
    // What is on a disk is counted file by file, and no project quota is set.
    Gate::LocalStorageCapacityIsolationFSQuotaMonitoring,
];

/// Whether the agent acts on the field at a path.
pub(crate) fn field(path: &str) -> bool {
    FIELDS.iter().any(|field| {
        path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// The fields, gates and flags that somebody set and the agent does not act on.
pub(crate) fn missing(configuration: &Tree, features: &FeatureGates, flags: &Tree) -> Vec<String> {
    let mut missing = Vec::new();
    collect(configuration, Path::Root, &mut missing);
    let gates = GATES.iter().filter(|gate| features.enabled(**gate));
    missing.extend(gates.map(|gate| format!("featureGates.{}", gate.name())));
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
