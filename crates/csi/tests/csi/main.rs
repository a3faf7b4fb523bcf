//! A node and its drivers over real sockets, with the stand-in.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod driver;
mod local_volumes;
mod refused;
mod registry;
mod support;
