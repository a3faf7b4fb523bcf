//! Taking away what is left of containers that ended, and of a pod that is over.

use crablet_core::observed;
use crablet_cri::Error;
use crablet_cri_api::{ContainerState, SandboxState};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::planted::Bug;
use crate::story::State;
use crate::worker::{Next, Worker};

impl Worker {
    /// A pod that is over and still wanted: its last containers stay, for their logs.
    pub(super) async fn rest(&mut self) -> Next {
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
        self.prune().await;
        Next::Wait(None)
    }

    /// Removes dead containers beyond those that are kept, and old sandboxes that have none.
    pub(super) async fn prune(&mut self) {
        let surplus = surplus(&self.observed, self.node.dead_containers_kept);
        if surplus.containers.is_empty() && surplus.sandboxes.is_empty() {
            return;
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
        if self.node.planted.has(Bug::LeaksCheckpoints) {
            return Ok(());
        }
        self.node.notebook.remove(&self.owner.uid).await.map_err(|error| error.to_string())
    }
}

/// What may be removed of a pod that is still wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Surplus {
    containers: Vec<String>,
    sandboxes: Vec<String>,
}

/// Of each container the newest `kept` dead ones stay, and of sandboxes the newest, and those that have containers.
fn surplus(observed: &observed::Pod, kept: usize) -> Surplus {
    let mut surplus = Surplus::default();
    let containers = observed.containers();
    for (place, container) in containers.iter().enumerate() {
        // The newest of a name is what decisions are made from, dead or not.
        let newer = containers[..place].iter().filter(|newer| newer.name == container.name).count();
        if container.state == ContainerState::Exited && newer > 0 && newer >= kept.max(1) {
            surplus.containers.push(container.id.clone());
        }
    }
    for sandbox in observed.sandboxes().iter().skip(1) {
        let is_used = containers.iter().any(|container| {
            container.sandbox_id == sandbox.id && !surplus.containers.contains(&container.id)
        });
        if sandbox.state == SandboxState::NotReady && !is_used {
            surplus.sandboxes.push(sandbox.id.clone());
        }
    }
    surplus
}
