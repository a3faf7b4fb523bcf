//! What the node says of itself while it runs short of something.

use std::collections::BTreeSet;

use crablet_core::eviction::Condition;
use tokio::sync::watch;

/// The conditions that hold now. Clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Pressure(watch::Sender<BTreeSet<Condition>>);

impl Pressure {
    pub fn now(&self) -> BTreeSet<Condition> {
        self.0.borrow().clone()
    }

    /// Tells when others hold than before.
    pub fn subscribe(&self) -> watch::Receiver<BTreeSet<Condition>> {
        self.0.subscribe()
    }

    pub(crate) fn set(&self, conditions: &BTreeSet<Condition>) {
        self.0.send_if_modified(|now| {
            let is_other = now != conditions;
            if is_other {
                now.clone_from(conditions);
            }
            is_other
        });
    }
}
