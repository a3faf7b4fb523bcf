//! Lies that the agent can be told at its seams. Each makes it break a promise, so that a run can show that somebody
//! would notice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_agent::allocations::STATE_FILES;
use crablet_agent::sources::SourceKind;
use crablet_api::core::{Container, Pod};
use crablet_core::labels;
use crablet_core::restart::is_sidecar;
use crablet_cri::Result;
use crablet_cri_api::{
    self as cri, ContainerFilter, ContainerState, ContainerStatus, Sandbox, SandboxFilter,
};
use crablet_cri_sim::ContainerView;
use crablet_host::checkpoint::{CheckpointError, Checkpoints, Loaded, SimulatedCheckpoints};
use crablet_host::logind::{InhibitLock, Logind, LogindError, Session, SimulatedLogind};
use serde_json::{Value, json};

use crate::invariants::check_allocated;
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
    /// The runtime: sidecars and their sandbox are not there any more once no other container runs.
    SidecarsGoWithTheMains,
    /// The runtime: a pod has nothing, when it is the runtime that is away.
    SilenceIsAnEmptyList,
    /// The disk: nothing was written down.
    NoCheckpoints,
    /// The disk: no status was written down.
    NoStatuses,
    /// The disk: a checkpoint is removed, which stays.
    CheckpointsAreRemoved,
    /// The disk: no pod has users of its own.
    NoUsers,
    /// The disk: nothing is allocated to anybody.
    NoAllocations,
    /// The volumes: they are as they were, when all of them were taken away and made anew.
    VolumesAreKept,
    /// The sources: one of them will say yet what it wants.
    PodsAreToCome,
    /// The sources: all pods come from the API, whose UIDs say who is who.
    PodsAreOfTheApi,
    /// The sources: sidecars are containers like any other.
    SidecarsAreMains,
    /// The configuration: no pod has any time in a shutdown.
    NoTimeInShutdowns,
    /// The machine: it is not about to be shut down, to an agent that begins.
    NoShutdownIsUnderWay,
    /// The API server: a status is as it was told to be.
    StatusesAreTaken,
    /// The machine: no pod has a volume of a CSI driver when an agent begins, and nothing is mounted twice.
    NoVolumesOfDrivers,
    /// The machine: the pod that uses most of something is said to use least.
    UsageIsTurnedAround,
    /// The machine: memory is short, of which there is plenty.
    MemoryIsShort,
    /// The machine: nobody knows what pods use.
    NobodyIsMeasured,
    /// The disk: no pod was told to go.
    NobodyWasEvicted,
    /// CSI drivers: a volume is staged, which is not.
    VolumesAreStaged,
    /// CSI drivers: a volume is unstaged, which is as it was.
    VolumesAreUnstaged,
    /// CSI drivers, and the disk: a volume is no longer published, which is.
    VolumesAreUnpublished,
    /// CSI drivers: a volume is published where it should be alone, when it is one directory higher up as well.
    MountsAreAbove,
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
        let uid = filter.labels.get(labels::POD_UID);
        let mut answer = self.or_nothing(uid, answer)?;
        let is_told =
            |uid: &String| self.lie == Some(Lie::SidecarsGoWithTheMains) && self.mains_have_ended(uid);
        if uid.is_some_and(is_told) {
            answer.clear();
        }
        Ok(answer)
    }

    /// Whether all containers of a pod have run and ended that are no init containers.
    fn mains_have_ended(&self, uid: &str) -> bool {
        let containers = self.ledger.simulator.containers();
        let state = self.ledger.state();
        state.lives.get(uid).is_some_and(|life| {
            life.pod.spec.containers.iter().all(|main| {
                let is_its = |run: &&ContainerView| run.pod_uid == uid && run.name == *main.name;
                let mut runs = containers.iter().filter(is_its).peekable();
                runs.peek().is_some() && runs.all(|run| run.state == ContainerState::Exited)
            })
        })
    }

    fn or_nothing<T>(&self, uid: Option<&String>, answer: Result<Vec<T>>) -> Result<Vec<T>> {
        match answer {
            Err(error)
                if self.lie == Some(Lie::SilenceIsAnEmptyList) && uid.is_some() && error.is_unreachable() =>
            {
                Ok(Vec::new())
            }
            answer => answer,
        }
    }

    pub(crate) fn containers(
        &self,
        filter: &ContainerFilter,
        answer: Result<Vec<cri::Container>>,
    ) -> Result<Vec<cri::Container>> {
        let uid = filter.labels.get(labels::POD_UID);
        match self.lie {
            Some(Lie::SilenceIsAnEmptyList) => self.or_nothing(uid, answer),
            Some(Lie::ContainersAreNotThereYet) => {
                let is_first = uid.is_some_and(|uid| self.with(|told| told.asked.insert(uid.clone())));
                if is_first { answer.map(|_| Vec::new()) } else { answer }
            }
            Some(Lie::InitsWereNeverThere) => {
                let state = self.ledger.state();
                let is_done = |container: &cri::Container| {
                    let life = uid.and_then(|uid| state.lives.get(uid));
                    life.is_some_and(|life| {
                        life.done.contains(&(container.sandbox_id.clone(), container.name.clone()))
                    })
                };
                answer.map(|list| list.into_iter().filter(|container| !is_done(container)).collect())
            }
            Some(Lie::SidecarsGoWithTheMains) => answer.map(|mut list| {
                let Some(uid) = uid.filter(|uid| self.mains_have_ended(uid)) else { return list };
                let state = self.ledger.state();
                let spec = state.lives.get(uid).map(|life| &life.pod.spec);
                let is_sidecar =
                    |name: &str| spec.and_then(|spec| spec.find_container(name)).is_some_and(is_sidecar);
                list.retain(|run| !is_sidecar(&run.name));
                list
            }),
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

#[async_trait]
impl Checkpoints for LyingCheckpoints {
    async fn load_all(&self) -> std::result::Result<Loaded, CheckpointError> {
        let mut loaded = self.inner.load_all().await?;
        match self.lie {
            Some(Lie::NoCheckpoints) => loaded.checkpoints.clear(),
            Some(Lie::NoStatuses) => loaded.checkpoints.values_mut().for_each(without_status),
            Some(Lie::NobodyWasEvicted) => {
                loaded.checkpoints.retain(|_, checkpoint| !has_failure(checkpoint));
            }
            _ => {}
        }
        Ok(loaded)
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), CheckpointError> {
        self.inner.save(name, bytes).await
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), CheckpointError> {
        self.inner.save_unsynced(name, bytes).await
    }

    async fn remove(&self, name: &str) -> std::result::Result<(), CheckpointError> {
        match self.lie {
            Some(Lie::CheckpointsAreRemoved) => Ok(()),
            _ => self.inner.remove(name).await,
        }
    }
}

/// The state files of allocations, where everything that is written is checked.
pub(crate) struct WatchedStateFiles {
    pub(crate) inner: SimulatedCheckpoints,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) lie: Option<Lie>,
}

#[async_trait]
impl Checkpoints for WatchedStateFiles {
    async fn load_all(&self) -> std::result::Result<Loaded, CheckpointError> {
        match self.lie {
            Some(Lie::NoAllocations) => Ok(Loaded::default()),
            _ => self.inner.load_all().await,
        }
    }

    async fn save(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), CheckpointError> {
        if name == STATE_FILES[0] {
            check_allocated(&self.ledger, bytes);
        }
        self.inner.save(name, bytes).await
    }

    async fn save_unsynced(&self, name: &str, bytes: &[u8]) -> std::result::Result<(), CheckpointError> {
        self.inner.save_unsynced(name, bytes).await
    }

    async fn remove(&self, name: &str) -> std::result::Result<(), CheckpointError> {
        self.inner.remove(name).await
    }
}

fn has_failure(checkpoint: &[u8]) -> bool {
    let read: Value = serde_json::from_slice(checkpoint).unwrap_or_default();
    read.get("failure").is_some()
}

fn without_status(checkpoint: &mut Vec<u8>) {
    let mut read: Value = serde_json::from_slice(checkpoint).unwrap_or_default();
    read["status"] = json!({});
    *checkpoint = read.to_string().into_bytes();
}

/// What a source says to an agent that it wants, and as whom.
pub(crate) fn told(
    lie: Option<Lie>,
    source: SourceKind,
    wanted: &BTreeMap<SourceKind, BTreeMap<String, Arc<Pod>>>,
) -> Vec<Arc<Pod>> {
    let of = |source| wanted.get(&source).into_iter().flat_map(BTreeMap::values).cloned();
    match (lie, source) {
        (Some(Lie::PodsAreOfTheApi), SourceKind::Api) => of(SourceKind::File).chain(of(source)).collect(),
        (Some(Lie::PodsAreOfTheApi), _) => Vec::new(),
        (Some(Lie::SidecarsAreMains), _) => of(source).map(without_sidecars).collect(),
        _ => of(source).collect(),
    }
}

/// What the machine says of shutdowns.
pub(crate) struct LyingLogind {
    pub(crate) inner: SimulatedLogind,
    pub(crate) lie: Option<Lie>,
}

struct LyingSession {
    inner: Box<dyn Session>,
    lie: Option<Lie>,
}

#[async_trait]
impl Logind for LyingLogind {
    async fn connect(&self) -> std::result::Result<Box<dyn Session>, LogindError> {
        Ok(Box::new(LyingSession { inner: self.inner.connect().await?, lie: self.lie }))
    }
}

#[async_trait]
impl Session for LyingSession {
    async fn longest_delay(&mut self) -> std::result::Result<Duration, LogindError> {
        self.inner.longest_delay().await
    }

    async fn set_longest_delay(&mut self, delay: Duration) -> std::result::Result<(), LogindError> {
        self.inner.set_longest_delay(delay).await
    }

    async fn inhibit(&mut self) -> std::result::Result<InhibitLock, LogindError> {
        self.inner.inhibit().await
    }

    async fn is_shutting_down(&mut self) -> std::result::Result<bool, LogindError> {
        let is_so = self.inner.is_shutting_down().await?;
        Ok(is_so && self.lie != Some(Lie::NoShutdownIsUnderWay))
    }

    async fn next(&mut self) -> Option<bool> {
        self.inner.next().await
    }
}

fn without_sidecars(pod: Arc<Pod>) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(pod);
    let spec = &mut pod.spec;
    let inits = std::mem::take(&mut spec.init_containers).into_vec();
    let (sidecars, inits): (Vec<_>, Vec<_>) = inits.into_iter().partition(is_sidecar);
    let plain = sidecars.into_iter().map(|sidecar| Container { restart_policy: None, ..sidecar });
    spec.containers = plain.chain(std::mem::take(&mut spec.containers)).collect();
    spec.init_containers = inits.into();
    Arc::new(pod)
}
