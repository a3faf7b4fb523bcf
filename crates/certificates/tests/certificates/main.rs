//! The node's certificates against the embedded API server: within the process on paused time, and over TLS. The latter
//! against a real one as well, where `KUBEBUILDER_ASSETS` names a directory with `kube-apiserver` and `etcd`.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod bootstrap;
mod over_tls;
mod renewal;
mod serving;
mod world;

#[path = "../../../apiserver/tests/common/real.rs"]
mod real;
