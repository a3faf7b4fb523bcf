//! Lies that the agent can be told at its seams. Each makes it break a promise, so that a run can show that somebody
//! would notice.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use crablet_core::labels;
use crablet_cri::Result;
use crablet_cri_api::{Container, ContainerFilter, ContainerState, ContainerStatus, Sandbox, SandboxFilter};
use crablet_host::checkpoint::{CheckpointError, Checkpoints, Loaded, SimulatedCheckpoints};
use serde_json::{Value, json};

use crate::ledger::Ledger;

/// A lie, and who tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// The runtime: what the agent before started was made from something else than is wanted.
    ContainersDiffer,
    /// The runtime: a pod has no containers, when it is asked for the first time.
    ContainersAreNotThereYet,
    /// The runtime: a container has ended, when it was only asked to.
    StopsAreInstant,
    /// The runtime: init containers that are done were never there.
    InitsWereNeverThere,
    /// The runtime: nothing has the name of a pod but that pod.
    NamesAreUnique,
    /// The runtime: there is nothing, when it cannot tell.
    ErrorsAreEmptyLists,
    /// The disk: nothing was written down.
    NoCheckpoints,
    /// The disk: no status was written down.
    NoStatuses,
    /// The disk: no pod has sidecars.
    NoSidecars,
    /// The disk: a checkpoint is removed, which stays.
    CheckpointsAreRemoved,
    /// The disk: no pod has users of its own.
    NoUsers,
    /// The volumes: they are as they were, when all of them were taken away and made anew.
    VolumesAreKept,
    /// A source: it will say what it wants.
    PodsAreToCome,
}

/// What the runtime tells one agent.
pub(crate) struct RuntimeLies {
    lie: Option<Lie>,
    ledger: Arc<Ledger>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// The UIDs that were asked about.
    asked: BTreeSet<String>,
    /// The containers that were started.
    started: BTreeSet<String>,
    /// The containers that were asked to stop.
    stopped: BTreeSet<String>,
}

impl RuntimeLies {
    pub(crate) fn new(lie: Option<Lie>, ledger: Arc<Ledger>) -> RuntimeLies {
        RuntimeLies { lie, ledger, told: Mutex::default() }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn starts(&self, id: &str) {
        self.with(|told| told.started.insert(id.to_owned()));
    }

    /// Whether nobody has to wait for this stop.
    pub(crate) fn stops_at_once(&self, id: &str) -> bool {
        self.lie == Some(Lie::StopsAreInstant) && self.with(|told| told.stopped.insert(id.to_owned()))
    }

    pub(crate) fn sandboxes(
        &self,
        filter: &SandboxFilter,
        answer: Result<Vec<Sandbox>>,
    ) -> Result<Vec<Sandbox>> {
        match self.lie {
            Some(Lie::ErrorsAreEmptyLists) => Ok(answer.unwrap_or_default()),
            Some(Lie::NamesAreUnique) if filter.labels.contains_key(labels::POD_NAME) => Ok(Vec::new()),
            _ => answer,
        }
    }

    pub(crate) fn containers(
        &self,
        filter: &ContainerFilter,
        answer: Result<Vec<Container>>,
    ) -> Result<Vec<Container>> {
        let uid = filter.labels.get(labels::POD_UID);
        match self.lie {
            Some(Lie::ErrorsAreEmptyLists) => Ok(answer.unwrap_or_default()),
            Some(Lie::NamesAreUnique) if filter.labels.contains_key(labels::POD_NAME) => Ok(Vec::new()),
            Some(Lie::ContainersAreNotThereYet) => {
                let is_first = uid.is_some_and(|uid| self.with(|told| told.asked.insert(uid.clone())));
                if is_first { answer.map(|_| Vec::new()) } else { answer }
            }
            Some(Lie::InitsWereNeverThere) => {
                let state = self.ledger.state();
                let is_done = |container: &Container| {
                    let life = uid.and_then(|uid| state.lives.get(uid));
                    life.is_some_and(|life| {
                        life.done.contains(&(container.sandbox_id.clone(), container.name.clone()))
                    })
                };
                answer.map(|list| list.into_iter().filter(|container| !is_done(container)).collect())
            }
            Some(Lie::StopsAreInstant) => answer.map(|mut list| {
                for container in &mut list {
                    if self.with(|told| told.stopped.contains(&container.id)) {
                        container.state = ContainerState::Exited;
                    }
                }
                list
            }),
            _ => answer,
        }
    }

    pub(crate) fn container(&self, answer: Result<ContainerStatus>) -> Result<ContainerStatus> {
        let mut status = answer?;
        if self.lie == Some(Lie::ContainersDiffer)
            && status.state == ContainerState::Running
            && !self.with(|told| told.started.contains(&status.id))
        {
            status.annotations.insert(labels::CONTAINER_HASH.to_owned(), "other".to_owned());
        }
        if status.state == ContainerState::Running && self.with(|told| told.stopped.contains(&status.id)) {
            status.state = ContainerState::Exited;
            status.finished_at = Some(self.ledger.simulator.now());
        }
        Ok(status)
    }
}

/// What the disk says of checkpoints.
pub(crate) struct LyingCheckpoints {
    pub(crate) inner: SimulatedCheckpoints,
    pub(crate) lie: Option<Lie>,
}

impl LyingCheckpoints {
    fn read(&self, checkpoint: &[u8]) -> Vec<u8> {
        let (field, value) = match self.lie {
            Some(Lie::NoStatuses) => ("status", json!({})),
            Some(Lie::NoSidecars) => ("sidecars", json!([])),
            _ => return checkpoint.to_vec(),
        };
        let mut checkpoint: Value = serde_json::from_slice(checkpoint).unwrap_or_default();
        checkpoint[field] = value;
        checkpoint.to_string().into_bytes()
    }
}

#[async_trait]
impl Checkpoints for LyingCheckpoints {
    async fn load_all(&self) -> std::result::Result<Loaded, CheckpointError> {
        let mut loaded = self.inner.load_all().await?;
        if self.lie == Some(Lie::NoCheckpoints) {
            loaded.checkpoints.clear();
        }
        for checkpoint in loaded.checkpoints.values_mut() {
            *checkpoint = self.read(checkpoint);
        }
        Ok(loaded)
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), CheckpointError> {
        self.inner.save(name, bytes).await
    }

    async fn remove(&self, name: &str) -> std::result::Result<(), CheckpointError> {
        match self.lie {
            Some(Lie::CheckpointsAreRemoved) => Ok(()),
            _ => self.inner.remove(name).await,
        }
    }
}
