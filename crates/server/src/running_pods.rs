//! `/runningpods/`: what runs by the word of the runtime, whoever wanted it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use crablet_core::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crablet_cri::Runtime;
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::respond::{plain, plain_json};

/// `/runningpods/`.
pub(crate) fn running_pods_router(runtime: Arc<dyn Runtime>) -> Router {
    Router::new().route("/runningpods/", get(running_pods)).with_state(runtime)
}

async fn running_pods(State(runtime): State<Arc<dyn Runtime>>) -> Response {
    let sandboxes = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
    let containers = ContainerFilter { state: Some(ContainerState::Running), ..ContainerFilter::default() };
    match tokio::try_join!(runtime.list_sandboxes(sandboxes), runtime.list_containers(containers)) {
        Ok((sandboxes, containers)) => plain_json(format!("{}\n", pod_list(sandboxes, containers))),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// What is known of a pod by its sandboxes and containers alone.
#[derive(Default)]
struct RunningPod {
    namespace: String,
    name: String,
    uid: String,
    created_at: Option<Timestamp>,
    containers: Vec<Value>,
}

/// The newest pod first, and in each the newest container.
fn pod_list(mut sandboxes: Vec<Sandbox>, mut containers: Vec<Container>) -> Value {
    sandboxes.sort_by(|one, other| other.created_at.cmp(&one.created_at).then_with(|| one.id.cmp(&other.id)));
    containers
        .sort_by(|one, other| other.created_at.cmp(&one.created_at).then_with(|| one.id.cmp(&other.id)));
    let mut pods: BTreeMap<String, RunningPod> = BTreeMap::new();
    for sandbox in sandboxes {
        let of = sandbox.metadata;
        let pod = pods.entry(of.uid.clone()).or_default();
        *pod = RunningPod {
            namespace: of.namespace,
            name: of.name,
            uid: of.uid,
            created_at: sandbox.created_at,
            containers: Vec::new(),
        };
    }
    for container in containers {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let pod = pods.entry(label(POD_UID)).or_insert_with(|| RunningPod {
            namespace: label(POD_NAMESPACE),
            name: label(POD_NAME),
            uid: label(POD_UID),
            ..RunningPod::default()
        });
        pod.containers.push(json!({"name": container.name, "image": container.image, "resources": {}}));
    }
    let mut pods: Vec<RunningPod> = pods.into_values().collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.created_at));
    let items = pods.into_iter().map(|pod| {
        let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
        json!({"metadata": metadata, "spec": {"containers": or_null(pod.containers)}, "status": {}})
    });
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": or_null(items.collect())})
}

/// A list as Go writes it where nobody ever put anything into it.
fn or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_cri_api::SandboxMetadata;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn sandbox(uid: &str, name: &str, second: i64) -> Sandbox {
        Sandbox {
            id: format!("s-{uid}"),
            metadata: SandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: "server".to_owned(),
                attempt: 0,
            },
            state: SandboxState::Ready,
            created_at: at(second),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            runtime_handler: String::new(),
        }
    }

    fn container(uid: &str, name: &str, second: i64) -> Container {
        let labels = [(POD_UID, uid), (POD_NAME, "lost"), (POD_NAMESPACE, "elsewhere")];
        Container {
            id: format!("c-{name}"),
            sandbox_id: format!("s-{uid}"),
            name: name.to_owned(),
            attempt: 0,
            image: "sha256:<id>".to_owned(),
            image_ref: String::new(),
            image_id: String::new(),
            state: ContainerState::Running,
            created_at: at(second),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn running_pods_look_as_recorded() {
        let recorded: Value =
            serde_json::from_str(include_str!("../tests/data/golden/answers/runningpods.json")).unwrap();
        let expected: Value = serde_json::from_str(recorded["body"].as_str().unwrap()).unwrap();
        let containers = vec![container("<uid>", "a", 2), container("<uid>", "b", 5)];
        assert_eq!(pod_list(vec![sandbox("<uid>", "two", 1)], containers), expected);
    }

    #[test]
    fn the_newest_pod_comes_first_and_what_has_no_sandbox_is_told_by_its_labels() {
        let sandboxes = vec![sandbox("1", "old", 1), sandbox("2", "new", 9)];
        let list = pod_list(sandboxes, vec![container("3", "c", 4)]);
        let names: Vec<&Value> =
            list["items"].as_array().unwrap().iter().map(|pod| &pod["metadata"]["name"]).collect();
        assert_eq!(names, ["new", "old", "lost"]);
        assert_eq!(list["items"][0]["spec"]["containers"], Value::Null);
        assert_eq!(pod_list(Vec::new(), Vec::new())["items"], Value::Null);
    }
}
