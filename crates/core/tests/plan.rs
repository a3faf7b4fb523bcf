//! What must happen to a pod, case by case. See `common` for how pods and runtimes are written down.

mod common;

use common::{World, pod, seen, with_policy};
use crablet_api::core::{
    ContainerRestartPolicy, ContainerRestartRuleOnExitCodesOperator, EphemeralContainer, Pod,
};
use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, Gate};
use crablet_core::kill::KillReason;
use crablet_core::plan::WhyEnd;
use crablet_core::plan::{Sandbox, WhyNewSandbox};
use crablet_core::testing::at;
use crablet_cri_api::NetworkNamespace;

/// Checks what is planned for a pod of which the runtime says this.
#[track_caller]
fn check(line: &str, observed: &str, expected: &str) {
    World::new(pod(line), observed).plans(expected);
}

#[test]
fn a_new_pod_gets_a_sandbox_and_all_its_containers() {
    check("Always: c d", "none", "new sandbox 0, start c#0, start d#0");
    check("Never: c", "none", "new sandbox 0, start c#0");
    check("Always: c d", "", "start c#0, start d#0");
    check("Always: c d", "c running", "start d#0");
    check("Always: c d", "c running, d running", "nothing");
}

#[test]
fn containers_that_ended_run_again_as_the_pods_policy_says() {
    check("Always: c", "c exited 0", "start c#1");
    check("Always: c", "c exited 1", "start c#1");
    check("OnFailure: c", "c exited 1", "start c#1");
    check("OnFailure: c d", "c exited 0, d running", "nothing");
    check("Never: c d", "c exited 1, d running", "nothing");
    check("Always: c", "c#4 exited 0, c#3 exited 0", "start c#5");
}

#[test]
fn a_pod_whose_containers_are_done_gives_up_its_sandbox() {
    check("Never: c d", "c exited 0, d exited 1", "stop sandbox-0, end");
    check("OnFailure: c", "c exited 0", "stop sandbox-0, end");
    check("Never: c", "sandbox dead, c exited 0", "end");
    check("OnFailure: c", "sandbox dead, c exited 0", "end");
    check("Never: s* | c", "s running, c exited 0", "kill s-0, stop sandbox-0, end");
}

#[test]
fn a_container_may_have_a_policy_of_its_own() {
    let always = |line| with_policy(pod(line), "c", ContainerRestartPolicy::Always);
    World::new(always("Never: c d"), "c exited 0, d running").plans("start c#1");
    let never = |line| with_policy(pod(line), "c", ContainerRestartPolicy::Never);
    World::new(never("Always: c d"), "c exited 1, d running").plans("nothing");
    World::new(never("Always: c d"), "sandbox dead, c exited 1, d exited 0")
        .plans("stop sandbox-0, new sandbox 1, start d#1");
    let mut off = World::new(always("Never: c d"), "c exited 0, d running");
    off.features = FeatureGates::default().with(Gate::ContainerRestartRules, false);
    off.plans("nothing");
}

#[test]
fn a_rule_may_restart_a_container_that_is_not_restarted_otherwise() {
    let pod = || {
        pod_yaml(
            "
metadata: {name: web, namespace: default, uid: uid-web}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: img
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
",
        )
    };
    World::new(pod(), "c exited 42").plans("start c#1");
    World::new(pod(), "c exited 1").plans("stop sandbox-0, end");
}

#[test]
fn containers_that_were_made_and_never_started_are_made_again() {
    check("Never: c", "c created", "start c#1");
    check("Never: i | c", "i created", "start i#1");
    check("Never: s* | c", "s#2 created", "start s#3");
}

#[test]
fn what_may_still_run_is_stopped_before_another_one_is_started() {
    check("Always: c", "c unknown", "kill c-0, start c#1");
    check("Never: c", "c unknown", "kill c-0, start c#1");
    check("Always: i | c", "i unknown", "kill i-0, start i#1");
    check("Never: i | c", "i unknown", "kill i-0, stop sandbox-0, end");
    check("Always: s* | c", "s unknown", "kill s-0, start s#1");
    check("Always: c", "c#1 exited 1, c#0 running", "kill c-0, start c#2");
    check("Always: c", "c#1 running, c#0 running", "kill c-0");
    check("Always: c", "c#1 unknown, c#0 unknown", "kill c-1, kill c-0, start c#2");
}

