//! The links to logs, by which log collectors find them.
//!
//! Each goes with its container, by its name. One is left where the runtime forgot a container before its pod went.
//! Those are looked for after pods have gone, and not for each of them: the links of all containers of the node are in
//! one directory.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use crate::pod_files::PodFiles;

/// How long after a pod has gone, or a try that failed: upstream looks each minute.
const AFTER: Duration = Duration::from_secs(60);

/// Who removes links that nobody else has removed.
#[derive(Default)]
pub(crate) struct LogLinks(Notify);

impl LogLinks {
    pub(crate) fn pod_is_gone(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn run(self: Arc<LogLinks>, files: Arc<dyn PodFiles>) {
        loop {
            match files.remove_dead_links().await {
                Ok(()) => self.0.notified().await,
                Err(error) => warn!(%error, "Cannot remove links to logs that are gone; trying again"),
            }
            sleep(AFTER).await;
        }
    }
}
