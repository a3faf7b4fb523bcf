//! The node that the recordings were made on, and what was on it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crablet_api::FeatureGates;
use crablet_api::core::{ConfigMap, Pod, Secret, Service, Volume, VolumeSource};
use crablet_core::translate::{
    HostResolver, MountedVolume, NodeContext, NodeFacts, Settings, parse_resolv_conf,
};
use serde_json::Value as Json;

/// Stand-ins for what the recordings replaced; `shown` puts the recordings' words in their places.
pub const ROOT: &str = "/root-directory";
pub const POD_LOGS: &str = "/pod-logs";
pub const POD_IP: &str = "192.0.2.7";
pub const HOST_IP: &str = "192.0.2.1";

/// The recordings tell the node's memory only roughly, by the scores of burstable containers.
const MEMORY_KIB: i64 = 24_682_416;

pub fn node() -> NodeContext {
    let host: IpAddr = HOST_IP.parse().unwrap();
    let memory = format!("{}Ki", MEMORY_KIB - 100 * 1024);
    NodeContext {
        facts: NodeFacts {
            host_ips: vec![host],
            node_ips: vec![host],
            allocatable: [("cpu", "2"), ("memory", &memory)]
                .into_iter()
                .map(|(name, amount)| (name, amount.parse().unwrap()))
                .collect(),
            memory_capacity: MEMORY_KIB * 1024,
            // The kernel can count swap, though the node has none.
            swap_controller: true,
            page_size: 4096,
            huge_page_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
            ..NodeFacts::default()
        },
        settings: Settings {
            pod_logs_directory: POD_LOGS.to_owned(),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".to_owned(),
            seccomp_profile_root: format!("{ROOT}/seccomp"),
            ..Settings::default()
        },
        features: FeatureGates::default(),
    }
}

/// What the node's `/etc/resolv.conf` held.
pub const RESOLV_CONF: &str = "nameserver 10.255.255.53\n";

pub fn resolver() -> HostResolver {
    HostResolver::File(parse_resolv_conf(RESOLV_CONF).unwrap())
}

/// A JSON text as the recordings show it.
pub fn shown(text: &str) -> String {
    text.replace(ROOT, "<root>")
        .replace(POD_LOGS, "<podlogs>")
        .replace(POD_IP, "<podIP>")
        .replace(HOST_IP, "<hostIP>")
}

/// The objects of the cluster that pods used.
#[derive(Default)]
pub struct Cluster {
    pub config_maps: Vec<ConfigMap>,
    pub secrets: Vec<Secret>,
    pub services: Vec<Service>,
}

impl Cluster {
    pub fn read(objects: &Json) -> Cluster {
        let mut cluster = Cluster::default();
        for item in objects["items"].as_array().unwrap() {
            let text = item.to_string();
            match item["kind"].as_str().unwrap() {
                "ConfigMap" => cluster.config_maps.push(serde_json::from_str(&text).unwrap()),
                "Secret" => {
                    // An API server moves what was written as text to the data.
                    let mut secret: Secret = serde_json::from_str(&text).unwrap();
                    for (key, value) in std::mem::take(&mut secret.string_data) {
                        secret.data.insert(key, (&*value).into());
                    }
                    cluster.secrets.push(secret);
                }
                "Service" => cluster.services.push(serde_json::from_str(&text).unwrap()),
                other => panic!("no use for a {other}"),
            }
        }
        let api = r#"{"metadata":{"namespace":"default","name":"kubernetes"},
            "spec":{"clusterIP":"10.96.0.1","ports":[{"name":"https","port":443,"protocol":"TCP"}]}}"#;
        cluster.services.push(serde_json::from_str(api).unwrap());
        cluster
    }
}

/// Where a kubelet has a pod's volumes, of those kinds that recordings have.
pub fn volumes(pod: &Pod) -> BTreeMap<&str, MountedVolume> {
    let volume = |volume: &Volume| {
        let own = |plugin: &str, read_only| MountedVolume::Files {
            host_path: format!(
                "{ROOT}/pods/{}/volumes/kubernetes.io~{plugin}/{}",
                pod.metadata.uid, volume.name
            ),
            read_only,
            relabel: true,
        };
        match volume.source.one()? {
            VolumeSource::EmptyDir(_) => Some(own("empty-dir", false)),
            VolumeSource::ConfigMap(_) => Some(own("configmap", true)),
            VolumeSource::Secret(_) => Some(own("secret", true)),
            VolumeSource::DownwardApi(_) => Some(own("downward-api", true)),
            VolumeSource::Projected(_) => Some(own("projected", true)),
            VolumeSource::HostPath(path) => {
                let host_path = path.path.to_string();
                Some(MountedVolume::Files { host_path, read_only: false, relabel: false })
            }
            _ => None,
        }
    };
    pod.spec.volumes.iter().filter_map(|one| Some((one.name.as_str(), volume(one)?))).collect()
}

/// Where a kubelet has the sub path of a container's mount.
pub fn sub_path(pod: &Pod, volume: &str, container: &str, index: usize) -> String {
    format!("{ROOT}/pods/{}/volume-subpaths/{volume}/{container}/{index}", pod.metadata.uid)
}
