//! Wall-clock time, as a value that is handed in.
//!
//! This is the only module that reads the real wall clock. Everything else takes a [`Clock`], so that a
//! simulated run sees the same times each time it is replayed.

use jiff::Timestamp;
use tokio::time::Instant;

/// A source of wall-clock time. Cloning it is cheap, and clones agree with each other.
#[derive(Clone, Debug)]
pub struct Clock(Source);

impl Clock {
    /// The machine's own clock.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that shows `start` now and moves with tokio's time, which a test can pause and advance.
    pub fn simulated(start: Timestamp) -> Clock {
        Clock(Source::Simulated { start, origin: Instant::now() })
    }

    /// The time it is.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::System => Timestamp::now(),
            Source::Simulated { start, origin } => {
                start.checked_add(origin.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Simulated { start: Timestamp, origin: Instant },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_only_with_tokio_time() {
        let start: Timestamp = "2026-11-15T03:46:00Z".parse().unwrap();
        let clock = Clock::simulated(start);
        let clone = clock.clone();
        assert_eq!(clock.now(), start);
        tokio::time::advance(Duration::from_millis(90_500)).await;
        assert_eq!(clock.now().to_string(), "2026-11-15T03:47:30.5Z");
        assert_eq!(clone.now(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_stops_at_the_end_of_time() {
        let clock = Clock::simulated(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[test]
    fn the_system_clock_never_goes_far_back() {
        let clock = Clock::system();
        let before: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(clock.now() > before);
    }
}
