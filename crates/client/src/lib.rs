//! The client of an API server.
//!
//! - [`Transport`] is the seam: a request out, the head of an answer and a body that streams back. A simulated run has an
//!   API server within the process behind it.
//! - [`Client`]: objects instead of bytes. Everything has a deadline but watches. [`Limit`]: how many requests a second,
//!   and what goes first; heartbeats always go.
//! - [`Resource`]: where the objects of a kind are.
//! - [`Follower`]: what there is of a kind, and each change, for as long as somebody asks; resumed, begun anew, and at rest
//!   between tries.
//! - [`Https`]: the way to a real server, by what a [`Kubeconfig`] says. `connection`: HTTP/2 with many requests side by
//!   side, or HTTP/1.1; `tls`: certificates that change; `authorization` and `exec`: tokens, in files or from programs;
//!   `proxy`. [`Counted`]: with what goes there counted.

mod authorization;
mod backoff;
mod bootstrapped;
mod client;
mod connection;
mod counted;
mod endpoint;
mod error;
mod exec;
mod follow;
mod gathered;
mod https;
mod kubeconfig;
mod limits;
mod lines;
mod proxy;
mod resource;
mod secret;
mod tls;
mod transport;

pub use authorization::AuthorizationError;
pub use bootstrapped::{WriteKubeconfigError, bootstrapped, write_bootstrapped};
pub use client::{Client, PatchType};
pub use counted::{Counted, Requests};
pub use crablet_host::chance::Chance;
pub use error::Error;
pub use exec::ExecError;
pub use follow::{Event, Follower, Selection};
pub use https::{Https, HttpsError};
pub use kubeconfig::{
    Basic, ClientCertificate, Cluster, Exec, ExecVersion, Kubeconfig, KubeconfigError, Pem, User,
};
pub use limits::{Limit, Priority};
pub use proxy::ProxyEnvironment;
pub use resource::Resource;
pub use secret::Secret;
pub use tls::TlsError;
pub use transport::{Body, Lane, Transport, TransportError};
