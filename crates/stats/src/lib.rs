//! What the node, its pods and their containers use: `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor`.
//!
//! Nothing runs while nobody asks. Who asks has everything read there and then ([`Stats`]): which pods run from the runtime
//! (`runtime`, `lister`), what they use from their cgroups and `/proc` in a thread of its own (`snapshot`, which reads with `cgroup`,
//! `proc` and `file_systems`), what they take on disk (`view`). Two samples make a rate (`rates`): the first is that of who
//! asked before, or is taken a moment earlier. One collected view becomes a summary (`summarize`, in the form of `summary`),
//! and that the metrics of `resource`; or, read more deeply, the page of `cadvisor`.
//!
//! What was collected is told again for a second, so that many who ask at once cost what one does, and is then let go. What
//! was read for one page serves the others that need no more. Only limits, which hardly ever change, and what cannot have
//! changed because no process ran, are told for longer (`known`).

mod bytes;
mod cadvisor;
mod cgroup;
mod directory;
mod file_systems;
mod known;
mod lister;
mod machine;
mod proc;
mod rates;
mod resource;
mod runtime;
mod snapshot;
mod stats;
mod summarize;
mod summary;
#[cfg(test)]
mod tests;
mod view;

pub use runtime::RuntimeStats;
pub use stats::{CACHED_FOR, Parts, Settings, Stats, StatsError, VolumeMeter};
