//! Stops of containers and sandboxes: each is its own, whatever fails beside it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_cri_sim::{Call, Fault, Method};
use tonic::Code;

/// A container that takes all the time that it is given, and whose hook before the stop takes 5 s of it.
const STUBBORN: &str = "image: 'sim/stubborn:1', lifecycle: {preStop: {exec: {command: [sleep, '5']}}}";
/// One that stops at once after a hook that takes no time.
const WILLING: &str = "image: 'sim/forever:1', lifecycle: {preStop: {exec: {command: ['true']}}}";

/// The ID of the container of a name that runs.
fn id(node: &Node, name: &str) -> String {
    let mut containers = node.world.simulator.containers().into_iter();
    containers.find(|container| container.alive && container.name == name).unwrap().id
}

/// How often a call was made about something.
fn times(node: &Node, method: Method, subject: &str) -> usize {
    let is_it = |call: &&Call| call.method == method && call.subject == subject;
    node.world.simulator.calls().iter().filter(is_it).count()
}

async fn two_that_run(node: &mut Node, policy: &str) -> (String, String) {
    let containers = format!("[{{name: a, {WILLING}}}, {{name: b, {STUBBORN}}}]");
    let spec =
        format!("{{restartPolicy: {policy}, terminationGracePeriodSeconds: 30, containers: {containers}}}");
    node.want("p", &spec).await;
    seconds(5).await;
    (id(node, "a"), id(node, "b"))
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_fails_cuts_off_no_other_and_no_hook_runs_twice() {
    let mut node = Node::start().await;
    let (a, b) = two_that_run(&mut node, "Always").await;
    node.world.simulator.inject(Fault::on(Method::StopContainer).about(&a).fail(Code::Unknown, "not now"));
    node.unwant("p");
    seconds(4).await;
    assert_eq!(times(&node, Method::StopContainer, &a), 2, "it was tried again");
    assert_eq!(node.live(), ["b"]);
    seconds(24).await;
    assert_eq!(node.live(), ["b"], "it has its whole grace period");
    seconds(10).await;
    assert_eq!(node.live(), [""; 0]);
    assert_eq!(times(&node, Method::StopContainer, &b), 1);
    assert_eq!((times(&node, Method::ExecSync, &a), times(&node, Method::ExecSync, &b)), (1, 1));
    assert_eq!(node.broken(), None);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_cuts_off_no_stop_and_no_hook_runs_twice() {
    let mut node = Node::start().await;
    let (a, b) = two_that_run(&mut node, "Always").await;
    node.unwant("p");
    // All hooks have begun, and that of one is over.
    seconds(2).await;
    assert_eq!(node.live(), ["b"]);
    node.world.simulator.inject(Fault::on(Method::ListContainers).always().fail(Code::Unknown, "not now"));
    seconds(6).await;
    assert_eq!(times(&node, Method::StopContainer, &b), 1, "its hook is over, whoever looks");
    seconds(20).await;
    assert_eq!(node.live(), ["b"]);
    seconds(5).await;
    assert_eq!(node.live(), [""; 0]);
    assert!(node.find_container("p", "b").is_some(), "nobody has seen that it ended");
    node.world.simulator.clear_faults();
    seconds(15).await;
    assert!(node.find_container("p", "b").is_none());
    for id in [&a, &b] {
        let asked = (times(&node, Method::ExecSync, id), times(&node, Method::StopContainer, id));
        assert_eq!(asked, (1, 1), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_is_not_stopped_before_what_was_started_and_not_seen_yet() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::StartContainer).nth(2).takes(Duration::from_secs(3)));
    let spec = "{terminationGracePeriodSeconds: 30, initContainers: [{name: s, image: 'sim/forever:1', \
                restartPolicy: Always}], containers: [{name: c, image: 'sim/stubborn:1'}]}";
    node.want("p", spec).await;
    seconds(2).await;
    node.world.simulator.inject(Fault::on(Method::ListContainers).always().fail(Code::Unknown, "not now"));
    seconds(3).await;
    node.unwant("p");
    seconds(4).await;
    assert_eq!(node.live(), ["c", "s"]);
    node.world.simulator.clear_faults();
    seconds(10).await;
    assert_eq!(node.live(), ["c", "s"], "they have their grace period");
    seconds(60).await;
    assert_eq!((node.live(), node.broken()), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_stopped_for_another_one_holds_up_no_other_and_its_hook_runs_once() {
    let mut node = Node::start().await;
    let (a, b) = two_that_run(&mut node, "Never").await;
    node.world.simulator.inject(Fault::on(Method::StopContainer).about(&a).fail(Code::Unknown, "not now"));
    let containers = format!("[{{name: a, {WILLING}}}, {{name: b, {STUBBORN}}}]").replace(":1'", ":2'");
    let spec =
        format!("{{restartPolicy: Never, terminationGracePeriodSeconds: 30, containers: {containers}}}");
    node.want("p", &spec).await;
    seconds(60).await;
    assert_eq!(node.live(), ["a", "b"]);
    assert!(id(&node, "a") != a && id(&node, "b") != b, "both were replaced");
    assert_eq!((times(&node, Method::ExecSync, &a), times(&node, Method::ExecSync, &b)), (1, 1));
    assert_eq!((times(&node, Method::StopContainer, &a), times(&node, Method::StopContainer, &b)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_end_goes_on_with_a_stop_that_is_under_way() {
    let mut node = Node::start().await;
    let (_, b) = two_that_run(&mut node, "Always").await;
    let spec = format!(
        "{{terminationGracePeriodSeconds: 30, containers: [{{name: a, {WILLING}}}, {{name: b, {STUBBORN}}}]}}"
    );
    node.want("p", &spec.replace("stubborn:1", "stubborn:2")).await;
    seconds(3).await;
    // Its hook runs, so that another one can take its place.
    assert_eq!(times(&node, Method::ExecSync, &b), 1);
    node.unwant("p");
    seconds(40).await;
    assert_eq!(node.live(), [""; 0]);
    assert_eq!((times(&node, Method::ExecSync, &b), times(&node, Method::StopContainer, &b)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_end_after_the_death_of_a_sandbox_gives_no_more_time_over_a_death_of_the_agent_too() {
    let mut node = Node::start().await;
    let spec = "{terminationGracePeriodSeconds: 30, containers: [{name: c, image: 'sim/stubborn:1'}]}";
    node.want("p", spec).await;
    seconds(5).await;
    node.world.simulator.kill_sandbox_process(&sandboxes(&node).remove(0));
    seconds(8).await;
    assert_eq!(node.world.simulator.count_calls(Method::StopContainer), 1);
    node.unwant("p");
    seconds(10).await;
    node.restart().await;
    seconds(9).await;
    assert_eq!(node.live(), ["c"], "it has the 30 s of its first stop");
    seconds(5).await;
    assert_eq!((node.live(), node.broken()), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_the_death_of_a_sandbox_that_an_agent_did_not_survive_counts_at_the_pods_end() {
    let mut node = Node::start().await;
    let spec = "{terminationGracePeriodSeconds: 30, containers: [{name: c, image: 'sim/stubborn:1'}]}";
    node.want("p", spec).await;
    seconds(5).await;
    node.world.simulator.kill_sandbox_process(&sandboxes(&node).remove(0));
    seconds(10).await;
    assert_eq!(node.world.simulator.count_calls(Method::StopContainer), 1);
    node.world.kill().await;
    node.unwant("p");
    node.restart().await;
    seconds(15).await;
    assert_eq!(node.live(), ["c"], "it has the 30 s of its first stop");
    seconds(10).await;
    assert_eq!((node.live(), node.broken()), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_while_all_stops_for_another_sandbox_gives_no_more_time() {
    let mut node = Node::start().await;
    let stubborn = |name: &str| format!("{{name: {name}, image: 'sim/stubborn:1'");
    let spec = format!(
        "{{activeDeadlineSeconds: 20, terminationGracePeriodSeconds: 30, \
         initContainers: [{}, restartPolicy: Always}}], containers: [{}}}]}}",
        stubborn("s"),
        stubborn("c")
    );
    node.want("p", &spec).await;
    seconds(10).await;
    node.world.simulator.kill_sandbox_process(&sandboxes(&node).remove(0));
    seconds(15).await;
    assert_eq!(node.live(), ["c", "s"], "the deadline has passed meanwhile");
    seconds(21).await;
    assert_eq!(node.live(), [""; 0], "the sidecar had what was left of the 30 s of the first stop");
}

/// The sandboxes, whether they are ready or not.
fn sandboxes(node: &Node) -> Vec<String> {
    node.world.simulator.sandboxes().into_iter().map(|sandbox| sandbox.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_died_is_stopped_once_before_another_one_takes_its_place() {
    let mut node = Node::start().await;
    node.want("p", "{containers: [{name: c, image: 'sim/forever:1'}]}").await;
    seconds(5).await;
    let first = sandboxes(&node).remove(0);
    node.world.simulator.inject(Fault::on(Method::RunPodSandbox).always().fail(Code::Unknown, "no room"));
    node.world.simulator.kill_sandbox_process(&first);
    seconds(120).await;
    assert!(node.world.simulator.count_calls(Method::RunPodSandbox) > 5);
    assert_eq!(times(&node, Method::StopPodSandbox, &first), 1);
    node.world.simulator.clear_faults();
    seconds(30).await;
    assert_eq!(node.live(), ["c"]);
    node.unwant("p");
    seconds(60).await;
    assert_eq!(sandboxes(&node), [""; 0]);
    assert_eq!(node.broken(), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_sandbox_died_gives_its_network_back_when_it_ends() {
    let mut node = Node::start().await;
    node.want("p", "{restartPolicy: Never, containers: [{name: c, image: 'sim/forever:1'}]}").await;
    seconds(5).await;
    let sandbox = sandboxes(&node).remove(0);
    node.world.simulator.kill_sandbox_process(&sandbox);
    seconds(600).await;
    assert_eq!(node.live(), [""; 0]);
    assert_eq!(times(&node, Method::StopPodSandbox, &sandbox), 1, "and then it is left alone");
    node.restart().await;
    seconds(600).await;
    node.unwant("p");
    seconds(60).await;
    assert_eq!(sandboxes(&node), [""; 0]);
    assert!(times(&node, Method::StopPodSandbox, &sandbox) <= 2, "nobody told the next agent");
    assert_eq!(node.broken(), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_stopped_when_a_pod_ends_is_told() {
    let failed = |what: &str| {
        format!("error killing pod: failed to {what}Error: \"rpc error: code = Unknown desc = not now\"")
    };
    for (method, what) in [
        (Method::StopContainer, "\"KillContainer\" for \"c\" with KillContainer"),
        (Method::StopPodSandbox, "\"KillPodSandbox\" for \"p\" with KillPodSandbox"),
    ] {
        let mut node = Node::start().await;
        node.want("p", "{containers: [{name: c, image: 'sim/forever:1'}]}").await;
        seconds(5).await;
        node.world.simulator.inject(Fault::on(method).fail(Code::Unknown, "not now"));
        node.unwant("p");
        seconds(20).await;
        assert!(node.said("", "FailedKillPod", &failed(what)), "{}", node.all_said());
        assert_eq!(node.all_said().matches("FailedKillPod").count(), 1);
        assert!(node.shown("p").is_none(), "and then it went");
    }
}
