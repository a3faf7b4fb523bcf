//! Pure decisions. Functions from plain data to plain data: no I/O, no clock, no async, no logging.

/// What a pod and its containers are made from, in the runtime's terms.
pub mod translate;
