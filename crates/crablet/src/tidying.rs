//! Giving back what is not needed any more.

use std::time::Duration;

use crablet_host::program_pages;
use crablet_logging::ErrorChain;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How long after the start, and how often from then on, code that is not needed any more is let go of.
const FIRST_TIDYING: Duration = Duration::from_secs(60);
const TIDYING: Duration = Duration::from_secs(120);

/// Lets go of code that was needed to start, and of what seldom happens, now and then.
pub(crate) async fn stay_small(stop: CancellationToken) {
    let mut next = FIRST_TIDYING;
    while stop.run_until_cancelled(tokio::time::sleep(next)).await.is_some() {
        next = TIDYING;
        match program_pages::let_go() {
            Ok(bytes) => debug!(bytes, "Let go of the pages of the program"),
            Err(error) => warn!(err = %ErrorChain(&error), "Cannot let go of the pages of the program"),
        }
    }
}
