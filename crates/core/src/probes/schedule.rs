//! When the probes of a container are due, and what their attempts amount to.
//!
//! A [`Schedule`] belongs to one run of one container: a container that is started anew gets a new one, and with it
//! everything begins again. Whoever makes the attempts asks [`Schedule::due`] when the next one is, says
//! [`Schedule::begin`], makes it, and says [`Schedule::end`]; the answer is whether what is believed has changed.
//!
//! Moments are durations since one that the caller chose.

use std::time::Duration;

use crablet_api::core::{Container, Probe};

use super::{ContainerProbes, ProbeKind, ProbeResult};

/// What one attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The container answered that it is well.
    Success,
    /// It answered that it is not, or did not answer in time.
    Failure,
    /// It could not be asked. That says nothing about the container, so it counts for nothing.
    Error,
}

/// What a schedule must know of the run of a container that it begins with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// For how long it has been running.
    pub age: Duration,
    /// Whether it is known to have started: it has no startup probe, or that succeeded before the agent was restarted.
    pub started: bool,
    /// For a container that ran before the agent did: which part of its period each probe waits before its first
    /// attempt, from 0 to 1, so that an agent that begins does not ask everybody at once. None for one that ran later.
    pub spread: Option<f64>,
}

/// The probes of one run of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    started: bool,
    probes: Vec<State>,
}

/// One probe.
#[derive(Debug, Clone, PartialEq)]
struct State {
    kind: ProbeKind,
    period: Duration,
    success_threshold: u32,
    failure_threshold: u32,
    turn: Turn,
    /// What is believed.
    result: Option<ProbeResult>,
    /// What the last attempt came to, and how many in a row.
    streak: (ProbeResult, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The next attempt is then.
    At(Duration),
    /// An attempt is under way, which began then.
    UnderWay(Duration),
    /// What it was for has been found out; there is nothing more to ask this run.
    Over,
}

impl Schedule {
    pub fn new(container: &Container, run: Run, now: Duration) -> Schedule {
        let state = |kind: ProbeKind| Some(State::new(kind, kind.of(container)?, run, now));
        let probes = ProbeKind::ALL.into_iter().filter_map(state).collect();
        let mut schedule = Schedule { started: container.startup_probe.is_none(), probes };
        if run.started {
            schedule.started(now);
        }
        schedule
    }

    /// The next attempt: when, and of which probe. Nothing while all there is to ask is being asked.
    pub fn due(&self) -> Option<(Duration, ProbeKind)> {
        let open = self.probes.iter().filter(|probe| (probe.kind == ProbeKind::Startup) != self.started);
        open.filter_map(|probe| match probe.turn {
            Turn::At(at) => Some((at, probe.kind)),
            Turn::UnderWay(_) | Turn::Over => None,
        })
        .min()
    }

    /// An attempt begins.
    pub fn begin(&mut self, kind: ProbeKind, now: Duration) {
        if let Some(probe) = self.probe(kind) {
            probe.turn = Turn::UnderWay(now);
        }
    }

    /// An attempt is over. The answer is whether something else is believed now.
    pub fn end(&mut self, kind: ProbeKind, outcome: Outcome, now: Duration) -> bool {
        let Some(probe) = self.probe(kind) else { return false };
        let before = probe.result;
        probe.end(outcome, now);
        let result = probe.result;
        if (kind, result) == (ProbeKind::Startup, Some(ProbeResult::Success)) {
            self.started(now);
        }
        result != before
    }

    /// The pod is being stopped: whether its containers are alive or have started does not matter any more, but whether
    /// they are ready does, until they have ended. What is believed stays.
    pub fn stopping(&mut self) {
        for probe in self.probes.iter_mut().filter(|probe| probe.kind != ProbeKind::Readiness) {
            probe.turn = Turn::Over;
        }
    }

    /// What is believed.
    pub fn results(&self) -> ContainerProbes {
        let result = |kind| self.probes.iter().find(|probe| probe.kind == kind)?.result;
        ContainerProbes {
            startup: result(ProbeKind::Startup),
            liveness: result(ProbeKind::Liveness),
            readiness: result(ProbeKind::Readiness),
        }
    }

