//! How fast a counter of CPU time grows: two samples make a rate. Those of the last time that somebody asked are kept,
//! so that nothing has to be read while nobody asks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// Samples nearer than this say little: what was reckoned before holds on.
const NEAREST: i128 = 900_000_000;
/// Samples further apart say nothing of now.
const FURTHEST: i128 = 600_000_000_000;

/// The last samples, by cgroup or by the runtime's name for a container. Of what is not there any more nothing is kept for
/// longer than a sample is of use.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<Box<str>, Last>>);

#[derive(Debug, Clone, Copy)]
struct Last {
    time: Timestamp,
    usage: u64,
    rate: Option<u64>,
}

impl Rates {
    /// Takes in a sample and says how much of the CPU was used since the last, in billionths of a core. Without one
    /// before, nothing is known.
    pub(crate) fn take(&self, of: &str, time: Timestamp, usage: u64) -> Option<u64> {
        let mut all = self.lock();
        let Some(last) = all.get_mut(of) else {
            all.insert(of.into(), Last { time, usage, rate: None });
            return None;
        };
        let passed = time.as_nanosecond() - last.time.as_nanosecond();
        if (0..NEAREST).contains(&passed) && last.rate.is_some() && usage >= last.usage {
            return last.rate;
        }
        let is_usable = passed > 0 && passed <= FURTHEST;
        let used = usage.checked_sub(last.usage).filter(|_| is_usable);
        let rate = used.map(|used| (used as f64 / passed as f64 * 1e9) as u64);
        *last = Last { time, usage, rate };
        rate
    }

    /// Forgets samples that are of no use any more.
    pub(crate) fn forget_old(&self, now: Timestamp) {
        let age = |last: &Last| now.as_nanosecond() - last.time.as_nanosecond();
        self.lock().retain(|_, last| (-FURTHEST..=FURTHEST).contains(&age(last)));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_794_763_000_000 + milliseconds).unwrap()
    }

    #[test]
    fn two_samples_make_a_rate_and_near_ones_do_not_change_it() {
        let rates = Rates::default();
        assert_eq!(rates.take("/a", at(0), 1_000), None);
        assert_eq!(rates.take("/a", at(10_000), 5_000_001_000), Some(500_000_000));
        assert_eq!(rates.take("/a", at(10_100), 5_900_001_000), Some(500_000_000));
        // The next is reckoned from the sample that made the last rate.
        assert_eq!(rates.take("/a", at(20_000), 5_000_001_000), Some(0));
    }

    #[test]
    fn a_first_pair_may_be_near() {
        let rates = Rates::default();
        assert_eq!(rates.take("/a", at(0), 0), None);
        assert_eq!(rates.take("/a", at(100), 50_000_000), Some(500_000_000));
    }

    #[test]
    fn a_counter_that_begins_anew_and_a_clock_that_was_set_back_say_nothing() {
        let rates = Rates::default();
        rates.take("/a", at(10_000), 9_000);
        assert_eq!(rates.take("/a", at(20_000), 8_000), None);
        assert_eq!(rates.take("/a", at(30_000), 8_000), Some(0));
        assert_eq!(rates.take("/a", at(29_000), 9_000), None);
        assert_eq!(rates.take("/a", at(700_000), 9_001), None, "too long ago");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let rates = Rates::default();
        rates.take("/a", at(0), 0);
        rates.take("/b", at(500_000), 0);
        rates.forget_old(at(590_000));
        assert_eq!(rates.lock().len(), 2);
        rates.forget_old(at(610_000));
        assert_eq!(rates.lock().len(), 1);
    }
}
