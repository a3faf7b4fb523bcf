//! What the agent asks of Linux.
//!
//! - [`cgroup`]: the control groups of pods, behind the trait [`cgroup::Cgroups`].
//! - [`checkpoint`]: small records that outlive the agent, behind the trait [`checkpoint::Checkpoints`].
//! - [`chance`]: numbers from a seed.
//! - [`clock`]: the time of day, real or simulated.
//! - [`files`]: reading what others wrote within bounds, and writing all or nothing.
//! - [`hotplug`]: learning that processors or memory were plugged in or out.
//! - [`interfaces`]: the addresses of the machine, and that they change.
//! - [`keep_alive`]: finding out that the other end of a connection is gone.
//! - [`kernel_log`]: what the kernel says.
//! - [`kernel_tunables`]: how the kernel should be set.
//! - [`lanes`]: one piece of work at a time for each pod.
//! - [`lock`]: files that say "this is mine" for as long as the process lives.
//! - [`logind`]: who tells that the machine is about to be shut down, behind the trait [`logind::Logind`].
//! - [`loop_device`]: a file, or another device, once more as a device.
//! - [`loopback`]: further addresses of the loopback interface.
//! - [`machine`]: what the machine is and has.
//! - [`mounts`]: what is mounted where, and mounting.
//! - [`program_pages`]: how much of the program itself is in memory.
//! - [`selinux`]: whether the machine has SELinux, and its labels.
//! - [`signals`]: what is left of what the machine can run short of.
//! - `simulation`: what goes wrong with simulated parts, when told to.
//! - [`state_file`]: one small file that outlives the agent.
//! - [`sub_ids`]: which user IDs the machine sets aside for somebody.
//! - [`swap`]: whether the machine swaps.
//! - [`watch`]: learning that a file or directory changed.

pub mod cgroup;
pub mod chance;
pub mod checkpoint;
pub mod clock;
pub mod files;
pub mod hotplug;
pub mod interfaces;
pub mod keep_alive;
pub mod kernel_log;
pub mod kernel_tunables;
pub mod lanes;
pub mod lock;
pub mod logind;
pub mod loop_device;
pub mod loopback;
pub mod machine;
pub mod mounts;
pub mod program_pages;
pub mod selinux;
mod shared_sync;
pub mod signals;
#[cfg(any(test, feature = "simulated"))]
pub mod simulation;
pub mod state_file;
pub mod sub_ids;
pub mod swap;
#[cfg(test)]
mod testing;
pub mod watch;
