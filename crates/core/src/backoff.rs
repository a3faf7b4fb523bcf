//! How long to wait before something that failed is tried again.
//!
//! Each pod has a [`Restarts`], which its worker holds, and a [`Pulls`], which the owner of images holds; they go with
//! the pod. The waits before restarts are in the pod's checkpoint, and what the runtime knows of a later start than it
//! counts more ([`Restarts::recover`]), so that a crash loop is not hurried by a restart of the agent. (Upstream forgets:
//! there, every container in a crash loop runs at once when the kubelet restarts.) Pulls begin anew, as upstream.

use std::collections::BTreeMap;

use crablet_api::core::{Container, Pod, ResourceRequirements};
use crablet_api::{GoDuration, Text};
use crablet_cri_api::ContainerState;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::observed;
use crate::translate::go_quote;

/// A time so little later than now is no sign of a clock that was set back: the runtime's may be another one.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(1);

/// How waits grow: from the first one, doubling, up to the longest, and from the beginning again when nothing failed
/// for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The first wait.
    pub initial: SignedDuration,
    /// The longest wait.
    pub max: SignedDuration,
    /// After so long without a failure, the next wait is a first one again.
    pub forgotten_after: SignedDuration,
}

impl Limits {
    /// Restarts of containers: 10 s to 5 min, or, where `reduced` (the gate `ReduceDefaultCrashLoopBackOffDecay`),
    /// 1 s to 1 min; up to `configured_max` (`crashLoopBackOff.maxContainerRestartPeriod`) where one is configured. A
    /// container that ran for ten minutes starts over.
    pub fn restarts(reduced: bool, configured_max: Option<GoDuration>) -> Limits {
        let (initial, max) = if reduced { (1, 60) } else { (10, 300) };
        let max = configured_max
            .map_or(SignedDuration::from_secs(max), |max| SignedDuration::from_nanos(max.as_nanos()));
        Limits {
            initial: SignedDuration::from_secs(initial).min(max),
            max,
            forgotten_after: SignedDuration::from_mins(10),
        }
    }

    /// Pulls of images: 10 s to 5 min, and from the beginning again after ten minutes.
    pub fn pulls() -> Limits {
        Limits {
            initial: SignedDuration::from_secs(10),
            max: SignedDuration::from_secs(300),
            forgotten_after: SignedDuration::from_secs(600),
        }
    }

    fn after(&self, wait: SignedDuration) -> SignedDuration {
        wait.saturating_mul(2).min(self.max)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::restarts(false, None)
    }
}

/// A wait, and since when it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wait {
    length: SignedDuration,
    since: Timestamp,
}

impl Wait {
    /// The next wait, for something that failed at `failed`.
    fn next(last: Option<&Wait>, failed: Timestamp, now: Timestamp, limits: &Limits) -> Wait {
        let length = match last {
            Some(last) if !last.is_forgotten(failed, limits) => limits.after(last.length),
            Some(_) | None => limits.initial,
        };
        Wait { length, since: now }
    }

    fn is_forgotten(&self, failed: Timestamp, limits: &Limits) -> bool {
        failed.duration_since(self.since) > limits.forgotten_after
    }
}

/// Until when something is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// How long the whole wait is.
    pub length: SignedDuration,
    /// When it is over.
    pub until: Timestamp,
}

/// The waits before the restarts of a pod's containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restarts {
    limits: Limits,
    waits: Waits,
}

/// The waits of containers by their names, as a checkpoint has them.
pub type Waits = BTreeMap<Text, Restart>;

/// The last restart of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    // A container whose image or resources changed is another one, and starts over.
    image: Text,
    resources: ResourceRequirements,
    wait: Wait,
}

impl Restarts {
    /// No container ever failed.
    pub fn new(limits: Limits) -> Restarts {
        Restarts { limits, waits: BTreeMap::new() }
    }

    /// Whether a container that ended at `finished` may not start yet. One that ended at a time that is yet to come did so
    /// before the clock was set back: nobody can tell how long ago, and it waits no longer.
    pub fn held(&self, container: &Container, finished: Timestamp, now: Timestamp) -> Option<Held> {
        if finished.duration_since(now) > CLOCKS_DIFFER {
            return None;
        }
        let wait = self.wait(container).filter(|wait| !wait.is_forgotten(finished, &self.limits))?;
        let until = finished.checked_add(wait.length).unwrap_or(Timestamp::MAX);
        (now < until).then_some(Held { length: wait.length, until })
    }

