//! Probes of a whole agent, on the simulated runtime: hours of probing pass in no time.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_cri_sim::{Fault, Method};
use tonic::Code;

const READY: &str = "readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}";

#[tokio::test(start_paused = true)]
async fn a_container_is_ready_while_its_probe_succeeds() {
    let mut node = Node::start().await;
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {READY}}}]}}")).await;
    seconds(20).await;
    assert!(!node.container("p", "c").ready);
    assert!(node.said("c", "Unhealthy", "Readiness probe failed: "));
    node.run("c", &["touch", "/ready"]).await;
    seconds(2).await;
    assert!(node.container("p", "c").ready && node.is_ready("p"));
    node.run("c", &["rm", "/ready"]).await;
    seconds(2).await;
    assert!(node.container("p", "c").ready, "two failures are not enough");
    seconds(2).await;
    assert!(!node.container("p", "c").ready && !node.is_ready("p"));
    assert_eq!(node.container("p", "c").restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_alive_is_started_anew() {
    let mut node = Node::start().await;
    let probe =
        "livenessProbe: {exec: {command: [sh, -c, 'if test -e /dead; then exit 1; fi']}, periodSeconds: 1}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probe}}}]}}")).await;
    seconds(60).await;
    let before = node.container("p", "c");
    assert_eq!((before.ready, before.restart_count), (true, 0));
    node.run("c", &["touch", "/dead"]).await;
    seconds(30).await;
    let after = node.container("p", "c");
    assert!(after.ready && after.container_id != before.container_id, "{after:?}");
    assert_eq!(after.restart_count, 1);
    assert!(node.said("c", "Killing", "Container c failed liveness probe, will be restarted"));
    seconds(600).await;
    assert_eq!(node.container("p", "c").restart_count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_hangs_is_a_failure_and_leaves_nothing_behind() {
    let mut node = Node::start().await;
    let probe = "livenessProbe: {exec: {command: [sleep, infinity]}, periodSeconds: 5, timeoutSeconds: 2, \
                 failureThreshold: 2}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probe}}}]}}")).await;
    seconds(20).await;
    let message = "Liveness probe failed: command timed out: \"sleep infinity\" timed out after 2s";
    assert!(node.said("c", "Unhealthy", message));
    assert!(node.container("p", "c").restart_count > 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_else_is_asked_before_a_container_has_started() {
    let mut node = Node::start().await;
    let probes = format!(
        "startupProbe: {{exec: {{command: [test, -e, /started]}}, periodSeconds: 1, failureThreshold: 100}}, \
         livenessProbe: {{exec: {{command: [test, -e, /alive]}}, periodSeconds: 1}}, {READY}"
    );
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probes}}}]}}")).await;
    seconds(30).await;
    let status = node.container("p", "c");
    assert_eq!((status.started, status.ready, status.restart_count), (Some(false), false, 0));
    for file in ["/alive", "/ready", "/started"] {
        node.run("c", &["touch", file]).await;
    }
    seconds(2).await;
    let status = node.container("p", "c");
    assert_eq!((status.started, status.ready, status.restart_count), (Some(true), true, 0));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_never_starts_is_started_anew() {
    let mut node = Node::start().await;
    let probe = "startupProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 5}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probe}}}]}}")).await;
    seconds(40).await;
    assert!(node.container("p", "c").restart_count > 0);
    assert!(node.said("c", "Killing", "Container c failed startup probe, will be restarted"));
}

