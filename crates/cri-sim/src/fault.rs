//! What goes wrong, and when.

use std::time::Duration;

use tonic::Code;

use super::call::Method;
use super::random::Random;
use crablet_cri::{HintKind, HintSource};

/// How long a command takes that a fault by chance has hang.
const LOST_COMMAND: Duration = Duration::from_secs(300);

/// Something that goes wrong.
///
/// ```
/// # use std::time::Duration;
/// # use crablet_cri_sim::{Fault, Method};
/// # use crablet_cri::{HintKind, HintSource};
/// # use tonic::Code;
/// Fault::on(Method::StartContainer).nth(2).fail(Code::Unknown, "no luck");
/// Fault::on(Method::StopContainer).about("web").times_out_after_effect();
/// Fault::on_any_call().always().takes(Duration::from_secs(1));
/// Fault::on_event(HintSource::Containerd, HintKind::Stopped).is_lost();
/// ```
#[derive(Debug, Clone)]
pub struct Fault(pub(crate) Rule);

#[derive(Debug, Clone)]
pub(crate) enum Rule {
    Call(CallRule),
    Event(EventRule),
}

impl Fault {
    /// Something that goes wrong with the next call of a method.
    pub fn on(method: Method) -> OnCall {
        OnCall { method: Some(method), about: String::new(), turns: Turns::default() }
    }

    /// Something that goes wrong with the next call, whatever it is.
    pub fn on_any_call() -> OnCall {
        OnCall { method: None, about: String::new(), turns: Turns::default() }
    }

    /// Something that goes wrong with the next event of a kind, in one of the two streams.
    pub fn on_event(source: HintSource, kind: HintKind) -> OnEvent {
        OnEvent { source, kind, turns: Turns::default() }
    }
}

/// How many of what matches are let pass, and how many are then met.
#[derive(Debug, Clone, Copy)]
struct Turns {
    pass: u32,
    left: u32,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { pass: 0, left: 1 }
    }
}

impl Turns {
    fn take(&mut self) -> bool {
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        let hit = self.left > 0;
        if self.left != u32::MAX {
            self.left = self.left.saturating_sub(1);
        }
        hit
    }
}

/// Which calls something goes wrong with: the next one, unless said otherwise.
#[derive(Debug, Clone)]
pub struct OnCall {
    method: Option<Method>,
    about: String,
    turns: Turns,
}

impl OnCall {
    /// The one with this number from now on; the next is the first.
    pub fn nth(mut self, number: u32) -> OnCall {
        self.turns.pass = number.saturating_sub(1);
        self
    }

    /// So many of them.
    pub fn times(mut self, times: u32) -> OnCall {
        self.turns.left = times;
        self
    }

    /// All of them.
    pub fn always(mut self) -> OnCall {
        self.turns.left = u32::MAX;
        self
    }

    /// Only those whose subject contains this: see [`Call`](super::Call).
    pub fn about(mut self, subject: impl Into<String>) -> OnCall {
        self.about = subject.into();
        self
    }

    /// The call fails and has no effect.
    pub fn fail(self, code: Code, message: impl Into<String>) -> Fault {
        self.does(CallFault::Fails(code, message.into()))
    }

    /// The call has its effect, and says that it failed.
    pub fn fails_after_effect(self, code: Code, message: impl Into<String>) -> Fault {
        self.does(CallFault::FailsAfterEffect(code, message.into()))
    }

    /// The call has no effect, and no answer comes.
    pub fn times_out_before_effect(self) -> Fault {
        self.does(CallFault::HangsBeforeEffect)
    }

    /// The call has its effect, and no answer comes.
    pub fn times_out_after_effect(self) -> Fault {
        self.does(CallFault::HangsAfterEffect)
    }

    /// The call takes longer by this.
    pub fn takes(self, longer: Duration) -> Fault {
        self.does(CallFault::IsSlow(longer))
    }

    /// The runtime dies before the call has an effect: see [`Simulator::die`](super::Simulator::die).
    pub fn kills_the_runtime_before_effect(self) -> Fault {
        self.does(CallFault::DiesBeforeEffect)
    }

