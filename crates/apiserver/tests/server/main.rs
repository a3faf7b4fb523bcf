//! The server over TLS, with a client that can do what no decent one does.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod client;
mod credentials;
mod kills;
mod limits;
mod node;
mod running;
mod watches;

#[path = "../common/stand_in.rs"]
mod stand_in;
