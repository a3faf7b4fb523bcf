//! CSI, the protocol between a kubelet and the storage drivers on its node, and the registry by which they make
//! themselves known.
//!
//! - [`v1`] and [`registration`]: the messages and services, generated from our own statement of them in `proto/`.
//! - [`Node`]: what a kubelet asks of one driver, in plain types. [`Driver`] asks over the driver's socket; a simulator
//!   can answer without one.
//! - [`Error`]: why a call failed, in the words that events have, and whether the driver may still be at it.
//! - [`PluginRegistry`]: one task that watches `<root>/plugins_registry`, and a task for each socket in it, which
//!   tells its [`PluginHandler`] who came and who went.
//! - `stand_in` (feature `stand-in`): a driver to test with.

mod connection;
mod driver;
mod error;
mod node;
mod registry;
mod secret;
#[cfg(feature = "stand-in")]
pub mod stand_in;

pub use driver::Driver;
pub use error::{Error, Result};
pub use node::{
    Access, AccessMode, ExpandVolume, Node, NodeCapabilities, NodeInfo, PublishVolume, StageVolume, Usage,
    VolumeCapability, VolumeCondition, VolumeStats,
};
pub use registry::{Plugin, PluginHandler, PluginRegistry, PluginState, PluginType, Version};
/// What kind of error a driver answers with.
pub use tonic::Code;

/// The messages and services of CSI v1.
#[allow(clippy::all)]
pub mod v1 {
    tonic::include_proto!("csi.v1");
}

/// The messages and the service by which a plugin makes itself known.
#[allow(clippy::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// A descriptor of every message and service in here, as a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
