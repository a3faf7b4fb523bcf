//! How containers end.

use std::time::Duration;

use crablet_cri_api::{ContainerState, v1};
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::world::{DESCRIBED, World, image, namespaces};

const GRACE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(1);

cases!(
    a_container_ends_with_the_code_of_its_program,
    a_container_that_obeys_ends_with_its_own_code,
    a_container_that_does_not_obey_is_killed_after_its_grace,
    a_container_without_grace_is_killed_at_once,
    a_container_that_is_not_the_first_process_dies_by_the_signal,
    a_container_is_asked_by_the_signal_of_its_image,
    a_container_that_ends_by_itself_while_it_is_asked_keeps_its_code,
    a_shorter_grace_ends_a_longer_one,
    a_container_that_takes_too_much_memory_is_killed,
    the_end_of_a_container_leaves_its_sandbox_ready,
);

async fn a_container_ends_with_the_code_of_its_program(world: &World) -> Expect {
    let pod = world.ran("a").await;
    for code in ["0", "1", "42", "126", "127", "137", "255"] {
        let id = world.ended(&pod, code, &format!("exit {code}")).await;
        world.state(&id).await;
    }
    expect![[r#"
        state of <0>: Exited created started finished exit_code=0 reason="Completed"
        state of <1>: Exited created started finished exit_code=1 reason="Error"
        state of <42>: Exited created started finished exit_code=42 reason="Error"
        state of <126>: Exited created started finished exit_code=126 reason="Error"
        state of <127>: Exited created started finished exit_code=127 reason="Error"
        state of <137>: Exited created started finished exit_code=137 reason="Error"
        state of <255>: Exited created started finished exit_code=255 reason="Error"
    "#]]
}

async fn a_container_that_obeys_ends_with_its_own_code(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let zero = world.ready(&pod, "zero", UNTIL_ASKED).await;
    let seven = world.ready(&pod, "seven", "trap 'exit 7' TERM; echo ready; sleep 100000 & wait").await;
    for id in [&zero, &seven] {
        world.stop_container(id, GRACE).await;
        world.state(id).await;
    }
    expect![[r#"
        stop <zero> within 30s: done
        state of <zero>: Exited created started finished exit_code=0 reason="Completed"
        stop <seven> within 30s: done
        state of <seven>: Exited created started finished exit_code=7 reason="Error"
    "#]]
}

async fn a_container_that_does_not_obey_is_killed_after_its_grace(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let deaf = world.ready(&pod, "deaf", "trap '' TERM; echo ready; sleep 100000 & wait").await;
    world.stop_container(&deaf, SHORT).await;
    world.state(&deaf).await;
    expect![[r#"
        stop <deaf> within 1s: done
        state of <deaf>: Exited created started finished exit_code=137 reason="Error"
    "#]]
}

async fn a_container_without_grace_is_killed_at_once(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let polite = world.ready(&pod, "polite", UNTIL_ASKED).await;
    world.stop_container(&polite, Duration::ZERO).await;
    world.state(&polite).await;
    world.log(&pod, "polite.log");
    expect![[r#"
        stop <polite> within 0ns: done
        state of <polite>: Exited created started finished exit_code=137 reason="Error"
        log polite.log:
          "stdout F ready\n"
    "#]]
}

async fn a_container_that_is_not_the_first_process_dies_by_the_signal(world: &World) -> Expect {
    let mut config = world.host_pod("a");
    namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
    let pod = world.ran_from(config).await;
    let mut config = world.container("main", "exec sleep 100000");
    let security = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    security.namespace_options =
        Some(v1::NamespaceOption { pid: v1::NamespaceMode::Pod.into(), ..Default::default() });
    let main = world.started_from(&pod, &config).await;
    world.stop_container(&main, GRACE).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        state of <main>: Exited created started finished exit_code=143 reason="Error"
    "#]]
}

async fn a_container_is_asked_by_the_signal_of_its_image(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let script =
        "trap 'echo term; exit 1' TERM; trap 'echo usr1; exit 5' USR1; echo ready; sleep 100000 & wait";
    let mut config = world.container("main", script);
    config.image = Some(image(DESCRIBED));
    let main = world.ready_from(&pod, &config).await;
    world.stop_container(&main, GRACE).await;
    world.container_status(&main).await;
    world.log(&pod, "main.log");
    expect![[r#"
        stop <main> within 30s: done
        status of <main>:
          <main> main #0 Exited created started finished exit_code=5 reason="Error"
            image="crablet.test/described:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
        log main.log:
          "stdout F ready\n"
          "stdout F usr1\n"
    "#]]
}

async fn a_container_that_ends_by_itself_while_it_is_asked_keeps_its_code(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", "trap '' TERM; echo ready; sleep 1; exit 9").await;
    world.stop_container(&main, GRACE).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        state of <main>: Exited created started finished exit_code=9 reason="Error"
    "#]]
}

async fn a_shorter_grace_ends_a_longer_one(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world
        .ready(&pod, "main", "trap 'echo asked' TERM; echo ready; while :; do sleep 100000 & wait; done")
        .await;
    let patient = world.runtime.stop_container(&main, Duration::from_secs(10_000));
    let impatient = async {
        world.logged(&pod, "main.log", "asked\n").await;
        world.runtime.stop_container(&main, Duration::ZERO).await
    };
    let (patient, impatient) = tokio::join!(patient, impatient);
    world.note(format!("with grace: {patient:?}, without: {impatient:?}"));
    world.state(&main).await;
    expect![[r#"
        with grace: Ok(()), without: Ok(())
        state of <main>: Exited created started finished exit_code=137 reason="Error"
    "#]]
}

async fn a_container_that_takes_too_much_memory_is_killed(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "tail /dev/zero");
    let resources = config.linux.get_or_insert_default().resources.get_or_insert_default();
    resources.memory_limit_in_bytes = 32 << 20;
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.state(&main).await;
    expect![[r#"
        state of <main>: Exited created started finished exit_code=137 reason="OOMKilled"
    "#]]
}

async fn the_end_of_a_container_leaves_its_sandbox_ready(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.ended(&pod, "first", "exit 1").await;
    world.sandbox_status(&pod.id).await;
    let second = world.started(&pod, "second", FOREVER).await;
    world.state(&second).await;
    expect![[r#"
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Node
        state of <second>: Running created started
    "#]]
}
