//! The two streams of events.

use std::time::Duration;

use crablet_cri::{HintKind, HintSource};
use crablet_cri_api::containerd::events::TaskExit;
use crablet_cri_api::containerd::services::events_client::EventsClient;
use crablet_cri_api::containerd::services::{Envelope, SubscribeRequest};
use crablet_cri_api::v1;
use crablet_cri_sim::{Fault, Settings, Simulator};
use prost::Message as _;
use tokio::time::{sleep, timeout};
use tonic::{Code, Streaming};

use crate::support::{Pod, runtime, status};

async fn containerd_events(simulator: &Simulator, filters: &[&str]) -> Streaming<Envelope> {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    let mut client = EventsClient::new(simulator.events_service());
    client.subscribe(SubscribeRequest { filters }).await.unwrap().into_inner()
}

async fn cri_events(simulator: &Simulator) -> Streaming<v1::ContainerEventResponse> {
    runtime(simulator).get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner()
}

/// The topics of what has come so far.
async fn topics(events: &mut Streaming<Envelope>) -> Vec<String> {
    let mut topics = Vec::new();
    while let Ok(event) = timeout(Duration::from_millis(1), events.message()).await {
        topics.push(event.unwrap().unwrap().topic);
    }
    topics
}

#[tokio::test(start_paused = true)]
async fn containerd_tells_the_life_of_a_pod() {
    let simulator = Simulator::new(Settings::default());
    let mut events = containerd_events(&simulator, &[]).await;
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sh", "-c", "sleep 1; exit 3"]).await;
    pod.exec(&id, &["true"], 0).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    pod.stop().await;
    pod.remove().await;
    assert_eq!(
        topics(&mut events).await,
        [
            "/containers/create",
            "/tasks/start",
            "/containers/create",
            "/tasks/start",
            // The command, then the container, then the sandbox.
            "/tasks/exit",
            "/tasks/exit",
            "/tasks/delete",
            "/tasks/exit",
            "/tasks/delete",
            "/containers/delete",
            "/containers/delete",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_told_with_its_code_and_only_to_those_who_want_it() {
    let simulator = Simulator::new(Settings::default());
    let mut exits = containerd_events(&simulator, &["namespace==k8s.io,topic==/tasks/exit"]).await;
    let mut none = containerd_events(&simulator, &["namespace==moby"]).await;
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sh", "-c", "exit 3"]).await;
    let envelope = exits.message().await.unwrap().unwrap();
    let event = envelope.event.unwrap();
    assert_eq!(
        (envelope.namespace.as_str(), event.type_url.as_str()),
        ("k8s.io", "containerd.events.TaskExit")
    );
    let exit = TaskExit::decode(event.value.as_slice()).unwrap();
    assert_eq!((exit.container_id, exit.id, exit.exit_status), (id.clone(), id, 3));
    assert!(topics(&mut none).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn cri_tells_the_life_of_a_pod_with_its_state() {
    use v1::ContainerEventType::{ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted};
    use v1::ContainerEventType::{ContainerStartedEvent as Started, ContainerStoppedEvent as Stopped};
    let simulator = Simulator::new(Settings::default());
    let mut events = cri_events(&simulator).await;
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sleep", "1000"]).await;
    pod.stop().await;
    pod.remove().await;
    let mut seen = Vec::new();
    while let Ok(event) = timeout(Duration::from_millis(1), events.message()).await {
        let event = event.unwrap().unwrap();
        if event.container_event_type() == Stopped && event.container_id == id {
            assert_eq!(event.containers_statuses[0].exit_code, 137);
            assert_eq!(event.pod_sandbox_status.as_ref().unwrap().id, pod.id);
        }
        seen.push((event.container_id.clone(), event.container_event_type()));
    }
    let expected = [
        (&pod.id, Created),
        (&pod.id, Started),
        (&id, Created),
        (&id, Started),
        (&id, Stopped),
        (&pod.id, Stopped),
        (&id, Deleted),
        (&pod.id, Deleted),
    ];
    assert_eq!(seen, expected.map(|(id, kind)| (id.clone(), kind)));
}

#[tokio::test(start_paused = true)]
async fn an_exit_can_be_told_before_cri_sees_it() {
    let settings = Settings { exit_lag: Duration::from_millis(200), ..Settings::default() };
    let simulator = Simulator::new(settings);
    let mut exits = containerd_events(&simulator, &["topic==/tasks/exit"]).await;
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sh", "-c", "sleep 1; exit 3"]).await;
    exits.message().await.unwrap().unwrap();
    assert_eq!(status(&simulator, &id).await.state(), v1::ContainerState::ContainerRunning);
    assert!(!simulator.containers()[0].alive);
    sleep(Duration::from_millis(201)).await;
    let ended = status(&simulator, &id).await;
    assert_eq!((ended.exit_code, ended.finished_at - ended.started_at), (3, 1_000_000_000));
    // Stopping waits until it is seen.
    let id = pod.run_container("other", &["sleep", "1000"]).await;
    pod.stop_container(&id, 5).await.unwrap();
    assert_eq!(status(&simulator, &id).await.exit_code, 143);
    pod.stop().await;
    assert_eq!(pod.status().await.state(), v1::PodSandboxState::SandboxNotready);
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_short_is_told() {
    let simulator = Simulator::new(Settings::default());
    let mut events = containerd_events(&simulator, &["topic~=^/tasks/(oom|exit)"]).await;
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sleep", "1000"]).await;
    assert!(simulator.oom(&id));
    assert!(!simulator.oom(&id));
    assert_eq!(topics(&mut events).await, ["/tasks/oom", "/tasks/exit"]);
    assert_eq!(status(&simulator, &id).await.reason, "OOMKilled");
}

#[tokio::test(start_paused = true)]
async fn events_are_lost_doubled_late_and_out_of_order_on_command() {
    let simulator = Simulator::new(Settings::default());
    let mut events = containerd_events(&simulator, &["topic~=^/tasks/(start|exit)"]).await;
    let started = || Fault::on_event(HintSource::Containerd, HintKind::Started);
    let pod = Pod::run(&simulator, "web").await;
    topics(&mut events).await;

    simulator.inject(started().is_lost());
    pod.run_container("lost", &["sleep", "1000"]).await;
    assert!(topics(&mut events).await.is_empty());

    simulator.inject(started().is_doubled());
    pod.run_container("doubled", &["sleep", "1000"]).await;
    assert_eq!(topics(&mut events).await.len(), 2);

    simulator.inject(started().is_late(Duration::from_secs(5)));
    pod.run_container("late", &["sleep", "1000"]).await;
    sleep(Duration::from_secs(4)).await;
    assert!(topics(&mut events).await.is_empty());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(topics(&mut events).await, ["/tasks/start"]);

    simulator.inject(started().comes_after_the_next());
    pod.run_container("swapped", &["true"]).await;
    assert_eq!(topics(&mut events).await, ["/tasks/exit", "/tasks/start"]);
    simulator.inject(started().comes_after_the_next());
    pod.run_container("alone", &["sleep", "1000"]).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(topics(&mut events).await, ["/tasks/start"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_runtime_dies() {
    let simulator = Simulator::new(Settings::default());
    let mut containerd = containerd_events(&simulator, &[]).await;
    let mut cri = cri_events(&simulator).await;
    simulator.die();
    assert_eq!(containerd.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(cri.message().await.unwrap_err().code(), Code::Unavailable);
    let again = runtime(&simulator).get_container_events(v1::GetEventsRequest {}).await.map(drop);
    assert_eq!(again.unwrap_err().code(), Code::Unavailable);
    simulator.come_back();
    let mut events = containerd_events(&simulator, &[]).await;
    Pod::run(&simulator, "web").await;
    assert_eq!(topics(&mut events).await, ["/containers/create", "/tasks/start"]);
}
