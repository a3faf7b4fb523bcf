//! Asking again while a server cannot answer, as upstream asks reviewers.

use std::time::Duration;

use crablet_client::Error;
use tokio::time::{Instant, sleep};

use super::metrics::ReviewMetrics;

const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The answer, or the last of the errors.
pub(super) async fn with_retries<A, F: Future<Output = Result<A, Error>>>(
    metrics: Option<&ReviewMetrics>,
    mut ask: impl FnMut() -> F,
) -> Result<A, Error> {
    let mut ask = async || {
        let begun = Instant::now();
        let answer = ask().await;
        if let Some(metrics) = metrics {
            metrics.asked(&answer, begun.elapsed());
        }
        answer
    };
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIES {
        match ask().await {
            Err(Error::Transport(_)) => {}
            Err(error) if error.is_passing() => {}
            done => return done,
        }
        sleep(wait).await;
        wait = wait * 3 / 2;
    }
    ask().await
}
