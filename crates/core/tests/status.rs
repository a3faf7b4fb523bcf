//! What a pod's status is, case by case. See `common` for how pods and runtimes are written down.

mod common;

use common::{World, pod, with_policy};
use crablet_api::core::{
    ContainerRestartPolicy, ContainerState, ContainerStatus, EphemeralContainer, Pod, PodCondition,
    PodConditionType, PodPhase, PodQOSClass, PodStatus, Probe,
};
use crablet_api::document::Limits;
use crablet_api::meta::ConditionStatus;
use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, Gate, Text};
use crablet_core::resize::PodResourceInfo;
use crablet_core::status::{
    Failure, PodCgroup, StartError, StatusInput, keep_what_ended, pod_status, terminated, to_publish,
};
use crablet_core::testing::at;
use expect_test::{Expect, expect};

/// A container's status in words: `c: waiting ContainerCreating, last 137, 2 restarts, ready`.
fn in_words(status: &ContainerStatus) -> String {
    let state = |state: &ContainerState| match state {
        ContainerState::Waiting(waiting) => format!("waiting {}", waiting.reason),
        ContainerState::Running(_) => "running".into(),
        ContainerState::Terminated(end) => format!("{} {}", end.reason, end.exit_code),
    };
    let now = status.state.one().map_or("nothing".into(), state);
    let mut words = vec![format!("{}: {now}", status.name).trim_end().to_owned()];
    words.extend(status.last_state.one().map(|last| format!("last {}", state(last))));
    if status.restart_count > 0 {
        words.push(format!("{} restarts", status.restart_count));
    }
    let flags = [(status.started == Some(true), "started"), (status.ready, "ready")];
    words.extend(flags.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word.to_owned()));
    words.join(", ")
}

