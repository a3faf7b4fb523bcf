//! What pods take of the disk that may take no more than so much. They are measured beside everything else: however long
//! that takes, it holds up no look at memory.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crablet_core::eviction::{LONGEST_WAIT, Usages};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::UsageMeter;

/// Now and then.
pub(super) struct DiskUse {
    due: Instant,
    measuring: Option<BoxFuture<'static, Option<Usages>>>,
}

impl DiskUse {
    pub(super) fn new() -> DiskUse {
        DiskUse { due: Instant::now(), measuring: None }
    }

    /// When pods are to be measured again; nothing while they are.
    pub(super) fn due(&self) -> Option<Instant> {
        self.measuring.is_none().then_some(self.due)
    }

    pub(super) fn is_measuring(&self) -> bool {
        self.measuring.is_some()
    }

    /// Begins to measure pods, which may take so long. Where there are none, it is done.
    pub(super) fn measure(&mut self, meter: &Arc<dyn UsageMeter>, uids: BTreeSet<String>, most: Duration) {
        if uids.is_empty() {
            self.due = Instant::now() + LONGEST_WAIT;
            return;
        }
        let meter = Arc::clone(meter);
        let measured = async move { timeout(most, meter.on_disk(&uids)).await.ok().flatten() };
        self.measuring = Some(measured.boxed());
    }

    /// Completes when pods were measured, if they are. Dropping the future loses nothing.
    pub(super) async fn measured(&mut self) -> Option<Usages> {
        let Some(measuring) = &mut self.measuring else { return pending().await };
        let usages = measuring.await;
        *self = DiskUse { due: Instant::now() + LONGEST_WAIT, measuring: None };
        usages
    }
}
