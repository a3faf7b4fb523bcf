//! What is asked of a runtime for streams.

use async_trait::async_trait;
use crablet_core::labels::{CONTAINER_NAME, POD_UID};
use crablet_cri::{Client, Error, Runtime as _};
use crablet_cri_api::{ContainerFilter, ContainerState, ExecOutput, SandboxFilter, SandboxState, v1};

/// Who runs commands in containers and reaches the ports of pods. An address is where to ask for one stream.
#[async_trait]
pub trait StreamRuntime: Send + Sync {
    /// The ID of a pod's container that runs, by its name.
    async fn running_container(&self, pod_uid: &str, name: &str) -> Result<Option<String>, Error>;
    /// The ID of the sandbox that a pod is in.
    async fn ready_sandbox(&self, pod_uid: &str) -> Result<Option<String>, Error>;
    /// Gives the address for a command.
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error>;
    /// Gives the address for what a container's first process reads and writes.
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error>;
    /// Gives the address for ports.
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error>;
    /// Runs a command to its end.
    async fn run(&self, id: &str, command: &[String]) -> Result<ExecOutput, Error>;
}

#[async_trait]
impl StreamRuntime for Client {
    async fn running_container(&self, pod_uid: &str, name: &str) -> Result<Option<String>, Error> {
        let labels = [(POD_UID, pod_uid), (CONTAINER_NAME, name)];
        let filter = ContainerFilter {
            state: Some(ContainerState::Running),
            labels: labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
            ..ContainerFilter::default()
        };
        let found = self.list_containers(filter).await?;
        Ok(found.into_iter().max_by_key(|container| container.created_at).map(|container| container.id))
    }

    async fn ready_sandbox(&self, pod_uid: &str) -> Result<Option<String>, Error> {
        let filter = SandboxFilter {
            state: Some(SandboxState::Ready),
            labels: [(POD_UID.to_owned(), pod_uid.to_owned())].into(),
            ..SandboxFilter::default()
        };
        let found = self.list_sandboxes(filter).await?;
        Ok(found.into_iter().max_by_key(|sandbox| sandbox.created_at).map(|sandbox| sandbox.id))
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        Client::exec(self, request).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        Client::attach(self, request).await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error> {
        Client::port_forward(self, request).await
    }

    async fn run(&self, id: &str, command: &[String]) -> Result<ExecOutput, Error> {
        self.exec_sync(id, command, None).await
    }
}
