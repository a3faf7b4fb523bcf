//! `/pods`: every pod of the node with its status.

use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use crablet_agent::statuses::Statuses;
use crablet_api::core::Pod;
use crablet_api::meta::List;

use crate::node::NodeHandles;
use crate::query;
use crate::respond::{json, text};

/// How long somebody waits for a change at most before they are told that there was none.
const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// How long changes are gathered before they are told: one rarely comes alone.
const GATHER: Duration = Duration::from_millis(50);

/// `GET /pods`, as the Go kubelet has it.
pub(crate) fn list_routes(node: NodeHandles) -> Router {
    Router::new().route("/pods", get(list)).route("/pods/", get(list)).with_state(node)
}

pub(crate) async fn list(State(node): State<NodeHandles>) -> Response {
    match node.agent() {
        Ok(agent) => json(pod_list(&agent.statuses, None)),
        // What exactly is awaited is not for everybody.
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the container runtime is awaited\n"),
    }
}

/// `GET /pods`, with a version; `GET /pods?after=<version>` waits for another one, and says that there is nothing new
/// after a while.
pub(crate) async fn list_after(State(node): State<NodeHandles>, RawQuery(query): RawQuery) -> Response {
    let agent = match node.agent() {
        Ok(agent) => agent,
        Err(awaited) => {
            return text(StatusCode::SERVICE_UNAVAILABLE, format!("the agent waits for {awaited}\n"));
        }
    };
    let mut version = agent.statuses.version();
    if let Some(after) = query::value(query.as_deref(), "after") {
        let change = async {
            // Its sender lives as long as the statuses do.
            let _ = version.wait_for(|version| version.to_string() != after).await;
            tokio::time::sleep(GATHER).await;
        };
        tokio::select! {
            biased;
            () = node.stop.cancelled() => return text(StatusCode::SERVICE_UNAVAILABLE, "the agent stops\n"),
            changed = tokio::time::timeout(LONGEST_WAIT, change) => {
                if changed.is_err() {
                    return text(StatusCode::NO_CONTENT, "");
                }
            }
        }
    }
    // Read before the pods: a change in between is told the next time.
    let version = *version.borrow_and_update();
    json(pod_list(&agent.statuses, Some(version)))
}

fn pod_list(statuses: &Statuses, version: Option<u64>) -> Vec<u8> {
    let mut list = List::<Pod>::default();
    list.items = statuses.list().iter().map(|view| view.whole()).collect();
    if let Some(version) = version {
        list.metadata.resource_version = version.to_string().into();
    }
    crablet_api::to_json(&list)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crablet_agent::statuses::Reported;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Server, running_node, view, waiting_node};

    fn admin(node: NodeHandles) -> Router {
        Router::new().route("/pods", get(list_after)).with_state(node)
    }

    #[tokio::test]
    async fn pods_are_listed_with_their_status_as_upstream_lists_them() {
        let (node, agent) = running_node();
        agent.statuses.show(view("default", "web", "u1"));
        let server = Server::start(list_routes(node)).await;
        let answer = server.get("/pods").await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: application/json\r\n"), "{}", answer.head);
        let list: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&"PodList".into(), &"v1".into()));
        assert_eq!(list["metadata"], serde_json::json!({}));
        assert_eq!(list["items"][0]["metadata"]["name"], "web");
        assert_eq!(list["items"][0]["status"]["phase"], "Running");
    }

    #[tokio::test]
    async fn a_pod_is_listed_as_recorded() {
        for recorded in [
            include_str!("../tests/data/golden/answers/pods.json"),
            include_str!("../tests/data/golden/answers/pods-slash.json"),
        ] {
            let recorded: Value = serde_json::from_str(recorded).unwrap();
            let mut expected: Value = serde_json::from_str(recorded["body"].as_str().unwrap()).unwrap();
            // Who set which field is not kept.
            expected["items"][0]["metadata"].as_object_mut().unwrap().remove("managedFields");
            let pod: Pod = serde_json::from_value(expected["items"][0].clone()).unwrap();
            let status = Arc::new(pod.status.clone());
            let (node, agent) = running_node();
            agent.statuses.show(Reported::new(Arc::new(pod), status));
            let answer = Server::start(list_routes(node)).await.get(recorded["path"].as_str().unwrap()).await;
            assert_eq!(answer.status, 200);
            let mut told: Value = serde_json::from_str(&answer.body).unwrap();
            // Each says of what kind it is, which the list says already.
            for field in ["apiVersion", "kind"] {
                told["items"][0].as_object_mut().unwrap().remove(field);
            }
            assert_eq!(told, expected);
        }
    }

    #[tokio::test]
    async fn until_the_runtime_is_there_there_is_no_list() {
        let server = Server::start(list_routes(waiting_node("the runtime at /secret/path"))).await;
        let answer = server.get("/pods").await;
        assert_eq!((answer.status, answer.body.as_str()), (503, "the container runtime is awaited\n"));
        let server = Server::start(admin(waiting_node("the runtime at /run/x"))).await;
        let answer = server.get("/pods").await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (503, "the agent waits for the runtime at /run/x\n")
        );
    }

    #[tokio::test]
    async fn who_waits_for_a_change_gets_it_and_no_sooner() {
        let (node, agent) = running_node();
        agent.statuses.show(view("default", "web", "u1"));
        let stop = node.stop.clone();
        let server = Server::start(admin(node)).await;
        let version = |body: &str| {
            let list: serde_json::Value = serde_json::from_str(body).unwrap();
            list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        };
        let first = version(&server.get("/pods").await.body);
        let target = format!("/pods?after={first}");
        let (answer, ()) = tokio::join!(server.get(&target), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            agent.statuses.remove("u1");
        });
        assert_ne!(version(&answer.body), first);
        assert!(answer.body.contains("\"items\":[]"), "{}", answer.body);
        let target = format!("/pods?after={}", version(&answer.body));
        let (answer, ()) = tokio::join!(server.get(&target), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop.cancel();
        });
        assert_eq!((answer.status, answer.body.as_str()), (503, "the agent stops\n"));
    }
}
