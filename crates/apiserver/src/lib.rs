//! The embedded API server: what one node and a person at `kubectl` need.
//!
//! - [`cluster`]: a request in, an answer out. No I/O, no clock: time and chance are arguments. It is a service within
//!   the process as it stands, which is how the simulator uses it.
//! - [`state`]: the objects, their versions and the changes of late; [`watch`]: following them.
//! - [`resources`]: the kinds, one line each; [`schema`]: their fields, as decoding, patches, protobuf and OpenAPI need
//!   them; [`rules`]: what a kind has of its own (defaults, validation, what an update may change); [`table`]: what
//!   `kubectl get` shows of it.
//! - [`admission`] and [`access`]: what is changed or refused because of other objects, and who may do what.
//! - [`controllers`]: what happens by itself. [`usage`]: what nodes and pods use, from what nodes say.
//! - [`signing`]: what the cluster's keys do, without the keys. [`authentication`]: who sent a request.
//! - [`request`], [`status`], [`selectors`], [`discovery`]: the words of the protocol.
//!
//! Around this core:
//!
//! - [`server`]: HTTPS. A request is authenticated, handled by the one [`cluster::Cluster`] behind a lock that nobody
//!   holds while waiting, and answered when the store says that what it tells is on disk.
//! - [`persistence`]: the store, with a thread that writes to it; what it has written goes out by a watch channel, which
//!   requests, watches and controllers wait on.
//! - [`pki`]: the certificate authority, certificates and keys, in files.

mod accept;
pub mod access;
pub mod admission;
pub mod answer;
pub mod authentication;
pub mod chance;
pub mod cluster;
pub mod controllers;
pub mod discovery;
pub mod event_conversion;
pub mod object;
pub mod persistence;
pub mod pki;
pub mod request;
pub mod resources;
pub mod rules;
pub mod schema;
pub mod selectors;
pub mod server;
pub mod signing;
pub mod state;
pub mod status;
pub mod table;
pub mod usage;
pub mod watch;
pub mod who;
