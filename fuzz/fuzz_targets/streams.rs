//! Whatever a client and a runtime send, frames are the same however they are cut, and each side hears nothing but whole
//! frames: WebSocket v5 as SPDY, and SPDY in a WebSocket.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| crablet_streams::testing::check_streams(bytes));