    /// The container has started: from now on it is asked the rest.
    fn started(&mut self, now: Duration) {
        self.started = true;
        for probe in &mut self.probes {
            match (probe.kind, probe.turn) {
                (ProbeKind::Startup, _) => probe.turn = Turn::Over,
                (_, Turn::At(at)) => probe.turn = Turn::At(at.max(now)),
                (_, Turn::UnderWay(_) | Turn::Over) => {}
            }
        }
    }

    fn probe(&mut self, kind: ProbeKind) -> Option<&mut State> {
        self.probes.iter_mut().find(|probe| probe.kind == kind && probe.turn != Turn::Over)
    }
}

impl State {
    fn new(kind: ProbeKind, probe: &Probe, run: Run, now: Duration) -> State {
        let period = seconds(probe.period_seconds).max(Duration::from_secs(1));
        let delay = seconds(probe.initial_delay_seconds).saturating_sub(run.age);
        let spread = period.mul_f64(run.spread.unwrap_or_default().clamp(0.0, 1.0));
        State {
            kind,
            period,
            success_threshold: count(probe.success_threshold),
            failure_threshold: count(probe.failure_threshold),
            turn: Turn::At(now + delay.max(spread)),
            result: None,
            streak: (ProbeResult::Unknown, 0),
        }
    }

    fn end(&mut self, outcome: Outcome, now: Duration) {
        let Turn::UnderWay(began) = self.turn else { return };
        // One that took longer than its period is followed by the next at once, and by one only.
        self.turn = Turn::At((began + self.period).max(now));
        let (result, threshold) = match outcome {
            Outcome::Success => (ProbeResult::Success, self.success_threshold),
            Outcome::Failure => (ProbeResult::Failure, self.failure_threshold),
            Outcome::Error => return,
        };
        let run = if self.streak.0 == result { self.streak.1.saturating_add(1) } else { 1 };
        self.streak = (result, run);
        if run < threshold {
            return;
        }
        self.result = Some(result);
        let is_final = match self.kind {
            ProbeKind::Startup => true,
            // It is stopped and started anew. A command in a container that is being stopped only does harm.
            ProbeKind::Liveness => result == ProbeResult::Failure,
            ProbeKind::Readiness => false,
        };
        if is_final {
            self.turn = Turn::Over;
        }
    }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn count(threshold: i32) -> u32 {
    u32::try_from(threshold).unwrap_or_default().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;
    use crablet_api::{FeatureGates, default_pod};
    use proptest::prelude::*;

    const HANDLER: &str = "exec: {command: [x]}";

    fn container(probes: &str) -> Container {
        let probes = probes.replace("exec", HANDLER);
        let mut pod = pod_yaml(&format!("spec: {{containers: [{{name: c, image: i, {probes}}}]}}"));
        default_pod(&mut pod, &FeatureGates::default());
        pod.spec.containers[0].clone()
    }

    fn fresh() -> Run {
        Run { age: Duration::ZERO, started: false, spread: None }
    }

    fn word(kind: ProbeKind) -> &'static str {
        match kind {
            ProbeKind::Startup => "S",
            ProbeKind::Liveness => "L",
            ProbeKind::Readiness => "R",
        }
    }

    /// Plays a schedule: every attempt takes no time, and its outcomes are, per kind, the letters of a word (the last
    /// of which goes on for ever): `+` well, `-` not well, `!` could not be asked. Tells `second kind outcome`, and
    /// `=believed` where that changed.
    fn play(container: &Container, run: Run, outcomes: [&str; 3], until: u64) -> String {
        let mut schedule = Schedule::new(container, run, Duration::ZERO);
        let mut asked = [0_usize; 3];
        let mut told = Vec::new();
        while let Some((at, kind)) = schedule.due().filter(|(at, _)| at.as_secs() < until) {
            let index = kind as usize;
            let letters: Vec<char> = outcomes[index].chars().collect();
            let letter = letters.get(asked[index]).or(letters.last()).copied().unwrap_or('+');
            asked[index] += 1;
            let outcome = match letter {
                '+' => Outcome::Success,
                '-' => Outcome::Failure,
                _ => Outcome::Error,
            };
            schedule.begin(kind, at);
            let changed = schedule.end(kind, outcome, at);
            let results = schedule.results();
            let result = match kind {
                ProbeKind::Startup => results.startup,
                ProbeKind::Liveness => results.liveness,
                ProbeKind::Readiness => results.readiness,
            };
            let change = match (changed, result) {
                (false, _) => String::new(),
                (true, Some(result)) => format!("={result:?}"),
                (true, None) => "=nothing".into(),
            };
            told.push(format!("{}{}{letter}{change}", at.as_secs(), word(kind)));
        }
        told.join(" ")
    }

