//! The ends of pods: what is told of them is neither lost nor mixed up, whoever panics or dies meanwhile.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::statuses::Reported;
use crablet_api::core::{PodConditionType, PodPhase};
use crablet_core::status::Failure;
use crablet_cri::Runtime as _;
use crablet_cri_sim::Method;
use crablet_host::simulation::Fault;
use crablet_volumes::Operation;

/// A pod that runs until it is killed.
const STUBBORN: &str =
    "{terminationGracePeriodSeconds: 20, containers: [{name: c, image: 'sim/stubborn:1'}]}";
/// A pod that runs until it is stopped, and uses a volume.
const LASTING: &str =
    "{containers: [{name: c, image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}],
    volumes: [{name: v, emptyDir: {}}]}";

/// The phase, the reason, and whether it was the last word.
fn told(shown: &Reported) -> (PodPhase, &str, bool) {
    (shown.status.phase.clone().unwrap(), &shown.status.reason, shown.terminated)
}

/// Lets a worker panic when it looks next.
fn panic_at_next_look(node: &Node, uid: &str) {
    node.world.ledger.state().panics.insert(uid.to_owned());
}

fn is_panicking(node: &Node, uid: &str) -> bool {
    node.world.ledger.state().panics.contains(uid)
}

async fn evict(node: &Node, uid: &str, grace: u64) {
    let failure = Failure::evicted(&node.shown(uid).unwrap().pod, "The node was low on resource: memory. ");
    let evictor = &node.world.agent.as_ref().unwrap().agent.evictor;
    evictor.evict(uid, failure, Some(Duration::from_secs(grace))).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_while_its_pod_is_being_stopped_goes_on_stopping_it() {
    let mut node = Node::start().await;
    node.create("p", STUBBORN);
    seconds(5).await;
    assert_eq!(node.live(), ["c"]);
    // The look that follows on hearing of it.
    panic_at_next_look(&node, "p");
    node.delete("p", 20);
    seconds(10).await;
    assert!(!is_panicking(&node, "p"));
    seconds(11).await;
    assert_eq!(node.live(), Vec::<String>::new(), "and within the time that it had at first");
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "", true));
    seconds(600).await;
    assert_eq!(node.live(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_in_the_middle_of_an_end_keeps_to_its_deadline() {
    let mut node = Node::start().await;
    let two = "{terminationGracePeriodSeconds: 20, containers: [{name: a, image: 'sim/stubborn:1'},
                {name: b, image: 'sim/stubborn:1'}]}";
    node.create("p", two);
    seconds(5).await;
    node.delete("p", 20);
    seconds(10).await;
    panic_at_next_look(&node, "p");
    let killed = node.world.simulator.containers().into_iter().find(|container| container.name == "a");
    node.world.simulator.exit_container(&killed.unwrap().id, 0);
    seconds(5).await;
    assert!(!is_panicking(&node, "p"));
    assert_eq!(node.live(), ["b"]);
    seconds(6).await;
    assert_eq!(node.live(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_after_its_pod_is_over_does_not_bring_it_back() {
    let mut node = Node::start().await;
    node.create(
        "p",
        "{activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 1, restartPolicy: Always,
          containers: [{name: c, image: 'sim/forever:1'}]}",
    );
    seconds(30).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "DeadlineExceeded", true));
    panic_at_next_look(&node, "p");
    let dead = node.world.simulator.containers().remove(0);
    node.world.client().remove_container(&dead.id).await.unwrap();
    // Whether an event tells of it or the next relist.
    seconds(120).await;
    assert!(!is_panicking(&node, "p"));
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "DeadlineExceeded", true));
    assert_eq!(node.world.simulator.containers().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_while_it_replaces_a_container_goes_on_replacing_it() {
    let mut node = Node::start().await;
    node.create(
        "p",
        "{restartPolicy: Never, terminationGracePeriodSeconds: 10,
          containers: [{name: c, image: 'sim/stubborn:1'}]}",
    );
    seconds(5).await;
    node.edit("p", |pod| pod.spec.containers[0].image = "sim/stubborn:2".into());
    seconds(5).await;
    // The look that finds it stopped.
    panic_at_next_look(&node, "p");
    seconds(10).await;
    assert!(!is_panicking(&node, "p"));
    seconds(10).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Running, "", false));
    assert_eq!(node.live(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_stays_with_its_last_status_until_its_source_lets_it_go() {
    let mut node = Node::start().await;
    node.create("p", LASTING);
    seconds(5).await;
    node.delete("p", 5);
    seconds(20).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "", true));
    assert!(node.shown("p").unwrap().whole().metadata.deletion_timestamp.is_some());
    let left = node.world.leftovers().of("p");
    assert!(!left.contains(&"volumes") && !left.contains(&"cgroup"), "{left:?}");
    // Nobody has written its last status yet, and the agent dies.
    node.world.simulator.forget_calls();
    node.restart().await;
    seconds(60).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "", true));
    let made = node.world.simulator.calls().into_iter();
    assert_eq!(made.filter(|call| call.method == Method::RunPodSandbox).count(), 0);
    node.forget("p");
    seconds(5).await;
    assert!(node.shown("p").is_none());
    assert!(node.world.leftovers().of("p").is_empty(), "{:?}", node.world.leftovers());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_source_lets_go_without_deleting_it_goes_at_once() {
    let mut node = Node::start().await;
    node.create("p", LASTING);
    seconds(5).await;
    node.forget("p");
    seconds(35).await;
    assert!(node.shown("p").is_none());
    assert!(node.world.leftovers().of("p").is_empty(), "{:?}", node.world.leftovers());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_that_is_deleted_is_both_and_its_failure_survives_agents() {
    let mut node = Node::start().await;
    node.create("p", STUBBORN);
    seconds(5).await;
    evict(&node, "p", 15).await;
    seconds(2).await;
    node.delete("p", 20);
    seconds(2).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Running, "", false));
    node.restart().await;
    seconds(13).await;
    assert_eq!(node.live(), Vec::<String>::new(), "the shorter time counts");
    for _ in 0..2 {
        let shown = node.shown("p").unwrap();
        assert_eq!(told(&shown), (PodPhase::Failed, "Evicted", true));
        assert_eq!(shown.status.message, "The node was low on resource: memory. ");
        let mut conditions = shown.status.conditions.iter();
        assert!(conditions.any(|condition| condition.r#type == PodConditionType::DisruptionTarget));
        assert!(shown.whole().metadata.deletion_timestamp.is_some());
        node.restart().await;
        seconds(5).await;
    }
    node.forget("p");
    seconds(5).await;
    assert!(node.shown("p").is_none());
    assert!(node.world.leftovers().of("p").is_empty(), "{:?}", node.world.leftovers());
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_that_is_still_wanted_stays_failed() {
    let mut node = Node::start().await;
    node.want("p", STUBBORN).await;
    seconds(5).await;
    evict(&node, "p", 1).await;
    seconds(10).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "Evicted", true));
    node.restart().await;
    seconds(60).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "Evicted", true));
    assert_eq!(node.live(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_a_pod_began_itself_goes_on_after_the_agent_was_killed() {
    let by_deadline = "{activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 60,
        containers: [{name: c, image: 'sim/stubborn:1'}]}";
    let by_success = "{restartPolicy: Never, terminationGracePeriodSeconds: 60,
        initContainers: [{name: c, image: 'sim/stubborn:1', restartPolicy: Always}],
        containers: [{name: m, image: 'sim/exits-0-3:1'}]}";
    for spec in [by_deadline, by_success] {
        let mut node = Node::start().await;
        node.create("p", spec);
        seconds(50).await;
        node.restart().await;
        seconds(8).await;
        assert_eq!(node.live(), ["c"], "it has its whole grace period");
        seconds(14).await;
        assert_eq!(node.live(), Vec::<String>::new(), "and no more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pods_deadline_passes_while_the_network_is_not_ready() {
    let mut node = Node::start().await;
    node.world.simulator.set_network_ready(Err(("NetworkPluginNotReady", "no network")));
    seconds(15).await;
    node.create("p", "{activeDeadlineSeconds: 5, containers: [{name: c, image: 'sim/forever:1'}]}");
    seconds(3).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Pending, "", false));
    seconds(5).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "DeadlineExceeded", true));
}