    /// Takes down that a container that had ended at `finished` is started again: should it end once more, it waits.
    pub fn note_start(&mut self, container: &Container, finished: Timestamp, now: Timestamp) {
        let wait = Wait::next(self.wait(container), finished, now, &self.limits);
        let restart =
            Restart { image: container.image.clone(), resources: container.resources.clone(), wait };
        self.waits.insert(container.name.clone(), restart);
    }

    /// As a checkpoint has them.
    pub fn of_checkpoint(limits: Limits, mut waits: Waits) -> Restarts {
        // The limits may be other ones by now.
        waits.values_mut().for_each(|restart| restart.wait.length = restart.wait.length.min(limits.max));
        Restarts { limits, waits }
    }

    /// For a checkpoint.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Finds the waits again where the checkpoint is older than what the runtime remembers: how long a container had
    /// waited before it was started last tells which wait is next. A container that was started once has none.
    pub fn recover(&mut self, pod: &Pod, observed: &observed::Pod) {
        let limits = self.limits;
        for container in pod.spec.init_and_regular_containers() {
            let mut runs = observed.named(&container.name).filter(|run| run.state != ContainerState::Created);
            let (Some(last), Some(before)) = (runs.next(), runs.next()) else { continue };
            let (Some(started), Some(ended)) = (last.started_at, before.finished_at) else { continue };
            if self.waits.get(&container.name).is_some_and(|restart| restart.wait.since >= ended) {
                continue;
            }
            let wait = Wait { length: limits.wait_after(started.duration_since(ended)), since: started };
            let restart =
                Restart { image: container.image.clone(), resources: container.resources.clone(), wait };
            self.waits.insert(container.name.clone(), restart);
        }
    }

    fn wait(&self, container: &Container) -> Option<&Wait> {
        self.waits
            .get(&container.name)
            .filter(|restart| restart.image == container.image && restart.resources == container.resources)
            .map(|restart| &restart.wait)
    }
}

impl Limits {
    /// The wait that comes after a container stood still for `gap`. One much longer than the longest wait was not one.
    fn wait_after(&self, gap: SignedDuration) -> SignedDuration {
        if gap < self.initial || gap > self.max.saturating_mul(2) {
            return self.initial;
        }
        let mut wait = self.initial;
        while wait < self.max && self.after(wait) <= gap {
            wait = self.after(wait);
        }
        self.after(wait)
    }
}

/// The message of a container that waits before its restart.
pub fn restart_message(length: SignedDuration, container: &str, pod: &Pod) -> String {
    format!("back-off {} restarting failed container={container} pod={}", go(length), describe(pod))
}

/// The message of the event that says so.
pub fn restart_event(container: &str, pod: &Pod) -> String {
    format!("Back-off restarting failed container {container} in pod {}", describe(pod))
}

/// A pod in a message: `name_namespace(uid)`.
pub(crate) fn describe(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid)
}

fn go(length: SignedDuration) -> GoDuration {
    GoDuration::from_nanos(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX))
}

/// The waits before the next pulls of a pod's images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulls {
    limits: Limits,
    waits: BTreeMap<Text, FailedPull>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FailedPull {
    wait: Wait,
    error: Text,
}

/// An image that is not pulled yet, because the last pull failed not long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPull {
    /// When it may be pulled again.
    pub until: Timestamp,
    /// What the event says.
    pub event: Text,
    /// What the container's status says: why the last pull failed, too.
    pub message: Text,
}

impl Pulls {
    /// No pull ever failed.
    pub fn new(limits: Limits) -> Pulls {
        Pulls { limits, waits: BTreeMap::new() }
    }

    /// Whether an image may not be pulled yet.
    pub fn held(&self, image: &str, now: Timestamp) -> Option<HeldPull> {
        let FailedPull { wait, error } = self.waits.get(image)?;
        let until = wait.since.checked_add(wait.length).unwrap_or(Timestamp::MAX);
        if wait.is_forgotten(now, &self.limits) || now >= until {
            return None;
        }
        let event = format!("Back-off pulling image {}", go_quote(image));
        Some(HeldPull { until, message: format!("{event}: {error}").into(), event: event.into() })
    }

    /// Takes down that a pull failed at `now`.
    pub fn note_failure(&mut self, image: &str, error: &PullError, now: Timestamp) {
        let last = self.waits.get(image).map(|pull| &pull.wait);
        let wait = Wait::next(last, now, now, &self.limits);
        let error = format!("{}: {}", error.reason, error.message).into();
        self.waits.insert(image.into(), FailedPull { wait, error });
    }

