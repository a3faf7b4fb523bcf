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
//! - [`admission`] reads the node once more where only its labels speak against a pod;
//! - [`node_cgroups`] keeps the cgroups above those of pods: held to what is theirs, and weighed by what [`admission`] has
//!   taken;
//! - [`eviction`] looks at what is left of memory, disk and process IDs, and has [`pods`] end one that has to go;
//! - `image_gc` removes images that nobody uses, and `container_gc` says which containers that ended go;
//! - a worker hears its [`mailbox`], looks ([`observe`]), and acts;
//! - [`images`] are pulled by a task each, however many pods wait for one;
//! - `oom_watcher` reads in the kernel's log which processes it ended;
//! - [`prober`] asks the containers of all pods how they are, and tells their workers' mailboxes;
//! - [`checkpoints`] writes what workers want to survive the agent, and [`allocations`] what pods have;
//! - `state_disk` tells when what has to be remembered cannot be written down;
//! - `log_links` removes links to logs that are left of pods;
//! - [`sync_loop`] asks whether the task that owns the pods still goes round;
//! - [`readiness`] asks the runtime how it is;
//! - [`shutdown`] ends pods in their order when the machine is about to be shut down;
//! - [`sizes`] follows what the machine has;
//! - [`node_addresses`] follows what the node is reached by, and [`iptables`] keeps the chains that others look for.
//!
//! What belongs to several pods has one owner each: [`admission`] (with resizes), [`images`], [`node_facts`], [`turns`],
//! [`users`]. What others may read of it:
//! [`statuses`] (every pod with its status), [`story`] (why it is as it is), [`recorder`] (events).

pub mod admission;
pub mod adoption;
pub mod agent;
pub mod allocations;
pub mod checkpoints;
mod container_gc;
pub mod eviction;
mod image_gc;
pub mod images;
pub mod iptables;
mod log_links;
pub mod mailbox;
mod metrics;
pub mod mirrors;
pub mod node_addresses;
pub mod node_cgroups;
pub mod node_config;
pub mod node_facts;
pub mod objects;
pub mod observe;
mod oom_watcher;
mod orphan;
#[doc(hidden)]
pub mod pod_files;
mod pod_span;
pub mod pods;
pub mod prober;
pub mod readiness;
pub mod recorder;
pub mod restored;
mod roll_call;
pub mod shared;
pub mod shutdown;
pub mod sizes;
pub mod sources;
mod state_disk;
pub mod statuses;
pub mod story;
pub mod sync_loop;
pub mod tasks;
pub mod turns;
pub mod users;
mod worker;

pub use worker::Checkpoint;