    fn check(probes: &str, run: Run, outcomes: [&str; 3], until: u64, expected: &str) {
        assert_eq!(play(&container(probes), run, outcomes, until), expected, "{probes}");
    }

    #[test]
    fn a_readiness_probe_goes_on_in_its_period_whatever_it_finds() {
        let probes = "readinessProbe: {exec, periodSeconds: 5}";
        check(probes, fresh(), ["", "", "-+---+"], 30, "0R- 5R+=Success 10R- 15R- 20R-=Failure 25R+=Success");
        let quick = "readinessProbe: {exec, periodSeconds: 1, failureThreshold: 1}";
        check(quick, fresh(), ["", "", "-"], 3, "0R-=Failure 1R- 2R-");
        let sure = "readinessProbe: {exec, periodSeconds: 1, successThreshold: 3}";
        check(sure, fresh(), ["", "", "++-+++"], 6, "0R+ 1R+ 2R- 3R+ 4R+ 5R+=Success");
    }

    #[test]
    fn the_first_attempt_waits_for_the_initial_delay_counted_from_the_containers_start() {
        let probes = "livenessProbe: {exec, initialDelaySeconds: 7}";
        check(probes, fresh(), ["", "+", ""], 20, "7L+=Success 17L+");
        let older = Run { age: Duration::from_secs(5), ..fresh() };
        check(probes, older, ["", "+", ""], 20, "2L+=Success 12L+");
        let much_older = Run { age: Duration::from_secs(500), ..fresh() };
        check(probes, much_older, ["", "+", ""], 20, "0L+=Success 10L+");
    }

    #[test]
    fn a_container_that_ran_before_the_agent_is_asked_at_a_moment_of_its_own_within_the_period() {
        let probes = "readinessProbe: {exec, periodSeconds: 8, initialDelaySeconds: 2}";
        let adopted = |spread| Run { age: Duration::from_secs(500), spread: Some(spread), started: true };
        check(probes, adopted(0.5), ["", "", "+"], 20, "4R+=Success 12R+");
        check(probes, adopted(0.0), ["", "", "+"], 10, "0R+=Success 8R+");
        let young = Run { age: Duration::from_secs(1), spread: Some(0.0), started: true };
        check(probes, young, ["", "", "+"], 10, "1R+=Success 9R+");
    }

    #[test]
    fn a_liveness_probe_that_failed_often_enough_is_not_made_again() {
        let probes = "livenessProbe: {exec, periodSeconds: 1}, readinessProbe: {exec, periodSeconds: 3}";
        check(probes, fresh(), ["", "+---", "+"], 8, "0L+=Success 0R+=Success 1L- 2L- 3L-=Failure 3R+ 6R+");
    }

    #[test]
    fn nothing_else_is_asked_until_the_container_has_started() {
        let probes = "startupProbe: {exec, periodSeconds: 2}, livenessProbe: {exec, periodSeconds: 3}, \
                      readinessProbe: {exec, periodSeconds: 5, initialDelaySeconds: 6}";
        check(
            probes,
            fresh(),
            ["--+", "+", "+"],
            13,
            "0S- 2S- 4S+=Success 4L+=Success 6R+=Success 7L+ 10L+ 11R+",
        );
    }

    #[test]
    fn a_startup_probe_that_failed_often_enough_ends_all_asking() {
        let probes = "startupProbe: {exec, periodSeconds: 2, failureThreshold: 2}, livenessProbe: {exec}";
        check(probes, fresh(), ["-", "+", ""], 60, "0S- 2S-=Failure");
    }

