//! The simulated runtime, as a client sees it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod answers;
mod events;
mod faults;
mod life;
mod scale;
mod served;
mod support;
