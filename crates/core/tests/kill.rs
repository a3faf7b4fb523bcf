//! How pods are stopped.

mod common;

use common::pod;
use crablet_api::core::{Lifecycle, Pod, Probe};
use crablet_core::kill::{Hook, KillReason, Step, Stopping, Termination, container_grace, pod_grace, steps};
use crablet_core::testing::at;

/// Steps in words: `hook c 30, stop d 30, s waits for c`.
fn in_words(steps: &[Step]) -> String {
    let words = steps.iter().map(|step| match step {
        Step::RunHook { name, seconds, .. } => format!("hook {name} {seconds}"),
        Step::Stop { name, grace, .. } => format!("stop {name} {grace}"),
        Step::Wait { name, until, .. } => format!("{name} waits for {until}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn live(names: &[&str]) -> Vec<Stopping> {
    names.iter().map(|name| Stopping::new(name, name)).collect()
}

/// Checks what is done so many seconds after the beginning, with a grace period of 30 seconds, while these containers
/// may run and nothing was done to them.
#[track_caller]
fn check(line: &str, names: &[&str], after: i64, expected: &str) {
    let termination = Termination::new(at(0), 30);
    let found = steps(&pod(line), &termination, &live(names), at(after));
    assert_eq!(in_words(&found), expected);
}

#[test]
fn regular_containers_stop_together_with_the_time_that_is_left() {
    check("Always: c d", &["c", "d"], 0, "stop c 30, stop d 30");
    check("Always: c d", &["d"], 12, "stop d 18");
    check("Always: i | c", &["i"], 0, "stop i 30");
    check("Always: c", &["unheard-of"], 0, "stop unheard-of 30");
    check("Always: c", &[], 0, "");
}

#[test]
fn every_container_gets_two_seconds() {
    check("Always: c", &["c"], 29, "stop c 2");
    check("Always: c", &["c"], 30, "stop c 2");
    check("Always: c", &["c"], 300, "stop c 2");
}

#[test]
fn sidecars_stop_after_the_others_the_last_one_first() {
    check("Always: s* i t* | c", &["c", "s", "t"], 0, "stop c 30, s waits for c, t waits for c");
    check("Always: s* i t* | c", &["s", "t"], 10, "s waits for t, stop t 20");
    check("Always: s* i t* | c", &["s"], 15, "stop s 15");
    check("Always: s* i | c", &["s", "i"], 0, "stop s 30, stop i 30");
}

#[test]
fn when_the_time_is_up_everything_stops_whatever_the_order() {
    check("Always: s* t* | c", &["c", "s", "t"], 30, "stop c 2, stop s 2, stop t 2");
}

#[test]
fn a_container_is_told_once_and_again_only_when_the_end_comes_nearer() {
    let pod = pod("Always: c");
    let mut termination = Termination::new(at(0), 30);
    let told = [Stopping { stop_sent: Some(at(30)), ..Stopping::new("c", "c") }];
    assert_eq!(in_words(&steps(&pod, &termination, &told, at(5))), "");
    assert_eq!(in_words(&steps(&pod, &termination, &told, at(40))), "");
    assert!(termination.shorten(at(5), 3));
    assert_eq!(in_words(&steps(&pod, &termination, &told, at(5))), "stop c 3");
}

#[test]
fn an_end_that_an_earlier_agent_began_takes_no_longer_because_the_clock_was_set_back() {
    let begun = Termination::new(at(10_000), 30);
    for (now, remaining) in [(10_000, 30), (10_020, 10), (20_000, 0), (9_990, 30), (0, 30)] {
        assert_eq!(begun.resume(at(now)).remaining(at(now)), remaining, "at {now}");
    }
}

#[test]
fn the_time_only_ever_gets_shorter() {
    let mut termination = Termination::new(at(0), 30);
    assert!(!termination.shorten(at(1), 60));
    assert!(!termination.shorten(at(1), 29));
    assert!(termination.shorten(at(10), 5));
    assert_eq!(termination, Termination { began: at(0), grace: 5, deadline: at(15) });
    assert!(!termination.shorten(at(11), 30));
    assert_eq!((termination.remaining(at(11)), termination.remaining(at(20))), (4, 0));
}

#[test]
fn a_second_that_has_begun_is_left() {
    let termination = Termination::new(at(0), 30);
    for (millis, left) in [(0, 30), (1, 30), (999, 30), (1000, 29), (29_001, 1), (30_000, 0), (30_001, 0)] {
        let now = at(0) + jiff::SignedDuration::from_millis(millis);
        assert_eq!(termination.remaining(now), left, "after {millis} ms");
    }
}

#[test]
fn hooks_run_first_and_all_at_once() {
    let hooked = |line| {
        let mut pod: Pod = pod(line);
        let hook = || Lifecycle { pre_stop: Some(Default::default()), ..Lifecycle::default() };
        pod.spec.containers[0].lifecycle = Some(Box::new(hook()));
        if let Some(sidecar) = pod.spec.init_containers.first_mut() {
            sidecar.lifecycle = Some(Box::new(hook()));
        }
        pod
    };
    let pod = hooked("Always: s* | c d");
    let termination = Termination::new(at(0), 30);
    let mut containers = live(&["c", "d", "s"]);
    let words = |containers: &[Stopping], now| in_words(&steps(&pod, &termination, containers, at(now)));
    assert_eq!(words(&containers, 0), "hook c 30, stop d 30, hook s 30");
    containers.remove(1);
    containers.iter_mut().for_each(|container| container.hook = Hook::Running);
    assert_eq!(words(&containers, 5), "c waits for c, s waits for s");
    containers.iter_mut().for_each(|container| container.hook = Hook::Done);
    assert_eq!(words(&containers, 10), "stop c 20, s waits for c");
    // A hook that takes too long does not keep the container.
    containers.iter_mut().for_each(|container| container.hook = Hook::Running);
    assert_eq!(words(&containers, 30), "stop c 2, stop s 2");
}

#[test]
fn the_grace_period_of_a_pod_is_the_shortest_that_was_asked_for() {
    let pod = |spec: Option<i64>, deletion: Option<i64>| {
        let mut pod = pod("Always: c");
        pod.spec.termination_grace_period_seconds = spec;
        pod.metadata.deletion_grace_period_seconds = deletion;
        pod
    };
    for (spec, deletion, in_force, wanted, expected) in [
        (Some(30), None, None, None, 30),
        (Some(30), Some(10), None, None, 10),
        (Some(30), Some(60), None, None, 60),
        (Some(30), Some(0), None, None, 1),
        (Some(30), Some(20), Some(10), None, 10),
        (Some(30), Some(20), Some(10), Some(5), 5),
        (Some(30), None, None, Some(600), 600),
        (Some(30), Some(20), None, Some(0), 1),
        (None, None, None, None, 1),
    ] {
        let found = pod_grace(&pod(spec, deletion), in_force, wanted);
        assert_eq!(found, expected, "{spec:?} {deletion:?} {in_force:?} {wanted:?}");
    }
}

#[test]
fn a_probe_may_have_a_grace_period_of_its_own() {
    let mut pod = pod("Always: c");
    let probe =
        |seconds| Some(Box::new(Probe { termination_grace_period_seconds: seconds, ..Probe::default() }));
    pod.spec.containers[0].liveness_probe = probe(Some(5));
    pod.spec.containers[0].startup_probe = probe(None);
    for (reason, expected) in [
        (KillReason::LivenessProbe, 5),
        (KillReason::StartupProbe, 30),
        (KillReason::DefinitionChanged, 30),
        (KillReason::RestartOfAll, 0),
    ] {
        assert_eq!(container_grace(&pod, "c", reason), expected, "{reason:?}");
    }
    pod.spec.containers[0].startup_probe = probe(Some(6));
    assert_eq!(container_grace(&pod, "c", KillReason::StartupProbe), 6);
    pod.metadata.deletion_grace_period_seconds = Some(7);
    assert_eq!(container_grace(&pod, "c", KillReason::LivenessProbe), 7);
    pod.metadata.deletion_grace_period_seconds = None;
    pod.spec.termination_grace_period_seconds = None;
    assert_eq!(container_grace(&pod, "c", KillReason::LivenessProbe), 2);
}
