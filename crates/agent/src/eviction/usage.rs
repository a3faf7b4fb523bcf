//! Who knows what pods use. Nobody is asked while nothing runs short.

use std::collections::BTreeSet;

use async_trait::async_trait;
use crablet_core::eviction::{Resource, Usages};

/// Reads what pods use, there and then.
#[async_trait]
pub trait UsageMeter: Send + Sync {
    /// What all pods that run use of something, and of what else is read with it. Nothing where that cannot be told.
    async fn of_all(&self, resource: Resource) -> Option<Usages>;

    /// What these pods take on the node's own disk.
    async fn on_disk(&self, uids: &BTreeSet<String>) -> Option<Usages>;
}
