//! The client of an API server.
//!
//! - [`Transport`] is the seam: a request out, the head of an answer and a body that streams back. A simulated run has an
//!   API server within the process behind it.
//! - [`Client`]: objects instead of bytes. Everything has a deadline but watches. [`Limit`]: how many requests a second,
//!   and what goes first; heartbeats always go.
//! - [`Resource`]: where the objects of a kind are.
//! - [`Follower`]: what there is of a kind, and each change, for as long as somebody asks; resumed, begun anew, and at rest
//!   between tries.

mod backoff;
mod chance;
mod client;
mod error;
mod follow;
mod limits;
mod lines;
mod resource;
mod transport;

pub use chance::Chance;
pub use client::{Client, PatchType};
pub use error::Error;
pub use follow::{Event, Follower, Selection};
pub use limits::{Limit, Priority};
pub use resource::Resource;
pub use transport::{Body, Lane, Transport, TransportError};