#[test]
fn what_is_stopped_to_be_started_anew_is_not_over_whatever_its_policy_says() {
    check("Never: c", "c replaced 137", "start c#1");
    check("OnFailure: c", "c replaced 0", "start c#1");
    check("Always: i | c", "i replaced 0", "start i#1");
    check("Never: c", "c exited 137", "stop sandbox-0, end");
    check("OnFailure: c", "sandbox dead, c replaced 0", "stop sandbox-0, new sandbox 1, start c#1");
    let anew = |world: World| world.plan().kill.iter().map(|kill| kill.starts_anew).collect::<Vec<_>>();
    let of = |line: &str, seen: &str| World::new(pod(line), seen);
    assert_eq!(anew(of("Never: c", "c changed")), [true]);
    assert_eq!(anew(of("Never: c", "c unknown")), [true]);
    assert_eq!(anew(of("OnFailure: c", "sandbox dead, c running")), [true]);
    assert_eq!(anew(of("Always: s* | c", "s changed, c running")), [true]);
    assert_eq!(anew(of("Always: c", "c running").probe("c-0", "liveness", "failed")), [true]);
    assert_eq!(anew(of("Never: c", "c running").probe("c-0", "liveness", "failed")), [false]);
    assert_eq!(anew(of("Never: c", "sandbox dead, c running")), [false]);
}

#[test]
fn a_sandbox_that_will_not_do_is_replaced() {
    check("Always: c", "sandbox dead, c exited 0", "stop sandbox-0, new sandbox 1, start c#1");
    check("Always: c", "sandbox#3 dead, c@3 running", "kill c-0, stop sandbox-3, new sandbox 4, start c#1");
    check(
        "OnFailure: c d",
        "sandbox dead, c exited 0, d exited 1",
        "stop sandbox-0, new sandbox 1, start d#1",
    );
    check(
        "Always: c",
        "sandbox#1, sandbox#0, c@1 running",
        "kill c-0, stop sandbox-1, stop sandbox-0, new sandbox 2, start c#1",
    );
    check("Always: c", "sandbox#1, sandbox#0 dead, c@1 running", "nothing");
}

#[test]
fn a_sandbox_in_the_wrong_network_or_without_an_address_is_replaced() {
    let host = |mut pod: Pod| {
        pod.spec.host_network = true;
        pod
    };
    let world = World::new(host(pod("Always: c")), "c running");
    world.plans("kill c-0, stop sandbox-0, new sandbox 1, start c#1");

    let without_address = |pod: Pod, network| {
        let mut world = World::new(pod, "");
        let mut sandboxes = world.observed.sandboxes().to_vec();
        sandboxes[0].ips.clear();
        sandboxes[0].network = network;
        world.observed = crablet_core::observed::Pod::new(sandboxes, vec![]);
        world.plan().sandbox
    };
    let stop = vec!["sandbox-0".to_owned()];
    assert_eq!(
        without_address(pod("Always: c"), NetworkNamespace::Pod),
        Sandbox::Create { attempt: 1, why: WhyNewSandbox::NoAddress, stop }
    );
    // The host has one.
    assert_eq!(
        without_address(host(pod("Always: c")), NetworkNamespace::Node),
        Sandbox::Keep { id: "sandbox-0".into() }
    );
}

#[test]
fn a_pod_that_never_restarts_ends_with_its_sandbox_once_it_has_run() {
    check("Never: c", "sandbox dead, c exited 1", "end");
    check("Never: c", "sandbox dead, c running", "kill c-0, end");
    check("Never: c", "sandbox dead", "stop sandbox-0, new sandbox 1, start c#0");
    check("Never: i | c", "sandbox dead, i exited 0", "end");
}

#[test]
fn init_containers_run_one_after_another() {
    check("Always: i j | c", "none", "new sandbox 0, start i#0");
    check("Always: i j | c", "", "start i#0");
    check("Always: i j | c", "i running", "wait for i");
    check("Always: i j | c", "i exited 0", "start j#0");
    check("Always: i j | c", "i exited 0, j running", "wait for j");
    check("Always: i j | c", "i exited 0, j exited 0", "start c#0");
    check("Always: i j | c", "i exited 0, j exited 0, c running", "nothing");
}

