//! Answers in containerd's words.

use std::collections::BTreeMap;

use crablet_cri_api::v1;
use crablet_cri_sim::{Image, Settings, Simulator, StoppingTheMissing};
use tonic::{Code, Status};

use crate::support::{BUSYBOX, Pod, images, runtime, spec, status};

fn check<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, text));
}

fn id(text: &str) -> String {
    text.to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_said_as_containerd_says_it() {
    let simulator = Simulator::new(Settings::default());
    let mut runtime = runtime(&simulator);
    let nope = || id("nope");
    for (asked, code, end) in
        [("nope", Code::NotFound, "not found"), ("", Code::Unknown, "Prefix can't be empty")]
    {
        let container = format!("an error occurred when try to find container \"{asked}\": {end}");
        let request = v1::ContainerStatusRequest { container_id: id(asked), verbose: false };
        check(runtime.container_status(request).await, code, &container);
        let request = v1::StartContainerRequest { container_id: id(asked) };
        check(runtime.start_container(request).await, code, &container);
        let request = v1::StopContainerRequest { container_id: id(asked), timeout: 1 };
        check(runtime.stop_container(request).await, code, &container);
        let request = v1::ReopenContainerLogRequest { container_id: id(asked) };
        check(runtime.reopen_container_log(request).await, code, &container);
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id(asked), verbose: false };
        check(
            runtime.pod_sandbox_status(request).await,
            code,
            &format!("an error occurred when try to find sandbox: {end}"),
        );
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id(asked) };
        check(
            runtime.stop_pod_sandbox(request).await,
            code,
            &format!("an error occurred when try to find sandbox \"{asked}\": {end}"),
        );
    }
    let request = v1::ExecSyncRequest { container_id: nope(), cmd: vec![id("true")], timeout: 0 };
    check(
        runtime.exec_sync(request).await,
        Code::NotFound,
        "failed to exec in container: failed to find container \"nope\" in store: not found",
    );
    let request = v1::ContainerStatsRequest { container_id: nope() };
    check(runtime.container_stats(request).await, Code::NotFound, "failed to find container: not found");
    runtime.remove_container(v1::RemoveContainerRequest { container_id: nope() }).await.unwrap();
    runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: nope() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn newer_runtimes_stop_what_is_not_there() {
    let settings = Settings { stopping_the_missing: StoppingTheMissing::Succeeds, ..Settings::default() };
    let simulator = Simulator::new(settings);
    let mut runtime = runtime(&simulator);
    runtime.stop_container(v1::StopContainerRequest { container_id: id("nope"), timeout: 1 }).await.unwrap();
    runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: id("nope") }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn names_are_taken_until_what_has_them_is_removed() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let text = |kind: &str, name: &str, id: &str| {
        format!("failed to reserve {kind} name \"{name}\": name \"{name}\" is reserved for \"{id}\"")
    };
    let again = Pod::run_with(&simulator, Pod::config("web")).await.map(|pod| pod.id);
    check(again, Code::Unknown, &text("sandbox", "web_default_web-uid_0", &pod.id));
    let container = pod.create("main", &["true"]).await;
    let again = pod.create_with(Pod::container("main", &["true"])).await;
    check(again, Code::Unknown, &text("container", "main_web_default_web-uid_0", &container));
    pod.remove_container(&container).await.unwrap();
    pod.create("main", &["true"]).await;
    pod.remove().await;
    Pod::run(&simulator, "web").await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_made_says_why() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let with_image =
        |image: &str| v1::ContainerConfig { image: Some(spec(image)), ..Pod::container("main", &["true"]) };
    for (config, code, text) in [
        (v1::ContainerConfig::default(), Code::Unknown, "container config must include metadata"),
        (with_image("nope:1"), Code::NotFound, "failed to resolve image \"nope:1\": not found"),
        (with_image("UPPER"), Code::NotFound, "failed to resolve image \"UPPER\": not found"),
        (with_image(""), Code::Unknown, "failed to resolve image \"\": ambiguous digest string"),
    ] {
        check(pod.create_with(config).await, code, text);
    }
    let request = v1::RunPodSandboxRequest::default();
    check(
        runtime(&simulator).run_pod_sandbox(request).await,
        Code::Unknown,
        "sandbox config must include metadata",
    );
    let request = v1::RunPodSandboxRequest { config: Some(Pod::config("x")), runtime_handler: id("kata") };
    check(
        runtime(&simulator).run_pod_sandbox(request).await,
        Code::Unknown,
        "failed to get sandbox runtime: no runtime for \"kata\" is configured",
    );
    simulator.set_network_ready(Err(("NetworkPluginNotReady", "no CNI")));
    let refused = Pod::run_with(&simulator, Pod::config("x")).await.map(|pod| pod.id).unwrap_err();
    assert!(refused.message().ends_with(": cni plugin not initialized"), "{refused}");
    simulator.set_network_ready(Ok(()));
    // What failed has not kept its name.
    Pod::run(&simulator, "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_sandbox_takes_no_containers_and_has_no_address() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    assert_eq!(pod.status().await.network.unwrap().ip, "10.88.0.2");
    let made = pod.create("made", &["true"]).await;
    let running = pod.run_container("running", &["sleep", "1000"]).await;
    pod.stop().await;
    assert_eq!(pod.status().await.network.unwrap().ip, "");
    assert_eq!(status(&simulator, &running).await.exit_code, 137);
    assert_eq!(status(&simulator, &made).await.state(), v1::ContainerState::ContainerCreated);
    check(
        pod.create_with(Pod::container("late", &["true"])).await,
        Code::NotFound,
        &format!(
            "failed to get sandbox container task: no running task found: task {0} not found: not found",
            pod.id
        ),
    );
    let text = format!("sandbox container \"{}\" is not running", pod.id);
    check(pod.start(&made).await, Code::Unknown, &text);
    let failed = status(&simulator, &made).await;
    assert_eq!((failed.exit_code, failed.message), (128, text));
    pod.stop().await;
    pod.remove().await;
    pod.remove().await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_by_prefix_state_labels_and_sandbox() {
    let simulator = Simulator::new(Settings::default());
    let web = Pod::run(&simulator, "web").await;
    let other = Pod::run(&simulator, "other").await;
    let mut config = Pod::container("labelled", &["sleep", "1000"]);
    config.labels.insert(id("a"), id("b"));
    let labelled = web.create_with(config).await.unwrap();
    let running = other.run_container("main", &["sleep", "1000"]).await;
    let list = async |filter: v1::ContainerFilter| {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let listed = runtime(&simulator).list_containers(request).await.unwrap().into_inner().containers;
        listed.into_iter().map(|container| container.id).collect::<Vec<_>>()
    };
    let none = v1::ContainerFilter::default();
    assert_eq!(list(none.clone()).await.len(), 2);
    assert_eq!(
        list(v1::ContainerFilter { id: labelled[..6].to_owned(), ..none.clone() }).await,
        std::slice::from_ref(&labelled)
    );
    assert_eq!(list(v1::ContainerFilter { id: id("nope"), ..none.clone() }).await, [""; 0]);
    let sandbox = |text: &str| v1::ContainerFilter { pod_sandbox_id: id(text), ..none.clone() };
    assert_eq!(list(sandbox(&other.id[..6])).await, std::slice::from_ref(&running));
    assert_eq!(list(sandbox("nope")).await, [""; 0]);
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    assert_eq!(
        list(v1::ContainerFilter { state: Some(state), ..none.clone() }).await,
        std::slice::from_ref(&running)
    );
    let labels = BTreeMap::from([(id("a"), id("b"))]);
    assert_eq!(
        list(v1::ContainerFilter { label_selector: labels, ..none.clone() }).await,
        std::slice::from_ref(&labelled)
    );
    let both = v1::ContainerFilter { id: labelled, pod_sandbox_id: other.id.clone(), ..none };
    assert_eq!(list(both).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn images_are_pulled_found_and_removed_as_with_containerd() {
    let settings = Settings { registry: vec![Image::new("busybox:1").user("1000")], ..Settings::default() };
    let simulator = Simulator::new(settings);
    let mut images = images(&simulator);
    let pull = |name: &str| v1::PullImageRequest { image: Some(spec(name)), ..Default::default() };
    check(
        images.pull_image(pull("nope:1")).await,
        Code::NotFound,
        "failed to pull and unpack image \"docker.io/library/nope:1\": failed to resolve reference \
         \"docker.io/library/nope:1\": docker.io/library/nope:1: not found",
    );
    check(
        images.pull_image(pull("UPPER")).await,
        Code::Unknown,
        "failed to parse image reference \"UPPER\": invalid reference format: repository name must be lowercase",
    );
    let reference = images.pull_image(pull("busybox:1")).await.unwrap().into_inner().image_ref;
    let ask = |name: &str| v1::ImageStatusRequest { image: Some(spec(name)), verbose: false };
    let image = images.image_status(ask("docker.io/library/busybox:1")).await.unwrap().into_inner().image;
    let image = image.unwrap();
    assert_eq!((image.id, image.uid), (reference.clone(), Some(v1::Int64Value { value: 1000 })));
    assert_eq!(images.image_status(ask("nope")).await.unwrap().into_inner(), Default::default());
    check(
        images.image_status(ask("")).await,
        Code::Unknown,
        "can not resolve \"\" locally: ambiguous digest string",
    );

    // A container's status says the digest of a pulled image, and the ID of an imported one.
    let pod = Pod::run(&simulator, "web").await;
    let mut config = Pod::container("pulled", &["true"]);
    config.image = Some(spec(&reference));
    let pulled = status(&simulator, &pod.create_with(config).await.unwrap()).await;
    assert_eq!(pulled.image.unwrap().image, "docker.io/library/busybox:1");
    assert_eq!(pulled.image_ref, image.repo_digests[0]);
    let imported = status(&simulator, &pod.create("imported", &["true"]).await).await;
    assert_eq!((imported.image_ref, imported.image.unwrap().image), (Image::new(BUSYBOX).id(), id(BUSYBOX)));

    let remove = |name: &str| v1::RemoveImageRequest { image: Some(spec(name)) };
    images.remove_image(remove("busybox:1")).await.unwrap();
    images.remove_image(remove("busybox:1")).await.unwrap();
    assert_eq!(images.image_status(ask("busybox:1")).await.unwrap().into_inner().image, None);
}

#[tokio::test(start_paused = true)]
async fn streams_are_checked_and_said_not_to_be_there() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let container_id = pod.run_container("main", &["sleep", "1000"]).await;
    let mut runtime = runtime(&simulator);
    let exec =
        v1::ExecRequest { container_id: container_id.clone(), cmd: vec![id("true")], ..Default::default() };
    check(
        runtime.exec(exec.clone()).await,
        Code::InvalidArgument,
        "one of stdin, stdout, or stderr must be set",
    );
    check(
        runtime.exec(v1::ExecRequest { tty: true, stderr: true, ..exec.clone() }).await,
        Code::InvalidArgument,
        "tty and stderr cannot both be true",
    );
    check(
        runtime.exec(v1::ExecRequest { stdout: true, ..exec }).await,
        Code::Unimplemented,
        "crablet-sim has no streaming server for exec: use ExecSync, or a real runtime",
    );
    check(
        runtime.attach(v1::AttachRequest { container_id, ..Default::default() }).await,
        Code::InvalidArgument,
        "one of stdin, stdout, and stderr must be set",
    );

    let settings = Settings { streaming_server: Some(id("http://127.0.0.1:1/")), ..Settings::default() };
    let simulator = Simulator::new(settings);
    let pod = Pod::run(&simulator, "web").await;
    let request = v1::PortForwardRequest { pod_sandbox_id: pod.id.clone(), port: vec![80] };
    let url = crate::support::runtime(&simulator).port_forward(request).await.unwrap().into_inner().url;
    assert!(url.starts_with("http://127.0.0.1:1/portforward/"), "{url}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_like_containerd_1_6_says_so_of_what_it_lacks() {
    let simulator = Simulator::new(Settings::containerd_1_6());
    let mut runtime = runtime(&simulator);
    check(
        runtime.runtime_config(v1::RuntimeConfigRequest {}).await,
        Code::Unimplemented,
        "unknown method RuntimeConfig for service runtime.v1.RuntimeService",
    );
    let events = runtime.get_container_events(v1::GetEventsRequest {}).await.map(drop);
    check(events, Code::Unimplemented, "method GetContainerEvents not implemented");
    let streamed = runtime.stream_containers(v1::StreamContainersRequest::default()).await.map(drop);
    check(
        streamed,
        Code::Unimplemented,
        "unknown method StreamContainers for service runtime.v1.RuntimeService",
    );
    let request = v1::StatusRequest { verbose: false };
    assert!(runtime.status(request).await.unwrap().into_inner().runtime_handlers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_containers_use_is_measured() {
    let simulator = Simulator::new(Settings::default());
    let mut config = Pod::config("web");
    config.linux = Some(v1::LinuxPodSandboxConfig { cgroup_parent: id("/pods/web"), ..Default::default() });
    config.annotations.insert(id("sim.crablet.dev/program"), id("cpu=250,memory=50000000"));
    let pod = Pod::run_with(&simulator, config).await.unwrap();
    let container_id = pod.create("main", &["/x"]).await;
    let request = v1::ContainerStatsRequest { container_id: container_id.clone() };
    let mut runtime = runtime(&simulator);
    check(runtime.container_stats(request.clone()).await, Code::Unknown, "unexpected metrics response: []");
    pod.start(&container_id).await.unwrap();
    let first = runtime.container_stats(request.clone()).await.unwrap().into_inner().stats.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let second = runtime.container_stats(request).await.unwrap().into_inner().stats.unwrap();
    let used = |stats: &v1::ContainerStats| stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value;
    assert_eq!(used(&second) - used(&first), 2_500_000_000);
    assert_eq!(second.cpu.unwrap().usage_nano_cores.unwrap().value, 250_000_000);
    assert_eq!(second.memory.unwrap().working_set_bytes.unwrap().value, 50_000_000);
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: pod.id.clone() };
    let linux = runtime.pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap().linux.unwrap();
    assert_eq!(linux.process.unwrap().process_count.unwrap().value, 1);
    assert!(linux.memory.unwrap().working_set_bytes.unwrap().value > 50_000_000);
    assert_eq!(linux.containers.len(), 1);
}
