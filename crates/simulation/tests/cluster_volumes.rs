//! What pods mount of a cluster: config maps, secrets and tokens of the embedded API server.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::path::PathBuf;
use std::time::Duration;

use crablet_api::core::{ConfigMap, Event, Pod, PodPhase, Secret, VolumeSource};
use crablet_client::{Client, PatchType, Resource as _};
use crablet_simulation::api_server::{ApiServer, Trouble};
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;

/// A node that has joined a cluster.
struct Cluster {
    world: World,
    server: ApiServer,
    admin: Client,
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

impl Cluster {
    async fn start() -> Cluster {
        let mut world = World::new(0, Trace::new(false));
        let server = world.add_api_server();
        world.start(None).await;
        world.tell_all();
        seconds(15).await;
        Cluster { world, admin: server.admin(), server }
    }

    /// Creates a pod that mounts a volume with this source, beside its token.
    async fn create(&self, name: &str, source: &str) -> Pod {
        let spec = format!(
            "{{volumes: [{{name: v, {source}}}], containers: [{{name: c, image: 'sim/forever:1', \
              volumeMounts: [{{name: v, mountPath: /v}}]}}]}}"
        );
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {spec}}}"
        );
        let (pod, _) = crablet_api::from_manifest::<Pod>(name, &text).unwrap();
        self.admin.create(&pod).await.unwrap()
    }

    async fn phase(&self, name: &str) -> Option<PodPhase> {
        self.admin.get::<Pod>("default", name).await.unwrap().status.phase
    }

    async fn put_config_map(&self, name: &str, key: &str, value: &str) {
        let mut map = ConfigMap::default();
        map.metadata.name = name.into();
        map.metadata.namespace = "default".into();
        map.data.insert(key, value.into());
        if self.admin.create(&map).await.is_err() {
            let patch = format!("{{\"data\":{{\"{key}\":\"{value}\"}}}}").into_bytes();
            self.admin.patch::<ConfigMap>("default", name, "", PatchType::Merge, patch).await.unwrap();
        }
    }

    /// What a file of a pod's volume holds.
    fn file(&self, pod: &Pod, volume: &str, path: &str) -> Option<String> {
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

    /// What happened to a pod.
    fn story(&self, pod: &Pod) -> String {
        let story = self.world.agent.as_ref().unwrap().agent.stories.story(&pod.metadata.uid);
        story.map(|story| story.explain(self.world.clock.now())).unwrap_or_default()
    }

    /// The paths that were watched since this was asked last, of single objects.
    fn watched(&self) -> Vec<String> {
        let asked = self.server.take_asked().into_iter().map(|asked| asked.path);
        asked.filter(|path| path.contains("watch=true") && path.contains("metadata.name%3D")).collect()
    }
}

/// The volume that every pod gets by default.
fn token_volume(pod: &Pod) -> String {
    let mut names = pod.spec.volumes.iter().map(|volume| volume.name.to_string());
    names.find(|name| name.starts_with("kube-api-access-")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_its_token_which_is_renewed_and_outlives_the_server_being_away() {
    let cluster = Cluster::start().await;
    cluster.put_config_map("settings", "level", "low").await;
    let pod = cluster.create("p", "configMap: {name: settings}").await;
    seconds(20).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story(&pod));
    let volume = token_volume(&pod);
    let token = || cluster.file(&pod, &volume, "token").unwrap();
    assert_eq!(cluster.file(&pod, &volume, "namespace").as_deref(), Some("default"));
    assert!(cluster.file(&pod, &volume, "ca.crt").is_some());
    let first = token();
    seconds(1800).await;
    assert_eq!(token(), first);
    seconds(1200).await;
    let second = token();
    assert_ne!(second, first, "after four fifths of an hour");
    cluster.server.set_trouble(Some(Trouble::Refused));
    seconds(7200).await;
    assert_eq!(token(), second);
    assert_eq!(cluster.file(&pod, "v", "level").as_deref(), Some("low"));
    cluster.put_config_map("settings", "level", "high").await;
    cluster.server.set_trouble(None);
    seconds(90).await;
    assert_ne!(token(), second, "as soon as the server answers");
    assert_eq!(cluster.file(&pod, "v", "level").as_deref(), Some("high"));
    let containers = cluster.world.simulator.containers();
    assert_eq!((containers.len(), containers[0].alive), (1, true), "nothing was restarted");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_shown_within_a_second_and_one_watch_serves_all_pods() {
    let cluster = Cluster::start().await;
    cluster.put_config_map("settings", "level", "low").await;
    cluster.watched();
    let mut pods = Vec::new();
    for name in ["a", "b", "c"] {
        pods.push(cluster.create(name, "configMap: {name: settings}").await);
    }
    seconds(20).await;
    let watched = cluster.watched();
    assert_eq!(
        watched.len(),
        2,
        "the config map, and the certificate that they know the server by: {watched:#?}"
    );
    cluster.put_config_map("settings", "level", "high").await;
    seconds(1).await;
    for pod in &pods {
        assert_eq!(cluster.file(pod, "v", "level").as_deref(), Some("high"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_secret_says_so_and_starts_when_it_is_there() {
    let cluster = Cluster::start().await;
    let pod = cluster.create("p", "secret: {secretName: password}").await;
    seconds(60).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Pending));
    let events: serde_json::Value = cluster.admin.read(&Event::collection("default")).await.unwrap();
    let said: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["message"].as_str()).collect();
    let message = "MountVolume.SetUp failed for volume \"v\" : secret \"password\" not found";
    assert!(said.contains(&message), "{said:#?} {}", cluster.story(&pod));
    let mut secret = Secret::default();
    secret.metadata.name = "password".into();
    secret.metadata.namespace = "default".into();
    secret.data.insert("word", "s3cr3t".into());
    cluster.admin.create(&secret).await.unwrap();
    seconds(2).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running));
    assert_eq!(cluster.file(&pod, "v", "word").as_deref(), Some("s3cr3t"));
}
