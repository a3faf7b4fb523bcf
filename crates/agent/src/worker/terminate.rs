//! Stopping a pod, step by step. Each step can be done again, and one that failed is where the next try begins.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::{ContainerState, PodStatus};
use crablet_core::kill::{Termination, pod_grace};
use crablet_core::status::terminated;
use crablet_cri::Error;
use crablet_cri_api::{self as cri_api, SandboxState};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::mailbox::End;
use crate::metrics::CgroupChange;
use crate::story::State;
use crate::worker::carry_out::Logs;
use crate::worker::retry::{What, earliest};
use crate::worker::stops::Stops;
use crate::worker::{Next, Phase, Worker};

/// A pod that is being stopped.
#[derive(Debug)]
pub(super) struct Terminating {
    /// Since when, and until when.
    pub(super) termination: Termination,
}

impl Terminating {
    /// Begins at `now`, and gives containers that stop already no more time than they have: the next agent has only
    /// this to tell it of their stops.
    pub(super) fn begin(now: Timestamp, grace: i64, stops: &Stops) -> Terminating {
        let termination = Termination::new(now, grace);
        Terminating {
            termination: stops.of_all().map_or(termination, |stops| termination.no_later_than(stops)),
        }
    }
}

/// Sandboxes that the runtime was told to stop, how long that took, and what it answered.
pub(super) type StoppedSandboxes = Vec<(String, Duration, Result<(), Error>)>;

impl Worker {
    /// Begins to end the pod, or makes an end that has begun come earlier.
    pub(super) async fn end(&mut self, end: &End) {
        let now = self.node.clock.steady();
        let wanted = end.grace.map(|grace| i64::try_from(grace.as_secs()).unwrap_or(i64::MAX));
        match &mut self.phase {
            Phase::Syncing => {
                let grace = pod_grace(&self.pod, None, wanted);
                self.story.note("stop", format_args!("{} (within {grace} s)", end.in_words()));
                self.phase = Phase::Terminating(Terminating::begin(now, grace, &self.stops));
                self.checkpoint_now().await;
            }
            Phase::Terminating(terminating) => {
                let grace = pod_grace(&self.pod, Some(terminating.termination.grace), wanted);
                if terminating.termination.shorten(now, grace) {
                    self.story.note("stop", format_args!("it must be over within {grace} s from now on"));
                    self.checkpoint_now().await;
                }
            }
            Phase::Terminated => {}
        }
    }

    /// Does what is left to do.
    pub(super) async fn terminate(&mut self) -> Next {
        let Phase::Terminating(Terminating { termination }) = self.phase else { return Next::Again };
        if let Err(error) = self.look().await {
            let until = self.runtime_is_away(&error);
            // What was started meanwhile may have to stop first.
            if self.starts.unseen {
                return Next::Wait(Some(until));
            }
            // What was seen last is enough for stops to go on.
            return Next::Wait(earliest(Some(until), self.stop_all(&termination)));
        }
        let status = self.make_status(false);
        match self.tells_of_an_end(&status) {
            // As upstream's: how containers ended is told when all have, with what became of the pod.
            true => self.show_as_it_was(),
            false => self.show(status),
        }
        self.have_probed();
        if !self.wanted {
            let deadline = self.node.clock.wall_at(termination.deadline);
            self.node.reports.statuses.show_end(&self.owner.uid, deadline);
        }
        if self.observed.containers().iter().any(|container| container.may_live()) {
            return Next::Wait(self.stop_all(&termination));
        }
        // A call of an agent that died may still start what was made. What is not there any more is not started.
        let unstarted = self.unstarted();
        if !unstarted.is_empty() {
            return match self.remove_containers(&unstarted, Logs::Go).await {
                Ok(()) => Next::Again,
                Err(error) => self.removal_failed(&error),
            };
        }
        let sandboxes = self.sandboxes_to_stop();
        if !sandboxes.is_empty() {
            self.story.headline(State::Terminating, format_args!("its sandbox is being stopped"));
            let stops = self.stop_sandboxes(&sandboxes);
            let results = self.see_through(stops).await;
            if let Err(error) = self.note_stopped_sandboxes(results) {
                return self.runtime_failed(&error);
            }
        }
        self.finish().await
    }

    /// Whether a container that runs by the status that is shown has ended by this one.
    fn tells_of_an_end(&self, status: &PodStatus) -> bool {
        let ran = |id: &str| {
            let mut shown = self.status.all_statuses().filter(|shown| *shown.container_id == *id);
            shown.any(|shown| matches!(shown.state.one(), Some(ContainerState::Running(_))))
        };
        let mut ended = status
            .all_statuses()
            .filter(|status| matches!(status.state.one(), Some(ContainerState::Terminated(_))));
        ended.any(|ended| ran(&ended.container_id))
    }

    /// The containers that were made and not started.
    fn unstarted(&self) -> Vec<String> {
        let containers = self.observed.containers().iter();
        let unstarted = containers.filter(|container| container.state == cri_api::ContainerState::Created);
        unstarted.map(|container| container.id.clone()).collect()
    }

