//! The running node.
//!
//! What is here so far: [`runtime_socket`], which waits for the container runtime. The sources of pods, their
//! workers, and what observes the runtime join it here.

pub mod runtime_socket;