#[test]
fn an_init_container_that_fails_runs_again_or_ends_the_pod() {
    check("Always: i j | c", "i exited 0, j exited 1", "start j#1");
    check("OnFailure: i | c", "i exited 1", "start i#1");
    check("Never: i j | c", "i exited 1", "stop sandbox-0, end");
    let plan = World::new(pod("Never: i | c"), "i exited 1").plan();
    let why = WhyEnd::InitContainerFailed { name: "i".into() };
    assert_eq!(plan.sandbox, Sandbox::End { why, stop: vec!["sandbox-0".into()] });
    let restarts = with_policy(pod("Never: i | c"), "i", ContainerRestartPolicy::OnFailure);
    let world = World::new(restarts, "i exited 1").plans("start i#1");
    let off = FeatureGates::default().with(Gate::ContainerRestartRules, false);
    World { features: off, ..world.clone() }.plans("stop sandbox-0, end");
    World { features: off, ..World::new(pod("OnFailure: i | c"), "i exited 1") }.plans("start i#1");
    let mut deleted = world;
    deleted.pod.metadata.deletion_timestamp = Some(at(0).into());
    deleted.plans("stop sandbox-0, end");
}

#[test]
fn an_init_container_that_ran_out_of_memory_failed_even_if_it_exited_with_zero() {
    let pod = pod("Never: i | c");
    let mut observed = seen(&pod, "i exited 0");
    let mut containers = observed.containers().to_vec();
    containers[0].status.reason = "OOMKilled".into();
    observed = crablet_core::observed::Pod::new(observed.sandboxes().to_vec(), containers);
    let world = World { observed, ..World::new(pod, "") };
    world.plans("stop sandbox-0, end");
}

#[test]
fn init_containers_that_were_collected_do_not_run_again() {
    check("Always: i j | c", "c running", "nothing");
    check("Always: i j | c", "c exited 1", "start c#1");
    check("Always: i j | c", "j running", "wait for j");
    check("Always: i j | c", "j exited 0", "start c#0");
    check("OnFailure: i | c d", "c exited 0", "start d#0");
}

#[test]
fn init_containers_that_only_the_status_remembers_do_not_run_again_in_the_same_sandbox() {
    let world = || World::new(pod("Always: i j | c"), "i exited 0, j exited 0, c running");
    world().then("").plans("start c#1");
    World::new(pod("Always: i j | c"), "i exited 0").then("").plans("start j#0");
    World::new(pod("Always: i j | c"), "i exited 1").then("").plans("start i#1");
    // What was done in the old sandbox does not count in the new one.
    let in_a_sandbox_made_at = |seconds| {
        let mut world = world().then("sandbox#9");
        let mut sandboxes = world.observed.sandboxes().to_vec();
        sandboxes[0].created_at = Some(at(seconds));
        world.observed = crablet_core::observed::Pod::new(sandboxes, vec![]);
        world
    };
    in_a_sandbox_made_at(500).plans("start i#1");
    // The second in which the old one ended and the new one was made tells nothing.
    let started = started_at(&world(), "i");
    in_a_sandbox_made_at(started).plans("start i#1");
    in_a_sandbox_made_at(started - 1).plans("start c#1");
}

/// The second of the test's clock in which a container's latest run started.
fn started_at(world: &World, name: &str) -> i64 {
    let run = world.observed.latest(name).expect("a run");
    run.started_at.expect("it started").as_second() - at(0).as_second()
}

#[test]
fn init_containers_run_again_in_a_new_sandbox() {
    check(
        "Always: i j | c",
        "sandbox dead, i exited 0, j exited 0, c exited 0",
        "stop sandbox-0, remove i-0, remove j-0, new sandbox 1, start i#1",
    );
    check("Always: i j | c", "sandbox#1, sandbox#0 dead, c exited 0", "start i#0");
    check("Always: i j | c", "sandbox#1, sandbox#0 dead, j exited 0, c exited 0", "start i#0");
    check("Always: i j | c", "sandbox#1, sandbox#0 dead, i#1@1 exited 0, c exited 0", "start j#0");
}

#[test]
fn of_init_containers_only_the_newest_run_is_kept() {
    check("Always: i | c", "i#2 running, i#1 exited 1, i#0 exited 1", "remove i-0, wait for i");
    check("Always: i | c", "i#1 exited 0, i#0 exited 1, c running", "remove i-0");
    check("Always: s* | c", "s#1 running, s#0 exited 1, c running", "nothing");
}

#[test]
fn sidecars_start_in_order_and_the_rest_beside_them() {
    check("Always: s* i t* | c", "", "start s#0");
    check("Always: s* i t* | c", "s running", "start i#0");
    check("Always: s* i t* | c", "s running, i running", "wait for i");
    check("Always: s* i t* | c", "s running, i exited 0", "start t#0");
    check("Always: s* i t* | c", "s running, i exited 0, t running", "start c#0");
    check("Never: s* i t* | c", "s running, i exited 0, t running, c running", "nothing");
}

