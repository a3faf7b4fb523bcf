//! The runtime seam: everything the agent does to containers goes through here.
//!
//! - [`Runtime`]: the operations the agent uses. The agent holds an `Arc<dyn Runtime>`.
//! - [`Client`]: speaks CRI v1, over a unix socket to a real runtime or within the process to the simulated one.
//! - [`observer`]: what happens in a runtime, as one stream of events whose source may change (upstream's PLEG).

pub mod client;
mod error;
pub mod observer;
mod runtime;

pub use client::Client;
pub use error::{Error, Result};
pub use runtime::{CheckpointRuntime, Hint, HintKind, HintSource, ImagePull, Runtime};
