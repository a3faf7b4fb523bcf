//! Pods whose resources change while they run, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::node_config::NodeConfig;
use crablet_agent::sources::SourceKind;
use crablet_core::resize::decision::Exclusive;
use crablet_core::resize::state_file;
use crablet_cri_sim::{Asked, Capabilities, Fault, Method, Settings};
use crablet_host::cgroup::{Bound, Limits, Operation as CgroupOperation};
use crablet_host::checkpoint::Checkpoints as _;
use crablet_host::simulation::Fault as CgroupFault;
use crablet_simulation::crash::Crash;
use crablet_simulation::lies::Lie;
use crablet_simulation::world::{description, settings};
use crablet_volumes::Operation;
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

/// What a pod's status says of its resize.
fn told(node: &Node, name: &str) -> Vec<String> {
    let status = node.shown(name).unwrap().status;
    let conditions =
        status.conditions.iter().filter(|condition| condition.r#type.as_str().contains("Resize"));
    conditions
        .map(|one| {
            format!("{} {} {}: {}", one.r#type, one.observed_generation, one.reason, one.message)
                .trim_end_matches([' ', ':'])
                .to_owned()
        })
        .collect()
}

/// The sentence that answers how a pod is.
fn explained(node: &Node, name: &str) -> String {
    let stories = node.world.agent.as_ref().unwrap().agent.stories.find(name);
    stories[0].summary.sentence(node.world.simulator.now())
}

/// The pod uses so much memory.
fn use_memory(node: &Node, bytes: u64) {
    let pod = node.world.cgroups.limits().into_keys().next().unwrap();
    node.world.cgroups.set_memory_usage(&pod, bytes);
}

/// A node whose runtime wants to know what pods have as a whole.
async fn node_that_is_told_of_sandboxes() -> Node {
    let runtime = settings(0);
    let capabilities = Capabilities { sandbox_resources: true, ..runtime.capabilities };
    Node::start_on(Settings { capabilities, ..runtime }).await
}

/// A pod that runs, and its container.
async fn running(more: &str) -> (Node, String) {
    let mut node = node_that_is_told_of_sandboxes().await;
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

/// What the runtime was told of the pod as a whole, without what it was told when the pod was made: its quota, and MiB of
/// memory.
fn told_of_sandbox(node: &Node) -> Vec<(i64, i64)> {
    let asked = node.world.simulator.asked().into_iter();
    let told = asked.filter_map(|asked| match asked {
        Asked::SandboxResources(request) => request.resources,
        Asked::Sandbox(_) | Asked::Container(_) => None,
    });
    told.map(|told| (told.cpu_quota, told.memory_limit_in_bytes >> 20)).collect()
}

/// The resources of which the runtime was told, one letter for each call: those of the sandbox, and those of containers.
fn order_of_updates(node: &Node) -> String {
    let letter = |method| match method {
        Method::UpdatePodSandboxResources => Some('s'),
        Method::UpdateContainerResources => Some('c'),
        _ => None,
    };
    node.world.simulator.calls().into_iter().filter_map(|call| letter(call.method)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_of_the_pod_as_a_whole_when_its_cgroup_changes() {
    let (mut node, _) = running("").await;
    let of = |cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str| {
        format!(
            "{{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: {cpu_limit}, memory: {memory_limit}}}}}"
        )
    };
    let (large, small) = ((16_000, 96), (10_000, 64));
    for (form, expected, order) in [
        (of("80m", "48Mi", "160m", "96Mi"), vec![large], "scc"),
        // What is asked for of memory is nothing that the sandbox has.
        (of("80m", "32Mi", "160m", "96Mi"), vec![], "c"),
        (of("50m", "32Mi", "100m", "64Mi"), vec![small], "ccs"),
        (of("50m", "32Mi", "160m", "32Mi"), vec![(16_000, 64), (16_000, 32)], "sccs"),
    ] {
        let before = told_of_sandbox(&node).len();
        node.world.simulator.forget_calls();
        node.want_from(SourceKind::Api, "p", &spec(&form, ""));
        seconds(60).await;
        assert_eq!(told(&node, "p"), [""; 0]);
        assert_eq!(
            (&told_of_sandbox(&node)[before..], &*order_of_updates(&node)),
            (&*expected, order),
            "{form}"
        );
    }
    // Another agent finds nothing to tell.
    let before = told_of_sandbox(&node).len();
    node.restart().await;
    seconds(60).await;
    assert_eq!(told_of_sandbox(&node).len(), before);
}

#[tokio::test(start_paused = true)]
async fn the_runtime_hears_of_no_smaller_sandbox_while_its_containers_have_more() {
    let (mut node, _) = running("").await;
    node.want_from(SourceKind::Api, "p", &spec(LARGE, ""));
    seconds(5).await;
    assert_eq!(told_of_sandbox(&node), [(16_000, 96)]);
    let refused = Fault::on(Method::UpdateContainerResources).always().fail(Code::Unknown, "not now");
    node.world.simulator.inject(refused);
    node.want_from(SourceKind::Api, "p", &spec(SMALL, ""));
    seconds(30).await;
    node.restart().await;
    seconds(30).await;
    assert!(updates(&node) > 3);
    assert_eq!(told_of_sandbox(&node), [(16_000, 96)]);
    node.world.simulator.clear_faults();
    seconds(400).await;
    assert_eq!((told(&node, "p"), &*told_of_sandbox(&node)), (Vec::new(), &[(16_000, 96), (10_000, 64)][..]));
}

#[tokio::test(start_paused = true)]
async fn the_runtime_hears_that_a_cgroup_stayed_as_it_was() {
    for (from, to, expected) in [
        (SMALL, LARGE, [(16_000, 96), (10_000, 64), (16_000, 96)]),
        (LARGE, SMALL, [(10_000, 64), (16_000, 96), (10_000, 64)]),
    ] {
        let mut node = node_that_is_told_of_sandboxes().await;
        node.want_from(SourceKind::Api, "p", &spec(from, ""));
        seconds(5).await;
        // What grows is written before, and what shrinks after, the rest is left as it is.
        let nth = if from == SMALL { 1 } else { 2 };
        node.world.cgroups.plan(
            Some(CgroupOperation::UpdatePod),
            nth,
            CgroupFault::Fails(ErrorKind::Interrupted),
        );
        node.want_from(SourceKind::Api, "p", &spec(to, ""));
        seconds(60).await;
        assert_eq!((told(&node, "p"), &*told_of_sandbox(&node)), (Vec::new(), &expected[..]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_of_the_pod_as_a_whole_also_where_a_container_restarts_for_it() {
    let restarts = ", resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
    let (mut node, _) = running(restarts).await;
    node.want_from(SourceKind::Api, "p", &spec(LARGE, restarts));
    seconds(60).await;
    assert_eq!((told(&node, "p"), told_of_sandbox(&node)), (Vec::new(), vec![(16_000, 96)]));
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
    let refused =
        Fault::on(Method::UpdateContainerResources).nth(2).times(1000).fail(Code::Unknown, "not now");
    node.world.simulator.inject(refused);
    node.want_from(SourceKind::Api, "p", &spec(LARGE, ""));
    seconds(5).await;
    let said = "rpc error: code = Unknown desc = not now";
    assert_eq!(told(&node, "p"), [format!("PodResizeInProgress 0 Error: {said}")]);
    assert!(node.all_said().contains(&format!(r#"\"error\":\"{said}\""#)), "{}", node.all_said());
    node.world.simulator.clear_faults();
    seconds(60).await;
    assert_eq!(told(&node, "p"), [""; 0]);
    assert_eq!(shown(&node), in_status("80m", "48Mi", "160m", "96Mi"));
    assert_eq!(*node.container("p", "c").container_id, *id);
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_resize_from_beginning_is_told_in_upstreams_words() {
    let less = "{requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 100m, memory: 32Mi}}";
    for (method, to, message) in [
        (
            Method::UpdatePodSandboxResources,
            LARGE,
            "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: \
             updatePodSandboxResources failed for sanboxID \"SANDBOX\": rpc error: code = Unknown desc = not now",
        ),
        (Method::ContainerStats, less, "unable to read memory usage for pod \"p_default(p)\""),
    ] {
        let (mut node, _) = running("").await;
        let changes = if to == less { 1 } else { 2 };
        let sandbox = node.world.simulator.sandboxes()[0].id.clone();
        node.world.simulator.inject(Fault::on(method).always().fail(Code::Unknown, "not now"));
        node.want_from(SourceKind::Api, "p", &spec(to, ""));
        seconds(5).await;
        let message = message.replace("SANDBOX", &sandbox);
        assert_eq!(told(&node, "p"), [format!("PodResizeInProgress 0 Error: {message}")]);
        assert_eq!(updates(&node), 0);
        node.world.simulator.clear_faults();
        seconds(60).await;
        assert_eq!((told(&node, "p"), updates(&node)), (Vec::new(), changes));
    }
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

/// A pod that asks for so much CPU, in this priority.
fn asking(cpu: u32, priority: i32) -> String {
    let resources = format!("{{requests: {{cpu: {cpu}}}}}");
    format!(
        "{{priority: {priority}, terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'sim/forever:1', resources: {resources}}}]}}"
    )
}

/// What a pod has of the CPU.
fn allocated(node: &Node, name: &str) -> String {
    node.container(name, "c").allocated_resources["cpu"].to_string()
}

/// The simulated node has 64 CPUs, of which a large pod keeps p from the 8 that it asks for.
async fn with_a_resize_put_off() -> Node {
    let mut node = Node::start().await;
    for (name, cpu) in [("p", 1), ("large", 60)] {
        node.want_from(SourceKind::Api, name, &asking(cpu, 0));
    }
    seconds(5).await;
    node.want_from(SourceKind::Api, "p", &asking(8, 0));
    seconds(5).await;
    node
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_does_not_fit_waits_until_there_is_room_also_through_another_agents_life() {
    let mut node = with_a_resize_put_off().await;
    let deferred = "PodResizePending 0 Deferred: Node didn't have enough resource: cpu, requested: 8000, used: 60000, \
                    capacity: 64000";
    assert_eq!(told(&node, "p"), [deferred]);
    assert_eq!((allocated(&node, "p").as_str(), updates(&node)), ("1", 0));
    assert!(node.all_said().contains("ResizeDeferred"));
    assert!(explained(&node, "p").contains("runs: without what it asks for by now: Node didn't have enough"));
    node.restart().await;
    seconds(5).await;
    assert_eq!(told(&node, "p"), [deferred]);
    assert_eq!((allocated(&node, "p").as_str(), updates(&node)), ("1", 0));
    node.delete("large", 1);
    seconds(5).await;
    assert_eq!(told(&node, "p"), [""; 0]);
    assert_eq!((allocated(&node, "p").as_str(), updates(&node)), ("8", 1));
    let said = node.all_said();
    assert!(said.contains("ResizeStarted") && said.contains("ResizeCompleted"), "{said}");
}

/// A metric of the agent's that counts resizes, without its first and last word.
fn counted(node: &Node, metric: &str) -> Vec<String> {
    let text = node.world.agent.as_ref().unwrap().metrics.kubelet.render();
    let start = format!("kubelet_pod_{metric}_total{{");
    text.lines().filter_map(|line| line.strip_prefix(&*start)).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_was_put_off_and_is_granted_is_counted_by_what_made_room() {
    let mut node = with_a_resize_put_off().await;
    assert_eq!(counted(&node, "deferred_accepted_resizes"), [""; 0]);
    node.want_from(SourceKind::Api, "large", &asking(50, 0));
    seconds(5).await;
    assert_eq!(counted(&node, "deferred_accepted_resizes"), [r#"retry_trigger="pod_resized"} 1"#]);
}

/// A node that hands out CPUs one by one.
async fn with_exclusive_cpus() -> Node {
    let mut node = Node::start().await;
    node.world.describe = Box::new(|| {
        let exclusive = Exclusive { cpus: true, memory: false };
        NodeConfig { exclusive, ..description() }
    });
    node.restart().await;
    node
}

/// A pod that gets such CPUs.
fn guaranteed(cpu: u32, memory: &str) -> String {
    let list = format!("{{cpu: {cpu}, memory: {memory}}}");
    spec(&format!("{{requests: {list}, limits: {list}}}"), "")
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_can_never_be_is_not_tried_again_until_something_else_is_asked_for() {
    let mut node = with_exclusive_cpus().await;
    node.want_from(SourceKind::Api, "p", &guaranteed(1, "1Gi"));
    node.want_from(SourceKind::Api, "other", &asking(10, 0));
    seconds(5).await;
    node.want_from(SourceKind::Api, "p", &guaranteed(2, "1Gi"));
    seconds(5).await;
    let message = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    let infeasible = format!("PodResizePending 0 Infeasible: {message}");
    assert_eq!(told(&node, "p"), [&*infeasible]);
    let said = node.all_said();
    assert!(said.contains("ResizeInfeasible") && said.contains("CPU Manager policy"), "{said}");
    let once = [r#"reason_detail="guaranteed_pod_cpu_manager_static_policy"} 1"#];
    assert_eq!(counted(&node, "infeasible_resizes"), once);
    // Another pod leaves room, and time passes.
    node.delete("other", 1);
    seconds(600).await;
    assert_eq!((told(&node, "p"), updates(&node)), (vec![infeasible], 0));
    assert_eq!(counted(&node, "infeasible_resizes"), once);
    node.want_from(SourceKind::Api, "p", &guaranteed(1, "2Gi"));
    seconds(30).await;
    assert_eq!((told(&node, "p"), updates(&node)), (Vec::new(), 1));
    assert_eq!(&*node.container("p", "c").allocated_resources["memory"].to_string(), "2Gi");
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_a_resize_stands_while_the_pod_changes_in_other_ways() {
    let mut node = with_exclusive_cpus().await;
    let change = |node: &mut Node, name: &str, generation: i64, image: &str, cpu: &str| {
        node.edit(name, |pod| {
            pod.metadata.generation = generation;
            let container = &mut pod.spec.containers[0];
            container.image = image.into();
            container.resources.requests.insert("cpu", cpu.parse().unwrap());
            if container.resources.limits.contains_key("cpu") {
                container.resources.limits.insert("cpu", cpu.parse().unwrap());
            }
        });
    };
    node.want_from(SourceKind::Api, "never", &guaranteed(1, "1Gi"));
    for (name, cpu) in [("not-yet", 1), ("large", 60)] {
        node.want_from(SourceKind::Api, name, &asking(cpu, 0));
    }
    seconds(5).await;
    for (name, cpu) in [("never", "2"), ("not-yet", "8")] {
        change(&mut node, name, 2, "sim/forever:1", cpu);
    }
    seconds(5).await;
    let (never, not_yet) = (told(&node, "never"), told(&node, "not-yet"));
    assert!(never[0].starts_with("PodResizePending 2 Infeasible: "), "{never:?}");
    assert!(not_yet[0].starts_with("PodResizePending 2 Deferred: "), "{not_yet:?}");
    for (name, cpu) in [("never", "2"), ("not-yet", "8")] {
        change(&mut node, name, 3, "sim/forever:2", cpu);
    }
    seconds(5).await;
    assert_eq!((told(&node, "never"), told(&node, "not-yet")), (never.clone(), not_yet.clone()));
    let said = node.all_said();
    let times = ["ResizeInfeasible", "ResizeDeferred"].map(|reason| said.matches(reason).count());
    assert_eq!(times, [1, 1], "{said}");
    // Who is put off is looked at again, in the form in which it is wanted by then.
    seconds(200).await;
    let not_yet = not_yet[0].replace("PodResizePending 2", "PodResizePending 3");
    assert_eq!((told(&node, "never"), told(&node, "not-yet")), (never, vec![not_yet]));
    // Something else that can never be is another decision.
    change(&mut node, "never", 4, "sim/forever:2", "3");
    seconds(5).await;
    assert!(told(&node, "never")[0].starts_with("PodResizePending 4 Infeasible: "));
}

#[tokio::test(start_paused = true)]
async fn the_more_important_pod_is_granted_first_when_another_shrinks() {
    let mut node = Node::start().await;
    for (name, cpu, priority) in [("a", 1, 0), ("b", 1, 7), ("large", 60, 0)] {
        node.want_from(SourceKind::Api, name, &asking(cpu, priority));
    }
    seconds(5).await;
    node.want_from(SourceKind::Api, "a", &asking(5, 0));
    seconds(1).await;
    node.want_from(SourceKind::Api, "b", &asking(5, 7));
    seconds(5).await;
    assert_eq!(["a", "b"].map(|name| allocated(&node, name)), ["1", "1"]);
    node.want_from(SourceKind::Api, "large", &asking(56, 0));
    seconds(5).await;
    assert_eq!(["a", "b", "large"].map(|name| allocated(&node, name)), ["1", "5", "56"]);
    // What is taken back waits no more.
    node.want_from(SourceKind::Api, "a", &asking(1, 0));
    seconds(5).await;
    assert_eq!(told(&node, "a"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_in_use_is_not_taken_away_until_it_is_free() {
    let (mut node, id) = running("").await;
    use_memory(&node, 50 << 20);
    let less = "{requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 40Mi}}";
    node.want_from(SourceKind::Api, "p", &spec(less, ""));
    seconds(5).await;
    let message = "cannot decrease memory limits: attempting to set pod memory limit (41943040) below current usage (52428800)";
    assert_eq!(told(&node, "p"), [format!("PodResizeInProgress 0 Error: {message}")]);
    assert_eq!(updates(&node), 0);
    assert!(node.all_said().contains("ResizeError"));
    assert!(explained(&node, "p").contains(&format!("it cannot be resized: {message}")));
    use_memory(&node, 1 << 20);
    seconds(30).await;
    assert_eq!(told(&node, "p"), [""; 0]);
    assert_eq!(shown(&node), in_status("50m", "32Mi", "100m", "40Mi"));
    assert_eq!(*node.container("p", "c").container_id, *id);
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_in_use_is_not_taken_away_by_the_next_agent_that_starts_a_container_beside_it() {
    let two = |image: &str, resources: &str| {
        let container =
            |name: &str, image: &str| format!("{{name: {name}, image: '{image}', resources: {resources}}}");
        format!("{{containers: [{}, {}]}}", container("c", "sim/forever:1"), container("d", image))
    };
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &two("sim/forever:1", LARGE));
    seconds(5).await;
    let (large, small) = (Some(Bound::At(192 << 20)), Some(Bound::At(128 << 20)));
    assert_eq!(pod_cgroup(&node).memory, large);
    use_memory(&node, 180 << 20);
    node.want_from(SourceKind::Api, "p", &two("sim/forever:1", SMALL));
    seconds(5).await;
    assert_eq!(pod_cgroup(&node).memory, large);
    let before = node.container("p", "d").container_id;
    node.world.kill().await;
    node.want_from(SourceKind::Api, "p", &two("sim/stubborn:1", SMALL));
    node.restart().await;
    seconds(60).await;
    assert_ne!(node.container("p", "d").container_id, before, "it was started anew");
    assert_eq!(pod_cgroup(&node).memory, large);
    use_memory(&node, 1 << 20);
    seconds(60).await;
    assert_eq!((pod_cgroup(&node).memory, told(&node, "p")), (small, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_pod_stay_up_to_date_while_its_resize_cannot_be_carried_out() {
    let with_volume = |resources: &str| {
        let container = format!(
            "{{name: c, image: 'sim/forever:1', resources: {resources}, volumeMounts: [{{name: v, mountPath: /v}}]}}"
        );
        format!("{{volumes: [{{name: v, emptyDir: {{}}}}], containers: [{container}]}}")
    };
    let refreshes = |node: &Node| {
        let calls = node.world.volumes.calls();
        calls.iter().filter(|call| **call == Operation::Refresh).count()
    };
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &with_volume(LARGE));
    seconds(5).await;
    use_memory(&node, 90 << 20);
    node.want_from(SourceKind::Api, "p", &with_volume(SMALL));
    seconds(5).await;
    let before = refreshes(&node);
    node.edit("p", |pod| drop(pod.metadata.labels.insert("app", "web".into())));
    seconds(5).await;
    assert_eq!((refreshes(&node), updates(&node)), (before + 1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_shrink_cannot_free_yet_is_nobody_elses() {
    let of_memory = |amount: &str| {
        let list = format!("{{memory: {amount}}}");
        spec(&format!("{{requests: {list}, limits: {list}}}"), "")
    };
    let allocated =
        |node: &Node, name: &str| node.container(name, "c").allocated_resources["memory"].to_string();
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "a", &of_memory("600Gi"));
    node.want_from(SourceKind::Api, "b", &of_memory("100Gi"));
    seconds(5).await;
    use_memory(&node, 500 << 30);
    node.want_from(SourceKind::Api, "a", &of_memory("300Gi"));
    seconds(5).await;
    node.want_from(SourceKind::Api, "b", &of_memory("500Gi"));
    seconds(5).await;
    assert_eq!((&*allocated(&node, "a"), &*allocated(&node, "b")), ("300Gi", "100Gi"));
    // Neither does another agent give it away.
    node.restart().await;
    seconds(30).await;
    assert_eq!(&*allocated(&node, "b"), "100Gi");
    use_memory(&node, 1 << 30);
    seconds(30).await;
    assert_eq!(&*allocated(&node, "b"), "500Gi");
    assert_eq!((told(&node, "a"), told(&node, "b")), (Vec::new(), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_does_not_take_away_is_nobody_elses_in_the_next_agents_life_either() {
    let list = |memory: &str| format!("{{requests: {{memory: {memory}}}, limits: {{memory: {memory}}}}}");
    for is_whole in [false, true] {
        let form = |memory: &str| match is_whole {
            false => spec(&list(memory), ""),
            true => {
                format!("{{resources: {}, containers: [{{name: c, image: 'sim/forever:1'}}]}}", list(memory))
            }
        };
        let own = |memory: &str| spec(&list(memory), "");
        let mut node = Node::start().await;
        node.want_from(SourceKind::Api, "a", &form("600Gi"));
        node.want_from(SourceKind::Api, "b", &own("100Gi"));
        seconds(5).await;
        let id = node.container("a", "c").container_id;
        let id = id.rsplit('/').next().unwrap();
        let refuses = Fault::on(Method::UpdateContainerResources).always().about(id);
        node.world.simulator.inject(refuses.fail(Code::Unknown, "not now"));
        for memory in ["300Gi", "200Gi"] {
            node.want_from(SourceKind::Api, "a", &form(memory));
            seconds(5).await;
        }
        node.want_from(SourceKind::Api, "b", &own("500Gi"));
        let has = |node: &Node| node.container("b", "c").allocated_resources["memory"].to_string();
        for _ in 0..3 {
            seconds(30).await;
            assert_eq!((updates(&node) > 0, &*has(&node)), (true, "100Gi"));
            assert_eq!(told(&node, "a").len(), 1, "its resize goes on");
            node.restart().await;
        }
        node.world.simulator.clear_faults();
        seconds(400).await;
        assert_eq!((told(&node, "a"), told(&node, "b"), &*has(&node)), (Vec::new(), Vec::new(), "500Gi"));
    }
}

#[tokio::test(start_paused = true)]
async fn containers_of_which_nobody_knows_what_they_were_given_follow_all_the_same() {
    let two = |resources: &str| {
        let container =
            |name: &str| format!("{{name: {name}, image: 'sim/forever:1', resources: {resources}}}");
        format!("{{containers: [{}, {}]}}", container("c"), container("d"))
    };
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &two(SMALL));
    seconds(5).await;
    node.world.kill().await;
    let nothing_known = state_file::encode([("p", r#"{"ContainerResources":{}}"#)].into_iter());
    node.world.state_files.save("actuated_pods_state", &nothing_known).await.unwrap();
    node.want_from(SourceKind::Api, "p", &two(LARGE));
    node.restart().await;
    seconds(60).await;
    assert_eq!((updates(&node), told(&node, "p")), (4, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_grants_nothing_and_loses_nothing() {
    let (mut node, _) = running("").await;
    let before = node.world.state_files.content();
    node.world.state_files.set_capacity(0);
    node.want_from(SourceKind::Api, "p", &spec(LARGE, ""));
    seconds(5).await;
    assert_eq!(updates(&node), 0);
    assert_eq!(shown(&node), in_status("50m", "32Mi", "100m", "64Mi"));
    assert_eq!(node.world.state_files.content(), before);
    let said = node.all_said();
    assert!(said.contains("FailedSync") && said.contains("The node cannot write down its state: "), "{said}");
    node.world.state_files.set_capacity(usize::MAX);
    seconds(30).await;
    assert_eq!(shown(&node), in_status("80m", "48Mi", "160m", "96Mi"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_granted_before_the_next_agent_knows_all_that_have_something() {
    let mut node = Node::start().await;
    for (name, cpu) in [("a-small", 1), ("large", 60)] {
        node.want_from(SourceKind::Api, name, &asking(cpu, 0));
    }
    seconds(5).await;
    node.want_from(SourceKind::Api, "a-small", &asking(8, 0));
    seconds(5).await;
    for waits_for in [5, 30] {
        node.world.kill().await;
        node.world.start(None).await;
        // Its source speaks when pods are taken already.
        seconds(waits_for).await;
        node.world.tell_all();
        seconds(30).await;
        assert_eq!((&*allocated(&node, "a-small"), node.broken()), ("1", None), "after {waits_for} s");
    }
    node.want_from(SourceKind::Api, "large", &asking(50, 0));
    seconds(30).await;
    assert_eq!(allocated(&node, "a-small"), "8");
}

/// An agent that does not find what was allocated grants it again: seeds hardly ever come to that.
#[tokio::test(start_paused = true)]
async fn what_is_allocated_twice_is_found() {
    let mut node = Node::start().await;
    for cpu in [1, 30] {
        for name in ["a", "b", "c"] {
            node.want_from(SourceKind::Api, name, &asking(cpu, 0));
        }
        seconds(5).await;
    }
    assert_eq!(node.world.ledger.state().violation, None);
    node.world.lie = Some(Lie::NoAllocations);
    node.restart().await;
    seconds(5).await;
    let violation = node.world.ledger.state().violation.clone();
    assert_eq!(violation.map(|violation| violation.invariant), Some(20));
}

/// What the pod as a whole has.
fn pod_level(node: &Node) -> String {
    let status = node.shown("p").unwrap().status;
    String::from_utf8(crablet_api::to_json(&status.allocated_resources)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_as_a_whole_has_changes_too_and_containers_without_a_limit_follow() {
    let spec = |cpu: &str, memory: &str| {
        format!(
            "{{resources: {{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: 1, memory: {memory}}}}}, \
             containers: [{{name: c, image: 'sim/forever:1'}}]}}"
        )
    };
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &spec("500m", "64Mi"));
    seconds(5).await;
    assert_eq!(pod_level(&node), r#"{"cpu":"500m","memory":"64Mi"}"#);
    node.want_from(SourceKind::Api, "p", &spec("600m", "96Mi"));
    seconds(5).await;
    assert_eq!(pod_level(&node), r#"{"cpu":"600m","memory":"96Mi"}"#);
    assert_eq!((told(&node, "p"), updates(&node)), (Vec::new(), 1));
    assert_eq!(pod_cgroup(&node).memory, Some(Bound::At(96 << 20)));
    // The next agent has nothing to do.
    node.restart().await;
    seconds(60).await;
    assert_eq!((told(&node, "p"), updates(&node)), (Vec::new(), 1));
}

/// What is asked for: CPU and memory, and up to what.
type Form = [&'static str; 4];

const AT_FIRST: Form = ["50m", "32Mi", "100m", "64Mi"];
const ALL_LARGER: Form = ["80m", "48Mi", "160m", "96Mi"];
const MORE_CPU: Form = ["80m", "32Mi", "160m", "64Mi"];
const MORE_MEMORY: Form = ["50m", "48Mi", "100m", "96Mi"];

/// What a pod is that is resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// It has a second container, that follows, and the first is restarted for another amount of memory.
    Restarts,
    /// The pod as a whole has the resources.
    Whole,
}

/// When the second resize is asked for.
#[derive(Debug, Clone, Copy)]
enum Second {
    /// When the agent has made so many steps with the first one, if it lives.
    After(u64),
    WhileNobodyIsThere,
}

/// What is to be seen of a pod: its status, its conditions, its cgroup and its containers' shares of the CPU.
type Look = (Vec<String>, Vec<String>, Limits, Vec<(String, i64)>);

fn resources_of([cpu, memory, cpu_limit, memory_limit]: Form) -> String {
    format!(
        "{{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: {cpu_limit}, memory: {memory_limit}}}}}"
    )
}

impl Kind {
    fn spec(self, form: Form) -> String {
        let resources = resources_of(form);
        let restarts = ", resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]";
        match self {
            Kind::Plain => spec(&resources, ""),
            Kind::Restarts => format!(
                "{{terminationGracePeriodSeconds: 1, containers: [{}, {}]}}",
                format_args!("{{name: c, image: 'sim/forever:1', resources: {resources}{restarts}}}"),
                format_args!("{{name: d, image: 'sim/forever:1', resources: {resources}}}"),
            ),
            Kind::Whole => {
                format!("{{resources: {resources}, containers: [{{name: c, image: 'sim/forever:1'}}]}}")
            }
        }
    }

    fn look(self, node: &Node) -> Look {
        let json = |value: Vec<u8>| String::from_utf8(value).unwrap();
        let shows = match self {
            Kind::Plain => vec![shown(node)],
            Kind::Restarts => {
                let other = node.container("p", "d");
                vec![shown(node), json(crablet_api::to_json(&other.allocated_resources))]
            }
            Kind::Whole => {
                let status = node.shown("p").unwrap().status;
                vec![pod_level(node), json(crablet_api::to_json(&status.resources))]
            }
        };
        let alive = node.world.simulator.containers().into_iter().filter(|run| run.alive);
        let mut shares: Vec<(String, i64)> = alive.map(|run| (run.name, run.cpu_shares)).collect();
        shares.sort();
        (shows, told(node, "p"), pod_cgroup(node), shares)
    }

    /// What a pod shows that was made like this.
    async fn made(self, form: Form) -> Look {
        let mut node = Node::start().await;
        node.want_from(SourceKind::Api, "p", &self.spec(form));
        seconds(5).await;
        self.look(&node)
    }
}

/// The containers that run, by name.
fn ids(node: &Node) -> Vec<(String, String)> {
    let alive = node.world.simulator.containers().into_iter().filter(|container| container.alive);
    let mut ids: Vec<(String, String)> = alive.map(|container| (container.name, container.id)).collect();
    ids.sort();
    ids
}

/// Waits until an agent has made so many steps, is dead, or makes no more of them.
async fn until_step(crash: &Crash, step: u64) {
    let (mut last, mut still) = (crash.steps(), 0);
    while crash.steps() < step && !crash.is_dead() && still < 200 {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        still = if crash.steps() == last { still + 1 } else { 0 };
        last = crash.steps();
    }
}

/// Waits until an agent is dead, or makes no steps: longer than it waits before it tries again.
async fn until_still(crash: &Crash) {
    let mut last = u64::MAX;
    while crash.steps() != last && !crash.is_dead() {
        last = crash.steps();
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
}

/// Resizes a pod twice, and has the agent die at a step: one that comes then brings it to the second form. Without a death
/// the answer is how many steps the agent made.
async fn resize_twice(
    kind: Kind,
    [first, second]: [Form; 2],
    when: Second,
    dies_after: Option<u64>,
    expected: &Look,
) -> u64 {
    let mut node = Node::start().await;
    node.want_from(SourceKind::Api, "p", &kind.spec(AT_FIRST));
    seconds(5).await;
    let before = ids(&node);
    let crash = Arc::clone(&node.world.agent.as_ref().unwrap().crash);
    let began = crash.steps();
    if let Some(steps) = dies_after {
        crash.at(began + steps);
    }
    node.want_from(SourceKind::Api, "p", &kind.spec(first));
    if let Second::After(steps) = when {
        until_step(&crash, began + steps).await;
        node.want_from(SourceKind::Api, "p", &kind.spec(second));
    }
    until_still(&crash).await;
    let steps = crash.steps() - began;
    let said = format!("{kind:?}: {first:?}, then {when:?} {second:?}; death after {dies_after:?}");
    if dies_after.is_some() {
        assert!(crash.is_dead(), "{said}: it made {steps} steps");
        node.world.kill().await;
        node.want_from(SourceKind::Api, "p", &kind.spec(second));
        node.restart().await;
        // Longer than any back-off, if it takes that long.
        for _ in 0..10 {
            seconds(3).await;
            if kind.look(&node) == *expected {
                break;
            }
        }
        seconds(3).await;
    } else if let Second::WhileNobodyIsThere = when {
        return steps;
    }
    assert_eq!(kind.look(&node), *expected, "{said}");
    assert_eq!(node.broken(), None, "{said}");
    let changes_memory = [first, second].iter().any(|form| form[1] != AT_FIRST[1]);
    let may_restart = |name: &str| kind == Kind::Restarts && changes_memory && name == "c";
    for (before, after) in before.iter().zip(ids(&node)) {
        assert!(*before == after || may_restart(&before.0), "{said}: {before:?} was restarted");
    }
    steps
}

/// Of the steps of two resizes one in so many is one to die at, from another one on each time: together all are.
const STRIDE: usize = 9;

/// The agent dies where both resizes come at once, where the second comes amid the first, and where it comes while nobody is
/// there.
async fn come_to_the_last_one(kind: Kind, orders: &[[Form; 2]]) {
    let (mut from, mut runs) = ((1..=STRIDE as u64).cycle(), 0);
    for order in orders {
        let expected = kind.made(order[1]).await;
        let alone = resize_twice(kind, *order, Second::WhileNobodyIsThere, None, &expected).await;
        for when in [Second::After(0), Second::After(alone / 2), Second::WhileNobodyIsThere] {
            let steps = resize_twice(kind, *order, when, None, &expected).await;
            for dies_after in (from.next().unwrap()..=steps).step_by(STRIDE) {
                resize_twice(kind, *order, when, Some(dies_after), &expected).await;
                runs += 1;
            }
        }
    }
    assert!(runs > 30, "{runs} runs show little");
}

#[tokio::test(start_paused = true)]
async fn two_resizes_in_every_order_come_to_the_last_one_wherever_the_agent_dies() {
    let mut orders = Vec::new();
    for first in [ALL_LARGER, MORE_CPU, MORE_MEMORY] {
        let seconds = [AT_FIRST, ALL_LARGER, MORE_CPU, MORE_MEMORY].into_iter();
        orders.extend(seconds.filter(|second| *second != first).map(|second| [first, second]));
    }
    come_to_the_last_one(Kind::Plain, &orders).await;
}

#[tokio::test(start_paused = true)]
async fn two_resizes_that_restart_a_container_come_to_the_last_one_wherever_the_agent_dies() {
    let orders = [[ALL_LARGER, AT_FIRST], [MORE_CPU, MORE_MEMORY], [MORE_MEMORY, MORE_CPU]];
    come_to_the_last_one(Kind::Restarts, &orders).await;
}

#[tokio::test(start_paused = true)]
async fn two_resizes_of_a_pod_as_a_whole_come_to_the_last_one_wherever_the_agent_dies() {
    let orders = [[ALL_LARGER, AT_FIRST], [MORE_CPU, MORE_MEMORY], [MORE_MEMORY, ALL_LARGER]];
    come_to_the_last_one(Kind::Whole, &orders).await;
}
