//! What pods mount of a cluster: config maps, secrets and tokens of the embedded API server.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use crablet_api::core::{Event, PersistentVolume, PersistentVolumeClaim, PodPhase, Secret};
use crablet_client::{PatchType, Resource as _};
use crablet_cri_sim::Asked;
use crablet_simulation::api_server::Trouble;

use common::joined::{Cluster, token_volume};
use common::seconds;

/// The paths that were watched since this was asked last, of single objects.
fn watched(cluster: &Cluster) -> Vec<String> {
    let asked = cluster.server.take_asked().into_iter().map(|asked| asked.path);
    asked.filter(|path| path.contains("watch=true") && path.contains("metadata.name%3D")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_its_token_which_is_renewed_and_outlives_the_server_being_away() {
    let cluster = Cluster::start().await;
    cluster.put_config_map("settings", "level", "low").await;
    let pod = cluster.create_with_volume("p", "configMap: {name: settings}").await;
    seconds(20).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story(&pod.metadata.name));
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
    watched(&cluster);
    let mut pods = Vec::new();
    for name in ["a", "b", "c"] {
        pods.push(cluster.create_with_volume(name, "configMap: {name: settings}").await);
    }
    seconds(20).await;
    let watched = watched(&cluster);
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
    let pod = cluster.create_with_volume("p", "secret: {secretName: password}").await;
    seconds(60).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Pending));
    let events: serde_json::Value = cluster.admin.read(&Event::collection("default")).await.unwrap();
    let said: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["message"].as_str()).collect();
    let message = "MountVolume.SetUp failed for volume \"v\" : secret \"password\" not found";
    assert!(said.contains(&message), "{said:#?} {}", cluster.story(&pod.metadata.name));
    let mut secret = Secret::default();
    secret.metadata.name = "password".into();
    secret.metadata.namespace = "default".into();
    secret.data.insert("word", "s3cr3t".into());
    cluster.admin.create(&secret).await.unwrap();
    seconds(2).await;
    assert_eq!(cluster.file(&pod, "v", "word").as_deref(), Some("s3cr3t"), "nobody waits for the next try");
    seconds(18).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story(&pod.metadata.name));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_in_the_groups_of_its_storage() {
    let cluster = Cluster::start().await;
    for (name, group) in [("one", "4711"), ("own", "5"), ("none", "staff")] {
        let claim = format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: default}}, spec: \
             {{volumeName: {name}, storageClassName: '', accessModes: [ReadWriteOnce], resources: {{requests: \
             {{storage: 1Mi}}}}}}}}"
        );
        let claim = cluster.put::<PersistentVolumeClaim>(&claim).await;
        let bound = br#"{"status": {"phase": "Bound"}}"#.to_vec();
        let kind = PatchType::Merge;
        let patched = cluster.admin.patch::<PersistentVolumeClaim>("default", name, "/status", kind, bound);
        patched.await.unwrap();
        let uid = claim.metadata.uid;
        cluster
            .put::<PersistentVolume>(&format!(
                "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}, annotations: \
                 {{pv.beta.kubernetes.io/gid: '{group}'}}}}, spec: {{capacity: {{storage: 1Mi}}, accessModes: \
                 [ReadWriteOnce], hostPath: {{path: /srv}}, claimRef: {{namespace: default, name: {name}, uid: {uid}}}}}}}"
            ))
            .await;
    }
    let volume = |name: &str| format!("{{name: {name}, persistentVolumeClaim: {{claimName: {name}}}}}");
    let mount = |name: &str| format!("{{name: {name}, mountPath: /{name}}}");
    let names = ["one", "own", "none"];
    let spec = format!(
        "{{securityContext: {{fsGroup: 3, supplementalGroups: [5]}}, volumes: [{}], containers: [{{name: c, image: \
         'sim/forever:1', volumeMounts: [{}]}}]}}",
        names.map(volume).join(", "),
        names.map(mount).join(", ")
    );
    cluster.create("p", &spec).await;
    seconds(20).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story("p"));
    let asked = cluster.world.simulator.asked().into_iter().filter_map(|asked| match asked {
        Asked::Sandbox(config) => Some(config.linux.unwrap().security_context.unwrap().supplemental_groups),
        Asked::Container(config) => Some(config.linux.unwrap().security_context.unwrap().supplemental_groups),
        Asked::SandboxResources(_) => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [[3, 4711, 5], [3, 5, 4711]]);
}
