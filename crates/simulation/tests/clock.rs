//! Waits of the agent's own, and a wall clock that is set.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_cri_sim::{Fault, Method};
use tonic::Code;

const HOURS: i64 = 3 * 60 * 60;

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_soon_though_the_clock_was_set_back_by_hours() {
    let mut node = Node::start().await;
    for (name, method) in [("sandbox", Method::RunPodSandbox), ("start", Method::CreateContainer)] {
        let fault = Fault::on(method).always().about(format!("default/{name}"));
        node.world.simulator.inject(fault.fail(Code::Unknown, "no room"));
        node.want(name, &format!("{{containers: [{{name: {name}, image: 'sim/forever:1'}}]}}")).await;
    }
    seconds(30).await;
    assert_eq!(node.live(), [""; 0]);
    node.world.clock.set_by(-HOURS);
    node.world.simulator.clear_faults();
    seconds(15).await;
    assert_eq!(node.live(), ["sandbox", "start"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_waits_no_longer_than_its_back_off_though_the_clock_was_set_back_by_hours() {
    let mut node = Node::start().await;
    node.want("p", "{containers: [{name: c, image: 'sim/exits-1-0:1'}]}").await;
    // It has waited 10 s and waits 20 s.
    seconds(20).await;
    let before = node.container("p", "c").restart_count;
    node.world.clock.set_by(-HOURS);
    seconds(20).await;
    assert!(node.container("p", "c").restart_count > before);
}

/// A pod of a container and a sidecar that take all the time that they get begins to stop, and the clock is set back.
async fn stops_while_the_clock_is_set_back() -> Node {
    let mut node = Node::start().await;
    let sidecar = "{name: s, image: 'sim/stubborn:1', restartPolicy: Always}";
    let main = "{name: m, image: 'sim/stubborn:1'}";
    let spec =
        format!("{{terminationGracePeriodSeconds: 30, initContainers: [{sidecar}], containers: [{main}]}}");
    node.want("p", &spec).await;
    seconds(10).await;
    assert_eq!(node.live(), ["m", "s"]);
    node.unwant("p");
    seconds(5).await;
    node.world.clock.set_by(-HOURS);
    node
}

#[tokio::test(start_paused = true)]
async fn a_pod_stops_within_its_grace_period_though_the_clock_was_set_back_by_hours() {
    let node = stops_while_the_clock_is_set_back().await;
    seconds(35).await;
    assert_eq!(node.live(), [""; 0]);
    assert!(node.find_container("p", "m").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_begins_with_a_clock_that_was_set_back_gives_a_pod_its_grace_period_and_no_more() {
    let mut node = stops_while_the_clock_is_set_back().await;
    node.restart().await;
    seconds(40).await;
    assert_eq!(node.live(), [""; 0]);
    assert!(node.find_container("p", "m").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_follows_one_whose_clock_was_set_forward_gives_a_pod_the_rest_of_its_grace_period() {
    let mut node = Node::start().await;
    node.want("p", "{terminationGracePeriodSeconds: 30, containers: [{name: c, image: 'sim/stubborn:1'}]}")
        .await;
    seconds(10).await;
    node.world.clock.set_by(HOURS);
    node.unwant("p");
    seconds(5).await;
    node.restart().await;
    seconds(20).await;
    assert_eq!(node.live(), ["c"]);
    let ends = jiff::Timestamp::from(node.shown("p").unwrap().ends.unwrap());
    let left = ends.duration_since(node.world.clock.now()).as_secs();
    assert!((3..=6).contains(&left), "it is shown to end in {left} s");
    seconds(10).await;
    assert_eq!(node.live(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_container_may_have_any_name_and_waits_before_it_is_tried_again() {
    for name in ["runtime", "sandbox", "volumes", "refresh", "cgroup", "removal"] {
        let mut node = Node::start().await;
        node.world
            .simulator
            .inject(Fault::on(Method::CreateContainer).always().fail(Code::Unknown, "no room"));
        node.want("p", &format!("{{containers: [{{name: {name}, image: 'sim/forever:1'}}]}}")).await;
        seconds(60).await;
        let tried = node.world.simulator.count_calls(Method::CreateContainer);
        assert!((5..=10).contains(&tried), "{name} was tried {tried} times");
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_that_owns_the_pods_answers_who_asks_whether_it_goes_round() {
    let node = Node::start().await;
    let sync_loop = node.world.agent.as_ref().unwrap().agent.sync_loop.clone();
    let longest = Duration::from_secs(300);
    for _ in 0..3 {
        assert!(sync_loop.check(longest).is_ok());
        seconds(301).await;
    }
}
