//! What the node is, from its configuration and its machine: what decisions, translations and admission ask about it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crablet_api::core::{Node, NodeSwapStatus, NodeSystemInfo, ResourceList};
use crablet_api::resource_names::huge_pages_of;
use crablet_api::{CpuSet, FeatureGates, Gate, Parsed, Quantity, QuantityFormat, Text};
use crablet_config::{
    CgroupDriver, CpuManagerPolicy, Effective, KubeletConfiguration, KubeletFlags, MemoryManagerPolicy,
    MemoryReservationPolicy, NodeAllocatableEnforcement, ShutdownGracePeriodByPodPriority,
    SwapBehavior as ConfiguredSwap,
};
use crablet_core::backoff::Limits;
use crablet_core::declared_features::declared;
use crablet_core::eviction::Signal;
use crablet_core::node_allocatable::{Held, PROCESSES, Reserved};
use crablet_core::resize::decision::Exclusive;
use crablet_core::shutdown;
use crablet_core::status;
use crablet_core::translate::{
    self, MemoryReservation, NodeFacts, Settings, SwapBehavior, SysctlAllowlist, page_size_in_cgroups,
};
use crablet_core::{container_gc, image_gc};
use crablet_cri_api::Version;
use crablet_host::cgroup::{self, Bound, HugePages};
use crablet_host::machine::{Machine, Storage};
use jiff::SignedDuration;

use crate::node_cgroups::{self, Whose};
use crate::node_facts;
use crate::{eviction, images};

/// The version of Kubernetes that this agent stands in for: what the API server and kubeadm are told.
pub const KUBERNETES: &str = "v1.36.4";

/// Says of a node that controllers attach its volumes.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// How many sandboxes and containers are made at the same time, for each CPU: with fewer some CPU waits for a disk or
/// another process now and then, and with more each gets in the way of the others.
const STARTS_AT_ONCE_A_CPU: usize = 2;

/// What the node is.
pub struct NodeConfig {
    /// The node's name.
    pub name: String,
    /// As the API server would show it, for admission.
    pub node: Node,
    /// Which kernel parameters pods may set.
    pub sysctls: SysctlAllowlist,
    /// Whether AppArmor is on.
    pub app_armor: bool,
    /// Which resources are handed out one by one.
    pub exclusive: Exclusive,
    /// For the translation of pods.
    pub translation: translate::NodeContext,
    /// For the statuses of pods.
    pub status: status::NodeFacts,
    /// The waits before restarts.
    pub restart_limits: Limits,
    /// How many processes a pod may have.
    pub pod_pids_limit: Option<u64>,
    /// What all pods together are held to.
    pub held: cgroup::Limits,
    /// What the other cgroups of the node are held to.
    pub cgroups: node_cgroups::Settings,
    /// How many sandboxes and containers are made at the same time.
    pub starts_at_once: usize,
    /// How many containers that ended are kept.
    pub container_gc: container_gc::Policy,
    /// How pulls are bounded.
    pub images: images::Settings,
    /// How long which pods have when the machine is shut down: none, and nobody waits for them.
    pub shutdown_periods: Vec<shutdown::Period>,
    /// When pods have to go.
    pub eviction: eviction::Settings,
    /// When images that nobody uses go.
    pub image_gc: image_gc::Policy,
}

/// What was found out about the machine and its runtime.
pub struct Found<'a> {
    pub machine: &'a Machine,
    /// The file system that the root directory is on.
    pub storage: Option<Storage>,
    pub cgroups: cgroup::Version,
    pub runtime: &'a Version,
    /// The machine's name for itself.
    pub host_name: &'a str,
    /// The addresses that the node is reached by, the preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Which kernel parameters pods may set: see [`kernel_of`].
    pub sysctls: SysctlAllowlist,
    /// Whether AppArmor is on.
    pub app_armor: bool,
    /// Whether SELinux is on.
    pub selinux: bool,
    /// Whether cgroups can limit swap.
    pub swap_controller: bool,
    /// Bytes of a page of memory.
    pub page_size: usize,
    /// What containers must not read of this machine, beside what they must not read of any.
    pub masked_paths: Vec<String>,
}

