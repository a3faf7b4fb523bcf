//! What changes around a pod that runs: its labels, the status that the API server has of it, and what it refers to.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::io::ErrorKind;

use common::cluster::Cluster;
use common::{Node, seconds};
use crablet_agent::objects::Interests;
use crablet_api::core::{PodCondition, PodStatus};
use crablet_api::meta::ConditionStatus;
use crablet_core::translate::ObjectKind;
use crablet_cri_sim::Method;
use crablet_host::simulation::Fault;
use crablet_simulation::world::settings;
use crablet_volumes::{Operation, Trouble};

const LASTING: &str = "{containers: [{name: c, image: 'sim/forever:1'}]}";
/// Who is asked whether the pod is ready.
const GATED: &str =
    "{readinessGates: [{conditionType: example.org/gate}], containers: [{name: c, image: 'sim/forever:1'}]}";

/// How often workers have looked since the calls were forgotten. Nothing else asks after a single container.
fn looks(node: &Node) -> usize {
    let calls = node.world.simulator.calls().into_iter();
    calls.filter(|call| call.method == Method::ContainerStatus).count()
}

fn refreshes(node: &Node) -> usize {
    node.world.volumes.calls().iter().filter(|call| **call == Operation::Refresh).count()
}

#[tokio::test(start_paused = true)]
async fn labels_that_change_are_shown_while_the_pod_runs_and_when_it_is_over() {
    let mut node = Node::start().await;
    node.create("lasting", LASTING);
    node.create("over", "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}");
    seconds(60).await;
    assert!(node.shown("over").unwrap().terminated);
    for name in ["lasting", "over"] {
        let before = node.shown(name).unwrap();
        node.edit(name, |pod| {
            pod.metadata.labels.insert("tier", "new".into());
            pod.metadata.annotations.insert("note", "new".into());
        });
        seconds(1).await;
        let shown = node.shown(name).unwrap();
        assert_eq!(shown.pod.metadata.labels["tier"], "new");
        assert_eq!(shown.pod.metadata.annotations["note"], "new");
        assert_eq!(shown.status, before.status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_comes_back_from_the_api_server_is_not_an_update() {
    let mut node = Node::start().await;
    node.create("p", LASTING);
    seconds(5).await;
    assert!(node.is_ready("p"));
    node.world.simulator.forget_calls();
    let version = node.world.agent.as_ref().unwrap().agent.statuses.version();
    for round in 0..3 {
        let status =
            PodStatus { message: format!("{round}").into(), ..(*node.shown("p").unwrap().status).clone() };
        node.edit("p", |pod| pod.status = status);
        seconds(1).await;
        let kept = node.shown("p").unwrap().pod;
        assert_eq!(kept.status.message, *format!("{round}"), "it is kept for what is made of it later");
    }
    assert_eq!(looks(&node), 0);
    assert!(!version.has_changed().unwrap());
    // An update is one.
    node.edit("p", |pod| drop(pod.metadata.labels.insert("a", "b".into())));
    seconds(1).await;
    assert!(looks(&node) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_readiness_gate_that_opens_at_the_api_server_makes_the_pod_ready() {
    let mut node = Node::start().await;
    node.create("p", GATED);
    seconds(5).await;
    assert!(!node.is_ready("p"));
    let say = |node: &mut Node, status: ConditionStatus| {
        let condition = PodCondition { r#type: "example.org/gate".into(), status, ..PodCondition::default() };
        let conditions = vec![condition];
        node.edit("p", |pod| pod.status.conditions = conditions.into());
    };
    say(&mut node, ConditionStatus::True);
    seconds(1).await;
    assert!(node.is_ready("p"));
    say(&mut node, ConditionStatus::False);
    seconds(1).await;
    assert!(!node.is_ready("p"));
}

/// A node in a cluster with two config maps that are empty.
async fn node() -> (Node, Interests) {
    let cluster = Cluster::default();
    cluster.put_config_map("one", &[]);
    cluster.put_config_map("two", &[]);
    let node = Node::start_in(&cluster, settings(0)).await;
    (node, cluster.interests)
}

/// A pod with a volume, that gets a variable from this config map.
fn spec(config_map: &str) -> String {
    format!(
        "{{containers: [{{name: c, image: 'sim/forever:1', volumeMounts: [{{name: v, mountPath: /v}}],
            envFrom: [{{configMapRef: {{name: {config_map}}}}}]}}], volumes: [{{name: v, emptyDir: {{}}}}]}}"
    )
}

#[tokio::test(start_paused = true)]
async fn volumes_are_refreshed_when_something_changes_that_the_pod_refers_to() {
    let (mut node, interests) = node().await;
    node.create("p", &spec("one"));
    node.create("other", LASTING);
    seconds(10).await;
    node.world.simulator.forget_calls();
    assert_eq!((node.live(), refreshes(&node)), (vec!["c".to_owned(), "c".to_owned()], 0));
    for round in 1..3 {
        interests.changed(ObjectKind::ConfigMap, "default", "one");
        seconds(1).await;
        assert_eq!((refreshes(&node), looks(&node)), (round, round));
    }
    // Somebody else's.
    interests.changed(ObjectKind::ConfigMap, "default", "two");
    interests.changed(ObjectKind::ConfigMap, "elsewhere", "one");
    interests.changed(ObjectKind::Secret, "default", "one");
    seconds(3600).await;
    assert_eq!(refreshes(&node), 2);
}

#[tokio::test(start_paused = true)]
async fn an_interest_goes_with_the_spec_that_had_it_and_with_the_pod() {
    let (mut node, interests) = node().await;
    let refers_to = |name| interests.refer_to(ObjectKind::ConfigMap, "default", name);
    node.create("p", &spec("one"));
    seconds(5).await;
    assert!(refers_to("one"));
    node.edit("p", |pod| {
        pod.spec.containers[0].env_from[0].config_map_ref.as_mut().unwrap().name = "two".into();
    });
    seconds(5).await;
    assert!(!refers_to("one") && refers_to("two"));
    // A worker that goes on after one that panicked has what that had.
    node.world.ledger.state().panics.insert("p".to_owned());
    interests.changed(ObjectKind::ConfigMap, "default", "two");
    seconds(10).await;
    assert!(refers_to("two"));
    node.delete("p", 1);
    seconds(10).await;
    assert!(node.shown("p").unwrap().terminated);
    assert!(!refers_to("two"), "it never needs them again");
    node.create("q", &spec("one"));
    seconds(5).await;
    assert!(refers_to("one"));
    node.forget("q");
    seconds(40).await;
    assert!(!refers_to("one"));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_started_again_though_what_its_volume_shows_cannot_be_refreshed() {
    let (mut node, interests) = node().await;
    let spec = "{containers: [{name: c, image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}],
        volumes: [{name: v, projected: {sources: [{configMap: {name: one}}]}}]}";
    node.create("p", spec);
    seconds(10).await;
    // Somebody deletes the config map.
    node.world.volumes.set_trouble(Some(Trouble::Fail(ErrorKind::NotFound)));
    for nth in 1..=100 {
        node.world.volumes.plan(Some(Operation::Refresh), nth, Fault::Fails(ErrorKind::NotFound));
    }
    node.edit("p", |pod| pod.spec.containers[0].image = "sim/forever:2".into());
    seconds(5).await;
    assert_eq!(node.container("p", "c").restart_count, 1, "{}", node.all_said());
    interests.changed(ObjectKind::ConfigMap, "default", "one");
    for restarts in 2..=3 {
        let container = node.container("p", "c").container_id;
        node.world.simulator.exit_container(container.rsplit('/').next().unwrap(), 1);
        seconds(25).await;
        assert_eq!(node.container("p", "c").restart_count, restarts, "{}", node.all_said());
        assert_eq!(node.live(), ["c"]);
    }
    assert!(node.all_said().contains("MountVolume.SetUp failed for volume"), "{}", node.all_said());
    let dead = node.world.simulator.containers().into_iter().filter(|container| !container.alive);
    assert_eq!(dead.count(), 1, "and those that ended before the last one are removed");
    // Somebody makes another.
    node.world.volumes.set_trouble(None);
    let before = refreshes(&node);
    seconds(3600).await;
    assert!(refreshes(&node) > before, "it is tried until it works");
}
