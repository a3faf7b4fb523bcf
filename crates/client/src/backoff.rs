//! How long to wait before a server is asked again, as client-go's reflector does.

use std::time::Duration;

use tokio::time::Instant;

use crablet_host::chance::Chance;

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
/// Who did not have to wait for so long begins anew.
const RESET_AFTER: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    /// When the last wait was over.
    waited_until: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST, waited_until: None }
    }

    /// The next wait, up to twice as long by chance.
    pub(crate) fn next(&mut self, chance: &mut Chance) -> Duration {
        let now = Instant::now();
        if self.waited_until.is_some_and(|until| now.duration_since(until) > RESET_AFTER) {
            self.next = FIRST;
        }
        let delay = self.next + chance.below(self.next);
        self.next = (self.next * 2).min(LONGEST);
        self.waited_until = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_limit_and_begin_anew_after_quiet() {
        let (mut backoff, mut chance) = (Backoff::new(), Chance::new(1));
        for expected in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let expected = Duration::from_millis(expected);
            let delay = backoff.next(&mut chance);
            assert!(delay >= expected && delay < 2 * expected, "{delay:?}");
            tokio::time::sleep(delay).await;
        }
        tokio::time::sleep(RESET_AFTER - Duration::from_secs(1)).await;
        assert!(backoff.next(&mut chance) >= LONGEST);
        tokio::time::sleep(RESET_AFTER * 2).await;
        assert!(backoff.next(&mut chance) < 2 * FIRST);
    }
}
