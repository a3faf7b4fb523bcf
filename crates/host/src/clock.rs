//! Wall-clock time, as a value that is handed in.
//!
//! This is the only module that reads the real wall clock. Everything else takes a [`Clock`], so that a
//! simulated run sees the same times each time it is replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of wall-clock time. Cloning it is cheap, and clones agree with each other.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// What it showed when it was made.
    start: Timestamp,
    origin: Instant,
}

impl Clock {
    /// The machine's own clock.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    pub fn system() -> Clock {
        Clock { source: Source::System, start: Timestamp::now(), origin: Instant::now() }
    }

    /// A clock that shows `start` now and moves with tokio's time, which a test can pause and advance.
    pub fn simulated(start: Timestamp) -> Clock {
        Clock { source: Source::Simulated { set_by: Arc::default() }, start, origin: Instant::now() }
    }

    /// The time it is.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    pub fn now(&self) -> Timestamp {
        match &self.source {
            Source::System => Timestamp::now(),
            Source::Simulated { set_by } => {
                let set_by = SignedDuration::from_secs(set_by.load(Ordering::Relaxed));
                self.steady().saturating_add(set_by).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The time that it would be, had nobody set the clock since this one was made: what is reckoned from one such time
    /// to another has passed. It means nothing to another process.
    pub fn steady(&self) -> Timestamp {
        self.start.checked_add(self.origin.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// The next moment for what is done once in a while: the same one for all that have this clock and such an interval, so
    /// that the process wakes once for all of them.
    pub fn next_beat(&self, every: Duration) -> Instant {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let later = self.origin.elapsed() + Duration::from_millis(1);
        let due = milliseconds(later).checked_next_multiple_of(milliseconds(every));
        self.origin + due.map_or(every, Duration::from_millis)
    }

    /// What the wall clock shows at a steady time, should nobody set it before. It means something to other processes.
    pub fn wall_at(&self, steady: Timestamp) -> Timestamp {
        moved(self.now(), self.steady(), steady)
    }

    /// The steady time at which the wall clock shows a time, should nobody set it before.
    pub fn steady_at(&self, wall: Timestamp) -> Timestamp {
        moved(self.steady(), self.now(), wall)
    }

    /// Sets a simulated clock, and its clones, forward by so many seconds, or back. The machine's own clock is not ours
    /// to set.
    pub fn set_by(&self, seconds: i64) {
        match &self.source {
            Source::System => {}
            Source::Simulated { set_by } => {
                set_by.fetch_add(seconds, Ordering::Relaxed);
            }
        }
    }
}

/// The time that is as far from `now` as `time` is from `other_now`.
fn moved(now: Timestamp, other_now: Timestamp, time: Timestamp) -> Timestamp {
    let distance = time.duration_since(other_now);
    let end = if distance.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    now.checked_add(distance).unwrap_or(end)
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Simulated { set_by: Arc<AtomicI64> },
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn steady_time_passes_whatever_the_clock_is_set_to() {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        clock.clone().set_by(-3600);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now().to_string(), "2026-11-15T02:46:05Z");
        assert_eq!(clock.steady().to_string(), "2026-11-15T03:46:05Z");
        let in_a_minute = clock.steady() + SignedDuration::from_mins(1);
        assert_eq!(clock.wall_at(in_a_minute).to_string(), "2026-11-15T02:47:05Z");
        assert_eq!(clock.steady_at(clock.wall_at(in_a_minute)), in_a_minute);
        let (first, last) = (clock.wall_at(Timestamp::MIN), clock.steady_at(Timestamp::MAX));
        assert_eq!((first, last), (Timestamp::MIN, Timestamp::MAX), "there is nothing beyond");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_begins_when_waits_for_the_same_beat() {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        let began = Instant::now();
        let (ten, twenty) = (Duration::from_secs(10), Duration::from_secs(20));
        assert_eq!(clock.next_beat(ten), began + ten, "never at once");
        tokio::time::advance(Duration::from_millis(3_700)).await;
        assert_eq!(clock.clone().next_beat(ten), began + ten);
        tokio::time::advance(Duration::from_millis(6_300)).await;
        assert_eq!(clock.next_beat(ten), began + twenty, "who comes on a beat has had it");
        assert_eq!(clock.next_beat(twenty), began + twenty);
        assert!(clock.next_beat(Duration::ZERO) > Instant::now());
    }

    #[test]
    fn the_system_clock_never_goes_far_back() {
        let clock = Clock::system();
        let before: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(clock.now() > before);
    }
}
