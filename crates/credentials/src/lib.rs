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
//! - [`NodeConfig`]: docker's files on the node.
//! - [`Providers`]: programs that are asked, and what they said; [`load_providers`] reads which there are.
//! - [`ServiceAccounts`]: who gets tokens that providers trade for credentials.
//! - [`Credentials`]: all of that, for the images of a pod.
//! - [`PullRecords`]: who pulled which image, and so may use it; in upstream's files.
//!
//! Nothing here shows a password, or what may be one, in an error, a log or `Debug`.

mod credential;
mod credentials;
mod docker_config;
mod exec;
mod keyring;
mod location;
mod metrics;
mod node_config;
mod policy;
mod provider_config;
mod providers;
mod record;
mod records;
mod service_accounts;

pub use credential::{Coordinates, Credential, Source, TrackedCredential};
pub use credentials::{BadSecret, Credentials, PodCredentials};
pub use docker_config::{BadDockerConfig, DockerConfig};
pub use keyring::Keyring;
pub use location::BadLocation;
pub use node_config::NodeConfig;
pub use policy::VerificationPolicy;
pub use provider_config::{
    ExecEnvVar, LoadedProviders, ProviderConfig, TokenAttributes, TokenCacheType, load_providers,
};
pub use providers::Providers;
pub use records::PullRecords;
pub use service_accounts::{ServiceAccount, ServiceAccountError, ServiceAccounts, WantedToken};
