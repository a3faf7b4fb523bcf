//! A machine that is about to be shut down: pods end in the order of their priorities, and it waits for that.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::joined::{Cluster, FOREVER, eventually};
use common::seconds;
use crablet_api::core::{PodConditionType, PodPhase};
use crablet_api::meta::ConditionStatus;
use crablet_core::shutdown::Period;
use crablet_core::status::Failure;
use crablet_cri_sim::{Fault as CallFault, Method};
use crablet_host::cgroup::Operation;
use crablet_host::simulation::Fault;
use crablet_simulation::api_server;
use crablet_simulation::storage::{Storage, Trouble};
use crablet_simulation::trace::Trace;
use crablet_simulation::world::{World, description};
use tokio::time::Instant;
use tonic::Code;

/// A pod that was meant for the node before anybody knew.
const BOUND: &str = "{nodeName: node, containers: [{name: c, image: 'sim/forever:1'}]}";

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// A node whose pods have 20 seconds, those that the cluster needs 10, and those that the node needs 30.
async fn cluster() -> Cluster {
    with(&[(0, 20), (2_000_000_000, 10), (2_000_001_000, 30)]).await
}

async fn with(periods: &'static [(i32, u64)]) -> Cluster {
    let mut world = World::new(0, Trace::new(false));
    world.describe = Box::new(|| {
        let mut node = description();
        let period = |&(priority, length)| Period { priority, length: Duration::from_secs(length) };
        node.shutdown_periods = periods.iter().map(period).collect();
        node
    });
    let cluster = Cluster::join(world).await;
    cluster.until_ready().await;
    cluster
}

/// The same with storage, of which the claim `a` is a pod's.
async fn with_storage() -> (Cluster, Arc<Storage>) {
    let mut world = World::new(0, Trace::new(false));
    world.describe = Box::new(|| {
        let mut node = description();
        node.shutdown_periods = [(0, 20), (2_000_000_000, 10), (2_000_001_000, 30)]
            .map(|(priority, length)| Period { priority, length: Duration::from_secs(length) })
            .to_vec();
        node
    });
    let server = world.add_api_server();
    let storage = world.add_storage(0, &server);
    let mut cluster = Cluster { world, admin: server.admin(), server };
    cluster.start_agent().await;
    cluster.until_ready().await;
    (cluster, storage)
}

/// Creates a pod of a class. It may take five minutes to stop, and does so where its image is stubborn.
async fn create(cluster: &Cluster, name: &str, class: &str, image: &str) {
    let spec = format!(
        "{{priorityClassName: '{class}', terminationGracePeriodSeconds: 300,
           containers: [{{name: c, image: 'sim/{image}:1'}}]}}"
    );
    cluster.create(name, &spec).await;
    cluster.until_phase(name, PodPhase::Running).await;
}

/// Of three priorities, one pod of the lowest does not stop.
async fn create_all(cluster: &Cluster) {
    create(cluster, "low", "", "forever").await;
    create(cluster, "low-stubborn", "", "stubborn").await;
    create(cluster, "middle", "system-cluster-critical", "forever").await;
    create(cluster, "high", "system-node-critical", "forever").await;
}

/// The phase, reason and message that the API server has of a pod.
async fn told(cluster: &Cluster, name: &str) -> String {
    let status = cluster.pod(name).await.unwrap().status;
    let phase = status.phase.as_ref().map_or("none", |phase| phase.as_str());
    format!("{phase} {}: {}", status.reason, status.message)
}

async fn until_unlocked(cluster: &Cluster) {
    eventually("nobody holds up the shutdown", async || cluster.world.logind.locks() == 0).await;
}

