//! What cgroups may use, as it was read some time ago.
//!
//! Limits are a third of all files that are read of a cgroup, and hardly ever change: those of a container when its pod is
//! resized. They are told again for longer than what is counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::cgroup::Limits;

/// Limits by cgroup. Of what is not there any more nothing is kept for longer than it would be told.
#[derive(Debug)]
pub(crate) struct KnownLimits {
    told_for: i128,
    known: Mutex<HashMap<Box<str>, (Timestamp, Limits)>>,
}

impl KnownLimits {
    /// None is told again for longer than this.
    pub(crate) fn new(told_for: Duration) -> KnownLimits {
        let told_for = i128::try_from(told_for.as_nanos()).unwrap_or(i128::MAX);
        KnownLimits { told_for, known: Mutex::default() }
    }

    pub(crate) fn of(&self, cgroup: &str, now: Timestamp) -> Option<Limits> {
        let (at, limits) = *self.lock().get(cgroup)?;
        self.holds(at, now).then_some(limits)
    }

    pub(crate) fn keep(&self, cgroup: &str, now: Timestamp, limits: Limits) {
        if self.told_for > 0 {
            self.lock().insert(cgroup.into(), (now, limits));
        }
    }

    pub(crate) fn forget_old(&self, now: Timestamp) {
        self.lock().retain(|_, (at, _)| self.holds(*at, now));
    }

    /// A clock that was set back says nothing of an age.
    fn holds(&self, at: Timestamp, now: Timestamp) -> bool {
        (0..self.told_for).contains(&(now.as_nanosecond() - at.as_nanosecond()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, (Timestamp, Limits)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_794_763_000 + second).unwrap()
    }

    #[test]
    fn limits_hold_for_a_while_and_are_forgotten_then() {
        let limits = Limits { memory: 7, ..Limits::default() };
        let known = KnownLimits::new(Duration::from_secs(60));
        known.keep("/a", at(0), limits);
        assert_eq!((known.of("/a", at(59)), known.of("/b", at(0))), (Some(limits), None));
        assert_eq!((known.of("/a", at(60)), known.of("/a", at(-1))), (None, None));
        known.forget_old(at(30));
        assert_eq!(known.lock().len(), 1);
        known.forget_old(at(60));
        assert!(known.lock().is_empty());
    }

    #[test]
    fn without_a_cache_none_is_kept() {
        let known = KnownLimits::new(Duration::ZERO);
        known.keep("/a", at(0), Limits::default());
        assert!(known.of("/a", at(0)).is_none() && known.lock().is_empty());
    }
}
