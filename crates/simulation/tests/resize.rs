//! Pods whose resources change while they run, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_agent::sources::SourceKind;
use crablet_cri_sim::{Fault, Method};
use crablet_host::cgroup::{Bound, Limits};
use tonic::Code;

const SMALL: &str = "{requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}";
const LARGE: &str = "{requests: {cpu: 80m, memory: 48Mi}, limits: {cpu: 160m, memory: 96Mi}}";

fn spec(resources: &str, more: &str) -> String {
    format!("{{containers: [{{name: c, image: 'sim/forever:1', resources: {resources}{more}}}]}}")
}

/// How often the runtime was told to give a container other resources.
fn updates(node: &Node) -> usize {
    let calls = node.world.simulator.calls();
    calls.iter().filter(|call| call.method == Method::UpdateContainerResources).count()
}

/// What the status of the container says: what is allocated, and what it has.
fn shown(node: &Node) -> String {
    let status = node.container("p", "c");
    let json = |value: Vec<u8>| String::from_utf8(value).unwrap();
    let (allocated, has) = (&status.allocated_resources, &status.resources);
    format!("{} {}", json(crablet_api::to_json(allocated)), json(crablet_api::to_json(has)))
}

fn in_status(cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str) -> String {
    let requests = format!(r#"{{"cpu":"{cpu}","memory":"{memory}"}}"#);
    format!(
        r#"{requests} {{"limits":{{"cpu":"{cpu_limit}","memory":"{memory_limit}"}},"requests":{requests}}}"#
    )
}

/// What the pod's cgroup allows.
fn pod_cgroup(node: &Node) -> Limits {
    node.world.cgroups.limits().into_values().next().unwrap()
}

/// A pod that runs, and its container.
async fn running(more: &str) -> (Node, String) {
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &spec(SMALL, more));
    seconds(5).await;
    assert_eq!(shown(&node), in_status("50m", "32Mi", "100m", "64Mi"));
    assert_eq!(pod_cgroup(&node).memory, Some(Bound::At(64 << 20)));
    let id = node.container("p", "c").container_id.to_string();
    (node, id)
}

#[tokio::test(start_paused = true)]
async fn a_change_of_cpu_is_one_update_and_no_restart() {
    let (mut node, id) = running("").await;
    let more_cpu = "{requests: {cpu: 80m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}";
    node.want_from(SourceKind::Api, "p", &spec(more_cpu, ""));
    seconds(60).await;
    assert_eq!(updates(&node), 1);
    assert_eq!(shown(&node), in_status("80m", "32Mi", "100m", "64Mi"));
    let status = node.container("p", "c");
    assert_eq!((&*status.container_id, status.restart_count), (&*id, 0));
    assert_eq!(pod_cgroup(&node).cpu_shares, Some(81));
    // The next agent has nothing to do.
    node.restart().await;
    seconds(60).await;
    assert_eq!(updates(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn memory_and_cpu_change_one_after_the_other_and_the_pods_cgroup_with_them() {
    let (mut node, id) = running("").await;
    for (resources, cpu, memory) in [(LARGE, 16_000, 96 << 20), (SMALL, 10_000, 64 << 20)] {
        node.world.simulator.forget_calls();
        node.want_from(SourceKind::Api, "p", &spec(resources, ""));
        seconds(60).await;
        assert_eq!(updates(&node), 2);
        let cgroup = pod_cgroup(&node);
        assert_eq!(cgroup.memory, Some(Bound::At(memory)));
        assert_eq!(cgroup.cpu_bandwidth.map(|bandwidth| bandwidth.quota), Some(Bound::At(cpu)));
        assert_eq!(*node.container("p", "c").container_id, *id);
    }
    assert_eq!(shown(&node), in_status("50m", "32Mi", "100m", "64Mi"));
}

#[tokio::test(start_paused = true)]
async fn a_change_while_no_agent_runs_is_made_by_the_next_one() {
    let (mut node, id) = running("").await;
    node.world.kill().await;
    node.want_from(SourceKind::Api, "p", &spec(LARGE, ""));
    node.restart().await;
    seconds(60).await;
    assert_eq!(updates(&node), 2);
    assert_eq!(shown(&node), in_status("80m", "48Mi", "160m", "96Mi"));
    assert_eq!(*node.container("p", "c").container_id, *id);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_refuses_is_asked_again() {
    let (mut node, id) = running("").await;
    let refused = Fault::on(Method::UpdateContainerResources).nth(2).fail(Code::Unknown, "not now");
    node.world.simulator.inject(refused);
    node.want_from(SourceKind::Api, "p", &spec(LARGE, ""));
    seconds(60).await;
    assert_eq!(shown(&node), in_status("80m", "48Mi", "160m", "96Mi"));
    assert_eq!(*node.container("p", "c").container_id, *id);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_asks_to_be_restarted_for_it_is() {
    let restarts = ", resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
    let (mut node, id) = running(restarts).await;
    node.want_from(SourceKind::Api, "p", &spec(LARGE, restarts));
    seconds(60).await;
    assert_eq!(updates(&node), 0);
    let status = node.container("p", "c");
    assert_eq!(status.restart_count, 1);
    assert_ne!(*status.container_id, *id);
    assert_eq!(shown(&node), in_status("80m", "48Mi", "160m", "96Mi"));
    assert_eq!(pod_cgroup(&node).memory, Some(Bound::At(96 << 20)));
    // No agent after this one restarts it for that.
    node.restart().await;
    seconds(60).await;
    assert_eq!(node.container("p", "c").restart_count, 1);
}
