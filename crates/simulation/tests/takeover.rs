//! Pods that another kubelet ran since the agent last did, or before it ever did: what that one told the API server is the
//! newest that is known of them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::joined::{Cluster, eventually};
use crablet_agent::sources::SourceKind;
use crablet_api::core::{Pod, PodConditionType, PodPhase};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_client::PatchType;
use crablet_core::shutdown::Period;
use crablet_cri::Runtime as _;
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_simulation::api_server::Trouble;
use crablet_simulation::manifest::from_text;
use crablet_simulation::world::description;

/// A pod whose readiness is asked for rarely.
const PROBED: &str = "{nodeName: node, containers: [{name: c, image: 'sim/forever:1', \
    readinessProbe: {exec: {command: [test, -e, /ready]}, initialDelaySeconds: 5, periodSeconds: 40}}]}";

async fn run(cluster: &Cluster, command: &[&str]) {
    let container = cluster.world.simulator.containers().remove(0);
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let output = cluster.world.client().exec_sync(&container.id, &command, None).await.unwrap();
    assert_eq!(output.exit_code, 0, "{command:?}");
}

async fn is_ready(cluster: &Cluster, name: &str) -> bool {
    let status = cluster.pod(name).await.unwrap().status;
    let ready = status.conditions.iter().find(|condition| condition.r#type == PodConditionType::Ready);
    ready.is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// For the next minutes it is always so at the server.
async fn stays(cluster: &Cluster, name: &str, ready: bool) {
    for tenth in 0..2000 {
        assert_eq!(is_ready(cluster, name).await, ready, "{tenth} tenths of a second after the agent began");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn want_static(cluster: &mut Cluster) {
    let pod = from_text(&format!(
        "metadata: {{name: st-node, namespace: default, uid: h, annotations: \
         {{kubernetes.io/config.source: file, kubernetes.io/config.hash: h}}}}\nspec: {PROBED}\n"
    ));
    cluster.world.ledger.want(&pod, SourceKind::File);
    cluster.world.wanted.entry(SourceKind::File).or_default().insert("h".to_owned(), pod);
    cluster.world.tell(SourceKind::File);
}

#[tokio::test(start_paused = true)]
async fn what_another_kubelet_told_of_a_pod_counts_more_than_an_older_checkpoint() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", PROBED).await;
    cluster.until_phase("web", PodPhase::Running).await;
    run(&cluster, &["touch", "/ready"]).await;
    eventually("it is ready", async || is_ready(&cluster, "web").await).await;
    cluster.world.kill().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    run(&cluster, &["rm", "/ready"]).await;
    let (mut told, now) = (cluster.pod("web").await.unwrap().status, Time::from(cluster.world.clock.now()));
    told.container_statuses[0].ready = false;
    for condition in &mut told.conditions {
        if matches!(condition.r#type, PodConditionType::Ready | PodConditionType::ContainersReady) {
            (condition.status, condition.last_transition_time) = (ConditionStatus::False, Some(now));
        }
    }
    let patch = serde_json::json!({ "status": serde_json::to_value(&told).unwrap() }).to_string();
    cluster.admin.patch::<Pod>("default", "web", "/status", PatchType::Merge, patch.into()).await.unwrap();
    cluster.start_agent().await;
    stays(&cluster, "web", false).await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_another_kubelet_found_ready_stays_ready() {
    for bus_hangs in [false, true] {
        let mut cluster = Cluster::start().await;
        want_static(&mut cluster);
        cluster.until_phase("st-node", PodPhase::Running).await;
        run(&cluster, &["touch", "/ready"]).await;
        eventually("it is ready", async || is_ready(&cluster, "st-node").await).await;
        cluster.world.kill().await;
        // The other one leaves none.
        cluster.world.checkpoints = SimulatedCheckpoints::new();
        // Whether the machine is about to be shut down is then waited for.
        cluster.world.logind.hang(bus_hangs);
        cluster.world.describe = Box::new(|| {
            let mut node = description();
            node.shutdown_periods = vec![Period { priority: 0, length: Duration::from_secs(30) }];
            node
        });
        cluster.start_agent().await;
        stays(&cluster, "st-node", true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_runs_waits_for_an_api_server_that_is_away_for_two_seconds_alone() {
    let mut cluster = Cluster::start().await;
    want_static(&mut cluster);
    cluster.until_phase("st-node", PodPhase::Running).await;
    cluster.world.kill().await;
    cluster.server.set_trouble(Some(Trouble::Hangs));
    cluster.start_agent().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let container = cluster.world.simulator.containers()[0].id.clone();
    cluster.world.simulator.exit_container(&container, 3);
    eventually("it is restarted", async || cluster.running() == 1).await;
    assert!(cluster.world.simulator.containers().iter().any(|container| container.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_shown_as_its_mirror_tells_also_where_the_runtime_answers_late() {
    let mut cluster = Cluster::start().await;
    cluster.want_static(&["h"]);
    cluster.until_phase("st-node", PodPhase::Running).await;
    cluster.world.kill().await;
    cluster.world.checkpoints = SimulatedCheckpoints::new();
    cluster.world.simulator.die();
    cluster.start_agent().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let shown = |cluster: &Cluster| {
        let agent = &cluster.world.agent.as_ref().unwrap().agent;
        agent
            .statuses
            .get("h")
            .map(|shown| (shown.status.phase.clone(), shown.status.container_statuses.len()))
    };
    assert_eq!(shown(&cluster), Some((None, 0)), "nothing is known yet");
    assert_eq!(cluster.phase("st-node").await, Some(PodPhase::Running), "nobody is told of that");
    cluster.world.simulator.come_back();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(shown(&cluster), Some((Some(PodPhase::Running), 1)));
}

/// As after a shutdown of the machine, for which the node did not take it.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_began_anew_runs_on_though_its_mirror_does_not_know_yet() {
    let mut cluster = Cluster::start().await;
    want_static(&mut cluster);
    let mut told = cluster.until_phase("st-node", PodPhase::Running).await.status;
    cluster.world.kill().await;
    // The agent that began it died before it had written anything down.
    cluster.world.checkpoints = SimulatedCheckpoints::new();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let now = Some(Time::from(cluster.world.clock.now()));
    (told.phase, told.start_time, told.reason) = (Some(PodPhase::Failed), now, "NodeShutdown".into());
    (told.conditions, told.container_statuses) = (Box::default(), Box::default());
    let status = serde_json::to_value(&told).unwrap();
    let patch = serde_json::json!([{"op": "replace", "path": "/status", "value": status}]).to_string();
    cluster.admin.patch::<Pod>("default", "st-node", "/status", PatchType::Json, patch.into()).await.unwrap();
    cluster.start_agent().await;
    cluster.until_phase("st-node", PodPhase::Running).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.containers().len(), 1);
    assert_eq!(cluster.live(), ["st-node"]);
}
