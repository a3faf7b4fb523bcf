//! A runtime that dies and comes back.

use std::time::Duration;

use crablet_cri::HintKind;
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter};
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::transcript;
use crate::world::{PATIENCE, World, map, words};

cases!(
    kills_the_runtime = true;
    calls_while_the_runtime_is_away_say_so,
    a_call_in_flight_is_lost_and_the_next_one_works,
    running_containers_outlive_the_runtime,
    an_exit_while_the_runtime_is_away_is_found_after_it,
    an_exit_before_the_runtime_died_is_kept,
    a_created_container_can_be_started_after_a_restart,
    a_sandbox_keeps_its_address_and_its_labels,
    a_stopped_sandbox_stays_stopped,
    names_stay_taken,
    a_log_goes_on_after_a_restart,
    a_stream_of_hints_ends_and_a_new_one_works,
);

async fn calls_while_the_runtime_is_away_say_so(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.killed().await;
    world.container_status(&main).await;
    world.sandbox_status(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    world.stop_container(&main, Duration::ZERO).await;
    world.exec_shell(&main, "exit 1").await;
    world.image_status("crablet.test/busybox:1").await;
    world.started_again().await;
    world.state(&main).await;
    expect![[r#"
        status of <main>: unreachable
        status of sandbox <a>: unreachable
        sandboxes all: unreachable
        stop <main> within 0ns: unreachable
        exec "exit 1" in <main>: unreachable
        image "crablet.test/busybox:1": unreachable
        state of <main>: Running created started
    "#]]
}

async fn a_call_in_flight_is_lost_and_the_next_one_works(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    let command = words(&["sh", "-c", "touch /tmp/runs; exec sleep 100000"]);
    let exec = world.runtime.exec_sync(&main, &command, None);
    let kill = async {
        world.until_exec_succeeds(&main, "test -e /tmp/runs").await;
        world.killed().await;
    };
    let (lost, ()) = tokio::join!(exec, kill);
    world.note(transcript::error(&lost.expect_err("it is lost")));
    world.started_again().await;
    world.state(&main).await;
    world.exec_shell(&main, "echo here").await;
    expect![[r#"
        unreachable
        state of <main>: Running created started
        exec "echo here" in <main>: 0 stdout="here\n"
    "#]]
}

async fn running_containers_outlive_the_runtime(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", UNTIL_ASKED).await;
    let before = world.runtime.container_status(&main).await.expect("it has a status");
    world.restarted().await;
    let after = world.runtime.container_status(&main).await.expect("it has a status");
    assert_eq!(after, before);
    world.stop_container(&main, PATIENCE).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 60s: done
        state of <main>: Exited created started finished exit_code=0 reason="Completed"
    "#]]
}

async fn an_exit_while_the_runtime_is_away_is_found_after_it(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", "echo ready; sleep 1; exit 42").await;
    world.killed().await;
    world.pass(Duration::from_secs(2)).await;
    world.started_again().await;
    world.until(&main, ContainerState::Exited).await;
    world.container_status(&main).await;
    expect![[r#"
        status of <main>:
          <main> main #0 Exited created started finished exit_code=42 reason="Error"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
    "#]]
}

async fn an_exit_before_the_runtime_died_is_kept(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ended(&pod, "main", "exit 42").await;
    let before = world.runtime.container_status(&main).await.expect("it has a status");
    world.restarted().await;
    let after = world.runtime.container_status(&main).await.expect("it has a status");
    assert_eq!(after, before);
    world.state(&main).await;
    expect![[r#"
        state of <main>: Exited created started finished exit_code=42 reason="Error"
    "#]]
}

async fn a_created_container_can_be_started_after_a_restart(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", "echo hello; exit 3").await;
    world.restarted().await;
    world.state(&main).await;
    world.start_container(&main).await;
    world.until(&main, ContainerState::Exited).await;
    world.state(&main).await;
    world.log(&pod, "main.log");
    expect![[r#"
        state of <main>: Created created
        start <main>: done
        state of <main>: Exited created started finished exit_code=3 reason="Error"
        log main.log:
          "stdout F hello\n"
    "#]]
}

async fn a_sandbox_keeps_its_address_and_its_labels(world: &World) -> Expect {
    let mut config = world.pod("a");
    config.labels = map(&[("app", "web")]);
    config.annotations = map(&[("note", "kept")]);
    let pod = world.ran_from(config).await;
    let before = world.runtime.sandbox_status(&pod.id).await.expect("it has a status");
    world.restarted().await;
    let after = world.runtime.sandbox_status(&pod.id).await.expect("it has a status");
    assert_eq!(after, before);
    world.sandbox_status(&pod.id).await;
    world.started(&pod, "main", FOREVER).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Pod <ip>
            label "app"="web"
            annotation "note"="kept"
        containers all:
          <main> of <a> main #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn a_stopped_sandbox_stays_stopped(world: &World) -> Expect {
    let pod = world.ran_from(world.pod("a")).await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.stop_sandbox(&pod.id).await;
    world.restarted().await;
    world.sandbox_status(&pod.id).await;
    world.state(&main).await;
    world.remove_sandbox(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        stop sandbox <a>: done
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Pod
        state of <main>: Exited created started finished exit_code=137 reason="Error"
        remove sandbox <a>: done
        sandboxes all:
    "#]]
}

async fn names_stay_taken(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.created(&pod, "main", FOREVER).await;
    world.restarted().await;
    let _ = world.run_sandbox(&pod.config).await;
    let _ = world.create_container(&pod, &world.container("main", FOREVER)).await;
    expect![[r#"
        run sandbox a: RunPodSandbox: Unknown: failed to reserve sandbox name "a_ns_<case>_0": name "a_ns_<case>_0" is reserved for "<a>"
        create container main: CreateContainer: Unknown: failed to reserve container name "main_a_ns_<case>_0": name "main_a_ns_<case>_0" is reserved for "<main>"
    "#]]
}

async fn a_log_goes_on_after_a_restart(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main =
        world.ready(&pod, "main", "trap 'echo asked; exit 0' TERM; echo ready; sleep 100000 & wait").await;
    world.restarted().await;
    world.stop_container(&main, PATIENCE).await;
    world.logged(&pod, "main.log", "asked\n").await;
    world.log(&pod, "main.log");
    expect![[r#"
        stop <main> within 60s: done
        log main.log:
          "stdout F ready\n"
          "stdout F asked\n"
    "#]]
}

async fn a_stream_of_hints_ends_and_a_new_one_works(world: &World) -> Expect {
    let hints = world.hints().await;
    world.killed().await;
    let error = hints.until_the_end().await.expect("it ends with an error");
    world.note(format!("unreachable: {}", error.is_unreachable()));
    world.started_again().await;
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", "exit 3").await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Stopped).await));
    expect![[r#"
        unreachable: true
        [Created, Started, Stopped]
    "#]]
}
