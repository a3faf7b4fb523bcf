//! The running node.
//!
//! ```text
//!   sources ──Change──► Pods ──Input──► Mailbox ──► Worker, one task per pod
//!                        ▲                            │ looks, decides by core, acts
//!   runtime ──► Observer ┘ Event                      ├──► runtime, cgroups, files, volumes, images
//!                                                     ├──► Statuses, CheckpointWriter (checkpoints)
//!                                                     └──► Recorder, Stories
//! ```
//!
//! [`agent`] puts them together. The [`tasks`], and what feeds them:
//!
//! - each of the [`sources`] gives what it wants; their merge gives [`sources::Changes`];
//! - [`pods`] takes changes and the observer's events, and tells the worker of the pod that they are about;
//! - `roll_call` tells [`admission`] who runs when the agent begins, and ends;
//! - `qos_cgroups` has burstable pods weigh what those ask for that [`admission`] has taken;
//! - a worker hears its [`mailbox`], looks ([`observe`]), and acts;
//! - [`images`] are pulled by a task each, however many pods wait for one;
//! - [`prober`] asks the containers of all pods how they are, and tells their workers' mailboxes;
//! - [`checkpoints`] writes what workers want to survive the agent;
//! - [`readiness`] asks the runtime how it is;
//! - [`node_addresses`] follows what the node is reached by, and [`iptables`] keeps the chains that others look for.
//!
//! What belongs to several pods has one owner each: [`admission`], [`images`], [`node_facts`], [`turns`],
//! [`users`]. What others may read of it:
//! [`statuses`] (every pod with its status), [`story`] (why it is as it is), [`recorder`] (events).

pub mod admission;
pub mod adoption;
pub mod agent;
pub mod checkpoints;
mod container_gc;
pub mod images;
pub mod iptables;
mod log_tail;
pub mod mailbox;
mod metrics;
pub mod node_addresses;
pub mod node_config;
pub mod node_facts;
pub mod objects;
pub mod observe;
mod orphan;
#[doc(hidden)]
pub mod pod_files;
mod pod_span;
pub mod pods;
pub mod prober;
mod qos_cgroups;
pub mod readiness;
pub mod recorder;
pub mod restored;
mod roll_call;
pub mod shared;
pub mod sources;
pub mod statuses;
pub mod story;
pub mod tasks;
pub mod turns;
pub mod users;
mod worker;

pub use worker::Checkpoint;
