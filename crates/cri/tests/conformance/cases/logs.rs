//! The logs of containers.

use std::time::Duration;

use crablet_cri_api::ContainerState;
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::world::World;

/// The longest piece of a line that a runtime writes at once.
const PIECE: usize = 16 * 1024;
const GRACE: Duration = Duration::from_secs(30);

cases!(
    a_log_has_a_time_a_stream_and_a_tag_before_each_line,
    both_streams_go_to_one_log,
    a_line_that_does_not_end_is_marked,
    a_long_line_comes_in_pieces,
    a_line_as_long_as_a_piece_is_whole,
    a_log_is_opened_anew_after_it_was_moved,
    a_log_is_opened_anew_only_while_its_container_runs,
    a_container_without_a_log_path_has_no_log,
    a_log_is_made_with_the_directory_it_is_in,
    a_log_stays_when_its_container_is_removed,
    a_second_attempt_adds_to_the_log_it_shares,
);

async fn a_log_has_a_time_a_stream_and_a_tag_before_each_line(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world
        .ended(&pod, "main", "echo one; echo; echo '  three  '; echo 'größer ⛵'; printf 'tab\\there\\n'")
        .await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F one\n"
          "stdout F \n"
          "stdout F   three  \n"
          "stdout F größer ⛵\n"
          "stdout F tab\there\n"
    "#]]
}

async fn both_streams_go_to_one_log(world: &World) -> Expect {
    let pod = world.ran("a").await;
    // With time between them: two pipes have no order.
    world.ended(&pod, "main", "echo one; sleep 1; echo two >&2; sleep 1; echo three").await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F one\n"
          "stderr F two\n"
          "stdout F three\n"
    "#]]
}

async fn a_line_that_does_not_end_is_marked(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.ended(&pod, "main", "echo one; printf two").await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F one\n"
          "stdout P two\n"
    "#]]
}

async fn a_long_line_comes_in_pieces(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let long = "0123456789".repeat(2 * PIECE / 10 + 100);
    world.ended(&pod, "main", &format!("echo {long}; echo short")).await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout P 01234567890"… (16394 characters, checksum 6512324042838297376)
          "stdout P 45678901234"… (16394 characters, checksum 14580826754494064952)
          "stdout F 89012345678"… (1002 characters, checksum 5461613728563536122)
          "stdout F short\n"
    "#]]
}

async fn a_line_as_long_as_a_piece_is_whole(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let [shorter, exact, longer] = [PIECE - 1, PIECE, PIECE + 1].map(|length| "x".repeat(length));
    world.ended(&pod, "main", &format!("echo {shorter}; echo {exact}; echo {longer}")).await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F xxxxxxxxxxx"… (16393 characters, checksum 2941565723294211658)
          "stdout F xxxxxxxxxxx"… (16394 characters, checksum 14543642183139370074)
          "stdout P xxxxxxxxxxx"… (16394 characters, checksum 1113710967715575176)
          "stdout F x\n"
    "#]]
}

async fn a_log_is_opened_anew_after_it_was_moved(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let script = "trap 'echo asked' TERM; echo ready; sleep 100000 & wait; sleep 100000 & wait; exit 5";
    let main = world.ready(&pod, "main", script).await;
    world.moved_log(&pod, "main.log", "main.log.old");
    world.reopen_log(&main).await;
    world.log(&pod, "main.log");
    let stop = world.runtime.stop_container(&main, Duration::from_secs(10_000));
    let end = async {
        world.logged(&pod, "main.log", "stdout F asked\n").await;
        world.runtime.stop_container(&main, Duration::ZERO).await
    };
    let (stopped, ended) = tokio::join!(stop, end);
    stopped.and(ended).expect("it stops");
    world.log(&pod, "main.log");
    world.log(&pod, "main.log.old");
    expect![[r#"
        reopen the log of <main>: done
        log main.log:
        log main.log:
          "stdout F asked\n"
        log main.log.old:
          "stdout F ready\n"
    "#]]
}

async fn a_log_is_opened_anew_only_while_its_container_runs(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    world.reopen_log(&created).await;
    world.reopen_log(&exited).await;
    world.reopen_log("no-such-container").await;
    expect![[r#"
        reopen the log of <created>: ReopenContainerLog: Unknown: container is not running
        reopen the log of <exited>: ReopenContainerLog: Unknown: container is not running
        reopen the log of no-such-container: ReopenContainerLog: NotFound: an error occurred when try to find container "no-such-container": not found
    "#]]
}

async fn a_container_without_a_log_path_has_no_log(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "echo lost; exit 3");
    config.log_path.clear();
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.container_status(&main).await;
    expect![[r#"
        status of <main>:
          <main> main #0 Exited created started finished exit_code=3 reason="Error"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn a_log_is_made_with_the_directory_it_is_in(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "echo hello");
    config.log_path = "main/0.log".to_owned();
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.container_status(&main).await;
    world.log(&pod, "main/0.log");
    expect![[r#"
        status of <main>:
          <main> main #0 Exited created started finished exit_code=0 reason="Completed"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main/0.log"
        log main/0.log:
          "stdout F hello\n"
    "#]]
}

async fn a_log_stays_when_its_container_is_removed(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", UNTIL_ASKED).await;
    world.stop_container(&main, GRACE).await;
    world.remove_container(&main).await;
    world.remove_sandbox(&pod.id).await;
    world.log(&pod, "main.log");
    expect![[r#"
        stop <main> within 30s: done
        remove <main>: done
        remove sandbox <a>: done
        log main.log:
          "stdout F ready\n"
          "stdout F asked\n"
    "#]]
}

async fn a_second_attempt_adds_to_the_log_it_shares(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.ended(&pod, "main", "echo first").await;
    let mut config = world.container("main", "echo second");
    config.metadata.get_or_insert_default().attempt = 1;
    let second = world.started_from(&pod, &config).await;
    world.until(&second, ContainerState::Exited).await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F first\n"
          "stdout F second\n"
    "#]]
}