#[tokio::test(start_paused = true)]
async fn neither_the_phase_of_a_pod_nor_its_room_waits_for_its_volumes_to_be_taken_away() {
    let large = |spec: &str| spec.replace("image:", "resources: {requests: {cpu: 40}}, image:");
    let mut node = Node::start().await;
    node.create("p", &large(LASTING));
    seconds(5).await;
    // Nobody ever answers.
    node.world.volumes.plan(Some(Operation::TearDown), 1, Fault::CrashBeforeEffect);
    node.delete("p", 5);
    seconds(20).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "", false));
    node.create("q", &large("{containers: [{name: c, image: 'sim/forever:1'}]}"));
    seconds(5).await;
    assert_eq!(told(&node.shown("q").unwrap()), (PodPhase::Running, "", false));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_sandbox_before_all_containers_were_made_fails_at_its_deadline() {
    let mut node = Node::start().await;
    let spec =
        "{restartPolicy: Never, activeDeadlineSeconds: 60, containers: [{name: c, image: 'sim/forever:1'},
                {name: d, image: 'sim/absent:1', imagePullPolicy: Never}]}";
    node.want("p", spec).await;
    seconds(5).await;
    assert_eq!(node.live(), ["c"]);
    let sandbox = node.world.simulator.sandboxes().remove(0).id;
    node.world.simulator.kill_sandbox_process(&sandbox);
    seconds(40).await;
    assert_eq!(node.live(), Vec::<String>::new());
    assert_ne!(told(&node.shown("p").unwrap()).0, PodPhase::Failed, "it keeps its phase, as upstream's does");
    node.restart().await;
    seconds(20).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "DeadlineExceeded", true));
    node.restart().await;
    seconds(20).await;
    assert_eq!(told(&node.shown("p").unwrap()), (PodPhase::Failed, "DeadlineExceeded", true));
}

#[tokio::test(start_paused = true)]
async fn a_link_to_the_log_of_a_container_that_the_runtime_forgot_goes_after_its_pod() {
    let mut node = Node::start().await;
    node.create(
        "p",
        "{restartPolicy: Never, containers: [{name: c, image: 'sim/forever:1'}, {name: d, image: 'sim/forever:1'}]}",
    );
    seconds(5).await;
    let links = |node: &Node| node.world.files.links().len();
    assert_eq!(links(&node), 2);
    let killed =
        node.world.simulator.containers().into_iter().find(|container| container.name == "c").unwrap();
    node.world.simulator.exit_container(&killed.id, 0);
    node.world.client().remove_container(&killed.id).await.unwrap();
    node.delete("p", 1);
    seconds(20).await;
    node.forget("p");
    seconds(10).await;
    assert_eq!(node.world.leftovers().of("p"), ["link to a log"], "the other one went with its container");
    seconds(60).await;
    assert_eq!(links(&node), 0);
}
