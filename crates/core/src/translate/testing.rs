//! A node for tests.

use crablet_api::FeatureGates;

use super::node::{NodeContext, NodeFacts, Settings};

/// A node with 2 CPUs, 8 GiB of memory, control groups of version 1 and a cluster's name server.
pub(crate) fn node() -> NodeContext {
    let ip = "10.0.0.1".parse().unwrap();
    NodeContext {
        facts: NodeFacts {
            host_ips: vec![ip],
            node_ips: vec![ip],
            allocatable: [("cpu", "2"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi")]
                .into_iter()
                .map(|(name, amount)| (name, amount.parse().unwrap()))
                .collect(),
            memory_capacity: 8 << 30,
            page_size: 4096,
            huge_page_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
            ..NodeFacts::default()
        },
        settings: Settings {
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".to_owned(),
            ..Settings::default()
        },
        features: FeatureGates::default(),
    }
}
