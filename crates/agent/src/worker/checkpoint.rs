//! A pod's checkpoint, so that an agent that starts again goes on from there: its last status, why it failed, how far its
//! end has come, and the stop of all its containers for another sandbox, which containers are being replaced, and which
//! waits before restarts there are. Everything else is read from the runtime and the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::JsonError;
use crablet_api::core::{Pod, PodStatus};
use crablet_api::document::Limits;
use crablet_core::backoff::{Restarts, Waits};
use crablet_core::kill::Termination;
use crablet_core::observed;
use crablet_core::plan::Kill;
use crablet_core::qos::is_static;
use crablet_core::restart::is_sidecar;
use crablet_core::status::{Failure, FailureCause, is_newer};
use crablet_host::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::checkpoints::Record;
use crate::worker::carry_out::GIVES_UP_WITHIN;
use crate::worker::terminate::Terminating;
use crate::worker::{Phase, Worker};

/// What a stop may take beyond the grace period: every kill has some seconds, and so has a runtime.
const STOP_TAKES: SignedDuration = SignedDuration::from_secs(10);

/// A checkpoint as it is written.
#[derive(Debug, Serialize)]
pub(super) struct CheckpointRef<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terminating: Option<Ending>,
    /// How far the stop of all containers has come that is for another sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopping: Option<Ending>,
    pub(super) terminated: bool,
    /// Whether it is over because the node did not take it.
    pub(super) rejected: bool,
    /// Whether its source did not have it any more.
    pub(super) unwanted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<&'a Failure>,
    pub(super) sidecars: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) replaced_until: &'a BTreeMap<String, Timestamp>,
    #[serde(skip_serializing_if = "Waits::is_empty")]
    pub(super) waits: &'a Waits,
    pub(super) status: &'a PodStatus,
}

/// A checkpoint as it is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Checkpoint {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Its sidecars, in their order.
    pub sidecars: Vec<String>,
    terminating: Option<Ending>,
    stopping: Option<Ending>,
    terminated: bool,
    rejected: bool,
    unwanted: bool,
    replaced_until: BTreeMap<String, Timestamp>,
    waits: Waits,
    failure: Option<Failure>,
    status: PodStatus,
}

/// How far an end has come, by the wall clock: steady time means nothing to the next agent.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ending {
    began: Timestamp,
    grace: i64,
    deadline: Timestamp,
}

impl Ending {
    fn new(termination: &Termination, clock: &Clock) -> Ending {
        let Termination { began, grace, deadline } = *termination;
        Ending { began: clock.wall_at(began), grace, deadline: clock.wall_at(deadline) }
    }

    fn resume(self, clock: &Clock) -> Termination {
        let Ending { began, grace, deadline } = self;
        let (began, deadline) = (clock.steady_at(began), clock.steady_at(deadline));
        Termination { began, grace, deadline }.resume(clock.steady())
    }
}

/// Whether a shutdown of the machine ended a pod that was not done.
pub(super) fn ended_by_shutdown(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.cause == FailureCause::NodeShutdown && !failure.after_success)
}

impl Checkpoint {
    pub fn read(bytes: &[u8]) -> Result<Checkpoint, JsonError> {
        crablet_api::from_json(bytes, Limits::API)
    }

    /// Whether each agent decides anew about a pod that has terminated by this. A static pod that the node did not take
    /// did not run, and the API server knows nothing of it; and one that a shutdown of the machine ended is to run when
    /// the machine is up again, or stayed up. For all others, the UID never runs again.
    pub fn is_void(&self, pod: &Pod, shuts_down: bool) -> bool {
        let is_up_again = ended_by_shutdown(self.failure.as_ref()) && !shuts_down;
        is_static(pod) && ((self.terminated && self.rejected) || is_up_again)
    }

    /// Why it was evicted and how far its end has come, in steady time, if it is being stopped for that.
    pub(crate) fn eviction(&self, clock: &Clock) -> Option<(&Failure, Termination)> {
        let failure = self.failure.as_ref().filter(|failure| failure.cause == FailureCause::Evicted)?;
        Some((failure, self.terminating?.resume(clock)))
    }

