//! What failed, and when to try it again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// The wait after the first failure; each further one doubles it.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// No wait is longer.
const LONGEST: SignedDuration = SignedDuration::from_secs(10);

/// Waits before things are tried again, by what they are.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<String, Retry>);

#[derive(Debug)]
struct Retry {
    until: Timestamp,
    wait: SignedDuration,
}

impl Retries {
    /// Something failed: the answer is when it may be tried again.
    pub(super) fn failed(&mut self, what: &str, now: Timestamp) -> Timestamp {
        let wait = self.0.get(what).map_or(SHORTEST, |earlier| (earlier.wait * 2).min(LONGEST));
        let until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.0.insert(what.to_owned(), Retry { until, wait });
        until
    }

    /// Something failed and says itself when it may be tried again.
    pub(super) fn failed_until(&mut self, what: &str, until: Timestamp) -> Timestamp {
        self.0.insert(what.to_owned(), Retry { until, wait: SHORTEST });
        until
    }

    /// Something worked.
    pub(super) fn worked(&mut self, what: &str) {
        self.0.remove(what);
    }

    /// Until when something must wait, if it must.
    pub(super) fn held(&self, what: &str, now: Timestamp) -> Option<Timestamp> {
        self.0.get(what).map(|retry| retry.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_begin_anew_after_a_success() {
        let mut retries = Retries::default();
        let now: Timestamp = "2026-11-15T07:00:00Z".parse().unwrap();
        let waits: Vec<_> =
            (0..6).map(|_| retries.failed("sandbox", now).duration_since(now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert!(retries.held("sandbox", now).is_some() && retries.held("other", now).is_none());
        retries.worked("sandbox");
        assert_eq!(retries.held("sandbox", now), None);
        assert_eq!(retries.failed("sandbox", now).duration_since(now).as_secs(), 1);
    }
}
