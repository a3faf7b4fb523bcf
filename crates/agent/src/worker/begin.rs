//! What must hold before a pod is started: the node takes it, and the runtime is ready for it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use crablet_core::qos::is_static;
use crablet_core::status::{
    Failure, MAX_LOG_BYTES, MAX_LOG_LINES, MAX_MESSAGE_BYTES, MessageSource, rejected, termination_message,
};
use crablet_core::{labels, observed};
use crablet_cri::Error;
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter, SandboxState};
use crablet_logs::{LogEnd, LogError, last_lines};
use tokio::time::Instant;

use crate::admission::Verdict;
use crate::pod_files::PodFiles;
use crate::readiness::Ready;
use crate::story::State;
use crate::worker::{Next, Phase, Worker, probing};

/// How long the termination messages of containers that ended may take to be read.
const TERMINATION_MESSAGES_TAKE: Duration = Duration::from_secs(10);

impl Worker {
    /// Finds out whether the node takes the pod, until it does. What runs already is never asked about.
    pub(super) async fn admit(&mut self) -> Option<Next> {
        if self.admitted {
            return None;
        }
        let rejection = match self.node.admission.verdict(&self.owner.uid) {
            Verdict::Granted { was_there } => {
                self.admitted = true;
                if was_there {
                    self.note_actuated();
                }
                Box::pin(self.allocate()).await;
                if was_there {
                    self.story.note("admission", format_args!("goes on: it was there when the agent began"));
                }
                return None;
            }
            // It is told to look when there is a verdict.
            Verdict::Undecided => {
                self.show_as_it_was();
                self.story.headline(State::Waiting, format_args!("its turn to be admitted"));
                return Some(Next::Wait(None));
            }
            Verdict::MakesRoom { until } => {
                self.show_as_it_was();
                self.story.headline(State::Waiting, format_args!("other pods to make room for it"));
                return Some(Next::Wait(Some(until)));
            }
            Verdict::Rejected(rejection) => rejection,
        };
        self.warn_pod(&rejection.reason, &rejection.message);
        let features = &self.node.facts.now().translation.features;
        let status = rejected(&self.pod, &rejection, features, self.node.clock.now());
        self.phase = Phase::Terminated;
        self.rejected = true;
        // For the last word on what an agent before this one may have begun of it.
        self.failure = Some(Failure::rejected(rejection.reason, &rejection.message));
        self.show_written(status).await;
        Some(Next::Again)
    }

    /// The UID of an earlier pod of the same name that is still there: one that an agent before this one ran. Only
    /// static pods have names that come again.
    pub(super) async fn earlier_pod(&self) -> Result<Option<String>, Error> {
        if !is_static(&self.pod) {
            return Ok(None);
        }
        let labels = BTreeMap::from([
            (labels::POD_NAMESPACE.to_owned(), self.owner.namespace.to_string()),
            (labels::POD_NAME.to_owned(), self.owner.name.to_string()),
        ]);
        // A sandbox that died may have left containers.
        let filter = ContainerFilter { labels: labels.clone(), ..ContainerFilter::default() };
        let containers = self.node.runtime.list_containers(filter).await?;
        let live = containers.into_iter().filter(|container| container.state != ContainerState::Exited);
        let state = Some(SandboxState::Ready);
        let sandboxes = self.node.runtime.list_sandboxes(SandboxFilter { state, labels, id: None }).await?;
        let mut uids = sandboxes
            .into_iter()
            .map(|sandbox| sandbox.metadata.uid)
            .chain(live.filter_map(|container| container.labels.get(labels::POD_UID).cloned()));
        Ok(uids.find(|uid| **uid != *self.owner.uid))
    }

    /// What keeps containers from being started now, if something does.
    pub(super) fn not_ready_to_start(&self) -> Option<Ready> {
        let ready = self.node.readiness.now();
        let needs_network = !self.pod.spec.host_network;
        (ready.runtime.is_err() || (needs_network && ready.network.is_err())).then_some(ready)
    }