#[test]
fn a_sidecar_that_dies_restarts_even_in_a_pod_that_never_does() {
    check("Never: s* i | c", "s exited 0, i running", "start s#1, wait for i");
    check("Never: s* | c", "s exited 1, c running", "start s#1");
    check("Never: s* t* | c", "t running, c running", "start s#0");
    check("Never: s* | c", "s exited 1", "start s#1");
}

#[test]
fn a_sidecar_does_not_start_once_the_pods_work_is_done() {
    check("Never: s* | c", "s exited 0, c exited 0", "stop sandbox-0, end");
    check("OnFailure: s* t* | c", "s running, t exited 1, c exited 0", "kill s-0, stop sandbox-0, end");
}

#[test]
fn what_comes_after_a_sidecar_waits_for_its_startup_probe() {
    let world = || World::new(pod("Always: s? i | c"), "s running");
    world().plans("wait for the start of s");
    world().probe("s-0", "startup", "unknown").plans("wait for the start of s");
    world().probe("s-0", "startup", "succeeded").plans("start i#0");
    world().probe("s-0", "startup", "failed").plans("kill s-0, start s#1, wait for the start of s");
    // The agent restarted: nothing was found yet, but it had started.
    let mut restarted = world().probe("s-0", "startup", "succeeded").then("s running");
    restarted.probes = Default::default();
    restarted.plans("start i#0");
    // Another one of its name has not.
    let replaced = world().probe("s-0", "startup", "succeeded").then("s#1 running, s#0 exited 1");
    replaced.plans("wait for the start of s");
}

#[test]
fn a_container_that_fails_its_probes_is_killed_and_runs_again_if_it_may() {
    let world = |line| World::new(pod(line), "c running, d running");
    world("Always: c d").probe("c-0", "liveness", "failed").plans("kill c-0, start c#1");
    world("OnFailure: c d").probe("c-0", "startup", "failed").plans("kill c-0, start c#1");
    world("Never: c d").probe("c-0", "liveness", "failed").plans("kill c-0");
    world("Always: c d").probe("c-0", "readiness", "failed").plans("nothing");
    let never = with_policy(pod("Always: c d"), "c", ContainerRestartPolicy::Never);
    let world = World::new(never, "c running, d running").probe("c-0", "liveness", "failed");
    let off = FeatureGates::default().with(Gate::ContainerRestartRules, false);
    World { features: off, ..world.plans("kill c-0") }.plans("kill c-0, start c#1");
    let alone = World::new(pod("Never: c"), "c running").probe("c-0", "liveness", "failed");
    alone.plans("kill c-0, stop sandbox-0, end");
    let mut sidecar =
        World::new(pod("Always: s* | c"), "s running, c running").probe("s-0", "liveness", "failed");
    sidecar.pod.spec.init_containers[0].liveness_probe = Some(Default::default());
    sidecar.plans("kill s-0, start s#1");
    // Before a sidecar has started, nothing but its startup probe counts.
    let mut starting = World::new(pod("Always: s? | c"), "s running").probe("s-0", "liveness", "failed");
    starting.pod.spec.init_containers[0].liveness_probe = Some(Default::default());
    starting.plans("wait for the start of s");
}

#[test]
fn a_container_that_is_not_what_its_pod_asks_for_is_replaced_whatever_the_policy() {
    check("Never: c", "c changed", "kill c-0, start c#1");
    check("Always: s* | c", "s changed, c running", "kill s-0, start s#1");
    // One that has ended, and an init container, is left as it is.
    check("Never: c d", "c exited 0, d running", "nothing");
    check("Always: i | c", "i changed", "wait for i");
}

