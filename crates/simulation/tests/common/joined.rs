//! A node that has joined a cluster, whose API server is within the process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crablet_agent::sources::SourceKind;
use crablet_api::core::{
    ConfigMap, Event, Node, NodeCondition, NodeConditionType, Pod, PodPhase, VolumeSource,
};
use crablet_api::meta::{ConditionStatus, DeleteOptions};
use crablet_client::{Client, PatchType, Resource};
use crablet_cri::Runtime as _;
use crablet_simulation::api_server::ApiServer;
use crablet_simulation::manifest::from_text;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;

/// A pod that runs until it is told not to.
pub const FOREVER: &str =
    "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: 'sim/forever:1'}]}";

/// A node that has joined a cluster. All pods are in the namespace `default`.
pub struct Cluster {
    pub world: World,
    pub server: ApiServer,
    /// Somebody who may do everything.
    pub admin: Client,
}

/// Waits for something that must come to be.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("within two minutes not: {what}");
}

impl Cluster {
    /// A node that is ready.
    pub async fn start() -> Cluster {
        let cluster = Cluster::join(World::new(0, Trace::new(false))).await;
        cluster.until_ready().await;
        cluster
    }

    /// A node that has just begun to join.
    pub async fn join(mut world: World) -> Cluster {
        let server = world.add_api_server();
        let mut cluster = Cluster { world, admin: server.admin(), server };
        cluster.start_agent().await;
        cluster
    }

    pub async fn start_agent(&mut self) {
        self.world.start(None).await;
        self.world.tell_all();
    }

    pub async fn until_ready(&self) {
        eventually("the node is ready", async || self.node_is(ConditionStatus::True).await).await;
    }

    pub async fn node_is(&self, status: ConditionStatus) -> bool {
        let Ok(node) = self.admin.get::<Node>("", "node").await else { return false };
        readiness(&node).is_some_and(|ready| ready.status == status)
    }

    pub async fn node(&self) -> Node {
        self.admin.get::<Node>("", "node").await.unwrap()
    }

    pub async fn ready(&self) -> NodeCondition {
        readiness(&self.node().await).cloned().unwrap()
    }

    pub async fn patch_node(&self, subresource: &str, patch: &str) {
        let kind = PatchType::StrategicMerge;
        self.admin.patch::<Node>("", "node", subresource, kind, patch.into()).await.unwrap();
    }

    /// Creates an object of a manifest.
    pub async fn put<T: Resource>(&self, text: &str) -> T {
        let (object, _) = crablet_api::from_manifest::<T>("test", text).unwrap();
        self.admin.create(&object).await.unwrap()
    }

    pub async fn create(&self, name: &str, spec: &str) -> Pod {
        self.create_with(name, "", spec).await
    }