    /// The runtime dies after the call's effect, before its answer.
    pub fn kills_the_runtime_after_effect(self) -> Fault {
        self.does(CallFault::DiesAfterEffect)
    }

    fn does(self, fault: CallFault) -> Fault {
        Fault(Rule::Call(CallRule { on: self, fault }))
    }
}

/// Which events something goes wrong with: the next one, unless said otherwise.
#[derive(Debug, Clone)]
pub struct OnEvent {
    source: HintSource,
    kind: HintKind,
    turns: Turns,
}

impl OnEvent {
    /// The one with this number from now on; the next is the first.
    pub fn nth(mut self, number: u32) -> OnEvent {
        self.turns.pass = number.saturating_sub(1);
        self
    }

    /// So many of them.
    pub fn times(mut self, times: u32) -> OnEvent {
        self.turns.left = times;
        self
    }

    /// All of them.
    pub fn always(mut self) -> OnEvent {
        self.turns.left = u32::MAX;
        self
    }

    /// It never comes.
    pub fn is_lost(self) -> Fault {
        self.does(EventFault::Lost)
    }

    /// It comes twice.
    pub fn is_doubled(self) -> Fault {
        self.does(EventFault::Doubled)
    }

    /// It comes later.
    pub fn is_late(self, by: Duration) -> Fault {
        self.does(EventFault::Late(by))
    }

    /// It comes after the next one of its stream, or after a second if there is none.
    pub fn comes_after_the_next(self) -> Fault {
        self.does(EventFault::AfterNext)
    }