    #[test]
    fn a_container_that_had_started_before_the_agent_was_restarted_is_not_asked_again_whether_it_has() {
        let probes = "startupProbe: {exec}, livenessProbe: {exec}";
        let run = Run { started: true, ..fresh() };
        check(probes, run, ["-", "+", ""], 20, "0L+=Success 10L+");
    }

    #[test]
    fn an_attempt_that_could_not_be_made_counts_for_nothing_and_does_not_break_a_row() {
        let probes = "livenessProbe: {exec, periodSeconds: 1, failureThreshold: 2}";
        check(probes, fresh(), ["", "!!-!-", ""], 60, "0L! 1L! 2L- 3L! 4L-=Failure");
    }

    #[test]
    fn an_attempt_that_takes_longer_than_the_period_is_followed_by_one_other_at_once() {
        let second = Duration::from_secs;
        let container = container("readinessProbe: {exec, periodSeconds: 2}");
        let mut schedule = Schedule::new(&container, fresh(), second(0));
        schedule.begin(ProbeKind::Readiness, second(0));
        assert_eq!(schedule.due(), None, "one at a time");
        assert!(schedule.end(ProbeKind::Readiness, Outcome::Success, second(7)));
        assert_eq!(schedule.due(), Some((second(7), ProbeKind::Readiness)));
        schedule.begin(ProbeKind::Readiness, second(7));
        schedule.end(ProbeKind::Readiness, Outcome::Success, second(8));
        assert_eq!(schedule.due(), Some((second(9), ProbeKind::Readiness)));
    }

    #[test]
    fn a_pod_that_stops_is_asked_for_readiness_alone_and_what_is_believed_stays() {
        let probes = "livenessProbe: {exec, failureThreshold: 1}, readinessProbe: {exec}";
        let mut schedule = Schedule::new(&container(probes), fresh(), Duration::ZERO);
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            schedule.begin(kind, Duration::ZERO);
        }
        schedule.end(ProbeKind::Readiness, Outcome::Success, Duration::ZERO);
        schedule.stopping();
        // Its answer comes too late to count.
        assert!(!schedule.end(ProbeKind::Liveness, Outcome::Failure, Duration::ZERO));
        assert_eq!(schedule.results().liveness, None);
        assert_eq!(schedule.results().readiness, Some(ProbeResult::Success));
        assert_eq!(schedule.due(), Some((Duration::from_secs(10), ProbeKind::Readiness)));
    }

    #[test]
    fn a_container_without_probes_is_never_asked() {
        assert_eq!(Schedule::new(&container(""), fresh(), Duration::ZERO).due(), None);
    }

    proptest! {
        /// What is believed changes only after as many outcomes in a row as its threshold says, and nothing else is
        /// asked before the container has started.
        #[test]
        fn beliefs_follow_rows_of_outcomes(
            outcomes in prop::collection::vec(0..3_u8, 1..60), success in 1..4_i32, failure in 1..4_i32,
        ) {
            let probes = format!(
                "readinessProbe: {{exec, successThreshold: {success}, failureThreshold: {failure}}}"
            );
            let mut schedule = Schedule::new(&container(&probes), fresh(), Duration::ZERO);
            let mut row = (2, 0);
            let mut believed = None;
            for outcome in outcomes {
                let (at, kind) = schedule.due().unwrap();
                schedule.begin(kind, at);
                if outcome < 2 {
                    row = if row.0 == outcome { (outcome, row.1 + 1) } else { (outcome, 1) };
                }
                let expected = match row {
                    (0, run) if run >= success => Some(ProbeResult::Success),
                    (1, run) if run >= failure => Some(ProbeResult::Failure),
                    (_, _) => believed,
                };
                let outcome = [Outcome::Success, Outcome::Failure, Outcome::Error][usize::from(outcome)];
                let changed = schedule.end(kind, outcome, at);
                prop_assert_eq!(changed, expected != believed);
                believed = expected;
                prop_assert_eq!(schedule.results().readiness, believed);
            }
        }
    }
}
