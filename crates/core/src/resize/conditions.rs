//! What a pod's status says of a change of its resources: that it waits, or that it goes on.
//!
//! The rules are upstream's: a resize that goes on keeps the generation that it was granted for, and what was told of an
//! error, until it is done or another is granted.

use crablet_api::Text;
use crablet_api::core::{PodCondition, PodConditionType, PodStatus};
use crablet_api::meta::{ConditionStatus, Time};
use jiff::Timestamp;

/// The reason of a resize that went wrong and is tried again.
const ERROR: &str = "Error";

/// Why a resize is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Whether it may be granted later.
    pub reason: PendingReason,
    /// More words.
    pub message: Text,
}

/// Whether a resize that is not granted may be later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingReason {
    /// When there is room.
    Deferred,
    /// Not on this node.
    Infeasible,
}

impl PendingReason {
    const ALL: [PendingReason; 2] = [PendingReason::Deferred, PendingReason::Infeasible];

    /// The reason of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            PendingReason::Deferred => "Deferred",
            PendingReason::Infeasible => "Infeasible",
        }
    }
}

/// The conditions of a pod that tell of its resize.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    pending: Option<Box<PodCondition>>,
    in_progress: Option<Box<PodCondition>>,
}

impl Conditions {
    /// Those that were told before.
    pub fn of(status: &PodStatus) -> Conditions {
        let find = |kind| {
            let known = status.conditions.iter().find(|condition| condition.r#type == kind);
            known.cloned().map(Box::new)
        };
        Conditions {
            pending: find(PodConditionType::PodResizePending),
            in_progress: find(PodConditionType::PodResizeInProgress),
        }
    }

    /// Those that there are, in upstream's order.
    pub fn iter(&self) -> impl Iterator<Item = &PodCondition> {
        self.pending.as_deref().into_iter().chain(self.in_progress.as_deref())
    }

    /// Why it waits, if it does, and since when for this reason.
    pub fn pending_since(&self) -> Option<(PendingReason, Timestamp)> {
        let pending = self.pending.as_ref()?;
        let reason = PendingReason::ALL.into_iter().find(|reason| *reason.as_str() == *pending.reason)?;
        Some((reason, Timestamp::from(pending.last_transition_time?)))
    }

    /// What went wrong, if it is tried again.
    pub fn error(&self) -> Option<&str> {
        let in_progress = self.in_progress.as_ref().filter(|in_progress| *in_progress.reason == *ERROR);
        in_progress.map(|in_progress| &*in_progress.message)
    }

    /// Why it is not granted, in words.
    pub fn why_pending(&self) -> Option<&str> {
        self.pending.as_ref().map(|pending| &*pending.message)
    }

    pub fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// It is not granted. Says whether that is news: another reason, or what another generation asks for.
    pub fn wait(&mut self, why: &Pending, generation: i64, now: Time) -> bool {
        let kind = PodConditionType::PodResizePending;
        let next = renewed(kind, self.pending.as_deref(), why.reason.as_str(), &why.message, generation, now);
        let is_news = self.pending.as_ref().is_none_or(|before| {
            before.reason != next.reason || before.observed_generation != next.observed_generation
        });
        self.pending = Some(Box::new(next));
        is_news
    }

    /// It does not wait any more.
    pub fn wait_no_longer(&mut self) {
        self.pending = None;
    }

    /// It was granted: what was told of the one before is forgotten.
    pub fn start(&mut self, generation: i64, now: Time) {
        self.in_progress = None;
        self.go_on(generation, now);
    }

    /// It goes on.
    pub fn go_on(&mut self, generation: i64, now: Time) {
        if self.in_progress.is_none() {
            let kind = PodConditionType::PodResizeInProgress;
            self.in_progress = Some(Box::new(renewed(kind, None, "", "", generation, now)));
        }
    }

    /// It went wrong. Says which generation it was granted for, where that is news.
    pub fn fail(&mut self, message: &str, generation: i64, now: Time) -> Option<i64> {
        let before = self.in_progress.as_deref();
        let generation = before.map_or(generation, |before| before.observed_generation);
        let kind = PodConditionType::PodResizeInProgress;
        let next = renewed(kind, before, ERROR, message, generation, now);
        let is_news =
            before.is_none_or(|before| before.reason != next.reason || before.message != next.message);
        self.in_progress = Some(Box::new(next));
        is_news.then_some(generation)
    }

    /// It is done. Says which generation it was granted for, if it went on until now.
    pub fn finish(&mut self) -> Option<i64> {
        self.in_progress.take().map(|condition| condition.observed_generation)
    }
}

/// A condition whose time is that of its last change. Upstream changes the time of the last probe whenever it looks;
/// here nothing is written for that.
fn renewed(
    kind: PodConditionType,
    before: Option<&PodCondition>,
    reason: &str,
    message: &str,
    generation: i64,
    now: Time,
) -> PodCondition {
    let next = PodCondition {
        r#type: kind,
        status: ConditionStatus::True,
        observed_generation: generation,
        reason: reason.into(),
        message: message.into(),
        ..PodCondition::default()
    };
    let same_reason = before.filter(|before| before.reason == next.reason);
    let same = same_reason
        .filter(|before| before.message == next.message && before.observed_generation == generation);
    PodCondition {
        last_probe_time: same.and_then(|same| same.last_probe_time).or(Some(now)),
        last_transition_time: same_reason.and_then(|same| same.last_transition_time).or(Some(now)),
        ..next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time::from(Timestamp::from_second(second).expect("a time"))
    }

    fn deferred(message: &str) -> Pending {
        Pending { reason: PendingReason::Deferred, message: message.into() }
    }

    fn told(conditions: &Conditions) -> Vec<String> {
        let tell = |condition: &PodCondition| {
            let (kind, reason, message) = (&condition.r#type, &condition.reason, &condition.message);
            let generation = condition.observed_generation;
            let since = condition.last_transition_time.map(|time| Timestamp::from(time).as_second());
            format!("{kind} {generation} {reason} {message} {}", since.unwrap_or(-1))
        };
        conditions.iter().map(tell).collect()
    }

    #[test]
    fn what_waits_is_news_for_another_reason_or_generation_and_keeps_its_time_for_the_same_reason() {
        let mut conditions = Conditions::default();
        assert!(conditions.wait(&deferred("full"), 2, at(1)));
        assert!(!conditions.wait(&deferred("fuller"), 2, at(2)));
        assert_eq!(told(&conditions), ["PodResizePending 2 Deferred fuller 1"]);
        assert!(conditions.wait(&deferred("fuller"), 3, at(3)));
        assert_eq!(told(&conditions), ["PodResizePending 3 Deferred fuller 1"]);
        let never = Pending { reason: PendingReason::Infeasible, message: "never".into() };
        assert!(conditions.wait(&never, 3, at(4)));
        assert_eq!(told(&conditions), ["PodResizePending 3 Infeasible never 4"]);
        conditions.wait_no_longer();
        assert_eq!(conditions, Conditions::default());
    }

    #[test]
    fn what_goes_on_keeps_its_generation_and_its_error_until_it_is_done_or_another_is_granted() {
        let mut conditions = Conditions::default();
        conditions.start(2, at(1));
        conditions.go_on(5, at(2));
        assert_eq!(told(&conditions), ["PodResizeInProgress 2   1"]);
        assert_eq!(conditions.fail("no", 5, at(3)), Some(2));
        assert_eq!(conditions.fail("no", 5, at(4)), None);
        conditions.go_on(5, at(5));
        assert_eq!(told(&conditions), ["PodResizeInProgress 2 Error no 3"]);
        assert_eq!(conditions.fail("still no", 5, at(6)), Some(2));
        assert_eq!(told(&conditions), ["PodResizeInProgress 2 Error still no 3"]);
        conditions.start(6, at(7));
        assert_eq!(told(&conditions), ["PodResizeInProgress 6   7"]);
        assert_eq!(conditions.finish(), Some(6));
        assert_eq!(conditions.finish(), None);
    }

    #[test]
    fn those_that_were_told_are_taken_up() {
        let mut conditions = Conditions::default();
        conditions.wait(&deferred("full"), 3, at(1));
        conditions.start(2, at(1));
        let all: Vec<PodCondition> = conditions.iter().cloned().collect();
        let status = PodStatus { conditions: all.into(), ..PodStatus::default() };
        assert_eq!(Conditions::of(&status), conditions);
        let since = conditions.pending_since().map(|(reason, since)| (reason, since.as_second()));
        assert_eq!(since, Some((PendingReason::Deferred, 1)));
    }
}
