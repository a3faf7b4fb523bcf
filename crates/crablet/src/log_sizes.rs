//! What the logs of containers take on disk: counted when `/metrics` is asked for, which is not done by tasks.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crablet_agent::statuses::Statuses;
use crablet_api::core::ContainerState;
use crablet_core::translate::container_log_directory;
use crablet_metrics::{Kind, Registry, Samples};

const NAME: &str = "kubelet_container_log_filesystem_used_bytes";
const HELP: &str = "[ALPHA] Bytes used by the container's logs on the filesystem.";
/// The most files of a container that are counted.
const MOST_FILES: usize = 10_000;
/// What disks are counted in.
const BLOCK: u64 = 512;

/// Has it told what the logs of containers that run take.
pub(crate) fn tell_log_sizes(metrics: &Registry, pod_logs: String, statuses: Statuses) {
    metrics.collector(move |samples| add_all(samples, &pod_logs, &statuses));
}

fn add_all(samples: &mut Samples, pod_logs: &str, statuses: &Statuses) {
    for reported in statuses.list() {
        let (pod, status) = (&reported.pod.metadata, &reported.status);
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
        for container in containers.chain(&status.ephemeral_container_statuses) {
            match container.state.one() {
                Some(ContainerState::Running(_)) => {}
                Some(ContainerState::Waiting(_) | ContainerState::Terminated(_)) | None => continue,
            }
            let directory =
                container_log_directory(pod_logs, &pod.namespace, &pod.name, &pod.uid, &container.name);
            if let Some(bytes) = used_in(Path::new(&directory)) {
                let labels = [
                    ("container", &*container.name),
                    ("namespace", &*pod.namespace),
                    ("pod", &*pod.name),
                    ("uid", &*pod.uid),
                ];
                samples.add(NAME, HELP, Kind::Gauge, &labels, bytes as f64);
            }
        }
    }
}

/// What the files of a directory take; nothing where there are none.
fn used_in(directory: &Path) -> Option<u64> {
    let files = std::fs::read_dir(directory).ok()?.take(MOST_FILES).flatten();
    // One that was rotated away meanwhile takes nothing.
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.blocks() * BLOCK));
    sizes.reduce(|all, one| all + one)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crablet_agent::statuses::Reported;
    use crablet_api::core::Pod;
    use crablet_api::document::Limits;

    use super::*;

    #[test]
    fn the_logs_of_containers_that_run_are_counted_with_those_that_were_rotated() {
        let json = r#"{"metadata":{"name":"web","namespace":"default","uid":"u"},"status":{"containerStatuses":[
            {"name":"main","state":{"running":{}}},
            {"name":"quiet","state":{"running":{}}},
            {"name":"over","state":{"terminated":{}}}]}}"#;
        let pod: Pod = crablet_api::from_json(json.as_bytes(), Limits::API).unwrap();
        let statuses = Statuses::new();
        let status = Arc::new(pod.status.clone());
        statuses.show(Reported::new(Arc::new(pod), status));
        let logs = tempfile::tempdir().unwrap();
        let write = |file: &str| {
            let path = logs.path().join("default_web_u").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
            std::fs::metadata(&path).unwrap().blocks() * BLOCK
        };
        let registry = Registry::new();
        tell_log_sizes(&registry, logs.path().to_str().unwrap().to_owned(), statuses);
        assert!(!registry.render().contains(NAME));
        write("over/0.log");
        let used = write("main/0.log");
        let line = |used: u64| {
            format!("{NAME}{{container=\"main\",namespace=\"default\",pod=\"web\",uid=\"u\"}} {used}")
        };
        let lines = || {
            let text = registry.render();
            text.lines().filter(|line| line.starts_with(NAME)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(), [line(used)]);
        let used = used + write("main/0.log.20261117-000000.gz");
        assert_eq!(lines(), [line(used)]);
    }
}
