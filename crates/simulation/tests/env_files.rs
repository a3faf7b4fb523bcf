//! Variables that come from files in volumes.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_api::core::ContainerState;
use crablet_cri_sim::Asked;

/// Where the volume of the pods is on the node.
const VOLUME: &str = "/var/lib/kubelet/pods/p/volumes/kubernetes.io~empty-dir/config";

/// A pod with a variable `A` from a file in its volume.
fn spec(reference: &str) -> String {
    format!(
        "{{containers: [{{name: c, image: 'sim/forever:1', volumeMounts: [{{name: config, mountPath: /config}}],
           env: [{{name: A, valueFrom: {{fileKeyRef: {{volumeName: config, path: dir/app.env, {reference}}}}}}}]}}],
          volumes: [{{name: config, emptyDir: {{}}}}, {{name: unused, emptyDir: {{}}}}]}}"
    )
}

/// What the container waits for.
fn waits(node: &Node) -> String {
    match node.container("p", "c").state.one() {
        Some(ContainerState::Waiting(waiting)) => format!("{}: {}", waiting.reason, waiting.message),
        _ => String::new(),
    }
}

/// The variables that the container was made with.
fn variables(node: &Node) -> Vec<String> {
    let asked = node.world.simulator.asked();
    let config = asked.into_iter().find_map(|asked| match asked {
        Asked::Container(config) => Some(config),
        Asked::Sandbox(_) | Asked::SandboxResources(_) => None,
    });
    let variables = config.unwrap().envs.into_iter();
    variables
        .map(|variable| format!("{}={}", variable.key, String::from_utf8(variable.value).unwrap()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_variable_has_the_value_that_a_file_gives_it_once_it_is_there() {
    let mut node = Node::start().await;
    node.want("p", &spec("key: GREETING")).await;
    seconds(5).await;
    let unread = "couldn't parse env file";
    assert_eq!(waits(&node), format!("CreateContainerConfigError: {unread}"));
    assert!(node.said("c", "Failed", &format!("Error: {unread}")), "{}", node.all_said());
    node.world.volumes.write(format!("{VOLUME}/dir/app.env"), "# ours\nGREETING='hello\nthere'\n");
    seconds(30).await;
    assert_eq!(node.live(), ["c"]);
    assert_eq!(variables(&node), ["A=hello\nthere"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_missing_is_waited_for_unless_it_may_be() {
    let mut node = Node::start().await;
    node.world.volumes.write(format!("{VOLUME}/dir/app.env"), "OTHER='x'\n");
    node.want("p", &spec("key: GREETING")).await;
    seconds(5).await;
    let expected = format!(
        "CreateContainerConfigError: environment variable key \"GREETING\" not found in file \"{VOLUME}/dir/app.env\""
    );
    assert_eq!(waits(&node), expected);
    let mut node = Node::start().await;
    node.world.volumes.write(format!("{VOLUME}/dir/app.env"), "OTHER='x'\n");
    node.want("p", &spec("key: GREETING, optional: true")).await;
    seconds(5).await;
    assert_eq!(node.live(), ["c"]);
    assert_eq!(variables(&node), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_no_container_mounts_has_no_files() {
    let mut node = Node::start().await;
    let spec = spec("key: K").replace("volumeName: config", "volumeName: unused");
    node.want("p", &spec).await;
    seconds(5).await;
    assert_eq!(
        waits(&node),
        "CreateContainerConfigError: cannot find the volume \"unused\" referenced by FileKeyRef"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_text_is_no_file_of_variables() {
    let mut node = Node::start().await;
    node.world.volumes.write(format!("{VOLUME}/dir/app.env"), b"K='\xff'\n".as_slice());
    node.want("p", &spec("key: K")).await;
    seconds(5).await;
    assert_eq!(waits(&node), "CreateContainerConfigError: couldn't parse env file");
}
