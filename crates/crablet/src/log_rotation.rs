//! The rotation of containers' logs: whose, and how.

use std::path::PathBuf;
use std::sync::Arc;

use crablet_agent::statuses::Statuses;
use crablet_api::core::{ContainerState, ContainerStatus, Pod};
use crablet_config::KubeletConfiguration;
use crablet_core::translate::{container_log_path, pod_log_directory};
use crablet_cri::Client;
use crablet_host::clock::Clock;
use crablet_logs::{LogRotation, RotationPolicy, RunningContainer};

/// Rotates the logs of all containers that run, unless a negative size turns it off.
pub(crate) fn log_rotation(
    configuration: &KubeletConfiguration,
    client: Client,
    clock: Clock,
    statuses: Statuses,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let max_size = u64::try_from(configuration.container_log_max_size.value.value()).ok()?;
    let count = |number: i32| usize::try_from(number).unwrap_or_default();
    let policy = RotationPolicy {
        max_size,
        max_files: count(configuration.container_log_max_files),
        max_workers: count(configuration.container_log_max_workers),
        interval: configuration.container_log_monitor_interval.to_std(),
    };
    let rotation = LogRotation { runtime: Arc::new(client), clock, policy };
    let pod_logs = configuration.pod_logs_dir.to_string();
    Some(rotation.run(move || running(&statuses, &pod_logs)))
}

/// The containers that run, and where their logs are as long as nobody had them elsewhere. The runtime is not asked.
fn running(statuses: &Statuses, pod_logs: &str) -> Vec<RunningContainer> {
    let mut running = Vec::new();
    for reported in statuses.list() {
        let status = &reported.status;
        let all = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        running.extend(
            all.into_iter().flatten().filter_map(|status| container(&reported.pod, status, pod_logs)),
        );
    }
    running
}

fn container(pod: &Pod, status: &ContainerStatus, pod_logs: &str) -> Option<RunningContainer> {
    match status.state.one() {
        Some(ContainerState::Running(_)) => {}
        Some(ContainerState::Waiting(_) | ContainerState::Terminated(_)) | None => return None,
    }
    let (_, id) = status.container_id.split_once("://")?;
    let metadata = &pod.metadata;
    let directory = pod_log_directory(pod_logs, &metadata.namespace, &metadata.name, &metadata.uid);
    let log = container_log_path(&status.name, u32::try_from(status.restart_count).ok()?);
    Some(RunningContainer { id: id.to_owned(), log_path: PathBuf::from(directory).join(log) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_agent::statuses::Reported;
    use crablet_api::document::Limits;

    #[test]
    fn containers_that_run_are_looked_at_where_their_logs_are() {
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"u"},
            "status":{"initContainerStatuses":[
                    {"name":"side","containerID":"containerd://1","restartCount":0,"state":{"running":{}}},
                    {"name":"init","containerID":"containerd://0","state":{"terminated":{}}}],
                "containerStatuses":[
                    {"name":"main","containerID":"containerd://2","restartCount":3,"state":{"running":{}}},
                    {"name":"new","state":{"waiting":{}}}]}}"#;
        let pod: Pod = crablet_api::from_json(json.as_bytes(), Limits::API).unwrap();
        let statuses = Statuses::new();
        let status = Arc::new(pod.status.clone());
        statuses.show(Reported::new(Arc::new(pod), status));
        let found: Vec<String> = running(&statuses, "/var/log/pods")
            .iter()
            .map(|container| format!("{} {}", container.id, container.log_path.display()))
            .collect();
        let directory = "/var/log/pods/default_web_u";
        assert_eq!(found, [format!("2 {directory}/main/3.log"), format!("1 {directory}/side/0.log")]);
    }
}
