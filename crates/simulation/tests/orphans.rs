//! Pods that are on the node and that nobody wants.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_core::labels;
use crablet_cri::Runtime as _;
use crablet_cri_api::v1;
use crablet_cri_sim::{Fault, Method};
use crablet_host::checkpoint::Checkpoints as _;
use crablet_simulation::world::settings;

/// A sandbox that another program makes, of a pod with this UID.
async fn make_sandbox(node: &Node, uid: &str, attempt: u32) {
    let metadata =
        v1::PodSandboxMetadata { name: uid.into(), uid: uid.into(), namespace: "default".into(), attempt };
    let labels = [(labels::POD_UID, uid), (labels::POD_NAME, uid), (labels::POD_NAMESPACE, "default")];
    let config = v1::PodSandboxConfig {
        metadata: Some(metadata),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        ..v1::PodSandboxConfig::default()
    };
    node.world.client().run_sandbox(&config, "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_appears_during_a_search_for_orphans_is_found_by_another() {
    // A runtime that tells of what happens in it.
    let node = Node::start_on(settings(1)).await;
    seconds(5).await;
    // The search has the list of sandboxes, and waits for that of containers.
    node.world.simulator.inject(Fault::on(Method::ListContainers).takes(Duration::from_secs(10)));
    node.world.tell_all();
    seconds(2).await;
    make_sandbox(&node, "orphan", 0).await;
    seconds(5).await;
    assert_eq!(node.world.simulator.sandboxes().len(), 1);
    seconds(40).await;
    assert_eq!(node.world.simulator.sandboxes().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_appears_while_the_last_of_its_pod_is_removed_is_found() {
    let mut node = Node::start_on(settings(1)).await;
    node.want("p", "{containers: [{name: c, image: 'sim/forever:1'}]}").await;
    seconds(5).await;
    // Its worker has looked for the last time, and removes what it saw.
    node.world.simulator.inject(Fault::on(Method::RemoveContainer).takes(Duration::from_secs(5)));
    node.unwant("p");
    seconds(3).await;
    assert_eq!(node.world.simulator.count_calls(Method::RemoveContainer), 1);
    make_sandbox(&node, "p", 1).await;
    assert_eq!(node.world.simulator.sandboxes().len(), 2);
    seconds(10).await;
    assert!(node.shown("p").is_none());
    seconds(30).await;
    assert_eq!(node.world.simulator.sandboxes().len(), 0);
}

/// The disk was full since the pod had been kept out for a shutdown, after which it ran, and its manifest went while there was
/// no agent.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_over_by_an_old_checkpoint_is_stopped_before_it_is_removed() {
    let mut node = Node::start_on(settings(1)).await;
    let spec = "{terminationGracePeriodSeconds: 20, containers: [{name: c, image: 'sim/stubborn:1'}]}";
    node.want("p", spec).await;
    seconds(5).await;
    node.world.kill().await;
    let old = br#"{"namespace":"default","name":"p","terminated":true,"rejected":true}"#;
    node.world.checkpoints.save("p", old).await.unwrap();
    node.unwant("p");
    node.restart().await;
    seconds(10).await;
    assert_eq!(node.live(), ["c"], "it has its time");
    seconds(50).await;
    assert_eq!(node.world.simulator.containers(), []);
    assert_eq!(node.world.ledger.state().violation, None);
}
