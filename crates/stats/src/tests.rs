//! Whole answers: against what was recorded of the Go kubelet, on both versions of cgroups, and as others read them.

mod names;
mod readers;
mod recordings;
mod v2;
mod world;
