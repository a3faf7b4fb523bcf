//! What must hold before a pod is started: the node takes it, and the runtime is ready for it.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_core::qos::is_static;
use crablet_core::status::{
    MAX_LOG_BYTES, MAX_LOG_LINES, MAX_MESSAGE_BYTES, MessageSource, rejected, termination_message,
};
use crablet_core::{labels, observed};
use crablet_cri::Error;
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter, SandboxState};
use tokio::time::Instant;

use crate::admission::Verdict;
use crate::log_tail;
use crate::pod_files::PodFiles;
use crate::readiness::Ready;
use crate::story::State;
use crate::worker::{Next, Phase, Worker, probing};

/// How long the termination messages of containers that ended may take to be read.
const LAST_WORDS_TAKE: Duration = Duration::from_secs(10);

impl Worker {
    /// Finds out whether the node takes the pod, until it does. What runs already is never asked about.
    pub(super) async fn admit(&mut self) -> Option<Next> {
        if self.admitted {
            return None;
        }
        let rejection = match self.node.admission.verdict(&self.owner.uid) {
            Verdict::Granted { was_there } => {
                self.admitted = true;
                self.allocate();
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
        let status = rejected(&self.pod, &rejection, self.node.clock.now());
        self.phase = Phase::Terminated;
        self.rejected = true;
        self.show(status);
        self.checkpoint_now().await;
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
    let deadline = Instant::now() + LAST_WORDS_TAKE;
    for container in observed.containers_mut() {
        if container.state == ContainerState::Exited && !is_known(&container.id) {
            let words = tokio::time::timeout_at(deadline, last_words(files, container)).await;
            let words = words.unwrap_or_else(|_| b"Error on reading termination log: timed out".to_vec());
            container.status.message = termination_message(&container.message, &words);
        }
    }
    observed
}

async fn last_words(files: &dyn PodFiles, container: &observed::Container) -> Vec<u8> {
    let wanted = MessageSource::of(container);
    let from_file = match wanted.file {
        Some(file) => files.tail(file.as_ref(), MAX_MESSAGE_BYTES).await.unwrap_or_else(|error| {
            Some(format!("Error on reading termination log {file}: {error}").into_bytes())
        }),
        None => None,
    };
    match from_file.filter(|words| !words.is_empty()) {
        Some(words) => words,
        None if wanted.log => {
            // A line of a log has its time, stream and tag before it: what is read is more than what counts.
            let log = files.tail(container.log_path.as_ref(), MAX_LOG_BYTES * 4).await.ok().flatten();
            log_tail::last_lines(&log.unwrap_or_default(), MAX_LOG_LINES, MAX_LOG_BYTES)
        }
        None => Vec::new(),
    }
}
