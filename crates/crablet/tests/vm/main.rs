//! What needs a machine of its own: one with systemd, cgroup v2, little memory and a small disk, whose node is set up as kubeadm
//! does it, by our package. `make vm` makes such a machine and runs these in it, one after the other.
//!
//! - [`hotplug`]: a machine that has something else than before.
//! - [`kubeadm`]: its configuration, as it is.
//! - [`pressure`]: pods that take more than there is, and what becomes of those beside them.
//! - [`resize`]: pods whose resources change while they run.
//! - [`shutdown`]: a node that is shut down.
//! - [`swap`]: a node that swaps.
//! - [`takeover`]: the Go kubelet and the agent in each other's place.
//! - [`node`]: what they stand on.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod hotplug;
mod kubeadm;
mod node;
mod pressure;
mod resize;
mod shutdown;
mod swap;
mod takeover;
