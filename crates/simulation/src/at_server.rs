//! What somebody who may do everything does to pods at an API server.

use crablet_agent::sources::CONFIG_HASH;
use crablet_api::core::{Node, Pod, Toleration, TolerationOperator};
use crablet_api::document::Limits;
use http::Method;
use serde_json::json;

use crate::api_server::ApiServer;
use crate::world::NODE;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Creates a pod on the node, which nothing but who acts evicts: as the server has it, if it takes it.
pub(crate) fn create(server: &ApiServer, pod: &Pod) -> Option<Pod> {
    let mut pod = pod.clone();
    pod.metadata.uid = "".into();
    pod.spec.node_name = NODE.into();
    pod.spec.tolerations =
        [Toleration { operator: Some(TolerationOperator::Exists), ..Toleration::default() }].into();
    read(server.ask(Method::POST, PODS, "application/json", crablet_api::to_json(&pod)))
}

/// A static pod as its source has it: with what its mirror is known by.
pub(crate) fn local(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    pod.spec.node_name = NODE.into();
    pod.metadata.annotations.insert(CONFIG_HASH, pod.metadata.uid.clone());
    pod
}

/// Whether the server does not take a pod, as one has with a hook that takes longer than it may.
pub(crate) fn refuses(server: &ApiServer, pod: &Pod) -> bool {
    let path = format!("{PODS}?dryRun=All");
    server.ask(Method::POST, &path, "application/json", crablet_api::to_json(pod)).0 == 422
}

/// Sets the image of a pod's first container.
pub(crate) fn set_image(server: &ApiServer, pod: &Pod, image: &str) -> Option<Pod> {
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": image}]);
    let patch = patch.to_string().into_bytes();
    read(server.ask(Method::PATCH, &path(pod), "application/json-patch+json", patch))
}

/// Has a pod ask for other resources at a place in it: CPU and memory, and up to how much memory.
pub(crate) fn resize(
    server: &ApiServer,
    pod: &Pod,
    at: &str,
    [cpu, memory, limit]: [&str; 3],
) -> Option<Pod> {
    let patch = json!([
        {"op": "replace", "path": format!("{at}/resources/requests/cpu"), "value": cpu},
        {"op": "replace", "path": format!("{at}/resources/requests/memory"), "value": memory},
        {"op": "replace", "path": format!("{at}/resources/limits/memory"), "value": limit},
    ]);
    let (path, patch) = (format!("{}/resize", path(pod)), patch.to_string().into_bytes());
    read(server.ask(Method::PATCH, &path, "application/json-patch+json", patch))
}

/// Deletes a pod within so many seconds, if it is still the same.
pub(crate) fn delete(server: &ApiServer, pod: &Pod, grace: i64) {
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "gracePeriodSeconds": grace, "preconditions": {"uid": pod.metadata.uid},
    });
    // One that is gone needs no more.
    server.ask(Method::DELETE, &path(pod), "application/json", options.to_string().into_bytes());
}

/// The volumes that the node says it uses.
pub(crate) fn volumes_in_use(server: &ApiServer) -> Vec<String> {
    let (_, body) = server.ask(Method::GET, &format!("/api/v1/nodes/{NODE}"), "", Vec::new());
    let node: Option<Node> = crablet_api::from_json(&body, Limits::API).ok();
    node.iter().flat_map(|node| &node.status.volumes_in_use).map(ToString::to_string).collect()
}

fn path(pod: &Pod) -> String {
    format!("{PODS}/{}", pod.metadata.name)
}

fn read((code, body): (u16, Vec<u8>)) -> Option<Pod> {
    // It is gone, or the server does not take it, or not on a node that has not said yet what it can do.
    assert!(code < 300 || [403, 404, 422].contains(&code), "{}", String::from_utf8_lossy(&body));
    crablet_api::from_json(&body, Limits::API).ok().filter(|_| code < 300)
}
