//! Taking away what is left of containers that ended, and of a pod that is over.

use std::path::Path;
use std::sync::Arc;

use crablet_core::container_gc::{self, Keeps, Surplus};
use crablet_core::plan::deadline;
use crablet_core::qos::is_static;
use crablet_core::shutdown::NOT_ADMITTED_REASON;
use crablet_core::status::{Failure, terminated};
use crablet_cri::Error;
use crablet_host::cgroup::CgroupError;
use crablet_host::checkpoint::CheckpointError;
use crablet_volumes::TearDownError;
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::pod_files::Attempt;
use crate::story::State;
use crate::worker::carry_out::Logs;
use crate::worker::checkpoint::ended_by_shutdown;
use crate::worker::retry::{What, earliest};
use crate::worker::{Next, Phase, Worker};

impl Worker {
    /// A pod that is over and that its source still has: its last containers stay, for their logs.
    pub(super) async fn rest(&mut self) -> Next {
        self.interest = None;
        if self.is_to_begin_anew() {
            self.story.note("stop", format_args!("the machine stays up, and it is to begin anew"));
            self.wanted = false;
            self.mailbox.set_heir(true);
            return Next::Again;
        }
        if let Err(error) = self.look().await {
            return self.runtime_failed(&error);
        }
        // An agent that was killed just before the last word may have left something running.
        if self.observed.containers().iter().any(|container| container.may_live())
            || self.observed.has_ready_sandbox()
        {
            return self.stop_by_itself("it is over, and something of it still runs").await;
        }
        // Another agent may have begun with it, and died.
        if self.rejected
            && !self.cleared
            && let Err(next) = self.clear_away().await
        {
            return next;
        }
        let deadline = self.await_deadline().await;
        self.show_as_it_was();
        self.tell_last_headline();
        Next::Wait(earliest(deadline, self.prune().await))
    }

    /// Whether it is over for a shutdown that does not come after all. Static pods are the node's own: those that were ended
    /// for it, or not taken, begin anew.
    fn is_to_begin_anew(&self) -> bool {
        let was_kept_out = self.rejected && self.status.reason == NOT_ADMITTED_REASON;
        let is_void = was_kept_out || ended_by_shutdown(self.failure.as_ref());
        is_static(&self.pod) && is_void && !self.node.readiness.now().shuts_down
    }

    /// A static pod that lost its sandbox rests without being over. As upstream's, it fails when its deadline passes; says
    /// when that is.
    async fn await_deadline(&mut self) -> Option<Instant> {
        let deadline = deadline(&self.pod, &self.status).filter(|_| !self.status.is_over())?;
        if deadline > self.node.clock.now() {
            return Some(self.instant(deadline));
        }
        self.fail_by_deadline();
        let status = terminated(&self.pod, &self.make_status(true));
        self.show(status);
        self.checkpoint_now().await;
        None
    }

    /// Removes dead containers beyond those that are kept, and old sandboxes that have none. Says when something more
    /// will be old enough, or what could not be removed may be tried again.
    pub(super) async fn prune(&mut self) -> Option<Instant> {
        let (gc, now) = (&self.node.container_gc, self.node.clock.now());
        let policy = gc.policy();
        let is_over = matches!(self.phase, Phase::Terminated);
        // Whom the node ended for what it used gives that back, though it is still wanted.
        let was_evicted = is_over && self.failure.as_ref().is_some_and(Failure::is_eviction);
        let keeps = match was_evicted || (is_over && gc.is_reclaiming(&self.owner.uid)) {
            true => Keeps::Nothing,
            false => Keeps::Newest,
        };
        let dead = || container_gc::dead(&self.observed, is_over, &policy, now);
        let over_limit = gc.tell(&self.owner.uid, dead);
        let surplus = container_gc::surplus(&self.observed, &policy, keeps, &over_limit, now);
        let look_again = surplus.look_again.map(|at| self.instant(at));
        if surplus.containers.is_empty() && surplus.sandboxes.is_empty() {
            return look_again;
        }
        if let Some(until) = self.retries.held(&What::Removal) {
            return earliest(look_again, Some(until));
        }
        match self.remove_surplus(&surplus, was_evicted).await {
            Ok(()) => {
                self.retries.worked(&What::Removal);
                look_again
            }
            Err(error) => {
                warn!(%error, "Cannot remove dead containers; trying again");
                earliest(look_again, Some(self.retries.failed(What::Removal)))
            }
        }
    }

    async fn remove_surplus(&mut self, surplus: &Surplus, was_evicted: bool) -> Result<(), NotRemoved> {
        self.remove_containers(&surplus.containers, Logs::Go).await?;
        if was_evicted && surplus.containers.len() == self.observed.containers().len() {
            // Before the last sandbox, which says that there is something left.
            self.node.host.files.remove_pod(&self.owner).await?;
        }
        Ok(self.remove_sandboxes(&surplus.sandboxes).await?)
    }

