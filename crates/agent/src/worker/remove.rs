//! Taking away what is left of containers that ended, and of a pod that is over.

use std::sync::Arc;

use crablet_core::container_gc;
use crablet_core::plan::deadline;
use crablet_core::status::terminated;
use crablet_cri::Error;
use crablet_host::cgroup::CgroupError;
use crablet_host::checkpoint::CheckpointError;
use crablet_volumes::TearDownError;
use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::story::State;
use crate::worker::carry_out::Logs;
use crate::worker::retry::{What, earliest};
use crate::worker::{Next, Phase, Worker, is_over};

impl Worker {
    /// A pod that is over and that its source still has: its last containers stay, for their logs.
    pub(super) async fn rest(&mut self) -> Next {
        self.interest = None;
        if let Err(error) = self.look().await {
            return self.runtime_failed(&error);
        }
        // An agent that was killed just before the last word may have left something running.
        if self.observed.containers().iter().any(|container| container.may_live())
            || self.observed.has_ready_sandbox()
        {
            return self.stop_by_itself("it is over, and something of it still runs").await;
        }
        let deadline = self.await_deadline().await;
        self.show_as_it_was();
        self.tell_last_headline();
        Next::Wait(earliest(deadline, self.prune().await))
    }

    /// A static pod that lost its sandbox rests without being over. As upstream's, it fails when its deadline passes; says
    /// when that is.
    async fn await_deadline(&mut self) -> Option<Instant> {
        let deadline = deadline(&self.pod, &self.status).filter(|_| !is_over(&self.status))?;
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
        let is_over = matches!(self.phase, Phase::Terminated);
        let dead = || container_gc::dead(&self.observed, is_over, &gc.policy, now);
        let over_limit = gc.tell(&self.owner.uid, &self.mailbox, dead);
        let surplus = container_gc::surplus(&self.observed, &gc.policy, &over_limit, now);
        let look_again = surplus.look_again.map(|at| self.instant(at));
        if surplus.containers.is_empty() && surplus.sandboxes.is_empty() {
            return look_again;
        }
        if let Some(until) = self.retries.held(&What::Removal) {
            return earliest(look_again, Some(until));
        }
        let mut removal = self.remove_containers(&surplus.containers, Logs::Go).await;
        if removal.is_ok() {
            removal = self.remove_sandboxes(&surplus.sandboxes).await;
        }
        match removal {
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

    /// Removes containers at the same time, and maybe their logs. One that fails holds up no other.
    pub(super) async fn remove_containers(&mut self, ids: &[String], logs: Logs) -> Result<(), Error> {
        let node = Arc::clone(&self.node);
        let removals = ids.iter().map(|id| node.turns.stops.take(|| node.runtime.remove_container(id)));
        let results = self.see_through(join_all(removals)).await;
        let removed = ids.iter().zip(&results).filter(|(_, result)| result.is_ok() && logs == Logs::Go);
        let (owner, observed) = (self.owner.clone(), Arc::clone(&self.observed));
        for (id, _) in removed {
            let Some(container) = observed.containers().iter().find(|container| container.id == *id) else {
                continue;
            };
            let log = std::path::Path::new(&container.log_path);
            let removal = node.host.files.remove_container(&owner, &container.name, container.attempt, log);
            if let Err(error) = self.see_through(removal).await {
                warn!(container = container.name, %error, "Cannot remove a container's log");
            }
        }
        results.into_iter().collect()
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
        match self.try_to_remove().await {
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

    async fn try_to_remove(&mut self) -> Result<(), NotRemoved> {
        self.look().await?;
        let containers: Vec<String> =
            self.observed.containers().iter().map(|container| container.id.clone()).collect();
        self.remove_containers(&containers, Logs::Go).await?;
        let sandboxes: Vec<String> =
            self.observed.sandboxes().iter().map(|sandbox| sandbox.id.clone()).collect();
        self.remove_sandboxes(&sandboxes).await?;
        // What an agent before this one may have left.
        if !self.cleared {
            self.node.host.remove_cgroup(&self.owner.uid).await?;
            self.node.host.volumes.tear_down(&self.owner.uid).await?;
            self.node.host.users.release(&self.owner.uid).await?;
        }
        self.node.host.files.remove_pod(&self.owner).await?;
        Ok(self.node.checkpoints.remove(&self.owner.uid).await?)
    }
}

/// What of a pod could not be removed.
#[derive(Debug, thiserror::Error)]
enum NotRemoved {
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
