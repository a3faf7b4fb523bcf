//! What a worker knows of the starts of its containers: how long the next one waits, and why one has not come about.

use std::collections::BTreeMap;

use crablet_api::Text;
use crablet_core::backoff::{Limits, Restarts};
use crablet_core::status::StartError;
use jiff::Timestamp;

/// What is known of starts.
pub(super) struct Starts {
    /// The waits before restarts.
    pub(super) restarts: Restarts,
    /// Whether what the runtime remembers was asked for these waits.
    pub(super) recovered: bool,
    /// The containers that were stopped to be started anew, by the runtime's names, until they are; and until when they
    /// will have stopped. One that runs on after that was not stopped after all.
    pub(super) replaced: BTreeMap<String, Timestamp>,
    /// Why containers could not be started.
    pub(super) errors: BTreeMap<Text, StartError>,
    /// The containers that wait before their restart, and what is said of that.
    pub(super) held_back: BTreeMap<Text, Text>,
    /// Whether something was made that no look has seen yet.
    pub(super) unseen: bool,
}

impl Starts {
    /// Nothing was started yet.
    pub(super) fn new(limits: Limits) -> Starts {
        Starts {
            restarts: Restarts::new(limits),
            recovered: false,
            replaced: BTreeMap::new(),
            errors: BTreeMap::new(),
            held_back: BTreeMap::new(),
            unseen: false,
        }
    }
}
