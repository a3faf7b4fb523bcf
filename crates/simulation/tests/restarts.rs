//! What is kept of a container that is restarted, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::pod_files::PodFiles as _;
use crablet_agent::sources::SourceKind;
use crablet_api::core::{ContainerState, PodIdentity, PodPhase};
use crablet_cri_api::ContainerState as Seen;
use crablet_cri_sim::{Fault, Method};
use tonic::Code;

/// The attempts of a container that the runtime knows, and its logs.
async fn kept(node: &Node, pod: &str, container: &str) -> (Vec<u32>, Vec<String>) {
    let runs = node.world.simulator.containers().into_iter();
    let mut attempts: Vec<u32> =
        runs.filter(|run| run.pod_uid == pod && run.name == container).map(|run| run.attempt).collect();
    attempts.sort_unstable();
    let owner = PodIdentity::new("default", pod, pod);
    (attempts, node.world.files.logs(&owner, container).await.unwrap())
}

/// Since when the container runs, or nothing.
fn started(node: &Node, pod: &str, container: &str) -> Option<i64> {
    match node.container(pod, container).state.one()? {
        ContainerState::Running(running) => Some(jiff::Timestamp::from(running.started_at?).as_second()),
        ContainerState::Waiting(_) | ContainerState::Terminated(_) => None,
    }
}

