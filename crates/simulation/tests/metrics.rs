//! What an agent counts moves when what is counted happens.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use crablet_agent::sources::SourceKind;
use crablet_api::core::PodPhase;
use crablet_cri_sim::{Capabilities, Fault, Latency, Method, Settings};
use crablet_simulation::api_server::Trouble;
use crablet_simulation::behaviour::PULLED;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::{World, settings};

use tonic::Code;

use common::joined::{Cluster, FOREVER, eventually};
use common::{Node, seconds};

/// What `/metrics` shows now.
fn rendered(world: &World) -> String {
    world.agent.as_ref().unwrap().metrics.kubelet.render()
}

/// The value of a series.
fn value(world: &World, series: &str) -> f64 {
    let text = rendered(world);
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
}

fn working(world: &World, config: &str, lifecycle: &str, is_static: &str) -> f64 {
    let labels = format!("config=\"{config}\",lifecycle=\"{lifecycle}\",static=\"{is_static}\"");
    value(world, &format!("kubelet_working_pods{{{labels}}}"))
}

#[tokio::test(start_paused = true)]
async fn workers_count_by_how_far_they_are_and_who_wants_their_pods() {
    let mut node = Node::start().await;
    node.want("web", "{containers: [{name: c, image: 'sim/stubborn:1'}], terminationGracePeriodSeconds: 60}")
        .await;
    node.want_from(
        SourceKind::Api,
        "job",
        "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}",
    );
    seconds(1).await;
    let world = &node.world;
    assert_eq!(working(world, "desired", "sync", "true"), 1.0);
    assert_eq!(working(world, "desired", "sync", ""), 1.0);
    seconds(20).await;
    assert_eq!(working(&node.world, "desired", "terminated", ""), 1.0);
    let wanted = |world: &World, is_static: &str| {
        ["desired", "active"]
            .map(|what| value(world, &format!("kubelet_{what}_pods{{static=\"{is_static}\"}}")))
    };
    assert_eq!(wanted(&node.world, ""), [1.0, 0.0], "it is over, and still wanted");
    assert_eq!(wanted(&node.world, "true"), [1.0, 1.0]);
    node.unwant("web");
    seconds(1).await;
    let world = &node.world;
    assert_eq!(working(world, "orphan", "terminating", "true"), 1.0);
    assert_eq!(working(world, "desired", "sync", "true"), 0.0);
    assert_eq!(wanted(world, "true"), [0.0, 0.0], "it stops, and nobody wants it");
    seconds(90).await;
    let text = rendered(&node.world);
    let lines = text.lines().filter(|line| line.starts_with("kubelet_working_pods{"));
    let counted: Vec<&str> = lines.filter(|line| !line.ends_with(" 0")).collect();
    let left = r#"kubelet_working_pods{config="desired",lifecycle="terminated",static=""} 1"#;
    assert_eq!(counted, [left]);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_is_put_back_while_it_ends_counts_as_restarted() {
    let mut node = Node::start().await;
    let spec = "{containers: [{name: c, image: 'sim/forever:1'}]}";
    node.want("web", spec).await;
    seconds(5).await;
    assert_eq!(value(&node.world, r#"kubelet_restarted_pods_total{static="true"}"#), 0.0);
    node.unwant("web");
    tokio::time::sleep(Duration::from_millis(1)).await;
    node.want("web", spec).await;
    seconds(60).await;
    assert_eq!(value(&node.world, r#"kubelet_restarted_pods_total{static="true"}"#), 1.0);
    assert_eq!(value(&node.world, r#"kubelet_restarted_pods_total{static=""}"#), 0.0);
}

#[tokio::test(start_paused = true)]
async fn what_runs_and_nobody_wants_counts_as_an_orphan() {
    let mut node = Node::start().await;
    node.want("kept", "{containers: [{name: c, image: 'sim/forever:1'}]}").await;
    node.want("left", "{containers: [{name: c, image: 'sim/forever:1'}]}").await;
    seconds(5).await;
    assert_eq!(value(&node.world, "kubelet_orphaned_runtime_pods_total"), 0.0);
    node.world.kill().await;
    node.world.wanted.entry(SourceKind::File).or_default().remove("left");
    node.world.ledger.state().lives.get_mut("left").unwrap().wanted = false;
    node.world.start(None).await;
    node.world.tell_all();
    seconds(5).await;
    assert_eq!(value(&node.world, "kubelet_orphaned_runtime_pods_total"), 1.0);
    assert_eq!(working(&node.world, "desired", "sync", "true"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn containers_that_end_count_once_by_how_they_ended() {
    let mut node = Node::start().await;
    node.want(
        "job",
        "{restartPolicy: Never, initContainers: [{name: i, image: 'sim/exits-0-0:1'}], \
          containers: [{name: c, image: 'sim/exits-1-3:1'}]}",
    )
    .await;
    seconds(30).await;
    let counted = |world: &World| {
        let text = rendered(world);
        let lines = text.lines().filter_map(|line| line.strip_prefix("kubelet_terminated_containers_total"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        counted(&node.world),
        [
            r#"{container_type="container",exit_code="1",reason="Error"} 1"#,
            r#"{container_type="init_container",exit_code="0",reason="Completed"} 1"#,
        ]
    );
    // They ended before the next agent began.
    node.restart().await;
    seconds(30).await;
    assert_eq!(counted(&node.world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_make_room_count_by_what_there_was_too_little_of() {
    let mut node = Node::start().await;
    let cpu = "resources: {requests: {cpu: 40}}";
    let spec = format!("{{priority: 0, containers: [{{name: c, image: 'sim/forever:1', {cpu}}}]}}");
    node.want_from(SourceKind::Api, "small", &spec);
    seconds(5).await;
    let spec = format!("{{priority: 2000000000, containers: [{{name: c, image: 'sim/forever:1', {cpu}}}]}}");
    node.want("critical", &spec).await;
    seconds(60).await;
    assert_eq!(value(&node.world, r#"kubelet_preemptions{preemption_signal="cpu"}"#), 1.0);
}

#[tokio::test(start_paused = true)]
async fn images_that_are_mounted_count() {
    let runtime = settings(0);
    let capabilities = Capabilities { image_volumes: true, ..runtime.capabilities };
    let mut node = Node::start_on(Settings { capabilities, ..runtime }).await;
    let spec = "{volumes: [{name: v, image: {reference: 'sim/forever:1'}}], \
        containers: [{name: c, image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}]}";
    let refused = "ImageVolumeMountFailed: no such layer";
    node.world.simulator.inject(Fault::on(Method::CreateContainer).fail(Code::Internal, refused));
    node.want("web", spec).await;
    seconds(60).await;
    let count = |name: &str| value(&node.world, &format!("kubelet_image_volume_{name}_total"));
    assert_eq!((count("requested"), count("mounted_succeed"), count("mounted_errors")), (2.0, 1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_start_counts_without_its_pull_and_its_init_containers_when_the_server_has_seen_it() {
    let mut settings = settings(0);
    let pull = Latency::Uniform(Duration::from_secs(20), Duration::from_secs(20));
    settings.latencies = settings.latencies.clone().with(Method::PullImage, pull);
    let cluster = Cluster::join(World::on(Settings { ..settings }, Trace::new(false))).await;
    seconds(15).await;
    let spec = format!(
        "{{initContainers: [{{name: i, image: 'sim/exits-0-3:1'}}], \
           containers: [{{name: c, image: '{PULLED}', imagePullPolicy: Always}}]}}"
    );
    cluster.create("web", &spec).await;
    cluster.until_phase("web", PodPhase::Running).await;
    seconds(5).await;
    let world = &cluster.world;
    let total = value(world, "kubelet_pod_start_total_duration_seconds_sum");
    let sli = value(world, "kubelet_pod_start_sli_duration_seconds_sum");
    assert_eq!(value(world, "kubelet_pod_start_sli_duration_seconds_count"), 1.0);
    assert!((23.0..35.0).contains(&total), "{total}");
    assert!((total - 26.0..total - 22.0).contains(&sli), "{sli} of {total}");
    assert_eq!(value(world, "kubelet_first_network_pod_start_sli_duration_seconds"), sli);
    // The next agent did not start it, and a pod with claims starts when its storage does.
    let mut cluster = cluster;
    cluster.world.kill().await;
    cluster.start_agent().await;
    seconds(15).await;
    let volume =
        "{volumes: [{name: v, hostPath: {path: /etc}}], containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("other", volume).await;
    cluster.until_phase("other", PodPhase::Running).await;
    seconds(5).await;
    assert_eq!(value(&cluster.world, "kubelet_pod_start_sli_duration_seconds_count"), 0.0);
    assert_eq!(value(&cluster.world, "kubelet_pod_start_total_duration_seconds_count"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_status_counts_by_how_long_the_server_did_not_have_it() {
    let cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    seconds(5).await;
    let name = "kubelet_pod_status_sync_duration_seconds";
    let before = value(&cluster.world, &format!("{name}_count"));
    assert!(before >= 1.0 && value(&cluster.world, &format!("{name}_sum")) < 5.0);
    cluster.server.set_trouble(Some(Trouble::Refused));
    let container = cluster.world.simulator.containers()[0].id.clone();
    cluster.world.simulator.exit_container(&container, 3);
    seconds(100).await;
    cluster.server.set_trouble(None);
    eventually("the restart is told", async || {
        cluster.pod("web").await.unwrap().status.container_statuses[0].restart_count == 1
    })
    .await;
    seconds(5).await;
    let sum = value(&cluster.world, &format!("{name}_sum"));
    assert!((100.0..130.0).contains(&sum), "{sum}");
    assert!(value(&cluster.world, &format!("{name}_count")) > before);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_tells_how_long_its_start_took_and_one_that_was_there_does_not() {
    let mut cluster = Cluster::start().await;
    let startup =
        |world: &World, step: &str| value(world, &format!("kubelet_node_startup_{step}duration_seconds"));
    let total = startup(&cluster.world, "");
    let steps: f64 = ["pre_kubelet_", "pre_registration_", "registration_", "post_registration_"]
        .map(|step| startup(&cluster.world, step))
        .iter()
        .sum();
    assert!(total > 0.0 && (total - steps).abs() < 0.001, "{total} of {steps}");
    cluster.world.kill().await;
    cluster.start_agent().await;
    seconds(15).await;
    assert_eq!(startup(&cluster.world, ""), 0.0);
}

#[tokio::test(start_paused = true)]
async fn mirrors_count_as_the_server_has_them() {
    let mut cluster = Cluster::start().await;
    assert_eq!(value(&cluster.world, "kubelet_mirror_pods"), 0.0);
    cluster.want_static(&["h1"]);
    cluster.until_phase("st-node", PodPhase::Running).await;
    seconds(2).await;
    assert_eq!(value(&cluster.world, "kubelet_mirror_pods"), 1.0);
    cluster.want_static(&[]);
    eventually("it is gone", async || cluster.pod("st-node").await.is_none()).await;
    seconds(2).await;
    assert_eq!(value(&cluster.world, "kubelet_mirror_pods"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn resizes_count_by_what_is_asked_for_and_by_whether_they_worked() {
    let mut node = Node::start().await;
    let spec = |resources: &str| {
        format!("{{containers: [{{name: c, image: 'sim/forever:1', resources: {resources}}}]}}")
    };
    let small = "{requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 64Mi}}";
    node.want_from(SourceKind::Api, "p", &spec(small));
    seconds(5).await;
    node.world.simulator.inject(Fault::on(Method::UpdateContainerResources).fail(Code::Internal, "not now"));
    let other = "{requests: {cpu: 80m, memory: 32Mi}, limits: {cpu: 100m, memory: 48Mi}}";
    node.want_from(SourceKind::Api, "p", &spec(other));
    seconds(60).await;
    let text = rendered(&node.world);
    let resizes =
        text.lines().filter_map(|line| line.strip_prefix("kubelet_container_requested_resizes_total"));
    assert_eq!(
        resizes.collect::<Vec<_>>(),
        [
            r#"{operation="add",requirement="limits",resource="cpu"} 1"#,
            r#"{operation="decrease",requirement="limits",resource="memory"} 1"#,
            r#"{operation="increase",requirement="requests",resource="cpu"} 1"#,
        ]
    );
    for success in ["true", "false"] {
        let series = format!("kubelet_pod_resize_duration_milliseconds_count{{success=\"{success}\"}}");
        assert_eq!(value(&node.world, &series), 1.0, "{success}");
    }
}
