//! What it takes to say to a runtime what a pod asks for: the configuration of its sandbox and of each container.

use std::collections::BTreeMap;
use std::hint::black_box;

use crablet_api::FeatureGates;
use crablet_api::core::{Pod, Secret};
use crablet_api::document::Limits;
use crablet_api::from_json;
use crablet_core::translate::{
    ContainerInput, Environment, EnvironmentInput, Granted, HostResolver, MountInput, MountedVolume,
    NodeContext, NodeFacts, Objects, SandboxInput, Settings, UserNamespaces, container, parse_resolv_conf,
    sandbox,
};
use crablet_cri_api::v1;
use tokio::time::Instant;

use crate::promises::Figure;

/// Two containers with eight variables and two probes each, and three volumes.
const POD: &str = include_str!("../../api/benches/pod.json");
const RUNS: usize = 5;
const PODS_A_RUN: u32 = 2_000;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let pod: Pod = from_json(POD.as_bytes(), Limits::API)?;
    let password = br#"{"data": {"password": "c2VjcmV0"}}"#;
    let password: Secret = from_json(password, Limits::API)?;
    let node = NodeContext {
        facts: NodeFacts::default(),
        settings: Settings {
            pod_logs_directory: "/var/log/pods".to_owned(),
            cluster_dns: vec!["10.96.0.10".parse()?],
            cluster_domain: "cluster.local".to_owned(),
            ..Settings::default()
        },
        features: FeatureGates::default(),
    };
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        for _ in 0..PODS_A_RUN {
            black_box(translate(black_box(&pod), &node, &password)?);
        }
        runs.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(PODS_A_RUN));
    }
    Ok(vec![Figure { id: "translate", runs, beside: None }])
}

/// As a worker does it: the sandbox, and for each container its variables, its mounts and the rest.
fn translate(pod: &Pod, node: &NodeContext, password: &Secret) -> anyhow::Result<Vec<v1::ContainerConfig>> {
    let users = UserNamespaces::Unsupported;
    black_box(sandbox(&SandboxInput {
        pod,
        node,
        attempt: 0,
        resolver: &HostResolver::File(parse_resolv_conf("nameserver 10.255.255.53\n")?),
        runtime_handler: "",
        users: &users,
        extra_groups: &[],
        exclusive_cpus: false,
    })?);
    let directory = format!("/var/lib/kubelet/pods/{}", pod.metadata.uid);
    let volumes: BTreeMap<&str, MountedVolume> = pod
        .spec
        .volumes
        .iter()
        .map(|volume| {
            let host_path = format!("{directory}/volumes/{}", volume.name);
            (volume.name.as_str(), MountedVolume::Files { host_path, read_only: false, relabel: true })
        })
        .collect();
    let objects =
        Objects { config_maps: BTreeMap::new(), secrets: BTreeMap::from([("database", Ok(password))]) };
    let ips = ["10.88.0.5".parse()?];
    let hosts = format!("{directory}/etc-hosts");
    let log = format!("{directory}/containers/log");
    let mut configs = Vec::new();
    for one in &pod.spec.containers {
        let environment = Environment::of_container(&EnvironmentInput {
            pod,
            container: one,
            node,
            pod_ips: &ips,
            services: &[],
            services_read: true,
            objects: &objects,
            files: &[],
            granted: &[],
        })?;
        let input = ContainerInput {
            pod,
            container: one,
            node,
            restart_count: 0,
            image_ref: "sha256:0123456789abcdef",
            image_user: None,
            mounts: MountInput {
                volumes: &volumes,
                sub_paths: &BTreeMap::new(),
                etc_hosts: &hosts,
                has_address: true,
                termination_log: Some(&log),
                recursive_read_only: false,
            },
            runtime_handler: "",
            users: &users,
            extra_groups: &[],
            target: None,
            granted: &Granted::default(),
        };
        configs.push(container(&input, environment)?);
    }
    Ok(configs)
}