#[tokio::test(start_paused = true)]
async fn the_others_wait_for_a_sidecar_to_have_started() {
    let mut node = Node::start().await;
    let probe =
        "startupProbe: {exec: {command: [test, -e, /started]}, periodSeconds: 1, failureThreshold: 100}";
    let sidecar = format!("{{name: s, image: 'sim/forever:1', restartPolicy: Always, {probe}}}");
    node.want(
        "p",
        &format!("{{initContainers: [{sidecar}], containers: [{{name: c, image: 'sim/forever:1'}}]}}"),
    )
    .await;
    seconds(30).await;
    assert_eq!(node.live(), ["s"]);
    node.run("s", &["touch", "/started"]).await;
    seconds(3).await;
    assert_eq!(node.live(), ["c", "s"]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_before_a_restart_when_a_sidecar_has_started_is_started_after_that() {
    let mut node = Node::start().await;
    let probe =
        "startupProbe: {exec: {command: [test, -e, /started]}, periodSeconds: 1, failureThreshold: 100}";
    let sidecar = format!("{{name: s, image: 'sim/forever:1', restartPolicy: Always, {probe}}}");
    let main = "{name: c, image: 'sim/exits-1-0:1'}";
    node.want("p", &format!("{{initContainers: [{sidecar}], containers: [{main}]}}")).await;
    seconds(3).await;
    node.run("s", &["touch", "/started"]).await;
    // It waits for 80 s and more between its runs by then.
    seconds(200).await;
    let before = node.container("p", "c").restart_count;
    let sandboxes = node.world.simulator.sandboxes();
    node.world.simulator.kill_sandbox_process(&sandboxes.last().unwrap().id);
    seconds(10).await;
    assert_eq!(node.live(), ["s"]);
    node.run("s", &["touch", "/started"]).await;
    seconds(330).await;
    assert!(node.container("p", "c").restart_count > before, "{:?}", node.container("p", "c"));
}

#[tokio::test(start_paused = true)]
async fn readiness_does_not_change_because_the_agent_was_restarted() {
    let mut node = Node::start().await;
    let slow = "startupProbe: {exec: {command: [test, -e, /started]}}, \
                readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 30}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {slow}}}]}}")).await;
    seconds(3).await;
    node.run("c", &["touch", "/started"]).await;
    node.run("c", &["touch", "/ready"]).await;
    seconds(60).await;
    let before = node.container("p", "c");
    assert!(before.ready);
    node.restart().await;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(after) = node.find_container("p", "c") {
            assert!(after.ready && after.started == Some(true), "{after:?}");
        }
    }
    assert_eq!(node.container("p", "c").container_id, before.container_id);
    // And what is found then counts.
    node.run("c", &["rm", "/ready"]).await;
    seconds(120).await;
    assert!(!node.container("p", "c").ready);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_stops_is_asked_whether_it_is_ready_and_not_whether_it_is_alive() {
    let mut node = Node::start().await;
    let probes = format!(
        "livenessProbe: {{exec: {{command: [test, -e, /ready]}}, periodSeconds: 1, failureThreshold: 1, \
         initialDelaySeconds: 5}}, {READY}"
    );
    let hook = "lifecycle: {preStop: {sleep: {seconds: 20}}}";
    let spec = format!(
        "{{terminationGracePeriodSeconds: 30, containers: [{{name: c, image: 'sim/forever:1', {probes}, {hook}}}]}}"
    );
    node.want("p", &spec).await;
    seconds(3).await;
    node.run("c", &["touch", "/ready"]).await;
    seconds(10).await;
    assert!(node.container("p", "c").ready);
    node.unwant("p");
    seconds(2).await;
    node.run("c", &["rm", "/ready"]).await;
    seconds(10).await;
    assert_eq!(node.live(), ["c"], "its hook still runs");
    assert!(!node.container("p", "c").ready);
    assert!(!node.said("c", "Killing", "Container c failed liveness probe, will be restarted"));
    seconds(30).await;
    assert!(node.live().is_empty() && node.find_container("p", "c").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_run_commands_says_nothing_about_a_container() {
    let mut node = Node::start().await;
    node.want(
        "p",
        "{containers: [{name: c, image: 'sim/forever:1', livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}}]}",
    )
    .await;
    seconds(5).await;
    node.world.simulator.inject(Fault::on(Method::ExecSync).always().fail(Code::Unknown, "no room"));
    seconds(60).await;
    let status = node.container("p", "c");
    assert_eq!((status.ready, status.restart_count), (true, 0));
    let message =
        "Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = no room";
    assert!(node.said("c", "Unhealthy", message));
}

#[tokio::test(start_paused = true)]
async fn a_long_pull_for_one_container_does_not_hide_what_is_found_of_another() {
    let mut node = Node::start().await;
    let pull = Fault::on(Method::PullImage).always().takes(Duration::from_secs(300));
    node.world.simulator.inject(pull);
    let first = format!("{{name: a, image: 'sim/forever:1', imagePullPolicy: Never, {READY}}}");
    let second = "{name: b, image: 'sim/forever:2', imagePullPolicy: Always}";
    node.want("p", &format!("{{containers: [{first}, {second}]}}")).await;
    seconds(20).await;
    assert!(!node.container("p", "a").ready);
    node.run("a", &["touch", "/ready"]).await;
    seconds(2).await;
    assert!(node.container("p", "a").ready);
    assert!(node.container("p", "b").container_id.is_empty(), "its image is still being pulled");
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_probing_is_counted_one_attempt_a_period() {
    let mut node = Node::start().await;
    let probes = "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}, \
                  readinessProbe: {exec: {command: ['true']}, periodSeconds: 10}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probes}}}]}}")).await;
    seconds(60 * 60).await;
    let liveness = node.probe_count("Liveness", "successful");
    let readiness = node.probe_count("Readiness", "successful");
    assert!((3_590..=3_600).contains(&liveness), "{liveness}");
    assert!((359..=360).contains(&readiness), "{readiness}");
    assert_eq!(node.container("p", "c").restart_count, 0);
    // Nothing is told of a pod that is gone.
    node.unwant("p");
    seconds(60).await;
    assert!(!node.probe_metrics().contains("container=\"c\""));
}
