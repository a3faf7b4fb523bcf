//! What the simulated node is: its machine, its runtime and its settings.

use std::time::Duration;

use crablet_agent::node_config::NodeConfig;
use crablet_agent::{images, node_cgroups};
use crablet_api::FeatureGates;
use crablet_api::core::{Node, ResourceList};
use crablet_cluster::node;
use crablet_core::container_gc::Policy;
use crablet_core::resize::decision::Exclusive;
use crablet_core::translate;
use crablet_core::{backoff, image_gc, status};
use crablet_cri_sim::{Capabilities, Latencies, Latency, Method, Settings};
use crablet_host::cgroup::{Bound, Limits};

use crate::behaviour::{PRESENT, PULLED, image};
use crate::room;

/// The CPUs of the node.
pub const CPUS: i64 = 64;

/// What the runtime of a seed is like.
pub fn settings(seed: u64) -> Settings {
    let millis = Duration::from_millis;
    let quick = Latency::Uniform(millis(1), millis(5));
    let slow = Latency::Tailed { least: millis(5), most: millis(60), worst: millis(3000), probability: 0.05 };
    // One in three runtimes is an old one, and one in three has no events at all.
    let base = match seed % 3 {
        0 => Settings::containerd_1_6(),
        1 => Settings::containerd_1_7(),
        _ => Settings::default(),
    };
    let capabilities = Capabilities { handlers_in_status: true, user_namespaces: true, ..base.capabilities };
    Settings {
        seed,
        capabilities,
        // Nobody could pull them again.
        images: base
            .images
            .iter()
            .cloned()
            .chain(PRESENT.iter().map(|name| image(name)))
            .map(crablet_cri_sim::Image::pinned)
            .collect(),
        registry: vec![image(PULLED)],
        latencies: Latencies::all(quick)
            .with(Method::RunPodSandbox, slow)
            .with(Method::CreateContainer, slow)
            .with(Method::StartContainer, slow)
            .with(Method::PullImage, Latency::Uniform(millis(100), millis(20_000))),
        exit_lag: if seed.is_multiple_of(2) { millis(20) } else { Duration::ZERO },
        remembered_calls: 10_000,
        remembered_asked: 1_000,
        ..base
    }
}

/// What the node is called.
pub(crate) const NODE: &str = "node";

pub(crate) fn node_settings() -> node::Settings {
    node::Settings {
        name: NODE.into(),
        registers: true,
        taints: Vec::new(),
        provider_id: "".into(),
        report_every: Duration::from_secs(300),
        most_images: 50,
        isolates_local_storage: true,
        cloud: None,
    }
}

/// The node that agents run on.
pub fn description() -> NodeConfig {
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    let mut node = Node::default();
    node.metadata.name = NODE.into();
    let mut capacity = ResourceList::default();
    for (name, amount) in [("cpu", CPUS), ("memory", 1 << 40), ("pods", 110), ("ephemeral-storage", 1 << 40)]
    {
        capacity.insert(name, crablet_api::Quantity::from_value(amount));
    }
    node.status.capacity = capacity.clone();
    node.status.allocatable = capacity.clone();
    NodeConfig {
        name: NODE.to_owned(),
        node,
        translation: translate::NodeContext {
            facts: translate::NodeFacts {
                host_ips: vec![address],
                node_ips: vec![address],
                allocatable: capacity,
                memory_capacity: 1 << 40,
                ..translate::NodeFacts::default()
            },
            settings: translate::Settings::default(),
            features: FeatureGates::default(),
        },
        sysctls: translate::SysctlAllowlist::default(),
        app_armor: false,
        status: status::NodeFacts {
            host_ips: vec![address],
            runtime_name: "simulated".into(),
            ..status::NodeFacts::default()
        },
        restart_limits: backoff::Limits::default(),
        pod_pids_limit: None,
        exclusive: Exclusive::default(),
        held: Limits { memory: Some(Bound::At(1 << 40)), ..Limits::default() },
        cgroups: node_cgroups::Settings::default(),
        starts_at_once: 4,
        container_gc: Policy::default(),
        images: images::Settings::default(),
        shutdown_periods: Vec::new(),
        eviction: room::eviction(),
        // Off.
        image_gc: image_gc::Policy {
            high_threshold_percent: 100,
            low_threshold_percent: 80,
            min_age: jiff::SignedDuration::from_mins(2),
            max_age: None,
        },
    }
}