#[test]
fn the_reasons_of_kills_are_upstreams() {
    let message = |world: World| {
        let kill = world.plan().kill.remove(0);
        (kill.reason, kill.message.to_string(), kill.grace)
    };
    let world = |line, observed| World::new(pod(line), observed);
    for (world, reason, expected) in [
        (
            world("Always: c", "c running").probe("c-0", "liveness", "failed"),
            KillReason::LivenessProbe,
            "Container c failed liveness probe, will be restarted",
        ),
        (
            world("Never: c d", "c running, d running").probe("c-0", "startup", "failed"),
            KillReason::StartupProbe,
            "Container c failed startup probe",
        ),
        (
            world("Always: c", "c changed"),
            KillReason::DefinitionChanged,
            "Container c definition changed, will be restarted",
        ),
        (
            world("Always: s* | c", "s changed"),
            KillReason::DefinitionChanged,
            "Init container s definition changed",
        ),
        (
            world("Always: s? | c", "s running").probe("s-0", "startup", "failed"),
            KillReason::StartupProbe,
            "Init container s failed startup probe",
        ),
        (
            world("Never: c", "sandbox#1, sandbox#0 dead, c@0 running"),
            KillReason::OldSandbox,
            "Container c runs in an old sandbox, will be restarted",
        ),
        (
            world("Always: c", "c#1 running, c#0 running"),
            KillReason::Duplicate,
            "Container c must not run twice, stopping the other one first",
        ),
        (
            world("Always: c", "c unknown"),
            KillReason::Unknown,
            "Container is in \"unknown\" state, try killing it before restart",
        ),
        (
            world("Always: i | c", "i unknown"),
            KillReason::Unknown,
            "Init container is in \"unknown\" state, try killing it before restart",
        ),
        (world("Always: c", "sandbox dead, c running"), KillReason::PodStops, "Stopping container c"),
    ] {
        assert_eq!(message(world), (reason, expected.to_owned(), 30));
    }
}

#[test]
fn only_a_plan_that_gives_up_the_sandbox_stops_the_pod_as_a_whole() {
    for (line, observed, stops_pod, is_empty) in [
        ("Always: c", "c running", false, true),
        ("Always: i | c", "i running", false, true),
        ("Always: c", "", false, false),
        ("Always: c d", "c#1 running, c#0 running, d running", false, false),
        ("Always: i | c", "i#1 exited 0, i#0 exited 1, c running", false, false),
        ("Always: c", "none", true, false),
        ("Always: c", "sandbox dead, c running", true, false),
        ("Never: c", "c exited 0", true, false),
        ("Never: c", "sandbox dead, c running", true, false),
        ("Never: c", "sandbox dead, c exited 0", true, true),
    ] {
        let plan = World::new(pod(line), observed).plan();
        assert_eq!((plan.stops_pod(), plan.is_empty()), (stops_pod, is_empty), "{line}, {observed}");
    }
}

#[test]
fn a_container_that_keeps_failing_waits() {
    let world = |now| World::new(pod("Always: c"), "c#1 exited 1, c#0 exited 1").restarted("c", 101).at(now);
    // It ended at 111.
    world(112).plans("hold c until 121");
    world(120).plans("hold c until 121");
    world(121).plans("start c#2");
    let plan = world(112).plan();
    assert_eq!(plan.look_again, Some(at(121)));
    let (name, message) = plan.held_back().next().expect("it waits");
    assert_eq!(&**name, "c");
    assert_eq!(&**message, "back-off 10s restarting failed container=c pod=web_default(uid-web)");
}

#[test]
fn a_pod_with_a_container_that_waits_goes_on() {
    let world = World::new(pod("Always: c d"), "c#1 exited 1, d exited 0").restarted("c", 101).at(112);
    world.plans("start d#1, hold c until 121");
    let world = World::new(pod("Always: i | c"), "i#1 exited 1").restarted("i", 101).at(112);
    world.plans("hold i until 121");
    let world = World::new(pod("Always: s* i | c"), "s#1 exited 1, i exited 0").restarted("s", 101).at(112);
    world.plans("start c#0, hold s until 121");
    let world = World::new(pod("OnFailure: c"), "c#1 exited 1").restarted("c", 101).at(112);
    world.plans("hold c until 121");
}

#[test]
fn a_start_says_when_the_last_run_ended_so_that_the_next_one_waits() {
    let mut world = World::new(pod("Always: c"), "c exited 1").at(20);
    let finished = world.plan().start[0].last_finished.expect("it ran");
    world.restarts.note_start(&world.pod.spec.containers[0], finished, world.now);
    world.observed = seen(&world.pod, "c#1 exited 1, c#0 exited 1");
    world.at(112).plans("hold c until 121");
}

