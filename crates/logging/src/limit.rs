//! How many lines a second may be logged.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use tracing::Level;

/// Lines a second that each severity below error may log for long.
pub(crate) const LINES_PER_SECOND: u32 = 1_000;
/// Lines that each severity below error may log at once.
pub(crate) const BURST: u32 = 5_000;

/// Admits lines at a bounded rate. Warnings have a share of their own, so that chatter cannot crowd them out,
/// and errors always pass.
pub(crate) struct Limiter(Mutex<State>);

impl Limiter {
    pub(crate) fn new() -> Limiter {
        let now = Instant::now();
        Limiter(Mutex::new(State {
            chatter: Bucket { tokens: f64::from(BURST), filled: now },
            warnings: Bucket { tokens: f64::from(BURST), filled: now },
            dropped: 0,
        }))
    }

    /// Whether a line of this level may be logged now, and if so, how many were dropped since the last that was.
    pub(crate) fn admit(&self, level: Level, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = match level {
            Level::ERROR => true,
            Level::WARN => state.warnings.take(now),
            _ => state.chatter.take(now),
        };
        if !admitted {
            state.dropped += 1;
            return None;
        }
        Some(std::mem::take(&mut state.dropped))
    }
}

struct State {
    chatter: Bucket,
    warnings: Bucket,
    dropped: u64,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * f64::from(LINES_PER_SECOND);
        self.tokens = (self.tokens + gained).min(f64::from(BURST));
        self.filled = now;
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn admitted(limiter: &Limiter, level: Level, lines: u32, now: Instant) -> usize {
        (0..lines).filter(|_| limiter.admit(level, now).is_some()).count()
    }

    #[test]
    fn a_burst_passes_and_what_is_over_it_does_not() {
        let limiter = Limiter::new();
        let now = Instant::now();
        assert_eq!(admitted(&limiter, Level::INFO, BURST + 700, now), BURST as usize);
        let later = now + Duration::from_secs(1);
        assert_eq!(limiter.admit(Level::INFO, later), Some(700));
        assert_eq!(
            admitted(&limiter, Level::INFO, 2 * LINES_PER_SECOND, later),
            LINES_PER_SECOND as usize - 1
        );
    }

    #[test]
    fn chatter_leaves_room_for_warnings_and_errors_always_pass() {
        let limiter = Limiter::new();
        let now = Instant::now();
        admitted(&limiter, Level::DEBUG, 2 * BURST, now);
        assert_eq!(admitted(&limiter, Level::WARN, BURST, now), BURST as usize);
        assert_eq!(limiter.admit(Level::WARN, now), None);
        assert_eq!(admitted(&limiter, Level::ERROR, 3 * BURST, now), 3 * BURST as usize);
    }

    #[test]
    fn a_long_silence_saves_up_no_more_than_a_burst() {
        let limiter = Limiter::new();
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(admitted(&limiter, Level::INFO, 2 * BURST, later), BURST as usize);
    }
}