    /// Creates a pod of which more than its name is known.
    pub async fn create_with(&self, name: &str, metadata: &str, spec: &str) -> Pod {
        self.put::<Pod>(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, {metadata}}}, spec: {spec}}}"
        ))
        .await
    }

    /// Creates a pod that mounts a volume with this source, beside its token.
    pub async fn create_with_volume(&self, name: &str, source: &str) -> Pod {
        let spec = format!(
            "{{volumes: [{{name: v, {source}}}], containers: [{{name: c, image: 'sim/forever:1', \
              volumeMounts: [{{name: v, mountPath: /v}}]}}]}}"
        );
        self.create(name, &spec).await
    }

    /// Puts a config map there, or other words into it.
    pub async fn put_config_map(&self, name: &str, key: &str, value: &str) {
        let mut map = ConfigMap::default();
        (map.metadata.namespace, map.metadata.name) = ("default".into(), name.into());
        map.data.insert(key, value.into());
        if self.admin.create(&map).await.is_err() {
            let patch = format!("{{\"data\":{{\"{key}\":\"{value}\"}}}}").into_bytes();
            self.admin.patch::<ConfigMap>("default", name, "", PatchType::Merge, patch).await.unwrap();
        }
    }

    pub async fn pod(&self, name: &str) -> Option<Pod> {
        self.admin.get::<Pod>("default", name).await.ok()
    }

    pub async fn phase(&self, name: &str) -> Option<PodPhase> {
        self.pod(name).await.unwrap().status.phase
    }

    pub async fn until_phase(&self, name: &str, phase: PodPhase) -> Pod {
        for _ in 0..1200 {
            if let Some(pod) = self.pod(name).await.filter(|pod| pod.status.phase == Some(phase.clone())) {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("within two minutes not: {name} is {phase:?}\n{}", self.story(name));
    }

    pub async fn delete(&self, name: &str, options: &DeleteOptions) {
        self.admin.delete::<Pod>("default", name, options).await.unwrap();
    }

    /// What was said for this reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events: serde_json::Value = self.admin.read(&Event::collection("default")).await.unwrap();
        let said = events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason);
        said.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    /// How many containers run.
    pub fn running(&self) -> usize {
        self.world.simulator.containers().iter().filter(|container| container.alive).count()
    }

    /// The containers that run, by their pods.
    pub fn containers(&self) -> BTreeMap<String, String> {
        let sandboxes = self.world.simulator.sandboxes();
        let name_of = |uid: &str| {
            let sandbox = sandboxes.iter().find(|sandbox| sandbox.metadata.uid == uid);
            sandbox.map(|sandbox| sandbox.metadata.name.clone()).unwrap_or_default()
        };
        let containers = self.world.simulator.containers().into_iter().filter(|container| container.alive);
        containers.map(|container| (name_of(&container.pod_uid), container.id)).collect()
    }

    /// The names of the pods that have a container that runs.
    pub fn live(&self) -> Vec<String> {
        self.containers().into_keys().collect()
    }

    /// The variables of a pod's container that runs.
    pub async fn variables(&self, pod: &str) -> BTreeMap<String, String> {
        let id = &self.containers()[pod];
        let config = self.world.client().container_config(id).await.unwrap().unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        config.envs.iter().map(|one| (one.key.clone(), text(&one.value))).collect()
    }

    /// What `crablet explain` tells of a pod, or of the node.
    pub fn story(&self, name: &str) -> String {
        let agent = &self.world.agent.as_ref().unwrap().agent;
        let stories = agent.stories.find(name);
        stories.first().map(|story| story.explain(self.world.clock.now())).unwrap_or_default()
    }

    /// What a file of a pod's volume holds.
    pub fn file(&self, pod: &Pod, volume: &str, path: &str) -> Option<String> {
        let source = pod.spec.volumes.iter().find(|one| *one.name == *volume).unwrap();
        let plugin = match source.source.one().unwrap() {
            VolumeSource::ConfigMap(_) => "configmap",
            VolumeSource::Secret(_) => "secret",
            VolumeSource::Projected(_) => "projected",
            other => panic!("{other:?}"),
        };
        let volumes = PathBuf::from("/var/lib/kubelet/pods").join(&*pod.metadata.uid).join("volumes");
        let file = volumes.join(format!("kubernetes.io~{plugin}")).join(volume).join(path);
        self.world.volumes.content(file).map(|content| String::from_utf8(content).unwrap())
    }

    /// From now on a folder has the manifests of these static pods, which are called `st` and differ in their hashes.
    pub fn want_static(&mut self, hashes: &[&str]) {
        let wanted = self.world.wanted.entry(SourceKind::File).or_default();
        wanted.clear();
        for hash in hashes {
            let pod = from_text(&format!(
                "metadata: {{name: st-node, namespace: default, uid: {hash}, annotations: \
                 {{kubernetes.io/config.source: file, kubernetes.io/config.hash: {hash}}}}}
spec: {{nodeName: node, terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'sim/forever:1'}}]}}
"
            ));
            self.world.ledger.want(&pod, SourceKind::File);
            wanted.insert((*hash).to_owned(), pod);
        }
        self.world.tell(SourceKind::File);
    }
}

fn readiness(node: &Node) -> Option<&NodeCondition> {
    node.status.conditions.iter().find(|condition| condition.r#type == NodeConditionType::Ready)
}

/// The volume that every pod gets by default.
pub fn token_volume(pod: &Pod) -> String {
    let mut names = pod.spec.volumes.iter().map(|volume| volume.name.to_string());
    names.find(|name| name.starts_with("kube-api-access-")).unwrap()
}
