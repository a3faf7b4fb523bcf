//! What the agent asks of Linux.
//!
//! - [`cgroup`]: which version of cgroups the machine has.
//! - [`clock`]: the time of day, real or simulated.
//! - [`lock`]: files that say "this is mine" for as long as the process lives.
//! - [`swap`]: whether the machine swaps.

pub mod cgroup;
pub mod clock;
pub mod lock;
pub mod swap;
