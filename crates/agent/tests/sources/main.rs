//! The sources of pods with real files, a real kernel to watch them, and a real web server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test it is the assertion")]

mod bad_manifests;
mod files;
mod push;
mod support;
mod url;
