//! What a configuration may not say, in the Go kubelet's words: all of it, not the first.
//!
//! Checks that need the machine (cgroup version, swap) are made at start and are not here: a configuration can be
//! looked at on any machine.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::{GoDuration, Parsed, Quantity, TaintEffect, label_value_errors, qualified_name_errors};

use crate::flags::KubeletFlags;
use crate::gates::{FeatureGates, Gate};
use crate::kubelet_configuration::*;
use crate::thresholds::Threshold;

/// Something that a configuration may not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field it is about: where it was set is where the mistake is.
    pub path: &'static [&'static str],
    /// The other field it is about, in case nobody set the first.
    pub or: Option<&'static [&'static str]>,
    /// What is wrong.
    pub message: String,
}

/// Everything that is wrong with a configuration.
pub(crate) fn configuration(configuration: &KubeletConfiguration, gates: &FeatureGates) -> Vec<Invalid> {
    let mut check = Check { invalid: Vec::new() };
    check.numbers(configuration);
    check.images(configuration, gates);
    check.resource_managers(configuration, gates);
    check.node_allocatable(configuration);
    check.reserved(configuration);
    check.eviction(configuration);
    check.shutdown(configuration, gates);
    check.pods(configuration, gates);
    check.servers(configuration, gates);
    check.logging(&configuration.logging, gates);
    check.tracing(configuration);
    check.invalid
}

/// Everything that is wrong with the flags that are not part of the configuration.
pub(crate) fn flags(flags: &KubeletFlags) -> Vec<Invalid> {
    let mut check = Check { invalid: Vec::new() };
    if flags.exit_on_lock_contention && flags.lock_file.is_empty() {
        check.fail(
            &["exit-on-lock-contention"],
            "cannot exit on lock file contention: no lock file specified; set --lock-file".into(),
        );
    }
    if flags.root_dir.is_empty() {
        check.fail(&["root-dir"], "the root directory must not be empty".into());
    }
    check.node_labels(&flags.node_labels);
    check.invalid
}

struct Check {
    invalid: Vec<Invalid>,
}

