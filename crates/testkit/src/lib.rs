//! What tests on real parts stand on: a private containerd, images built offline, and waiting for conditions.
//!
//! [`Containerd::start`] claims a *run*: a number no other live process holds, and with it a directory
//! (`/run/crablet-test/<number>`), a bridge, a subnet and a cgroup that are that run's alone. A lock file says whether a
//! run's owner lives, and the kernel drops the lock when the owner dies, however it dies. So every start first removes
//! what dead runs left behind, and dropping a [`Containerd`] removes its own.
//!
//! ```text
//!   Containerd ── Run (lock, names) ── cleanup: processes, mounts, links, cgroups, rules, files
//!       │
//!       ├── Daemon: a thread that spawns the process, and waits for it
//!       ├── configuration: containerd's and CNI's files, for containerd 1.6 up to 2.x
//!       └── Image: files and a configuration, packed as an OCI archive and imported with ctr
//! ```
//!
//! A [`Node`] is what an agent under test runs on: a configuration, a directory of manifests, and a cgroup.

mod cleanup;
mod configuration;
mod containerd;
mod daemon;
mod image;
mod node;
mod processes;
mod programs;
mod run;
mod wait;

pub use containerd::Containerd;
pub use daemon::Daemon;
pub use image::Image;
pub use node::{Node, unmount_below};
pub use wait::eventually;
