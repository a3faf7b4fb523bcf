//! How many containers that ended a whole agent keeps, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_core::container_gc::Policy;
use crablet_cri_sim::{Fault, Method};
use jiff::SignedDuration;
use tonic::Code;

/// With these limits, and so many pods that end all the time, each an hour after the one before.
async fn node(limits: Policy, pods: usize) -> Node {
    let mut node = Node::start().await;
    node.world.container_gc = limits;
    node.restart().await;
    for number in 0..pods {
        node.want(
            &format!("p{number}"),
            "{restartPolicy: Always, containers: [{name: c, image: 'sim/exits-0-3:1'}]}",
        )
        .await;
        seconds(3600).await;
    }
    node
}

/// The dead containers by their pods and attempts.
fn dead(node: &Node) -> Vec<(String, u32)> {
    let containers = node.world.simulator.containers();
    let mut dead: Vec<_> = containers
        .into_iter()
        .filter(|container| !container.alive)
        .map(|container| (container.pod_uid, container.attempt))
        .collect();
    dead.sort();
    dead
}

#[tokio::test(start_paused = true)]
async fn of_each_container_as_many_stay_as_is_said() {
    for each in [1, 3] {
        let node = node(Policy { max_per_container: each, ..Policy::default() }, 1).await;
        assert_eq!(dead(&node).len(), each, "{:?}", dead(&node));
    }
}

#[tokio::test(start_paused = true)]
async fn of_all_containers_no_more_stay_than_the_node_may_have() {
    let node = node(Policy { max_per_container: 5, max_containers: Some(6), ..Policy::default() }, 4).await;
    let dead = dead(&node);
    assert!(dead.len() <= 6, "{dead:?}");
    for number in 0..4 {
        let of_pod = dead.iter().filter(|(pod, _)| *pod == format!("p{number}")).count();
        assert!(of_pod > 0, "the last of each is what decisions are made from: {dead:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_young_stays() {
    let min_age = SignedDuration::from_mins(30);
    let mut node = node(Policy { min_age, ..Policy::default() }, 1).await;
    // One every five minutes.
    let many = dead(&node).len();
    assert!((4..=8).contains(&many), "{:?}", dead(&node));
    // Nothing happens to a pod that is over; what it leaves grows old all the same.
    node.world.container_gc = Policy::default();
    node.restart().await;
    seconds(1).await;
    assert_eq!(dead(&node).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_keeps_nothing_where_the_node_may_keep_nothing() {
    let mut node = node(Policy { max_containers: Some(0), ..Policy::default() }, 0).await;
    node.want("p", "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}").await;
    seconds(60).await;
    assert_eq!(dead(&node), []);
    let shown = node.container("p", "c");
    assert!(format!("{:?}", shown.state).contains("Completed"), "{shown:?}");
    node.restart().await;
    seconds(60).await;
    assert_eq!(node.world.simulator.containers().len(), 0, "it does not run again");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_start_keeps_no_dead_ones_of_others() {
    let mut node = node(Policy::default(), 0).await;
    node.want("p", "{containers: [{name: a, image: 'sim/missing:1'}, {name: b, image: 'sim/exits-1-3:1'}]}")
        .await;
    seconds(3600).await;
    let dead = dead(&node);
    assert!(dead.len() <= 2 && dead.iter().any(|(_, attempt)| *attempt > 5), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_removed_is_tried_again_soon() {
    let mut node = node(Policy::default(), 0).await;
    node.world.simulator.inject(Fault::on(Method::RemoveContainer).fail(Code::Unknown, "not now"));
    node.want("p", "{containers: [{name: c, image: 'sim/exits-1-40:1'}]}").await;
    // The third has just begun, so that the first has to go.
    while node.world.simulator.count_calls(Method::RemoveContainer) == 0 {
        seconds(1).await;
    }
    seconds(5).await;
    assert_eq!(dead(&node), [("p".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn people_are_told_each_minute_that_the_runtime_cannot_be_listed_and_no_longer() {
    for method in [Method::ListContainers, Method::ListPodSandbox] {
        let mut node = Node::start().await;
        seconds(100).await;
        let message = "rpc error: code = Unavailable desc = not now";
        let times = |node: &mut Node| node.times_said("", "ContainerGCFailed", message);
        node.world.simulator.inject(Fault::on(method).always().fail(Code::Unavailable, "not now"));
        // It is noticed within a minute, and told at the next one.
        seconds(190).await;
        let told = times(&mut node);
        assert!((2..=3).contains(&told), "{told}");
        node.world.simulator.clear_faults();
        seconds(600).await;
        assert_eq!(times(&mut node), told);
    }
}
