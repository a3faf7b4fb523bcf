//! Many containers.

use std::time::Duration;

use crablet_cri_api::v1;
use crablet_cri_sim::{Settings, Simulator};
use tokio::time::sleep;

use crate::support::{Pod, runtime};

#[tokio::test(start_paused = true)]
async fn ten_thousand_containers_are_made_listed_and_removed_without_pain() {
    let simulator = Simulator::new(Settings::default());
    let mut pods = Vec::new();
    for number in 0..1000 {
        let pod = Pod::run(&simulator, &format!("pod-{number}")).await;
        for number in 0..10 {
            pod.run_container(&format!("c{number}"), &["sh", "-c", "sleep 60; exit 1"]).await;
        }
        pods.push(pod);
    }
    assert_eq!(simulator.container_count(), 10_000);
    let mut runtime = runtime(&simulator);
    for pod in &pods {
        let filter = v1::ContainerFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        assert_eq!(runtime.list_containers(request).await.unwrap().into_inner().containers.len(), 10);
    }
    sleep(Duration::from_secs(61)).await;
    let mut streamed =
        runtime.stream_containers(v1::StreamContainersRequest::default()).await.unwrap().into_inner();
    let mut exited = 0;
    while let Some(piece) = streamed.message().await.unwrap() {
        let is_exited = |one: &&v1::Container| one.state() == v1::ContainerState::ContainerExited;
        exited += piece.containers.iter().filter(is_exited).count();
    }
    assert_eq!(exited, 10_000);
    for pod in pods {
        pod.remove().await;
    }
    assert_eq!(simulator.container_count(), 0);
}