#[test]
fn containers_added_to_look_into_a_pod_run_once_and_at_any_time() {
    let debugged = |line| {
        let mut pod = pod(line);
        let mut debug = EphemeralContainer::default();
        debug.container.name = "debug".into();
        pod.spec.ephemeral_containers = [debug].into();
        pod
    };
    World::new(debugged("Always: i | c"), "i running").plans("start debug#0, wait for i");
    World::new(debugged("Always: c"), "c running, debug running").plans("nothing");
    World::new(debugged("Always: c"), "c running, debug exited 1").plans("nothing");
    World::new(debugged("Never: c"), "c exited 0").plans("stop sandbox-0, end");
    World::new(debugged("Never: c"), "c exited 0, debug running").plans("kill debug-0, stop sandbox-0, end");
}

fn restarts_all() -> Pod {
    pod_yaml(
        "
metadata: {name: web, namespace: default, uid: uid-web}
spec:
  restartPolicy: Never
  initContainers:
  - {name: i, image: img}
  - {name: s, image: img, restartPolicy: Always}
  containers:
  - name: c
    image: img
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
  - {name: d, image: img}
",
    )
}

#[test]
fn a_container_may_restart_its_whole_pod_in_place() {
    let world = World::new(restarts_all(), "i exited 0, s running, c exited 88, d running");
    let world = world.plans("kill d-0, kill s-0, remove d-0, remove i-0, remove s-0, then all over");
    assert_eq!(world.plan().look_again, Some(world.now));
    // The one that asked for it goes last, and so nothing is forgotten in between.
    let world = world.then("c exited 88").plans("remove c-0, then all over");
    let world = world.then("").plans("start i#1");
    let world = world.then("i#1 exited 0").plans("start s#1");
    world.then("i#1 exited 0, s#1 running").plans("start c#1, start d#1");
}

#[test]
fn a_container_that_was_never_started_is_removed_without_a_stop_when_all_restart() {
    let world = World::new(restarts_all(), "i exited 0, s running, c exited 88, d created");
    let world = world.plans("kill s-0, remove d-0, remove i-0, remove s-0, then all over");
    world.then("i exited 0, c exited 88, d created").plans("remove d-0, remove i-0, then all over");
}

#[test]
fn any_other_exit_does_not_restart_the_whole_pod() {
    World::new(restarts_all(), "i exited 0, s running, c exited 1, d running").plans("nothing");
    let mut off = World::new(restarts_all(), "i exited 0, s running, c exited 88, d running");
    off.features = off.features.with(Gate::RestartAllContainersOnContainerExits, false);
    off.plans("nothing");
    let mut but_one = restarts_all();
    let rule = &mut but_one.spec.containers[0].restart_policy_rules[0];
    let codes = rule.exit_codes.as_mut().expect("exit codes");
    codes.operator = Some(ContainerRestartRuleOnExitCodesOperator::NotIn);
    World::new(but_one, "i exited 0, s running, c exited 88, d running").plans("nothing");
}

#[test]
fn an_exit_that_only_the_status_remembers_restarts_the_whole_pod_too() {
    let mut world = World::new(restarts_all(), "i exited 0, s running, c exited 88, d running");
    world.features = world.features.with(Gate::RestartAllContainersOnContainerExits, false);
    let mut world = world.then("i exited 0, s running, c exited 255, d running").plans("nothing");
    world.features = world.features.with(Gate::RestartAllContainersOnContainerExits, true);
    world.plans("kill d-0, kill s-0, remove c-0, remove d-0, remove i-0, remove s-0, then all over");
}

#[test]
fn a_pod_that_was_active_for_too_long_ends() {
    let mut world = World::new(pod("Always: c"), "c running").at(100);
    world.pod.spec.active_deadline_seconds = Some(60);
    let world = world.then("c running").plans("nothing");
    assert_eq!(world.plan().look_again, Some(at(160)));
    let world = world.at(160).plans("kill c-0, stop sandbox-0, end");
    assert!(matches!(world.plan().sandbox, Sandbox::End { why: WhyEnd::DeadlineExceeded, .. }));
}

#[test]
fn a_pod_that_is_being_deleted_starts_nothing_that_ended() {
    let mut world = World::new(pod("Always: c d"), "c exited 1, d running");
    world.pod.metadata.deletion_timestamp = Some(at(0).into());
    world.plans("nothing");
}

#[test]
fn a_run_that_the_runtime_forgot_counts_where_the_status_remembers_it() {
    let world = World::new(pod("Always: c"), "c#3 running").then("").plans("start c#4");
    assert!(world.plan().start[0].ask_logs);
    assert!(!World::new(pod("Always: c"), "c exited 1").plan().start[0].ask_logs);
}
