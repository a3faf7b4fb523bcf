//! Resource managers, and what is reserved for whom.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::resource_names::is_huge_pages;
use crablet_api::{FeatureGates, Gate, GoDuration, Parsed, Quantity};

use super::{Check, one_of, quoted};
use crate::kubelet_configuration::*;
use crate::words::*;

impl Check {
    pub(super) fn resource_managers(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
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

    pub(super) fn node_allocatable(&mut self, c: &KubeletConfiguration) {
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
                    self.reserved_amounts(
                        enforcement,
                        "systemReserved",
                        "system-reserved",
                        &c.system_reserved,
                    );
                }
                Enforcement::KubeReserved | Enforcement::KubeReservedCompressible => {
                    self.reserved_cgroup("kubeReservedCgroup", "kube-reserved", &c.kube_reserved_cgroup);
                    self.reserved_amounts(enforcement, "kubeReserved", "kube-reserved", &c.kube_reserved);
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

    /// Who is to be held to amounts that nobody named would be held to none of huge pages, and to nothing else. Upstream
    /// refuses it when it sets the limits, naming the cgroup.
    fn reserved_amounts(
        &mut self,
        enforcement: &NodeAllocatableEnforcement,
        field: &str,
        key: &str,
        amounts: &BTreeMap<Box<str>, Parsed<Quantity>>,
    ) {
        if amounts.is_empty() {
            let message = format!(
                "{field} (--{key}) must say how much of {} is kept, since \"{enforcement}\" is in \
                 enforceNodeAllocatable (--enforce-node-allocatable)",
                one_of(RESERVABLE)
            );
            self.fail(&["enforceNodeAllocatable"], message);
        }
    }

    pub(super) fn reserved(&mut self, c: &KubeletConfiguration) {
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
                if resource.as_ref() != "memory" && !is_huge_pages(resource) {
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
}

/// Resources that can be kept back from pods.
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];