impl NodeConfig {
    /// Describes the node.
    pub fn new(effective: &Effective, found: &Found<'_>) -> NodeConfig {
        let (configuration, flags) = (&effective.configuration, &effective.flags);
        let name = node_name(&flags.hostname_override, found.host_name);
        let sizes = Sizes::new(configuration, flags, &effective.features, found.machine, found.storage);
        let mut node = Node::default();
        node.metadata.name = name.as_str().into();
        node.metadata.labels = labels(&name, found.machine, &flags.node_labels);
        let reserved = reserved(configuration, flags, &sizes.capacity);
        let cgroups = node_cgroups(configuration, &effective.features, found, &reserved);
        node.status.capacity = sizes.capacity.clone();
        node.status.allocatable = sizes.allocatable.clone();
        node.status.addresses = node_facts::node_addresses(&name, &found.addresses);
        node.status.daemon_endpoints.kubelet_endpoint.port = configuration.port;
        node.status.node_info = system_info(found, sizes.swap.clone());
        node.status.declared_features = declared(&effective.features, None);
        if configuration.enable_controller_attach_detach {
            node.metadata.annotations.insert(ATTACH_DETACH, "true".into());
        }
        let reduced = effective.features.enabled(Gate::ReduceDefaultCrashLoopBackOffDecay);
        let longest = configuration
            .crash_loop_back_off
            .max_container_restart_period
            .filter(|_| effective.features.enabled(Gate::KubeletCrashLoopBackOffMax));
        NodeConfig {
            held: sizes.held.clone(),
            translation: translation(effective, found, &node, sizes),
            status: status::NodeFacts {
                host_ips: found.addresses.clone(),
                prefers_ipv6: found.addresses.first().is_some_and(IpAddr::is_ipv6),
                runtime_name: found.runtime.name.as_str().into(),
            },
            sysctls: found.sysctls.clone(),
            app_armor: found.app_armor,
            exclusive: Exclusive {
                cpus: configuration.cpu_manager_policy == CpuManagerPolicy::Static,
                memory: configuration.memory_manager_policy == MemoryManagerPolicy::Static,
            },
            restart_limits: Limits::restarts(reduced, longest),
            starts_at_once: usize::try_from(found.machine.cpus).unwrap_or(1) * STARTS_AT_ONCE_A_CPU,
            pod_pids_limit: u64::try_from(configuration.pod_pids_limit).ok().filter(|limit| *limit > 0),
            container_gc: container_gc::Policy {
                max_per_container: usize::try_from(flags.maximum_dead_containers_per_container)
                    .unwrap_or(usize::MAX),
                max_containers: usize::try_from(flags.maximum_dead_containers).ok(),
                min_age: SignedDuration::from_nanos(flags.minimum_container_ttl_duration.as_nanos()),
            },
            eviction: eviction::Settings::new(configuration, flags),
            image_gc: image_gc::Policy {
                high_threshold_percent: i64::from(configuration.image_gc_high_threshold_percent),
                low_threshold_percent: i64::from(configuration.image_gc_low_threshold_percent),
                min_age: SignedDuration::from_nanos(configuration.image_minimum_gc_age.as_nanos()),
                max_age: Some(SignedDuration::from_nanos(configuration.image_maximum_gc_age.as_nanos()))
                    .filter(|most| most.is_positive()),
            },
            images: images::Settings::new(
                configuration.serialize_image_pulls,
                configuration.max_parallel_image_pulls,
                configuration.registry_pull_qps,
                configuration.registry_burst,
            ),
            cgroups,
            shutdown_periods: shutdown_periods(effective),
            name,
            node,
        }
    }
}

/// How long which pods have when the machine is shut down.
fn shutdown_periods(effective: &Effective) -> Vec<shutdown::Period> {
    let configuration = &effective.configuration;
    let is_on = |gate| effective.features.enabled(gate);
    if !is_on(Gate::GracefulNodeShutdown) {
        return Vec::new();
    }
    let by_priority = configuration.shutdown_grace_period_by_pod_priority.iter();
    let by_priority = by_priority.filter(|_| is_on(Gate::GracefulNodeShutdownBasedOnPodPriority));
    let period = |given: &ShutdownGracePeriodByPodPriority| shutdown::Period {
        priority: given.priority,
        length: Duration::from_secs(u64::try_from(given.shutdown_grace_period_seconds).unwrap_or_default()),
    };
    shutdown::periods(
        configuration.shutdown_grace_period.to_std(),
        configuration.shutdown_grace_period_critical_pods.to_std(),
        by_priority.map(period).collect(),
    )
}

/// The major and minor version of a kernel, from what it calls itself, such as `6.1.0-13-amd64`.
pub fn kernel_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The node's name: the one that was given, else the machine's for itself, in small letters.
pub fn node_name(given: &str, host_name: &str) -> String {
    let name = if given.is_empty() { host_name } else { given };
    name.trim().to_lowercase()
}

