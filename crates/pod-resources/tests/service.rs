//! The service on a real socket, asked by a gRPC client.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_agent::statuses::{Reported, Statuses};
use crablet_api::core::{Container, ContainerRestartPolicy, Pod, PodPhase, PodStatus};
use crablet_metrics::Registry;
use crablet_pod_resources::PodResources;
use crablet_pod_resources::proto::v1::pod_resources_lister_client::PodResourcesListerClient;
use crablet_pod_resources::proto::v1alpha1::pod_resources_lister_client::PodResourcesListerClient as V1Alpha1Client;
use crablet_pod_resources::proto::{v1, v1alpha1};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

fn container(name: &str) -> Container {
    Container { name: name.into(), ..Container::default() }
}

fn pod(name: &str, phase: PodPhase) -> Reported {
    let mut pod = Pod::default();
    pod.metadata.namespace = "default".into();
    pod.metadata.name = name.into();
    pod.metadata.uid = name.into();
    let sidecar = Container { restart_policy: Some(ContainerRestartPolicy::Always), ..container("sidecar") };
    pod.spec.init_containers = [container("init"), sidecar].into();
    pod.spec.containers = [container("main")].into();
    let status = PodStatus { phase: Some(phase), ..PodStatus::default() };
    Reported::new(Arc::new(pod), Arc::new(status))
}

struct Running {
    socket: PathBuf,
    registry: Registry,
    stop: CancellationToken,
    done: tokio::task::JoinHandle<()>,
}

fn start(folder: &Path, only_active: bool) -> Running {
    start_with(folder, only_active, [pod("web", PodPhase::Running), pod("over", PodPhase::Succeeded)])
}

fn start_with(folder: &Path, only_active: bool, pods: impl IntoIterator<Item = Reported>) -> Running {
    let statuses = Statuses::new();
    pods.into_iter().for_each(|pod| statuses.show(pod));
    let (registry, stop) = (Registry::new(), CancellationToken::new());
    let socket = folder.join("kubelet.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let serve = PodResources { statuses, only_active }.serve(listener, &registry, stop.clone()).unwrap();
    let done = tokio::spawn(async move { serve.await.unwrap() });
    Running { socket, registry, stop, done }
}

async fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

fn names(pods: &[v1::PodResources]) -> Vec<String> {
    let containers = |pod: &v1::PodResources| {
        pod.containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>().join(",")
    };
    pods.iter().map(|pod| format!("{}/{}: {}", pod.namespace, pod.name, containers(pod))).collect()
}

#[tokio::test]
async fn pods_are_listed_with_the_containers_that_last() {
    let folder = tempfile::tempdir().unwrap();
    for (only_active, expected) in [
        (true, vec!["default/web: sidecar,main"]),
        (false, vec!["default/over: sidecar,main", "default/web: sidecar,main"]),
    ] {
        let folder = folder.path().join(only_active.to_string());
        std::fs::create_dir(&folder).unwrap();
        let running = start(&folder, only_active);
        let mut client = PodResourcesListerClient::new(connect(&running.socket).await);
        let listed = client.list(v1::ListPodResourcesRequest {}).await.unwrap().into_inner();
        assert_eq!(names(&listed.pod_resources), expected);
        running.stop.cancel();
        running.done.await.unwrap();
    }
}

#[tokio::test]
async fn a_pod_is_active_until_it_has_terminated_and_not_by_its_phase_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = Some(crablet_api::meta::Time::from_unix_seconds(1_794_763_469));
    let mut ending = pod("ending", PodPhase::Failed);
    ending.ends = at;
    let mut deleted = pod("deleted", PodPhase::Succeeded);
    Arc::make_mut(&mut deleted.pod).metadata.deletion_timestamp = at;
    let mut terminated = pod("terminated", PodPhase::Running);
    terminated.terminated = true;
    let mut ended = pod("ended", PodPhase::Failed);
    (ended.ends, ended.terminated) = (at, true);
    let pods = [ending, deleted, terminated, ended, pod("over", PodPhase::Failed)];
    let running = start_with(folder.path(), true, pods);
    let mut client = PodResourcesListerClient::new(connect(&running.socket).await);
    let listed = client.list(v1::ListPodResourcesRequest {}).await.unwrap().into_inner();
    let listed: Vec<&str> = listed.pod_resources.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(listed, ["deleted", "ending"]);
}

#[tokio::test]
async fn of_two_pods_of_a_name_the_one_that_stays_is_told() {
    let of = |uid: &str, container_name: &str| {
        let mut pod = pod("web", PodPhase::Running);
        let inner = Arc::make_mut(&mut pod.pod);
        inner.metadata.uid = uid.into();
        inner.spec.init_containers = [].into();
        inner.spec.containers = [container(container_name)].into();
        pod
    };
    let mut terminated = of("1", "terminated");
    terminated.terminated = true;
    let mut ending = of("2", "ending");
    ending.ends = Some(crablet_api::meta::Time::from_unix_seconds(1_794_763_469));
    let next = of("3", "next");
    for (pods, expected) in [
        (vec![terminated.clone(), ending.clone(), next], "default/web: next"),
        (vec![terminated, ending], "default/web: ending"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let running = start_with(folder.path(), true, pods);
        let mut client = PodResourcesListerClient::new(connect(&running.socket).await);
        let ask = v1::GetPodResourcesRequest { pod_name: "web".into(), pod_namespace: "default".into() };
        let got = client.get(ask).await.unwrap().into_inner().pod_resources.unwrap();
        assert_eq!(names(&[got]), [expected]);
    }
}

#[tokio::test]
async fn one_pod_is_told_and_one_that_is_not_there_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path(), true);
    let mut client = PodResourcesListerClient::new(connect(&running.socket).await);
    let ask = |name: &str| v1::GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "default".to_owned(),
    };
    let got = client.get(ask("web")).await.unwrap().into_inner().pod_resources.unwrap();
    assert_eq!(names(&[got]), ["default/web: sidecar,main"]);
    let refused = client.get(ask("none")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unknown, "pod none in namespace default not found")
    );
    let all =
        client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(all, v1::AllocatableResourcesResponse::default());
    let mut old = V1Alpha1Client::new(connect(&running.socket).await);
    let listed = old.list(v1alpha1::ListPodResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.pod_resources.len(), 2);
    assert_eq!(listed.pod_resources[1].containers[0].name, "main");
    let text = running.registry.render();
    for line in [
        "kubelet_pod_resources_endpoint_requests_total{server_api_version=\"v1\"} 3",
        "kubelet_pod_resources_endpoint_requests_total{server_api_version=\"v1alpha1\"} 1",
        "kubelet_pod_resources_endpoint_requests_get{server_api_version=\"v1\"} 2",
        "kubelet_pod_resources_endpoint_errors_get{server_api_version=\"v1\"} 1",
        "kubelet_pod_resources_endpoint_requests_get_allocatable{server_api_version=\"v1\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn who_asks_too_often_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path(), true);
    let mut client = PodResourcesListerClient::new(connect(&running.socket).await);
    let mut refused = 0;
    for _ in 0..200 {
        match client.list(v1::ListPodResourcesRequest {}).await {
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                assert_eq!(status.message(), "rejected by rate limit");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}