    /// Whether such a pod has terminated, or is on its way there.
    pub(crate) fn is_ending_or_over(&self, pod: &Pod, shuts_down: bool) -> bool {
        (self.terminating.is_some() || self.terminated) && !self.is_void(pod, shuts_down)
    }
}

impl Worker {
    /// Goes on from the checkpoint that the agent before left.
    pub(super) fn restore(&mut self) {
        let Some(checkpoint) = self.node.restored.take(&self.owner.uid) else { return };
        // The agent before may have died while it had one made.
        self.late_sandbox = Some(Instant::now() + GIVES_UP_WITHIN);
        if checkpoint.is_void(&self.pod, self.node.readiness.now().shuts_down) {
            return;
        }
        self.status = Arc::new(checkpoint.status);
        let told = Arc::clone(&self.pod);
        self.go_on_from(&told.status);
        self.starts.replaced = checkpoint.replaced_until;
        if let Some(stopping) = checkpoint.stopping {
            self.stops.begin_all(stopping.resume(&self.node.clock));
        }
        self.starts.restarts = Restarts::of_checkpoint(self.node.limits.restarts, checkpoint.waits);
        self.failure = checkpoint.failure;
        // A manifest may have come back while the agent was away: what was ended comes to its end first.
        self.wanted = !checkpoint.unwanted;
        self.rejected = checkpoint.rejected;
        if checkpoint.terminated {
            self.phase = Phase::Terminated;
        } else if let Some(ending) = checkpoint.terminating {
            let termination = ending.resume(&self.node.clock);
            self.phase = Phase::Terminating(Terminating { termination });
            self.story.note("stop", format_args!("goes on with the end that began before the agent's start"));
        }
    }

    /// Another kubelet may have run the pod since the checkpoint was written, or before there was one. What it told the API
    /// server of the pod is then the newest that is known.
    fn go_on_from(&mut self, told: &PodStatus) {
        if is_newer(told, &self.status) {
            self.status = Arc::new(told.clone());
        }
    }

    /// The same for a static pod that runs when the agent begins: it is its mirror that tells. One that says that the pod is
    /// over is of a life before this one, of which nobody could tell the API server yet.
    pub(super) async fn go_on_from_mirror(&mut self) {
        if std::mem::replace(&mut self.knows_mirror, true) || !is_static(&self.pod) {
            return;
        }
        if self.observed.containers().iter().any(|container| container.may_live()) {
            let (node, pod) = (Arc::clone(&self.node), Arc::clone(&self.pod));
            let mirror = self.see_through(node.first_mirrors.of(&pod)).await;
            if let Some(mirror) = mirror.filter(|mirror| !mirror.status.is_over()) {
                self.go_on_from(&mirror.status);
            }
        }
    }

    /// Looks for waits before restarts in what the runtime remembers, once after a start of the agent.
    pub(super) fn recover_restarts(&mut self) {
        if !self.starts.recovered {
            self.starts.recovered = true;
            self.starts.restarts.recover(&self.allocation.pod, &self.observed);
        }
    }

    /// Writes down which of the containers that are about to be stopped are to be started anew: how they end says
    /// nothing of that, and an agent may end before they are.
    pub(super) async fn replace_after(&mut self, kills: &[Kill]) {
        let (before, now) = (self.starts.replaced.len(), self.node.clock.now());
        let anew = kills.iter().filter(|kill| kill.starts_anew);
        self.starts.replaced.extend(anew.map(|kill| {
            let grace = SignedDuration::from_secs(kill.grace).saturating_add(STOP_TAKES);
            (kill.id.clone(), now.checked_add(grace).unwrap_or(Timestamp::MAX))
        }));
        if self.starts.replaced.len() > before {
            self.checkpoint_now().await;
        }
    }

