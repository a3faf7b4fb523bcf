//! The agent's part in a cluster: what it hears from an API server, and what it tells it.
//!
//! ```text
//!   API server ──watch──► pod_source ──Feed──► agent: sources, pods, workers
//!        │                    └──► ServerMirrors ─┐              │ Statuses
//!        ◄──────patch, create, delete──── status_manager ◄───────┘
//!        ◄──────create, patch──────────── event_writer ◄──────── Recorder
//!        ◄──────create, patch, watch───── node ◄───────────────► LiveFacts, Readiness
//!        ◄──────patch, update──────────── csi_node ◄──────────── volumes: drivers
//!        ◄──────create, update─────────── lease
//!        ─watch, TokenRequest, PodCertificateRequest─► objects, tokens, pod_certificates ──Objects──► workers, volumes
//! ```
//!
//! Each is one task that owns what it knows. None of them waits for another, and no pod waits for any of them: with the
//! API server away, what runs goes on, and what is to be told waits in its slot. Where that is wanted, what the server
//! said is kept on disk ([`memory`]), so that an agent that begins while it is away can run pods before it answers.
//! What keeps the node from the server ([`NodeHeadline`]), and where it is learned what happens at the runtime
//! (`runtime_events`), is in the node's story.

mod csi_node;
pub mod event_writer;
mod join;
pub mod lease;
pub mod memory;
pub mod metrics;
pub mod node;
mod node_headline;
mod node_registration;
pub mod node_status;
pub mod objects;
mod pod_certificates;
mod pod_cidrs;
pub mod pod_source;
mod registry;
mod retry;
mod runtime_events;
mod runtime_patience;
mod service_accounts;
pub mod status_manager;
#[cfg(test)]
mod testing;
pub mod tokens;

pub use join::{Joining, join, node_identity};
pub use metrics::{Begun, Metrics};
pub use node_headline::NodeHeadline;
