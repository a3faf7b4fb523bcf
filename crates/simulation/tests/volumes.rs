//! Volumes in the lives of pods: set up before anything runs, kept current, taken away after.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::Agent;
use crablet_agent::sources::SourceKind;
use crablet_api::core::{ContainerState, Pod, PodPhase};
use crablet_cri_sim::Method;
use crablet_host::simulation::Fault;
use crablet_simulation::manifest::from_text;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;
use crablet_volumes::{Operation, Trouble};
use tonic::Code;

async fn node() -> World {
    let mut world = World::new(0, Trace::new(false));
    world.start(None).await;
    world
}

fn agent(world: &World) -> &Agent {
    &world.agent.as_ref().unwrap().agent
}

/// A pod that mounts a part of an empty directory, and files about itself.
fn pod(labels: &str) -> Arc<Pod> {
    from_text(&format!(
        "metadata: {{name: p, namespace: default, uid: uid, labels: {{{labels}}}}}
spec:
  containers:
  - {{name: c, image: 'sim/forever:1', volumeMounts: [{{name: data, mountPath: /d, subPath: part}}, {{name: about, mountPath: /a}}]}}
  volumes:
  - {{name: data, emptyDir: {{}}}}
  - {{name: about, downwardAPI: {{items: [{{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}}}
"
    ))
}

fn want(world: &mut World, pod: Arc<Pod>) {
    world.ledger.want(&pod, SourceKind::Api);
    world.wanted.entry(SourceKind::Api).or_default().insert(pod.metadata.uid.to_string(), pod);
    world.tell_all();
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The phase, and what the container waits for.
fn shown(world: &World) -> (Option<PodPhase>, String) {
    let status = agent(world).statuses.get("uid").unwrap().status;
    let waits = match status.container_statuses[0].state.one() {
        Some(ContainerState::Waiting(waiting)) => format!("{}: {}", waiting.reason, waiting.message),
        state => state.map(|_| String::new()).unwrap_or_default(),
    };
    (status.phase.clone(), waits)
}

/// The messages of the events with this reason.
fn events(world: &World, reason: &str) -> Vec<String> {
    let entries = agent(world).stories.story("uid").unwrap().entries;
    let of_reason = entries.iter().filter(|entry| *entry.topic == *reason);
    of_reason.map(|entry| entry.text.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_its_volumes_stays_pending_and_has_no_sandbox() {
    let mut world = node().await;
    world.volumes.set_trouble(Some(Trouble::Fail(ErrorKind::HostUnreachable)));
    want(&mut world, pod(""));
    seconds(30).await;
    assert_eq!(shown(&world), (Some(PodPhase::Pending), "ContainerCreating: ".to_owned()));
    assert_eq!(world.simulator.sandboxes().len(), 0);
    let expected = "MountVolume.SetUp failed for volume \"about\" : \
                    mkdir /var/lib/kubelet/pods/uid/volumes/about: host unreachable";
    assert_eq!(events(&world, "FailedMount"), [expected]);
    world.volumes.set_trouble(None);
    seconds(15).await;
    assert_eq!(shown(&world), (Some(PodPhase::Running), String::new()));
    assert_eq!(world.volumes.sub_paths().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sub_path_that_is_not_ready_keeps_the_container_from_being_made() {
    let mut world = node().await;
    for nth in 1..=2 {
        world.volumes.plan(Some(Operation::SubPath), nth, Fault::Fails(ErrorKind::StorageFull));
    }
    want(&mut world, pod(""));
    seconds(1).await;
    let expected =
        "CreateContainerConfigError: failed to prepare subPath for volumeMount \"data\" of container \"c\"";
    assert_eq!(shown(&world), (Some(PodPhase::Pending), expected.to_owned()));
    seconds(10).await;
    assert_eq!(shown(&world).0, Some(PodPhase::Running));
}

#[tokio::test(start_paused = true)]
async fn files_about_a_pod_are_brought_up_to_date_when_it_changes_or_the_agent_was_away() {
    let refreshes =
        |world: &World| world.volumes.calls().iter().filter(|call| **call == Operation::Refresh).count();
    let mut world = node().await;
    want(&mut world, pod("a: b"));
    seconds(10).await;
    assert_eq!(refreshes(&world), 0, "they were just made");
    want(&mut world, pod("a: c"));
    seconds(10).await;
    assert_eq!(refreshes(&world), 1);
    want(&mut world, pod("a: c"));
    seconds(10).await;
    assert_eq!(refreshes(&world), 1, "nothing changed");
    world.kill().await;
    world.start(None).await;
    world.tell_all();
    seconds(10).await;
    assert_eq!(refreshes(&world), 2);
    let set_ups = world.volumes.calls().iter().filter(|call| **call == Operation::SetUp).count();
    assert_eq!(set_ups, 1, "nothing had to be started");
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_while_its_volumes_hang_and_leaves_none() {
    let mut world = node().await;
    world.volumes.set_trouble(Some(Trouble::Hang));
    want(&mut world, pod(""));
    seconds(20).await;
    world.wanted.entry(SourceKind::Api).or_default().clear();
    world.volumes.plan(Some(Operation::TearDown), 1, Fault::Fails(ErrorKind::ResourceBusy));
    world.tell_all();
    seconds(5).await;
    assert!(agent(&world).statuses.get("uid").is_none());
    assert!(world.leftovers().of("uid").is_empty(), "{:?}", world.leftovers());
}

#[tokio::test(start_paused = true)]
async fn the_volumes_of_a_pod_that_nobody_wants_any_more_go_when_the_agent_is_back() {
    let mut world = node().await;
    want(&mut world, pod(""));
    seconds(10).await;
    world.kill().await;
    world.wanted.entry(SourceKind::Api).or_default().clear();
    assert_eq!(world.volumes.pods().len(), 1);
    world.start(None).await;
    world.tell_all();
    seconds(60).await;
    assert!(world.volumes.pods().is_empty() && world.volumes.sub_paths().is_empty());
    assert!(world.leftovers().of("uid").is_empty(), "{:?}", world.leftovers());
}

#[tokio::test(start_paused = true)]
async fn the_volumes_of_a_pod_that_the_next_agent_does_not_take_go_though_it_is_wanted() {
    let mut world = node().await;
    let fails = crablet_cri_sim::Fault::on(Method::RunPodSandbox).always();
    world.simulator.inject(fails.fail(Code::Unavailable, "not now"));
    agent(&world).facts.change(|node| drop(node.metadata.labels.insert("zone", "a".into())));
    let mut zoned = Arc::unwrap_or_clone(pod(""));
    zoned.spec.node_selector.insert("zone", "a".into());
    want(&mut world, Arc::new(zoned));
    seconds(5).await;
    assert_eq!(world.volumes.pods().len(), 1);
    world.kill().await;
    world.start(None).await;
    world.tell_all();
    world.volumes.plan(Some(Operation::TearDown), 1, Fault::Fails(ErrorKind::ResourceBusy));
    seconds(20).await;
    let status = agent(&world).statuses.get("uid").unwrap().status;
    assert_eq!((&status.phase, &*status.reason), (&Some(PodPhase::Failed), "NodeAffinity"));
    assert!(world.volumes.pods().is_empty(), "nobody can use them any more");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_rejected_where_no_more_volumes_can_be_attached() {
    let mut world = node().await;
    world.volumes.set_trouble(Some(Trouble::TooMany));
    want(&mut world, pod(""));
    seconds(10).await;
    let status = agent(&world).statuses.get("uid").unwrap().status;
    assert_eq!((&status.phase, &*status.reason), (&Some(PodPhase::Failed), "VolumeAttachmentLimitExceeded"));
    assert_eq!(
        &*status.message,
        "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[about], \
         unattached volumes=[about], failed to process volumes=[]: context deadline exceeded"
    );
    world.volumes.set_trouble(None);
    seconds(300).await;
    assert!(
        world.simulator.containers().is_empty() && world.volumes.pods().is_empty(),
        "it belongs elsewhere"
    );
}
