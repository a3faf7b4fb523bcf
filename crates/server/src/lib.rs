//! The endpoints of the node: health, read-only and administration.
//!
//! - [`Health`] holds the named checks; [`healthz_router`] serves them and nothing else.
//! - [`read_only_router`] adds the metrics and the pods, for the read-only port.
//! - [`node_router`] is the node's main port, for those who may: [`Access`] asks the API server who does. [`tls_config`]
//!   is what it is served with.
//! - [`admin_router`] is for an administrator: the log and the configuration of a running agent, taking pods in and
//!   letting them go, and why they are as they are. It is served on a unix socket that only the agent's own user can
//!   open: [`bind_admin_socket`] makes it, [`request`] talks to it.
//! - [`container_logs_router`] gives what containers wrote, [`node_logs_router`] the node's own logs.
//! - [`streams_router`] leads into containers: exec, attach, port-forward and run.
//! - [`Numbers`] answer what the node and its pods use.
//! - [`NodeHandles`] is what they read of the node.
//! - [`serve`] runs any of them: one task accepts, and each connection has a task of its own, which ends with the
//!   connection. Connections, their lifetime and the time they get to finish are bounded.

mod accept;
mod access;
mod admin;
mod admin_client;
mod admin_socket;
mod checkpoint;
mod container_logs;
mod explain;
mod health;
mod http_metrics;
mod manifests;
mod node;
mod node_logs;
mod node_port;
mod numbers;
mod page;
mod pod_log_options;
mod pods;
mod query;
mod ranges;
mod read_only;
mod respond;
mod running_pods;
mod serve;
mod streams;
#[cfg(test)]
mod testing;
mod tls;
mod zpages;

pub use access::{Access, AccessError, AccessSettings, Authorities, Lasts};
pub use admin::admin_router;
pub use admin_client::{RequestError, request, request_within};
pub use admin_socket::{BindError, bind_admin_socket};
pub use axum::Router;
pub use axum::http::{Method, StatusCode};
pub use checkpoint::ContainerCheckpoints;
pub use container_logs::{ContainerLogs, container_logs_router};
pub use health::{Health, healthz_router};
pub use node::{NodeHandles, Stage};
pub use node_logs::{NodeLogSettings, node_logs_router};
pub use node_port::{Debugging, NodePort, node_router};
pub use numbers::Numbers;
pub use read_only::read_only_router;
pub use serve::{serve, serve_tls};
pub use streams::{StreamMetrics, Streams, streams_router};
pub use tls::{TlsError, TlsSettings, tls_config};
pub use zpages::{Flags, Status};
