//! Volumes that show what the cluster has: config maps, secrets and tokens.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::cluster::Cluster;
use common::{Node, seconds};
use crablet_api::core::PodPhase;
use crablet_simulation::world::settings;

/// A pod that mounts a volume with this source.
fn spec(source: &str) -> String {
    format!(
        "{{serviceAccountName: robot, volumes: [{{name: v, {source}}}], containers: [{{name: c, image: 'sim/forever:1', \
          volumeMounts: [{{name: v, mountPath: /v}}]}}]}}"
    )
}

async fn node() -> (Node, Cluster) {
    let cluster = Cluster::default();
    (Node::start_in(&cluster, settings(0)).await, cluster)
}

/// What a file of pod `p` holds.
fn file(node: &Node, plugin: &str, path: &str) -> Option<String> {
    let path = format!("/var/lib/kubelet/pods/p/volumes/kubernetes.io~{plugin}/v/{path}");
    node.world.volumes.content(path).map(|content| String::from_utf8(content).unwrap())
}

fn phase(node: &Node) -> Option<PodPhase> {
    node.shown("p").unwrap().status.phase.clone()
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_changes_is_shown_within_a_second() {
    let (mut node, cluster) = node().await;
    cluster.put_config_map("settings", &[("level", "low")]);
    node.create("p", &spec("configMap: {name: settings}"));
    seconds(10).await;
    assert_eq!(file(&node, "configmap", "level").as_deref(), Some("low"));
    cluster.put_config_map("settings", &[("level", "high")]);
    seconds(1).await;
    assert_eq!(file(&node, "configmap", "level").as_deref(), Some("high"));
    assert_eq!(node.container("p", "c").restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_secret_and_starts_when_it_is_there() {
    let (mut node, cluster) = node().await;
    node.create("p", &spec("secret: {secretName: password}"));
    seconds(120).await;
    assert_eq!(phase(&node), Some(PodPhase::Pending));
    assert!(node.world.simulator.sandboxes().is_empty());
    let message = "MountVolume.SetUp failed for volume \"v\" : secret \"password\" not found";
    assert!(node.said("", "FailedMount", message), "{}", node.all_said());
    cluster.put_secret("password", &[("word", "s3cr3t")]);
    seconds(1).await;
    assert_eq!(node.live(), ["c"], "it does not wait for the next try");
    assert_eq!(file(&node, "secret", "word").as_deref(), Some("s3cr3t"));
    assert!(!node.all_said().contains("s3cr3t"));
}

#[tokio::test(start_paused = true)]
async fn what_is_optional_is_not_waited_for_and_shown_when_it_comes() {
    let (mut node, cluster) = node().await;
    let source = "projected: {sources: [{configMap: {name: settings, optional: true}}, {secret: {name: s, optional: true}}]}";
    node.create("p", &spec(source));
    seconds(10).await;
    assert_eq!((phase(&node), file(&node, "projected", "level")), (Some(PodPhase::Running), None));
    cluster.put_config_map("settings", &[("level", "low")]);
    cluster.put_secret("s", &[("word", "s3cr3t")]);
    seconds(1).await;
    assert_eq!(file(&node, "projected", "level").as_deref(), Some("low"));
    assert_eq!(file(&node, "projected", "word").as_deref(), Some("s3cr3t"));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_once_and_again_when_it_is_to_be_renewed() {
    let (mut node, cluster) = node().await;
    node.create("p", &spec("projected: {sources: [{serviceAccountToken: {path: token}}]}"));
    seconds(3600).await;
    assert_eq!(file(&node, "projected", "token").as_deref(), Some("token 1"));
    let asked = &cluster.tokens()[0];
    let whom = (asked.service_account.as_str(), asked.pod.as_str(), asked.pod_uid.as_str());
    assert_eq!((whom, asked.expiration_seconds), (("robot", "p", "p"), Some(3600)));
    cluster.interests.token_is_due("p");
    seconds(1).await;
    assert_eq!(file(&node, "projected", "token").as_deref(), Some("token 2"));
    node.delete("p", 1);
    seconds(10).await;
    cluster.interests.token_is_due("p");
    seconds(10).await;
    assert_eq!(cluster.tokens().len(), 2, "a pod that is over needs none");
    assert_eq!(file(&node, "projected", "token"), None);
}
