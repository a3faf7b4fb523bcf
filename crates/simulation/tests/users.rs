//! Pods with users of their own: which they get, that nobody else has them, and that they keep them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::pod_files::PodFiles as _;
use crablet_cri_api::v1;
use crablet_cri_sim::{Asked, Capabilities, Fault, Method, Settings};
use crablet_simulation::world::settings;

const OWN_USERS: &str = "{hostUsers: false, containers: [{name: NAME, image: 'sim/forever:1', \
                          volumeMounts: [{name: data, mountPath: /data}]}], volumes: [{name: data, emptyDir: {}}]}";

fn spec(container: &str) -> String {
    OWN_USERS.replace("NAME", container)
}

/// The users that the sandbox of a pod has.
fn users(node: &Node, pod: &str) -> Vec<v1::IdMapping> {
    let sandboxes = node.world.simulator.sandboxes();
    sandboxes.into_iter().find(|sandbox| sandbox.metadata.uid == pod).unwrap().users
}

fn ids(nth: u32) -> v1::IdMapping {
    v1::IdMapping { host_id: nth * 65_536, container_id: 0, length: 65_536 }
}

#[tokio::test(start_paused = true)]
async fn sandbox_containers_and_their_mounts_have_the_users_of_the_pod() {
    let mut node = Node::start().await;
    node.want("a", &spec("a")).await;
    seconds(10).await;
    assert_eq!(node.live(), ["a"]);
    assert_eq!(users(&node, "a"), [ids(1)]);
    let mut seen = 0;
    for asked in node.world.simulator.asked() {
        let namespaces = match asked {
            Asked::Sandbox(config) => config.linux.unwrap().security_context.unwrap().namespace_options,
            Asked::Container(config) => {
                assert!(
                    config.mounts.len() >= 3,
                    "a volume, its hosts and its termination message: {:?}",
                    config.mounts
                );
                for mount in config.mounts {
                    assert_eq!((mount.uid_mappings, mount.gid_mappings), (vec![ids(1)], vec![ids(1)]));
                }
                config.linux.unwrap().security_context.unwrap().namespace_options
            }
            Asked::SandboxResources(_) => continue,
        };
        let users = namespaces.unwrap().userns_options.unwrap();
        assert_eq!(users.mode(), v1::NamespaceMode::Pod);
        assert_eq!((users.uids, users.gids), (vec![ids(1)], vec![ids(1)]));
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[tokio::test(start_paused = true)]
async fn two_pods_never_have_the_same_users_and_keep_them_over_a_restart_of_the_agent() {
    let mut node = Node::start().await;
    node.want("a", &spec("a")).await;
    node.want("b", &spec("b")).await;
    seconds(10).await;
    let mut given = [users(&node, "a"), users(&node, "b")].concat();
    given.sort_by_key(|ids| ids.host_id);
    assert_eq!(given, [ids(1), ids(2)]);
    let of_a = users(&node, "a");

    node.restart().await;
    node.want("c", &spec("c")).await;
    // The container must fit its sandbox, which the runtime checks.
    let containers = node.world.simulator.containers();
    let container = containers.iter().find(|container| container.name == "a").unwrap();
    assert!(node.world.simulator.exit_container(&container.id, 1));
    seconds(60).await;
    assert_eq!(node.live(), ["a", "b", "c"]);
    assert_eq!(node.container("a", "a").restart_count, 1);
    assert_eq!((users(&node, "a"), users(&node, "c")), (of_a, vec![ids(3)]));
}

#[tokio::test(start_paused = true)]
async fn users_go_back_when_the_pod_is_over_and_are_not_the_next_pods() {
    let mut node = Node::start().await;
    node.want("a", &spec("a")).await;
    seconds(10).await;
    assert!(node.world.files.users("a").await.unwrap().is_some());
    node.unwant("a");
    seconds(60).await;
    assert_eq!(node.world.files.users("a").await.unwrap(), None);
    node.want("b", &spec("b")).await;
    seconds(10).await;
    assert_eq!(users(&node, "b"), [ids(2)]);
    // Nobody remembers who was last: they are free.
    node.unwant("b");
    seconds(60).await;
    node.restart().await;
    node.want("c", &spec("c")).await;
    seconds(10).await;
    assert_eq!(users(&node, "c"), [ids(1)]);
}

#[tokio::test(start_paused = true)]
async fn users_of_a_sandbox_that_comes_after_it_was_given_up_are_nobody_elses() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::RunPodSandbox).takes(Duration::from_secs(4)));
    node.want("a", &spec("a")).await;
    seconds(2).await;
    node.unwant("a");
    seconds(1).await;
    // Whoever comes next does not remember who was given what last, unless it is written down.
    node.restart().await;
    seconds(4).await;
    node.want("b", &spec("b")).await;
    seconds(20).await;
    assert_eq!(users(&node, "b"), [ids(2)]);
    let left = node.world.simulator.sandboxes();
    assert!(left.iter().all(|sandbox| sandbox.metadata.uid == "b"), "{left:?}");
    assert_eq!(node.world.files.users("a").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_is_not_asked_and_the_pod_says_why() {
    let refused = |capabilities| async move {
        let mut node = Node::start_on(Settings { capabilities, ..settings(0) }).await;
        node.want("a", &spec("a")).await;
        seconds(10).await;
        assert_eq!(node.world.simulator.sandboxes().len(), 0);
        let message = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user \
                       namespaces";
        assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
        assert_eq!(node.world.files.users("a").await.unwrap(), None, "nothing was given away");
    };
    // One that is too old to tell, and one that tells.
    refused(Capabilities::containerd_1_6()).await;
    refused(Capabilities { user_namespaces: false, ..Capabilities::all() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_users_cannot_be_written_down_waits_until_they_can() {
    let mut node = Node::start().await;
    // The first change makes the pod's directory.
    node.world.files.fail(1);
    node.want("a", &spec("a")).await;
    seconds(30).await;
    let message = "Failed to create pod sandbox: create user namespace: no storage space";
    assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
    assert_eq!(node.live(), ["a"]);
}
