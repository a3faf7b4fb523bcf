//! `/checkpoint/{namespace}/{pod}/{container}`: a running container is written to an archive on the node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use crablet_api::core::{ContainerState, PodStatus};
use crablet_cri::CheckpointRuntime;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::container_logs::{container_status, find, has_container};
use crate::node::NodeHandles;
use crate::query;
use crate::respond::{plain, plain_json};

/// What containers are written from, and where to.
pub struct ContainerCheckpoints {
    pub node: NodeHandles,
    pub runtime: Arc<dyn CheckpointRuntime>,
    /// Where the archives are: a folder that is there.
    pub folder: PathBuf,
}

/// `/checkpoint/{namespace}/{pod}/{container}`.
pub(crate) fn checkpoint_router(checkpoints: ContainerCheckpoints) -> Router {
    Router::new()
        .route("/checkpoint/{namespace}/{pod}/{container}", post(checkpoint))
        .with_state(Arc::new(checkpoints))
}

async fn checkpoint(
    State(checkpoints): State<Arc<ContainerCheckpoints>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    match checkpoints.make(&namespace, &name, &container, query.as_deref()).await {
        Ok(location) => plain_json(serde_json::json!({ "items": [location.to_string_lossy()] }).to_string()),
        Err(refusal) => plain(refusal.status(), refusal.to_string()),
    }
}

/// Why there is no archive, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("pod does not exist")]
    NoPod,
    #[error("container {0} does not exist")]
    NoContainer(String),
    #[error("cannot parse value of timeout parameter")]
    Timeout,
    #[error("checkpointing of {what} failed ({why})")]
    Failed { what: String, why: String },
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::NoPod | Refusal::NoContainer(_) | Refusal::Timeout => StatusCode::NOT_FOUND,
            Refusal::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl ContainerCheckpoints {
    async fn make(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        query: Option<&str>,
    ) -> Result<PathBuf, Refusal> {
        let statuses = self.node.agent().map(|agent| agent.statuses).unwrap_or_default();
        let pod = find(&statuses, namespace, name).ok_or(Refusal::NoPod)?;
        if !has_container(&pod.pod, container) {
            return Err(Refusal::NoContainer(container.to_owned()));
        }
        let within = match query::values(query, "timeout").last() {
            None => 0,
            Some(text) => text.parse::<i64>().map_err(|_| Refusal::Timeout)?,
        };
        let failed = |why: String| Refusal::Failed { what: format!("{namespace}/{name}/{container}"), why };
        let within = u64::try_from(within)
            .map_err(|_| failed("CheckpointContainer requires the timeout value to be > 0".to_owned()))?;
        let id = running(&pod.status, container)
            .ok_or_else(|| failed(format!("container {container} not found")))?;
        // The names are those of a pod that is there, so none of them leads elsewhere.
        let at = go_time(self.node.clock.now(), TimeZone::system());
        let location = self.folder.join(format!("checkpoint-{name}_{namespace}-{container}-{at}.tar"));
        let made = self.runtime.checkpoint_container(id, &location, Duration::from_secs(within)).await;
        made.map_err(|error| failed(error.in_go_words()))?;
        Ok(location)
    }
}

