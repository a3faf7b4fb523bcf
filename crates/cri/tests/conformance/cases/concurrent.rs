//! Many calls at once.

use std::time::Duration;

use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter};
use expect_test::{Expect, expect};
use futures_util::future::join_all;

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::transcript;
use crate::world::World;

const GRACE: Duration = Duration::from_secs(30);

cases!(
    twenty_containers_start_at_once,
    of_two_sandboxes_with_one_name_one_is_run,
    of_two_containers_with_one_name_one_is_made,
    a_container_is_stopped_by_two_at_once,
    a_container_is_removed_by_two_at_once,
    a_sandbox_is_stopped_by_two_at_once,
    a_container_ends_while_its_sandbox_is_removed,
);

async fn twenty_containers_start_at_once(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let starts = (0..20).map(|number| {
        let pod = &pod;
        async move { world.started(pod, &format!("{number:02}"), FOREVER).await }
    });
    let ids = join_all(starts).await;
    let filter = ContainerFilter { sandbox_id: Some(pod.id.clone()), ..ContainerFilter::default() };
    let list = world.runtime.list_containers(filter).await.expect("they can be listed");
    let running = list.iter().filter(|container| container.state == ContainerState::Running).count();
    world.note(format!("{running} of {} run", ids.len()));
    let stopped = join_all(ids.iter().map(|id| world.runtime.stop_container(id, Duration::ZERO))).await;
    world.note(format!("{} are stopped", stopped.iter().filter(|stopped| stopped.is_ok()).count()));
    let removed = join_all(ids.iter().map(|id| world.runtime.remove_container(id))).await;
    world.note(format!("{} are removed", removed.iter().filter(|removed| removed.is_ok()).count()));
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        20 of 20 run
        20 are stopped
        20 are removed
        containers all:
    "#]]
}

async fn of_two_sandboxes_with_one_name_one_is_run(world: &World) -> Expect {
    let config = world.host_pod("a");
    let answers = join_all((0..2).map(|_| world.runtime.run_sandbox(&config, ""))).await;
    for id in answers.iter().flatten() {
        world.learn_sandbox("a", id);
    }
    let mut lines: Vec<String> = answers
        .iter()
        .map(|answer| match answer {
            Ok(id) => format!("run: {id}"),
            Err(error) => transcript::error(error),
        })
        .collect();
    lines.sort_by_key(|line| !line.starts_with("run:"));
    lines.iter().for_each(|line| world.note(line));
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run: <a>
        RunPodSandbox: Unknown: failed to reserve sandbox name "a_ns_<case>_0": name "a_ns_<case>_0" is reserved for "<a>"
        sandboxes all:
          <a> ns/a <case> #0 Ready created
    "#]]
}

async fn of_two_containers_with_one_name_one_is_made(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let config = world.container("main", FOREVER);
    let answers =
        join_all((0..2).map(|_| world.runtime.create_container(&pod.id, &config, &pod.config))).await;
    world.note(format!("{} made", answers.iter().filter(|answer| answer.is_ok()).count()));
    let list = world
        .runtime
        .list_containers(ContainerFilter { sandbox_id: Some(pod.id.clone()), ..ContainerFilter::default() })
        .await
        .expect("they can be listed");
    world.note(format!("{} listed", list.len()));
    expect![[r#"
        1 made
        1 listed
    "#]]
}

async fn a_container_is_stopped_by_two_at_once(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", UNTIL_ASKED).await;
    let stops = join_all((0..2).map(|_| world.runtime.stop_container(&main, GRACE))).await;
    world.note(format!("{stops:?}"));
    world.state(&main).await;
    world.log(&pod, "main.log");
    expect![[r#"
        [Ok(()), Ok(())]
        state of <main>: Exited created started finished exit_code=0 reason="Completed"
        log main.log:
          "stdout F ready\n"
          "stdout F asked\n"
    "#]]
}

async fn a_container_is_removed_by_two_at_once(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ended(&pod, "main", "exit 3").await;
    // One of them may be told that the other is at it.
    let removals = join_all((0..2).map(|_| world.runtime.remove_container(&main))).await;
    assert!(removals.iter().any(Result::is_ok), "{removals:?}");
    world.remove_container(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        remove <main>: done
        containers all:
    "#]]
}

async fn a_sandbox_is_stopped_by_two_at_once(world: &World) -> Expect {
    let pod = world.ran_from(world.pod("a")).await;
    let main = world.started(&pod, "main", FOREVER).await;
    let stops = join_all((0..2).map(|_| world.runtime.stop_sandbox(&pod.id))).await;
    assert!(stops.iter().any(Result::is_ok), "{stops:?}");
    world.stop_sandbox(&pod.id).await;
    world.sandbox_status(&pod.id).await;
    world.state(&main).await;
    expect![[r#"
        stop sandbox <a>: done
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Pod
        state of <main>: Exited created started finished exit_code=137 reason="Error"
    "#]]
}

async fn a_container_ends_while_its_sandbox_is_removed(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.started(&pod, "main", "exit 3").await;
    world.remove_sandbox(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        remove sandbox <a>: done
        sandboxes all:
        containers all:
    "#]]
}
