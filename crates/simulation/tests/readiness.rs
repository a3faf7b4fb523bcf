//! What probes find is shown at once, whatever the worker is doing.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_cri_sim::{Fault, Method};
use crablet_volumes::Trouble;

const READY: &str = "readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}";

/// A pod with a helper, and with a container that is ready while a file is there.
fn pod(helper: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 60, volumes: [{{name: v, emptyDir: {{}}}}], containers: [\
         {{name: helper, {helper}, volumeMounts: [{{name: v, mountPath: /v}}]}}, \
         {{name: web, image: 'sim/forever:1', {READY}}}]}}"
    )
}

/// A node on which such a pod is ready.
async fn ready(helper: &str) -> Node {
    let mut node = Node::start().await;
    node.want("p", &pod(helper)).await;
    seconds(10).await;
    node.run("web", &["touch", "/ready"]).await;
    seconds(3).await;
    assert!(node.is_ready("p"));
    node
}

/// The pod becomes unready long before what the worker is doing is over.
async fn becomes_unready(node: &Node) {
    let helper = node.container("p", "helper").container_id;
    node.run("web", &["rm", "/ready"]).await;
    seconds(5).await;
    assert!(!node.container("p", "web").ready && !node.is_ready("p"));
    assert_eq!(node.container("p", "helper").container_id, helper, "the worker is still at it");
}

#[tokio::test(start_paused = true)]
async fn while_a_helper_that_changed_takes_a_minute_to_stop() {
    let mut node = ready("image: 'sim/stubborn:1'").await;
    node.want("p", &pod("image: 'sim/stubborn:2'")).await;
    seconds(2).await;
    assert!(node.is_ready("p"));
    becomes_unready(&node).await;
    // And what is found then counts as well.
    node.run("web", &["touch", "/ready"]).await;
    seconds(3).await;
    assert!(node.container("p", "web").ready);
    seconds(60).await;
    assert_eq!(node.container("p", "helper").restart_count, 1);
    assert!(node.is_ready("p"));
}

#[tokio::test(start_paused = true)]
async fn while_a_helper_that_is_not_alive_takes_a_minute_to_stop() {
    let alive =
        "livenessProbe: {exec: {command: [sh, -c, 'if test -e /dead; then exit 1; fi']}, periodSeconds: 1}";
    let mut node = ready(&format!("image: 'sim/stubborn:1', {alive}")).await;
    node.run("helper", &["touch", "/dead"]).await;
    seconds(5).await;
    assert!(node.said("helper", "Killing", "Container helper failed liveness probe, will be restarted"));
    becomes_unready(&node).await;
}

#[tokio::test(start_paused = true)]
async fn while_volumes_hang() {
    let mut node = ready("image: 'sim/forever:1'").await;
    node.world.volumes.set_trouble(Some(Trouble::Hang));
    node.want("p", &pod("image: 'sim/forever:2'")).await;
    seconds(2).await;
    becomes_unready(&node).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_part_of_a_volume_hangs() {
    let mut node = Node::start().await;
    let spec = pod("image: 'sim/forever:1'").replace("mountPath: /v", "mountPath: /v, subPath: part");
    node.want("p", &spec).await;
    seconds(10).await;
    node.run("web", &["touch", "/ready"]).await;
    seconds(3).await;
    node.world.volumes.set_trouble(Some(Trouble::Hang));
    let helper = node.container("p", "helper").container_id;
    node.world.simulator.exit_container(helper.rsplit('/').next().unwrap(), 1);
    seconds(2).await;
    becomes_unready(&node).await;
    node.world.volumes.set_trouble(None);
    seconds(2).await;
    assert_eq!(node.container("p", "helper").restart_count, 1);
}

#[tokio::test(start_paused = true)]
async fn while_a_container_is_made_or_started() {
    for method in [Method::CreateContainer, Method::StartContainer] {
        let mut node = ready("image: 'sim/forever:1'").await;
        node.world.simulator.inject(Fault::on(method).takes(Duration::from_secs(15)));
        node.want("p", &pod("image: 'sim/forever:2'")).await;
        seconds(2).await;
        becomes_unready(&node).await;
        seconds(15).await;
        assert_eq!(node.container("p", "helper").restart_count, 1, "{method:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_runtime_does_not_say_what_runs() {
    let node = ready("image: 'sim/forever:1'").await;
    for method in [Method::ListContainers, Method::ListPodSandbox] {
        node.world.simulator.inject(Fault::on(method).always().times_out_before_effect());
    }
    seconds(2).await;
    becomes_unready(&node).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_meanwhile_does_not_forget_it() {
    let mut node = ready("image: 'sim/stubborn:1'").await;
    node.want("p", &pod("image: 'sim/stubborn:2'")).await;
    seconds(2).await;
    becomes_unready(&node).await;
    node.world.kill().await;
    node.world.simulator.die();
    node.world.start(None).await;
    node.world.tell_all();
    seconds(3).await;
    assert!(!node.is_ready("p"));
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_with_its_files_hangs_and_an_end_is_heard_as_well() {
    let mut node = ready("image: 'sim/forever:1', terminationMessagePolicy: FallbackToLogsOnError").await;
    node.world.files.slow_down("p", Duration::from_secs(60));
    let helper = node.container("p", "helper").container_id;
    node.world.simulator.exit_container(helper.rsplit('/').next().unwrap(), 1);
    seconds(2).await;
    // Its termination message is being read.
    becomes_unready(&node).await;
    // The files of the next one are being made.
    seconds(10).await;
    node.run("web", &["touch", "/ready"]).await;
    seconds(3).await;
    assert!(node.container("p", "web").ready);
    assert_eq!(node.live(), ["web"]);
    node.unwant("p");
    seconds(10).await;
    assert_eq!(node.live(), Vec::<String>::new());
}
