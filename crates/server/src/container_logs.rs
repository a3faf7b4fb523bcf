//! `/containerLogs/{namespace}/{pod}/{container}`: what a container wrote.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use crablet_agent::statuses::{Reported, Statuses};
use crablet_api::core::{ContainerState, ContainerStatus, Pod, PodStatus};
use crablet_core::translate::go_quote;
use crablet_logs::{Followed, LogOptions, LogRuntime, LogText, LogWatcher, read_logs};
use futures_util::{FutureExt, StreamExt};

use crate::node::NodeHandles;
use crate::pod_log_options::{PodLogOptions, Undecodable};
use crate::respond::text;

/// What the logs of containers are read from.
pub struct ContainerLogs {
    /// Whose containers they are.
    pub node: NodeHandles,
    /// Who knows where the logs are.
    pub runtime: Arc<dyn LogRuntime>,
    /// Who tells of what is written.
    pub watcher: LogWatcher,
    /// Whether one of a container's streams may be asked for alone (`PodLogsQuerySplitStreams`).
    pub split_streams: bool,
}

/// `/containerLogs/{namespace}/{pod}/{container}`.
pub fn container_logs_router(logs: ContainerLogs) -> Router {
    Router::new()
        .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
        .with_state(Arc::new(logs))
}

async fn container_logs(
    State(logs): State<Arc<ContainerLogs>>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    match logs.get(&namespace, &name, &container, query.as_deref()).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

/// Why nothing of a log is given, in upstream's words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum Refusal {
    #[error(r#"{{"message": "Unable to decode query."}}"#)]
    Undecodable,
    #[error(r#"{{"message": "Invalid request."}}"#)]
    Invalid,
    #[error("pod {} does not exist", go_quote(.0))]
    NoPod(String),
    #[error("container {} not found in pod {pod:?}", go_quote(container))]
    NoContainer { pod: String, container: String },
    #[error(
        "unable to return the given log stream: {0:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )]
    OneStream(String),
    #[error(transparent)]
    NoLog(#[from] NoLog),
    #[error("{0}")]
    Unreadable(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Refusal::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::NoPod(_) | Refusal::NoContainer { .. } => StatusCode::NOT_FOUND,
            Refusal::Undecodable | Refusal::OneStream(_) | Refusal::NoLog(_) | Refusal::Unreadable(_) => {
                StatusCode::BAD_REQUEST
            }
        };
        text(status, self.to_string())
    }
}

impl ContainerLogs {
    async fn get(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        query: Option<&str>,
    ) -> Result<Response, Refusal> {
        let wanted = PodLogOptions::decode(query).map_err(|Undecodable| Refusal::Undecodable)?;
        if !wanted.is_valid() {
            return Err(Refusal::Invalid);
        }
        let statuses = self.node.agent().map(|agent| agent.statuses).unwrap_or_default();
        let pod = find(&statuses, namespace, name).ok_or_else(|| Refusal::NoPod(name.to_owned()))?;
        if !has_container(&pod.pod, container) {
            return Err(Refusal::NoContainer { pod: name.to_owned(), container: container.to_owned() });
        }
        if let Some(stream) =
            wanted.stream.as_deref().filter(|stream| *stream != "All" && !self.split_streams)
        {
            return Err(Refusal::OneStream(stream.to_owned()));
        }
        let id = log_of(&pod.status, name, container, wanted.previous)?;
        let options = wanted.at(self.node.clock.now());
        let whole_id = format!("{}://{}", id.runtime, id.id);
        let ended = ended(statuses, pod.pod.metadata.uid.to_string(), container.to_owned(), whole_id.clone());
        let stop = self.node.stop.clone();
        let ended = async move { stop.run_until_cancelled(ended).await.unwrap_or_default() };
        let followed = Followed { watcher: self.watcher.clone(), ended: ended.boxed() };
        match self.runtime.log_path(id.id).await {
            Ok(path) => give(path, &options, followed).await,
            Err(error) => {
                tracing::debug!(%error, "The runtime does not say where a container's log is");
                too_late(&options, format!("unable to retrieve container logs for {whole_id}"))
            }
        }
    }
}

