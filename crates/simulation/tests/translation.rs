//! What containers and sandboxes are made from, where that follows from what the node and its runtime are like at that
//! moment.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::cluster::Cluster;
use common::{Node, seconds};
use crablet_api::core::{ContainerState, RecursiveReadOnlyMode};
use crablet_credentials::{PullRecords, VerificationPolicy};
use crablet_cri_api::v1;
use crablet_cri_sim::{Asked, Capabilities, Fault, Method, Settings};
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_simulation::behaviour::{MISSING, PULLED};
use crablet_simulation::world::settings;
use tonic::Code;

/// What a container of pod `p` waits for.
fn waits(node: &Node, container: &str) -> String {
    match node.container("p", container).state.one() {
        Some(ContainerState::Waiting(waiting)) => format!("{}: {}", waiting.reason, waiting.message),
        _ => String::new(),
    }
}

/// What the containers of a name were made from, in order.
fn made(node: &Node, name: &str) -> Vec<v1::ContainerConfig> {
    let of_name = |config: &v1::ContainerConfig| config.metadata.as_ref().unwrap().name == name;
    let asked = node.world.simulator.asked().into_iter();
    asked
        .filter_map(|asked| match asked {
            Asked::Container(config) => of_name(&config).then_some(config),
            Asked::Sandbox(_) | Asked::SandboxResources(_) => None,
        })
        .collect()
}

/// Where the pods of sandboxes resolve, in order.
fn servers(node: &Node) -> Vec<Vec<String>> {
    let asked = node.world.simulator.asked().into_iter();
    asked
        .filter_map(|asked| match asked {
            Asked::Sandbox(config) => Some(config.dns_config.unwrap().servers),
            Asked::Container(_) | Asked::SandboxResources(_) => None,
        })
        .collect()
}

fn forever(rest: &str) -> String {
    format!("{{containers: [{{name: c, image: 'sim/forever:1'}}]{rest}}}")
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_images_user_nobody_knows_is_not_made() {
    let mut node = Node::start().await;
    // The first look finds that the image is not there, the second one that it came, and as whom it runs.
    node.world.simulator.inject(Fault::on(Method::ImageStatus).nth(2).fail(Code::Internal, "cannot say"));
    node.want("p", &format!("{{containers: [{{name: c, image: '{PULLED}'}}]}}")).await;
    let failed = "Error: cannot say";
    while !node.said("c", "Failed", failed) && node.live().is_empty() {
        seconds(1).await;
    }
    assert_eq!(waits(&node, "c"), "CreateContainerConfigError: cannot say");
    assert_eq!(made(&node, "c"), []);
    seconds(60).await;
    assert_eq!(node.live(), ["c"], "the next look tells");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_the_nodes_network_is_told_the_nodes_address() {
    let mut node = Node::start().await;
    let spec = "{hostNetwork: true, containers: [{name: c, image: 'sim/forever:1', env: [
        {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}},
        {name: PODS, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIPs}}},
        {name: HOST, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.hostIP}}}]}]}";
    node.want("p", spec).await;
    seconds(5).await;
    let variables = made(&node, "c").remove(0).envs.into_iter();
    let told: Vec<String> = variables
        .map(|variable| format!("{}={}", variable.key, String::from_utf8(variable.value).unwrap()))
        .collect();
    assert_eq!(told, ["HOST=10.0.0.1", "POD=10.0.0.1", "PODS=10.0.0.1"]);
}

/// A pod that mounts an image.
fn mounting(image: &str, policy: &str) -> String {
    format!(
        "{{containers: [{{name: c, image: 'sim/forever:1', volumeMounts: [{{name: data, mountPath: /d}},
           {{name: data, mountPath: /e}}]}}], volumes: [{{name: data, image: {{reference: '{image}', \
           pullPolicy: {policy}}}}}]}}"
    )
}

