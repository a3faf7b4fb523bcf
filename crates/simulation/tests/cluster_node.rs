//! The node's object at an API server: what it says of the node, and what follows from what others say there.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use crablet_agent::node_config::Sizes;
use crablet_agent::sources::SourceKind;
use crablet_api::core::{Event, Node, Pod, PodPhase};
use crablet_api::meta::{ConditionStatus, DeleteOptions};
use crablet_api::storage::CsiNode;
use crablet_client::Resource as _;
use crablet_cluster::node_status::Cloud;
use crablet_cri_sim::{Capabilities, Latency, Method, Settings};
use crablet_host::cgroup::{Bound, Limits};
use crablet_simulation::api_server::Trouble;
use crablet_simulation::behaviour::PULLED;
use crablet_simulation::manifest::from_text;
use crablet_simulation::room::Short;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::{World, settings};

use jiff::{SignedDuration, Timestamp};

use common::joined::{Cluster, eventually};
use common::seconds;

/// A node on a runtime of these settings.
async fn on(settings: Settings) -> Cluster {
    with(World::on(settings, Trace::new(false))).await
}

async fn with(world: World) -> Cluster {
    let cluster = Cluster::join(world).await;
    seconds(15).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_nodes_story_says_where_it_is_learned_what_happens_at_the_runtime() {
    let has = |cri_events, containerd_events| {
        let settings = settings(0);
        let capabilities = Capabilities { cri_events, containerd_events, ..settings.capabilities };
        Settings { capabilities, ..settings }
    };
    let told = async |settings: Settings| {
        let cluster = on(settings).await;
        let story = cluster.world.agent.as_ref().unwrap().agent.stories.story("node").unwrap();
        let entries = story.entries.iter().filter(|entry| &*entry.topic == "runtime events");
        entries.map(|entry| (entry.text.to_string(), entry.count)).collect::<Vec<_>>()
    };
    assert_eq!(told(has(true, true)).await, [("learned from CRI's event stream".to_owned(), 1)]);
    let without = told(has(false, false)).await;
    let [(text, 1)] = without.as_slice() else { panic!("{without:?}") };
    assert!(
        text.starts_with("learned from a relist each second, not from a better source: GetContainerEvents: "),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_plugged_in_is_told_at_once_and_pods_may_have_it() {
    let cluster = Cluster::start().await;
    let amount = |text: &str| text.parse::<crablet_api::Quantity>().unwrap();
    let large = "{nodeName: node, containers: [{name: c, image: 'sim/forever:1', resources: {requests: {cpu: '100'}}}]}";
    cluster.create("early", large).await;
    cluster.until_phase("early", PodPhase::Failed).await;
    let facts = cluster.world.agent.as_ref().unwrap().agent.facts.clone();
    let mut capacity = facts.now().node.status.capacity.clone();
    capacity.insert("cpu", amount("128"));
    let sizes = Sizes {
        allocatable: capacity.clone(),
        capacity,
        held: Limits { memory: Some(Bound::At(1 << 41)), ..Limits::default() },
        enforced_memory: 1 << 41,
        swap: None,
        memory: 1 << 40,
        swap_capacity: 0,
        huge_page_sizes: Vec::new(),
    };
    assert!(facts.measure(&sizes));
    seconds(2).await;
    let status = cluster.node().await.status;
    assert_eq!((&status.capacity["cpu"], &status.allocatable["cpu"]), (&amount("128"), &amount("128")));
    cluster.create("late", large).await;
    cluster.until_phase("late", PodPhase::Running).await;
    let held = cluster.world.cgroups.levels().unwrap().node.memory;
    assert_eq!(held, Some(Bound::At(1 << 41)), "their cgroup follows");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_may_be_away_for_half_a_minute() {
    let cluster = Cluster::start().await;
    let before = cluster.ready().await;
    assert_eq!(before.status, ConditionStatus::True);
    for away in [1, 25] {
        cluster.world.simulator.die();
        seconds(away).await;
        cluster.world.simulator.come_back();
        seconds(15).await;
        let ready = cluster.ready().await;
        assert_eq!(
            (ready.status, ready.last_transition_time),
            (before.status.clone(), before.last_transition_time)
        );
    }
    assert_eq!(cluster.events("NodeNotReady").await, [""; 0]);
    cluster.world.simulator.die();
    seconds(45).await;
    let ready = cluster.ready().await;
    assert_eq!((ready.status, &*ready.message), (ConditionStatus::False, "container runtime is down"));
    cluster.world.simulator.come_back();
    seconds(15).await;
    assert_eq!(cluster.ready().await.status, ConditionStatus::True);
}

#[tokio::test(start_paused = true)]
async fn a_node_says_that_the_api_server_is_away_and_that_it_is_back() {
    let cluster = Cluster::start().await;
    let headline = || cluster.story("node").lines().next().unwrap().to_owned();
    let is_ready = async || headline().starts_with("node/node runs: it is ready (for");
    eventually("it is said to be ready", is_ready).await;
    for (trouble, why) in [
        (Trouble::Refused, "the API server does not answer: "),
        (Trouble::Hangs, "the API server did not answer within 10 s"),
    ] {
        let began = cluster.world.clock.now();
        cluster.server.set_trouble(Some(trouble));
        cluster.server.close_watches();
        let is_said = async || headline().contains(why);
        eventually("it says who does not answer", is_said).await;
        let said = headline();
        assert!(
            said.starts_with("node/node runs but is not ready: its lease has not been renewed since "),
            "{said}"
        );
        assert!(said.contains("tried again"), "{said}");
        let since = said.split("renewed since ").nth(1).unwrap().split(": the").next().unwrap();
        assert!(since.parse::<Timestamp>().unwrap() >= began - SignedDuration::from_secs(1), "{said}");
        seconds(60).await;
        assert!(headline().contains(&format!("renewed since {since}: {why}")), "{}", headline());
        cluster.server.set_trouble(None);
        eventually("it is said to be ready again", is_ready).await;
    }
    let agent = &cluster.world.agent.as_ref().unwrap().agent;
    let story = agent.stories.find("node").into_iter().next().unwrap();
    let mut away = story.entries.iter().filter(|entry| entry.text.contains("those that are known go on"));
    assert!(away.next().is_some() && away.all(|entry| entry.took.is_none()), "{}", cluster.story("node"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_begins_admits_pods_by_the_labels_that_the_server_has() {
    // Which images there are is found out before the node is registered.
    let slow = Latency::Uniform(Duration::from_secs(5), Duration::from_secs(6));
    let settings = settings(0);
    let latencies = settings.latencies.clone().with(Method::ListImages, slow);
    let mut cluster = on(Settings { latencies, ..settings }).await;
    cluster.patch_node("", r#"{"metadata": {"labels": {"zone": "a"}}}"#).await;
    cluster.world.kill().await;
    let spec = "{nodeName: node, nodeSelector: {zone: a}, containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("web", spec).await;
    cluster.start_agent().await;
    seconds(15).await;
    let status = cluster.pod("web").await.unwrap().status;
    assert_eq!(status.phase, Some(PodPhase::Running), "{} {}", status.reason, status.message);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_says_that_the_node_has_is_for_pods() {
    let cluster = Cluster::start().await;
    cluster.patch_node("/status", r#"{"status": {"capacity": {"example.com/dongles": "4"}}}"#).await;
    seconds(2).await;
    assert_eq!(cluster.node().await.status.allocatable["example.com/dongles"].value(), 4);
    cluster.patch_node("/status", r#"{"status": {"capacity": {"example.com/dongles": null}}}"#).await;
    seconds(2).await;
    assert!(cluster.node().await.status.allocatable.get("example.com/dongles").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_says_when_it_was_rebooted_how_it_is_and_with_which_runtime() {
    let mut cluster = Cluster::start().await;
    assert_eq!(cluster.events("NodeHasSufficientMemory").await.len(), 1);
    assert_eq!(cluster.events("Rebooted").await, [""; 0]);
    cluster.world.kill().await;
    let patch = r#"{"status": {"nodeInfo": {"bootID": "before", "containerRuntimeVersion": "other://1"}}}"#;
    cluster.patch_node("/status", patch).await;
    cluster.start_agent().await;
    seconds(15).await;
    assert_eq!(cluster.events("Rebooted").await, ["Node node has been rebooted, boot id: "]);
    assert_eq!(cluster.events("NodeHasSufficientMemory").await.len(), 2, "as upstream, whenever it begins");
    let version = cluster.node().await.status.node_info.container_runtime_version;
    assert!(version.contains("://") && !version.starts_with("other"), "{version}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_gets_no_mirrors() {
    let mut cluster = Cluster::start().await;
    let pod = from_text(
        "metadata: {name: st-node, namespace: default, uid: h, annotations: {kubernetes.io/config.source: file, \
         kubernetes.io/config.hash: h}}
spec: {nodeName: node, containers: [{name: c, image: 'sim/forever:1'}]}
",
    );
    cluster.world.ledger.want(&pod, SourceKind::File);
    cluster.world.wanted.entry(SourceKind::File).or_default().insert("h".to_owned(), pod);
    cluster.world.tell(SourceKind::File);
    seconds(15).await;
    let mirror = cluster.pod("st-node").await.unwrap();
    cluster.admin.delete::<Node>("", "node", &DeleteOptions::default()).await.unwrap();
    seconds(2).await;
    let _ =
        cluster.admin.delete::<Pod>("default", "st-node", &DeleteOptions::now(&mirror.metadata.uid)).await;
    seconds(2).await;
    cluster.server.take_asked();
    seconds(120).await;
    let asked = cluster.server.take_asked().into_iter();
    let made = asked.filter(|asked| asked.method == "POST" && asked.path.ends_with("/pods")).count();
    assert_eq!(made, 0, "for whom would it be?");
    // Somebody else makes the node again.
    let mut node = Node::default();
    node.metadata.name = "node".into();
    let node = cluster.admin.create(&node).await.unwrap();
    seconds(15).await;
    let mirror = cluster.pod("st-node").await.unwrap();
    assert_eq!(mirror.metadata.owner_references[0].uid, node.metadata.uid);
    assert_eq!(cluster.ready().await.status, ConditionStatus::True);
}

#[tokio::test(start_paused = true)]
async fn a_csi_node_of_an_earlier_node_is_made_anew_and_what_is_migrated_is_put_right() {
    const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
    let mut cluster = Cluster::start().await;
    let ours = cluster.admin.get::<CsiNode>("", "node").await.unwrap();
    cluster.world.kill().await;
    let mut earlier = ours.clone();
    earlier.metadata.owner_references[0].uid = "earlier".into();
    earlier.spec.drivers = serde_json::from_str(r#"[{"name": "gone.example.com", "nodeID": "n"}]"#).unwrap();
    cluster.admin.delete::<CsiNode>("", "node", &DeleteOptions::default()).await.unwrap();
    (earlier.metadata.uid, earlier.metadata.resource_version) = Default::default();
    cluster.admin.create(&earlier).await.unwrap();
    cluster.start_agent().await;
    seconds(15).await;
    let mut found = cluster.admin.get::<CsiNode>("", "node").await.unwrap();
    assert_eq!(found.metadata.owner_references, ours.metadata.owner_references);
    assert_eq!(found.spec, ours.spec);
    cluster.world.kill().await;
    let uid = found.metadata.uid.clone();
    found.metadata.annotations.insert(MIGRATED, "kubernetes.io/aws-ebs".into());
    cluster.admin.replace(&found).await.unwrap();
    cluster.start_agent().await;
    seconds(15).await;
    let found = cluster.admin.get::<CsiNode>("", "node").await.unwrap();
    assert_eq!(found.metadata.annotations, ours.metadata.annotations);
    assert_eq!(found.metadata.uid, uid);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_was_pulled_is_told_soon() {
    let cluster = Cluster::start().await;
    let has_it = async || {
        let images = cluster.node().await.status.images;
        images.iter().any(|image| image.names.iter().any(|name| name.contains(PULLED)))
    };
    assert!(!has_it().await);
    cluster.create("web", &format!("{{containers: [{{name: c, image: '{PULLED}'}}]}}")).await;
    seconds(50).await;
    assert_eq!(cluster.pod("web").await.unwrap().status.phase, Some(PodPhase::Running));
    assert!(has_it().await);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_says_which_addresses_a_node_has_and_when_it_may_be_used() {
    let mut world = World::on(settings(0), Trace::new(false));
    world.node.cloud = Some(Cloud { provided_ips: Some("10.0.0.9".into()) });
    let cluster = with(world).await;
    let node = cluster.node().await;
    let taints: Vec<_> = node.spec.taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints, ["node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"]);
    assert_eq!(node.metadata.annotations["alpha.kubernetes.io/provided-node-ip"], "10.0.0.9");
    let patch = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.5"}]}}"#;
    cluster.patch_node("/status", patch).await;
    cluster.patch_node("", r#"{"spec": {"taints": null}}"#).await;
    let spec = "{hostNetwork: true, containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("web", spec).await;
    seconds(600).await;
    let pod = cluster.pod("web").await.unwrap();
    assert_eq!((&*pod.status.host_ip, &*pod.status.pod_ip), ("192.0.2.5", "192.0.2.5"));
    let node = cluster.node().await;
    assert_eq!(&*node.status.addresses[0].address, "192.0.2.5");
    assert!(node.spec.taints.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_register_itself_is_kept_once_somebody_made_it() {
    let mut world = World::on(settings(0), Trace::new(false));
    world.node.registers = false;
    world.node.provider_id = "sim://ours".into();
    let cluster = with(world).await;
    seconds(60).await;
    assert!(cluster.admin.get::<Node>("", "node").await.is_err(), "nobody made it");
    let mut node = Node::default();
    node.metadata.name = "node".into();
    cluster.admin.create(&node).await.unwrap();
    cluster.until_ready().await;
    assert_eq!(cluster.node().await.spec.provider_id, "", "what is registered with is not told later");
    cluster.create("web", common::joined::FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_registered_with_its_taints_and_its_providers_id_which_others_may_take_away() {
    let mut world = World::on(settings(0), Trace::new(false));
    let taints = ["example.com/special=yes:NoSchedule", "example.com/new=:PreferNoSchedule"];
    world.node.taints = taints.iter().map(|taint| taint.parse().unwrap()).collect();
    world.node.provider_id = "sim://ours".into();
    let mut cluster = with(world).await;
    let node = cluster.node().await;
    let found: Vec<String> = node.spec.taints.iter().map(ToString::to_string).collect();
    assert_eq!(found, taints);
    assert_eq!(node.spec.provider_id, "sim://ours");
    cluster.patch_node("", r#"{"spec": {"taints": null}}"#).await;
    cluster.world.kill().await;
    cluster.start_agent().await;
    seconds(15).await;
    assert!(cluster.node().await.spec.taints.is_empty(), "it is registered already");
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_which_addresses_the_cluster_gives_to_pods() {
    let mut cluster = Cluster::start().await;
    let told = |cluster: &Cluster| {
        let calls = cluster.world.simulator.calls().into_iter();
        calls.filter(|call| call.method == Method::UpdateRuntimeConfig).count()
    };
    assert_eq!(told(&cluster), 0);
    cluster.patch_node("", r#"{"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}"#).await;
    seconds(600).await;
    assert_eq!(told(&cluster), 1, "once");
    cluster.world.kill().await;
    cluster.start_agent().await;
    seconds(15).await;
    assert_eq!(told(&cluster), 2, "another agent cannot know that it was");
}

#[tokio::test(start_paused = true)]
async fn a_report_after_a_change_is_at_its_own_time_and_those_after_it_at_the_usual_one() {
    let cluster = Cluster::start().await;
    cluster.world.simulator.die();
    seconds(45).await;
    cluster.world.simulator.come_back();
    seconds(30).await;
    let heartbeat = async || cluster.ready().await.last_heartbeat_time.unwrap();
    let mut last = heartbeat().await;
    let mut waits = Vec::new();
    while waits.len() < 3 {
        seconds(1).await;
        let now = heartbeat().await;
        if now != last {
            waits.push(now.unix_seconds() - last.unix_seconds());
            last = now;
        }
    }
    assert!((150..=450).contains(&waits[0]) && !(299..=301).contains(&waits[0]), "{waits:?}");
    assert_eq!(waits[1..], [300, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_runs_short_says_so_is_tainted_and_tells_which_pod_had_to_go() {
    let cluster = Cluster::start().await;
    let greedy = cluster.create("greedy", common::joined::FOREVER).await;
    let modest = cluster.create("modest", common::joined::FOREVER).await;
    for (pod, memory) in [(&greedy, 9_u64 << 30), (&modest, 1 << 30)] {
        cluster.world.room.set_memory(&pod.metadata.uid, memory);
    }
    seconds(15).await;
    cluster.world.room.run_short(Short::Memory, 50);
    seconds(20).await;
    let conditions = async || {
        let node = cluster.node().await;
        let of_memory = node.status.conditions.iter().find(|one| one.r#type.as_str() == "MemoryPressure");
        let taints: Vec<String> = node.spec.taints.iter().map(|taint| taint.key.clone()).collect();
        (of_memory.map(|one| format!("{} {}", one.status.as_str(), one.reason)).unwrap(), taints)
    };
    let (said, taints) = conditions().await;
    assert_eq!(said, "True KubeletHasInsufficientMemory");
    assert_eq!(taints, ["node.kubernetes.io/memory-pressure"]);
    let status = cluster.pod("greedy").await.unwrap().status;
    assert_eq!((status.phase, &*status.reason), (Some(PodPhase::Failed), "Evicted"));
    assert_eq!(cluster.pod("modest").await.unwrap().status.phase, Some(PodPhase::Running));
    let events: serde_json::Value = cluster.admin.read(&Event::collection("default")).await.unwrap();
    let events = events["items"].as_array().unwrap();
    let evicted: Vec<_> = events.iter().filter(|event| event["reason"] == "Evicted").collect();
    assert_eq!(evicted.len(), 1);
    assert_eq!(evicted[0]["metadata"]["annotations"]["starved_resource"], "memory");
    assert_eq!(cluster.events("NodeHasInsufficientMemory").await.len(), 1);
    assert_eq!(cluster.events("EvictionThresholdMet").await, ["Attempting to reclaim memory"]);
    seconds(60).await;
    let (said, taints) = conditions().await;
    assert_eq!((&*said, taints), ("False KubeletHasSufficientMemory", Vec::new()));
}