fn metric(cluster: &Cluster, name: &str) -> f64 {
    let text = cluster.world.agent.as_ref().unwrap().metrics.kubelet.render();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn pods_end_by_their_priority_and_one_that_does_not_stop_holds_up_no_other_for_longer_than_it_may() {
    let cluster = cluster().await;
    let logind = cluster.world.logind.clone();
    assert_eq!((logind.locks(), logind.longest_delay()), (1, Duration::from_secs(65)));
    create_all(&cluster).await;
    logind.tell(true);
    let began = Instant::now();
    seconds(5).await;
    assert_eq!(cluster.live(), ["high", "low-stubborn", "middle"]);
    assert_eq!(
        (cluster.ready().await.status, &*cluster.ready().await.message),
        (ConditionStatus::False, "node is shutting down")
    );
    assert_eq!(cluster.events("NodeShutdown").await, ["Shutdown manager detected shutdown event"]);
    assert_eq!(told(&cluster, "low").await, format!("Failed Terminated: {MESSAGE}"));
    seconds(14).await;
    assert_eq!(cluster.live(), ["high", "low-stubborn", "middle"]);
    assert_eq!(told(&cluster, "low-stubborn").await, "Running : ");
    until_unlocked(&cluster).await;
    let took = began.elapsed().as_secs();
    assert!((20..30).contains(&took), "the others stop at once: {took}");
    // As soon as the machine may go on, all is known.
    for name in ["low", "low-stubborn", "middle", "high"] {
        assert_eq!(told(&cluster, name).await, format!("Failed Terminated: {MESSAGE}"));
        let conditions = cluster.pod(name).await.unwrap().status.conditions;
        let disruption =
            conditions.iter().find(|one| one.r#type == PodConditionType::DisruptionTarget).unwrap();
        assert_eq!((&*disruption.reason, &*disruption.message), ("TerminationByKubelet", MESSAGE));
    }
    let order = |name: &str| cluster.story(name);
    assert!(
        order("middle").contains("within 10 s") && order("high").contains("within 30 s"),
        "{}",
        order("high")
    );
    let (start, end) = (
        metric(&cluster, "kubelet_graceful_shutdown_start_time_seconds"),
        metric(&cluster, "kubelet_graceful_shutdown_end_time_seconds"),
    );
    assert!(start > 0.0 && (20.0..30.0).contains(&(end - start)), "{start} {end}");
    let kept = String::from_utf8(cluster.world.shutdown_state.content().unwrap()).unwrap();
    assert!(kept.starts_with("{\"startTime\":\"2") && !kept.contains("0001-01-01"), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_taken_while_the_machine_is_about_to_be_shut_down() {
    let cluster = cluster().await;
    create(&cluster, "stubborn", "", "stubborn").await;
    cluster.world.logind.tell(true);
    seconds(2).await;
    cluster.create("late", BOUND).await;
    cluster.until_phase("late", PodPhase::Failed).await;
    let refused = "Failed NodeShutdown: Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!(told(&cluster, "late").await, refused);
    assert_eq!(cluster.live(), ["stubborn"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_cancelled_ends_no_more_pods_and_the_next_one_does() {
    let cluster = cluster().await;
    let logind = cluster.world.logind.clone();
    create_all(&cluster).await;
    logind.tell(true);
    seconds(5).await;
    logind.tell(false);
    seconds(60).await;
    // What was told to end has ended, and nobody else.
    assert_eq!(cluster.live(), ["high", "middle"]);
    assert_eq!(cluster.ready().await.status, ConditionStatus::True);
    let said =
        ["Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation"];
    assert_eq!(cluster.events("NodeShutdown").await, said);
    assert_eq!(logind.locks(), 1);
    cluster.create("next", FOREVER).await;
    cluster.until_phase("next", PodPhase::Running).await;
    logind.tell(true);
    until_unlocked(&cluster).await;
    assert_eq!(cluster.live(), [""; 0]);
    // And one that is cancelled when all have ended is held up again.
    logind.tell(false);
    seconds(5).await;
    assert_eq!(logind.locks(), 1);
    cluster.create("last", FOREVER).await;
    cluster.until_phase("last", PodPhase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_amid_a_shutdown_is_followed_by_one_that_goes_on_with_it() {
    for dies_after in [0, 100, 5000, 20_100, 21_000] {
        let mut cluster = cluster().await;
        let logind = cluster.world.logind.clone();
        create_all(&cluster).await;
        cluster.want_static(&["abc"]);
        eventually("the static pod runs", async || cluster.live().len() == 5).await;
        logind.tell(true);
        tokio::time::sleep(Duration::from_millis(dies_after)).await;
        cluster.world.kill().await;
        assert_eq!(logind.locks(), 0, "a lock ends with who holds it");
        let made = cluster.world.simulator.containers().len();
        cluster.start_agent().await;
        seconds(2).await;
        cluster.create("late", BOUND).await;
        seconds(60).await;
        assert_eq!(cluster.live(), [""; 0], "{dies_after}");
        assert!(cluster.world.simulator.containers().len() <= made, "nothing is started: {dies_after}");
        for name in ["low", "low-stubborn", "middle", "high"] {
            assert_eq!(
                told(&cluster, name).await,
                format!("Failed Terminated: {MESSAGE}"),
                "{name} {dies_after}"
            );
        }
        assert!(told(&cluster, "late").await.starts_with("Failed NodeShutdown"), "{dies_after}");
        assert_eq!(&*cluster.ready().await.message, "node is shutting down");

        // Back again, the node runs what is its own, and nothing that was ended.
        cluster.world.reboot().await;
        cluster.start_agent().await;
        eventually("the node is ready", async || cluster.node_is(ConditionStatus::True).await).await;
        eventually("the static pod runs", async || cluster.live() == ["st-node"]).await;
        seconds(60).await;
        assert_eq!(cluster.live(), ["st-node"], "{dies_after}");
        assert_eq!(logind.locks(), 1);
        assert!(metric(&cluster, "kubelet_graceful_shutdown_start_time_seconds") > 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_that_the_api_server_does_not_take_hold_up_the_machine_for_some_seconds_and_are_told_later()
{
    let mut cluster = cluster().await;
    create(&cluster, "low", "", "forever").await;
    cluster.server.set_trouble(Some(api_server::Trouble::Refused));
    cluster.world.logind.tell(true);
    let began = Instant::now();
    seconds(4).await;
    assert_eq!((cluster.live(), cluster.world.logind.locks()), (Vec::new(), 1));
    until_unlocked(&cluster).await;
    let took = began.elapsed().as_secs();
    assert!((5..8).contains(&took), "{took}");
    cluster.world.reboot().await;
    cluster.server.set_trouble(None);
    cluster.start_agent().await;
    cluster.until_phase("low", PodPhase::Failed).await;
    assert_eq!(told(&cluster, "low").await, format!("Failed Terminated: {MESSAGE}"));
    assert_eq!(cluster.live(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn when_the_bus_is_back_the_machine_is_held_up_again_also_in_a_shutdown() {
    let cluster = cluster().await;
    let logind = cluster.world.logind.clone();
    create_all(&cluster).await;
    logind.leave();
    seconds(30).await;
    assert_eq!(logind.locks(), 1, "the lock is not the bus's");
    logind.come_back();
    seconds(15).await;
    assert_eq!((logind.connections(), logind.locks()), (2, 1));
    logind.tell(true);
    seconds(5).await;
    logind.leave();
    seconds(5).await;
    assert_eq!(cluster.live(), ["high", "low-stubborn", "middle"]);
    logind.come_back();
    until_unlocked(&cluster).await;
    assert_eq!(cluster.live(), [""; 0]);
    seconds(30).await;
    assert_eq!(cluster.events("NodeShutdown").await, ["Shutdown manager detected shutdown event"]);
    // A cancellation that nobody heard is found out.
    logind.leave();
    logind.tell(false);
    logind.come_back();
    seconds(15).await;
    assert_eq!((cluster.ready().await.status, logind.locks()), (ConditionStatus::True, 1));
}

/// Another agent begins, whose pods have 30 seconds in a shutdown.
async fn start_anew_with_half_a_minute(cluster: &mut Cluster) {
    cluster.world.kill().await;
    cluster.world.describe = Box::new(|| {
        let mut node = description();
        node.shutdown_periods = vec![Period { priority: 0, length: Duration::from_secs(30) }];
        node
    });
    cluster.start_agent().await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_logind_does_not_allow_for_is_no_reason_not_to_hold_it_up() {
    let mut cluster = with(&[]).await;
    let logind = cluster.world.logind.clone();
    assert_eq!((logind.connections(), logind.locks()), (0, 0), "where no time is configured, nobody asks");
    logind.keep_delay();
    start_anew_with_half_a_minute(&mut cluster).await;
    seconds(10).await;
    assert_eq!((logind.locks(), logind.longest_delay()), (1, Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_may_ask_for_more_time_pods_have_what_time_there_is() {
    let mut cluster = with(&[]).await;
    let logind = cluster.world.logind.clone();
    logind.fix_delay(Duration::from_secs(30));
    start_anew_with_half_a_minute(&mut cluster).await;
    seconds(1).await;
    assert_eq!((logind.locks(), logind.longest_delay()), (1, Duration::from_secs(30)));
    create(&cluster, "low", "", "forever").await;
    logind.tell(true);
    until_unlocked(&cluster).await;
    assert_eq!(told(&cluster, "low").await, format!("Failed Terminated: {MESSAGE}"));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_takes_no_time_of_pods() {
    let cluster = cluster().await;
    create_all(&cluster).await;
    cluster.world.shutdown_state.hang();
    cluster.world.logind.tell(true);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(cluster.live(), ["high", "low-stubborn", "middle"]);
    until_unlocked(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_pods_waits_until_the_api_server_knows_why_it_is_not_ready() {
    let cluster = cluster().await;
    cluster.server.set_trouble(Some(api_server::Trouble::Refused));
    cluster.world.logind.tell(true);
    seconds(2).await;
    assert_eq!(cluster.world.logind.locks(), 1);
    cluster.server.set_trouble(None);
    until_unlocked(&cluster).await;
    assert_eq!(&*cluster.ready().await.message, "node is shutting down");
}

#[tokio::test(start_paused = true)]
async fn the_next_group_waits_a_second_at_most_for_the_api_server_to_know_of_the_one_before() {
    let cluster = cluster().await;
    for name in ["low", "low-too", "low-three"] {
        create(&cluster, name, "", "forever").await;
    }
    create(&cluster, "middle", "system-cluster-critical", "forever").await;
    cluster.server.set_trouble(Some(api_server::Trouble::Refused));
    cluster.world.logind.tell(true);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(cluster.live(), ["middle"]);
    seconds(1).await;
    assert_eq!(cluster.live(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cgroup_that_cannot_be_removed_holds_up_no_other_group() {
    let cluster = cluster().await;
    create(&cluster, "low", "", "forever").await;
    create(&cluster, "middle", "system-cluster-critical", "forever").await;
    for nth in 1..50 {
        let fault = Fault::Fails(ErrorKind::ResourceBusy);
        cluster.world.cgroups.plan(Some(Operation::RemovePod), nth, fault);
    }
    cluster.world.logind.tell(true);
    seconds(3).await;
    assert_eq!(cluster.live(), [""; 0]);
    until_unlocked(&cluster).await;
}

/// The driver of a pod's volume is in the last group: without it nobody could take the volume away.
#[tokio::test(start_paused = true)]
async fn the_next_group_waits_until_volumes_are_unmounted_and_no_longer_than_the_one_before_may_take() {
    for hangs in [true, false] {
        let (cluster, storage) = with_storage().await;
        let mounted =
            || storage.machine.mounts().into_keys().any(|place| place.starts_with("/var/lib/kubelet/pods"));
        create(&cluster, "driver", "system-node-critical", "forever").await;
        cluster.create_with_volume("user", "persistentVolumeClaim: {claimName: a}").await;
        cluster.until_phase("user", PodPhase::Running).await;
        assert!(mounted());
        storage.drivers[0].set_trouble(Some(Trouble::Hangs));
        cluster.world.logind.tell(true);
        let began = Instant::now();
        // Its container ends, and its volume stays.
        eventually("the pod has ended", async || cluster.live() == ["driver"]).await;
        seconds(5).await;
        assert_eq!((cluster.live(), mounted()), (vec!["driver".to_owned()], true));
        if !hangs {
            storage.drivers[0].set_trouble(None);
        }
        eventually("the driver goes", async || cluster.live().is_empty()).await;
        assert_eq!(mounted(), hangs);
        assert_eq!(began.elapsed() >= Duration::from_secs(20), hangs, "{:?}", began.elapsed());
        until_unlocked(&cluster).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_a_shutdown_ended_runs_again_when_that_is_cancelled() {
    for cancelled_after in [20, 500, 8000] {
        let mut cluster = cluster().await;
        let logind = cluster.world.logind.clone();
        cluster.want_static(&["abc"]);
        create(&cluster, "middle", "system-cluster-critical", "stubborn").await;
        eventually("the static pod runs", async || cluster.live().len() == 2).await;
        logind.tell(true);
        tokio::time::sleep(Duration::from_millis(cancelled_after)).await;
        logind.tell(false);
        seconds(60).await;
        assert!(cluster.live().contains(&"st-node".to_owned()), "{cancelled_after}");
        assert_eq!(cluster.phase("st-node").await, Some(PodPhase::Running), "{cancelled_after}");
        logind.tell(true);
        until_unlocked(&cluster).await;
        assert_eq!(cluster.live(), [""; 0], "{cancelled_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_pod_that_is_evicted_when_the_machine_goes_down_the_shutdown_is_told() {
    let cluster = cluster().await;
    create(&cluster, "stubborn", "", "stubborn").await;
    let pod = cluster.pod("stubborn").await.unwrap();
    let failure = Failure::evicted(&pod, "The node was low on resource: memory. ");
    let evictor = &cluster.world.agent.as_ref().unwrap().agent.evictor;
    evictor.evict(&pod.metadata.uid, failure, Some(Duration::from_secs(10))).await;
    seconds(2).await;
    cluster.world.logind.tell(true);
    until_unlocked(&cluster).await;
    assert_eq!(told(&cluster, "stubborn").await, format!("Failed Terminated: {MESSAGE}"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_done_its_work_before_the_shutdown_has_succeeded() {
    let mut cluster = cluster().await;
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}";
    cluster.create("job", spec).await;
    cluster.until_phase("job", PodPhase::Running).await;
    let stops = CallFault::on(Method::StopPodSandbox).times(100);
    cluster.world.simulator.inject(stops.fail(Code::Unknown, "the network is busy"));
    eventually("it is done", async || cluster.live().is_empty()).await;
    seconds(1).await;
    cluster.world.logind.tell(true);
    seconds(1).await;
    // Another agent knows it as well.
    cluster.world.kill().await;
    cluster.world.simulator.clear_faults();
    cluster.start_agent().await;
    cluster.until_phase("job", PodPhase::Succeeded).await;
    assert_eq!(told(&cluster, "job").await, format!("Succeeded Terminated: {MESSAGE}"));
}