impl Check {
    fn fail(&mut self, path: &'static [&'static str], message: String) {
        self.invalid.push(Invalid { path, or: None, message });
    }

    fn invalid(&mut self, path: &'static [&'static str], message: String) {
        self.fail(path, format!("invalid configuration: {message}"));
    }

    /// About two fields that do not go together, of which one may be a default.
    fn invalid_pair(&mut self, path: &'static [&'static str], or: &'static [&'static str], message: String) {
        self.invalid.push(Invalid {
            path,
            or: Some(or),
            message: format!("invalid configuration: {message}"),
        });
    }

    fn in_range(&mut self, path: &'static [&'static str], flag: &str, value: i32, range: (i32, i32)) {
        if value < range.0 || value > range.1 {
            let message = format!(
                "{} (--{flag}) {value} must be between {} and {}, inclusive",
                path[0], range.0, range.1
            );
            self.invalid(path, message);
        }
    }

    fn numbers(&mut self, c: &KubeletConfiguration) {
        let not_negative: [(&'static [&'static str], &str, i64); 9] = [
            (&["eventBurst"], "event-burst", c.event_burst.into()),
            (&["eventRecordQPS"], "event-qps", c.event_record_qps.into()),
            (&["kubeAPIBurst"], "kube-api-burst", c.kube_api_burst.into()),
            (&["kubeAPIQPS"], "kube-api-qps", c.kube_api_qps.into()),
            (&["maxOpenFiles"], "max-open-files", c.max_open_files),
            (&["maxPods"], "max-pods", c.max_pods.into()),
            (&["podsPerCore"], "pods-per-core", c.pods_per_core.into()),
            (&["registryBurst"], "registry-burst", c.registry_burst.into()),
            (&["registryPullQPS"], "registry-qps", c.registry_pull_qps.into()),
        ];
        for (path, flag, value) in not_negative {
            if value < 0 {
                self.invalid(path, format!("{} (--{flag}) {value} must not be a negative number", path[0]));
            }
        }
        if c.node_lease_duration_seconds <= 0 {
            let message =
                format!("nodeLeaseDurationSeconds {} must be greater than 0", c.node_lease_duration_seconds);
            self.invalid(&["nodeLeaseDurationSeconds"], message);
        }
        if c.node_status_max_images < -1 {
            let message = format!(
                "nodeStatusMaxImages (--node-status-max-images) {} must be -1 or greater",
                c.node_status_max_images
            );
            self.invalid(&["nodeStatusMaxImages"], message);
        }
        self.in_range(&["oomScoreAdj"], "oom-score-adj", c.oom_score_adj, (-1000, 1000));
        self.in_range(&["iptablesDropBit"], "iptables-drop-bit", c.iptables_drop_bit, (0, 31));
        self.in_range(
            &["iptablesMasqueradeBit"],
            "iptables-masquerade-bit",
            c.iptables_masquerade_bit,
            (0, 31),
        );
    }

    fn images(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        let (low, high) = (c.image_gc_low_threshold_percent, c.image_gc_high_threshold_percent);
        self.in_range(&["imageGCHighThresholdPercent"], "image-gc-high-threshold", high, (0, 100));
        self.in_range(&["imageGCLowThresholdPercent"], "image-gc-low-threshold", low, (0, 100));
        if low >= high {
            let message = format!(
                "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than \
                 imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
            );
            self.invalid_pair(&["imageGCLowThresholdPercent"], &["imageGCHighThresholdPercent"], message);
        }
        let (minimum, maximum) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
        if !maximum.is_zero() && !gates.enabled(Gate::ImageMaximumGCAge) {
            let message = "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge";
            self.invalid(&["imageMaximumGCAge"], message.into());
        }
        if minimum.is_negative() {
            self.invalid(&["imageMinimumGCAge"], format!("imageMinimumGCAge {minimum} must not be negative"));
        }
        if maximum.is_negative() {
            self.invalid(&["imageMaximumGCAge"], format!("imageMaximumGCAge {maximum} must not be negative"));
        }
        if maximum > GoDuration::ZERO && maximum <= minimum {
            let message =
                format!("imageMaximumGCAge {maximum} must be greater than imageMinimumGCAge {minimum}");
            self.invalid(&["imageMaximumGCAge"], message);
        }
        if let Some(pulls) = c.max_parallel_image_pulls {
            if pulls < 1 {
                let message = format!("maxParallelImagePulls {pulls} must be a positive number");
                self.invalid(&["maxParallelImagePulls"], message);
            }
            if c.serialize_image_pulls && pulls > 1 {
                let message = "maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls \
                               (--serialize-image-pulls) is set to false";
                self.invalid(&["maxParallelImagePulls"], message.into());
            }
        }
        self.pull_credentials(c, gates);
    }

    fn pull_credentials(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const POLICY: &[&str] = &["imagePullCredentialsVerificationPolicy"];
        const ALLOWLIST: &[&str] = &["preloadedImagesVerificationAllowlist"];
        let policy = &c.image_pull_credentials_verification_policy;
        let allowlist = &c.preloaded_images_verification_allowlist;
        if !gates.enabled(Gate::KubeletEnsureSecretPulledImages) {
            for (path, is_set) in [(POLICY, policy.is_some()), (ALLOWLIST, !allowlist.is_empty())] {
                if is_set {
                    let message = format!(
                        "`{}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled",
                        path[0]
                    );
                    self.invalid(path, message);
                }
            }
            return;
        }
        if let Some(ImagePullCredentialsVerificationPolicy::Other(other)) = policy {
            let message = format!(
                "option {other:?} specified for imagePullCredentialsVerificationPolicy. Valid options are {}",
                one_of(ImagePullCredentialsVerificationPolicy::WORDS)
            );
            self.invalid(POLICY, message);
        }
        if allowlist.is_empty() {
        } else if *policy != Some(ImagePullCredentialsVerificationPolicy::NeverVerifyAllowlistedImages) {
            let message = "can't set `preloadedImagesVerificationAllowlist` if \
                           `imagePullCredentialsVerificationPolicy` is not \"NeverVerifyAllowlistedImages\"";
            self.invalid(ALLOWLIST, message.into());
        } else if let Some(reason) = allowlist.iter().find_map(|pattern| image_pattern_problem(pattern)) {
            let message =
                format!("invalid image pattern in `preloadedImagesVerificationAllowlist`: {reason}");
            self.invalid(ALLOWLIST, message);
        }
    }

    fn resource_managers(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        if let TopologyManagerPolicy::Other(other) = &c.topology_manager_policy {
            let message = format!(
                "topologyManagerPolicy (--topology-manager-policy) {other:?} must be one of: [{}]",
                quoted(TopologyManagerPolicy::WORDS).join(" ")
            );
            self.invalid(&["topologyManagerPolicy"], message);
        }
        if let TopologyManagerScope::Other(other) = &c.topology_manager_scope {
            let message = format!(
                "topologyManagerScope (--topology-manager-scope) {other:?} must be one of: {}",
                quoted(TopologyManagerScope::WORDS).join(", or ")
            );
            self.invalid(&["topologyManagerScope"], message);
        }
        if let CpuManagerPolicy::Other(other) = &c.cpu_manager_policy {
            let valid = one_of(CpuManagerPolicy::WORDS);
            let message =
                format!("cpuManagerPolicy (--cpu-manager-policy) {other:?}: valid options are {valid}");
            self.invalid(&["cpuManagerPolicy"], message);
        }
        if let MemoryManagerPolicy::Other(other) = &c.memory_manager_policy {
            let valid = one_of(MemoryManagerPolicy::WORDS);
            let message =
                format!("memoryManagerPolicy (--memory-manager-policy) {other:?}: valid options are {valid}");
            self.invalid(&["memoryManagerPolicy"], message);
        }
        if let CgroupDriver::Other(other) = &c.cgroup_driver {
            let valid = one_of(CgroupDriver::WORDS);
            let message = format!("cgroupDriver (--cgroup-driver) {other:?}: valid options are {valid}");
            self.invalid(&["cgroupDriver"], message);
        }
        let period = c.cpu_cfs_quota_period;
        if gates.enabled(Gate::CustomCPUCFSQuotaPeriod) {
            if period < GoDuration::from_millis(1) || period > GoDuration::from_secs(1) {
                let message = format!(
                    "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {period} must be between 1ms and 1sec, inclusive"
                );
                self.invalid(&["cpuCFSQuotaPeriod"], message);
            }
        } else if period != GoDuration::from_millis(100) {
            let message = format!(
                "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {period} requires feature gate CustomCPUCFSQuotaPeriod"
            );
            self.invalid(&["cpuCFSQuotaPeriod"], message);
        }
    }

    fn node_allocatable(&mut self, c: &KubeletConfiguration) {
        use NodeAllocatableEnforcement as Enforcement;
        const PATH: &[&str] = &["enforceNodeAllocatable"];
        let wanted = &c.enforce_node_allocatable;
        for (whole, compressible) in [
            (Enforcement::SystemReserved, Enforcement::SystemReservedCompressible),
            (Enforcement::KubeReserved, Enforcement::KubeReservedCompressible),
        ] {
            if wanted.contains(&whole) && wanted.contains(&compressible) {
                let message = format!(
                    "both \"{whole}\" and \"{compressible}\" cannot be specified together in enforceNodeAllocatable \
                     (--enforce-node-allocatable)"
                );
                self.invalid(PATH, message);
            }
        }
        let mut seen = BTreeSet::new();
        for enforcement in wanted {
            if !seen.insert(enforcement) {
                let message = format!(
                    "duplicated enforcements \"{enforcement}\" in enforceNodeAllocatable (--enforce-node-allocatable)"
                );
                self.invalid(PATH, message);
                continue;
            }
            match enforcement {
                Enforcement::Pods => {}
                Enforcement::SystemReserved | Enforcement::SystemReservedCompressible => {
                    self.reserved_cgroup(
                        "systemReservedCgroup",
                        "system-reserved",
                        &c.system_reserved_cgroup,
                    );
                }
                Enforcement::KubeReserved | Enforcement::KubeReservedCompressible => {
                    self.reserved_cgroup("kubeReservedCgroup", "kube-reserved", &c.kube_reserved_cgroup);
                }
                Enforcement::None => {
                    if wanted.len() > 1 {
                        let message = "enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional \
                                       enforcements when \"none\" is specified";
                        self.invalid(PATH, message.into());
                    }
                    continue;
                }
                Enforcement::Other(other) => {
                    let message = format!(
                        "option {other:?} specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid \
                         options are {}",
                        one_of(Enforcement::WORDS)
                    );
                    self.invalid(PATH, message);
                    continue;
                }
            }
            if !c.cgroups_per_qos {
                let message = format!(
                    "cgroupsPerQOS (--cgroups-per-qos) must be set to true when \"{enforcement}\" contained in \
                     enforceNodeAllocatable (--enforce-node-allocatable)"
                );
                self.invalid(&["cgroupsPerQOS"], message);
            }
        }
    }

    fn reserved_cgroup(&mut self, field: &str, key: &str, cgroup: &str) {
        if cgroup.is_empty() {
            let message = format!(
                "{field} (--{key}-cgroup) must be specified when \"{key}\" or \"{key}-compressible\" included in \
                 enforceNodeAllocatable (--enforce-node-allocatable)"
            );
            self.invalid(&["enforceNodeAllocatable"], message);
        }
    }

    fn reserved(&mut self, c: &KubeletConfiguration) {
        if !c.system_cgroups.is_empty() && c.cgroup_root.is_empty() {
            let message = "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not \
                           specified";
            self.invalid(&["systemCgroups"], message.into());
        }
        if !c.reserved_system_cpus.text.is_empty()
            && (!c.system_reserved_cgroup.is_empty() || !c.kube_reserved_cgroup.is_empty())
        {
            let message = "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
                           (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)";
            self.invalid(&["reservedSystemCPUs"], message.into());
        }
        self.reserved_resources(&["kubeReserved"], "kube-reserved", &c.kube_reserved);
        self.reserved_resources(&["systemReserved"], "system-reserved", &c.system_reserved);
        for resource in c.qos_reserved.keys().filter(|resource| resource.as_ref() != "memory") {
            let message = format!(
                "qosReserved (--qos-reserved): cannot reserve {resource:?} resource, only \"memory\""
            );
            self.fail(&["qosReserved"], message);
        }
        self.reserved_memory(&c.reserved_memory);
    }

    fn reserved_resources(
        &mut self,
        path: &'static [&'static str],
        flag: &str,
        resources: &BTreeMap<Box<str>, Parsed<Quantity>>,
    ) {
        for (resource, quantity) in resources {
            let reason = match RESERVABLE.contains(&resource.as_ref()) {
                true if quantity.value.sign() < 0 => {
                    format!("resource quantity for {resource:?} cannot be negative: {quantity}")
                }
                true => continue,
                false => format!("cannot reserve {resource:?} resource, only {}", one_of(RESERVABLE)),
            };
            self.fail(path, format!("{} (--{flag}): {reason}", path[0]));
        }
    }

    fn reserved_memory(&mut self, reservations: &[MemoryReservation]) {
        const PATH: &[&str] = &["reservedMemory"];
        let mut seen = BTreeSet::new();
        for reservation in reservations {
            let node = reservation.numa_node;
            for (resource, quantity) in &reservation.limits {
                if resource.as_ref() != "memory" && !resource.starts_with("hugepages-") {
                    let message = format!(
                        "the limit type {resource:?} for NUMA node {node} is not supported, only [memory \
                         hugepages-<HugePageSize>] is accepted"
                    );
                    self.invalid(PATH, message);
                }
                if quantity.is_zero() {
                    let message = format!(
                        "reserved memory may not be zero for NUMA node {node} and resource {resource:?}"
                    );
                    self.invalid(PATH, message);
                }
                if !seen.insert((node, resource)) {
                    let message = format!(
                        "the reserved memory has a duplicate value for NUMA node {node} and resource {resource:?}"
                    );
                    self.invalid(PATH, message);
                }
            }
        }
    }

    fn eviction(&mut self, c: &KubeletConfiguration) {
        for (path, thresholds) in
            [(&["evictionHard"] as &[&str], &c.eviction_hard), (&["evictionSoft"], &c.eviction_soft)]
        {
            self.signals(path, thresholds.keys());
            for (signal, threshold) in thresholds {
                let message = match &threshold.value {
                    Threshold::Percentage(share) if *share < 0.0 => {
                        format!("eviction percentage threshold {signal} must be >= 0%: {threshold}")
                    }
                    Threshold::Percentage(share) if *share > 100.0 => {
                        format!("eviction percentage threshold {signal} must be <= 100%: {threshold}")
                    }
                    Threshold::Quantity(quantity) if quantity.sign() <= 0 => {
                        format!("eviction threshold {signal} must be positive: {threshold}")
                    }
                    Threshold::Percentage(_) | Threshold::Quantity(_) => continue,
                };
                self.fail(path, format!("{}: {message}", path[0]));
            }
        }
        self.signals(&["evictionSoftGracePeriod"], c.eviction_soft_grace_period.keys());
        for period in c.eviction_soft_grace_period.values().filter(|period| period.value.is_negative()) {
            let message = format!("evictionSoftGracePeriod: grace period {period} must be a positive value");
            self.fail(&["evictionSoftGracePeriod"], message);
        }
        for signal in
            c.eviction_soft.keys().filter(|signal| !c.eviction_soft_grace_period.contains_key(signal))
        {
            let message = format!(
                "evictionSoft: grace period must be specified for the soft eviction threshold {signal}; set it in \
                 evictionSoftGracePeriod (--eviction-soft-grace-period)"
            );
            self.fail(&["evictionSoft"], message);
        }
        self.signals(&["evictionMinimumReclaim"], c.eviction_minimum_reclaim.keys());
        for (signal, reclaim) in &c.eviction_minimum_reclaim {
            let message = match &reclaim.value {
                Threshold::Percentage(share) if *share <= 0.0 => {
                    format!("eviction percentage minimum reclaim {signal} must be positive: {reclaim}")
                }
                Threshold::Quantity(quantity) if quantity.sign() < 0 => {
                    format!("eviction minimum reclaim {signal} must not be negative: {reclaim}")
                }
                Threshold::Percentage(_) | Threshold::Quantity(_) => continue,
            };
            self.fail(&["evictionMinimumReclaim"], format!("evictionMinimumReclaim: {message}"));
        }
    }

    fn signals<'a>(
        &mut self,
        path: &'static [&'static str],
        signals: impl Iterator<Item = &'a EvictionSignal>,
    ) {
        for signal in signals {
            if let EvictionSignal::Other(other) = signal {
                let valid = one_of(EvictionSignal::WORDS);
                self.fail(
                    path,
                    format!("{}: unsupported eviction signal {other:?}; {valid} is accepted", path[0]),
                );
            }
        }
    }

    fn shutdown(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const TOTAL: &[&str] = &["shutdownGracePeriod"];
        const CRITICAL: &[&str] = &["shutdownGracePeriodCriticalPods"];
        const BY_PRIORITY: &[&str] = &["shutdownGracePeriodByPodPriority"];
        let (total, critical) = (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods);
        let either = total > GoDuration::ZERO || critical > GoDuration::ZERO;
        if gates.enabled(Gate::GracefulNodeShutdown) {
            if critical > total {
                let message = format!(
                    "shutdownGracePeriodCriticalPods {critical} must be <= shutdownGracePeriod {total}"
                );
                self.invalid(CRITICAL, message);
            }
            for (path, period) in [(TOTAL, total), (CRITICAL, critical)] {
                if !period.is_zero() && period < GoDuration::from_secs(1) {
                    let message = format!("{} {period} must be either zero or otherwise >= 1 sec", path[0]);
                    self.invalid(path, message);
                }
            }
        } else if either {
            let message = "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate \
                           GracefulNodeShutdown";
            self.invalid_pair(TOTAL, CRITICAL, message.into());
        }
        if c.shutdown_grace_period_by_pod_priority.is_empty() {
        } else if !gates.enabled(Gate::GracefulNodeShutdownBasedOnPodPriority) {
            let message = "Specifying shutdownGracePeriodByPodPriority requires feature gate \
                           GracefulNodeShutdownBasedOnPodPriority";
            self.invalid(BY_PRIORITY, message.into());
        } else if either {
            let message = "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time";
            self.invalid(BY_PRIORITY, message.into());
        }
    }

    fn pods(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        if c.run_once {
            let message = "runOnce (--runonce) true, Runonce mode has been deprecated and should not be set";
            self.invalid(&["runOnce"], message.into());
        }
        if let HairpinMode::Other(other) = &c.hairpin_mode {
            let message = format!(
                "option {other:?} specified for hairpinMode (--hairpin-mode). Valid options are {}",
                one_of(&["none", "hairpin-veth", "promiscuous-bridge"])
            );
            self.invalid(&["hairpinMode"], message);
        }
        if let ChangeDetectionStrategy::Other(other) = &c.config_map_and_secret_change_detection_strategy {
            let message = format!(
                "option {other:?} specified for configMapAndSecretChangeDetectionStrategy. Valid options are {}",
                one_of(ChangeDetectionStrategy::WORDS)
            );
            self.invalid(&["configMapAndSecretChangeDetectionStrategy"], message);
        }
        for taint in &c.register_with_taints {
            if let Err(reason) = taint.validate() {
                let message = format!(
                    "registerWithTaints (--register-with-taints): invalid taint: {taint}: {reason}; the effects are {}",
                    one_of(TaintEffect::WORDS)
                );
                self.fail(&["registerWithTaints"], message);
            }
            if taint.time_added.is_some() {
                self.invalid(&["registerWithTaints"], "taint.TimeAdded is not nil".into());
            }
        }
        self.swap_and_memory(c, gates);
        self.crash_loop_back_off(c, gates);
        self.container_logs(c);
        if let Some(ids) = c.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod) {
            let problem = match ids {
                ids if ids < 65536 => Some("less than 65536"),
                ids if ids > i64::from(u32::MAX) => Some("more than 4294967295"),
                _ => None,
            };
            if let Some(problem) = problem {
                self.invalid(
                    &["userNamespaces", "idsPerPod"],
                    format!("userNamespaces.idsPerPod {ids} must not be {problem}"),
                );
            } else if ids % 65536 != 0 {
                let message = format!("userNamespaces.idsPerPod {ids} must be a multiple of 65536");
                self.invalid(&["userNamespaces", "idsPerPod"], message);
            }
        }
    }

    fn swap_and_memory(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const SWAP: &[&str] = &["memorySwap", "swapBehavior"];
        match &c.memory_swap.swap_behavior {
            Some(_) if !gates.enabled(Gate::NodeSwap) => {
                let message = "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled";
                self.invalid(SWAP, message.into());
            }
            Some(SwapBehavior::Other(other)) => {
                let message = format!(
                    "memorySwap.swapBehavior {other:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""
                );
                self.invalid(SWAP, message);
            }
            Some(SwapBehavior::LimitedSwap | SwapBehavior::NoSwap) | None => {}
        }
        match c.memory_throttling_factor {
            None if gates.enabled(Gate::MemoryQoS) => {
                let message = "memoryThrottlingFactor is required when MemoryQoS feature flag is enabled";
                self.invalid(&["memoryThrottlingFactor"], message.into());
            }
            Some(factor) if !(factor > 0.0 && factor <= 1.0) => {
                let message = format!(
                    "memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0"
                );
                self.invalid(&["memoryThrottlingFactor"], message);
            }
            Some(_) | None => {}
        }
        match &c.memory_reservation_policy {
            MemoryReservationPolicy::None => {}
            MemoryReservationPolicy::TieredReservation => {
                if !gates.enabled(Gate::MemoryQoS) {
                    let message = "memoryReservationPolicy \"TieredReservation\" requires MemoryQoS feature gate to be enabled";
                    self.invalid(&["memoryReservationPolicy"], message.into());
                }
            }
            MemoryReservationPolicy::Other(other) => {
                let message = format!(
                    "option {other:?} specified for memoryReservationPolicy. Valid options are {}",
                    one_of(MemoryReservationPolicy::WORDS)
                );
                self.invalid(&["memoryReservationPolicy"], message);
            }
        }
    }

    fn crash_loop_back_off(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const PATH: &[&str] = &["crashLoopBackOff", "maxContainerRestartPeriod"];
        let Some(period) = c.crash_loop_back_off.max_container_restart_period else { return };
        if !gates.enabled(Gate::KubeletCrashLoopBackOffMax) {
            let message = "FeatureGate KubeletCrashLoopBackOffMax not enabled, \
                           crashLoopBackOff.maxContainerRestartPeriod must not be set";
            self.invalid(PATH, message.into());
        } else if period < GoDuration::from_secs(1) || period > GoDuration::from_secs(300) {
            let message = format!(
                "crashLoopBackOff.maxContainerRestartPeriod (got: {} seconds) must be set between 1s and 300s",
                period.as_nanos() as f64 / 1e9
            );
            self.invalid(PATH, message);
        }
    }

    fn container_logs(&mut self, c: &KubeletConfiguration) {
        if c.container_log_max_workers < 1 {
            let message = format!(
                "containerLogMaxWorkers {} must be greater than or equal to 1",
                c.container_log_max_workers
            );
            self.invalid(&["containerLogMaxWorkers"], message);
        }
        if c.container_log_monitor_interval < GoDuration::from_secs(3) {
            let message = format!(
                "containerLogMonitorInterval {} must be a positive time duration greater than or equal to 3s",
                c.container_log_monitor_interval
            );
            self.invalid(&["containerLogMonitorInterval"], message);
        }
        if c.container_log_max_files <= 1 {
            let message =
                format!("containerLogMaxFiles {} must be greater than 1", c.container_log_max_files);
            self.invalid(&["containerLogMaxFiles"], message);
        }
        let directory = c.pod_logs_dir.as_ref();
        if !directory.starts_with('/') {
            let message = format!("podLogsDir {directory:?} must be an absolute path");
            self.invalid(&["podLogsDir"], message);
        }
        if !is_clean(directory) {
            let message = format!(
                "podLogsDir {directory:?} must be without \".\", \"..\", \"//\" and a slash at its end"
            );
            self.invalid(&["podLogsDir"], message);
        }
        if !directory.is_ascii() {
            let message = format!("podLogsDir {directory:?} must contain ASCII characters only");
            self.invalid(&["podLogsDir"], message);
        }
    }

    fn servers(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        if !(1..=65535).contains(&c.port) {
            let message = format!("port (--port) {} must be between 1 and 65535, inclusive", c.port);
            self.invalid(&["port"], message);
        }
        if !(0..=65535).contains(&c.read_only_port) {
            let message = format!(
                "readOnlyPort (--read-only-port) {} must be between 0 and 65535, inclusive",
                c.read_only_port
            );
            self.invalid(&["readOnlyPort"], message);
        }
        if !(0..=65535).contains(&c.healthz_port) {
            let message = format!(
                "healthzPort (--healthz-port) {} must be between 0 and 65535, inclusive",
                c.healthz_port
            );
            self.invalid(&["healthzPort"], message);
        }
        if c.server_tls_bootstrap && !gates.enabled(Gate::RotateKubeletServerCertificate) {
            let message = "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate";
            self.invalid(&["serverTLSBootstrap"], message.into());
        }
        if let AuthorizationMode::Other(other) = &c.authorization.mode {
            let message = format!(
                "authorization.mode (--authorization-mode): unknown authorization mode {other:?}; {} is accepted",
                one_of(AuthorizationMode::WORDS)
            );
            self.fail(&["authorization", "mode"], message);
        }
        if !c.tls_min_version.is_empty() && !TLS_VERSIONS.contains(&c.tls_min_version.as_ref()) {
            let message = format!(
                "tlsMinVersion (--tls-min-version): unknown tls version {:?}; {} is accepted",
                c.tls_min_version,
                one_of(TLS_VERSIONS)
            );
            self.fail(&["tlsMinVersion"], message);
        }
        if c.tls_cert_file.is_empty() != c.tls_private_key_file.is_empty() {
            let message = "tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) go together: \
                           only one is set";
            self.invalid_pair(&["tlsCertFile"], &["tlsPrivateKeyFile"], message.into());
        }
        if c.enable_system_log_query && !gates.enabled(Gate::NodeLogQuery) {
            let message = "NodeLogQuery feature gate is required for enableSystemLogQuery";
            self.invalid(&["enableSystemLogQuery"], message.into());
        }
        if c.enable_system_log_query && !c.enable_system_log_handler {
            let message = "enableSystemLogHandler is required for enableSystemLogQuery";
            self.invalid(&["enableSystemLogQuery"], message.into());
        }
        for (path, endpoint) in [
            (&["containerRuntimeEndpoint"] as &[&str], &c.container_runtime_endpoint),
            (&["imageServiceEndpoint"], &c.image_service_endpoint),
        ] {
            let socket = endpoint.strip_prefix("unix://").or(endpoint.starts_with('/').then_some(endpoint));
            match socket {
                _ if endpoint.is_empty() && path[0] == "imageServiceEndpoint" => {}
                _ if endpoint.is_empty() => {
                    self.invalid(path, "the containerRuntimeEndpoint was not specified or empty".into());
                }
                Some(socket) if socket.starts_with('/') => {}
                Some(_) | None => {
                    let message = format!(
                        "{} {endpoint:?} must be a unix socket such as \"unix:///run/x.sock\"",
                        path[0]
                    );
                    self.invalid(path, message);
                }
            }
        }
        if !["", "1.35"].contains(&c.show_hidden_metrics_for_version.as_ref()) {
            let message = format!(
                "showHiddenMetricsForVersion {:?} must be omitted or have the value \"1.35\". Only the previous minor \
                 version is allowed",
                c.show_hidden_metrics_for_version
            );
            self.fail(&["showHiddenMetricsForVersion"], message);
        }
    }

    fn logging(&mut self, logging: &Logging, gates: &FeatureGates) {
        if logging.flush_frequency.duration <= GoDuration::ZERO {
            let message = format!(
                "logging.flushFrequency: Invalid value: \"{}\": Must be greater than zero",
                logging.flush_frequency.duration
            );
            self.fail(&["logging", "flushFrequency"], message);
        }
        if let LogFormat::Other(other) = &logging.format {
            let message = format!(
                "logging.format: Invalid value: {other:?}: Unsupported log format; {} is accepted",
                one_of(LogFormat::WORDS)
            );
            self.fail(&["logging", "format"], message);
        }
        if logging.verbosity > i32::MAX.unsigned_abs() {
            let message =
                format!("logging.verbosity: Invalid value: {}: Must be <= {}", logging.verbosity, i32::MAX);
            self.fail(&["logging", "verbosity"], message);
        }
        if !logging.vmodule.is_empty() && logging.format != LogFormat::Text {
            let message = "logging.vmodule: Forbidden: Only supported for text log format";
            self.fail(&["logging", "vmodule"], message.into());
        }
        for (index, item) in logging.vmodule.iter().enumerate() {
            if item.file_pattern.is_empty() {
                let message =
                    format!("logging.vmodule[{index}]: Required value: File pattern must not be empty");
                self.fail(&["logging", "vmodule"], message);
            }
            if item.verbosity > i32::MAX.unsigned_abs() {
                let message = format!(
                    "logging.vmodule[{index}].verbosity: Invalid value: {}: Must be <= {}",
                    item.verbosity,
                    i32::MAX
                );
                self.fail(&["logging", "vmodule"], message);
            }
            if item.file_pattern.contains(['=', ',']) {
                let message = format!(
                    "logging.vmodule[{index}]: Invalid value: {:?}: File pattern must not contain equal sign or comma",
                    item.file_pattern
                );
                self.fail(&["logging", "vmodule"], message);
            }
        }
        if gates.enabled(Gate::LoggingAlphaOptions) {
            return;
        }
        for (format, options) in [("text", &logging.options.text), ("json", &logging.options.json)] {
            for (field, is_set) in [
                ("splitStream", options.split_stream),
                ("infoBufferSize", !options.info_buffer_size.is_zero()),
            ] {
                if is_set {
                    let message = format!(
                        "logging.options.{format}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"
                    );
                    self.fail(&["logging", "options"], message);
                }
            }
        }
    }

    fn tracing(&mut self, c: &KubeletConfiguration) {
        let Some(tracing) = &c.tracing else { return };
        match tracing.sampling_rate_per_million {
            Some(rate) if rate < 0 => {
                let message = format!(
                    "tracing.samplingRatePerMillion: Invalid value: {rate}: sampling rate must be positive"
                );
                self.fail(&["tracing", "samplingRatePerMillion"], message);
            }
            Some(rate) if rate > 1_000_000 => {
                let message = format!(
                    "tracing.samplingRatePerMillion: Invalid value: {rate}: sampling rate per million must be less \
                     than or equal to one million"
                );
                self.fail(&["tracing", "samplingRatePerMillion"], message);
            }
            Some(_) | None => {}
        }
        if let Some(endpoint) = &tracing.endpoint
            && let Some((scheme, _)) = endpoint.split_once("//")
            && !["dns:", "unix:", "unix-abstract:"].contains(&scheme)
        {
            let message = format!(
                "tracing.endpoint: Invalid value: {endpoint:?}: unsupported scheme: {}.  Options are none, dns, unix, \
                 or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
                scheme.trim_end_matches(':')
            );
            self.fail(&["tracing", "endpoint"], message);
        }
    }

    fn node_labels(&mut self, labels: &BTreeMap<Box<str>, Box<str>>) {
        const PATH: &[&str] = &["node-labels"];
        let unknown: Vec<&str> = labels
            .keys()
            .map(AsRef::as_ref)
            .filter(|key| is_kubernetes_label(key) && !is_kubelet_label(key))
            .collect();
        if !unknown.is_empty() {
            let message = format!(
                "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]; --node-labels in the \
                 'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed \
                 set ({})",
                unknown.join(" "),
                KUBELET_LABEL_NAMESPACES.join(", "),
                KUBELET_LABELS.join(", ")
            );
            self.fail(PATH, message);
        }
        for (key, value) in labels {
            for (text, problems) in [(key, qualified_name_errors(key)), (value, label_value_errors(value))] {
                if !problems.is_empty() {
                    self.fail(PATH, format!("invalid node labels: '{text}' - {}", problems.join(", ")));
                }
            }
        }
    }
}

