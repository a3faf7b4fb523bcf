//! What failed, and when to try it again. The waits are by time that passes, which nobody can set.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_api::Text;
use tokio::time::Instant;

/// The wait after the first failure; each further one doubles it.
const SHORTEST: Duration = Duration::from_secs(1);
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(10);

/// Something that can fail and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// To ask the runtime what it knows.
    Runtime,
    /// To make the pod's sandbox.
    Sandbox,
    /// To set up its volumes, or to take them away.
    Volumes,
    /// To bring its volumes up to date.
    Refresh,
    /// To give its containers other resources.
    Resize,
    /// To remove its cgroup and take its users back.
    Cgroup,
    /// To remove what it left behind.
    Removal,
    /// To start the container of this name.
    Start(Text),
    /// To stop the container that has this ID.
    Stop(String),
}

/// Waits before things are tried again.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<What, Retry>);

#[derive(Debug)]
struct Retry {
    until: Instant,
    wait: Duration,
}

impl Retries {
    /// Something failed: the answer is when it may be tried again.
    pub(super) fn failed(&mut self, what: What) -> Instant {
        let wait = self.0.get(&what).map_or(SHORTEST, |earlier| (earlier.wait * 2).min(LONGEST));
        let until = Instant::now() + wait;
        self.0.insert(what, Retry { until, wait });
        until
    }

    /// Something failed and says itself when it may be tried again.
    pub(super) fn failed_until(&mut self, what: What, until: Instant) {
        self.0.insert(what, Retry { until, wait: SHORTEST });
    }

    /// Something worked.
    pub(super) fn worked(&mut self, what: &What) {
        self.0.remove(what);
    }

    /// Something may be tried at once, since what it failed for may be otherwise now. If it fails again the wait is longer.
    pub(super) fn release(&mut self, what: &What) {
        if let Some(retry) = self.0.get_mut(what) {
            retry.until = Instant::now();
        }
    }

    /// Until when something must wait, if it must.
    pub(super) fn held(&self, what: &What) -> Option<Instant> {
        self.0.get(what).map(|retry| retry.until).filter(|until| *until > Instant::now())
    }
}

/// The earlier of two times, either of which may not be.
pub(super) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_limit_and_begin_anew_after_a_success() {
        let mut retries = Retries::default();
        let now = Instant::now();
        let waits: Vec<_> = (0..6).map(|_| (retries.failed(What::Sandbox) - now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert!(retries.held(&What::Sandbox).is_some() && retries.held(&What::Volumes).is_none());
        retries.worked(&What::Sandbox);
        assert_eq!(retries.held(&What::Sandbox), None);
        assert_eq!((retries.failed(What::Sandbox) - now).as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_released_is_tried_at_once_and_then_waits_for_longer() {
        let mut retries = Retries::default();
        retries.failed(What::Volumes);
        retries.release(&What::Volumes);
        retries.release(&What::Refresh);
        assert_eq!((retries.held(&What::Volumes), retries.held(&What::Refresh)), (None, None));
        assert_eq!((retries.failed(What::Volumes) - Instant::now()).as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_shares_its_wait_with_nothing_of_the_agents() {
        let mut retries = Retries::default();
        retries.failed(What::Start("runtime".into()));
        retries.worked(&What::Runtime);
        assert!(retries.held(&What::Start("runtime".into())).is_some());
    }
}
