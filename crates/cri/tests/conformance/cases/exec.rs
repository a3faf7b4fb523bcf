//! Commands in containers.

use std::time::Duration;

use expect_test::{Expect, expect};

use super::{FOREVER, cases};
use crate::world::{DESCRIBED, PATIENCE, World, image, words};

cases!(
    a_command_gives_what_it_wrote_and_its_code,
    a_command_that_is_not_there_is_an_error,
    a_command_that_may_not_be_executed_is_an_error,
    an_empty_command_is_an_error,
    a_command_that_takes_too_long_is_ended,
    a_command_without_a_timeout_runs_to_its_end,
    a_command_needs_a_running_container,
    a_command_in_a_container_that_never_was_is_not_found,
    a_command_can_write_much,
    a_command_has_the_variables_of_its_container,
    a_command_writes_nothing_to_the_log,
    commands_run_side_by_side,
    a_container_that_ends_ends_its_commands,
);

async fn a_command_gives_what_it_wrote_and_its_code(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    for script in [
        ":",
        "echo out",
        "echo err >&2",
        "echo out; echo err >&2; exit 1",
        "printf 'no end of line'",
        "printf 'größer ⛵'",
        "exit 42",
        "exit 126",
        "exit 127",
        "exit 255",
        "no-such-program",
    ] {
        world.exec_shell(&main, script).await;
    }
    world.exec(&main, &["echo", "with  blanks", ""], Some(PATIENCE)).await;
    world.exec(&main, &["true"], Some(PATIENCE)).await;
    world.exec(&main, &["false"], Some(PATIENCE)).await;
    world.state(&main).await;
    expect![[r#"
        exec ":" in <main>: 0
        exec "echo out" in <main>: 0 stdout="out\n"
        exec "echo err >&2" in <main>: 0 stderr="err\n"
        exec "echo out; echo err >&2; exit 1" in <main>: 1 stdout="out\n" stderr="err\n"
        exec "printf 'no end of line'" in <main>: 0 stdout="no end of line"
        exec "printf 'größer ⛵'" in <main>: 0 stdout="größer ⛵"
        exec "exit 42" in <main>: 42
        exec "exit 126" in <main>: 126
        exec "exit 127" in <main>: 127
        exec "exit 255" in <main>: 255
        exec "no-such-program" in <main>: 127 stderr="sh: no-such-program: not found\n"
        exec ["echo", "with  blanks", ""] in <main>: 0 stdout="with  blanks \n"
        exec ["true"] in <main>: 0
        exec ["false"] in <main>: 1
        state of <main>: Running created started
    "#]]
}

async fn a_command_that_is_not_there_is_an_error(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.exec(&main, &["no-such-program"], Some(PATIENCE)).await;
    world.exec(&main, &["/no/such/program"], Some(PATIENCE)).await;
    expect![[r#"
        exec ["no-such-program"] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 1>": OCI runtime exec failed: exec failed: unable to start container process: exec: "no-such-program": executable file not found in $PATH: unknown
        exec ["/no/such/program"] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 2>": OCI runtime exec failed: exec failed: unable to start container process: exec: "/no/such/program": stat /no/such/program: no such file or directory: unknown
    "#]]
}

async fn a_command_that_may_not_be_executed_is_an_error(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.exec(&main, &["/etc/passwd"], Some(PATIENCE)).await;
    world.exec(&main, &["/etc"], Some(PATIENCE)).await;
    expect![[r#"
        exec ["/etc/passwd"] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 1>": OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc/passwd": permission denied: unknown
        exec ["/etc"] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 2>": OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc": permission denied: unknown
    "#]]
}

async fn an_empty_command_is_an_error(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.exec(&main, &[], Some(PATIENCE)).await;
    world.exec(&main, &[""], Some(PATIENCE)).await;
    expect![[r#"
        exec [] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 1>": OCI runtime exec failed: exec failed: args must not be empty: unknown
        exec [""] in <main>: ExecSync: Unknown: failed to exec in container: failed to start exec "<id 2>": OCI runtime exec failed: exec failed: unable to start container process: exec: "": executable file not found in $PATH: unknown
    "#]]
}

async fn a_command_that_takes_too_long_is_ended(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    let second = Some(Duration::from_secs(1));
    world.exec(&main, &["sleep", "100000"], second).await;
    world.exec(&main, &["sh", "-c", "echo started; trap '' TERM; sleep 100000"], second).await;
    world.state(&main).await;
    expect![[r#"
        exec ["sleep", "100000"] in <main>: ExecSync: DeadlineExceeded: failed to exec in container: timeout 1s exceeded: context deadline exceeded
        exec ["sh", "-c", "echo started; trap '' TERM; sleep 100000"] in <main>: ExecSync: DeadlineExceeded: failed to exec in container: timeout 1s exceeded: context deadline exceeded
        state of <main>: Running created started
    "#]]
}

async fn a_command_without_a_timeout_runs_to_its_end(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.exec(&main, &["sh", "-c", "sleep 1; echo done"], None).await;
    expect![[r#"
        exec ["sh", "-c", "sleep 1; echo done"] in <main>: 0 stdout="done\n"
    "#]]
}

async fn a_command_needs_a_running_container(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    world.exec(&created, &["true"], Some(PATIENCE)).await;
    world.exec(&exited, &["true"], Some(PATIENCE)).await;
    expect![[r#"
        exec ["true"] in <created>: ExecSync: Unknown: failed to exec in container: container is in CONTAINER_CREATED state
        exec ["true"] in <exited>: ExecSync: Unknown: failed to exec in container: container is in CONTAINER_EXITED state
    "#]]
}

async fn a_command_in_a_container_that_never_was_is_not_found(world: &World) -> Expect {
    world.exec("no-such-container", &["true"], Some(PATIENCE)).await;
    world.exec("", &["true"], Some(PATIENCE)).await;
    expect![[r#"
        exec ["true"] in no-such-container: ExecSync: NotFound: failed to exec in container: failed to find container "no-such-container" in store: not found
        exec ["true"] in : ExecSync: Unknown: failed to exec in container: failed to find container "" in store: prefix can't be empty
    "#]]
}

async fn a_command_can_write_much(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    let doubled = "A=$A$A; ".repeat(17);
    let script = format!("A=0123456789; {doubled}echo $A; echo $A >&2");
    let output = world.runtime.exec_sync(&main, &words(&["sh", "-c", &script]), Some(PATIENCE)).await;
    let output = output.expect("it answers");
    let expected = format!("{}\n", "0123456789".repeat(1 << 17)).into_bytes();
    assert_eq!(output.stdout.len(), expected.len());
    assert!(output.stdout == expected && output.stderr == expected);
    world.note(format!("exit code {}", output.exit_code));
    expect![[r#"
        exit code 0
    "#]]
}

async fn a_command_has_the_variables_of_its_container(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.image = Some(image(DESCRIBED));
    let main = world.started_from(&pod, &config).await;
    world.exec_shell(&main, "echo $GREETING").await;
    expect![[r#"
        exec "echo $GREETING" in <main>: 0 stdout="hello\n"
    "#]]
}

async fn a_command_writes_nothing_to_the_log(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main =
        world.ready(&pod, "main", "trap 'echo asked; exit 0' TERM; echo ready; sleep 100000 & wait").await;
    world.exec_shell(&main, "echo out; echo err >&2").await;
    world.stop_container(&main, PATIENCE).await;
    world.log(&pod, "main.log");
    expect![[r#"
        exec "echo out; echo err >&2" in <main>: 0 stdout="out\n" stderr="err\n"
        stop <main> within 60s: done
        log main.log:
          "stdout F ready\n"
          "stdout F asked\n"
    "#]]
}

async fn commands_run_side_by_side(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    let commands: Vec<_> = (0..8).map(|n| words(&["sh", "-c", &format!("echo {n}; exit {n}")])).collect();
    let runs = commands.iter().map(|command| world.runtime.exec_sync(&main, command, Some(PATIENCE)));
    for output in futures_util::future::join_all(runs).await {
        let output = output.expect("it answers");
        world.note(format!("{} {:?}", output.exit_code, String::from_utf8_lossy(&output.stdout)));
    }
    expect![[r#"
        0 "0\n"
        1 "1\n"
        2 "2\n"
        3 "3\n"
        4 "4\n"
        5 "5\n"
        6 "6\n"
        7 "7\n"
    "#]]
}

async fn a_container_that_ends_ends_its_commands(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    // The command tells that it runs by the file that it makes.
    let command = words(&["sh", "-c", "touch /tmp/runs; exec sleep 100000"]);
    let exec = world.runtime.exec_sync(&main, &command, None);
    let end = async {
        world.until_exec_succeeds(&main, "test -e /tmp/runs").await;
        world.runtime.stop_container(&main, Duration::ZERO).await
    };
    let (output, stopped) = tokio::join!(exec, end);
    stopped.expect("it is stopped");
    let output = output.map(|output| output.exit_code);
    world.note(format!("exec: {output:?}"));
    expect![[r#"
        exec: Ok(137)
    "#]]
}