/// A node whose runtime can mount images.
async fn modern() -> Node {
    Node::start_on(Settings { capabilities: Capabilities::all(), ..settings(0) }).await
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_mounted_is_pulled_before_the_container_is_made() {
    let mut node = modern().await;
    node.want("p", &mounting(PULLED, "IfNotPresent")).await;
    seconds(60).await;
    assert_eq!(node.live(), ["c"], "{}", node.all_said());
    let pulls = node.world.simulator.calls().into_iter().filter(|call| call.method == Method::PullImage);
    assert_eq!(pulls.count(), 1, "once for both mounts");
    assert!(node.said("", "Pulling", &format!("Pulling image {PULLED:?}")), "{}", node.all_said());
    let config = made(&node, "c").remove(0);
    let images: Vec<&v1::ImageSpec> = config.mounts.iter().filter_map(|mount| mount.image.as_ref()).collect();
    assert_eq!(images.len(), 2);
    for image in images {
        assert!(image.image.starts_with("sha256:"), "{image:?}");
        assert_eq!(image.user_specified_image, PULLED);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_mounted_and_cannot_be_had_keeps_the_container_from_being_made() {
    let mut node = modern().await;
    node.want("p", &mounting(MISSING, "IfNotPresent")).await;
    seconds(60).await;
    assert!(waits(&node, "c").starts_with("ImagePullBackOff: Back-off pulling"), "{}", waits(&node, "c"));
    assert!(node.said("c", "Failed", "Error: ErrImagePull"), "{}", node.all_said());
    assert!(node.said("c", "Failed", "Error: ImagePullBackOff"), "{}", node.all_said());
    let mut node = modern().await;
    node.want("p", &mounting(PULLED, "Never")).await;
    seconds(10).await;
    let message = format!("Container image {PULLED:?} is not present with pull policy of Never");
    assert_eq!(waits(&node, "c"), format!("ErrImageNeverPull: {message}"));
    assert!(node.said("", "ErrImageNeverPull", &message), "{}", node.all_said());
    assert!(node.said("c", "Failed", "Error: ErrImageNeverPull"), "{}", node.all_said());
    assert_eq!(made(&node, "c"), []);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_there_is_mounted_only_for_who_may_use_it() {
    use crablet_config::ImagePullCredentialsVerificationPolicy::NeverVerifyAllowlistedImages;
    let mut node = modern().await;
    let store = || Arc::new(SimulatedCheckpoints::new());
    let policy = VerificationPolicy::new(Some(&NeverVerifyAllowlistedImages), ["sim/forever".to_owned()]);
    let clock = Clock::simulated(node.world.simulator.now());
    let records = PullRecords::open(policy, clock, store(), store()).await.unwrap();
    node.world.access.records = Some(Arc::new(records));
    node.restart().await;
    node.want("p", &mounting("sim/stubborn:1", "Never")).await;
    node.want("q", &mounting("sim/forever:2", "Never").replace("name: c", "name: q")).await;
    seconds(10).await;
    let message = "Container image \"sim/stubborn:1\" is not present with pull policy of Never";
    assert_eq!(waits(&node, "c"), format!("ErrImageNeverPull: {message}"));
    assert_eq!(node.live(), ["q"]);
}

#[tokio::test(start_paused = true)]
async fn the_resolver_is_asked_for_each_sandbox_and_without_it_there_is_none() {
    let mut node = Node::start().await;
    node.want("a", &forever(", dnsPolicy: Default")).await;
    seconds(5).await;
    node.world.files.write_of_node("/etc/resolv.conf", "nameserver 192.0.2.54\n");
    node.want("b", &forever(", dnsPolicy: Default")).await;
    seconds(5).await;
    assert_eq!(servers(&node), [["192.0.2.53"], ["192.0.2.54"]]);

    node.world.files.remove_of_node("/etc/resolv.conf");
    node.want("p", &forever("")).await;
    seconds(5).await;
    let message = "Failed to create pod sandbox: open /etc/resolv.conf: no such file or directory";
    assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
    node.world.files.write_of_node("/etc/resolv.conf", "nameserver\n");
    seconds(30).await;
    let message = "Failed to create pod sandbox: Encountered error while parsing resolv conf file. Error: nameserver \
                   list is empty ";
    assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
    assert_eq!(servers(&node).len(), 2);
    node.world.files.write_of_node("/etc/resolv.conf", "nameserver 192.0.2.55\n");
    seconds(120).await;
    assert_eq!(servers(&node)[2], ["192.0.2.55"]);
}

#[tokio::test(start_paused = true)]
async fn mounts_are_read_only_all_the_way_down_where_the_handler_of_the_pod_can() {
    let runtime = Settings {
        runtime_handlers: vec!["runc".to_owned(), "kata".to_owned()],
        capabilities: Capabilities::all(),
        ..settings(0)
    };
    let cluster = Cluster::default();
    for class in ["runc", "kata"] {
        cluster.put_class(class, Ok(class));
    }
    let mut node = Node::start_in(&cluster, runtime).await;
    let spec = |name: &str, class: &str, mode: &str| {
        format!(
            "{{containers: [{{name: {name}, image: 'sim/forever:1', volumeMounts: [{{name: data, mountPath: /d, \
              readOnly: true, recursiveReadOnly: {mode}}}]}}], volumes: [{{name: data, emptyDir: {{}}}}]{class}}}"
        )
    };
    let (kata, runc) = (", runtimeClassName: kata", ", runtimeClassName: runc");
    for (name, class, mode, expected) in [
        ("default", "", "IfPossible", RecursiveReadOnlyMode::Enabled),
        ("named", runc, "Enabled", RecursiveReadOnlyMode::Enabled),
        ("other", kata, "IfPossible", RecursiveReadOnlyMode::Disabled),
        ("none", "", "Disabled", RecursiveReadOnlyMode::Disabled),
    ] {
        node.want(name, &spec(name, class, mode)).await;
        seconds(10).await;
        let asked = made(&node, name).remove(0).mounts.remove(0).recursive_read_only;
        assert_eq!(asked, expected == RecursiveReadOnlyMode::Enabled, "{name}");
        let shown = node.container(name, name).volume_mounts[0].recursive_read_only.clone();
        assert_eq!(shown, Some(expected), "{name}");
    }
    node.want("p", &spec("c", kata, "Enabled")).await;
    seconds(10).await;
    let message = "failed to resolve recursive read-only mode: volume \"data\" requested recursive read-only mode, but \
                   it is not supported by the runtime";
    assert_eq!(waits(&node, "c"), format!("CreateContainerConfigError: {message}"));
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_joins_the_processes_of_the_container_that_it_names() {
    let mut node = Node::start().await;
    node.want("p", &forever("")).await;
    seconds(5).await;
    let ephemeral = |target: &str| {
        forever(&format!(
            ", ephemeralContainers: [{{name: debug, image: 'sim/forever:1', targetContainerName: {target}}}]"
        ))
    };
    node.want("p", &ephemeral("nobody")).await;
    seconds(5).await;
    let message = "unable to find target container nobody";
    assert!(node.said("debug", "Failed", &format!("Error: {message}")), "{}", node.all_said());
    assert_eq!(made(&node, "debug"), []);
    node.want("p", &ephemeral("c")).await;
    seconds(60).await;
    assert_eq!(node.live(), ["c", "debug"]);
    let containers = node.world.simulator.containers();
    let target = containers.iter().find(|container| container.name == "c").unwrap();
    let context = made(&node, "debug").remove(0).linux.unwrap().security_context.unwrap();
    let namespaces = context.namespace_options.unwrap();
    assert_eq!((namespaces.pid(), &namespaces.target_id), (v1::NamespaceMode::Target, &target.id));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_a_read_only_mount_does_not_change_while_a_new_agent_does_not_know_the_runtime() {
    let mut node = modern().await;
    let spec = "{containers: [{name: c, image: 'sim/forever:1', volumeMounts: [{name: data, mountPath: /d, \
                readOnly: true, recursiveReadOnly: IfPossible}]}], volumes: [{name: data, emptyDir: {}}]}";
    node.want("p", spec).await;
    seconds(10).await;
    let shown = |node: &Node| node.container("p", "c").volume_mounts[0].recursive_read_only.clone();
    assert_eq!(shown(&node), Some(RecursiveReadOnlyMode::Enabled));
    let slow = || Fault::on(Method::Status).takes(Duration::from_secs(1));
    node.world.simulator.inject(slow());
    node.restart().await;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if node.shown("p").is_some() {
            assert_eq!(shown(&node), Some(RecursiveReadOnlyMode::Enabled));
        }
    }
    // One that has no idea what was said learns it when the runtime tells.
    node.world.kill().await;
    node.world.checkpoints = SimulatedCheckpoints::new();
    node.world.simulator.inject(slow());
    node.restart().await;
    seconds(10).await;
    assert_eq!(shown(&node), Some(RecursiveReadOnlyMode::Enabled));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_name_servers_is_a_concern_of_the_pod_and_of_the_node() {
    let mut node = Node::start().await;
    let events = node.world.agent.as_ref().unwrap().agent.recorder.queue();
    node.want("p", &forever(", dnsPolicy: ClusterFirst")).await;
    seconds(10).await;
    let mut about = Vec::new();
    while let Some(event) = events.try_next() {
        if *event.reason == *"MissingClusterDNS" {
            assert!(event.message.contains("cannot create Pod using \"ClusterFirst\" policy"));
            about.push((event.involved.kind(), event.involved.to_string(), event.count));
        }
    }
    let expected = [("Node", "node".to_owned(), 1), ("Pod", "default/p".to_owned(), 1)];
    assert_eq!(about, expected);
}
