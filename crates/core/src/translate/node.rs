//! What a translation must know of the node, beside the pod.

use std::net::IpAddr;

use crablet_api::core::ResourceList;
use crablet_api::{FeatureGates, Map, Text};
use crablet_cgroup_names::{CgroupDriver, Layout};

/// The node that a pod is translated for: what it is, how its kubelet is set up, and which features are on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeContext {
    /// What the node is.
    pub facts: NodeFacts,
    /// How its kubelet is set up.
    pub settings: Settings,
    pub features: FeatureGates,
}

/// What a node is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFacts {
    /// The addresses of the node's object: at most one of each family, the preferred one first.
    pub host_ips: Vec<IpAddr>,
    /// The addresses that the kubelet was told or found to be the node's.
    pub node_ips: Vec<IpAddr>,
    /// The labels of the node's object, by which storage says where it can be reached.
    pub labels: Map<Text>,
    /// What pods may use of the node.
    pub allocatable: ResourceList,
    /// Bytes of memory that nobody keeps from pods. What hard eviction leaves free is among them, and huge pages are.
    pub enforced_memory: i64,
    /// Bytes of memory.
    pub memory_capacity: i64,
    /// Bytes of swap.
    pub swap_capacity: i64,
    /// Bytes of a page of memory.
    pub page_size: i64,
    /// Whether there is one hierarchy of control groups (version 2).
    pub cgroup_v2: bool,
    /// Whether control groups can limit swap.
    pub swap_controller: bool,
    /// The sizes of huge pages, as control groups name them: `2MB`.
    pub huge_page_sizes: Vec<String>,
    /// Whether SELinux is enabled.
    pub selinux: bool,
    /// Paths beside the usual ones that containers must not read, such as the thermal counters of each CPU.
    pub masked_paths: Vec<String>,
}

/// How a kubelet is set up, as far as it shows in what is asked of the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the logs of pods are.
    pub pod_logs_directory: String,
    /// The name servers of the cluster.
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// The file that says how the node itself resolves; empty for none.
    pub resolv_conf: String,
    /// Whether containers that say nothing run under the runtime's default seccomp profile.
    pub seccomp_default: bool,
    /// Where seccomp profiles of the node are.
    pub seccomp_profile_root: String,
    /// Whether limits of CPU are enforced.
    pub cpu_cfs_quota: bool,
    /// The period within which limits of CPU are enforced, in microseconds.
    pub cpu_cfs_quota_period: i64,
    /// Between its request and its limit, the share from which on a container's memory is throttled.
    pub memory_throttling_factor: f64,
    /// Whether requested memory is reserved in the kernel.
    pub memory_reservation: MemoryReservation,
    /// Whether containers may swap.
    pub swap: SwapBehavior,
    /// Whether only the process that ran out of memory dies, and not its whole container.
    pub single_process_oom_kill: bool,
    /// How the control groups of pods are named; nothing where pods have none of their own.
    pub cgroups: Option<Layout>,
}

impl Default for Settings {
    /// As with an empty configuration.
    fn default() -> Settings {
        Settings {
            pod_logs_directory: "/var/log/pods".to_owned(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".to_owned(),
            seccomp_default: false,
            seccomp_profile_root: "/var/lib/kubelet/seccomp".to_owned(),
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: super::QUOTA_PERIOD,
            memory_throttling_factor: 0.9,
            memory_reservation: MemoryReservation::None,
            swap: SwapBehavior::NoSwap,
            single_process_oom_kill: false,
            cgroups: Some(Layout::new("/", CgroupDriver::Cgroupfs)),
        }
    }
}

/// Whether requested memory is reserved in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryReservation {
    /// It is not.
    None,
    /// Firmly for guaranteed pods, softly for others.
    Tiered,
}

/// Whether containers may swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapBehavior {
    /// No container.
    NoSwap,
    /// Those of burstable pods, in proportion to the memory they ask for.
    LimitedSwap,
}
