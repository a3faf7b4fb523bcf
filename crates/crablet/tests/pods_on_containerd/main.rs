//! The whole agent on a real containerd: static pods from their manifests to their ends.
//!
//! Each test has a containerd and a node of its own, and many pods, because it is the waiting that takes long. What
//! happens inside containers is witnessed from inside: they speak to a listener of the test, whose ear keeps the order.
//!
//! - [`adoption`]: pods that another kubelet ran.
//! - [`cluster`]: a node in a cluster, with a real API server too where there is one ([`real`]).
//! - [`csi`]: claims, and a CSI driver that stands in for one.
//! - [`kinds_of_volumes`]: what pods find in each of them.
//! - [`lives`]: what a person expects of pods.
//! - [`kills`]: the same pods under an agent that is killed again and again.
//! - [`node_port`]: the node's API, for those who may.
//! - [`numbers`]: what pods use, as it is told on the node's ports.
//! - [`logs`]: what containers write, through rotations.
//! - [`probes`]: their probes and hooks, against servers in containers.
//! - [`resize`]: pods whose resources change while they run.
//! - [`service`]: a whole cluster in one process, and its pods as clients of the API server.
//! - [`streams`]: into containers with a real kubectl ([`program`]).
//! - [`swap`]: the Go kubelet and crablet in each other's place.
//! - [`volumes`]: what pods keep things in.
//! - [`world`]: what the tests stand on.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod adoption;
mod cluster;
mod csi;
mod kills;
mod kinds_of_volumes;
mod lives;
mod logs;
mod node_port;
mod numbers;
mod probes;
#[path = "../../../apiserver/tests/kubectl/program.rs"]
mod program;
#[path = "../../../apiserver/tests/common/real.rs"]
mod real;
mod resize;
mod service;
mod streams;
mod swap;
mod volumes;
mod world;
