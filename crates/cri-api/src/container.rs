//! Containers in plain types.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::malformed::{Malformed, required};
use crate::time::timestamp;
use crate::v1;

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, and not started.
    Created,
    /// Started, and not ended.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The runtime's name for it.
    pub id: String,
    /// The sandbox it lives in.
    pub sandbox_id: String,
    /// Its name in the pod.
    pub name: String,
    /// How often it was started before.
    pub attempt: u32,
    /// The image it was made from, as it was asked for.
    pub image: String,
    /// The image it was made from, as the runtime refers to it.
    pub image_ref: String,
    /// The runtime's name for the image; empty where it does not tell.
    pub image_id: String,
    /// Where it is in its life.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// The labels it was made with.
    pub labels: BTreeMap<String, String>,
    /// The annotations it was made with.
    pub annotations: BTreeMap<String, String>,
}

/// A container, seen closely.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerStatus {
    /// The runtime's name for it.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// How often it was started before.
    pub attempt: u32,
    /// Where it is in its life.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it was started, if it was.
    pub started_at: Option<Timestamp>,
    /// When it ended, if it did.
    pub finished_at: Option<Timestamp>,
    /// What it ended with; of use only when it ended.
    pub exit_code: i32,
    /// The image it was made from, as it was asked for.
    pub image: String,
    /// The image it was made from, as the runtime refers to it.
    pub image_ref: String,
    /// The runtime's name for the image; empty where it does not tell.
    pub image_id: String,
    /// One word on why it is in this state: `Completed`, `Error`, `OOMKilled`, …
    pub reason: String,
    /// More on that.
    pub message: String,
    /// The labels it was made with.
    pub labels: BTreeMap<String, String>,
    /// The annotations it was made with.
    pub annotations: BTreeMap<String, String>,
    /// What is mounted into it.
    pub mounts: Vec<v1::Mount>,
    /// Where its log is.
    pub log_path: String,
    /// What it may use; absent where the runtime does not tell.
    pub resources: Option<v1::ContainerResources>,
    /// Who its first process is; absent where the runtime does not tell.
    pub user: Option<v1::ContainerUser>,
    /// The signal that asks it to stop.
    pub stop_signal: v1::Signal,
}

impl ContainerStatus {
    /// Whether the kernel ended it for want of memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.state == ContainerState::Exited && self.reason == "OOMKilled"
    }
}

/// Which containers to list: those for which all that is given here holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerFilter {
    /// Its ID, or the beginning of it.
    pub id: Option<String>,
    /// The ID of its sandbox, or the beginning of it.
    pub sandbox_id: Option<String>,
    pub state: Option<ContainerState>,
    pub labels: BTreeMap<String, String>,
}

/// What a command in a container left behind.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
    /// What it ended with.
    pub exit_code: i32,
}

/// The output may be a secret: its length is shown.
impl std::fmt::Debug for ExecOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecOutput")
            .field("stdout", &format_args!("{} bytes", self.stdout.len()))
            .field("stderr", &format_args!("{} bytes", self.stderr.len()))
            .field("exit_code", &self.exit_code)
            .finish()
    }
}

impl TryFrom<v1::Container> for Container {
    type Error = Malformed;

    fn try_from(container: v1::Container) -> Result<Container, Malformed> {
        let state = container.state();
        let metadata = required(container.metadata, "Container", "metadata")?;
        Ok(Container {
            id: container.id,
            sandbox_id: container.pod_sandbox_id,
            name: metadata.name,
            attempt: metadata.attempt,
            image: container.image.unwrap_or_default().image,
            image_ref: container.image_ref,
            image_id: container.image_id,
            state: state.into(),
            created_at: timestamp(container.created_at),
            labels: container.labels,
            annotations: container.annotations,
        })
    }
}

impl TryFrom<v1::ContainerStatus> for ContainerStatus {
    type Error = Malformed;

    fn try_from(status: v1::ContainerStatus) -> Result<ContainerStatus, Malformed> {
        let state = status.state();
        let stop_signal = status.stop_signal();
        let metadata = required(status.metadata, "ContainerStatus", "metadata")?;
        Ok(ContainerStatus {
            id: status.id,
            name: metadata.name,
            attempt: metadata.attempt,
            state: state.into(),
            created_at: timestamp(status.created_at),
            started_at: timestamp(status.started_at),
            finished_at: timestamp(status.finished_at),
            exit_code: status.exit_code,
            image: status.image.unwrap_or_default().image,
            image_ref: status.image_ref,
            image_id: status.image_id,
            reason: status.reason,
            message: status.message,
            labels: status.labels,
            annotations: status.annotations,
            mounts: status.mounts,
            log_path: status.log_path,
            resources: status.resources,
            user: status.user,
            stop_signal,
        })
    }
}

impl From<v1::ContainerState> for ContainerState {
    fn from(state: v1::ContainerState) -> ContainerState {
        match state {
            v1::ContainerState::ContainerCreated => ContainerState::Created,
            v1::ContainerState::ContainerRunning => ContainerState::Running,
            v1::ContainerState::ContainerExited => ContainerState::Exited,
            v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
        }
    }
}

impl From<ContainerState> for v1::ContainerState {
    fn from(state: ContainerState) -> v1::ContainerState {
        match state {
            ContainerState::Created => v1::ContainerState::ContainerCreated,
            ContainerState::Running => v1::ContainerState::ContainerRunning,
            ContainerState::Exited => v1::ContainerState::ContainerExited,
            ContainerState::Unknown => v1::ContainerState::ContainerUnknown,
        }
    }
}

impl From<ContainerFilter> for v1::ContainerFilter {
    fn from(filter: ContainerFilter) -> v1::ContainerFilter {
        v1::ContainerFilter {
            id: filter.id.unwrap_or_default(),
            pod_sandbox_id: filter.sandbox_id.unwrap_or_default(),
            state: filter
                .state
                .map(|state| v1::ContainerStateValue { state: v1::ContainerState::from(state).into() }),
            label_selector: filter.labels,
        }
    }
}

impl From<v1::ExecSyncResponse> for ExecOutput {
    fn from(response: v1::ExecSyncResponse) -> ExecOutput {
        ExecOutput { stdout: response.stdout, stderr: response.stderr, exit_code: response.exit_code }
    }
}
