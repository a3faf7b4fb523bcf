//! Asking again while a server cannot answer, as upstream asks reviewers.

use std::time::Duration;

use crablet_client::Error;
use tokio::time::sleep;

const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The answer, or the last of the errors.
pub(super) async fn with_retries<A, F: Future<Output = Result<A, Error>>>(
    mut ask: impl FnMut() -> F,
) -> Result<A, Error> {
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
