//! What the observer tells.

use std::fmt;
use std::sync::Arc;

use crablet_cri_api::ContainerStatus;
use jiff::Timestamp;

/// Something happened to a sandbox or a container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The pod's UID.
    pub pod_uid: Arc<str>,
    /// The ID of the sandbox or the container.
    pub id: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened, in upstream's words where it has one.
///
/// A container that was made and never started is known, but not told: upstream makes an event of it and drops it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// It runs.
    ContainerStarted,
    /// It ended, and how; `None` where it was gone before that could be read.
    ContainerDied(Option<Exit>),
    /// It is gone.
    ContainerRemoved,
    /// The runtime no longer knows its state.
    ContainerChanged,
    /// The kernel killed one of its processes for want of memory, and it lives on; or it died, and this was not known
    /// yet when that was told.
    ContainerOutOfMemory,
    /// The sandbox is ready.
    SandboxStarted,
    /// The sandbox is ready no more.
    SandboxStopped,
    /// The sandbox is gone.
    SandboxRemoved,
}

/// How a container ended, as CRI has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// What it ended with.
    pub exit_code: i32,
    /// One word on why: `Completed`, `Error`, `OOMKilled`, …
    pub reason: Box<str>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Whether the kernel killed one of its processes for want of memory.
    pub out_of_memory: bool,
}

impl Exit {
    /// How the container ended; memory is to blame if CRI says so, or if a hint did.
    pub(super) fn of(status: &ContainerStatus, out_of_memory: bool) -> Exit {
        Exit {
            exit_code: status.exit_code,
            reason: status.reason.as_str().into(),
            finished_at: status.finished_at,
            out_of_memory: out_of_memory || status.is_out_of_memory(),
        }
    }
}

impl EventKind {
    /// The name, as upstream writes it.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::ContainerStarted => "ContainerStarted",
            EventKind::ContainerDied(_) => "ContainerDied",
            EventKind::ContainerRemoved => "ContainerRemoved",
            EventKind::ContainerChanged => "ContainerChanged",
            EventKind::ContainerOutOfMemory => "ContainerOutOfMemory",
            EventKind::SandboxStarted => "SandboxStarted",
            EventKind::SandboxStopped => "SandboxStopped",
            EventKind::SandboxRemoved => "SandboxRemoved",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            EventKind::ContainerDied(Some(exit)) => {
                write!(f, " (exit code {}, {}", exit.exit_code, exit.reason)?;
                f.write_str(if exit.out_of_memory { ", out of memory)" } else { ")" })
            }
            EventKind::ContainerDied(None) => f.write_str(" (gone before its exit could be read)"),
            EventKind::ContainerStarted
            | EventKind::ContainerRemoved
            | EventKind::ContainerChanged
            | EventKind::ContainerOutOfMemory
            | EventKind::SandboxStarted
            | EventKind::SandboxStopped
            | EventKind::SandboxRemoved => Ok(()),
        }
    }
}
