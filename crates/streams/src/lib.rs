//! exec, attach and port-forward: streams between a client and the runtime's streaming server.
//!
//! - [`StreamRuntime`] gives the address for one stream; [`Streamer`] connects a client with it. What the runtime speaks
//!   passes as bytes. WebSocket v5 is translated ([`Streamer::translate`]), and SPDY in a WebSocket is unwrapped
//!   ([`Streamer::tunnel`]).
//! - Each stream is one task that owns both connections and ends with either, when nothing came for too long, or when
//!   the node stops; of the last two a client of WebSockets is told. There is a place for so many. Nothing is
//!   gathered: a stream holds two buffers of one size.
//! - `websocket` and `spdy` read and write frames, `translate` and `tunnel` say what they mean.

mod activity;
mod backend;
mod buffered;
mod pass;
mod request;
mod runtime;
mod spdy;
mod status;
mod streamer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod translate;
mod tunnel;
mod websocket;

pub use backend::BackendError;
pub use request::{is_tunnel, is_upgrade, is_v5, is_websocket};
pub use runtime::StreamRuntime;
pub use streamer::{Kept, StreamError, Streamer};
pub use translate::Wanted;
pub use websocket::BadHandshake;
