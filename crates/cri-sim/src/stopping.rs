//! Calls that wait for something to end.

use std::time::Duration;

use crablet_cri_api::v1;
use tokio::time::timeout;
use tonic::Status;

use super::container_calls::not_found_text;
use super::settings::StoppingTheMissing;
use super::shell::Signal;
use super::simulator::Simulator;
use super::world::Missing;

impl Simulator {
    /// Asks a container to stop, and kills it when the time is over.
    pub(crate) async fn stop_container(
        &self,
        request: v1::StopContainerRequest,
    ) -> Result<v1::StopContainerResponse, Status> {
        let seconds = u64::try_from(request.timeout).unwrap_or(0);
        self.stop(&request.container_id, Duration::from_secs(seconds)).await?;
        Ok(v1::StopContainerResponse {})
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), Status> {
        let gently = !grace.is_zero();
        let Some((id, stopped)) = self.with(|world, now| world.ask_to_stop(id, gently, now))? else {
            return Ok(());
        };
        if gently && timeout(grace, stopped.cancelled()).await.is_ok() {
            return Ok(());
        }
        self.with(|world, now| world.signal(&id, Signal::Kill, now));
        stopped.cancelled().await;
        Ok(())
    }

    pub(crate) async fn remove_container(&self, asked: &str) -> Result<v1::RemoveContainerResponse, Status> {
        let id = match self.with(|world, _| world.find_container(asked)) {
            Ok(id) => id,
            Err(Missing::NotFound) => return Ok(v1::RemoveContainerResponse {}),
            Err(missing) => return Err(missing.status(not_found_text(asked))),
        };
        self.stop_if_there(&id).await?;
        self.with(|world, now| world.delete_container(&id, now));
        Ok(v1::RemoveContainerResponse {})
    }

    /// Kills a container. One that went meanwhile needs no killing.
    async fn stop_if_there(&self, id: &str) -> Result<(), Status> {
        match self.stop(id, Duration::ZERO).await {
            Err(status) if status.code() == tonic::Code::NotFound => Ok(()),
            stopped => stopped,
        }
    }

    pub(crate) async fn stop_sandbox(&self, asked: &str) -> Result<v1::StopPodSandboxResponse, Status> {
        let found = self.with(|world, _| {
            let succeeds = world.settings.stopping_the_missing == StoppingTheMissing::Succeeds;
            match world.find_sandbox(asked) {
                Err(Missing::NotFound) if succeeds => Ok(None),
                Err(missing) => {
                    Err(missing.status(format!("an error occurred when try to find sandbox {asked:?}")))
                }
                Ok(id) => Ok(Some(id)),
            }
        })?;
        if let Some(id) = found {
            self.stop_sandbox_and_containers(&id).await?;
        }
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn stop_sandbox_and_containers(&self, id: &str) -> Result<(), Status> {
        for container in self.with(|world, _| world.members.get(id).cloned().unwrap_or_default()) {
            self.stop_if_there(&container).await?;
        }
        let stopped = self.with(|world, now| {
            world.kill_sandbox(id, now);
            world.sandboxes.get(id).filter(|sandbox| sandbox.ready).map(|sandbox| sandbox.stopped.subscribe())
        });
        if let Some(stopped) = stopped {
            stopped.cancelled().await;
        }
        self.with(|world, _| world.close_network(id));
        Ok(())
    }

    pub(crate) async fn remove_sandbox(&self, asked: &str) -> Result<v1::RemovePodSandboxResponse, Status> {
        let id = match self.with(|world, _| world.find_sandbox(asked)) {
            Ok(id) => id,
            Err(Missing::NotFound) => return Ok(v1::RemovePodSandboxResponse {}),
            Err(missing) => {
                return Err(missing.status(format!("an error occurred when try to find sandbox {asked:?}")));
            }
        };
        self.stop_sandbox_and_containers(&id).await?;
        self.with(|world, now| {
            for container in world.members.get(&id).cloned().unwrap_or_default() {
                world.delete_container(&container, now);
            }
            world.delete_sandbox(&id, now);
        });
        Ok(v1::RemovePodSandboxResponse {})
    }
}
