//! What the agent asks of a container runtime.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri_api::{
    CgroupDriver, Container, ContainerFilter, ContainerStatus, ExecOutput, Image, RuntimeStatus, Sandbox,
    SandboxFilter, SandboxStatus, Version, v1,
};
use futures_util::stream::BoxStream;

use crate::error::Result;

/// A container runtime. Every call ends: by an answer, an error, or its deadline.
///
/// What a runtime does not have gives an error for which [`Error::is_unsupported`](crate::Error::is_unsupported)
/// holds, without asking it twice.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Who answers.
    async fn version(&self) -> Result<Version>;
    /// Whether it can run containers and give pods a network.
    async fn status(&self) -> Result<RuntimeStatus>;
    /// Tells which addresses pods have, such as `10.244.1.0/24`, for those that make their network's configuration from it.
    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()>;
    /// Who makes the cgroups of containers.
    async fn cgroup_driver(&self) -> Result<CgroupDriver>;

    /// Makes and starts a sandbox, and gives its ID. An empty handler is the default one.
    async fn run_sandbox(&self, config: &v1::PodSandboxConfig, runtime_handler: &str) -> Result<String>;
    /// Stops a sandbox and all its containers at once. Stopping one that is stopped, or gone, succeeds.
    async fn stop_sandbox(&self, id: &str) -> Result<()>;
    /// Removes a sandbox and all its containers. Removing one that is gone succeeds.
    async fn remove_sandbox(&self, id: &str) -> Result<()>;
    /// A sandbox, seen closely.
    async fn sandbox_status(&self, id: &str) -> Result<SandboxStatus>;
    /// The image that a sandbox was made from. Nothing where the runtime does not tell; containerd and CRI-O do.
    async fn sandbox_image(&self, id: &str) -> Result<Option<String>>;
    /// The sandboxes that match.
    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<Sandbox>>;

    /// Makes a container in a sandbox, and gives its ID.
    async fn create_container(
        &self,
        sandbox_id: &str,
        config: &v1::ContainerConfig,
        sandbox_config: &v1::PodSandboxConfig,
    ) -> Result<String>;
    /// Starts a container that was made and never started.
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Asks a container to stop, and kills it when `grace` is over. Stopping one that has ended, or is gone,
    /// succeeds.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()>;
    /// Removes a container, killing it if need be. Removing one that is gone succeeds.
    async fn remove_container(&self, id: &str) -> Result<()>;
    /// A container, seen closely.
    async fn container_status(&self, id: &str) -> Result<ContainerStatus>;
    /// What a container was made from, as far as it is of use to recognise it: its command, arguments, working directory,
    /// environment, mounts, and what it may use and do. Nothing where the runtime does not tell; containerd does.
    async fn container_config(&self, id: &str) -> Result<Option<v1::ContainerConfig>>;
    /// The containers that match.
    async fn list_containers(&self, filter: ContainerFilter) -> Result<Vec<Container>>;
    /// Changes what a container may use.
    async fn update_container_resources(&self, request: v1::UpdateContainerResourcesRequest) -> Result<()>;
    /// Tells what all containers of a pod may use together from now on. A runtime that has no use for it does not say.
    async fn update_sandbox_resources(&self, request: v1::UpdatePodSandboxResourcesRequest) -> Result<()>;
    /// How many bytes of memory a container uses, where the runtime tells.
    async fn container_memory(&self, id: &str) -> Result<Option<u64>>;
    /// Has the log of a container that runs written to a new file: the one so far was moved away.
    async fn reopen_container_log(&self, id: &str) -> Result<()>;

    /// Runs a command in a container to its end. Without a timeout it may run for ever.
    async fn exec_sync(&self, id: &str, command: &[String], timeout: Option<Duration>) -> Result<ExecOutput>;

    /// The images that the runtime has.
    async fn list_images(&self) -> Result<Vec<Image>>;
    /// An image, if the runtime has it.
    async fn image_status(&self, image: &v1::ImageSpec) -> Result<Option<Image>>;
    /// Pulls an image, and gives the reference to ask for it by.
    async fn pull_image(&self, pull: ImagePull) -> Result<String>;
    /// Removes an image. Removing one that is gone succeeds.
    async fn remove_image(&self, id: &str) -> Result<()>;
    /// The file systems that images are on, and those that containers write to where these are others.
    async fn image_file_systems(&self) -> Result<v1::ImageFsInfoResponse>;

    /// What happens to sandboxes and containers from now on, as the source tells it. The stream ends with its first
    /// error; a source that the runtime lacks is such an error.
    fn hints(&self, source: HintSource) -> BoxStream<'static, Result<Hint>>;
}

/// A runtime that may be able to write a running container to an archive.
#[async_trait]
pub trait CheckpointRuntime: Send + Sync {
    /// Writes a container to an archive at this path, within this time, or the usual one if that is longer.
    async fn checkpoint_container(&self, id: &str, location: &Path, within: Duration) -> Result<()>;
}

/// An image to pull, for whom, and with whose credentials.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImagePull {
    pub image: v1::ImageSpec,
    /// Credentials for its registry.
    pub auth: Option<v1::AuthConfig>,
    pub sandbox: Option<v1::PodSandboxConfig>,
}

/// Who tells what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintSource {
    /// CRI's `GetContainerEvents`.
    Cri,
    /// containerd's own events.
    Containerd,
}

/// Something happened to a sandbox or a container: a reason to look, not a state to believe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The ID of the sandbox or the container.
    pub id: String,
    /// What happened.
    pub kind: HintKind,
    /// When, in nanoseconds since 1970, if the runtime says so.
    pub at: Option<i64>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintKind {
    /// It was made.
    Created,
    /// It was started.
    Started,
    /// It ended.
    Stopped,
    /// It was removed.
    Removed,
    /// The kernel killed one of its processes for want of memory.
    OutOfMemory,
}
