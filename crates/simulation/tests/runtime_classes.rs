//! Which handler of the runtime runs a pod: the one that its runtime class names.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::cluster::Cluster;
use common::{Node, seconds};
use crablet_core::translate::Unavailable;
use crablet_cri::Runtime as _;
use crablet_cri_api::SandboxFilter;
use crablet_cri_sim::Settings;
use crablet_simulation::world::settings;

/// A node on a runtime with these handlers, in a cluster with one class, `isolated`, whose handler is `kata`; and one that
/// cannot be read.
async fn node(handlers: &[&str]) -> Node {
    let cluster = Cluster::default();
    cluster.put_class("isolated", Ok("kata"));
    cluster.put_class("broken", Err(Unavailable::Other("the cache is empty".into())));
    let runtime_handlers = handlers.iter().map(|name| (*name).to_owned()).collect();
    Node::start_in(&cluster, Settings { runtime_handlers, ..settings(0) }).await
}

fn spec(name: &str, rest: &str) -> String {
    format!("{{containers: [{{name: {name}, image: 'sim/forever:1'}}]{rest}}}")
}

/// The pods that have sandboxes, with the handlers that run them.
async fn handlers(node: &Node) -> Vec<(String, String)> {
    let sandboxes = node.world.client().list_sandboxes(SandboxFilter::default()).await.unwrap();
    let mut found: Vec<(String, String)> =
        sandboxes.into_iter().map(|sandbox| (sandbox.metadata.uid, sandbox.runtime_handler)).collect();
    found.sort();
    found
}

fn told(node: &Node, uid: &str) -> String {
    let story = node.world.agent.as_ref().unwrap().agent.stories.story(uid).unwrap();
    story.entries.iter().map(|entry| format!("{}\n", entry.text)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_run_by_the_handler_of_its_class_or_by_the_default() {
    let mut node = node(&["runc", "kata"]).await;
    node.want("plain", &spec("plain", "")).await;
    node.want("empty", &spec("empty", ", runtimeClassName: ''")).await;
    node.want("isolated", &spec("isolated", ", runtimeClassName: isolated")).await;
    node.want("users", &spec("users", ", runtimeClassName: isolated, hostUsers: false")).await;
    seconds(10).await;
    let expected = [("empty", ""), ("isolated", "kata"), ("plain", ""), ("users", "kata")];
    let expected: Vec<(String, String)> =
        expected.into_iter().map(|(uid, handler)| (uid.to_owned(), handler.to_owned())).collect();
    assert_eq!(handlers(&node).await, expected);
    assert_eq!(node.live(), ["empty", "isolated", "plain", "users"]);
    assert!(told(&node, "plain").contains("made sandbox 0\n"), "{}", told(&node, "plain"));
    let users = told(&node, "users");
    let expected = "made sandbox 0, run by kata, with the node's users 65536 to 131071 as its own\n";
    assert!(users.contains(expected), "{users}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_class_cannot_be_had_waits_and_says_so() {
    let mut node = node(&["runc"]).await;
    for (class, expected) in [
        ("unknown", "runtimeclass.node.k8s.io \"unknown\" not found"),
        ("broken", "failed to lookup RuntimeClass broken: the cache is empty"),
        // The class is there, and the runtime lacks its handler.
        (
            "isolated",
            "rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for \"kata\" is configured",
        ),
    ] {
        node.want(class, &spec(class, &format!(", runtimeClassName: {class}"))).await;
        seconds(10).await;
        let message = format!("Failed to create pod sandbox: {expected}");
        assert!(node.said("", "FailedCreatePodSandBox", &message), "{}", node.all_said());
    }
    assert_eq!(handlers(&node).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_the_runtime_does_not_tell_of_makes_no_user_namespaces() {
    let mut node = node(&["runc"]).await;
    node.want("p", &spec("p", ", runtimeClassName: isolated, hostUsers: false")).await;
    seconds(10).await;
    let message = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does \
                   not support user namespaces: the handler \"kata\" is not known";
    assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_nobody_knows_what_a_class_means() {
    let mut node = Node::start().await;
    node.want("p", &spec("p", ", runtimeClassName: isolated")).await;
    seconds(10).await;
    let message =
        "Failed to create pod sandbox: failed to lookup RuntimeClass isolated: no kubeClient defined";
    assert!(node.said("", "FailedCreatePodSandBox", message), "{}", node.all_said());
    assert_eq!(node.live(), Vec::<String>::new());
}