    /// Removes containers at the same time, and maybe their logs. One that fails holds up no other. A log goes first, and
    /// its container only when it is gone: nobody would find the log by anything else.
    pub(super) async fn remove_containers(&mut self, ids: &[String], logs: Logs) -> Result<(), NotRemoved> {
        let (node, owner, observed) =
            (Arc::clone(&self.node), self.owner.clone(), Arc::clone(&self.observed));
        let (mut removable, mut kept) = (Vec::new(), Ok(()));
        for id in ids {
            let container = observed.containers().iter().find(|container| container.id == *id);
            let Some(container) = container.filter(|_| logs == Logs::Go) else {
                removable.push(id);
                continue;
            };
            let attempt = Attempt {
                container: &container.name,
                number: container.attempt,
                id,
                log: Path::new(&container.log_path),
            };
            match self.see_through(node.host.files.remove_container(&owner, attempt)).await {
                Ok(()) => removable.push(id),
                Err(error) => kept = Err(NotRemoved::Files(error)),
            }
        }
        let removals = removable.iter().map(|id| node.turns.stops.take(|| node.runtime.remove_container(id)));
        let results = self.see_through(join_all(removals)).await;
        if results.iter().any(Result::is_ok) {
            self.node.container_gc.removed();
        }
        results.into_iter().collect::<Result<(), Error>>()?;
        kept
    }

    /// Something could not be removed without which nothing goes on. Says when it may be tried again.
    pub(super) fn removal_failed(&mut self, error: &NotRemoved) -> Next {
        match error {
            NotRemoved::Runtime(error) => self.runtime_failed(error),
            NotRemoved::Cgroup(_)
            | NotRemoved::Volumes(_)
            | NotRemoved::Files(_)
            | NotRemoved::Checkpoint(_) => {
                self.story.headline(State::Blocked, format_args!("what it left cannot be removed: {error}"));
                Next::Wait(Some(self.retries.failed(What::Removal)))
            }
        }
    }

    /// Removes sandboxes at the same time, each after its stop: what a network has given them is given back.
    async fn remove_sandboxes(&mut self, ids: &[String]) -> Result<(), Error> {
        let mut to_stop = self.sandboxes_to_stop();
        to_stop.retain(|id| ids.contains(id));
        let stops = self.stop_sandboxes(&to_stop);
        let stopped = self.see_through(stops).await;
        self.note_stopped_sandboxes(stopped)?;
        let node = Arc::clone(&self.node);
        let removals = ids.iter().map(|id| node.turns.stops.take(|| node.runtime.remove_sandbox(id)));
        self.see_through(join_all(removals)).await.into_iter().collect()
    }

    /// Removes everything of a pod that is over and that nobody wants any more.
    pub(super) async fn remove(&mut self) -> Next {
        let began = Instant::now();
        self.story.headline(State::Terminating, format_args!("what it left behind is being removed"));
        let looked = self.look().await;
        // What the agent before wrote down last may be older than what runs.
        if looked.is_ok() && self.observed.containers().iter().any(|container| container.may_live()) {
            return self.stop_by_itself("it is over, and something of it still runs").await;
        }
        match self.try_to_remove(looked).await {
            Ok(()) => {
                self.story.step("remove", began.elapsed(), format_args!("nothing of it is left"));
                Next::Gone
            }
            Err(error) => {
                let until = self.retries.failed(What::Removal);
                self.story.failed("remove", began.elapsed(), format_args!("{error}"));
                self.story
                    .headline(State::Terminating, format_args!("what it left cannot be removed: {error}"));
                Next::Wait(Some(until))
            }
        }
    }

    async fn try_to_remove(&mut self, looked: Result<(), Error>) -> Result<(), NotRemoved> {
        looked?;
        let containers: Vec<String> =
            self.observed.containers().iter().map(|container| container.id.clone()).collect();
        // Its number of restarts is found by the logs, and goes on as upstream's.
        let logs = if self.mailbox.has_heir() { Logs::Stay } else { Logs::Go };
        self.remove_containers(&containers, logs).await?;
        let sandboxes: Vec<String> =
            self.observed.sandboxes().iter().map(|sandbox| sandbox.id.clone()).collect();
        self.remove_sandboxes(&sandboxes).await?;
        // What an agent before this one may have left.
        if !self.cleared {
            // What is in memory is not to be charged to those above.
            self.node.host.volumes.tear_down(&self.owner.uid).await?;
            self.node.host.remove_cgroup(&self.owner.uid).await?;
            self.node.host.users.release(&self.owner.uid).await?;
        }
        match logs {
            Logs::Go => self.node.host.files.remove_pod(&self.owner).await?,
            Logs::Stay => self.node.host.files.remove_pod_but_logs(&self.owner).await?,
        }
        self.node.log_links.pod_is_gone();
        Ok(self.node.checkpoints.remove(&self.owner.uid).await?)
    }
}

/// What of a pod could not be removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRemoved {
    #[error(transparent)]
    Runtime(#[from] Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Volumes(#[from] TearDownError),
    #[error(transparent)]
    Files(#[from] std::io::Error),
    #[error(transparent)]
    Checkpoint(#[from] Arc<CheckpointError>),
}
