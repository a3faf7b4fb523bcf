//! Containers: their life, their statuses, and orders that make no sense.

use std::time::Duration;

use crablet_cri_api::{ContainerFilter, ContainerState, v1};
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::world::{BUSYBOX, DESCRIBED, World, image, map, words};

/// An ID that no runtime gives.
const MISSING: &str = "no-such-container";
const GRACE: Duration = Duration::from_secs(30);

cases!(
    a_container_is_created_then_running_then_exited_then_gone,
    a_container_that_fails_says_so,
    another_attempt_lives_beside_the_first,
    two_containers_cannot_have_the_same_name_and_attempt,
    the_same_name_in_another_sandbox_is_another_container,
    a_container_cannot_be_started_twice,
    a_container_cannot_be_started_after_its_exit,
    a_container_cannot_be_started_in_a_stopped_sandbox,
    a_container_that_never_was_cannot_be_started,
    a_container_that_was_never_started_can_be_stopped,
    a_container_that_was_stopped_before_its_start_can_still_be_started,
    stopping_a_container_that_ended_succeeds,
    stopping_a_container_twice_succeeds,
    stopping_a_container_that_is_gone_or_never_was_succeeds,
    a_running_container_can_be_removed,
    a_container_that_was_never_started_can_be_removed,
    removing_a_container_that_is_gone_or_never_was_succeeds,
    the_status_of_a_container_that_never_was_is_not_found,
    a_container_is_found_by_the_beginning_of_its_id,
    the_beginning_of_two_ids_finds_no_container,
    a_container_without_metadata_is_refused,
    a_container_without_an_image_is_refused,
    a_container_of_an_image_that_is_not_there_is_refused,
    a_container_that_was_refused_leaves_its_name_free,
    a_container_can_name_its_image_by_its_id,
    a_program_that_is_not_there_fails_the_start,
    a_program_that_may_not_be_executed_fails_the_start,
    a_working_directory_that_is_not_there_is_made,
    labels_and_annotations_of_a_container_are_kept_byte_for_byte,
    mounts_are_told_as_they_were_asked_for,
    what_a_container_was_made_from_is_told,
    a_mount_of_nothing_fails_the_container,
    a_mount_of_what_is_not_there_makes_a_directory,
    without_a_command_the_image_says_what_to_run,
    arguments_follow_the_images_entrypoint,
    variables_reach_the_program,
    resources_of_a_container_can_be_changed_while_it_lives,
);

async fn a_container_is_created_then_running_then_exited_then_gone(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", UNTIL_ASKED);
    config.labels = map(&[("app", "web")]);
    config.annotations = map(&[("note", "kept")]);
    let main = world.create_container(&pod, &config).await.expect("it is made");
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    world.start_container(&main).await;
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    world.logged(&pod, "main.log", "ready\n").await;
    world.stop_container(&main, GRACE).await;
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    world.remove_container(&main).await;
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        create container main: <main>
        status of <main>:
          <main> main #0 Created created
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
            label "app"="web"
            annotation "note"="kept"
        containers all:
          <main> of <a> main #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "app"="web"
            annotation "note"="kept"
        start <main>: done
        status of <main>:
          <main> main #0 Running created started
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
            label "app"="web"
            annotation "note"="kept"
        containers all:
          <main> of <a> main #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "app"="web"
            annotation "note"="kept"
        stop <main> within 30s: done
        status of <main>:
          <main> main #0 Exited created started finished exit_code=0 reason="Completed"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
            label "app"="web"
            annotation "note"="kept"
        containers all:
          <main> of <a> main #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "app"="web"
            annotation "note"="kept"
        remove <main>: done
        status of <main>: ContainerStatus: NotFound: an error occurred when try to find container "<main>": not found
        containers all:
    "#]]
}

