//! Which pods a whole agent takes, in which order, and who makes room, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::node_facts::node_addresses;
use crablet_agent::sources::SourceKind;
use crablet_api::core::{PodConditionType, PodPhase, PodStatus};
use crablet_api::meta::Time;
use crablet_cri::Runtime as _;
use crablet_cri_sim::{Capabilities, Fault, Method, Settings};
use crablet_host::simulation::Fault as HostFault;
use crablet_simulation::manifest::from_text;
use crablet_simulation::world::settings;
use crablet_volumes::Operation;

const FOREVER: &str = "image: 'sim/forever:1'";
const STUBBORN: &str = "image: 'sim/stubborn:1'";

/// The spec of a pod whose one container does this, and has this beside.
fn of_one(container: &str, rest: &str) -> String {
    format!("{{containers: [{{name: c, {container}, {rest}}}], terminationGracePeriodSeconds: 30}}")
}

/// As many CPUs of the node's 64.
fn cpus(count: u32) -> String {
    format!("resources: {{requests: {{cpu: {count}}}}}")
}

const PORT: &str = "ports: [{containerPort: 80, hostPort: 80}]";

fn status(node: &Node, uid: &str) -> Arc<PodStatus> {
    node.world.agent.as_ref().unwrap().agent.statuses.get(uid).unwrap().status
}

fn phase(node: &Node, uid: &str) -> PodPhase {
    status(node, uid).phase.clone().unwrap()
}