/// Gives a log. What goes wrong from here on is told where the log would be: upstream has begun to answer by then,
/// unless standard output is not wanted.
async fn give(path: PathBuf, options: &LogOptions, followed: Followed) -> Result<Response, Refusal> {
    let mut log = Box::pin(read_logs(path, options, Some(followed)));
    let first = match options.stdout {
        true => None,
        false => match log.next().await {
            Some(Err(error)) => return Err(Refusal::Unreadable(error.to_string())),
            first => first,
        },
    };
    let told = futures_util::stream::iter(first).chain(log).map(|piece| {
        let piece = piece.map_or_else(|error| error.to_string().into_bytes(), LogText::into_bytes);
        Ok::<_, std::convert::Infallible>(piece)
    });
    Ok(Response::new(Body::from_stream(told)))
}

fn too_late(options: &LogOptions, message: String) -> Result<Response, Refusal> {
    match options.stdout {
        true => Ok(Response::new(Body::from(message))),
        false => Err(Refusal::Unreadable(message)),
    }
}

/// The pod of a name. Where one that ends has the name of the next, that next one.
pub(crate) fn find(statuses: &Statuses, namespace: &str, name: &str) -> Option<Reported> {
    let is_meant = |reported: &Reported| {
        let metadata = &reported.pod.metadata;
        *metadata.namespace == *namespace && *metadata.name == *name
    };
    let ends = |reported: &Reported| {
        (reported.terminated, reported.ends.is_some() || reported.pod.metadata.deletion_timestamp.is_some())
    };
    statuses.list().into_iter().filter(is_meant).min_by_key(ends)
}

pub(crate) fn has_container(pod: &Pod, name: &str) -> bool {
    let spec = &pod.spec;
    let containers = spec.containers.iter().chain(&spec.init_containers).map(|container| &container.name);
    let ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.container.name);
    containers.chain(ephemeral).any(|container| **container == *name)
}

/// Why a container has no log that could be given, in upstream's words.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum NoLog {
    #[error("container {container:?} in pod {pod:?} is not available")]
    Unknown { pod: String, container: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { pod: String, container: String },
    #[error("container {container:?} in pod {pod:?} is terminated")]
    Terminated { pod: String, container: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    Waiting { pod: String, container: String, reason: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start - no logs yet")]
    NotYet { pod: String, container: String },
}

/// The ID of a container, with the runtime that it is of.
#[derive(Debug, PartialEq, Eq)]
struct ContainerId<'a> {
    runtime: &'a str,
    id: &'a str,
}

impl ContainerId<'_> {
    fn parse(text: &str) -> ContainerId<'_> {
        let (runtime, id) = text.split_once("://").unwrap_or_default();
        ContainerId { runtime, id }
    }
}

/// Which container's log is meant, decided from the pod's status.
fn log_of<'a>(
    status: &'a PodStatus,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<ContainerId<'a>, NoLog> {
    let (pod, name) = (pod.to_owned(), container.to_owned());
    let Some(status) = container_status(status, container) else {
        return Err(NoLog::Unknown { pod, container: name });
    };
    let last = match status.last_state.one() {
        Some(ContainerState::Terminated(last)) => Some(&*last.container_id),
        Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => None,
    };
    let last_id = last.filter(|id| !id.is_empty());
    if previous {
        return last_id.map(ContainerId::parse).ok_or(NoLog::NoPrevious { pod, container: name });
    }
    match status.state.one() {
        Some(ContainerState::Running(_)) => Ok(ContainerId::parse(&status.container_id)),
        Some(ContainerState::Terminated(end)) => {
            // Where the next one could not be started, it has no ID.
            let id = Some(&*end.container_id).filter(|id| !id.is_empty()).or(last_id);
            id.map(ContainerId::parse).ok_or(NoLog::Terminated { pod, container: name })
        }
        Some(ContainerState::Waiting(_)) | None if last.is_some() => {
            last_id.map(ContainerId::parse).ok_or(NoLog::Terminated { pod, container: name })
        }
        Some(ContainerState::Waiting(waiting)) => {
            let reason = match &*waiting.reason {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            Err(NoLog::Waiting { pod, container: name, reason: reason.to_owned() })
        }
        None => Err(NoLog::NotYet { pod, container: name }),
    }
}

pub(crate) fn container_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let all =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    all.into_iter().flatten().find(|status| *status.name == *name)
}

/// Waits until a container does not run any more.
async fn ended(statuses: Statuses, uid: String, container: String, id: String) {
    let mut version = statuses.version();
    let runs = || {
        let reported = statuses.get(&uid)?;
        let status = container_status(&reported.status, &container)?;
        let is_running = matches!(status.state.one(), Some(ContainerState::Running(_)));
        (is_running && *status.container_id == *id).then_some(())
    };
    loop {
        version.mark_unchanged();
        if runs().is_none() || version.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[path = "container_logs_tests.rs"]
mod tests;
