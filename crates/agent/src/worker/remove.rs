//! Taking away what is left of containers that ended, and of a pod that is over.

use crablet_core::container_gc;
use crablet_cri::Error;
use crablet_cri_api::SandboxState;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::story::State;
use crate::worker::{Next, Phase, Worker};

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
        self.show_as_it_was();
        self.tell_last_headline();
        Next::Wait(self.prune().await)
    }

    /// Removes dead containers beyond those that are kept, and old sandboxes that have none. Says when something more
    /// will be old enough.
    pub(super) async fn prune(&mut self) -> Option<Timestamp> {
        let (gc, now) = (&self.node.container_gc, self.node.clock.now());
        let is_over = matches!(self.phase, Phase::Terminated);
        let dead = || container_gc::dead(&self.observed, is_over, &gc.policy, now);
        let over_limit = gc.tell(&self.owner.uid, &self.mailbox, dead);
        let surplus = container_gc::surplus(&self.observed, &gc.policy, &over_limit, now);
        if surplus.containers.is_empty() && surplus.sandboxes.is_empty() {
            return surplus.look_again;
        }
        let mut removal = self.remove_containers(&surplus.containers).await;
        for id in &surplus.sandboxes {
            if removal.is_ok() {
                removal = self.node.runtime.remove_sandbox(id).await;
            }
        }
        if let Err(error) = removal {
            warn!(pod = %self.pod_name(), uid = self.owner.uid, %error, "Cannot remove dead containers; the next pass tries again");
        }
        surplus.look_again
    }

    /// Removes everything of a pod that is over and that nobody wants any more.
    pub(super) async fn remove(&mut self) -> Next {
        const WHAT: &str = "removal";
        let began = Instant::now();
        self.story.headline(State::Terminating, format_args!("what it left behind is being removed"));
        match self.try_to_remove().await {
            Ok(()) => {
                self.story.step("remove", began.elapsed(), format_args!("nothing of it is left"));
                info!(pod = %self.pod_name(), uid = self.owner.uid, "Pod is gone");
                Next::Gone
            }
            Err(error) => {
                let until = self.retries.failed(WHAT, self.node.clock.now());
                self.story.failed("remove", began.elapsed(), format_args!("{error}"));
                self.story
                    .headline(State::Terminating, format_args!("what it left cannot be removed: {error}"));
                warn!(pod = %self.pod_name(), uid = self.owner.uid, error, "Cannot remove what a pod left behind");
                Next::Wait(Some(until))
            }
        }
    }

    async fn try_to_remove(&mut self) -> Result<(), String> {
        let words = |error: Error| error.to_string();
        self.look().await.map_err(words)?;
        let containers: Vec<String> =
            self.observed.containers().iter().map(|container| container.id.clone()).collect();
        self.remove_containers(&containers).await.map_err(words)?;
        let sandboxes: Vec<(String, SandboxState)> =
            self.observed.sandboxes().iter().map(|sandbox| (sandbox.id.clone(), sandbox.state)).collect();
        for (id, state) in sandboxes {
            if state == SandboxState::Ready {
                self.node.runtime.stop_sandbox(&id).await.map_err(words)?;
            }
            self.node.runtime.remove_sandbox(&id).await.map_err(words)?;
        }
        self.node.remove_cgroup(&self.owner.uid).await?;
        self.node.volumes.tear_down(&self.owner.uid).await.map_err(|error| error.to_string())?;
        self.node.users.release(&self.owner.uid).map_err(|error| error.to_string())?;
        self.node.files.remove_pod(&self.owner).map_err(|error| error.to_string())?;
        self.node.checkpoints.remove(&self.owner.uid).await.map_err(|error| error.to_string())
    }
}
