//! The node that the recordings were made on, and its cluster.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::node_config::{Found, NodeConfig};
use crablet_api::core::{ConfigMap, Node, NodeConditionType, Pod, Secret};
use crablet_api::meta::{ConditionStatus, DeleteOptions};
use crablet_certificates::{ClientFiles, Manager};
use crablet_client::{Chance, Client, Error, PatchType, Resource};
use crablet_config::{FLAGS, GivenFlag};
use crablet_core::translate::SysctlAllowlist;
use crablet_credentials::{PullRecords, VerificationPolicy};
use crablet_cri_api::Version;
use crablet_cri_sim::{Image, Latencies, Latency, Method, Settings};
use crablet_host::cgroup;
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_host::machine::{Machine, Storage};
use crablet_simulation::api_server::ApiServer;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::words::{HOST_IP, NODE, POD_NETWORK};

/// Where everything was done.
pub const NAMESPACE: &str = "record";
/// Where the manifests of static pods are.
const MANIFESTS: &str = "manifests";
pub const IMAGE: &str = "docker.io/library/busybox:latest";

/// How fast the runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As it was when the recordings were made.
    AsRecorded,
    /// Nothing takes any time.
    AtOnce,
}

pub struct Cluster {
    pub server: ApiServer,
    admin: Client,
    world: World,
    directory: TempDir,
}

impl Cluster {
    /// One whose node is about to start.
    pub async fn new(pace: Pace) -> Cluster {
        let cluster = Cluster::with_images(pace, [Image::new(IMAGE).cmd(["sh"])]).await;
        cluster.create_namespace(NAMESPACE).await;
        cluster
    }

    /// The same, whose runtime has these images.
    pub async fn with_images(pace: Pace, images: impl IntoIterator<Item = Image>) -> Cluster {
        let mut world = World::on(runtime(pace, images), Trace::new(false));
        let server = world.add_api_server();
        let directory = tempfile::tempdir().unwrap();
        for name in [MANIFESTS, "logs"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let logs = directory.path().join("logs").display().to_string();
        world.describe = Box::new(move || node(&logs));
        world.manifests = Some(directory.path().join(MANIFESTS));
        world.access.records = Some(records(&world.clock).await);
        Cluster { admin: server.admin(), server, world, directory }
    }

    pub async fn create_namespace(&self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.admin.post::<Json>("/api/v1/namespaces", &namespace).await.unwrap();
    }

    /// Creates an object of a namespace.
    pub async fn post(&self, object: &Json) {
        let (kind, namespace) = (&object["kind"], &object["metadata"]["namespace"]);
        let collection = format!("{}s", kind.as_str().unwrap().to_lowercase());
        let path = format!("/api/v1/namespaces/{}/{collection}", namespace.as_str().unwrap());
        self.admin.post::<Json>(&path, object).await.unwrap();
    }

    /// Has the node ask for a certificate, as somebody who has nothing but a bootstrap token. Who it is does not follow
    /// from certificates here, so that none is waited for.
    pub async fn bootstrap(&self) {
        let directory = tempfile::tempdir().unwrap();
        let (clock, chance) = (self.world.clock.clone(), Chance::new(1));
        let manager = Manager::client(directory.path(), NODE, ClientFiles::None, clock, chance).unwrap();
        let server = self.server.clone();
        let asks = tokio::time::timeout(Duration::from_secs(1), async {
            manager.run(&move |_| Ok(server.bootstrapper())).await
        });
        assert!(asks.await.is_err(), "it waits for its certificate");
    }

    /// Starts the node, and waits until it is ready.
    pub async fn start(&mut self) {
        self.world.start(None).await;
        for _ in 0..600 {
            if self.is_ready().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the node is not ready within a minute");
    }

    async fn is_ready(&self) -> bool {
        let Ok(node) = self.admin.get::<Node>("", NODE).await else { return false };
        let mut conditions = node.status.conditions.iter();
        let ready = conditions.find(|known| known.r#type == NodeConditionType::Ready);
        ready.is_some_and(|ready| ready.status == ConditionStatus::True)
    }

    /// Creates the pod `p`, bound to the node.
    pub async fn create(&self, spec: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {NAMESPACE}}}\nspec:\n  nodeName: {NODE}\n{spec}"
        );
        let (pod, remarks) = crablet_api::from_manifest::<Pod>("p", &text).unwrap();
        assert!(remarks.is_empty(), "{remarks:?}");
        self.admin.create(&pod).await.unwrap();
    }

    pub async fn delete(&self, pod: &str, grace: Option<i64>) {
        self.delete_in(NAMESPACE, pod, grace).await;
    }

    pub async fn delete_in(&self, namespace: &str, pod: &str, grace: Option<i64>) {
        let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
        self.admin.delete::<Pod>(namespace, pod, &options).await.unwrap();
    }

    pub async fn has_pod(&self, namespace: &str, pod: &str) -> bool {
        self.admin.get::<Pod>(namespace, pod).await.is_ok()
    }

    pub async fn patch(&self, subresource: &str, patch: &str) {
        let kind = PatchType::StrategicMerge;
        self.admin.patch::<Pod>(NAMESPACE, "p", subresource, kind, patch.into()).await.unwrap();
    }