async fn a_container_that_fails_says_so(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ended(&pod, "main", "exit 3").await;
    world.container_status(&main).await;
    expect![[r#"
        status of <main>:
          <main> main #0 Exited created started finished exit_code=3 reason="Error"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
    "#]]
}

async fn another_attempt_lives_beside_the_first(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.ended(&pod, "main", "exit 3").await;
    let mut config = world.container("main", FOREVER);
    config.metadata.get_or_insert_default().attempt = 1;
    let second = world.create_container(&pod, &config).await.expect("it is made");
    world.start_container(&second).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        create container main: <main 2>
        start <main 2>: done
        containers all:
          <main> of <a> main #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
          <main 2> of <a> main #1 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn two_containers_cannot_have_the_same_name_and_attempt(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let config = world.container("main", "exit 0");
    let main = world.create_container(&pod, &config).await.expect("it is made");
    let _ = world.create_container(&pod, &config).await;
    world.start_container(&main).await;
    world.until(&main, ContainerState::Exited).await;
    let _ = world.create_container(&pod, &config).await;
    world.remove_container(&main).await;
    let _ = world.create_container(&pod, &config).await;
    expect![[r#"
        create container main: <main>
        create container main: CreateContainer: Unknown: failed to reserve container name "main_a_ns_<case>_0": name "main_a_ns_<case>_0" is reserved for "<main>"
        start <main>: done
        create container main: CreateContainer: Unknown: failed to reserve container name "main_a_ns_<case>_0": name "main_a_ns_<case>_0" is reserved for "<main>"
        remove <main>: done
        create container main: <main 2>
    "#]]
}

async fn the_same_name_in_another_sandbox_is_another_container(world: &World) -> Expect {
    let config = world.container("main", FOREVER);
    for name in ["a", "b"] {
        let pod = world.ran(name).await;
        let _ = world.create_container(&pod, &config).await;
    }
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        create container main: <main>
        create container main: <main 2>
        containers all:
          <main> of <a> main #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
          <main 2> of <b> main #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn a_container_cannot_be_started_twice(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.start_container(&main).await;
    world.state(&main).await;
    expect![[r#"
        start <main>: StartContainer: Unknown: failed to set starting state for container "<main>": container is in CONTAINER_RUNNING state
        state of <main>: Running created started
    "#]]
}

async fn a_container_cannot_be_started_after_its_exit(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ended(&pod, "main", "exit 3").await;
    world.start_container(&main).await;
    world.state(&main).await;
    expect![[r#"
        start <main>: StartContainer: Unknown: failed to set starting state for container "<main>": container is in CONTAINER_EXITED state
        state of <main>: Exited created started finished exit_code=3 reason="Error"
    "#]]
}

async fn a_container_cannot_be_started_in_a_stopped_sandbox(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.stop_sandbox(&pod.id).await;
    world.start_container(&main).await;
    world.state(&main).await;
    expect![[r#"
        stop sandbox <a>: done
        start <main>: StartContainer: Unknown: sandbox container "<a>" is not running
        state of <main>: Exited created finished exit_code=128 reason="StartError" message="sandbox container \"<a>\" is not running"
    "#]]
}

async fn a_container_that_never_was_cannot_be_started(world: &World) -> Expect {
    world.start_container(MISSING).await;
    world.start_container("").await;
    expect![[r#"
        start no-such-container: StartContainer: NotFound: an error occurred when try to find container "no-such-container": not found
        start : StartContainer: Unknown: an error occurred when try to find container "": prefix can't be empty
    "#]]
}

async fn a_container_that_was_never_started_can_be_stopped(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.stop_container(&main, GRACE).await;
    world.stop_container(&main, Duration::ZERO).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        stop <main> within 0ns: done
        state of <main>: Created created
    "#]]
}

async fn a_container_that_was_stopped_before_its_start_can_still_be_started(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.stop_container(&main, GRACE).await;
    world.start_container(&main).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        start <main>: done
        state of <main>: Running created started
    "#]]
}

async fn stopping_a_container_that_ended_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ended(&pod, "main", "exit 3").await;
    world.stop_container(&main, GRACE).await;
    world.stop_container(&main, Duration::ZERO).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        stop <main> within 0ns: done
        state of <main>: Exited created started finished exit_code=3 reason="Error"
    "#]]
}

async fn stopping_a_container_twice_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.ready(&pod, "main", UNTIL_ASKED).await;
    world.stop_container(&main, GRACE).await;
    world.stop_container(&main, GRACE).await;
    world.state(&main).await;
    expect![[r#"
        stop <main> within 30s: done
        stop <main> within 30s: done
        state of <main>: Exited created started finished exit_code=0 reason="Completed"
    "#]]
}

async fn stopping_a_container_that_is_gone_or_never_was_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.remove_container(&main).await;
    world.stop_container(&main, GRACE).await;
    world.stop_container(MISSING, Duration::ZERO).await;
    expect![[r#"
        remove <main>: done
        stop <main> within 30s: done
        stop no-such-container within 0ns: done
    "#]]
}

async fn a_running_container_can_be_removed(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.started(&pod, "main", FOREVER).await;
    world.remove_container(&main).await;
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    world.sandbox_status(&pod.id).await;
    expect![[r#"
        remove <main>: done
        status of <main>: ContainerStatus: NotFound: an error occurred when try to find container "<main>": not found
        containers all:
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Node
    "#]]
}

async fn a_container_that_was_never_started_can_be_removed(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.remove_container(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        remove <main>: done
        containers all:
    "#]]
}

async fn removing_a_container_that_is_gone_or_never_was_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    world.remove_container(&main).await;
    world.remove_container(&main).await;
    world.remove_container(MISSING).await;
    expect![[r#"
        remove <main>: done
        remove <main>: done
        remove no-such-container: done
    "#]]
}

async fn the_status_of_a_container_that_never_was_is_not_found(world: &World) -> Expect {
    world.container_status(MISSING).await;
    world.container_status("").await;
    expect![[r#"
        status of no-such-container: ContainerStatus: NotFound: an error occurred when try to find container "no-such-container": not found
        status of : ContainerStatus: Unknown: an error occurred when try to find container "": prefix can't be empty
    "#]]
}

async fn a_container_is_found_by_the_beginning_of_its_id(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let main = world.created(&pod, "main", FOREVER).await;
    let beginning = &main[..32];
    let started = world.runtime.start_container(beginning).await;
    world.note(format!("started: {started:?}"));
    let status = world.runtime.container_status(beginning).await.map(|status| status.id == main);
    world.note(format!("status: {status:?}"));
    let stopped = world.runtime.stop_container(beginning, Duration::ZERO).await;
    world.note(format!("stopped: {stopped:?}"));
    world.state(&main).await;
    let removed = world.runtime.remove_container(beginning).await;
    world.note(format!("removed: {removed:?}"));
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        started: Ok(())
        status: Ok(true)
        stopped: Ok(())
        state of <main>: Exited created started finished exit_code=137 reason="Error"
        removed: Ok(())
        containers all:
    "#]]
}

async fn the_beginning_of_two_ids_finds_no_container(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut ids = Vec::new();
    // There are sixteen digits, so that two of seventeen IDs begin with the same one.
    let beginning = loop {
        let name = format!("{}", ids.len());
        let id = world.created(&pod, &name, FOREVER).await;
        let beginning = id[..1].to_owned();
        if ids.iter().any(|other: &String| other.starts_with(&beginning)) {
            break beginning;
        }
        ids.push(id);
    };
    let text = |error: crablet_cri::Error| {
        let text = error.to_string().replace(&format!("{beginning:?}"), "<digit>");
        text.replace(&format!("prefix: {beginning}"), "prefix: <digit>")
    };
    let status = world.runtime.container_status(&beginning).await;
    world.note(format!("status: {}", text(status.expect_err("it is ambiguous"))));
    let started = world.runtime.start_container(&beginning).await;
    world.note(format!("started: {}", text(started.expect_err("it is ambiguous"))));
    let removed = world.runtime.remove_container(&beginning).await;
    world.note(format!("removed: {}", text(removed.expect_err("it is ambiguous"))));
    let filter = ContainerFilter { id: Some(beginning.clone()), ..ContainerFilter::default() };
    world.list_containers("with that beginning", filter).await;
    expect![[r#"
        status: ContainerStatus: Unknown: an error occurred when try to find container <digit>: Multiple IDs found with provided prefix: <digit>
        started: StartContainer: Unknown: an error occurred when try to find container <digit>: Multiple IDs found with provided prefix: <digit>
        removed: RemoveContainer: Unknown: an error occurred when try to find container <digit>: Multiple IDs found with provided prefix: <digit>
        containers with that beginning:
    "#]]
}

async fn a_container_without_metadata_is_refused(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.metadata = None;
    let _ = world.create_container(&pod, &config).await;
    let _ = world.create_container(&pod, &v1::ContainerConfig::default()).await;
    expect![[r#"
        create container : CreateContainer: Unknown: container config must include metadata
        create container : CreateContainer: Unknown: container config must include metadata
    "#]]
}

async fn a_container_without_an_image_is_refused(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.image = Some(image(""));
    let _ = world.create_container(&pod, &config).await;
    config.image = None;
    let _ = world.create_container(&pod, &config).await;
    expect![[r#"
        create container main: CreateContainer: Unknown: failed to resolve image "": ambiguous digest string
        create container main: CreateContainer: Unknown: failed to resolve image "": ambiguous digest string
    "#]]
}

async fn a_container_of_an_image_that_is_not_there_is_refused(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    for name in [
        "crablet.test/missing:1",
        "missing",
        "Not A Name",
        "sha256:0000000000000000000000000000000000000000000000000000000000000001",
    ] {
        config.image = Some(image(name));
        let _ = world.create_container(&pod, &config).await;
    }
    expect![[r#"
        create container main: CreateContainer: NotFound: failed to resolve image "crablet.test/missing:1": not found
        create container main: CreateContainer: NotFound: failed to resolve image "missing": not found
        create container main: CreateContainer: NotFound: failed to resolve image "Not A Name": not found
        create container main: CreateContainer: NotFound: failed to resolve image "sha256:<digest 1>": not found
    "#]]
}

async fn a_container_that_was_refused_leaves_its_name_free(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.image = Some(image("crablet.test/missing:1"));
    let _ = world.create_container(&pod, &config).await;
    config.image = Some(image(BUSYBOX));
    let _ = world.create_container(&pod, &config).await;
    expect![[r#"
        create container main: CreateContainer: NotFound: failed to resolve image "crablet.test/missing:1": not found
        create container main: <main>
    "#]]
}

async fn a_container_can_name_its_image_by_its_id(world: &World) -> Expect {
    let known = world.runtime.image_status(&image(BUSYBOX)).await.expect("it answers");
    let id = known.expect("the image is there").id;
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.image = Some(image(&id));
    let main = world.create_container(&pod, &config).await.expect("it is made");
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        create container main: <main>
        status of <main>:
          <main> main #0 Created created
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
        containers all:
          <main> of <a> main #0 Created created image="sha256:<digest 1>" ref="sha256:<digest 1>"
    "#]]
}

async fn a_program_that_is_not_there_fails_the_start(world: &World) -> Expect {
    let pod = world.ran("a").await;
    for (name, program) in [("word", "no-such-program"), ("path", "/bin/no-such-program")] {
        let mut config = world.container(name, "");
        config.command = words(&[program]);
        let id = world.create_container(&pod, &config).await.expect("it is made");
        world.start_container(&id).await;
        world.container_status(&id).await;
        world.start_container(&id).await;
    }
    expect![[r#"
        create container word: <word>
        start <word>: StartContainer: Unknown: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "no-such-program": executable file not found in $PATH: unknown
        status of <word>:
          <word> word #0 Exited created finished exit_code=128 reason="StartError" message="failed to create con"… (212 characters, checksum 15348660039499787006)
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/word.log"
        start <word>: StartContainer: Unknown: failed to set starting state for container "<word>": container is in CONTAINER_EXITED state
        create container path: <path>
        start <path>: StartContainer: Unknown: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/bin/no-such-program": stat /bin/no-such-program: no such file or directory: unknown
        status of <path>:
          <path> path #0 Exited created finished exit_code=128 reason="StartError" message="failed to create con"… (235 characters, checksum 14490523916025677185)
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/path.log"
        start <path>: StartContainer: Unknown: failed to set starting state for container "<path>": container is in CONTAINER_EXITED state
    "#]]
}

async fn a_program_that_may_not_be_executed_fails_the_start(world: &World) -> Expect {
    let pod = world.ran("a").await;
    for (name, program) in [("file", "/etc/passwd"), ("directory", "/etc")] {
        let mut config = world.container(name, "");
        config.command = words(&[program]);
        let id = world.create_container(&pod, &config).await.expect("it is made");
        world.start_container(&id).await;
        world.state(&id).await;
    }
    expect![[r#"
        create container file: <file>
        start <file>: StartContainer: Unknown: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/etc/passwd": permission denied: unknown
        state of <file>: Exited created finished exit_code=128 reason="StartError" message="failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"/etc/passwd\": permission denied: unknown"
        create container directory: <directory>
        start <directory>: StartContainer: Unknown: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/etc": permission denied: unknown
        state of <directory>: Exited created finished exit_code=128 reason="StartError" message="failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"/etc\": permission denied: unknown"
    "#]]
}

async fn a_working_directory_that_is_not_there_is_made(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "exit 4");
    config.working_dir = "/no/such/directory".to_owned();
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.state(&main).await;
    expect![[r#"
        state of <main>: Exited created started finished exit_code=4 reason="Error"
    "#]]
}

async fn labels_and_annotations_of_a_container_are_kept_byte_for_byte(world: &World) -> Expect {
    let long = "0123456789abcdef".repeat(4096);
    let odd = map(&[
        ("empty", ""),
        ("long", &long),
        ("unicode", "Übergröße ⛵ 日本語 \u{200d}"),
        ("lines", "one\ntwo\r\n\tthree\0"),
        ("quotes \" ' \\", "{\"json\":[1,2]}"),
    ]);
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.annotations = odd.clone();
    // Labels go to containerd too, which takes no more than 4096 bytes of one.
    config.labels = odd.into_iter().filter(|(key, _)| key != "long").collect();
    let main = world.create_container(&pod, &config).await.expect("it is made");
    let status = world.runtime.container_status(&main).await.expect("it has a status");
    assert_eq!((&status.labels, &status.annotations), (&config.labels, &config.annotations));
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        create container main: <main>
        containers all:
          <main> of <a> main #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "empty"=""
            label "lines"="one\ntwo\r\n\tthree\0"
            label "quotes \" ' \\"="{\"json\":[1,2]}"
            label "unicode"="Übergröße ⛵ 日本語 \u{200d}"
            annotation "empty"=""
            annotation "lines"="one\ntwo\r\n\tthree\0"
            annotation "long"="0123456789abcdef0123"… (65536 characters, checksum 12179462671740805925)
            annotation "quotes \" ' \\"="{\"json\":[1,2]}"
            annotation "unicode"="Übergröße ⛵ 日本語 \u{200d}"
    "#]]
}

async fn mounts_are_told_as_they_were_asked_for(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let source = world.made_directory("volume");
    let mut config = world.container("main", FOREVER);
    let mount = |container_path: &str| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: source.clone(),
        ..v1::Mount::default()
    };
    config.mounts =
        vec![mount("/writable"), v1::Mount { readonly: true, ..mount("/readonly") }, mount("/deep/down")];
    let main = world.created_from(&pod, &config).await;
    world.container_status(&main).await;
    expect![[r#"
        status of <main>:
          <main> main #0 Created created
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
            mount "<dir>/volume" on "/writable" PropagationPrivate
            mount "<dir>/volume" on "/readonly" readonly PropagationPrivate
            mount "<dir>/volume" on "/deep/down" PropagationPrivate
    "#]]
}

async fn what_a_container_was_made_from_is_told(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let directory = world.made_directory("shared");
    let mut config = world.container("main", UNTIL_ASKED);
    config.args = words(&["one", "two words"]);
    config.working_dir = "/tmp".to_owned();
    config.envs = vec![v1::KeyValue { key: "QUOTED".to_owned(), value: b"a \"b\"".to_vec() }];
    config.mounts = vec![v1::Mount {
        container_path: "/shared".to_owned(),
        host_path: directory.clone(),
        readonly: true,
        ..v1::Mount::default()
    }];
    let main = world.created_from(&pod, &config).await;
    let told = world.runtime.container_config(&main).await.expect("it is told").expect("it is there");
    assert_eq!((&told.command, &told.args), (&config.command, &config.args));
    assert_eq!((&told.working_dir, &told.envs), (&config.working_dir, &config.envs));
    assert_eq!(told.mounts, config.mounts);
    world.note_error("what was never made", world.runtime.container_config(MISSING).await);
    expect![[r#"
        what was never made: ContainerStatus: NotFound: an error occurred when try to find container "no-such-container": not found
    "#]]
}

async fn a_mount_of_nothing_fails_the_container(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.mounts = vec![v1::Mount { container_path: "/volume".to_owned(), ..v1::Mount::default() }];
    if let Ok(main) = world.create_container(&pod, &config).await {
        world.start_container(&main).await;
    }
    expect![[r#"
        create container main: CreateContainer: Unknown: failed to generate container "<id 1>" spec: failed to generate spec: failed to mkdir "": mkdir : no such file or directory
    "#]]
}

async fn a_mount_of_what_is_not_there_makes_a_directory(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    let source = world.directory.join("not/there/yet");
    config.mounts = vec![v1::Mount {
        container_path: "/volume".to_owned(),
        host_path: source.display().to_string(),
        ..v1::Mount::default()
    }];
    let main = world.created_from(&pod, &config).await;
    world.container_status(&main).await;
    world.note(format!("a directory is there: {}", source.is_dir()));
    expect![[r#"
        status of <main>:
          <main> main #0 Created created
            image="crablet.test/busybox:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
            mount "<dir>/not/there/yet" on "/volume" PropagationPrivate
        a directory is there: true
    "#]]
}

async fn without_a_command_the_image_says_what_to_run(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "");
    config.image = Some(image(DESCRIBED));
    config.command.clear();
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.state(&main).await;
    world.log(&pod, "main.log");
    expect![[r#"
        state of <main>: Exited created started finished exit_code=0 reason="Completed"
        log main.log:
          "stdout F hello world\n"
    "#]]
}

async fn arguments_follow_the_images_entrypoint(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "");
    config.image = Some(image(DESCRIBED));
    config.command.clear();
    config.args = words(&["echo \"$GREETING you\"; exit 6"]);
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.state(&main).await;
    world.log(&pod, "main.log");
    expect![[r#"
        state of <main>: Exited created started finished exit_code=6 reason="Error"
        log main.log:
          "stdout F hello you\n"
    "#]]
}

async fn variables_reach_the_program(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", "echo \"$GREETING $EMPTY$UNSET.\"");
    config.image = Some(image(DESCRIBED));
    let variable = |key: &str, value: &str| v1::KeyValue { key: key.to_owned(), value: value.into() };
    config.envs = vec![variable("GREETING", "good  day"), variable("EMPTY", "")];
    let main = world.started_from(&pod, &config).await;
    world.until(&main, ContainerState::Exited).await;
    world.log(&pod, "main.log");
    expect![[r#"
        log main.log:
          "stdout F good  day .\n"
    "#]]
}

async fn resources_of_a_container_can_be_changed_while_it_lives(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let running = world.started(&pod, "running", FOREVER).await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    for id in [&running, &created, &exited, MISSING] {
        let resources = v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        world.update_container_resources(request).await;
    }
    expect![[r#"
        update <running>: done
        update <created>: done
        update <exited>: done
        update no-such-container: UpdateContainerResources: NotFound: failed to find container: not found
    "#]]
}
