//! Images that nobody uses.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_api::core::PodPhase;
use crablet_core::eviction::{Amount, Signal};
use crablet_core::image_gc::Policy;
use crablet_cri_sim::{Capabilities, Fault, Image, Method, Settings};
use crablet_host::checkpoint::Checkpoints as _;
use crablet_host::simulation::Fault as HostFault;
use crablet_simulation::room::Short;
use crablet_simulation::world::{description, settings};
use jiff::SignedDuration;
use tonic::Code;

const POLICY: Policy = Policy {
    high_threshold_percent: 85,
    low_threshold_percent: 80,
    min_age: SignedDuration::from_mins(2),
    max_age: None,
};

/// A node with images that nobody pinned, of which a pod uses one as its container's and one as a volume.
async fn node_with(policy: Policy) -> Node {
    let runtime = settings(0);
    // One of today, that mounts images.
    let capabilities = Capabilities { image_volumes: true, ..runtime.capabilities };
    let mut node = Node::start_on(Settings { capabilities, ..runtime }).await;
    for name in ["old", "new", "mounted"] {
        node.world.simulator.add_image(Image::new(format!("example.com/{name}:1")).size(1 << 38));
    }
    node.world.describe = Box::new(move || {
        let mut description = description();
        description.image_gc = policy;
        description.eviction.configured.hard.clear();
        description
    });
    node.restart().await;
    node.create(
        "uses",
        "{containers: [{name: c0, image: 'sim/pulled:1'}], volumes: [{name: v, image: {reference: 'example.com/mounted:1'}}]}",
    );
    seconds(60).await;
    node
}

fn has(node: &Node, name: &str) -> bool {
    node.world.simulator.has_image(name)
}