fn system_info(found: &Found<'_>, swap: Option<NodeSwapStatus>) -> NodeSystemInfo {
    let Found { machine, runtime, .. } = found;
    NodeSystemInfo {
        machine_id: machine.machine_id.as_str().into(),
        system_uuid: machine.system_uuid.as_str().into(),
        boot_id: machine.boot_id.as_str().into(),
        kernel_version: machine.kernel_version.as_str().into(),
        os_image: machine.os_image.as_str().into(),
        container_runtime_version: runtime_version(runtime),
        kubelet_version: KUBERNETES.into(),
        operating_system: "linux".into(),
        architecture: machine.architecture.into(),
        swap,
        ..NodeSystemInfo::default()
    }
}

/// A runtime and its version, as a node's object tells of it.
pub fn runtime_version(runtime: &Version) -> Text {
    format!("{}://{}", runtime.name, runtime.version).into()
}

fn labels(
    name: &str,
    machine: &Machine,
    given: &BTreeMap<Box<str>, Box<str>>,
) -> crablet_api::Map<crablet_api::Text> {
    let mut labels = crablet_api::Map::default();
    labels.insert("kubernetes.io/hostname", name.into());
    for (label, value) in [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", machine.architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", machine.architecture),
    ] {
        labels.insert(label, value.into());
    }
    for (label, value) in given {
        labels.insert(&**label, (&**value).into());
    }
    labels
}

/// What may change while the machine runs: what is plugged in or out, set aside as huge pages, or swapped to.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// What the node has.
    pub capacity: ResourceList,
    /// What of it is for pods.
    pub allocatable: ResourceList,
    /// Swap space, as the node tells of it.
    pub swap: Option<NodeSwapStatus>,
    /// What all pods together are held to.
    pub held: cgroup::Limits,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of memory that nobody keeps from pods.
    pub enforced_memory: i64,
    /// Bytes of swap space.
    pub swap_capacity: i64,
    /// The sizes of huge pages, as cgroups call them.
    pub huge_page_sizes: Vec<String>,
}

impl Sizes {
    /// Those of a machine.
    pub fn new(
        configuration: &KubeletConfiguration,
        flags: &KubeletFlags,
        features: &FeatureGates,
        machine: &Machine,
        storage: Option<Storage>,
    ) -> Sizes {
        let capacity = capacity(configuration, machine, storage);
        let reserved = reserved(configuration, flags, &capacity);
        let allocatable = reserved.allocatable(&capacity);
        let tells_swap = features.enabled(Gate::NodeSwap);
        let swap = i64::try_from(machine.swap).ok().filter(|swap| tells_swap && *swap != 0);
        let huge_page_sizes = machine.huge_pages.keys().filter_map(|size| i64::try_from(*size).ok());
        let enforced = reserved.enforced(&internal_capacity(&capacity, machine));
        Sizes {
            held: limits_of_pods(configuration, machine, &capacity, &enforced),
            enforced_memory: enforced.get("memory").map_or(0, Quantity::value),
            capacity,
            allocatable,
            swap: swap.map(|capacity| NodeSwapStatus { capacity: Some(capacity) }),
            memory: i64::try_from(machine.memory).unwrap_or(i64::MAX),
            swap_capacity: i64::try_from(machine.swap).unwrap_or(i64::MAX),
            huge_page_sizes: huge_page_sizes.filter_map(page_size_in_cgroups).collect(),
        }
    }
}

/// What the node has.
pub fn capacity(
    configuration: &KubeletConfiguration,
    machine: &Machine,
    storage: Option<Storage>,
) -> ResourceList {
    let pods = match configuration.pods_per_core {
        0 => i64::from(configuration.max_pods),
        per_core => i64::from(configuration.max_pods).min(i64::from(per_core) * i64::from(machine.cpus)),
    };
    let mut capacity = ResourceList::default();
    capacity.insert("cpu", amount(u64::from(machine.cpus)));
    capacity.insert("memory", amount(machine.memory).with_format(QuantityFormat::BinarySi));
    capacity.insert("pods", amount(pods.unsigned_abs()));
    if let Some(storage) = storage.filter(|_| configuration.local_storage_capacity_isolation) {
        let whole = amount(storage.capacity).with_format(QuantityFormat::BinarySi);
        capacity.insert("ephemeral-storage", whole);
    }
    for (size, count) in &machine.huge_pages {
        let name = huge_pages_of(&in_binary(*size));
        capacity.insert(name, amount(size.saturating_mul(*count)).with_format(QuantityFormat::BinarySi));
    }
    capacity
}

