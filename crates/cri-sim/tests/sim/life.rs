//! What containers do, and how they end.

use std::time::Duration;

use crablet_cri_api::v1;
use crablet_cri_sim::{Image, Program, Settings, Simulator};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::support::{BUSYBOX, Pod, runtime, spec, status};

#[tokio::test(start_paused = true)]
async fn a_pods_whole_life() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.create("main", &["sh", "-c", "echo hello; sleep 5; exit 3"]).await;
    assert_eq!(status(&simulator, &id).await.state(), v1::ContainerState::ContainerCreated);
    pod.start(&id).await.unwrap();
    assert_eq!(status(&simulator, &id).await.state(), v1::ContainerState::ContainerRunning);

    sleep(Duration::from_secs(6)).await;
    let ended = status(&simulator, &id).await;
    assert_eq!(ended.state(), v1::ContainerState::ContainerExited);
    assert_eq!((ended.exit_code, ended.reason.as_str()), (3, "Error"));
    assert_eq!(ended.finished_at - ended.started_at, 5_000_000_000);

    pod.stop().await;
    pod.remove().await;
    assert_eq!(simulator.container_count(), 0);
    let error = pod.start(&id).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(simulator.sandboxes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ignores_term_is_killed_when_its_time_is_over() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    for (script, seconds, code) in [
        ("sleep 1000", 0, 143),
        ("trap '' TERM; sleep 1000", 10, 137),
        ("trap 'exit 7' TERM; while true; do sleep 3; done", 3, 7),
        ("trap 'exit 7' TERM; sleep 1000 & wait", 0, 7),
    ] {
        let id = pod.create(&format!("c{code}-{seconds}"), &["sh", "-c", script]).await;
        pod.start(&id).await.unwrap();
        let before = Instant::now();
        pod.stop_container(&id, 10).await.unwrap();
        assert_eq!(before.elapsed().as_secs(), seconds, "{script}");
        assert_eq!(status(&simulator, &id).await.exit_code, code, "{script}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_process_of_a_pid_namespace_gets_no_signal_that_it_does_not_handle() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let mut config = Pod::container("main", &["sleep", "1000"]);
    config.linux = Some(v1::LinuxContainerConfig {
        security_context: Some(v1::LinuxContainerSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                pid: v1::NamespaceMode::Container.into(),
                ..v1::NamespaceOption::default()
            }),
            ..v1::LinuxContainerSecurityContext::default()
        }),
        resources: None,
    });
    let id = pod.create_with(config).await.unwrap();
    pod.start(&id).await.unwrap();
    let before = Instant::now();
    pod.stop_container(&id, 10).await.unwrap();
    assert_eq!((before.elapsed().as_secs(), status(&simulator, &id).await.exit_code), (10, 137));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_not_there_does_not_start() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let prefix = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                  failed: unable to start container process: exec: ";
    for (number, (word, text)) in [
        ("/no/such", "\"/no/such\": stat /no/such: no such file or directory: unknown"),
        ("nosuch", "\"nosuch\": executable file not found in $PATH: unknown"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = pod.create(&format!("c{number}"), &[word]).await;
        let error = pod.start(&id).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::Unknown, format!("{prefix}{text}").as_str()));
        let ended = status(&simulator, &id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str(), ended.started_at), (128, "StartError", 0));
        assert_eq!(ended.message, error.message());
        assert_eq!(ended.state(), v1::ContainerState::ContainerExited);
    }
    let id = pod.run_container("sh", &["sh", "-c", "nosuch; true && /no/such"]).await;
    assert_eq!(status(&simulator, &id).await.exit_code, 127);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_uses_more_memory_than_it_may_is_killed() {
    let simulator = Simulator::new(Settings::default());
    simulator.add_image(
        Image::new("hungry:1")
            .entrypoint(["/hungry"])
            .program(Program::run_forever().using_memory(100 << 20).taking_it_after(Duration::from_secs(5))),
    );
    let pod = Pod::run(&simulator, "web").await;
    let limited = |name: &str, command: &[&str], image: &str| {
        let mut config = Pod::container(name, command);
        config.image = Some(spec(image));
        config.linux = Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                memory_limit_in_bytes: 64 << 20,
                ..v1::LinuxContainerResources::default()
            }),
            security_context: None,
        });
        config
    };
    for (name, command, image, seconds) in
        [("tail", &["tail", "/dev/zero"][..], BUSYBOX, 0), ("hungry", &[], "hungry:1", 5)]
    {
        let id = pod.create_with(limited(name, command, image)).await.unwrap();
        pod.start(&id).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        let ended = status(&simulator, &id).await;
        assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "OOMKilled"), "{name}");
        assert_eq!((ended.finished_at - ended.started_at) / 1_000_000_000, seconds, "{name}");
    }
    // Less memory than it holds has it killed as well.
    let id = pod.run_container("small", &["sleep", "1000"]).await;
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(v1::LinuxContainerResources { memory_limit_in_bytes: 1000, ..Default::default() }),
        ..v1::UpdateContainerResourcesRequest::default()
    };
    runtime(&simulator).update_container_resources(request).await.unwrap();
    assert_eq!(status(&simulator, &id).await.reason, "OOMKilled");
}