fn count(node: &Node, line: &str) -> u64 {
    let text = node.world.agent.as_ref().unwrap().metrics.kubelet.render();
    text.lines().find_map(|known| known.strip_prefix(line)?.trim().parse().ok()).unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn images_that_nobody_uses_go_when_their_disk_fills_and_only_as_many_as_must() {
    let mut node = node_with(POLICY).await;
    seconds(600).await;
    assert!(has(&node, "example.com/old:1") && has(&node, "example.com/new:1"), "there is room");
    // 90 hundredths: a tenth of the disk is to be freed, which is less than one of them takes.
    node.world.room.run_short(Short::Disk, 1);
    seconds(301).await;
    let left = ["old", "new"].iter().filter(|name| has(&node, &format!("example.com/{name}:1"))).count();
    assert_eq!(left, 1);
    assert!(has(&node, "example.com/mounted:1") && has(&node, "sim/pulled:1") && has(&node, "sim/forever:1"));
    assert_eq!(count(&node, "kubelet_image_garbage_collected_total{reason=\"space\"}"), 1);
    // The disk is as full as before: the next one goes, and then there is no more to be had.
    seconds(301).await;
    seconds(301).await;
    assert!(!has(&node, "example.com/old:1") && !has(&node, "example.com/new:1"));
    seconds(301).await;
    assert!(
        node.all_said().contains("Failed to free sufficient space by deleting unused images (freed 0 bytes)")
    );
    assert!(node.all_said().contains("FreeDiskSpaceFailed") && node.all_said().contains("ImageGCFailed"));
    assert!(has(&node, "example.com/mounted:1") && has(&node, "sim/pulled:1"));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_too_old_goes_though_there_is_room_and_agents_come_and_go() {
    let policy = Policy { max_age: Some(SignedDuration::from_secs(2000)), ..POLICY };
    let mut node = node_with(policy).await;
    for _ in 0..3 {
        seconds(400).await;
        node.restart().await;
    }
    assert!(has(&node, "example.com/old:1"));
    seconds(1800).await;
    assert!(!has(&node, "example.com/old:1"), "what the agents before knew counts");
    assert!(has(&node, "example.com/mounted:1") && has(&node, "sim/pulled:1"));
    assert!(count(&node, "kubelet_image_garbage_collected_total{reason=\"age\"}") >= 2);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_is_said_after_the_second_time_and_nothing_is_lost() {
    let mut node = node_with(POLICY).await;
    node.world.room.run_short(Short::Disk, 1);
    let fails = Fault::on(Method::RemoveImage).times(4).fail(Code::Unknown, "read-only file system");
    node.world.simulator.inject(fails);
    seconds(300).await;
    assert!(!node.all_said().contains("ImageGCFailed"), "once is nothing");
    seconds(301).await;
    assert!(node.all_said().contains("ImageGCFailed"));
    assert!(
        node.all_said().contains("encountered errors")
            || node.all_said().contains("errors in image deletion")
    );
    seconds(601).await;
    assert!(!has(&node, "example.com/old:1") || !has(&node, "example.com/new:1"));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_or_written_makes_images_new_and_no_more() {
    let policy = Policy { max_age: Some(SignedDuration::from_secs(1000)), ..POLICY };
    let mut node = node_with(policy).await;
    seconds(600).await;
    node.world.kill().await;
    node.world.image_records.save("images", b"{\"images\": {\"torn").await.unwrap();
    node.world.image_records.plan(None, 2, HostFault::Fails(std::io::ErrorKind::StorageFull));
    node.restart().await;
    seconds(900).await;
    assert!(has(&node, "example.com/old:1"));
    seconds(700).await;
    assert!(!has(&node, "example.com/old:1"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_name_stands_for_nothing_keeps_its_image_and_nobody_elses() {
    let mut node = node_with(POLICY).await;
    node.forget("uses");
    node.create(
        "mounts",
        "{containers: [{name: c0, image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}], \
          volumes: [{name: v, image: {reference: 'example.com/mounted:1'}}]}",
    );
    seconds(600).await;
    assert!(node.is_ready("mounts"));
    // As of a short name that the runtime does not resolve.
    let unknown = Fault::on(Method::ImageStatus).always().fail(Code::Unknown, "no such name");
    node.world.simulator.inject(unknown);
    node.world.room.run_short(Short::Disk, 1);
    for _ in 0..6 {
        seconds(301).await;
    }
    assert!(!has(&node, "example.com/old:1") && !has(&node, "example.com/new:1"));
    assert!(has(&node, "example.com/mounted:1"), "it is mounted");
}

#[tokio::test(start_paused = true)]
async fn the_image_of_a_volume_goes_when_nothing_is_left_of_its_pod_though_that_is_still_wanted() {
    let mut node = node_with(POLICY).await;
    node.forget("uses");
    let describe = std::mem::replace(&mut node.world.describe, Box::new(description));
    node.world.describe = Box::new(move || {
        let mut description = describe();
        let least = Amount::Percentage(10.0);
        description.eviction.configured.hard = [(Signal::NodeFsAvailable, least)].into();
        description
    });
    node.restart().await;
    let mounts = |restarts: &str, program: &str, image: &str| {
        format!(
            "{{restartPolicy: {restarts}, containers: [{{name: c0, image: 'sim/{program}', volumeMounts: \
              [{{name: v, mountPath: /v}}]}}], volumes: [{{name: v, image: {{reference: 'example.com/{image}:1'}}}}]}}"
        )
    };
    node.create("done", &mounts("Never", "exits-0-3:1", "old"));
    node.create("lasts", &mounts("Always", "forever:1", "mounted"));
    seconds(600).await;
    assert!(has(&node, "example.com/old:1"));
    let left = || node.world.simulator.containers().iter().filter(|one| one.pod_uid == "done").count();
    assert_eq!(left(), 1, "it keeps its image");
    node.world.room.free_on_removal();
    node.world.room.run_short(Short::Disk, 1);
    seconds(30).await;
    assert_eq!(left(), 0);
    assert_eq!(node.shown("done").unwrap().status.phase, Some(PodPhase::Succeeded));
    assert!(!has(&node, "example.com/old:1"));
    assert!(node.is_ready("lasts") && has(&node, "example.com/mounted:1"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_just_begun_removes_no_image_that_a_pod_may_be_about_to_use() {
    let mut node = node_with(POLICY).await;
    seconds(600).await;
    node.world.kill().await;
    node.world.room.run_short(Short::Disk, 1);
    node.restart().await;
    seconds(119).await;
    assert!(has(&node, "example.com/old:1") && has(&node, "example.com/new:1"));
    assert!(!node.all_said().contains("FreeDiskSpaceFailed"));
    seconds(301).await;
    assert!(!has(&node, "example.com/old:1") || !has(&node, "example.com/new:1"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_made_during_a_look_keeps_its_image() {
    let mut node = node_with(POLICY).await;
    seconds(200).await;
    node.world.room.run_short(Short::Disk, 1);
    let slow = Fault::on(Method::ListImages).takes(std::time::Duration::from_secs(30));
    node.world.simulator.inject(slow);
    // The look is under way by then.
    seconds(45).await;
    let of = |image: &str| {
        format!(
            "{{containers: [{{name: c0, image: '{image}', command: [forever], imagePullPolicy: Never}}]}}"
        )
    };
    node.create("a", &of("example.com/old:1"));
    node.create("b", &of("example.com/new:1"));
    seconds(60).await;
    assert!(node.world.simulator.count_calls(Method::ListImages) > 0);
    assert!(has(&node, "example.com/old:1") && has(&node, "example.com/new:1"));
}