    /// Forgets of containers that run on that they were to be replaced: whoever was about to stop them did not, and how
    /// they end is their own doing. Says when the next one of them is due.
    pub(super) fn forget_replaced(&mut self, kills: &[Kill]) -> Option<Instant> {
        let now = self.node.clock.now();
        let runs_on = |id: &str| {
            self.observed.containers().iter().any(|container| container.id == id && container.may_live())
                && !kills.iter().any(|kill| kill.id == id)
                && !self.stops.has(id)
        };
        let runs_on = self.starts.replaced.iter().filter(|(id, _)| runs_on(id));
        let (over, due): (Vec<_>, Vec<_>) =
            runs_on.map(|(id, until)| (id.clone(), *until)).partition(|(_, until)| *until <= now);
        for (id, _) in &over {
            self.starts.replaced.remove(id);
        }
        if !over.is_empty() {
            self.checkpoint_soon();
        }
        due.into_iter().map(|(_, until)| self.instant(until)).min()
    }

    /// Marks what is being replaced in what was just seen. What has a newer one beside it was replaced.
    pub(super) fn mark_replaced(&mut self, observed: &mut observed::Pod) {
        self.starts.replaced.retain(|id, _| {
            let container = observed.containers().iter().find(|container| container.id == *id);
            container
                .and_then(|container| observed.latest(&container.name))
                .is_some_and(|latest| latest.id == *id)
        });
        for container in observed.containers_mut() {
            container.is_replaced = self.starts.replaced.contains_key(&container.id);
        }
    }

    /// Has the pod's checkpoint written soon. What comes later replaces what was not written yet.
    pub(super) fn checkpoint_soon(&self) {
        self.node.checkpoints.write(&self.owner.uid, self.record());
    }

    /// Writes the pod's checkpoint before anything that relies on it is done.
    pub(super) async fn checkpoint_now(&self) {
        let began = Instant::now();
        if let Err(error) = self.node.checkpoints.write_now(&self.owner.uid, self.record()).await {
            // The disk may be full: the pod's life goes on, and the next status tries again.
            let what = format_args!("cannot write its checkpoint: {error}");
            self.story.failed("disk", began.elapsed(), what);
        }
    }

    fn record(&self) -> Record {
        Record { bytes: self.checkpoint_as_json(), synced: self.outlives_the_machine() }
    }

    /// Whether the pod's checkpoint matters after a crash of the machine. Then nothing runs: of a pod that nobody wants any
    /// more no end has to go on, and one that is wanted starts anew, unless it is over or has something that it may
    /// not begin again with. A static pod that a shutdown of the machine ends, begins again with it.
    fn outlives_the_machine(&self) -> bool {
        if is_static(&self.pod) && ended_by_shutdown(self.failure.as_ref()) {
            return false;
        }
        match self.phase {
            Phase::Terminated => true,
            Phase::Terminating(_) => self.wanted,
            Phase::Syncing => {
                self.failure.is_some()
                    || self.pod.spec.active_deadline_seconds.is_some()
                    || !self.starts.replaced.is_empty()
            }
        }
    }

    /// What a next agent that meets the pod as an orphan cannot know from the runtime.
    fn sidecars(&self) -> impl Iterator<Item = &str> {
        let inits = self.pod.spec.init_containers.iter();
        inits.filter(|container| is_sidecar(container)).map(|container| container.name.as_str())
    }

    fn checkpoint_as_json(&self) -> Vec<u8> {
        let checkpoint = CheckpointRef {
            namespace: &self.owner.namespace,
            name: &self.owner.name,
            terminating: match &self.phase {
                Phase::Terminating(terminating) => {
                    Some(Ending::new(&terminating.termination, &self.node.clock))
                }
                Phase::Syncing | Phase::Terminated => None,
            },
            stopping: self.stops.of_all().map(|stopping| Ending::new(stopping, &self.node.clock)),
            terminated: matches!(self.phase, Phase::Terminated),
            rejected: self.rejected,
            unwanted: !self.wanted,
            failure: self.failure.as_ref(),
            sidecars: self.sidecars().collect(),
            replaced_until: &self.starts.replaced,
            waits: self.starts.restarts.waits(),
            status: &self.status,
        };
        crablet_api::to_json(&checkpoint)
    }
}
