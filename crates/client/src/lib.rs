//! The client of an API server.
//!
//! - [`Transport`] is the seam: a request out, the head of an answer and a body that streams back. A simulated run has an
//!   API server within the process behind it.
//! - [`Client`]: objects instead of bytes. Everything has a deadline but watches.
//! - [`Resource`]: where the objects of a kind are.

mod client;
mod error;
mod resource;
mod transport;

pub use client::{Client, PatchType};
pub use error::Error;
pub use resource::Resource;
pub use transport::{Body, Lane, Transport, TransportError};
