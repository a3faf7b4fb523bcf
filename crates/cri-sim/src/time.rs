//! Wall-clock time that moves with tokio's.

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the wall-clock time of tokio's instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Timestamp,
    origin: Instant,
}

impl Clock {
    /// One that shows `start` now.
    pub(crate) fn starting_at(start: Timestamp) -> Clock {
        Clock { start, origin: Instant::now() }
    }

    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    pub(crate) fn timestamp(&self, at: Instant) -> Timestamp {
        self.start.checked_add(at.saturating_duration_since(self.origin)).unwrap_or(Timestamp::MAX)
    }

    /// As CRI has it: nanoseconds since 1970.
    pub(crate) fn nanoseconds(&self, at: Instant) -> i64 {
        i64::try_from(self.timestamp(at).as_nanosecond()).unwrap_or(i64::MAX)
    }
}