/// Resources that can be kept back from pods.
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// The words for versions of TLS.
const TLS_VERSIONS: &[&str] = &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// Labels under Kubernetes' own names that a node may give itself.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Prefixes of labels that a node may give itself.
const KUBELET_LABEL_NAMESPACES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

fn is_kubernetes_label(key: &str) -> bool {
    ["kubernetes.io", "k8s.io"].iter().any(|domain| is_within(label_namespace(key), domain))
}

fn is_kubelet_label(key: &str) -> bool {
    KUBELET_LABELS.contains(&key)
        || KUBELET_LABEL_NAMESPACES.iter().any(|domain| is_within(label_namespace(key), domain))
}

fn label_namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

fn is_within(namespace: &str, domain: &str) -> bool {
    namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn image_pattern_problem(pattern: &str) -> Option<String> {
    let (stem, wildcard) = match pattern.strip_suffix('*') {
        Some(stem) if stem.ends_with('/') => (stem, true),
        Some(_) | None => (pattern, false),
    };
    if pattern.trim() != pattern {
        Some(format!("leading/trailing spaces are not allowed: {pattern}"))
    } else if stem.is_empty() {
        Some(format!("the supplied pattern is too short: {pattern}"))
    } else if stem.contains('*') {
        Some(format!("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"))
    } else if wildcard {
        (stem.len() == 1).then(|| "at least registry hostname is required".into())
    } else {
        let last = stem.rsplit('/').next().unwrap_or(stem);
        last.contains(['@', ':'])
            .then(|| format!("neither tag nor digest is accepted in an image reference: {pattern}"))
    }
}

/// Whether a path has no `.`, `..` or empty parts and no slash at its end.
fn is_clean(path: &str) -> bool {
    path == "/"
        || path
            .split('/')
            .enumerate()
            .all(|(index, part)| !matches!(part, "." | "..") && (index == 0 || !part.is_empty()))
}

fn quoted(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| format!("{word:?}")).collect()
}

/// `"a", "b" or "c"`.
fn one_of(words: &[&str]) -> String {
    match quoted(words).as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
