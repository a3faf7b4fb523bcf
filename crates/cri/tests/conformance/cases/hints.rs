//! What a runtime tells of its own accord.

use std::time::Duration;

use crablet_cri::HintKind;
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::world::{PATIENCE, World};

cases!(
    the_life_of_a_container_is_told,
    the_life_of_a_container_that_ends_by_itself_is_told,
    the_life_of_a_sandbox_is_told,
    a_container_that_is_removed_while_it_runs_is_told_to_have_stopped,
    a_container_that_cannot_start_is_told,
    the_end_of_a_command_is_not_told,
    two_listeners_are_told_the_same,
);

async fn the_life_of_a_container_is_told(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", UNTIL_ASKED).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Created).await));
    world.start_container(&main).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Started).await));
    world.logged(&pod, "main.log", "ready\n").await;
    world.stop_container(&main, PATIENCE).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Stopped).await));
    world.remove_container(&main).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Removed).await));
    expect![[r#"
        [Created]
        start <main>: done
        [Created, Started]
        stop <main> within 60s: done
        [Created, Started, Stopped]
        remove <main>: done
        [Created, Started, Stopped, Removed]
    "#]]
}

async fn the_life_of_a_container_that_ends_by_itself_is_told(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", "exit 3").await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Stopped).await));
    world.remove_sandbox(&pod.id).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Removed).await));
    expect![[r#"
        [Created, Started, Stopped]
        remove sandbox <a>: done
        [Created, Started, Stopped, Removed]
    "#]]
}

async fn the_life_of_a_sandbox_is_told(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran_from(world.pod("a")).await;
    world.note(format!("{:?}", hints.until(&pod.id, HintKind::Started).await));
    world.stop_sandbox(&pod.id).await;
    world.note(format!("{:?}", hints.until(&pod.id, HintKind::Stopped).await));
    world.remove_sandbox(&pod.id).await;
    world.note(format!("{:?}", hints.until(&pod.id, HintKind::Removed).await));
    expect![[r#"
        [Created, Started]
        stop sandbox <a>: done
        [Created, Started, Stopped]
        remove sandbox <a>: done
        [Created, Started, Stopped, Removed]
    "#]]
}

async fn a_container_that_is_removed_while_it_runs_is_told_to_have_stopped(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.remove_container(&main).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Removed).await));
    expect![[r#"
        remove <main>: done
        [Created, Started, Stopped, Removed]
    "#]]
}

async fn a_container_that_cannot_start_is_told(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let mut config = world.container("main", "");
    config.command = vec!["no-such-program".to_owned()];
    let main = world.created_from(&pod, &config).await;
    world.runtime.start_container(&main).await.expect_err("it cannot");
    world.remove_container(&main).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Removed).await));
    expect![[r#"
        remove <main>: done
        [Created, Removed]
    "#]]
}

async fn the_end_of_a_command_is_not_told(world: &World) -> Expect {
    let hints = world.hints().await;
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.exec_shell(&main, "exit 1").await;
    world.stop_container(&main, Duration::ZERO).await;
    world.remove_container(&main).await;
    world.note(format!("{:?}", hints.until(&main, HintKind::Removed).await));
    expect![[r#"
        exec "exit 1" in <main>: 1
        stop <main> within 0ns: done
        remove <main>: done
        [Created, Started, Stopped, Removed]
    "#]]
}

async fn two_listeners_are_told_the_same(world: &World) -> Expect {
    let (one, other) = (world.hints().await, world.hints().await);
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", "exit 3").await;
    for hints in [&one, &other] {
        world.note(format!("{:?}", hints.until(&main, HintKind::Stopped).await));
    }
    expect![[r#"
        [Created, Started, Stopped]
        [Created, Started, Stopped]
    "#]]
}
