//! A node that runs short of memory, disk or process IDs.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_agent::eviction::Settings;
use crablet_api::core::{ContainerState, PodConditionType, PodPhase};
use crablet_core::eviction::{Amount, Condition, ContainerUsage, FsUsage, PodUsage, Signal};
use crablet_cri_sim::{Fault, Method};
use crablet_simulation::lies::Lie;
use crablet_simulation::room::Short;
use crablet_simulation::world::description;
use jiff::SignedDuration;
use tonic::Code;

const GI: u64 = 1 << 30;
const LASTING: &str = "{terminationGracePeriodSeconds: 30, containers: [{name: c0, image: 'sim/forever:1'}]}";
const STUBBORN: &str =
    "{terminationGracePeriodSeconds: 30, containers: [{name: c0, image: 'sim/stubborn:1'}]}";

/// A pod with more in its spec.
fn lasting(more: &str) -> String {
    format!("{{containers: [{{name: c0, image: 'sim/forever:1'}}], {more}}}")
}

/// A pod that asks for memory.
fn asking(memory: &str) -> String {
    let container =
        format!("{{name: c0, image: 'sim/forever:1', resources: {{requests: {{memory: {memory}}}}}}}");
    format!("{{containers: [{container}]}}")
}

/// Pods of the API that use so many GiB of memory.
async fn with_pods(node: &mut Node, pods: &[(&str, &str, u64)]) {
    for (name, spec, memory) in pods {
        node.create(name, spec);
        node.world.room.set_memory(name, memory * GI);
    }
    seconds(5).await;
    assert!(pods.iter().all(|(name, ..)| runs(node, name)));
}

/// What a pod uses whose container logs much.
fn on_disk(bytes: u64) -> PodUsage {
    PodUsage {
        containers: vec![ContainerUsage {
            name: "c0".into(),
            rootfs: FsUsage { bytes: Some(0), inodes: Some(1) },
            logs: FsUsage { bytes: Some(bytes), inodes: Some(1) },
            ..ContainerUsage::default()
        }],
        ephemeral_storage: Some(bytes),
        ..PodUsage::default()
    }
}

/// A node that evicts in another way.
async fn node_with(change: fn(&mut Settings)) -> Node {
    let mut node = Node::start().await;
    node.world.describe = Box::new(move || {
        let mut description = description();
        change(&mut description.eviction);
        description
    });
    node.restart().await;
    node
}

/// What is told of a pod: its phase, its reason and its message.
fn told(node: &Node, name: &str) -> (PodPhase, String, String) {
    let status = node.shown(name).unwrap().status;
    (status.phase.clone().unwrap(), status.reason.to_string(), status.message.to_string())
}

fn is_evicted(node: &Node, name: &str) -> bool {
    let (phase, reason, _) = told(node, name);
    (phase, &*reason) == (PodPhase::Failed, "Evicted") && !runs(node, name)
}

fn runs(node: &Node, name: &str) -> bool {
    node.world.simulator.containers().iter().any(|container| container.alive && container.pod_uid == name)
}

fn metrics(node: &Node) -> String {
    node.world.agent.as_ref().unwrap().metrics.kubelet.render()
}

fn count(node: &Node, line: &str) -> u64 {
    let found = metrics(node).lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or(0)
}

fn evictions(node: &Node, signal: &str) -> u64 {
    count(node, &format!("kubelet_evictions{{eviction_signal=\"{signal}\"}}"))
}

fn pressure(node: &Node) -> Vec<Condition> {
    node.world.agent.as_ref().unwrap().agent.pressure.now().into_iter().collect()
}

/// Nobody's promise was broken, the one about who goes first included.
fn assert_kept(node: &Node) {
    assert_eq!(node.world.ledger.state().violation, None);
}

