//! The node's certificates: what it shows to the API server, and what it serves with.
//!
//! ```text
//!   kubeconfigs ──► ClientCertificate::open ─┬─► Given: the kubeconfig is used as it is
//!                                            ├─► Bootstrap: one certificate is asked for, once
//!                                            └─► Manager ──┐
//!   node addresses ──► Manager::serving ───────────────────┤ a request at 70 to 90 % of a
//!                                                          ▼ certificate's life
//!   files ──► ServingFiles ──────────────► Identities (watch): who connects or serves takes the newest
//!                                          Progress (watch): how far it is, for people
//! ```
//!
//! - [`Identity`]: a certificate with its key. [`Identities`]: the one to use now.
//! - [`Store`]: upstream's files, `kubelet-client-current.pem` and the like.
//! - [`Manager`]: keeps one certificate valid, by requests to the API server.
//! - [`ClientCertificate`]: which way the node comes to its own, by upstream's rules for kubeconfigs.
//! - [`ServingFiles`], [`self_signed`]: serving certificates that nobody is asked for.

mod backoff;
mod bootstrap;
mod client_certificate;
mod identity;
mod manager;
mod metrics;
mod progress;
mod serving;
mod signing_request;
mod store;
mod template;

pub use bootstrap::Bootstrap;
pub use client_certificate::{ClientCertificate, ClientSettings, Credentials, OpenError};
pub use identity::{Identities, Identity, IdentityError};
pub use manager::{ClientFiles, Connect, ConnectError, Manager};
pub use metrics::Renewals;
pub use progress::{Progress, Stage, Trouble};
pub use serving::{ServingError, ServingFiles, self_signed};
pub use signing_request::RequestError;
pub use store::{Store, StoreError};
pub use template::{Signer, Template};
