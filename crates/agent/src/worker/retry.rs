//! What failed, and when to try it again. The waits are by time that passes, which nobody can set.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_api::Text;
use tokio::time::Instant;

/// The wait after the first failure; each further one doubles it.
const SHORTEST: Duration = Duration::from_secs(1);
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(10);
/// The same for volumes, as upstream: drivers and servers that are down are not asked by all pods all the time.
const SHORTEST_FOR_VOLUMES: Duration = Duration::from_millis(500);
const LONGEST_FOR_VOLUMES: Duration = Duration::from_secs(122);

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

impl What {
    /// The shortest and the longest wait.
    fn waits(&self) -> (Duration, Duration) {
        match self {
            What::Volumes | What::Refresh => (SHORTEST_FOR_VOLUMES, LONGEST_FOR_VOLUMES),
            What::Runtime
            | What::Sandbox
            | What::Resize
            | What::Cgroup
            | What::Removal
            | What::Start(_)
            | What::Stop(_) => (SHORTEST, LONGEST),
        }
    }
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
        let (_, longest) = what.waits();
        self.failed_for(what, longest)
    }

    /// The same for what may be otherwise soon, and nobody would be told.
    pub(super) fn failed_for_now(&mut self, what: What) -> Instant {
        self.failed_for(what, LONGEST)
    }

    fn failed_for(&mut self, what: What, longest: Duration) -> Instant {
        let (shortest, _) = what.waits();
        let wait = self.0.get(&what).map_or(shortest, |earlier| (earlier.wait * 2).min(longest));
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
        assert_eq!((retries.failed(What::Volumes) - Instant::now()).as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn volumes_that_fail_for_long_are_asked_for_less_and_less() {
        for what in [What::Volumes, What::Refresh] {
            let mut retries = Retries::default();
            let (began, mut tries) = (Instant::now(), 0);
            while began.elapsed() < Duration::from_secs(600) {
                tries += 1;
                tokio::time::sleep_until(retries.failed(what.clone())).await;
            }
            assert_eq!(tries, 12, "{what:?}");
            assert_eq!((retries.failed(what.clone()) - Instant::now()).as_secs(), 122);
            let soon = retries.failed_for_now(what.clone()) - Instant::now();
            assert_eq!(soon.as_secs(), 10, "as what is not told of a change");
            retries.worked(&what);
            assert_eq!((retries.failed(what) - Instant::now()).as_millis(), 500);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_shares_its_wait_with_nothing_of_the_agents() {
        let mut retries = Retries::default();
        retries.failed(What::Start("runtime".into()));
        retries.worked(&What::Runtime);
        assert!(retries.held(&What::Start("runtime".into())).is_some());
    }
}
