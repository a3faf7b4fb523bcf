//! CRI v1, the protocol between a kubelet and a container runtime.
//!
//! - [`v1`]: the messages and services, generated from our own statement of the protocol in `proto/runtime`.
//! - [`containerd`]: containerd's own event stream, generated from `proto/containerd`.
//! - At the root: what a runtime answers in plain types, where the messages are awkward (states as numbers, times as
//!   nanoseconds, metadata that may be absent). Each is made from its message and refuses what makes no sense.

mod container;
mod image;
mod malformed;
mod node;
mod sandbox;
mod secret;
mod time;

pub use container::{Container, ContainerFilter, ContainerState, ContainerStatus, ExecOutput};
pub use crablet_cgroup_names::CgroupDriver;
pub use image::{Image, ImageUser};
pub use malformed::Malformed;
pub use node::{Condition, RuntimeStatus, Version};
pub use sandbox::{NetworkNamespace, Sandbox, SandboxFilter, SandboxMetadata, SandboxState, SandboxStatus};

/// The messages and services of CRI v1.
#[allow(clippy::all)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// What crablet uses of containerd's own interface.
#[allow(clippy::all)]
pub mod containerd {
    /// The events that say something about a container's state.
    pub mod events {
        tonic::include_proto!("containerd.events");
    }

    /// The service that streams them.
    pub mod services {
        tonic::include_proto!("containerd.services.events.v1");
    }

    /// The service of containers' processes.
    pub mod tasks {
        tonic::include_proto!("containerd.services.tasks.v1");
    }
}

/// A descriptor of every message and service in here, as a `FileDescriptorSet`: what a client in another language
/// needs to speak to a server of ours.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