/// What the node has, with what only cgroups are held to and no status tells.
pub fn internal_capacity(capacity: &ResourceList, machine: &Machine) -> ResourceList {
    let mut internal = capacity.clone();
    if let Some(processes) = machine.processes {
        internal.insert(PROCESSES, amount(processes));
    }
    internal
}

/// What of that is kept from pods. CPUs that are kept by their numbers replace amounts of CPU.
pub fn reserved(
    configuration: &KubeletConfiguration,
    flags: &KubeletFlags,
    capacity: &ResourceList,
) -> Reserved {
    let list = |amounts: &BTreeMap<Box<str>, Parsed<Quantity>>| -> ResourceList {
        amounts.iter().map(|(name, quantity)| (&**name, quantity.value.clone())).collect()
    };
    let (mut kube, mut system) = (list(&configuration.kube_reserved), list(&configuration.system_reserved));
    let cpus = configuration.reserved_system_cpus.value.len();
    if cpus > 0 {
        kube.remove("cpu");
        system.insert("cpu", amount(u64::try_from(cpus).unwrap_or(u64::MAX)));
    }
    let mut eviction = ResourceList::default();
    if flags.experimental_allocatable_ignore_eviction {
        return Reserved { kube, system, eviction };
    }
    let hard = eviction::hard_thresholds(configuration);
    for (signal, resource) in
        [(Signal::MemoryAvailable, "memory"), (Signal::NodeFsAvailable, "ephemeral-storage")]
    {
        if let Some(kept) = hard.get(&signal) {
            eviction.insert(resource, kept.of(capacity.get(resource).map_or(0, Quantity::value)));
        }
    }
    Reserved { kube, system, eviction }
}

/// What all pods together are held to. Huge pages are handed out one by one, and each pod is held to its own.
fn limits_of_pods(
    configuration: &KubeletConfiguration,
    machine: &Machine,
    capacity: &ResourceList,
    enforced: &ResourceList,
) -> cgroup::Limits {
    let held = match configuration.enforce_node_allocatable.contains(&NodeAllocatableEnforcement::Pods) {
        true => Held::to(enforced),
        false => Held::to(&internal_capacity(capacity, machine)),
    };
    let cpus = || CpuSet::from_iter(machine.online_cpus.iter().copied()).to_string();
    cgroup::Limits {
        huge_pages: HugePages::Unlimited,
        // systemd hands processors down only to whom it was told to, and takes them away from others.
        cpus: (cgroup_driver(configuration) == cgroup::CgroupDriver::Systemd).then(cpus),
        ..limits_of(&held)
    }
}

/// What the cgroups of the node beside those of pods are held to.
fn node_cgroups(
    configuration: &KubeletConfiguration,
    features: &FeatureGates,
    found: &Found<'_>,
    reserved: &Reserved,
) -> node_cgroups::Settings {
    use NodeAllocatableEnforcement as Enforcement;
    let holds = |whom: &Enforcement| configuration.enforce_node_allocatable.contains(whom);
    let protects_memory = features.enabled(Gate::MemoryQoS) && found.cgroups == cgroup::Version::V2;
    let other = |whose: Whose, is_compressible: bool, cgroup: &str, kept: &ResourceList| {
        let held = if is_compressible { Held::to_compressible(kept) } else { Held::to(kept) };
        let mut limits = limits_of(&held);
        if let Some(memory) = held.memory.filter(|_| protects_memory) {
            limits.unified.insert("memory.min".to_owned(), memory.to_string());
        }
        node_cgroups::Other { whose, is_compressible, cgroup: cgroup.to_owned(), limits }
    };
    let (system, kube) = (&configuration.system_reserved_cgroup, &configuration.kube_reserved_cgroup);
    let others = [
        (Enforcement::SystemReserved, other(Whose::System, false, system, &reserved.system)),
        (Enforcement::KubeReserved, other(Whose::Kube, false, kube, &reserved.kube)),
        (Enforcement::SystemReservedCompressible, other(Whose::System, true, system, &reserved.system)),
        (Enforcement::KubeReservedCompressible, other(Whose::Kube, true, kube, &reserved.kube)),
    ];
    node_cgroups::Settings {
        others: others.into_iter().filter(|(whom, _)| holds(whom)).map(|(_, other)| other).collect(),
        memory: protects_memory.then(|| memory_reservation(configuration)),
        of_kubelet: given(&configuration.kubelet_cgroups),
        of_system: given(&configuration.system_cgroups),
    }
}