/// A time as Go writes it by RFC 3339.
fn go_time(at: Timestamp, zone: TimeZone) -> String {
    let at = at.to_zoned(zone);
    at.strftime(if at.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" }).to_string()
}

/// The ID of a container that runs.
fn running<'a>(status: &'a PodStatus, container: &str) -> Option<&'a str> {
    let status = container_status(status, container)?;
    match status.state.one() {
        Some(ContainerState::Running(_)) => status.container_id.split_once("://").map(|(_, id)| id),
        Some(ContainerState::Waiting(_) | ContainerState::Terminated(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use crablet_agent::statuses::Reported;
    use crablet_api::core::{Container, ContainerStateRunning, ContainerStatus, Pod};
    use crablet_cri::Error;
    use serde_json::Value;

    use super::*;
    use crate::testing::{Server, running_node};

    /// A runtime that writes what it is told to, or cannot.
    #[derive(Default)]
    struct Runtime {
        cannot: bool,
        asked: Mutex<Vec<(String, PathBuf, Duration)>>,
    }

    #[async_trait]
    impl CheckpointRuntime for Runtime {
        async fn checkpoint_container(&self, id: &str, to: &FilePath, within: Duration) -> Result<(), Error> {
            self.asked.lock().unwrap().push((id.to_owned(), to.to_owned(), within));
            match self.cannot {
                true => {
                    Err(Error::Unsupported { method: "CheckpointContainer", endpoint: "unix:///x".into() })
                }
                false => Ok(()),
            }
        }
    }

    fn pod() -> Reported {
        let mut pod = Pod::default();
        pod.metadata.namespace = "server".into();
        pod.metadata.name = "two".into();
        pod.metadata.uid = "u".into();
        let container = |name: &str| Container { name: name.into(), ..Container::default() };
        pod.spec.containers = [container("a"), container("waits")].into();
        let mut running =
            ContainerStatus { name: "a".into(), container_id: "containerd://1".into(), ..Default::default() };
        running.state = ContainerState::Running(Box::<ContainerStateRunning>::default()).into();
        let status = PodStatus { container_statuses: [running].into(), ..PodStatus::default() };
        Reported::new(Arc::new(pod), Arc::new(status))
    }

    async fn server(runtime: &Arc<Runtime>) -> Server {
        let (node, agent) = running_node();
        agent.statuses.show(pod());
        let runtime = Arc::clone(runtime) as Arc<dyn CheckpointRuntime>;
        let folder = PathBuf::from("/var/lib/kubelet/checkpoints");
        Server::start(checkpoint_router(ContainerCheckpoints { node, runtime, folder })).await
    }

    #[tokio::test]
    async fn what_is_recorded_of_a_runtime_that_cannot_and_of_no_pod_is_said() {
        let runtime = Arc::new(Runtime { cannot: true, ..Runtime::default() });
        let server = server(&runtime).await;
        for recorded in [
            include_str!("../tests/data/golden/answers/checkpoint.json"),
            include_str!("../tests/data/golden/answers/checkpoint-no-pod.json"),
        ] {
            let recorded: Value = serde_json::from_str(recorded).unwrap();
            let answer = server.send("POST", recorded["path"].as_str().unwrap(), &[]).await;
            assert_eq!(answer.status, recorded["status"]);
            assert_eq!(answer.body, recorded["body"].as_str().unwrap());
            assert!(answer.head.contains("content-type: text/plain; charset=utf-8\r\n"), "{}", answer.head);
        }
    }

    #[test]
    fn a_time_is_that_of_the_machine_with_its_distance_from_utc() {
        let at: Timestamp = "2026-11-15T03:46:00.5Z".parse().unwrap();
        let in_zone = |hours, minutes: i32| {
            let seconds = hours * 3600 + minutes * 60;
            go_time(at, TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).unwrap()))
        };
        assert_eq!(in_zone(0, 0), "2026-11-15T03:46:00Z");
        assert_eq!(in_zone(5, 30), "2026-11-15T09:16:00+05:30");
        assert_eq!(in_zone(-8, 0), "2026-11-14T19:46:00-08:00");
    }

    #[tokio::test]
    async fn an_archive_is_named_after_the_pod_the_container_and_the_time() {
        let runtime = Arc::<Runtime>::default();
        let server = server(&runtime).await;
        let answer = server.send("POST", "/checkpoint/server/two/a?timeout=1&timeout=300", &[]).await;
        let at = go_time("2026-11-15T03:46:00Z".parse().unwrap(), TimeZone::system());
        let name = &format!("/var/lib/kubelet/checkpoints/checkpoint-two_server-a-{at}.tar");
        assert_eq!((answer.status, answer.body), (200, format!("{{\"items\":[\"{name}\"]}}")));
        let asked = runtime.asked.lock().unwrap().clone();
        assert_eq!(asked, [("1".to_owned(), PathBuf::from(name), Duration::from_secs(300))]);
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_before_anybody_is_asked() {
        let runtime = Arc::<Runtime>::default();
        let server = server(&runtime).await;
        for (path, status, body) in [
            ("/checkpoint/server/two/none", 404, "container none does not exist"),
            ("/checkpoint/server/two/a?timeout=x", 404, "cannot parse value of timeout parameter"),
            (
                "/checkpoint/server/two/a?timeout=-1",
                500,
                "checkpointing of server/two/a failed (CheckpointContainer requires the timeout value to be > 0)",
            ),
            (
                "/checkpoint/server/two/waits",
                500,
                "checkpointing of server/two/waits failed (container waits not found)",
            ),
            ("/checkpoint/..%2F../two/a", 404, "pod does not exist"),
        ] {
            let answer = server.send("POST", path, &[]).await;
            assert_eq!((answer.status, answer.body.as_str()), (status, body), "{path}");
        }
        assert!(runtime.asked.lock().unwrap().is_empty());
    }
}