async fn wait_for_start(node: &Node, pod: &str, container: &str, restarts: i32) -> i64 {
    for _ in 0..3600 {
        if node.find_container(pod, container).is_some_and(|status| status.restart_count == restarts)
            && let Some(started) = started(node, pod, container)
        {
            return started;
        }
        seconds(1).await;
    }
    panic!("{container} was not restarted {restarts} times: {:?}", node.container(pod, container));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_previous_container_and_its_log_are_there() {
    let mut node = Node::start().await;
    node.want("p", "{restartPolicy: Always, containers: [{name: c, image: 'sim/exits-1-40:1'}]}").await;
    wait_for_start(&node, "p", "c", 1).await;
    let both = |one: u32, other: u32| (vec![one, other], vec![format!("{one}.log"), format!("{other}.log")]);
    assert_eq!(kept(&node, "p", "c").await, both(0, 1));
    wait_for_start(&node, "p", "c", 3).await;
    assert_eq!(kept(&node, "p", "c").await, both(2, 3), "and no others");
}

#[tokio::test(start_paused = true)]
async fn a_container_goes_after_its_log_and_stays_while_that_cannot_be_removed() {
    let mut node = Node::start().await;
    node.want("p", "{restartPolicy: Always, containers: [{name: c, image: 'sim/exits-1-40:1'}]}").await;
    wait_for_start(&node, "p", "c", 1).await;
    // The first attempt goes. Nobody would find its log if the agent died in between.
    node.world.simulator.inject(Fault::on(Method::RemoveContainer).takes(Duration::from_secs(5)));
    while node.world.simulator.count_calls(Method::RemoveContainer) == 0 {
        seconds(1).await;
    }
    let (attempts, logs) = kept(&node, "p", "c").await;
    assert!(attempts.contains(&0) && !logs.contains(&"0.log".to_owned()), "{attempts:?} {logs:?}");

    wait_for_start(&node, "p", "c", 2).await;
    node.world.files.fail_removals(u32::MAX);
    wait_for_start(&node, "p", "c", 3).await;
    seconds(5).await;
    assert_eq!(kept(&node, "p", "c").await.0, [1, 2, 3]);
    node.world.files.fail_removals(0);
    seconds(15).await;
    let both = vec!["2.log".to_owned(), "3.log".to_owned()];
    assert_eq!(kept(&node, "p", "c").await, (vec![2, 3], both));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_is_taken_away_and_put_back_counts_as_restarted() {
    let spec = "{terminationGracePeriodSeconds: 2, containers: [{name: c, image: 'sim/stubborn:1'}]}";
    let mut node = Node::start().await;
    node.want("p", spec).await;
    wait_for_start(&node, "p", "c", 0).await;
    node.unwant("p");
    seconds(1).await;
    node.want("p", spec).await;
    wait_for_start(&node, "p", "c", 1).await;
    let logs = vec!["0.log".to_owned(), "1.log".to_owned()];
    assert_eq!(kept(&node, "p", "c").await, (vec![1], logs));
    node.unwant("p");
    seconds(10).await;
    node.want("p", spec).await;
    wait_for_start(&node, "p", "c", 0).await;
    assert_eq!(kept(&node, "p", "c").await.1, ["0.log"], "nothing of the one before was left");
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_goes_on_where_it_was_when_the_agent_is_restarted() {
    // How long the container stood still before its fifth start, with an agent that is killed so many seconds after
    // the fourth start: 1 s in which it runs, and 80 s in which it waits.
    for killed_after in [None, Some(1), Some(10), Some(60)] {
        let mut node = Node::start().await;
        node.want("p", "{restartPolicy: Always, containers: [{name: c, image: 'sim/exits-1-3:1'}]}").await;
        let fourth = wait_for_start(&node, "p", "c", 4).await;
        if let Some(after) = killed_after {
            seconds(after).await;
            node.restart().await;
            seconds(1).await;
        }
        let fifth = wait_for_start(&node, "p", "c", 5).await;
        let stood_still = fifth - fourth - 3;
        assert!((80..=83).contains(&stood_still), "{stood_still} s, killed after {killed_after:?} s");
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_containers_restart_their_logs_stay() {
    let mut node = Node::start().await;
    node.want(
        "p",
        "{restartPolicy: Always, containers: [{name: a, image: 'sim/forever:1'}, {name: b, image: 'sim/exits-1-3:1', \
         restartPolicy: Always, restartPolicyRules: \
         [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}]}",
    )
    .await;
    seconds(2).await;
    assert_eq!(kept(&node, "p", "a").await, (vec![0], vec!["0.log".to_owned()]));
    wait_for_start(&node, "p", "a", 1).await;
    let (attempts, logs) = kept(&node, "p", "a").await;
    assert_eq!(attempts.len(), 1, "all were removed");
    assert_eq!(logs.len(), 2, "{logs:?}");
}

/// A pod that never restarts and whose only container has this image, which takes its time to stop.
fn never(image: &str) -> String {
    format!(
        "{{restartPolicy: Never, terminationGracePeriodSeconds: 10, containers: [{{name: c, image: '{image}'}}]}}"
    )
}

/// Lets seconds pass; in each of them the pod is not over.
async fn goes_on(node: &Node, pod: &str, for_seconds: u64) {
    for _ in 0..for_seconds * 10 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let Some(shown) = node.world.agent.as_ref().unwrap().agent.statuses.get(pod) else { continue };
        let phase = shown.status.phase.clone();
        assert!(!matches!(phase, Some(PodPhase::Failed | PodPhase::Succeeded)), "{:?}", shown.status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_image_was_changed_is_not_over_before_the_new_container_runs() {
    // Nothing happens; or the agent is killed while the old container stops, which it does before the next one is there.
    for is_killed in [false, true] {
        let mut node = Node::start().await;
        node.want_from(SourceKind::Api, "p", &never("sim/stubborn:1"));
        seconds(5).await;
        node.want_from(SourceKind::Api, "p", &never("sim/forever:1"));
        if is_killed {
            goes_on(&node, "p", 3).await;
            node.world.kill().await;
            let old = node.world.simulator.containers().into_iter().find(|run| run.alive).unwrap();
            node.world.simulator.exit_container(&old.id, 137);
            seconds(1).await;
            node.restart().await;
        }
        goes_on(&node, "p", 60).await;
        let shown = node.container("p", "c");
        assert_eq!(
            (&*shown.image, shown.restart_count),
            ("docker.io/sim/forever:1", 1),
            "killed: {is_killed}"
        );
        assert!(started(&node, "p", "c").is_some(), "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_new_image_is_missing_waits_for_it() {
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &never("sim/forever:1"));
    seconds(5).await;
    node.want_from(SourceKind::Api, "p", &never("sim/missing:1"));
    goes_on(&node, "p", 60).await;
    node.restart().await;
    goes_on(&node, "p", 60).await;
    let shown = format!("{:?}", node.container("p", "c").state);
    assert!(shown.contains("ImagePull"), "{shown}");
    node.want_from(SourceKind::Api, "p", &never("sim/forever:2"));
    goes_on(&node, "p", 400).await;
    assert_eq!(node.live(), ["c"]);
}

/// Waits until the next container of a name is made, whose start hangs, and kills the agent.
async fn die_before_the_start_of(node: &mut Node, name: &str) {
    let is_made = |node: &Node| {
        let mut all = node.world.simulator.containers().into_iter();
        all.any(|container| container.name == name && container.state == Seen::Created)
    };
    while !is_made(node) {
        seconds(1).await;
    }
    node.world.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_next_container_was_made_and_not_started_is_not_over() {
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &never("sim/forever:1"));
    seconds(5).await;
    node.world.simulator.inject(Fault::on(Method::StartContainer).times_out_before_effect());
    node.want_from(SourceKind::Api, "p", &never("sim/forever:2"));
    die_before_the_start_of(&mut node, "c").await;
    node.restart().await;
    goes_on(&node, "p", 30).await;
    let shown = node.container("p", "c");
    assert_eq!(&*shown.image, "docker.io/sim/forever:2");
    assert!(started(&node, "p", "c").is_some(), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_that_died_was_starting_never_runs_beside_another_definition_of_it() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::StartContainer).takes(Duration::from_secs(8)));
    node.want("p", &never("sim/forever:1")).await;
    die_before_the_start_of(&mut node, "c").await;
    node.restart().await;
    node.want("p", &never("sim/forever:2")).await;
    seconds(30).await;
    assert_eq!((node.live(), node.broken()), (vec!["c".to_owned()], None));
    assert_eq!(&*node.container("p", "c").image, "docker.io/sim/forever:2");
}

#[tokio::test(start_paused = true)]
async fn all_containers_restart_though_one_was_never_started() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::StartContainer).nth(2).times_out_before_effect());
    node.want(
        "p",
        "{containers: [{name: c, image: 'sim/exits-1-40:1', restartPolicy: Always, restartPolicyRules: \
         [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}, \
         {name: d, image: 'sim/forever:1'}]}",
    )
    .await;
    die_before_the_start_of(&mut node, "d").await;
    seconds(45).await;
    assert_eq!(node.live(), [""; 0]);
    node.world.simulator.forget_calls();
    node.restart().await;
    seconds(10).await;
    assert_eq!(node.live(), ["c", "d"]);
    assert_eq!(node.world.simulator.count_calls(Method::StopContainer), 0, "nothing was there to be stopped");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_was_not_stopped_after_all_ends_by_itself() {
    let mut node = Node::start().await;
    let alive =
        "livenessProbe: {exec: {command: [sh, -c, 'if test -e /dead; then exit 1; fi']}, periodSeconds: 1}";
    let spec = format!(
        "{{restartPolicy: OnFailure, terminationGracePeriodSeconds: 5, \
         containers: [{{name: c, image: 'sim/forever:1', {alive}}}]}}"
    );
    node.want("p", &spec).await;
    seconds(5).await;
    node.world.simulator.inject(Fault::on(Method::StopContainer).times_out_before_effect());
    node.run("c", &["touch", "/dead"]).await;
    while node.world.simulator.count_calls(Method::StopContainer) == 0 {
        seconds(1).await;
    }
    node.world.kill().await;
    node.run("c", &["rm", "/dead"]).await;
    node.restart().await;
    seconds(60).await;
    let container = node.world.simulator.containers().remove(0);
    node.world.simulator.exit_container(&container.id, 0);
    seconds(10).await;
    assert_eq!(node.shown("p").unwrap().status.phase, Some(PodPhase::Succeeded));
    assert_eq!(node.world.simulator.containers().len(), 1, "it does not run again");
}

#[tokio::test(start_paused = true)]
async fn an_old_init_container_that_cannot_be_removed_holds_up_nothing() {
    let mut node = Node::start().await;
    node.want(
        "p",
        "{initContainers: [{name: i, image: 'sim/exits-0-0:1'}], containers: [{name: c, image: 'sim/forever:1'}]}",
    )
    .await;
    seconds(5).await;
    let old = node.world.simulator.containers().into_iter().find(|container| container.name == "i").unwrap();
    let fault = Fault::on(Method::RemoveContainer).always().about(&old.id);
    node.world.simulator.inject(fault.fail(Code::Unknown, "not now"));
    node.world.simulator.kill_sandbox_process(&old.sandbox_id);
    seconds(60).await;
    assert_eq!(node.live(), ["c"]);
    let tried = node.world.simulator.count_calls(Method::RemoveContainer);
    assert!((3..20).contains(&tried), "it was tried {tried} times");
    node.world.simulator.clear_faults();
    seconds(15).await;
    let mut left = node.world.simulator.containers().into_iter();
    assert!(!left.any(|container| container.id == old.id), "it is removed when it can be");
}
