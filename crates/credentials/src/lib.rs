//! Who may pull which image, and with what.
//!
//! ```text
//!   a pod's secrets ────────────┐
//!   docker's files on the node ─┼─► Keyring ──lookup──► credentials, the most fitting first
//!   credential providers ───────┘
//! ```
//!
//! - [`DockerConfig`]: credentials by registry, from docker's two formats.
//! - [`Keyring`]: which of them may do for an image; pure.
//!
//! Nothing here shows a password, or what may be one, in an error, a log or `Debug`.

mod credential;
mod docker_config;
mod keyring;
mod location;

pub use credential::{Coordinates, Credential, Source, TrackedCredential};
pub use docker_config::{BadDockerConfig, DockerConfig};
pub use keyring::Keyring;
pub use location::BadLocation;