fn given(cgroup: &str) -> Option<String> {
    Some(cgroup.to_owned()).filter(|cgroup| !cgroup.is_empty())
}

/// As upstream, no memory at all is no limit: the kernel would end everybody there. Of processes it allows one then, of the
/// CPU the least share, and of huge pages none.
fn limits_of(held: &Held) -> cgroup::Limits {
    cgroup::Limits {
        cpu_shares: held.cpu_shares,
        memory: held.memory.filter(|memory| *memory > 0).map(Bound::At),
        processes: held.processes.map(Bound::At),
        huge_pages: held.huge_pages.clone().map_or(HugePages::Unchanged, HugePages::Only),
        ..cgroup::Limits::default()
    }
}

fn memory_reservation(configuration: &KubeletConfiguration) -> MemoryReservation {
    match configuration.memory_reservation_policy {
        MemoryReservationPolicy::TieredReservation => MemoryReservation::Tiered,
        MemoryReservationPolicy::None | MemoryReservationPolicy::Other(_) => MemoryReservation::None,
    }
}

fn amount(value: u64) -> Quantity {
    Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX))
}

fn in_binary(size: u64) -> String {
    match size {
        size if size.is_multiple_of(1 << 30) => format!("{}Gi", size >> 30),
        size if size.is_multiple_of(1 << 20) => format!("{}Mi", size >> 20),
        size => format!("{}Ki", size >> 10),
    }
}

fn translation(
    effective: &Effective,
    found: &Found<'_>,
    node: &Node,
    sizes: Sizes,
) -> translate::NodeContext {
    let configuration = &effective.configuration;
    let root = Path::new(&*effective.flags.root_dir);
    translate::NodeContext {
        facts: NodeFacts {
            host_ips: found.addresses.clone(),
            node_ips: found.addresses.clone(),
            labels: node.metadata.labels.clone(),
            allocatable: sizes.allocatable,
            enforced_memory: sizes.enforced_memory,
            memory_capacity: sizes.memory,
            swap_capacity: sizes.swap_capacity,
            page_size: i64::try_from(found.page_size).unwrap_or(i64::MAX),
            cgroup_v2: found.cgroups == cgroup::Version::V2,
            swap_controller: found.swap_controller,
            huge_page_sizes: sizes.huge_page_sizes,
            selinux: found.selinux,
            masked_paths: found.masked_paths.clone(),
        },
        settings: Settings {
            pod_logs_directory: configuration.pod_logs_dir.to_string(),
            cluster_dns: configuration.cluster_dns.iter().filter_map(|ip| ip.parse().ok()).collect(),
            cluster_domain: configuration.cluster_domain.to_string(),
            resolv_conf: configuration.resolv_conf.to_string(),
            seccomp_default: configuration.seccomp_default,
            seccomp_profile_root: root.join("seccomp").display().to_string(),
            cpu_cfs_quota: configuration.cpu_cfs_quota,
            cpu_cfs_quota_period: configuration.cpu_cfs_quota_period.as_nanos() / 1000,
            memory_throttling_factor: configuration.memory_throttling_factor.unwrap_or(0.9),
            memory_reservation: memory_reservation(configuration),
            swap: match &configuration.memory_swap.swap_behavior {
                Some(ConfiguredSwap::LimitedSwap) => SwapBehavior::LimitedSwap,
                Some(_) | None => SwapBehavior::NoSwap,
            },
            single_process_oom_kill: configuration.single_process_oom_kill.unwrap_or(false),
            cgroups: configuration
                .cgroups_per_qos
                .then(|| cgroup::Layout::new(&configuration.cgroup_root, cgroup_driver(configuration))),
        },
        features: effective.features,
    }
}

/// Who makes cgroups.
pub fn cgroup_driver(configuration: &KubeletConfiguration) -> cgroup::CgroupDriver {
    match configuration.cgroup_driver {
        CgroupDriver::Systemd => cgroup::CgroupDriver::Systemd,
        CgroupDriver::Cgroupfs | CgroupDriver::Other(_) => cgroup::CgroupDriver::Cgroupfs,
    }
}

#[cfg(test)]
mod tests {
    use crablet_config::Flag;

    use super::*;

    fn machine() -> Machine {
        Machine {
            cpus: 2,
            online_cpus: vec![0, 1],
            memory: 1 << 30,
            swap: 1 << 20,
            huge_pages: BTreeMap::new(),
            processes: Some(1000),
            machine_id: String::new(),
            system_uuid: String::new(),
            boot_id: String::new(),
            boot_time: None,
            kernel_version: "6.1".into(),
            os_image: "Linux".into(),
            architecture: "amd64",
        }
    }