/// A status in words: its phase, then its containers, then the conditions that do not hold.
fn status_in_words(status: &PodStatus) -> String {
    let mut lines = vec![status.phase.as_ref().map_or(String::new(), ToString::to_string)];
    for status in status.init_container_statuses.iter().chain(&status.container_statuses) {
        lines.push(in_words(status));
    }
    for condition in status.conditions.iter().filter(|condition| condition.status != ConditionStatus::True) {
        let text = format!("not {}: {} {}", condition.r#type, condition.reason, condition.message);
        lines.push(text.trim_end().trim_end_matches(':').to_owned());
    }
    lines.join("\n")
}

#[track_caller]
fn check(line: &str, observed: &str, expected: Expect) {
    expected.assert_eq(&status_in_words(&World::new(pod(line), observed).status()));
}

#[test]
fn a_new_pod_is_pending() {
    check(
        "Always: c",
        "none",
        expect![[r#"
            Pending
            c: waiting ContainerCreating
            not PodReadyToStartContainers
            not Ready: ContainersNotReady containers with unready status: [c]
            not ContainersReady: ContainersNotReady containers with unready status: [c]"#]],
    );
    check(
        "Always: i | c d",
        "i running",
        expect![[r#"
            Pending
            i: running, started
            c: waiting PodInitializing
            d: waiting PodInitializing
            not Initialized: ContainersNotInitialized containers with incomplete status: [i]
            not Ready: ContainersNotReady containers with unready status: [c d]
            not ContainersReady: ContainersNotReady containers with unready status: [c d]"#]],
    );
}

#[test]
fn a_pod_whose_containers_all_run_is_running_and_ready() {
    check(
        "Always: s* i | c",
        "s running, i exited 0, c running",
        expect![[r#"
            Running
            s: running, started, ready
            i: Completed 0, ready
            c: running, started, ready"#]],
    );
}

#[test]
fn a_pod_that_is_done_has_succeeded_or_failed() {
    check(
        "Never: c d",
        "sandbox dead, c exited 0, d exited 0",
        expect![[r#"
            Succeeded
            c: Completed 0
            d: Completed 0
            not PodReadyToStartContainers
            not Ready: PodCompleted
            not ContainersReady: PodCompleted"#]],
    );
    check(
        "Never: c d",
        "c exited 0, d exited 7",
        expect![[r#"
            Failed
            c: Completed 0
            d: Error 7
            not Ready: PodFailed
            not ContainersReady: PodFailed"#]],
    );
    check(
        "OnFailure: c d",
        "c exited 0, d exited 7",
        expect![[r#"
            Running
            c: Completed 0
            d: Error 7
            not Ready: ContainersNotReady containers with unready status: [c d]
            not ContainersReady: ContainersNotReady containers with unready status: [c d]"#]],
    );
}

#[test]
fn what_is_replaced_against_the_pods_policy_is_not_told_as_ended() {
    check(
        "Never: c d",
        "c replaced 143, d running",
        expect![[r#"
        Running
        c: waiting ContainerCreating, last Error 143
        d: running, started, ready
        not Ready: ContainersNotReady containers with unready status: [c]
        not ContainersReady: ContainersNotReady containers with unready status: [c]"#]],
    );
    check(
        "Always: c d",
        "c replaced 143, d running",
        expect![[r#"
        Running
        c: Error 143
        d: running, started, ready
        not Ready: ContainersNotReady containers with unready status: [c]
        not ContainersReady: ContainersNotReady containers with unready status: [c]"#]],
    );
}

#[track_caller]
fn check_phase(line: &str, observed: &str, expected: PodPhase) {
    assert_eq!(World::new(pod(line), observed).status().phase, Some(expected), "{line}, {observed}");
}

#[test]
fn the_phase_follows_from_the_containers() {
    use PodPhase::{Failed, Pending, Running, Succeeded};
    for (line, observed, expected) in [
        ("Always: c d", "c running", Pending),
        ("Always: c d", "c running, d exited 1", Running),
        ("Always: c d", "c exited 0, d exited 0", Running),
        ("Always: c", "c created", Pending),
        ("Never: c d", "c running, d exited 1", Running),
        ("OnFailure: c", "c exited 0", Succeeded),
        ("OnFailure: c", "c exited 1", Running),
        ("Never: i | c", "i exited 1", Failed),
        ("Never: i | c", "i#1 created, i exited 137", Pending),
        ("Always: i | c", "i exited 1", Pending),
        ("OnFailure: i | c", "i exited 1", Pending),
        ("Never: i | c", "i exited 0", Pending),
        ("Never: i | c", "i exited 0, c running", Running),
        ("Never: i | c", "c running", Running),
        ("Never: s* | c", "s running", Pending),
        ("Never: s* | c", "s running, c running", Running),
        ("Never: s* | c", "s exited 1, c running", Running),
        ("Never: s* | c", "s running, c exited 0", Running),
        ("Never: s* | c", "s exited 137, c exited 0", Succeeded),
        ("Never: s* | c", "s exited 0, c exited 1", Failed),
        ("Never: s? | c", "s running", Pending),
        ("Always: s? | c", "s running, c running", Running),
        ("Always: s* | c d", "s running, c exited 1, d exited 1", Running),
        ("Always: s* | c d", "s exited 1, c exited 1, d exited 1", Running),
        ("Always: s* | c", "s exited 1", Pending),
        ("Always: i j | c", "i exited 0, j running", Pending),
        ("Always: s? | c", "sandbox#1, sandbox#0 dead, s@1 running, c@0 exited 1", Pending),
        ("Always: s* | c", "sandbox#1, sandbox#0 dead, s@1 running, c@0 exited 1", Running),
        ("Never:", "", Pending),
    ] {
        check_phase(line, observed, expected);
    }
}

#[test]
fn a_pod_whose_container_was_stopped_to_be_started_anew_is_not_over() {
    for container_restart_rules in [true, false] {
        for (line, seen) in [
            ("Never: c", "c replaced 137"),
            ("OnFailure: c", "c replaced 0"),
            // The next one is made, and was not started yet.
            ("Never: c", "c#1 created, c exited 137"),
            ("OnFailure: c", "c#1 created, c exited 0"),
        ] {
            let mut world = World::new(pod(line), seen);
            world.features = world.features.with(Gate::ContainerRestartRules, container_restart_rules);
            assert_eq!(world.status().phase, Some(PodPhase::Running), "{line}");
            // An image that cannot be had is said, and the pod waits for it.
            let world = world.start_error("c", "ErrImagePull", "no such image");
            assert_eq!(world.status().phase, Some(PodPhase::Running), "{line}");
            let state = world.status().container_statuses[0].state.clone();
            assert!(format!("{state:?}").contains("ErrImagePull"), "{state:?}");
            // It is when nothing of it is to run any more.
            let ended = World { finished: true, ..world }.status().phase;
            assert!(matches!(ended, Some(PodPhase::Failed | PodPhase::Succeeded)), "{ended:?}");
        }
    }
}

#[test]
fn a_containers_own_policy_counts_for_the_phase() {
    let restarted = with_policy(pod("Never: c d"), "c", ContainerRestartPolicy::Always);
    let status = World::new(restarted, "c exited 0, d exited 0").status();
    assert_eq!(status.phase, Some(PodPhase::Running));
    let never = with_policy(pod("Always: c"), "c", ContainerRestartPolicy::Never);
    let status = World::new(never, "c exited 1").status();
    assert_eq!(status.phase, Some(PodPhase::Failed));
}

#[test]
fn with_the_gate_off_the_pods_policy_alone_counts_for_the_phase() {
    use PodPhase::{Failed, Pending, Running, Succeeded};
    let phase = |pod: Pod, observed: &str, container_restart_rules: bool| {
        let mut world = World::new(pod, observed);
        world.features = world.features.with(Gate::ContainerRestartRules, container_restart_rules);
        world.status().phase
    };
    for (line, observed, expected) in [
        ("Never: c", "c exited 0", Succeeded),
        ("Never: c", "c exited 1", Failed),
        ("OnFailure: c", "c exited 0", Succeeded),
        ("OnFailure: c", "c exited 1", Running),
        ("OnFailure: c d", "c exited 0, d exited 1", Running),
        ("Always: c", "c exited 0", Running),
        ("Never: i | c", "i exited 1", Failed),
        ("Never: i | c", "i exited 0", Pending),
        ("OnFailure: i | c", "i exited 1", Pending),
    ] {
        assert_eq!(phase(pod(line), observed, false), Some(expected), "{line}, {observed}");
    }
    let own = || with_policy(pod("Never: c"), "c", ContainerRestartPolicy::Always);
    assert_eq!(phase(own(), "c exited 1", true), Some(Running));
    assert_eq!(phase(own(), "c exited 1", false), Some(Failed));
    let own = || with_policy(pod("Always: i | c"), "i", ContainerRestartPolicy::Never);
    assert_eq!(phase(own(), "i exited 1", true), Some(Failed));
    assert_eq!(phase(own(), "i exited 1", false), Some(Pending));
}

#[test]
fn a_pod_that_was_stopped_for_good_is_done_whatever_its_policy() {
    let stopped = |observed, source: &str| {
        let mut world = World::new(pod("Always: c"), observed);
        world.pod.metadata.annotations.insert("kubernetes.io/config.source", source.into());
        world.finished = true;
        world.status().phase
    };
    assert_eq!(stopped("c exited 0", "api"), Some(PodPhase::Succeeded));
    assert_eq!(stopped("c exited 137", "api"), Some(PodPhase::Failed));
    assert_eq!(stopped("c exited 137", "file"), Some(PodPhase::Running));
}

#[test]
fn the_restart_count_and_the_last_state_tell_of_earlier_runs() {
    check(
        "Always: c",
        "c#2 running, c#1 exited 1, c#0 exited 3",
        expect![[r#"
            Running
            c: running, last Error 1, 2 restarts, started, ready"#]],
    );
}

#[test]
fn a_container_that_cannot_start_says_why() {
    let world = World::new(pod("Always: c"), "").start_error("c", "ErrImagePull", "no such image");
    let status = world.status();
    let Some(ContainerState::Waiting(waiting)) = status.container_statuses[0].state.one() else { panic!() };
    assert_eq!((&*waiting.reason, &*waiting.message), ("ErrImagePull", "no such image"));

    let world = World::new(pod("Always: c"), "c exited 1").held_back("c", "back-off");
    expect![[r#"
        Running
        c: waiting CrashLoopBackOff, last Error 1
        not Ready: ContainersNotReady containers with unready status: [c]
        not ContainersReady: ContainersNotReady containers with unready status: [c]"#]]
    .assert_eq(&status_in_words(&world.status()));

    // What it could not be started for is said first.
    let world = world.start_error("c", "ErrImagePull", "no such image");
    assert_eq!(in_words(&world.status().container_statuses[0]), "c: waiting ErrImagePull, last Error 1");

    // What is not to be started is not held back.
    let world = World::new(pod("Never: c d"), "c exited 1").held_back("c", "back-off");
    assert_eq!(in_words(&world.status().container_statuses[0]), "c: Error 1");
    let world = World::new(pod("Always: i | c"), "i exited 0").held_back("i", "back-off");
    assert_eq!(in_words(&world.status().init_container_statuses[0]), "i: Completed 0, ready");
    let init = |observed| {
        let world = World::new(pod("Always: i | c"), observed).held_back("i", "back-off");
        in_words(&world.status().init_container_statuses[0])
    };
    assert_eq!(init("i exited 1"), "i: waiting CrashLoopBackOff, last Error 1");
    assert_eq!(init("i created"), "i: waiting CrashLoopBackOff");
}

#[test]
fn a_container_that_ran_and_is_gone_did_end() {
    let world = World::new(pod("Always: c"), "c running").then("");
    assert_eq!(
        in_words(&world.status().container_statuses[0]),
        "c: waiting ContainerCreating, last ContainerStatusUnknown 137, 1 restarts"
    );
    let never = World::new(pod("Never: c"), "c running").then("");
    assert_eq!(never.status().phase, Some(PodPhase::Failed));
    let mut deleted = World::new(pod("Always: c"), "c running").then("");
    deleted.pod.metadata.deletion_timestamp = Some(at(0).into());
    assert_eq!(
        in_words(&deleted.status().container_statuses[0]),
        "c: waiting ContainerCreating, last ContainerStatusUnknown 137"
    );
    let again = World::new(pod("Always: c"), "c#2 running, c#1 exited 3").then("");
    assert_eq!(
        in_words(&again.status().container_statuses[0]),
        "c: waiting ContainerCreating, last Error 3, 2 restarts"
    );
    let unknown = World::new(pod("Always: c"), "c running").then("c unknown");
    assert_eq!(
        in_words(&unknown.status().container_statuses[0]),
        "c: ContainerStatusUnknown 137, 1 restarts"
    );
}

#[test]
fn a_container_that_ended_and_was_collected_keeps_its_status() {
    let world = World::new(pod("Never: c d"), "c exited 3, d running").then("d running");
    assert_eq!(in_words(&world.status().container_statuses[0]), "c: Error 3");
    let world = World::new(pod("Always: i | c"), "i exited 0, c running").then("c running");
    assert_eq!(in_words(&world.status().init_container_statuses[0]), "i: Completed 0, ready");
}

#[test]
fn an_init_container_that_nobody_remembers_was_done_if_others_run() {
    let status = World::new(pod("Always: i s* | c"), "c running").status();
    assert_eq!(in_words(&status.init_container_statuses[0]), "i: Completed 0, ready");
    assert_eq!(in_words(&status.init_container_statuses[1]), "s: waiting PodInitializing");
    assert_eq!(status.phase, Some(PodPhase::Pending));
}

#[test]
fn what_probes_found_decides_whether_a_container_is_ready() {
    let probed = |kind: &str| {
        let mut pod = pod("Always: c");
        let probe = Some(Box::new(Probe::default()));
        match kind {
            "readiness" => pod.spec.containers[0].readiness_probe = probe,
            _ => pod.spec.containers[0].startup_probe = probe,
        }
        World::new(pod, "c running")
    };
    let words = |world: World| in_words(&world.status().container_statuses[0]);
    assert_eq!(words(probed("readiness")), "c: running, started");
    assert_eq!(words(probed("readiness").probe("c-0", "readiness", "failed")), "c: running, started");
    assert_eq!(
        words(probed("readiness").probe("c-0", "readiness", "succeeded")),
        "c: running, started, ready"
    );
    assert_eq!(words(probed("startup")), "c: running");
    assert_eq!(words(probed("startup").probe("c-0", "startup", "unknown")), "c: running");
    assert_eq!(words(probed("startup").probe("c-0", "startup", "succeeded")), "c: running, started, ready");
}

#[test]
fn readiness_does_not_change_because_the_agent_restarted() {
    let mut pod = pod("Always: c");
    pod.spec.containers[0].readiness_probe = Some(Box::new(Probe::default()));
    pod.spec.containers[0].startup_probe = Some(Box::new(Probe::default()));
    let world = World::new(pod, "c running");
    let world = world.probe("c-0", "startup", "succeeded").probe("c-0", "readiness", "succeeded");
    let mut restarted = world.then("c running");
    restarted.probes = Default::default();
    assert_eq!(in_words(&restarted.status().container_statuses[0]), "c: running, started, ready");
    // Another run of the container is not ready because the one before was.
    let mut other = restarted.clone().then("c#1 running, c exited 1");
    other.probes = Default::default();
    let expected = "c: running, last Error 1, 1 restarts";
    assert_eq!(in_words(&other.status().container_statuses[0]), expected);
}

#[test]
fn others_have_a_say_in_whether_a_pod_is_ready() {
    let gated = |condition: Option<&str>| {
        let mut world = World::new(
            pod_yaml("spec: {containers: [{name: c}], readinessGates: [{conditionType: example.com/gate}]}"),
            "c running",
        );
        world.pod.status.conditions = condition
            .map(|status| PodCondition {
                r#type: PodConditionType::from("example.com/gate"),
                status: ConditionStatus::from(status),
                ..PodCondition::default()
            })
            .into_iter()
            .collect();
        let status = world.status();
        let ready = status.conditions.iter().find(|condition| condition.r#type == PodConditionType::Ready);
        let ready = ready.expect("a condition");
        format!("{} {} {}", ready.status, ready.reason, ready.message)
    };
    assert_eq!(gated(Some("True")).trim(), "True");
    assert_eq!(
        gated(None),
        "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/gate\" does not exist."
    );
    assert_eq!(
        gated(Some("False")),
        "False ReadinessGatesNotReady the status of pod readiness gate \"example.com/gate\" is not \"True\", but False"
    );
}

#[test]
fn a_condition_keeps_its_time_until_it_changes() {
    let time_of = |status: &PodStatus, kind: PodConditionType| {
        let condition = status.conditions.iter().find(|condition| condition.r#type == kind);
        condition.and_then(|condition| condition.last_transition_time)
    };
    let world = World::new(pod("Always: c"), "").at(10);
    let world = world.then("c running").at(20);
    let status = world.status();
    assert_eq!(time_of(&status, PodConditionType::PodScheduled), Some(at(10).into()));
    assert_eq!(time_of(&status, PodConditionType::Ready), Some(at(20).into()));
    assert_eq!(status.start_time, Some(at(10).into()));
    let status = world.then("c running").at(30).status();
    assert_eq!(time_of(&status, PodConditionType::Ready), Some(at(20).into()));
}

#[test]
fn conditions_are_in_upstreams_order_and_tell_the_generation() {
    let mut world = World::new(pod("Always: c"), "c running");
    world.pod.metadata.generation = 3;
    world.pod.status.conditions =
        [PodCondition { r#type: PodConditionType::from("example.com/other"), ..PodCondition::default() }]
            .into();
    let status = world.status();
    let conditions: Vec<String> = status
        .conditions
        .iter()
        .map(|condition| format!("{} {}", condition.r#type, condition.observed_generation))
        .collect();
    let expected = [
        "example.com/other 0",
        "PodReadyToStartContainers 3",
        "Initialized 3",
        "Ready 3",
        "ContainersReady 3",
        "PodScheduled 3",
    ];
    assert_eq!(
        (conditions.as_slice(), status.observed_generation),
        (expected.map(String::from).as_slice(), 3)
    );
}

#[test]
fn what_has_come_to_an_end_stays_there() {
    let mut world = World::new(pod("Never: c"), "c exited 1");
    world.previous = world.status();
    world.previous.reason = "Because".into();
    let status = World { observed: World::new(pod("Never: c"), "c running").observed, ..world }.status();
    assert_eq!((status.phase, &*status.reason), (Some(PodPhase::Failed), "Because"));

    let mut world = World::new(pod("Always: c"), "c running");
    world.pod.status.phase = Some(PodPhase::Succeeded);
    world.failure = Some(Failure::deadline_exceeded());
    assert_eq!(world.status().phase, Some(PodPhase::Succeeded));
}

#[test]
fn a_pod_that_was_active_for_too_long_has_failed() {
    let mut world = World::new(pod("Always: c"), "c running").at(100);
    world.pod.spec.active_deadline_seconds = Some(60);
    let world = world.then("c running").at(159);
    assert_eq!(world.status().phase, Some(PodPhase::Running));
    let status = world.at(160).status();
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!((&*status.reason, &*status.message), ("DeadlineExceeded", message));
    assert_eq!(status.phase, Some(PodPhase::Failed));
}

#[test]
fn a_pod_that_was_evicted_says_so_and_keeps_saying_it() {
    let mut world = World::new(pod("Always: c"), "c running");
    world.failure = Some(Failure::evicted(&world.pod, "The node was low on resource: memory."));
    let mut world = world.then("c exited 137");
    world.failure = None;
    let status = world.status();
    let message = "The node was low on resource: memory.";
    assert_eq!((&*status.reason, &*status.message), ("Evicted", message));
    let disruption = status.conditions.iter().find(|c| c.r#type == PodConditionType::DisruptionTarget);
    let disruption = disruption.expect("it stays");
    assert_eq!((&*disruption.reason, &*disruption.message), ("TerminationByKubelet", message));
}

#[test]
fn a_pod_has_succeeded_that_had_done_its_work_before_the_shutdown_and_not_one_that_was_told_to_end() {
    let ended = |change: fn(&Pod) -> Failure, after_success| {
        let mut world = World::new(pod("Never: c"), "c running");
        world.failure = Some(Failure { after_success, ..change(&world.pod) });
        let status = world.then("c exited 0").status();
        (status.phase.unwrap(), status.reason)
    };
    assert_eq!(ended(Failure::node_shutdown, true), (PodPhase::Succeeded, "Terminated".into()));
    // Upstream takes its word for it that all is done.
    assert_eq!(ended(Failure::node_shutdown, false), (PodPhase::Failed, "Terminated".into()));
    assert_eq!(ended(Failure::preempted, true), (PodPhase::Failed, "Preempting".into()));
}

#[test]
fn of_two_who_disrupt_a_pod_its_node_counts() {
    let mut world = World::new(pod("Always: c"), "c running");
    let foreign = |kind: &str| PodCondition {
        r#type: PodConditionType::from(kind),
        reason: "Other".into(),
        ..PodCondition::default()
    };
    world.pod.status.conditions = [foreign("DisruptionTarget"), foreign("example.com/x")].into();
    let words = |world: &World| {
        let status = world.status();
        let conditions =
            status.conditions.iter().take_while(|c| c.r#type != PodConditionType::PodReadyToStartContainers);
        conditions.map(|c| format!("{} {}", c.r#type, c.reason)).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(words(&world), "DisruptionTarget Other, example.com/x Other");
    world.failure = Some(Failure::evicted(&world.pod, "low"));
    assert_eq!(words(&world), "example.com/x Other, DisruptionTarget TerminationByKubelet");
}

#[test]
fn addresses_stay_when_the_sandbox_is_gone() {
    let status = World::new(pod("Never: c"), "c running").then("sandbox dead, c exited 0").status();
    assert_eq!((&*status.pod_ip, &*status.host_ip), ("10.0.0.1", "192.168.0.1"));
    let status = World::new(pod("Always: c"), "c running").then("sandbox#1, sandbox#0 dead").status();
    assert_eq!(&*status.pod_ip, "10.0.0.2");
    // An older sandbox is no reason to keep them.
    let status = World::new(pod("Always: c"), "c running").then("sandbox#1 dead, sandbox#0").status();
    assert_eq!(&*status.pod_ip, "");
    let mut host = pod("Always: c");
    host.spec.host_network = true;
    let mut world = World::new(host, "none");
    assert_eq!(&*world.status().pod_ip, "192.168.0.1");
    world.node.host_ips.clear();
    assert_eq!(&*world.status().pod_ip, "");
}

#[test]
fn resources_are_what_was_granted_or_what_the_runtime_tells() {
    let asking = pod_yaml(
        "spec: {containers: [{name: c, resources: \
         {limits: {cpu: 100m, memory: 64Mi}, requests: {cpu: 1m, memory: 64Mi}}}]}",
    );
    let resources = |world: &World| {
        let status = world.status();
        let told = status.container_statuses[0].resources.as_ref();
        serde_json::to_string(&told.expect("resources")).expect("JSON")
    };
    let mut world = World::new(asking, "c running");
    let granted = r#"{"limits":{"cpu":"100m","memory":"64Mi"},"requests":{"cpu":"1m","memory":"64Mi"}}"#;
    assert_eq!(resources(&world), granted);

    let mut containers = world.observed.containers().to_vec();
    containers[0].status.resources = Some(crablet_cri_api::v1::ContainerResources {
        linux: Some(crablet_cri_api::v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 20_000,
            cpu_shares: 2,
            memory_limit_in_bytes: 128 << 20,
            ..Default::default()
        }),
        ..Default::default()
    });
    world.observed = crablet_core::observed::Pod::new(world.observed.sandboxes().to_vec(), containers);
    let told = r#"{"limits":{"cpu":"200m","memory":"128Mi"},"requests":{"cpu":"1m","memory":"64Mi"}}"#;
    assert_eq!(resources(&world), told);
    // A runtime that does not tell any more: what was told before.
    assert_eq!(resources(&world.then("c running")), told);
}

/// What the status says of a container's resources, when it was granted and the runtime tells this.
#[track_caller]
fn check_resources(granted: &str, told: (i64, i64, i64, i64), expected: &str) {
    let asking = pod_yaml(&format!("spec: {{containers: [{{name: c, resources: {granted}}}]}}"));
    let mut world = World::new(asking, "c running");
    let (cpu_period, cpu_quota, cpu_shares, memory_limit_in_bytes) = told;
    let linux = crablet_cri_api::v1::LinuxContainerResources {
        cpu_period,
        cpu_quota,
        cpu_shares,
        memory_limit_in_bytes,
        ..Default::default()
    };
    let resources = crablet_cri_api::v1::ContainerResources { linux: Some(linux), ..Default::default() };
    world.observed.containers_mut()[0].status.resources = Some(resources);
    let status = world.status();
    let resources = serde_json::to_string(&status.container_statuses[0].resources).expect("JSON");
    assert_eq!(resources, expected, "{granted}, {told:?}");
}

#[test]
fn what_the_kernel_cannot_tell_apart_is_told_as_it_was_granted() {
    let requests = |cpu: &str| format!("{{requests: {{cpu: {cpu}}}}}");
    let told = |cpu: &str| format!(r#"{{"requests":{{"cpu":"{cpu}"}}}}"#);
    check_resources(&requests("2m"), (0, 0, 2, 0), &told("2m"));
    check_resources(&requests("1m"), (0, 0, 2, 0), &told("1m"));
    check_resources(&requests("3m"), (0, 0, 2, 0), &told("2m"));
    check_resources(&requests("1m"), (0, 0, 3, 0), &told("3m"));
    check_resources(&requests("1"), (0, 0, 512, 0), &told("500m"));
    check_resources(&requests("1"), (0, 0, 1, 0), &told("1"));
    let limits = |cpu: &str| format!("{{limits: {{cpu: {cpu}}}}}");
    let told = |cpu: &str| format!(r#"{{"limits":{{"cpu":"{cpu}"}}}}"#);
    check_resources(&limits("5m"), (100_000, 1000, 2, 0), &told("5m"));
    check_resources(&limits("11m"), (100_000, 1000, 2, 0), &told("10m"));
    check_resources(&limits("5m"), (100_000, 1100, 2, 0), &told("11m"));
    check_resources(&limits("1"), (50_000, 25_000, 2, 0), &told("500m"));
    check_resources(&limits("1"), (0, 25_000, 2, 0), &told("1"));
    check_resources(&limits("1"), (50_000, -1, 2, 0), &told("1"));
    check_resources(&limits("1"), (100_000, 50, 2, 0), &told("1"));
    let limits = "{limits: {memory: 64Mi}}";
    check_resources(limits, (0, 0, 0, 128 << 20), r#"{"limits":{"memory":"128Mi"}}"#);
    check_resources(limits, (0, 0, 2, 0), r#"{"limits":{"memory":"64Mi"}}"#);
    // What nobody asked for is not told, whatever the runtime says.
    check_resources("{}", (50_000, 25_000, 512, 128 << 20), "{}");
}

#[test]
fn with_the_gate_off_resources_of_the_pod_as_a_whole_make_no_class() {
    let pod = pod_yaml("spec: {resources: {requests: {cpu: 1}}, containers: [{name: c}]}");
    let mut world = World::new(pod, "c running");
    assert_eq!(world.status().qos_class, Some(PodQOSClass::Burstable));
    world.features = world.features.with(Gate::PodLevelResources, false);
    assert_eq!(world.status().qos_class, Some(PodQOSClass::BestEffort));
}

#[test]
fn what_the_runtime_does_not_tell_is_what_was_given_last() {
    let asking = pod_yaml(
        "spec: {containers: [{name: c, resources: \
         {limits: {cpu: 1, memory: 2Mi}, requests: {cpu: 1, memory: 1Mi}}}]}",
    );
    let given = "{limits: {cpu: 2, memory: 4Mi}, requests: {cpu: 2, memory: 3Mi}}";
    let given = pod_yaml(&format!("spec: {{containers: [{{name: c, resources: {given}}}]}}"));
    let mut actuated = PodResourceInfo::default();
    actuated.set("c", given.spec.containers[0].resources.clone());
    let resources = |world: &World| {
        let status = pod_status(&StatusInput { actuated: &actuated, ..world.status_input() });
        serde_json::to_string(&status.container_statuses[0].resources).expect("JSON")
    };
    assert_eq!(
        resources(&World::new(asking.clone(), "c running")),
        r#"{"limits":{"cpu":"2","memory":"4Mi"},"requests":{"cpu":"2","memory":"3Mi"}}"#
    );
    // A runtime that tells something never tells how much memory was asked for.
    let mut telling = World::new(asking.clone(), "c running");
    let linux = crablet_cri_api::v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    telling.observed.containers_mut()[0].status.resources =
        Some(crablet_cri_api::v1::ContainerResources { linux: Some(linux), ..Default::default() });
    assert_eq!(
        resources(&telling),
        r#"{"limits":{"cpu":"1","memory":"2Mi"},"requests":{"cpu":"500m","memory":"3Mi"}}"#
    );
    assert_eq!(
        resources(&World::new(asking, "c exited 0")),
        r#"{"limits":{"cpu":"1","memory":"2Mi"},"requests":{"cpu":"1","memory":"1Mi"}}"#
    );
}

#[test]
fn a_pod_that_runs_has_the_resources_of_its_cgroup() {
    let pod = "spec: {resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 1}}, \
               containers: [{name: c, resources: {requests: {memory: 1Gi}}}]}";
    let mut world = World::new(pod_yaml(pod), "c running");
    world.pod.status.phase = Some(PodPhase::Running);
    let resources = |world: &World, cgroup: Option<&PodCgroup>| {
        let status = pod_status(&StatusInput { pod_cgroup: cgroup, ..world.status_input() });
        serde_json::to_string(&status.resources).expect("JSON")
    };
    let granted = r#"{"limits":{"cpu":"2","memory":"2Gi"},"requests":{"cpu":"1","memory":"1Gi"}}"#;
    assert_eq!(resources(&world, None), granted);
    let cgroup = PodCgroup {
        cpu_request: Some("1500m".parse().expect("a quantity")),
        cpu_limit: Some("2500m".parse().expect("a quantity")),
        memory_limit: Some("3Gi".parse().expect("a quantity")),
    };
    let found = r#"{"limits":{"cpu":"2500m","memory":"3Gi"},"requests":{"cpu":"1500m","memory":"1Gi"}}"#;
    assert_eq!(resources(&world, Some(&cgroup)), found);
    // A cgroup that cannot be read any more: what it said before, if the pod ran then.
    world.previous = pod_status(&StatusInput { pod_cgroup: Some(&cgroup), ..world.status_input() });
    assert_eq!(resources(&world, None), found);
    world.previous.phase = Some(PodPhase::Pending);
    assert_eq!(resources(&world, None), granted);
    // Before it runs, nothing is asked.
    world.pod.status.phase = Some(PodPhase::Pending);
    assert_eq!(resources(&world, Some(&cgroup)), granted);
}

#[test]
fn a_status_tells_the_user_and_the_stop_signal_of_a_container() {
    use crablet_cri_api::v1::{ContainerUser, LinuxContainerUser, Signal};
    let mut world = World::new(pod("Always: c"), "c running");
    let told = |world: &World| {
        let status = &world.status().container_statuses[0];
        let signal = status.stop_signal.as_ref().map(ToString::to_string);
        (serde_json::to_string(&status.user).expect("JSON"), signal)
    };
    assert_eq!(told(&world), ("null".into(), None));
    let linux = LinuxContainerUser { uid: 1, gid: 2, supplemental_groups: vec![2, 3] };
    let run = &mut world.observed.containers_mut()[0].status;
    run.user = Some(ContainerUser { linux: Some(linux) });
    run.stop_signal = Signal::Sigrtminplus1;
    let user = r#"{"linux":{"uid":1,"gid":2,"supplementalGroups":[2,3]}}"#;
    assert_eq!(told(&world), (user.into(), None));
    world.features = world.features.with(Gate::ContainerStopSignals, true);
    assert_eq!(told(&world), (user.into(), Some("SIGRTMIN+1".into())));
    world.observed.containers_mut()[0].status.stop_signal = Signal::RuntimeDefault;
    assert_eq!(told(&world), (user.into(), None));
}

#[test]
fn the_pod_as_a_whole_has_resources_too() {
    let line = "spec: {containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}";
    let status = World::new(pod_yaml(line), "c running").status();
    let allocated = serde_json::to_string(&status.allocated_resources).expect("JSON");
    assert_eq!(allocated, r#"{"cpu":"1","memory":"1Gi"}"#);
    let resources = serde_json::to_string(&status.resources).expect("JSON");
    assert_eq!(resources, r#"{"requests":{"cpu":"1","memory":"1Gi"}}"#);
}

#[test]
fn a_mount_says_whether_it_is_read_only_all_the_way_down() {
    // What was known when the status was made, one after the other, and what the last one says.
    let check = |line: &str, known: &[Option<bool>], expected: &str| {
        let mut world = World::new(
            pod_yaml(
                "spec: {containers: [{name: c, volumeMounts: [{name: a, mountPath: /a}, \
                 {name: b, mountPath: /b, readOnly: true}, \
                 {name: c, mountPath: /c, readOnly: true, recursiveReadOnly: IfPossible}]}]}",
            ),
            line,
        );
        for known in known {
            let input = StatusInput { recursive_read_only_mounts: *known, ..world.status_input() };
            world.previous = pod_status(&input);
        }
        let mounts = world.previous.container_statuses[0].volume_mounts.iter();
        let modes = mounts.map(|mount| mount.recursive_read_only.as_ref().map(ToString::to_string));
        let modes: Vec<String> = modes.map(|mode| mode.unwrap_or("-".to_owned())).collect();
        assert_eq!(modes.join(" "), format!("- Disabled {expected}"), "{line:?} {known:?}");
    };
    for line in ["", "c running"] {
        check(line, &[Some(true)], "Enabled");
        check(line, &[Some(false)], "Disabled");
        // An agent that has just begun does not know, and changes nothing.
        check(line, &[Some(true), None], "Enabled");
        check(line, &[Some(false), None], "Disabled");
        check(line, &[None], "-");
        check(line, &[None, Some(true)], "Enabled");
        check(line, &[None, None, Some(false)], "Disabled");
    }
    // How a container was mounted does not change while it runs.
    check("c running", &[Some(true), Some(false)], "Enabled");
}

#[test]
fn why_a_container_could_not_be_started_is_cut_where_it_is_very_long() {
    assert_eq!(StartError::new("Error", "short").message, "short");
    let long = StartError::new("Error", "ä".repeat(100_000)).message;
    assert!(long.len() < 8200 && long.ends_with("ä…"), "{}", long.len());
}

#[test]
fn termination_messages_are_cut_so_that_a_pods_fit_together() {
    let mut world = World::new(pod("Never: a b c d"), "a exited 1");
    let mut containers = world.observed.containers().to_vec();
    containers[0].status.message = "ä".repeat(4000);
    world.observed = crablet_core::observed::Pod::new(world.observed.sandboxes().to_vec(), containers);
    let status = world.status();
    let Some(ContainerState::Terminated(end)) = status.container_statuses[0].state.one() else { panic!() };
    assert_eq!(end.message.len(), 3072);

    // All containers have a share, and earlier ends count too.
    let mut debugged = pod("Always: i s* | c");
    let mut debug = EphemeralContainer::default();
    debug.container.name = "debug".into();
    debugged.spec.ephemeral_containers = [debug].into();
    let mut world = World::new(debugged, "i exited 0, s running, c#1 running, c#0 exited 1, debug exited 1");
    world.observed.containers_mut().iter_mut().for_each(|run| run.status.message = "x".repeat(4000));
    let status = world.status();
    let length = |status: &ContainerStatus| {
        let ends = [&status.state, &status.last_state].into_iter().filter_map(|state| match state.one() {
            Some(ContainerState::Terminated(end)) => Some(end.message.len()),
            Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => None,
        });
        ends.sum::<usize>()
    };
    let lengths = [
        &status.init_container_statuses[0],
        &status.container_statuses[0],
        &status.ephemeral_container_statuses[0],
    ];
    assert_eq!(lengths.map(length), [3072; 3]);
}

#[test]
fn the_last_status_of_a_pod_leaves_nothing_running() {
    let last = |line: &str, observed: &str| {
        let mut world = World::new(pod(line), observed);
        world.pod.status = world.status();
        status_in_words(&terminated(&world.pod, &world.pod.status))
            .lines()
            .take(4)
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(last("Always: c", "c running"), "Failed; c: ContainerStatusUnknown 137, started, ready");
    assert!(last("Never: i j | c", "i running").starts_with(
        "Failed; i: ContainerStatusUnknown 137, started; j: waiting PodInitializing; c: waiting PodInitializing"
    ));
    assert!(last("Never: i | c", "i exited 0, c exited 0").starts_with("Succeeded; i: Completed 0, ready"));
    // A trace of the last init container's end, or of a sidecar's start, tells that the others may have run.
    let lost = "c: ContainerStatusUnknown 137";
    assert!(last("Never: i | c", "i exited 0").contains(lost));
    assert!(last("Never: s* | c", "s running").contains(lost));
    assert!(last("Never: s? | c", "s running").contains("c: waiting"));
    assert!(last("OnFailure: i | c", "i exited 1").contains("c: waiting"));
    assert!(last("OnFailure: i | c", "i exited 1, c running").contains(lost));
    // An init container that waits for its next try has begun.
    assert!(
        last("OnFailure: i j | c", "i exited 0, j#1 created, j#0 exited 1")
            .contains("j: ContainerStatusUnknown")
    );

    let mut world = World::new(pod("Always: c"), "c running");
    world.pod.metadata.annotations.insert("kubernetes.io/config.source", "file".into());
    assert_eq!(
        terminated(&world.pod, &world.status()).phase,
        Some(PodPhase::Running),
        "a static pod comes back"
    );
}

#[test]
fn a_pod_does_not_come_to_its_end_for_others_while_its_containers_may_run() {
    let mut world = World::new(pod("Always: c"), "c running");
    world.pod.status = world.status();
    world.previous = world.pod.status.clone();
    world.failure = Some(Failure::evicted(&world.pod, "low"));
    let new = world.status();
    let publish = |running| to_publish(&world.pod, &new, running, &world.features, world.now);
    let has_disruption = |status: &PodStatus| {
        status.conditions.iter().any(|condition| condition.r#type == PodConditionType::DisruptionTarget)
    };
    let early = publish(true);
    assert_eq!((early.phase.clone(), &*early.reason), (Some(PodPhase::Running), ""));
    assert!(!has_disruption(&early));
    let late = publish(false);
    assert_eq!((late.phase.clone(), &*late.reason), (Some(PodPhase::Failed), "Evicted"));
    assert!(has_disruption(&late));
}

#[test]
fn what_others_say_of_a_pod_is_left_as_it_is() {
    let mut world = World::new(pod("Always: c"), "c running");
    let other = PodCondition { r#type: PodConditionType::from("example.com/x"), ..PodCondition::default() };
    world.pod.status.conditions = [other.clone()].into();
    let published = to_publish(&world.pod, &PodStatus::default(), false, &world.features, world.now);
    assert_eq!(&*published.conditions, [other]);

    let status = r#"{"resourceClaimStatuses": [{"name": "a"}], "extendedResourceClaimStatus":
        {"requestMappings": [], "resourceClaimName": "b"}, "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}]}"#;
    world.pod.status = crablet_api::from_json(status.as_bytes(), Limits::MANIFEST).expect("a status");
    let published = to_publish(&world.pod, &PodStatus::default(), false, &world.features, world.now);
    assert_eq!(published, world.pod.status);
}

#[test]
fn a_pod_that_has_come_to_its_end_is_never_published_as_ready() {
    let mut world = World::new(pod("Always: c"), "c running").at(10);
    world.pod.metadata.generation = 3;
    let mut new = world.status();
    let published = |new: &PodStatus| {
        let published = to_publish(&world.pod, new, false, &world.features, at(20));
        let ready = published.conditions.iter().filter(|condition| {
            [PodConditionType::Ready, PodConditionType::ContainersReady].contains(&condition.r#type)
        });
        let words = ready.map(|condition| {
            let since = jiff::Timestamp::from(condition.last_transition_time.expect("a time"));
            let seconds = since.duration_since(at(0)).as_secs();
            assert_eq!(condition.observed_generation, 3);
            format!("{} {} {} since {seconds}", condition.r#type, condition.status, condition.reason)
        });
        words.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(published(&new), "Ready True  since 10, ContainersReady True  since 10");
    new.phase = Some(PodPhase::Succeeded);
    let completed = "Ready False PodCompleted since 20, ContainersReady False PodCompleted since 20";
    assert_eq!(published(&new), completed);
    new.phase = Some(PodPhase::Failed);
    assert_eq!(published(&new), completed.replace("Completed", "Failed"));
    // What says so already stays as it is.
    for condition in &mut new.conditions {
        (condition.status, condition.reason) = (ConditionStatus::False, "Because".into());
    }
    assert_eq!(published(&new), "Ready False Because since 10, ContainersReady False Because since 10");
}

#[test]
fn a_container_that_ended_for_good_never_runs_again_in_a_status() {
    let between = |pod: &Pod, old: &str, new: &str, features: &FeatureGates| {
        let status = |observed| World::new(pod.clone(), observed).status();
        let mut told = status(new);
        let at_server = Pod { status: status(old), ..pod.clone() };
        keep_what_ended(&at_server, &mut told, features);
        let wanted = status(new);
        let changed = told.init_and_regular_statuses().zip(wanted.init_and_regular_statuses());
        let mut kept = changed.filter(|(told, wanted)| told != wanted);
        let kept = kept.next().map(|(told, _)| told.clone());
        if let Some(kept) = &kept {
            let mut before = at_server.status.init_and_regular_statuses();
            assert!(before.any(|before| before == kept));
        }
        kept.map(|kept| kept.name)
    };
    let check = |line: &str, old: &str, new: &str| between(&pod(line), old, new, &FeatureGates::default());
    let c: Option<Text> = Some("c".into());
    assert_eq!(check("Never: c", "c exited 0", "c running"), c);
    assert_eq!(check("Never: c", "c running", "c exited 0"), None);
    assert_eq!(check("OnFailure: c", "c exited 0", "c running"), c);
    assert_eq!(check("OnFailure: c", "c exited 1", "c running"), None);
    assert_eq!(check("Always: c", "c exited 0", "c running"), None);
    assert_eq!(check("Never: i | c", "i exited 0", "i running"), Some("i".into()));
    assert_eq!(check("Never: s* | c", "s exited 0", "s running"), None);
    assert_eq!(check("Never: c d", "c exited 0, d running", "c exited 0, d running"), None);
    let (on, off) =
        (FeatureGates::default(), FeatureGates::default().with(Gate::ContainerRestartRules, false));
    assert_eq!(between(&pod("Never: s* | c"), "s exited 0", "s running", &off), None);
    let never = with_policy(pod("Always: c"), "c", ContainerRestartPolicy::Never);
    assert_eq!(between(&never, "c exited 0", "c running", &on), None, "as upstream");
    // Where all containers may begin again, so may one that ended.
    let restarts_all = pod_yaml(
        "spec: {restartPolicy: Never, containers: [{name: c, restartPolicy: Never, restartPolicyRules: [\
         {action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}]}",
    );
    assert_eq!(between(&restarts_all, "c exited 0", "c running", &on), None);
    let off = on.with(Gate::RestartAllContainersOnContainerExits, false);
    assert_eq!(between(&restarts_all, "c exited 0", "c running", &off), c);
}

#[test]
fn a_run_that_counts_no_more_than_the_one_that_ended_is_a_restart_nevertheless() {
    let world = World::new(pod("Always: c"), "c#3 exited 1").then("c running");
    let words = |world: &World| in_words(&world.status().container_statuses[0]);
    assert_eq!(words(&world), "c: running, last Error 1, 4 restarts, started, ready");
    let off = FeatureGates::default().with(Gate::RestartAllContainersOnContainerExits, false);
    assert_eq!(words(&World { features: off, ..world }), "c: running, started, ready");
    let world = World::new(pod("Always: c"), "c#3 exited 1").then("c#5 running");
    assert_eq!(words(&world), "c: running, last Error 1, 5 restarts, started, ready");
}

#[test]
fn a_container_that_waits_has_the_name_and_the_image_that_it_will_have() {
    let status = World::new(pod_yaml("spec: {containers: [{name: c, image: 'img:1'}]}"), "").status();
    let status = &status.container_statuses[0];
    assert_eq!((&*status.name, &*status.image, &*status.image_id), ("c", "img:1", ""));
}

#[test]
fn a_pod_that_restarts_in_place_says_so() {
    let pod = || {
        pod_yaml(
            "
metadata: {name: web, namespace: default, uid: uid-web}
spec:
  restartPolicy: Never
  initContainers: [{name: i, image: img}]
  containers:
  - name: c
    image: img
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
",
        )
    };
    let words = |world: &World| status_in_words(&world.status());
    let running = World::new(pod(), "i exited 0, c running");
    assert_eq!(
        words(&running),
        "Running\ni: Completed 0, ready\nc: running, started, ready\nnot AllContainersRestarting"
    );
    let over = World::new(pod(), "i exited 0, c exited 1").status();
    let over = over.conditions.last().map(|condition| format!("{} {}", condition.r#type, condition.reason));
    assert_eq!(over.as_deref(), Some("AllContainersRestarting PodFailed"));
    let exited = running.then("i exited 0, c exited 88");
    assert!(words(&exited).starts_with("Running\n"), "{}", words(&exited));
    let removed = exited.then("");
    expect![[r#"
        Running
        i: waiting RestartingAllContainers, last RestartingAllContainers 137, 1 restarts
        c: waiting RestartingAllContainers, last RestartingAllContainers 137, 1 restarts
        not Ready: ContainersNotReady containers with unready status: [c]
        not ContainersReady: ContainersNotReady containers with unready status: [c]
        not AllContainersRestarting"#]]
    .assert_eq(&words(&removed));
    let again = removed.then("i#1 exited 0, c#1 running");
    expect![[r#"
        Running
        i: Completed 0, last RestartingAllContainers 137, 1 restarts, ready
        c: running, last RestartingAllContainers 137, 1 restarts, started, ready
        not AllContainersRestarting"#]]
    .assert_eq(&words(&again));
}
