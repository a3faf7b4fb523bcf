//! The runtime seam: everything the agent does to containers goes through here.
//!
//! - [`Runtime`]: the operations the agent uses. The agent holds an `Arc<dyn Runtime>`.
//! - [`Client`]: speaks CRI v1, over a unix socket to a real runtime or within the process to the simulated one.
//! - [`observer`]: what happens in a runtime, as one stream of events whose source may change (upstream's PLEG).
//! - [`sim`]: the simulated runtime, and serving it on a socket.
//! - [`lenient_authority`]: lets a server of ours speak with clients that dial a socket by its path.

pub mod client;
mod error;
pub mod lenient_authority;
pub mod observer;
mod runtime;
pub mod sim;

pub use client::Client;
pub use error::{Error, Result};
pub use runtime::{Hint, HintKind, HintSource, ImagePull, Runtime};