    fn does(self, fault: EventFault) -> Fault {
        Fault(Rule::Event(EventRule { on: self, fault }))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CallRule {
    on: OnCall,
    fault: CallFault,
}

#[derive(Debug, Clone)]
pub(crate) enum CallFault {
    Fails(Code, String),
    FailsAfterEffect(Code, String),
    HangsBeforeEffect,
    HangsAfterEffect,
    IsSlow(Duration),
    DiesBeforeEffect,
    DiesAfterEffect,
}

#[derive(Debug, Clone)]
pub(crate) struct EventRule {
    on: OnEvent,
    fault: EventFault,
}

#[derive(Debug, Clone)]
pub(crate) enum EventFault {
    Lost,
    Doubled,
    Late(Duration),
    AfterNext,
}

/// Faults by chance. Each number is a probability, from 0 to 1; what happens follows from the seed of the settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chaos {
    /// A call fails, with `Unknown`, and has no effect.
    pub call_fails: f64,
    /// A call has no effect, and no answer comes.
    pub call_times_out_before_effect: f64,
    /// A call has its effect, and no answer comes.
    pub call_times_out_after_effect: f64,
    /// An event never comes.
    pub event_is_lost: f64,
    /// An event comes twice.
    pub event_is_doubled: f64,
    /// An event is late, by up to `event_delay`.
    pub event_is_late: f64,
    /// How late an event can be.
    pub event_delay: Duration,
}

/// All that goes wrong.
#[derive(Debug)]
pub(crate) struct Faults {
    calls: Vec<CallRule>,
    events: Vec<EventRule>,
    pub(crate) chaos: Chaos,
    random: Random,
}

impl Faults {
    pub(crate) fn new(chaos: Chaos, seed: u64) -> Faults {
        Faults { calls: Vec::new(), events: Vec::new(), chaos, random: Random::new(seed) }
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        match fault.0 {
            Rule::Call(rule) => self.calls.push(rule),
            Rule::Event(rule) => self.events.push(rule),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.events.clear();
        self.chaos = Chaos::default();
    }

    /// What goes wrong with a call. The first rule that meets it counts; all that match count it.
    pub(crate) fn of_call(&mut self, method: Method, subject: &str) -> Option<CallFault> {
        let mut met = None;
        for rule in &mut self.calls {
            let matches =
                rule.on.method.is_none_or(|wanted| wanted == method) && subject.contains(&rule.on.about);
            if matches && rule.on.turns.take() && met.is_none() {
                met = Some(rule.fault.clone());
            }
        }
        self.calls.retain(|rule| rule.on.turns.left > 0);
        met.or_else(|| self.call_by_chance(method))
    }

    fn call_by_chance(&mut self, method: Method) -> Option<CallFault> {
        let Chaos { call_fails, call_times_out_before_effect, call_times_out_after_effect, .. } = self.chaos;
        if self.random.chance(call_fails) {
            return Some(CallFault::Fails(Code::Unknown, "a fault by chance".to_owned()));
        }
        let hang = if self.random.chance(call_times_out_before_effect) {
            CallFault::HangsBeforeEffect
        } else if self.random.chance(call_times_out_after_effect) {
            CallFault::HangsAfterEffect
        } else {
            return None;
        };
        // A command may run without a limit: nobody could tell a hang that never ends from a hook that takes long.
        Some(if method == Method::ExecSync { CallFault::IsSlow(LOST_COMMAND) } else { hang })
    }

    /// What goes wrong with an event.
    pub(crate) fn of_event(&mut self, source: HintSource, kind: HintKind) -> Option<EventFault> {
        let mut met = None;
        for rule in &mut self.events {
            let matches = rule.on.source == source && rule.on.kind == kind;
            if matches && rule.on.turns.take() && met.is_none() {
                met = Some(rule.fault.clone());
            }
        }
        self.events.retain(|rule| rule.on.turns.left > 0);
        met.or_else(|| self.event_by_chance())
    }

    fn event_by_chance(&mut self) -> Option<EventFault> {
        let Chaos { event_is_lost, event_is_doubled, event_is_late, event_delay, .. } = self.chaos;
        if self.random.chance(event_is_lost) {
            return Some(EventFault::Lost);
        }
        if self.random.chance(event_is_doubled) {
            return Some(EventFault::Doubled);
        }
        self.random
            .chance(event_is_late)
            .then(|| EventFault::Late(self.random.between(Duration::ZERO, event_delay)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_meets_the_call_it_was_meant_for() {
        let mut faults = Faults::new(Chaos::default(), 1);
        faults.add(Fault::on(Method::StartContainer).nth(2).times(2).fail(Code::Unknown, "x"));
        let meets: Vec<bool> =
            (0..5).map(|_| faults.of_call(Method::StartContainer, "a").is_some()).collect();
        assert_eq!(meets, [false, true, true, false, false]);
        assert!(faults.calls.is_empty());

        faults.add(Fault::on_any_call().about("web").always().times_out_before_effect());
        assert!(faults.of_call(Method::Version, "").is_none());
        assert!((0..10).all(|_| faults.of_call(Method::CreateContainer, "ns/web/c").is_some()));
        faults.clear();
        assert!(faults.of_call(Method::CreateContainer, "ns/web/c").is_none());
    }

    #[test]
    fn a_fault_of_one_stream_leaves_the_other_alone() {
        let mut faults = Faults::new(Chaos::default(), 1);
        faults.add(Fault::on_event(HintSource::Cri, HintKind::Stopped).is_lost());
        assert!(faults.of_event(HintSource::Containerd, HintKind::Stopped).is_none());
        assert!(faults.of_event(HintSource::Cri, HintKind::Started).is_none());
        assert!(faults.of_event(HintSource::Cri, HintKind::Stopped).is_some());
        assert!(faults.of_event(HintSource::Cri, HintKind::Stopped).is_none());
    }

    #[test]
    fn the_same_seed_gives_the_same_chaos() {
        let chaos = Chaos { call_fails: 0.3, call_times_out_after_effect: 0.3, ..Chaos::default() };
        let draw = |seed| {
            let mut faults = Faults::new(chaos.clone(), seed);
            (0..50).map(|_| format!("{:?}", faults.of_call(Method::Version, ""))).collect::<Vec<_>>()
        };
        assert_eq!(draw(4), draw(4));
        assert_ne!(draw(4), draw(5));
    }
}