    fn runtime() -> Version {
        Version { name: "r".into(), version: "1".into(), api_version: "v1".into() }
    }

    fn found<'a>(machine: &'a Machine, runtime: &'a Version) -> Found<'a> {
        Found {
            machine,
            storage: None,
            cgroups: cgroup::Version::V2,
            runtime,
            host_name: "node",
            addresses: Vec::new(),
            sysctls: SysctlAllowlist::default(),
            app_armor: false,
            selinux: true,
            swap_controller: true,
            page_size: 65536,
            masked_paths: vec!["/sys/hot".to_owned()],
        }
    }

    #[test]
    fn nobody_is_held_to_no_memory_at_all() {
        let machine = machine();
        let flags = [
            ("enforce-node-allocatable", "pods,system-reserved,kube-reserved"),
            ("system-reserved", "cpu=0,memory=0,pid=0"),
            ("kube-reserved", "cpu=2,memory=1Gi,pid=1000"),
            ("system-reserved-cgroup", "/system"),
            ("kube-reserved-cgroup", "/kube"),
        ];
        let effective =
            crablet_config::load(&flags.map(|(name, value)| (Flag::find(name).unwrap(), value))).unwrap();
        let node = NodeConfig::new(&effective, &found(&machine, &runtime()));
        let nothing = cgroup::Limits {
            cpu_shares: Some(2),
            memory: None,
            processes: Some(Bound::At(0)),
            ..cgroup::Limits::default()
        };
        let pods = cgroup::Limits { huge_pages: HugePages::Unlimited, ..nothing.clone() };
        assert_eq!(node.held, pods, "all of the node is kept from pods");
        let of = |whose: Whose| {
            let other = node.cgroups.others.iter().find(|other| other.whose == whose).unwrap();
            other.limits.clone()
        };
        let huge_pages = HugePages::Only(BTreeMap::new());
        assert_eq!(of(Whose::System), cgroup::Limits { huge_pages, ..nothing });
        assert_eq!(of(Whose::Kube).memory, Some(Bound::At(1 << 30)));
    }

    #[test]
    fn nobody_is_held_to_amounts_that_are_not_named() {
        for (word, whose) in [
            ("system-reserved", "system-reserved"),
            ("system-reserved-compressible", "system-reserved"),
            ("kube-reserved", "kube-reserved"),
            ("kube-reserved-compressible", "kube-reserved"),
        ] {
            let cgroup = format!("{whose}-cgroup");
            let flags =
                [("enforce-node-allocatable", word), (&cgroup, "/other"), (whose, "ephemeral-storage=1Gi")];
            let given = flags.map(|(name, value)| (Flag::find(name).unwrap(), value));
            let effective = crablet_config::load(&given).unwrap();
            let node = NodeConfig::new(&effective, &found(&machine(), &runtime()));
            assert_eq!(node.cgroups.others.len(), 1, "{word}");
            assert!(crablet_config::load(&given[..2]).is_err(), "{word}");
        }
    }

    #[test]
    fn what_was_found_out_of_the_machine_reaches_the_translation() {
        let effective = crablet_config::load(&[]).unwrap();
        let (machine, runtime) = (machine(), runtime());
        let mut found = found(&machine, &runtime);
        let facts = NodeConfig::new(&effective, &found).translation.facts;
        assert!(facts.selinux && facts.swap_controller && facts.cgroup_v2);
        assert_eq!((facts.page_size, facts.masked_paths.join(" ")), (65536, "/sys/hot".to_owned()));
        (found.selinux, found.swap_controller) = (false, false);
        let translation = NodeConfig::new(&effective, &found).translation;
        assert!(!translation.facts.selinux && !translation.facts.swap_controller);
        assert!(!translation.settings.single_process_oom_kill, "a container dies as a whole by default");
        assert_eq!(translation.settings.resolv_conf, "/etc/resolv.conf");
    }

    #[test]
    fn a_kernel_is_known_by_its_first_two_numbers() {
        for (version, expected) in [
            ("6.1.0-13-amd64", Some((6, 1))),
            ("4.15", Some((4, 15))),
            ("5.10+", Some((5, 10))),
            ("6", None),
            ("Unknown", None),
        ] {
            assert_eq!(kernel_of(version), expected, "{version}");
        }
    }
}