    /// Forgets what is too long ago to count.
    pub fn forget(&mut self, now: Timestamp) {
        let limits = self.limits;
        self.waits.retain(|_, pull| !pull.wait.is_forgotten(now, &limits));
    }
}

/// Why a pull failed, as a container's status tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullError {
    /// One word.
    pub reason: &'static str,
    /// More words.
    pub message: Text,
}

impl PullError {
    /// What the runtime's error means. Some begin with a word that says more than that a pull failed.
    pub fn from_runtime(image: &str, error: &str) -> PullError {
        for (reason, because) in [
            ("RegistryUnavailable", "the registry is unavailable"),
            ("SignatureValidationFailed", "the signature validation failed"),
        ] {
            if let Some(rest) = error.strip_prefix(reason) {
                let message = format!("image pull failed for {image} because {because}{rest}");
                return PullError { reason, message: message.into() };
            }
        }
        PullError { reason: "ErrImagePull", message: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Described, at, container as run, observed};
    use crablet_api::testing::pod;

    fn seconds(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    /// A container that runs for so long each time: the waits before each restart, in seconds.
    fn waits(limits: Limits, runs: &[i64]) -> Vec<i64> {
        let container = Container::default();
        let mut restarts = Restarts::new(limits);
        let mut now = 0;
        runs.iter()
            .map(|run| {
                let finished = at(now + run);
                let held = restarts.held(&container, finished, finished);
                let wait = held.map_or(0, |held| held.length.as_secs());
                now += run + wait;
                assert_eq!(restarts.held(&container, finished, at(now)), None, "the wait is over");
                restarts.note_start(&container, finished, at(now));
                wait
            })
            .collect()
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        assert_eq!(waits(Limits::default(), &[1; 9]), [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_container_that_ran_for_ten_minutes_starts_over() {
        assert_eq!(waits(Limits::default(), &[1, 1, 1, 600, 601, 1, 1]), [0, 10, 20, 40, 0, 10, 20]);
    }

    #[test]
    fn the_waits_can_be_shorter() {
        assert_eq!(waits(Limits::restarts(true, None), &[1; 9]), [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        let configured = Limits::restarts(false, Some(GoDuration::from_secs(25)));
        assert_eq!(waits(configured, &[1; 5]), [0, 10, 20, 25, 25]);
        let below_the_first = Limits::restarts(false, Some(GoDuration::from_secs(3)));
        assert_eq!(waits(below_the_first, &[1; 4]), [0, 3, 3, 3]);
    }

    #[test]
    fn a_container_with_another_image_or_other_resources_starts_over() {
        let old = Container { image: "old".into(), ..Container::default() };
        let new = Container { image: "new".into(), ..old.clone() };
        let mut resized = old.clone();
        resized.resources.requests.insert("cpu", crablet_api::Quantity::from_milli(100));
        let mut restarts = Restarts::new(Limits::default());
        restarts.note_start(&old, at(0), at(0));
        assert!(restarts.held(&old, at(1), at(2)).is_some());
        assert_eq!(restarts.held(&new, at(1), at(2)), None);
        assert_eq!(restarts.held(&resized, at(1), at(2)), None);
    }

    #[test]
    fn no_wait_is_longer_than_it_is_whatever_the_clock_is_set_to() {
        let container = Container::default();
        let mut restarts = Restarts::new(Limits::default());
        restarts.note_start(&container, at(10_000), at(10_000));
        for now in 0..20_000 {
            let held = restarts.held(&container, at(10_001), at(now));
            let left = held.map(|held| held.until.duration_since(at(now)));
            assert!(left.is_none_or(|left| left <= seconds(10) + CLOCKS_DIFFER), "at {now}: {left:?}");
        }
        assert!(restarts.held(&container, at(10_001), at(10_000)).is_some(), "clocks differ a little");
        assert_eq!(restarts.held(&container, at(10_001), at(2800)), None);
    }

    #[test]
    fn the_messages_are_upstreams() {
        let pod = pod("web").build();
        for (length, expected) in [(10, "10s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s")] {
            let message = restart_message(seconds(length), "c", &pod);
            let expected =
                format!("back-off {expected} restarting failed container=c pod=web_default(uid-web)");
            assert_eq!(message, expected);
        }
        let event = "Back-off restarting failed container c in pod web_default(uid-web)";
        assert_eq!(restart_event("c", &pod), event);
    }

    #[test]
    fn an_agent_that_restarted_finds_the_waits_again_in_what_the_runtime_remembers() {
        let pod = pod("web").container("c", "img").build();
        for (gap, expected) in
            [(0, 10), (2, 10), (10, 20), (11, 20), (20, 40), (21, 40), (45, 80), (299, 300), (301, 300)]
                .into_iter()
                .chain([(600, 300), (601, 10)])
        {
            let ended = run("c", 3).exited(1).made_at(100).finished_at(110);
            let runs = [ended, run("c", 4).exited(1).made_at(110 + gap)];
            let mut restarts = Restarts::new(Limits::default());
            restarts.recover(&pod, &observed(&pod, runs));
            let finished = at(110 + gap + 10);
            let held = restarts.held(&pod.spec.containers[0], finished, finished);
            assert_eq!(held.map(|held| held.length), Some(seconds(expected)), "after a gap of {gap} s");
        }
    }

    #[test]
    fn an_agent_that_restarted_does_not_hold_back_what_ran_long_or_once() {
        let pod = pod("web").container("c", "img").build();
        let recovered = |runs| {
            let mut restarts = Restarts::new(Limits::default());
            restarts.recover(&pod, &observed(&pod, runs));
            restarts
        };
        let once = recovered(vec![run("c", 0).exited(1)]);
        assert_eq!(once.held(&pod.spec.containers[0], at(11), at(12)), None);
        let long = recovered(vec![run("c", 0).exited(1), run("c", 1).exited(1).finished_at(1000)]);
        assert_eq!(long.held(&pod.spec.containers[0], at(1000), at(1000)), None);
    }

    #[test]
    fn a_wait_in_the_checkpoint_counts_unless_the_runtime_knows_of_a_later_start() {
        let pod = pod("web").container("c", "img").build();
        let container = &pod.spec.containers[0];
        let mut before = Restarts::new(Limits::default());
        for started in [100, 200, 300] {
            before.note_start(container, at(started), at(started));
        }
        let json = crablet_api::to_json(before.waits());
        let recovered = |limits, runs: Vec<observed::Container>| {
            let waits = crablet_api::from_json(&json, crablet_api::document::Limits::API).unwrap();
            let mut restarts = Restarts::of_checkpoint(limits, waits);
            restarts.recover(&pod, &observed(&pod, runs));
            restarts.held(container, at(320), at(320)).map(|held| held.length.as_secs())
        };
        // The one before is removed when the next one has ended.
        let last = || run("c", 3).exited(1).made_at(300).finished_at(320);
        assert_eq!(recovered(Limits::default(), vec![last()]), Some(40));
        let ended = |seconds| run("c", 2).exited(1).made_at(200).finished_at(seconds);
        assert_eq!(recovered(Limits::default(), vec![ended(280), last()]), Some(40), "it was started at 300");
        let later = run("c", 3).exited(1).made_at(312).finished_at(320);
        assert_eq!(recovered(Limits::default(), vec![ended(302), later]), Some(20), "it waited for 10 s");
        let shorter = Limits::restarts(true, Some(GoDuration::from_secs(25)));
        assert_eq!(recovered(shorter, vec![last()]), Some(25));
    }

    #[test]
    fn pulls_wait_and_say_why_the_last_one_failed() {
        let mut pulls = Pulls::new(Limits::pulls());
        assert_eq!(pulls.held("img:1", at(0)), None);
        pulls.note_failure("img:1", &PullError::from_runtime("img:1", "not found"), at(0));
        let held = pulls.held("img:1", at(9)).expect("it waits");
        assert_eq!((&*held.event, held.until), ("Back-off pulling image \"img:1\"", at(10)));
        assert_eq!(&*held.message, "Back-off pulling image \"img:1\": ErrImagePull: not found");
        assert_eq!(pulls.held("img:1", at(10)), None);
        pulls.note_failure("img:1", &PullError::from_runtime("img:1", "not found"), at(10));
        assert_eq!(pulls.held("img:1", at(11)).map(|held| held.until), Some(at(30)));
        pulls.forget(at(611));
        assert_eq!(pulls, Pulls::new(Limits::pulls()));
    }

    #[test]
    fn a_pull_error_that_begins_with_its_kind_has_that_reason() {
        let error = PullError::from_runtime("img", "RegistryUnavailable: no route");
        assert_eq!(error.reason, "RegistryUnavailable");
        assert_eq!(
            &*error.message,
            "image pull failed for img because the registry is unavailable: no route"
        );
        let error = PullError::from_runtime("img", "SignatureValidationFailed: bad key");
        let expected = "image pull failed for img because the signature validation failed: bad key";
        assert_eq!((error.reason, &*error.message), ("SignatureValidationFailed", expected));
    }
}