#[tokio::test(start_paused = true)]
async fn commands_run_in_a_container_and_share_its_files() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let id = pod
        .run_container("main", &["sh", "-c", "touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"])
        .await;
    let healthy = async || pod.exec(&id, &["cat", "/tmp/healthy"], 0).await.unwrap().exit_code;
    assert_eq!(healthy().await, 0);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(healthy().await, 1);

    let answer = pod.exec(&id, &["sh", "-c", "echo hi; echo err >&2; cat /nofile; exit 3"], 0).await.unwrap();
    assert_eq!(String::from_utf8(answer.stdout).unwrap(), "hi\n");
    assert_eq!(
        String::from_utf8(answer.stderr).unwrap(),
        "err\ncat: can't open '/nofile': No such file or directory\n"
    );
    assert_eq!(answer.exit_code, 3);

    let before = Instant::now();
    let error = pod.exec(&id, &["sleep", "100"], 90).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert_eq!(
        error.message(),
        "failed to exec in container: timeout 1m30s exceeded: context deadline exceeded"
    );
    assert_eq!(before.elapsed().as_secs(), 90);

    // A command ends with its container.
    let (answer, stopped) = tokio::join!(pod.exec(&id, &["sleep", "100"], 0), pod.stop_container(&id, 0));
    stopped.unwrap();
    assert_eq!(answer.unwrap().exit_code, 137);
    let error = pod.exec(&id, &["true"], 0).await.unwrap_err();
    assert_eq!(error.message(), "failed to exec in container: container is in CONTAINER_EXITED state");
}

#[tokio::test(start_paused = true)]
async fn what_a_container_writes_is_in_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let simulator = Simulator::new(Settings::default());
    let mut config = Pod::config("web");
    config.log_directory = directory.path().to_str().unwrap().to_owned();
    let pod = Pod::run_with(&simulator, config).await.unwrap();
    let id = pod.run_container("main", &["sh", "-c", "echo one; sleep 1.5; printf two >&2"]).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(pod.log("main"), "2026-09-21T14:13:20Z stdout F one\n2026-09-21T14:13:21.5Z stderr P two\n");
    assert_eq!(status(&simulator, &id).await.log_path, directory.path().join("main.log").to_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_pods_annotation_chooses_what_its_containers_do() {
    let simulator = Simulator::new(Settings::default());
    let mut config = Pod::config("web");
    config.annotations.insert(Program::ANNOTATION.to_owned(), "exit=9,after=7s,exec=4".to_owned());
    let pod = Pod::run_with(&simulator, config).await.unwrap();
    let id = pod.run_container("main", &["/whatever"]).await;
    assert_eq!(pod.exec(&id, &["true"], 0).await.unwrap().exit_code, 4);
    sleep(Duration::from_secs(8)).await;
    let ended = status(&simulator, &id).await;
    assert_eq!((ended.exit_code, ended.finished_at - ended.started_at), (9, 7_000_000_000));
}

#[tokio::test(start_paused = true)]
async fn when_a_sandbox_dies_containers_that_share_its_pids_die_with_it() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sleep", "1000"]).await;
    assert!(simulator.kill_sandbox_process(&pod.id));
    assert!(!simulator.kill_sandbox_process(&pod.id));
    assert_eq!(pod.status().await.state(), v1::PodSandboxState::SandboxNotready);
    assert_eq!(status(&simulator, &id).await.exit_code, 137);
    let error = pod.create_with(Pod::container("late", &["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    pod.stop().await;
    pod.remove().await;
}

#[tokio::test(start_paused = true)]
async fn the_wakers_task_ends_with_the_last_handle() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    pod.run_container("main", &["sleep", "1000"]).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 1);
    drop(pod);
    drop(simulator);
    tokio::task::yield_now().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}