#[tokio::test(start_paused = true)]
async fn the_pod_that_eats_the_memory_is_evicted_and_not_the_one_beside_it() {
    for has_alarms in [false, true] {
        let mut node = Node::start().await;
        node.world.room.set_alarms(has_alarms);
        with_pods(&mut node, &[("modest", LASTING, 20), ("eater", LASTING, 1)]).await;
        seconds(60).await;
        node.world.room.set_memory("eater", 1000 * GI);
        seconds(13).await;
        assert!(runs(&node, "modest") && is_evicted(&node, "eater"));
        let (_, _, message) = told(&node, "eater");
        assert_eq!(
            message,
            "The node was low on resource: memory. Threshold quantity: 107374184Ki, available: 4Gi. "
        );
        assert!(node.said("", "EvictionThresholdMet", "Attempting to reclaim memory"));
        assert!(node.said("", "Evicted", &message));
        let status = node.shown("eater").unwrap().status;
        let disrupted = status.conditions.iter().find(|one| one.r#type == PodConditionType::DisruptionTarget);
        assert_eq!(&*disrupted.unwrap().reason, "TerminationByKubelet");
        assert_eq!(*disrupted.unwrap().message, *message);
        assert_eq!(pressure(&node), [Condition::MemoryPressure]);
        assert_eq!(evictions(&node, "memory.available"), 1);
        let age = "kubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"}";
        assert_eq!(count(&node, age), 1);
        seconds(60).await;
        assert_eq!(pressure(&node), []);
        assert!(runs(&node, "modest"));
        assert_kept(&node);
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_the_kernel_is_heard_at_once_and_rings_for_nothing_more() {
    let mut node = Node::start().await;
    node.world.room.set_alarms(true);
    with_pods(&mut node, &[("eater", LASTING, 1)]).await;
    seconds(31).await;
    let looks = node.world.room.looks();
    node.world.room.set_memory("eater", 1000 * GI);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(evictions(&node, "memory.available"), 1);
    assert!(node.world.room.looks() - looks <= 2);
}

#[tokio::test(start_paused = true)]
async fn memory_that_the_kernel_took_back_meanwhile_hides_no_shortage_from_its_alarm() {
    let mut node = Node::start().await;
    node.world.room.set_alarms(true);
    node.world.room.set_reclaimable(50 * GI);
    with_pods(&mut node, &[("eater", LASTING, 1)]).await;
    seconds(31).await;
    // More than may be used for good, and less than was used in all when the alarm was set.
    node.world.room.set_reclaimable(0);
    node.world.room.set_memory("eater", 930 * GI);
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    assert_eq!(evictions(&node, "memory.available"), 1);
}

#[tokio::test(start_paused = true)]
async fn memory_waits_neither_for_pods_to_be_measured_on_disk_nor_for_what_is_done_for_the_disks_sake() {
    for is_short in [false, true] {
        let mut node = Node::start().await;
        node.world.room.set_alarms(!is_short);
        node.world.room.set_counting_takes(std::time::Duration::from_secs(60));
        let sized = lasting("volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]");
        with_pods(&mut node, &[("sized", &sized, 1), ("eater", LASTING, 1)]).await;
        seconds(40).await;
        if is_short {
            // Nothing that the node could let go of is of use, so that pods are measured.
            node.world.room.run_short(Short::Disk, 50);
            seconds(11).await;
        }
        node.world.room.set_memory("eater", 1000 * GI);
        // Without an alarm it is looked as often as at any time.
        seconds(if is_short { 10 } else { 1 }).await;
        assert_eq!(evictions(&node, "memory.available"), 1, "{is_short}");
        seconds(1).await;
        assert!(is_evicted(&node, "eater"));
        assert_kept(&node);
    }
}

/// A pod that takes five minutes to end.
const PATIENT: &str =
    "{terminationGracePeriodSeconds: 300, containers: [{name: c0, image: 'sim/stubborn:1'}]}";

/// A node on which pods that go for a disk have that time.
async fn node_with_a_soft_disk() -> Node {
    node_with(|settings| {
        let configured = &mut settings.configured;
        configured.soft.extend(configured.hard.remove_entry(&Signal::NodeFsAvailable));
        configured.soft_grace = [(Signal::NodeFsAvailable, SignedDuration::from_secs(1))].into();
        settings.max_pod_grace = 300;
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn nobody_else_goes_for_a_disk_while_one_goes_for_it_also_when_memory_came_in_between() {
    let mut node = node_with_a_soft_disk().await;
    with_pods(&mut node, &[("hog", PATIENT, 1), ("small", LASTING, 1), ("eater", LASTING, 1)]).await;
    node.world.room.set_usage("hog", on_disk(9 * GI));
    node.world.room.set_usage("small", on_disk(GI));
    node.world.room.run_short(Short::Disk, 50);
    seconds(30).await;
    assert_eq!((evictions(&node, "nodefs.available"), runs(&node, "hog")), (1, true));
    node.world.room.set_memory("eater", 1000 * GI);
    seconds(60).await;
    assert!(is_evicted(&node, "eater"));
    assert!(runs(&node, "hog") && runs(&node, "small"));
    node.world.room.recover(Short::Disk);
    seconds(300).await;
    assert!(is_evicted(&node, "hog") && runs(&node, "small"), "it was enough");
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_slowly_goes_at_once_when_a_hard_threshold_is_met() {
    let mut node = node_with(|settings| {
        settings.configured.soft = [(Signal::MemoryAvailable, Amount::Percentage(20.0))].into();
        settings.configured.soft_grace = [(Signal::MemoryAvailable, SignedDuration::from_secs(1))].into();
        settings.max_pod_grace = 600;
    })
    .await;
    let patient = "{terminationGracePeriodSeconds: 600, containers: [{name: c0, image: 'sim/stubborn:1'}]}";
    node.world.room.set_least_left(20);
    with_pods(&mut node, &[("slow", patient, 850), ("beside", LASTING, 10)]).await;
    seconds(60).await;
    assert_eq!((evictions(&node, "memory.available"), runs(&node, "slow")), (1, true));
    node.world.room.set_memory("beside", 149 * GI);
    seconds(15).await;
    assert!(is_evicted(&node, "slow") && runs(&node, "beside"));
    seconds(60).await;
    assert_eq!((evictions(&node, "memory.available"), runs(&node, "beside")), (1, true));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_an_agent_before_evicted_goes_at_once_when_a_hard_threshold_is_met() {
    for is_short_at_the_start in [false, true] {
        let mut node = node_with(|settings| {
            settings.configured.soft = [(Signal::MemoryAvailable, Amount::Percentage(20.0))].into();
            settings.configured.soft_grace = [(Signal::MemoryAvailable, SignedDuration::from_secs(1))].into();
            settings.max_pod_grace = 600;
        })
        .await;
        let patient =
            "{terminationGracePeriodSeconds: 600, containers: [{name: c0, image: 'sim/stubborn:1'}]}";
        node.world.room.set_least_left(20);
        with_pods(&mut node, &[("slow", patient, 850), ("beside", LASTING, 10)]).await;
        seconds(60).await;
        assert_eq!((evictions(&node, "memory.available"), runs(&node, "slow")), (1, true));
        if is_short_at_the_start {
            node.world.kill().await;
            node.world.room.set_memory("beside", 149 * GI);
        }
        node.restart().await;
        if !is_short_at_the_start {
            seconds(60).await;
            assert!(runs(&node, "slow") && runs(&node, "beside"), "a soft threshold waits for it");
            node.world.room.set_memory("beside", 149 * GI);
        }
        seconds(15).await;
        assert!(is_evicted(&node, "slow") && runs(&node, "beside"), "{is_short_at_the_start}");
        seconds(60).await;
        assert_eq!((evictions(&node, "memory.available"), runs(&node, "beside")), (0, true));
        assert_kept(&node);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_else_goes_for_a_disk_while_one_goes_that_an_agent_before_evicted() {
    let mut node = node_with_a_soft_disk().await;
    with_pods(&mut node, &[("hog", PATIENT, 1), ("small", LASTING, 1)]).await;
    node.world.room.set_usage("hog", on_disk(9 * GI));
    node.world.room.set_usage("small", on_disk(GI));
    node.world.room.run_short(Short::Disk, 50);
    seconds(30).await;
    assert_eq!((evictions(&node, "nodefs.available"), runs(&node, "hog")), (1, true));
    node.restart().await;
    seconds(240).await;
    assert!(runs(&node, "hog") && runs(&node, "small"));
    node.world.room.recover(Short::Disk);
    seconds(60).await;
    assert!(is_evicted(&node, "hog") && runs(&node, "small"), "it was enough");
    // What it went for is over, and the next one does not wait for it.
    node.world.room.run_short(Short::Disk, 50);
    seconds(30).await;
    assert!(is_evicted(&node, "small"));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn memory_for_pods_that_runs_short_comes_before_a_soft_threshold_that_is_met_too() {
    let mut node = node_with(|settings| {
        settings.configured.enforces_allocatable = true;
        settings.configured.soft = [(Signal::MemoryAvailable, Amount::Percentage(20.0))].into();
        settings.configured.soft_grace = [(Signal::MemoryAvailable, SignedDuration::from_secs(5))].into();
    })
    .await;
    node.world.room.set_least_left(20);
    node.world.room.set_measuring_takes(std::time::Duration::from_secs(15));
    with_pods(&mut node, &[("eater", LASTING, 850), ("beside", LASTING, 10)]).await;
    let told = "Attempting to reclaim memory";
    while node.times_said("", "EvictionThresholdMet", told) == 0 {
        seconds(1).await;
    }
    // Pods are still being measured for the soft one when the hard one is met as well.
    node.world.room.set_measuring_takes(std::time::Duration::from_millis(200));
    node.world.room.set_memory_for_pods(900 * GI);
    seconds(60).await;
    assert!(is_evicted(&node, "eater") && runs(&node, "beside"));
    let met = node.times_said("", "EvictionThresholdMet", told);
    assert!((1..=5).contains(&met), "{met}");
    let all = evictions(&node, "memory.available") + evictions(&node, "allocatableMemory.available");
    assert_eq!(all, 1);
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_for_the_sake_of_a_disk_before_it_is_known_what_is_on_which() {
    let mut node = Node::start().await;
    let of_disks = Fault::on(Method::ImageFsInfo).always().fail(Code::Unavailable, "not yet");
    node.world.simulator.inject(of_disks);
    node.restart().await;
    let limited =
        "{containers: [{name: c0, image: 'sim/forever:1', resources: {limits: {ephemeral-storage: 1Gi}}}]}";
    with_pods(&mut node, &[("limited", limited, 1), ("eater", LASTING, 1)]).await;
    let using = |all: u64| PodUsage { ephemeral_storage: Some(all), memory: Some(GI), ..PodUsage::default() };
    node.world.room.set_usage("limited", using(2 * GI));
    node.world.room.run_short(Short::Disk, 50);
    seconds(60).await;
    assert_eq!(pressure(&node), [Condition::DiskPressure], "it is said all the same");
    assert_eq!(node.live().len(), 2);
    node.world.room.set_memory("eater", 1000 * GI);
    seconds(13).await;
    assert!(is_evicted(&node, "eater") && runs(&node, "limited"), "memory is where it is");
    node.world.room.recover(Short::Disk);
    node.world.simulator.clear_faults();
    seconds(25).await;
    assert!(is_evicted(&node, "limited"));
    assert_eq!(evictions(&node, "ephemeralpodfs.limit"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_stop_is_told_of_and_holds_up_the_next_no_longer_than_its_own_end_may_take() {
    let mut node = node_with(|settings| settings.max_pod_grace = 600).await;
    let patient = lasting("terminationGracePeriodSeconds: 600");
    with_pods(&mut node, &[("stuck", &patient, 60), ("next", &patient, 30)]).await;
    let stuck = Fault::on(Method::StopContainer).always().fail(Code::Unknown, "it does not die");
    node.world.simulator.inject(stuck);
    node.world.room.run_short(Short::Memory, 50);
    let told = "Container runtime did not kill the pod within specified grace period.";
    seconds(10).await;
    assert_eq!(evictions(&node, "memory.available"), 1);
    assert!(!node.said("", "ExceededGracePeriod", told));
    seconds(10).await;
    assert!(node.said("", "ExceededGracePeriod", told));
    // A second of its own, ten to stop, half a minute to give back what it used, and upstream's next turn.
    seconds(35).await;
    assert_eq!(evictions(&node, "memory.available"), 2);
    // Those that go already are not told again by the next agent.
    node.restart().await;
    seconds(60).await;
    assert_eq!((evictions(&node, "memory.available"), node.live().len()), (0, 2));
    node.world.simulator.clear_faults();
    seconds(120).await;
    assert!(is_evicted(&node, "stuck") && is_evicted(&node, "next"));
}

#[tokio::test(start_paused = true)]
async fn what_an_evicted_pod_wrote_goes_though_it_is_still_wanted_and_its_status_stays() {
    let mut node = Node::start().await;
    with_pods(&mut node, &[("eater", LASTING, 1), ("beside", LASTING, 1)]).await;
    node.world.room.set_memory("eater", 1000 * GI);
    seconds(20).await;
    let left = |node: &Node| {
        let simulator = &node.world.simulator;
        simulator.containers().iter().filter(|container| container.pod_uid == "eater").count()
            + simulator.sandboxes().iter().filter(|sandbox| sandbox.metadata.uid == "eater").count()
    };
    assert_eq!(left(&node), 0);
    assert!(is_evicted(&node, "eater") && runs(&node, "beside"));
    node.restart().await;
    seconds(20).await;
    assert!(is_evicted(&node, "eater") && left(&node) == 0);
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_node_with_room_is_looked_at_every_ten_seconds_and_no_pod_is_measured() {
    // Process IDs are few, and could be gone sooner.
    let mut node = node_with(|settings| drop(settings.configured.hard.remove(&Signal::PidAvailable))).await;
    with_pods(&mut node, &[("a", LASTING, 1), ("b", LASTING, 1)]).await;
    let looks = node.world.room.looks();
    node.world.simulator.forget_calls();
    seconds(600).await;
    assert!((59..=61).contains(&(node.world.room.looks() - looks)));
    assert_eq!(node.world.room.measured(), 0);
    let of_disks = node.world.simulator.count_calls(Method::ImageFsInfo);
    assert_eq!(of_disks, 0, "it is known where images are");
}

#[tokio::test(start_paused = true)]
async fn pods_go_one_by_one_until_enough_is_left_and_none_goes_twice() {
    let mut node = Node::start().await;
    let pods =
        [("asks", &*asking("80Gi"), 60), ("more", LASTING, 50), ("less", LASTING, 40), ("least", LASTING, 5)];
    with_pods(&mut node, &pods).await;
    let important = lasting("priority: 1000");
    with_pods(&mut node, &[("important", &important, 70)]).await;
    // As much as two of those that did not ask have.
    node.world.room.run_short(Short::Memory, 30);
    seconds(40).await;
    assert!(is_evicted(&node, "more") && is_evicted(&node, "less"), "who uses most beyond what it asked for");
    assert!(runs(&node, "least") && runs(&node, "important") && runs(&node, "asks"));
    node.world.room.run_short(Short::Memory, 30);
    seconds(40).await;
    assert!(is_evicted(&node, "least") && is_evicted(&node, "important"), "priority counts among those");
    assert!(runs(&node, "asks"), "it uses no more than it asked for");
    assert_eq!(evictions(&node, "memory.available"), 4);
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_more_is_ranked_by_what_it_has() {
    // No more than this fits beside the other.
    let asking = |memory: &str, cpu: u32| {
        let resources = format!("{{requests: {{memory: {memory}, cpu: {cpu}}}}}");
        format!("{{containers: [{{name: c0, image: 'sim/forever:1', resources: {resources}}}]}}")
    };
    let mut node = Node::start().await;
    with_pods(&mut node, &[("waits", &asking("1Gi", 1), 40), ("beside", &asking("1Gi", 60), 30)]).await;
    node.create("waits", &asking("50Gi", 8));
    seconds(5).await;
    let conditions = node.shown("waits").unwrap().status.conditions.clone();
    assert!(conditions.iter().any(|one| &*one.reason == "Deferred"), "{conditions:?}");
    node.world.room.run_short(Short::Memory, 20);
    seconds(40).await;
    assert!(is_evicted(&node, "waits") && runs(&node, "beside"));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_something_as_a_whole_is_ranked_by_that() {
    let whole = format!("{{resources: {{requests: {{memory: 50Gi}}}}, {}", &asking("1Gi")[1..]);
    let mut node = Node::start().await;
    with_pods(&mut node, &[("whole", &whole, 40), ("beside", &asking("20Gi"), 30)]).await;
    node.world.room.run_short(Short::Memory, 20);
    seconds(40).await;
    assert!(is_evicted(&node, "beside") && runs(&node, "whole"));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_waits_for_its_grace_period_and_leaves_pods_theirs() {
    let mut node = node_with(|settings| {
        settings.configured.soft = [(Signal::MemoryAvailable, Amount::Percentage(20.0))].into();
        settings.configured.soft_grace = [(Signal::MemoryAvailable, SignedDuration::from_secs(60))].into();
        settings.max_pod_grace = 20;
    })
    .await;
    node.world.room.set_least_left(20);
    with_pods(&mut node, &[("eater", STUBBORN, 850)]).await;
    seconds(55).await;
    assert!(runs(&node, "eater"));
    assert_eq!(pressure(&node), [Condition::MemoryPressure]);
    seconds(10).await;
    let stops = || node.world.simulator.count_calls(Method::StopContainer);
    assert_eq!((stops(), runs(&node, "eater")), (1, true));
    assert_eq!(evictions(&node, "memory.available"), 1);
    assert_eq!(told(&node, "eater").0, PodPhase::Running, "it is not over before it has stopped");
    seconds(20).await;
    assert!(is_evicted(&node, "eater"));
    // A hard one leaves it a second, and the runtime two.
    seconds(60).await;
    with_pods(&mut node, &[("hasty", STUBBORN, 1)]).await;
    node.world.room.set_memory("hasty", 1000 * GI);
    seconds(15).await;
    assert!(is_evicted(&node, "hasty"));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_was_met_is_over_when_more_is_left() {
    let mut node = node_with(|settings| {
        settings.configured.min_reclaim = [(Signal::MemoryAvailable, Amount::Percentage(5.0))].into();
    })
    .await;
    with_pods(&mut node, &[("a", LASTING, 30), ("b", LASTING, 25), ("c", LASTING, 20)]).await;
    // Ending one would be enough, were it not for what is to be reclaimed.
    node.world.room.run_short(Short::Memory, 1);
    seconds(40).await;
    assert!(is_evicted(&node, "a") && is_evicted(&node, "b") && runs(&node, "c"));
}

#[tokio::test(start_paused = true)]
async fn critical_pods_stay_and_nothing_is_done_over_and_over() {
    let mut node = Node::start().await;
    let critical = lasting("priority: 2000000000");
    with_pods(&mut node, &[("critical", &critical, 60)]).await;
    node.world.room.run_short(Short::Memory, 50);
    seconds(300).await;
    assert!(runs(&node, "critical"));
    assert_eq!(evictions(&node, "memory.available"), 0);
    assert!(node.world.room.measured() <= 31, "as often as upstream's turns come");
    with_pods(&mut node, &[("other", &asking("100Gi"), 1)]).await;
    seconds(15).await;
    assert!(is_evicted(&node, "other"), "whoever ranks behind them");
    assert!(runs(&node, "critical"));
}

#[tokio::test(start_paused = true)]
async fn a_node_short_of_memory_takes_no_pod_that_asks_for_nothing() {
    let mut node = Node::start().await;
    let critical = lasting("priority: 2000000000");
    with_pods(&mut node, &[("critical", &critical, 60)]).await;
    node.world.room.run_short(Short::Memory, 50);
    seconds(15).await;
    assert_eq!(pressure(&node), [Condition::MemoryPressure]);
    node.create("best-effort", LASTING);
    let tolerates = "tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]";
    node.create("tolerates", &lasting(tolerates));
    node.world.room.set_memory("tolerates", 1);
    seconds(1).await;
    let (phase, reason, message) = told(&node, "best-effort");
    let expected =
        (PodPhase::Failed, "Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. ");
    assert_eq!((phase, &*reason, &*message), expected);
    node.world.room.recover(Short::Memory);
    seconds(60).await;
    assert_eq!(pressure(&node), []);
    node.create("later", LASTING);
    seconds(5).await;
    assert!(runs(&node, "later"));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_lets_go_of_dead_containers_and_unused_images_before_any_pod() {
    let mut node = Node::start().await;
    let pulled = "{restartPolicy: Always, containers: [{name: c0, image: 'sim/pulled:1'}]}";
    let crashes = "{restartPolicy: Always, containers: [{name: c0, image: 'sim/exits-1-3:1'}]}";
    node.create("pulled", pulled);
    node.create("crashes", crashes);
    node.create("done", "{restartPolicy: Never, containers: [{name: c0, image: 'sim/exits-0-3:1'}]}");
    node.create("lasts", LASTING);
    seconds(20).await;
    let containers = node.world.simulator.containers();
    let of_lasts = containers.iter().find(|container| container.pod_uid == "lasts").unwrap();
    node.world.simulator.exit_container(&of_lasts.id, 1);
    // It is looked every five minutes which images there are, and one has to be of age.
    seconds(400).await;
    node.forget("pulled");
    seconds(60).await;
    let dead = |node: &Node, name: &str| {
        let containers = node.world.simulator.containers();
        containers.iter().filter(|container| !container.alive && container.pod_uid == name).count()
    };
    let dead_before = dead(&node, "crashes");
    assert!(dead_before >= 1 && dead(&node, "done") == 1);
    let images = node.world.simulator.image_count();
    node.world.room.free_on_removal();
    node.world.room.run_short(Short::Disk, 1);
    seconds(20).await;
    assert!(dead(&node, "crashes") <= dead_before && dead(&node, "done") == 0);
    assert_eq!(
        node.world.simulator.image_count() + 1,
        images,
        "the one that nobody uses, and that is not pinned"
    );
    assert!(runs(&node, "lasts"));
    assert_eq!(dead(&node, "lasts"), 1, "a pod that goes on keeps what its policy leaves it");
    assert_eq!(evictions(&node, "nodefs.available"), 0);
    assert_eq!(pressure(&node), [Condition::DiskPressure]);
    assert!(node.said("", "EvictionThresholdMet", "Attempting to reclaim ephemeral-storage"));
    assert_eq!(count(&node, "kubelet_image_garbage_collected_total{reason=\"space\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_gives_back_later_what_it_removed_is_waited_for_before_a_pod_goes() {
    let mut node = Node::start().await;
    node.create("done", "{restartPolicy: Never, containers: [{name: c0, image: 'sim/exits-0-3:1'}]}");
    node.create("lasts", LASTING);
    seconds(20).await;
    node.world.room.run_short(Short::Disk, 1);
    let containers = |node: &Node| node.world.simulator.containers().len();
    let mut waited = 0;
    while containers(&node) > 1 {
        seconds(1).await;
        waited += 1;
        assert!(waited < 20, "what is over goes");
    }
    seconds(5).await;
    node.world.room.recover(Short::Disk);
    seconds(20).await;
    assert!(runs(&node, "lasts"));
    assert_eq!(evictions(&node, "nodefs.available"), 0);
    // Nothing was removed since then that could be given back.
    node.world.room.run_short(Short::Disk, 1);
    seconds(20).await;
    assert!(is_evicted(&node, "lasts"));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn when_that_is_not_enough_the_pod_that_takes_most_of_the_disk_goes() {
    let mut node = Node::start().await;
    with_pods(&mut node, &[("small", LASTING, 1), ("large", LASTING, 1)]).await;
    node.world.room.set_usage("small", on_disk(GI));
    node.world.room.set_usage("large", on_disk(9 * GI));
    node.world.room.run_short(Short::Disk, 50);
    seconds(20).await;
    assert!(is_evicted(&node, "large") && runs(&node, "small"));
    assert!(
        told(&node, "large")
            .2
            .starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: ")
    );
    assert!(told(&node, "large").2.ends_with(
        "Container c0 was using 9Gi, request is 0, has larger consumption of ephemeral-storage. "
    ));
    assert_kept(&node);
}

#[tokio::test(start_paused = true)]
async fn who_takes_more_of_a_full_disk_than_it_may_goes_before_anybody_is_ranked_for_it() {
    let mut node = Node::start().await;
    let sized = "{containers: [{name: c0, image: 'sim/forever:1', resources: {requests: {ephemeral-storage: 20Gi}}}], \
                 volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]}";
    with_pods(&mut node, &[("over", sized, 1), ("small", LASTING, 1)]).await;
    node.world.room.set_usage("small", on_disk(GI));
    node.world.room.set_usage("over", on_disk(9 * GI));
    node.world.room.run_short(Short::Disk, 50);
    // Both at once: neither a look nor a measurement comes in between.
    let volume = ("v".into(), FsUsage { bytes: Some(9 * GI), inodes: None });
    node.world.room.set_usage("over", PodUsage { volumes: vec![volume], ..on_disk(9 * GI) });
    seconds(60).await;
    assert!(is_evicted(&node, "over") && runs(&node, "small"));
    assert_eq!((evictions(&node, "emptydirfs.limit"), evictions(&node, "nodefs.available")), (1, 0));
    assert_eq!(node.world.room.measured(), 0, "nobody was ranked");
}

#[tokio::test(start_paused = true)]
async fn nobody_else_goes_for_a_disk_while_one_goes_that_took_too_much_also_when_memory_came_in_between() {
    let mut node = Node::start().await;
    let sized = lasting("volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]");
    with_pods(&mut node, &[("over", &sized, 1), ("small", LASTING, 1), ("eater", LASTING, 1)]).await;
    node.world.room.set_usage("small", on_disk(GI));
    let containers = node.world.simulator.containers();
    let of_over = containers.iter().find(|container| container.pod_uid == "over").unwrap().id.clone();
    let stuck =
        Fault::on(Method::StopContainer).about(of_over).always().fail(Code::Unknown, "it does not die");
    node.world.simulator.inject(stuck);
    let volume = ("v".into(), FsUsage { bytes: Some(9 * GI), inodes: None });
    node.world.room.set_usage("over", PodUsage { volumes: vec![volume], ..on_disk(9 * GI) });
    node.world.room.run_short(Short::Disk, 50);
    while evictions(&node, "emptydirfs.limit") == 0 {
        seconds(1).await;
    }
    node.world.room.set_memory("eater", 1000 * GI);
    seconds(20).await;
    let told = "Container runtime did not kill the pod within specified grace period.";
    assert!(is_evicted(&node, "eater"), "memory comes first");
    assert!(node.said("", "ExceededGracePeriod", told));
    assert!(runs(&node, "over") && runs(&node, "small"));
    node.world.room.recover(Short::Disk);
    node.world.simulator.clear_faults();
    seconds(60).await;
    assert!(is_evicted(&node, "over") && runs(&node, "small"));
    assert_eq!(evictions(&node, "nodefs.available"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_pod_with_most_processes_goes_when_process_ids_run_short() {
    let mut node = Node::start().await;
    let processes = |count| PodUsage { processes: Some(count), ..PodUsage::default() };
    with_pods(&mut node, &[("calm", LASTING, 1), ("bomb", LASTING, 1)]).await;
    node.world.room.set_usage("calm", processes(10));
    node.world.room.set_usage("bomb", processes(9000));
    node.world.room.run_short(Short::Processes, 50);
    seconds(20).await;
    assert!(is_evicted(&node, "bomb") && runs(&node, "calm"));
    assert_eq!(pressure(&node), [Condition::PidPressure]);
    assert_eq!(evictions(&node, "pid.available"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_to_what_it_may_take_on_disk() {
    let mut node = node_with(|settings| settings.configured.hard.clear()).await;
    let limited =
        "{containers: [{name: c0, image: 'sim/forever:1', resources: {limits: {ephemeral-storage: 1Gi}}}]}";
    let sized = lasting("volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]");
    with_pods(&mut node, &[("limited", limited, 1), ("sized", &sized, 1), ("free", LASTING, 1)]).await;
    let usage = |volume: u64, all: u64| PodUsage {
        volumes: vec![("v".into(), FsUsage { bytes: Some(volume), inodes: None })],
        ephemeral_storage: Some(all),
        ..PodUsage::default()
    };
    for name in ["limited", "sized", "free"] {
        node.world.room.set_usage(name, usage(GI, GI));
    }
    seconds(60).await;
    assert_eq!(node.live().len(), 3);
    node.world.room.set_usage("sized", usage(GI + 1, GI));
    node.world.room.set_usage("free", usage(9 * GI, 9 * GI));
    seconds(20).await;
    assert!(is_evicted(&node, "sized") && runs(&node, "limited") && runs(&node, "free"));
    assert_eq!(told(&node, "sized").2, "Usage of EmptyDir volume \"v\" exceeds the limit \"1Gi\". ");
    assert_eq!(evictions(&node, "emptydirfs.limit"), 1);
    let disrupted = PodConditionType::DisruptionTarget;
    assert!(!node.shown("sized").unwrap().status.conditions.iter().any(|one| one.r#type == disrupted));
    node.world.room.set_usage("limited", usage(0, GI + 1));
    seconds(20).await;
    assert!(is_evicted(&node, "limited") && runs(&node, "free"));
    assert_eq!(
        told(&node, "limited").2,
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
    );
    assert_eq!(pressure(&node), []);
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_while_it_is_not_known_who_uses_what() {
    let mut node = Node::start().await;
    with_pods(&mut node, &[("a", LASTING, 30), ("b", LASTING, 60)]).await;
    node.world.room.set_measured(false);
    node.world.room.run_short(Short::Memory, 50);
    seconds(60).await;
    assert_eq!(node.live().len(), 2);
    node.world.room.set_measured(true);
    seconds(15).await;
    assert!(runs(&node, "a") && is_evicted(&node, "b"));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_outlives_the_agent_wherever_it_dies() {
    let mut evicted = 0;
    for step in (0..260).step_by(13) {
        let mut node = Node::start().await;
        with_pods(&mut node, &[("a", STUBBORN, 30), ("b", STUBBORN, 60)]).await;
        node.world.room.run_short(Short::Memory, 50);
        let crash = node.world.agent.as_ref().unwrap().crash.clone();
        crash.at(crash.steps() + step);
        let _ = tokio::time::timeout(std::time::Duration::from_secs(15), crash.death()).await;
        node.restart().await;
        seconds(60).await;
        assert!(runs(&node, "a"), "{step}");
        assert!(is_evicted(&node, "b"), "{step}: {:?}", told(&node, "b"));
        assert_kept(&node);
        evicted += 1;
    }
    assert_eq!(evicted, 20);
}

/// What an agent forgets that is told that nobody was evicted: seeds hardly ever come to that.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_evicted_twice_is_found() {
    let mut node = Node::start().await;
    with_pods(&mut node, &[("a", STUBBORN, 60)]).await;
    let stuck = Fault::on(Method::StopContainer).always().fail(Code::Unknown, "it does not die");
    node.world.simulator.inject(stuck);
    node.world.room.set_memory("a", 1000 * GI);
    seconds(15).await;
    assert_eq!(evictions(&node, "memory.available"), 1);
    assert_kept(&node);
    node.world.lie = Some(Lie::NobodyWasEvicted);
    node.world.room.set_memory("a", 1001 * GI);
    node.restart().await;
    seconds(30).await;
    let violation = node.world.ledger.state().violation.clone().unwrap();
    assert_eq!((violation.invariant, &*violation.what), (19, "a is evicted twice"));
}

#[tokio::test(start_paused = true)]
async fn people_are_told_of_processes_that_the_kernel_ended_for_want_of_memory() {
    let mut node = Node::start().await;
    let say = |line: &str| node.world.kernel_log.say(line);
    say("stress invoked oom-killer: gfp_mask=0x100cca, order=0");
    say("Out of memory: Killed process 7 (stress) total-vm:100kB");
    say("tail invoked oom-killer: gfp_mask=0xcc0, order=0");
    say(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/podu,task_memcg=/kubepods/podu/c,task=tail,pid=42,uid=0",
    );
    seconds(1).await;
    assert!(node.said("", "SystemOOM", "System OOM encountered, victim process: stress, pid: 7"));
    assert_eq!(
        node.all_said().matches("SystemOOM").count(),
        1,
        "a container that reached its limit is its pod's affair"
    );
}

/// How the container of a pod ended last, and whether another runs.
fn last_end(node: &Node, name: &str) -> (String, bool) {
    let status = node.shown(name).unwrap().status;
    let shown = &status.container_statuses[0];
    let ended = [&shown.state, &shown.last_state].into_iter().find_map(|state| match state.one() {
        Some(ContainerState::Terminated(ended)) => Some(format!("{} {}", ended.exit_code, ended.reason)),
        _ => None,
    });
    (ended.unwrap_or_default(), runs(node, name))
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ran_out_of_memory_says_so_also_where_the_runtime_did_not_notice() {
    let mut node = Node::start().await;
    let once = "{restartPolicy: Never, containers: [{name: c0, image: 'sim/forever:1'}]}";
    with_pods(
        &mut node,
        &[("early", LASTING, 1), ("late", LASTING, 1), ("once", once, 1), ("other", LASTING, 1)],
    )
    .await;
    let id = |node: &Node, name: &str| {
        let containers = node.world.simulator.containers();
        containers.into_iter().find(|one| one.alive && one.pod_uid == name).unwrap().id
    };
    let say_oom = |node: &Node, name: &str, id: &str| {
        let log = &node.world.kernel_log;
        let pod = format!("/kubepods/besteffort/pod{name}");
        log.say("tail invoked oom-killer: gfp_mask=0xcc0, order=0");
        log.say(&format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg={pod},task_memcg={pod}/{id},task=tail,pid=42,uid=0"
        ));
    };
    for (name, is_before) in [("early", true), ("late", false), ("once", true)] {
        let id = id(&node, name);
        if is_before {
            say_oom(&node, name, &id);
        }
        node.world.simulator.exit_container(&id, 137);
        if !is_before {
            seconds(5).await;
            assert_eq!(last_end(&node, name), ("137 Error".to_owned(), true));
            say_oom(&node, name, &id);
        }
    }
    // One of its processes was hit, and it went on.
    let other = id(&node, "other");
    say_oom(&node, "other", &other);
    seconds(60).await;
    node.world.simulator.exit_container(&other, 137);
    seconds(5).await;
    let expected = [
        ("early", "OOMKilled", true),
        ("late", "OOMKilled", true),
        ("once", "OOMKilled", false),
        ("other", "Error", true),
    ];
    for (name, reason, lives) in expected {
        assert_eq!(last_end(&node, name), (format!("137 {reason}"), lives), "{name}");
    }
    // The next agent does not take it back, also where the log is not what it was.
    seconds(60).await;
    node.restart().await;
    seconds(10).await;
    for (name, reason, lives) in expected {
        assert_eq!(last_end(&node, name), (format!("137 {reason}"), lives), "{name}");
    }
}
