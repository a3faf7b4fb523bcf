//! The whole agent on a simulated runtime and a simulated host, on paused time, with faults, all from one seed.
//!
//! ```text
//!   seed ──► run: acts by chance ──► World: sources, runtime, disk, cgroups, files, volumes; starts and kills agents
//!              │                        │
//!              │                        ▼ the agent's calls            the agent's steps
//!              │      WatchedRuntime, WatchedVolumes ──► Ledger ◄───── Crash (ends an agent at any of them)
//!              ▼                                           │
//!            Outcome ◄────────────── invariants ◄──────────┘
//! ```
//!
//! - [`run`](run::run) is a run from a seed: pods come, change and go, things fail, the agent is killed and started
//!   again; then all is quiet, and everything must be as wanted.
//! - The [`ledger`] knows what was wanted and promised; the [`invariants`] are checked against it at every call that
//!   changes something, and after every step of the agent.
//! - [`api_server`] is the embedded one, within the process; what lies between it and the agent breaks when told to.
//! - [`storage`] is what is behind claims: CSI drivers and what they mount, with the agent's real part between.
//! - [`room`] is what pods and others take of memory, disk and process IDs, and who tells the agent.
//! - [`lies`] are told to the agent where a run is to show that it finds broken promises.
//! - The same seed gives the same run, to the letter of its [`trace`].

pub mod api_server;
pub mod behaviour;
pub mod crash;
pub mod invariants;
pub mod ledger;
pub mod lies;
pub mod manifest;
pub mod random;
pub mod room;
pub mod run;
pub mod storage;
pub mod trace;
pub mod watched_runtime;
pub mod watched_volumes;
pub mod world;

mod acts;
mod at_server;
mod description;
mod faults;
mod incarnation;
mod leftovers;
