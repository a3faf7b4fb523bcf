//! What a worker knows of the starts of its containers: how long the next one waits, and why one has not come about.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use crablet_core::backoff::{Limits, Restarts};
use crablet_core::status::StartError;

/// What is known of starts.
pub(super) struct Starts {
    /// The waits before restarts.
    pub(super) restarts: Restarts,
    /// Whether what the runtime remembers was asked for these waits.
    pub(super) recovered: bool,
    /// The containers that were stopped to be started anew, by the runtime's names, until they are.
    pub(super) replaced: BTreeSet<String>,
    /// Why containers could not be started.
    pub(super) errors: BTreeMap<Text, StartError>,
    /// The containers that wait before their restart, and what is said of that.
    pub(super) held_back: BTreeMap<Text, Text>,
}

impl Starts {
    /// Nothing was started yet.
    pub(super) fn new(limits: Limits) -> Starts {
        Starts {
            restarts: Restarts::new(limits),
            recovered: false,
            replaced: BTreeSet::new(),
            errors: BTreeMap::new(),
            held_back: BTreeMap::new(),
        }
    }
}
