//! What the agent asks of Linux.
//!
//! - [`cgroup`]: the control groups of pods, behind the trait [`cgroup::Cgroups`].
//! - [`checkpoint`]: small records that outlive the agent, behind the trait [`checkpoint::Checkpoints`].
//! - [`chance`]: numbers from a seed.
//! - [`clock`]: the time of day, real or simulated.
//! - [`files`]: reading what others wrote within bounds, and writing all or nothing.
//! - [`interfaces`]: the addresses of the machine, and that they change.
//! - [`keep_alive`]: finding out that the other end of a connection is gone.
//! - [`lanes`]: one piece of work at a time for each pod.
//! - [`lock`]: files that say "this is mine" for as long as the process lives.
//! - [`loop_device`]: a file, or another device, once more as a device.
//! - [`loopback`]: further addresses of the loopback interface.
//! - [`machine`]: what the machine is and has.
//! - [`mounts`]: what is mounted where, and mounting.
//! - [`program_pages`]: how much of the program itself is in memory.
//! - `simulation`: what goes wrong with simulated parts, when told to.
//! - [`sub_ids`]: which user IDs the machine sets aside for somebody.
//! - [`swap`]: whether the machine swaps.
//! - [`watch`]: learning that a file or directory changed.

pub mod cgroup;
pub mod chance;
pub mod checkpoint;
pub mod clock;
pub mod files;
pub mod interfaces;
pub mod keep_alive;
pub mod lanes;
pub mod lock;
pub mod loop_device;
pub mod loopback;
pub mod machine;
pub mod mounts;
pub mod program_pages;
pub mod selinux;
mod shared_sync;
#[cfg(any(test, feature = "simulated"))]
pub mod simulation;
pub mod sub_ids;
pub mod swap;
pub mod watch;
