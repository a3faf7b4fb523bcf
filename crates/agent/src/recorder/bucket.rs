//! Token buckets: so many at once, and then one every so often.

use std::time::Duration;

use tokio::time::Instant;

/// How a bucket is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// How many tokens a full bucket has.
    pub(crate) burst: u32,
    /// How long it takes for a token to come.
    pub(crate) every: Duration,
}

/// A bucket, by the moment when it is full again: that is all there is to remember.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(crate) fn full(now: Instant) -> Bucket {
        Bucket { full_at: now }
    }

    /// Takes a token if there is one.
    pub(crate) fn try_take(&mut self, rate: Rate, now: Instant) -> bool {
        let there_is_one = self.wait(rate, now).is_zero();
        if there_is_one {
            self.full_at = self.full_at.max(now) + rate.every;
        }
        there_is_one
    }

    /// Takes a token that is there or that will come, and says when it may be used.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> Instant {
        let wait = self.wait(rate, now);
        self.full_at = self.full_at.max(now) + rate.every;
        now + wait
    }

    fn wait(&self, rate: Rate, now: Instant) -> Duration {
        let until_full = self.full_at.saturating_duration_since(now);
        until_full.saturating_sub(rate.every * rate.burst.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, every: Duration::from_secs(10) };

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut bucket = Bucket::full(start);
        let taken: Vec<u64> = (0..60)
            .flat_map(|second| [second; 2])
            .filter(|second| bucket.try_take(RATE, at(*second)))
            .collect();
        assert_eq!(taken, [0, 0, 1, 10, 20, 30, 40, 50]);
        assert!((0..3).all(|_| bucket.try_take(RATE, at(600))), "it is full again");
        assert!(!bucket.try_take(RATE, at(600)));
    }

    #[test]
    fn a_token_can_be_taken_before_it_comes() {
        let start = Instant::now();
        let mut bucket = Bucket::full(start);
        let waits: Vec<u64> =
            (0..6).map(|_| bucket.take(RATE, start).duration_since(start).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 10, 20, 30]);
    }
}
