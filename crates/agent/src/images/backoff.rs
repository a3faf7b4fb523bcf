//! Which images failed to be pulled for which pods, and until when they are not tried again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use crablet_core::backoff::{Limits, PullError, Pulls};
use jiff::Timestamp;
use tokio::time::Instant;

/// The waits of all pods.
///
/// They are kept on a clock of their own, which begins at 1970 and moves with tokio's time: setting the machine's
/// clock neither ends a wait nor makes it last.
#[derive(Debug)]
pub(super) struct Backoff {
    origin: Instant,
    pods: Mutex<BTreeMap<Text, Pulls>>,
}

/// A pull that has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) event: String,
    pub(super) message: String,
    pub(super) until: Instant,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { origin: Instant::now(), pods: Mutex::default() }
    }
}

impl Backoff {
    /// Whether a pod's image has to wait.
    pub(super) fn held(&self, pod_uid: &str, image: &str) -> Option<Held> {
        let held = self.pods().get(pod_uid)?.held(image, self.now())?;
        let until = self.instant(held.until);
        Some(Held { event: held.event.into(), message: held.message.into(), until })
    }

    /// Takes down that a pull failed, and says when the next one may be.
    pub(super) fn failed(&self, pod_uid: &str, image: &str, error: &PullError) -> Instant {
        let now = self.now();
        let mut pods = self.pods();
        forget_before(&mut pods, now);
        let pulls = pods.entry(pod_uid.into()).or_insert_with(|| Pulls::new(Limits::pulls()));
        pulls.note_failure(image, error, now);
        self.instant(pulls.held(image, now).map_or(now, |held| held.until))
    }

    pub(super) fn forget(&self, pod_uid: &str) {
        self.pods().remove(pod_uid);
    }

    /// Forgets what no longer counts, for pods that nobody said were gone.
    pub(super) fn forget_what_is_long_ago(&self) {
        forget_before(&mut self.pods(), self.now());
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH.checked_add(self.origin.elapsed()).unwrap_or(Timestamp::MAX)
    }

    fn instant(&self, moment: Timestamp) -> Instant {
        self.origin + moment.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<Text, Pulls>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_before(pods: &mut BTreeMap<Text, Pulls>, now: Timestamp) {
    let nothing = Pulls::new(Limits::pulls());
    pods.retain(|_, pulls| {
        pulls.forget(now);
        *pulls != nothing
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn error() -> PullError {
        PullError::from_runtime("img", "no such image")
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_five_minutes() {
        let backoff = Backoff::default();
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            let until = backoff.failed("u1", "img", &error());
            assert_eq!(until.duration_since(Instant::now()), Duration::from_secs(expected));
            assert_eq!(backoff.held("u1", "img").map(|held| held.until), Some(until));
            tokio::time::advance(Duration::from_secs(expected)).await;
            assert_eq!(backoff.held("u1", "img"), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_one_pods_and_one_images() {
        let backoff = Backoff::default();
        backoff.failed("u1", "img", &error());
        assert_eq!((backoff.held("u2", "img"), backoff.held("u1", "other")), (None, None));
        assert!(backoff.held("u1", "img").is_some());
        backoff.forget("u1");
        assert_eq!(backoff.held("u1", "img"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_nobody_forgot_are_forgotten_in_time() {
        let backoff = Backoff::default();
        for number in 0..1000 {
            backoff.failed(&format!("u{number}"), "img", &error());
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert!(backoff.pods().len() < 15, "{}", backoff.pods().len());
        tokio::time::advance(Duration::from_secs(700)).await;
        backoff.forget_what_is_long_ago();
        assert!(backoff.pods().is_empty());
    }
}
