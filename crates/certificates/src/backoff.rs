//! How long to wait before another try, as upstream's certificate manager does.

use std::time::Duration;

use crablet_client::Chance;

const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(32);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    /// The next wait: twice the one before, up to a tenth longer by chance, until it is the longest.
    pub(crate) fn next(&mut self, chance: &mut Chance) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        if wait < LONGEST { wait + chance.below(wait / 10) } else { LONGEST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute() {
        let (mut backoff, mut chance) = (Backoff::new(), Chance::new(1));
        for expected in [2, 4, 8, 16] {
            let expected = Duration::from_secs(expected);
            let wait = backoff.next(&mut chance);
            assert!(wait >= expected && wait < expected + expected / 10, "{wait:?}");
        }
        assert_eq!([backoff.next(&mut chance), backoff.next(&mut chance)], [LONGEST, LONGEST]);
    }
}