    /// The sandboxes that have to be stopped before they are left or removed: also those that are not ready, whose
    /// network may still be there, unless this worker has stopped them.
    pub(super) fn sandboxes_to_stop(&self) -> Vec<String> {
        let sandboxes = self.observed.sandboxes().iter();
        let to_stop = sandboxes.filter(|sandbox| {
            sandbox.state == SandboxState::Ready || !self.stopped_sandboxes.contains(&sandbox.id)
        });
        to_stop.map(|sandbox| sandbox.id.clone()).collect()
    }

    /// Stops sandboxes at the same time. One that fails holds up no other.
    pub(super) fn stop_sandboxes(&self, ids: &[String]) -> impl Future<Output = StoppedSandboxes> + use<> {
        let stops = ids.iter().map(|id| {
            let (node, id) = (Arc::clone(&self.node), id.clone());
            async move {
                let began = Instant::now();
                let result = node.turns.stops.take(|| node.runtime.stop_sandbox(&id)).await;
                (id, began.elapsed(), result)
            }
        });
        join_all(stops.collect::<Vec<_>>())
    }

    /// Takes in which sandboxes were stopped; the answer is why one was not.
    pub(super) fn note_stopped_sandboxes(&mut self, results: StoppedSandboxes) -> Result<(), Error> {
        let mut all = Ok(());
        for (id, took, result) in results {
            match result {
                Err(error) if !error.is_not_found() => {
                    match self.phase {
                        Phase::Terminating(_) => {
                            self.tell_not_killed("KillPodSandbox", &self.owner.uid, &error);
                        }
                        Phase::Syncing | Phase::Terminated => {
                            let what = format_args!("could not stop the sandbox: {error}");
                            self.story.failed("sandbox", took, what);
                        }
                    }
                    all = Err(error);
                }
                Ok(()) | Err(_) => {
                    self.story.step("sandbox", took, format_args!("stopped the sandbox"));
                    // Its word is taken for it: the last status of a pod need not wait for another look.
                    Arc::make_mut(&mut self.observed).note_stopped_sandbox(&id);
                    self.stopped_sandboxes.insert(id);
                }
            }
        }
        all
    }

    /// Every container has been seen to be stopped: clears away what only a running pod needs, and says the last word.
    async fn finish(&mut self) -> Next {
        // Its phase, and its room on the node, wait for nothing that can hang.
        let status = self.make_status(true);
        self.show(status);
        self.node.admission.release_terminated(&self.owner.uid);
        if let Err(next) = self.clear_away().await {
            return next;
        }
        let status = terminated(&self.pod, &self.make_status(true));
        self.phase = Phase::Terminated;
        self.show(status);
        self.have_nothing_probed();
        // What nobody wants any more is removed next, and its checkpoint with it: an agent that starts in between goes
        // on with the end.
        if self.wanted {
            self.checkpoint_now().await;
        }
        self.story.note("stop", format_args!("all containers have stopped"));
        self.tell_last_headline();
        Next::Again
    }

    /// Takes away what only a pod has whose containers run, or may: its volumes, its cgroup and its users.
    pub(super) async fn clear_away(&mut self) -> Result<(), Next> {
        self.tear_down_volumes().await?;
        self.node.reports.statuses.show_unmounted(&self.owner.uid);
        self.story.headline(State::Terminating, format_args!("its cgroup is being removed"));
        let began = Instant::now();
        let (node, uid) = (Arc::clone(&self.node), self.owner.uid.clone());
        if let Err(error) = self.see_through(node.host.remove_cgroup(&uid)).await {
            let until = self.retries.failed(What::Cgroup);
            self.story.failed("cgroup", began.elapsed(), format_args!("{error}"));
            self.story.headline(State::Terminating, format_args!("its cgroup cannot be removed: {error}"));
            return Err(Next::Wait(Some(until)));
        }
        // Who was rejected had none, but where an agent died.
        if !self.rejected {
            self.node.metrics.changed_cgroup(CgroupChange::Destroy, began.elapsed());
        }
        // A sandbox that comes late has them, and they must not be another pod's by then.
        let late = self.late_sandbox.filter(|until| *until > Instant::now());
        if let Some(until) = late.filter(|_| node.host.users.has_own(&uid)) {
            let what = "a sandbox with users of its own, whose making was given up, may still appear";
            self.story.headline(State::Terminating, format_args!("{what}"));
            return Err(Next::Wait(Some(until)));
        }
        if let Err(error) = self.see_through(node.host.users.release(&uid)).await {
            let until = self.retries.failed(What::Cgroup);
            self.story.failed("users", began.elapsed(), format_args!("{error}"));
            self.story.headline(State::Terminating, format_args!("its users cannot be taken back: {error}"));
            return Err(Next::Wait(Some(until)));
        }
        self.retries.worked(&What::Cgroup);
        self.cleared = true;
        Ok(())
    }
}