/// Has an API server want a pod, whose UID is its name, created in some second.
fn api_wants(node: &mut Node, name: &str, created: i64, spec: &str) {
    let mut pod =
        from_text(&format!("metadata: {{name: {name}, namespace: default, uid: {name}}}\nspec: {spec}\n"));
    Arc::make_mut(&mut pod).metadata.creation_timestamp = Some(Time::from_unix_seconds(created));
    node.world.ledger.want(&pod, SourceKind::Api);
    node.world.wanted.entry(SourceKind::Api).or_default().insert(name.to_owned(), pod);
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_the_place_of_one_that_was_removed_and_still_stops() {
    let mut node = Node::start().await;
    node.want("first", &of_one(STUBBORN, &format!("{PORT}, {}", cpus(40)))).await;
    seconds(10).await;
    assert_eq!(phase(&node, "first"), PodPhase::Running);
    node.unwant("first");
    node.want("second", &of_one(FOREVER, &format!("{PORT}, {}", cpus(40)))).await;
    seconds(10).await;
    assert_eq!(node.live(), ["c", "c"], "the first one has not stopped");
    assert_eq!(phase(&node, "second"), PodPhase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_was_rejected_is_decided_about_anew_by_each_agent() {
    let mut node = Node::start().await;
    node.want("holder", &of_one(FOREVER, PORT)).await;
    seconds(10).await;
    node.want("static", &of_one(FOREVER, PORT)).await;
    api_wants(&mut node, "api", 0, &of_one(FOREVER, PORT));
    node.world.tell_all();
    seconds(10).await;
    for pod in ["static", "api"] {
        assert_eq!(*status(&node, pod).reason, *"NodePorts", "{pod}");
    }
    // While the reason is there, so is the rejection.
    node.restart().await;
    seconds(10).await;
    assert_eq!(*status(&node, "static").reason, *"NodePorts");
    node.unwant("holder");
    seconds(60).await;
    assert_eq!(phase(&node, "static"), PodPhase::Failed);
    node.restart().await;
    seconds(10).await;
    assert_eq!((phase(&node, "static"), &*status(&node, "static").reason), (PodPhase::Running, ""));
    // The API server was told that this one has failed, and it stays so.
    assert_eq!(phase(&node, "api"), PodPhase::Failed);
}

/// What the agent before was making of it comes when it is known already who runs, and is stopped.
#[tokio::test(start_paused = true)]
async fn why_a_pod_was_rejected_stays_said_though_a_sandbox_of_it_came_late() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::RunPodSandbox).takes(Duration::from_secs(3)));
    api_wants(&mut node, "late", 5, &of_one(FOREVER, PORT));
    node.world.tell_all();
    seconds(1).await;
    node.world.kill().await;
    api_wants(&mut node, "holder", 0, &of_one(FOREVER, PORT));
    // No pod is decided about before the runtime has said how it is.
    node.world.simulator.inject(Fault::on(Method::Status).takes(Duration::from_secs(5)));
    node.world.start(None).await;
    node.world.tell_all();
    seconds(30).await;
    let status = status(&node, "late");
    assert_eq!((phase(&node, "late"), &*status.reason), (PodPhase::Failed, "NodePorts"));
    assert!(status.message.starts_with("Pod was rejected: "), "{}", status.message);
    let mut sandboxes = node.world.simulator.sandboxes();
    sandboxes.retain(|sandbox| sandbox.metadata.uid == "late");
    assert_eq!(sandboxes.iter().map(|sandbox| sandbox.ready).collect::<Vec<_>>(), [false]);
    assert_eq!(phase(&node, "holder"), PodPhase::Running);
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_taken_over_and_the_rest_is_admitted_by_age() {
    let mut node = Node::start().await;
    api_wants(&mut node, "young-but-runs", 9, &of_one(FOREVER, &cpus(30)));
    node.world.tell_all();
    seconds(10).await;
    // What is known of it need not be known at once.
    let sandbox = node.world.simulator.sandboxes()[0].id.clone();
    let hangs = Fault::on(Method::PodSandboxStatus).about(sandbox).times(3);
    node.world.simulator.inject(hangs.fail(tonic::Code::Unavailable, "busy"));
    node.world.kill().await;
    for (name, created) in [("a-young", 3), ("b-old", 1), ("c-middle", 2)] {
        api_wants(&mut node, name, created, &of_one(FOREVER, &cpus(20)));
    }
    node.world.start(None).await;
    node.world.tell_all();
    seconds(20).await;
    for (name, expected) in [
        ("young-but-runs", PodPhase::Running),
        ("b-old", PodPhase::Running),
        ("c-middle", PodPhase::Failed),
        ("a-young", PodPhase::Failed),
    ] {
        assert_eq!(phase(&node, name), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_taken_over_before_a_source_that_spoke_earlier_gets_its_place() {
    let mut node = Node::start().await;
    api_wants(&mut node, "runs", 1, &of_one(FOREVER, PORT));
    node.world.tell_all();
    seconds(10).await;
    node.world.kill().await;
    node.world.start(None).await;
    node.want("static", &of_one(FOREVER, PORT)).await;
    seconds(20).await;
    assert_eq!((phase(&node, "runs"), phase(&node, "static")), (PodPhase::Running, PodPhase::Failed));
    // A source that never speaks does not hold up the others.
    node.world.kill().await;
    node.world.wanted.entry(SourceKind::File).or_default().remove("static");
    node.world.start(None).await;
    let alone = from_text(&format!(
        "metadata: {{name: alone, namespace: default, uid: alone}}\nspec: {}\n",
        of_one(FOREVER, "")
    ));
    node.world.ledger.want(&alone, SourceKind::File);
    node.world.wanted.entry(SourceKind::File).or_default().insert("alone".to_owned(), alone);
    node.world.tell(SourceKind::File);
    seconds(20).await;
    assert_eq!(phase(&node, "alone"), PodPhase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_takes_no_place() {
    let mut node = Node::start().await;
    let done = format!(
        "{{restartPolicy: Never, containers: [{{name: c, image: 'sim/exits-0-3:1', {}}}]}}",
        cpus(40)
    );
    node.want("done", &done).await;
    api_wants(&mut node, "long-done", 1, &of_one(FOREVER, &cpus(40)));
    let pods = node.world.wanted.get_mut(&SourceKind::Api).unwrap();
    Arc::make_mut(pods.get_mut("long-done").unwrap()).status.phase = Some(PodPhase::Failed);
    node.world.tell_all();
    seconds(30).await;
    assert_eq!(phase(&node, "done"), PodPhase::Succeeded);
    api_wants(&mut node, "next", 2, &of_one(FOREVER, &cpus(40)));
    node.world.tell_all();
    seconds(10).await;
    assert_eq!(phase(&node, "next"), PodPhase::Running);
    node.restart().await;
    seconds(10).await;
    assert_eq!((phase(&node, "done"), phase(&node, "next")), (PodPhase::Succeeded, PodPhase::Running));
    assert_eq!(phase(&node, "long-done"), PodPhase::Failed);
    assert_eq!(node.live(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_pod_makes_room_for_a_static_one() {
    let mut node = Node::start().await;
    api_wants(&mut node, "small", 1, &of_one(FOREVER, &cpus(20)));
    api_wants(&mut node, "large", 2, &of_one(STUBBORN, &cpus(40)));
    node.world.tell_all();
    seconds(10).await;
    node.want("critical", &of_one(FOREVER, &cpus(40))).await;
    seconds(20).await;
    assert_ne!(status(&node, "critical").phase, Some(PodPhase::Running), "the other one has 30 s to go");
    seconds(30).await;
    assert_eq!((phase(&node, "critical"), phase(&node, "small")), (PodPhase::Running, PodPhase::Running));
    let preempted = status(&node, "large");
    let words = "Preempted in order to admit critical pod";
    assert_eq!(
        (preempted.phase.clone(), &*preempted.reason, &*preempted.message),
        (Some(PodPhase::Failed), "Preempting", words)
    );
    let disruption =
        preempted.conditions.iter().find(|condition| condition.r#type == PodConditionType::DisruptionTarget);
    let disruption = disruption.unwrap();
    let expected = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!((&*disruption.reason, &*disruption.message), ("TerminationByKubelet", expected));
    assert!(node.said("", "Preempting", words), "{}", node.all_said());
    // Nobody makes room for an ordinary one, nor a static pod for another.
    api_wants(&mut node, "ordinary", 3, &of_one(FOREVER, &cpus(40)));
    node.want("other", &of_one(FOREVER, &cpus(40))).await;
    seconds(60).await;
    assert_eq!(*status(&node, "ordinary").reason, *"OutOfcpu");
    assert_eq!(*status(&node, "other").reason, *"UnexpectedAdmissionError");
    assert_eq!((phase(&node, "critical"), phase(&node, "small")), (PodPhase::Running, PodPhase::Running));
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_the_node_while_the_agent_runs_counts_from_then_on() {
    let mut node = Node::start().await;
    let zoned = format!("{{nodeSelector: {{zone: a}}, containers: [{{name: c, {FOREVER}}}]}}");
    api_wants(&mut node, "early", 1, &zoned);
    api_wants(&mut node, "large", 1, &of_one(FOREVER, &cpus(70)));
    node.want("steady", &format!("{{hostNetwork: true, containers: [{{name: c, {FOREVER}}}]}}")).await;
    seconds(10).await;
    assert_eq!(
        (&*status(&node, "early").reason, &*status(&node, "large").reason),
        ("NodeAffinity", "OutOfcpu")
    );
    assert_eq!(*status(&node, "steady").host_ip, *"10.0.0.1");

    let facts = node.world.agent.as_ref().unwrap().agent.facts.clone();
    facts.change(|node| {
        node.metadata.labels.insert("zone", "a".into());
        node.status.allocatable.insert("cpu", crablet_api::Quantity::from_value(80));
        node.status.addresses = node_addresses("node", &["10.0.0.7".parse().unwrap()]);
    });
    api_wants(&mut node, "late", 2, &zoned);
    api_wants(&mut node, "late-large", 2, &of_one(FOREVER, &cpus(70)));
    let telling = "{containers: [{name: c, image: 'sim/forever:1', env: [{name: HOST, valueFrom: \
                   {fieldRef: {fieldPath: status.hostIP}}}]}]}";
    api_wants(&mut node, "told", 3, telling);
    node.world.tell_all();
    seconds(10).await;
    for pod in ["late", "late-large", "told"] {
        assert_eq!(phase(&node, pod), PodPhase::Running, "{pod}");
        assert_eq!(*status(&node, pod).host_ip, *"10.0.0.7", "{pod}");
    }
    // One that has nothing else to do learns of it too.
    assert_eq!(*status(&node, "steady").host_ip, *"10.0.0.7");
    let containers = node.world.simulator.containers();
    let told = containers.iter().find(|container| container.pod_uid == "told").unwrap();
    let variables = node.world.client();
    let config = variables.container_config(&told.id).await.unwrap().unwrap();
    let host = config.envs.iter().find(|variable| variable.key == "HOST").unwrap();
    assert_eq!(host.value, b"10.0.0.7");
}

async fn reboot(node: &mut Node) {
    node.world.reboot().await;
    node.world.start(None).await;
    node.world.tell_all();
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_those_run_again_that_ran_before() {
    let mut node = Node::start().await;
    node.want("z-first", &of_one(FOREVER, PORT)).await;
    seconds(10).await;
    node.want("a-second", &of_one(FOREVER, PORT)).await;
    seconds(10).await;
    for _ in 0..2 {
        assert_eq!(
            (phase(&node, "z-first"), phase(&node, "a-second")),
            (PodPhase::Running, PodPhase::Failed)
        );
        // What is known of it need not be known at once.
        node.world.simulator.inject(Fault::on(Method::ContainerStatus).takes(Duration::from_secs(3)));
        reboot(&mut node).await;
        seconds(30).await;
    }
    // But nobody waits for ever.
    for container in node.world.simulator.containers() {
        let hangs = Fault::on(Method::ContainerStatus).about(container.id).always();
        node.world.simulator.inject(hangs.takes(Duration::from_secs(60)));
    }
    reboot(&mut node).await;
    seconds(20).await;
    assert_eq!(phase(&node, "a-second"), PodPhase::Running);
}

#[tokio::test(start_paused = true)]
async fn what_runs_keeps_its_place_from_a_source_that_was_heard_earlier_than_its_own() {
    let mut node = Node::start().await;
    node.want("static", &of_one(FOREVER, PORT)).await;
    seconds(10).await;
    api_wants(&mut node, "api", 1, &of_one(FOREVER, PORT));
    node.world.kill().await;
    node.world.start(None).await;
    node.world.tell(SourceKind::Api);
    // It has to find out first under which UID the pod is known.
    seconds(5).await;
    node.world.tell(SourceKind::File);
    seconds(20).await;
    assert_eq!((phase(&node, "static"), phase(&node, "api")), (PodPhase::Running, PodPhase::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_must_not_join_its_images_groups_is_taken_where_the_runtime_can_see_to_it() {
    let strict = format!(
        "{{securityContext: {{supplementalGroupsPolicy: Strict}}, containers: [{{name: c, {FOREVER}}}]}}"
    );
    for (supplemental_groups_policy, expected) in [(true, PodPhase::Running), (false, PodPhase::Failed)] {
        let capabilities = Capabilities { supplemental_groups_policy, ..Capabilities::all() };
        let mut node = Node::start_on(Settings { capabilities, ..settings(0) }).await;
        // It need not say so at once.
        node.world.kill().await;
        node.world.simulator.inject(Fault::on(Method::Status).takes(Duration::from_secs(5)));
        node.world.start(None).await;
        node.want("strict", &strict).await;
        seconds(20).await;
        assert_eq!(phase(&node, "strict"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn burstable_pods_together_weigh_what_they_ask_for() {
    let shares = |node: &Node| node.world.cgroups.levels().unwrap().burstable.cpu_shares;
    let half = of_one(FOREVER, "resources: {requests: {cpu: 500m}}");
    let mut node = Node::start().await;
    seconds(5).await;
    assert_eq!(shares(&node), Some(2), "nobody runs");
    node.want("one", &half).await;
    node.want("two", &half).await;
    let guaranteed = "resources: {requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Mi}}";
    node.want("guaranteed", &of_one(FOREVER, guaranteed)).await;
    seconds(10).await;
    assert_eq!(shares(&node), Some(1024));
    node.restart().await;
    seconds(10).await;
    assert_eq!(shares(&node), Some(1024));
    node.unwant("one");
    seconds(60).await;
    assert_eq!(shares(&node), Some(512));
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_end_has_begun_takes_no_place_after_the_agents_restart() {
    let mut node = Node::start().await;
    let ends = format!(
        "{{activeDeadlineSeconds: 5, terminationGracePeriodSeconds: 60, containers: [{{name: c, {STUBBORN}, {}}}]}}",
        cpus(40)
    );
    node.want("ends", &ends).await;
    api_wants(&mut node, "grows", 1, &of_one(FOREVER, &cpus(20)));
    node.world.tell_all();
    seconds(10).await;
    // It gets what it asks for, though both do not fit, and a static pod would make it go.
    node.edit("grows", |pod| {
        let requests = &mut pod.spec.containers[0].resources.requests;
        requests.insert("cpu", crablet_api::Quantity::from_value(40));
    });
    seconds(5).await;
    assert_eq!(node.live(), ["c", "c"], "the other one takes its time");
    node.world.kill().await;
    let client = node.world.client();
    for container in node.world.simulator.containers().iter().filter(|one| one.pod_uid == "ends") {
        client.remove_container(&container.id).await.unwrap();
    }
    for sandbox in node.world.simulator.sandboxes().iter().filter(|one| one.metadata.uid == "ends") {
        client.stop_sandbox(&sandbox.id).await.unwrap();
        client.remove_sandbox(&sandbox.id).await.unwrap();
    }
    // What it used takes a while to go.
    node.world.volumes.plan(Some(Operation::TearDown), 1, HostFault::Fails(ErrorKind::ResourceBusy));
    for _ in 0..2 {
        node.world.start(None).await;
        node.world.tell_all();
        seconds(60).await;
        let ended = status(&node, "ends");
        assert_eq!((phase(&node, "ends"), &*ended.reason), (PodPhase::Failed, "DeadlineExceeded"));
        assert_eq!(phase(&node, "grows"), PodPhase::Running);
        assert_eq!(node.live(), ["c"]);
        node.world.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_does_not_wait_for_one_that_waits_for_an_earlier_one_of_its_name() {
    let mut node = Node::start().await;
    let web = |node: &mut Node, uid: &str| {
        let pod = from_text(&format!(
            "metadata: {{name: web, namespace: default, uid: {uid}}}
spec: {{priority: 1, terminationGracePeriodSeconds: 60, containers: [{{name: c, {STUBBORN}, {}}}]}}
",
            cpus(40)
        ));
        node.world.ledger.want(&pod, SourceKind::File);
        node.world.wanted.entry(SourceKind::File).or_default().insert("web".to_owned(), pod);
        node.world.tell_all();
    };
    web(&mut node, "one");
    seconds(10).await;
    web(&mut node, "two");
    seconds(5).await;
    let critical =
        format!("{{priority: 2000000000, containers: [{{name: critical, {FOREVER}, {}}}]}}", cpus(40));
    node.want("critical", &critical).await;
    seconds(10).await;
    assert_eq!(node.live(), ["c", "critical"], "the first one has not stopped");
    seconds(100).await;
    assert_eq!(node.live(), ["critical"]);
    assert_eq!((phase(&node, "two"), &*status(&node, "two").reason), (PodPhase::Failed, "Preempting"));
}