    /// Waits until the node is ready for something else than it was, something is told, something was done to stop a
    /// container, or the time has come.
    pub(super) async fn wait_for_node(&mut self, ready: Ready, until: Option<Instant>) -> Next {
        match (&ready.runtime, &ready.network) {
            (Err(reason), _) => {
                self.story.headline(State::Waiting, format_args!("the container runtime: {reason}"));
            }
            (Ok(()), Err(reason)) => self.tell_of_network(&format!("network is not ready: {reason}")),
            (Ok(()), Ok(())) => {}
        }
        tokio::select! {
            biased;
            () = self.mailbox.wait() => {}
            done = self.stops.next() => self.note_stop(done),
            () = self.node.readiness.other_than(&ready) => {}
            () = probing::come(until) => {}
        }
        Next::Again
    }
}

/// Containers that ended since they were `known` get their termination message, from its file or their log. A disk that
/// does not answer must not keep anybody from seeing that they ended.
pub(super) async fn with_termination_messages(
    files: &dyn PodFiles,
    known: &observed::Pod,
    mut observed: observed::Pod,
) -> observed::Pod {
    let is_known = |id: &str| {
        let known = known.containers().iter().find(|container| container.id == id);
        known.is_some_and(|known| known.state == ContainerState::Exited)
    };
    let deadline = Instant::now() + TERMINATION_MESSAGES_TAKE;
    for container in observed.containers_mut() {
        if container.state == ContainerState::Exited && !is_known(&container.id) {
            let text = tokio::time::timeout_at(deadline, text_of_container(files, container)).await;
            let text = text.unwrap_or_else(|_| b"Error on reading termination log: timed out".to_vec());
            container.status.message = termination_message(&container.message, &text);
        }
    }
    observed
}

/// What the container left for its termination message.
async fn text_of_container(files: &dyn PodFiles, container: &observed::Container) -> Vec<u8> {
    let wanted = MessageSource::of(container);
    let from_file = match wanted.file {
        Some(file) => files.tail(file.as_ref(), MAX_MESSAGE_BYTES).await.unwrap_or_else(|error| {
            Some(format!("Error on reading termination log {file}: {error}").into_bytes())
        }),
        None => None,
    };
    match from_file.filter(|text| !text.is_empty()) {
        Some(text) => text,
        None if wanted.log => last_logged(files, container.log_path.as_ref()).await.unwrap_or_else(|error| {
            format!("Error on reading termination message from logs: {error}").into_bytes()
        }),
        None => Vec::new(),
    }
}

async fn last_logged(files: &dyn PodFiles, log: &Path) -> Result<Vec<u8>, LogError> {
    let end = files.log_end(log, LogEnd::LENGTH).await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LogError::Missing { path: log.to_owned() },
        _ => LogError::Open { path: log.to_owned(), source },
    })?;
    Ok(last_lines(&LogEnd::new(end), MAX_LOG_LINES, MAX_LOG_BYTES)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::pod_files::{OnDisk, Places};

    #[tokio::test]
    async fn a_termination_message_is_read_from_a_log_behind_links_too_and_where_there_is_none_it_is_said_why()
     {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let files = OnDisk::new(Places { root: at("root"), logs: at("logs"), links: at("links") });
        let (log, link) = (at("container-json.log"), at("0.log"));
        let words = async || match last_logged(&files, &link).await {
            Ok(words) => String::from_utf8(words).unwrap(),
            Err(error) => error.to_string().replace(&link.display().to_string(), "LOG"),
        };
        assert_eq!(
            words().await,
            "failed to try resolving symlinks in path \"LOG\": lstat LOG: no such file or directory"
        );
        symlink(&log, &link).unwrap();
        std::fs::write(
            &log,
            "{\"log\":\"no such user\\n\",\"stream\":\"stderr\",\"time\":\"2026-01-02T03:04:05Z\"}\n",
        )
        .unwrap();
        assert_eq!(words().await, "no such user\n");
        std::fs::write(&log, "garbage\n").unwrap();
        assert_eq!(words().await, "failed to get parse function: unsupported log format: \"garbage\\n\"");
        std::fs::remove_file(&link).unwrap();
        std::fs::create_dir(&link).unwrap();
        assert_eq!(words().await, "failed to open log file \"LOG\": LOG is not a file");
    }
}
