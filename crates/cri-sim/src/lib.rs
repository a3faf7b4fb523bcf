//! A simulated container runtime: CRI v1 in memory, which answers as containerd 1.6.20 does, follows tokio's time and
//! a seed alone, and fails on command.
//!
//! - [`Simulator`] is the handle: tests make one from [`Settings`], give its services to a client in the same process
//!   or [`serve`] them on a socket, and see and change what goes on.
//! - [`Fault`] says what goes wrong and when, [`Chaos`] how often by chance, [`Latencies`] how long calls take.
//! - [`Image`] and [`Program`] say what containers do; those without a program run the part of busybox that [`shell`]
//!   describes.
//!
//! ```text
//!   client ──► runtime_service, image_service, events_service: which call is what
//!                │
//!                ▼
//!              gate: record, what the runtime lacks, its death, latency, faults
//!                │
//!                ▼                                            ┌─ wake: one task, sleeps until
//!              World: all state, behind one lock ◄── advance ─┤  the next timer is due
//!                │  sandbox_calls, container_calls, …         └─ and every call does so first
//!                ▼
//!              Listeners: the two event streams
//! ```
//!
//! Every call runs in the task that makes it, and no lock is held while it waits: on paused time and one thread, the
//! same calls and the same seed give the same answers.

mod bell;
mod call;
mod container;
mod container_calls;
mod event;
mod event_filter;
mod events_service;
mod exec;
mod fault;
mod files;
mod gate;
mod image;
mod image_calls;
mod image_service;
mod latency;
mod life;
mod log_file;
mod mortal;
mod node_calls;
mod program;
mod random;
mod reference;
mod runtime_service;
mod sandbox;
mod sandbox_calls;
mod serve;
mod settings;
pub mod shell;
mod simulator;
mod stats;
mod stopping;
mod streams;
mod time;
mod world;

pub use call::{Asked, Call, Method};
pub use crablet_cri_api::CgroupDriver;
pub use fault::{Chaos, Fault, OnCall, OnEvent};
pub use image::Image;
pub use latency::{Latencies, Latency};
pub use program::{BadProgram, Program};
pub use serve::serve;
pub use settings::{Capabilities, Settings, StoppingTheMissing};
pub use simulator::{ContainerView, SandboxView, Simulator};
