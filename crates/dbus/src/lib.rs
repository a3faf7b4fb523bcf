//! A client of D-Bus: calls with their answers, and signals.
//!
//! ```text
//!   Bus ──── calls ────► driver ──── bytes ────► bus daemon
//!   Bus ◄── answers ──── driver ◄── bytes, file descriptors
//!   Signals ◄─────────── driver
//! ```
//!
//! [`connect`] gives all three. The driver is a future that its owner runs: nothing is spawned here. It ends when the
//! connection does, or when nobody holds a [`Bus`] or [`Signals`] of it any more; who needs the bus then connects again.
//!
//! - [`value`]: what messages are made of.
//! - `wire`: values as bytes.
//! - `message`: messages as bytes.
//! - `transport`: a unix socket on which file descriptors may come.
//! - `bus`: the connection.
//! - `stand_in`: a bus to test with (feature `stand-in`).

mod bus;
mod message;
#[cfg(feature = "stand-in")]
pub mod stand_in;
mod transport;
pub mod value;
mod wire;

pub use bus::{Bus, Call, Connection, Ended, Error, Signals, connect, connect_to_service, system_bus};
pub use message::{Body, Signal};
pub use value::Value;