    /// Gives the container `c` of the pod `p` other resources.
    pub async fn resize(&self, resources: &str) -> Result<Pod, Error> {
        let patch = format!(r#"{{"spec": {{"containers": [{{"name": "c", "resources": {resources}}}]}}}}"#);
        let kind = PatchType::StrategicMerge;
        self.admin.patch::<Pod>(NAMESPACE, "p", "/resize", kind, patch.into()).await
    }

    /// Makes a config map or a secret with a key, or gives the key another value.
    pub async fn put_config_map(&self, name: &str, value: &str) {
        let mut map = ConfigMap::default();
        (map.metadata.name, map.metadata.namespace) = (name.into(), NAMESPACE.into());
        map.data.insert("key", value.into());
        self.put(&map, name).await;
    }

    pub async fn put_secret(&self, name: &str, value: &str) {
        let mut secret = Secret::default();
        (secret.metadata.name, secret.metadata.namespace) = (name.into(), NAMESPACE.into());
        secret.data.insert("key", value.into());
        self.put(&secret, name).await;
    }

    async fn put<T: Resource>(&self, object: &T, name: &str) {
        match self.admin.get::<T>(NAMESPACE, name).await {
            Ok(_) => drop(self.admin.replace(object).await.unwrap()),
            Err(_) => drop(self.admin.create(object).await.unwrap()),
        }
    }

    /// Writes the manifest of the static pod `st`.
    pub fn write_manifest(&self, labels: &str, spec: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: st, namespace: {NAMESPACE}, labels: {labels}}}\nspec:\n{spec}"
        );
        let (part, whole) = (self.manifest(".st.yaml.part"), self.manifest("st.yaml"));
        std::fs::write(&part, text).unwrap();
        std::fs::rename(part, whole).unwrap();
    }

    pub fn remove_manifest(&self) {
        std::fs::remove_file(self.manifest("st.yaml")).unwrap();
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.directory.path().join(MANIFESTS).join(name)
    }
}

/// Who pulled which images: nobody, since they were there before.
async fn records(clock: &Clock) -> Arc<PullRecords> {
    let (policy, store) = (VerificationPolicy::new(None, []), || Arc::new(SimulatedCheckpoints::new()));
    Arc::new(PullRecords::open(policy, clock.clone(), store(), store()).await.unwrap())
}

fn runtime(pace: Pace, images: impl IntoIterator<Item = Image>) -> Settings {
    let millis = |millis| Latency::Fixed(Duration::from_millis(millis));
    let base = Settings::containerd_1_6();
    let latencies = match pace {
        Pace::AtOnce => Latencies::default(),
        Pace::AsRecorded => Latencies::all(millis(2))
            .with(Method::RunPodSandbox, millis(80))
            .with(Method::StopPodSandbox, millis(80))
            .with(Method::CreateContainer, millis(10))
            .with(Method::StartContainer, millis(50)),
    };
    Settings {
        images: base.images.iter().cloned().chain(images).collect(),
        pod_network: POD_NETWORK,
        latencies,
        ..base
    }
}

/// The node, by its own flags and what its machine was. Nothing is written but below this directory.
fn node(logs: &str) -> NodeConfig {
    let flag = |name: &str| FLAGS.iter().find(|flag| flag.name == name).unwrap();
    let given: [GivenFlag<'_>; 4] = [
        (flag("cluster-dns"), "10.96.0.10"),
        (flag("max-pods"), "250"),
        (flag("eviction-hard"), "memory.available<100Mi,nodefs.available<1%"),
        (flag("hostname-override"), NODE),
    ];
    let mut effective = crablet_config::load(&given).unwrap();
    effective.configuration.pod_logs_dir = logs.into();
    let machine = Machine {
        cpus: 2,
        online_cpus: (0..2).collect(),
        memory: 24_684_100 << 10,
        swap: 0,
        huge_pages: [(2 << 20, 0), (1 << 30, 0)].into(),
        processes: None,
        machine_id: "<machineID>".into(),
        system_uuid: "<systemUUID>".into(),
        boot_id: "<bootID>".into(),
        boot_time: None,
        kernel_version: "<kernel>".into(),
        os_image: "Debian GNU/Linux 12 (bookworm)".into(),
        architecture: "amd64",
    };
    let capacity = 264_212_084 << 10;
    let runtime = Version { name: "containerd".into(), version: "1.6.20".into(), api_version: "v1".into() };
    let address: IpAddr = HOST_IP.parse().unwrap();
    NodeConfig::new(
        &effective,
        &Found {
            machine: &machine,
            storage: Some(Storage { capacity, available: capacity, inodes: 1 << 24, inodes_free: 1 << 24 }),
            cgroups: cgroup::Version::V1,
            runtime: &runtime,
            host_name: NODE,
            addresses: vec![address],
            sysctls: SysctlAllowlist::default(),
            app_armor: false,
            selinux: false,
            swap_controller: true,
            page_size: 4096,
            masked_paths: Vec::new(),
        },
    )
}
