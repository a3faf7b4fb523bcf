//! Waits between tries.

use std::time::Duration;

use crablet_client::Error;

/// Waits that double, from the shortest to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Backoff {
        Backoff { shortest, longest, next: shortest }
    }

    /// How long to wait after something went wrong once more. A server that says how long is left alone for that.
    pub(crate) fn after(&mut self, error: &Error) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.longest);
        wait.max(error.retry_after().unwrap_or_default())
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.shortest;
    }
}
