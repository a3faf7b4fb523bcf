//! The running node
