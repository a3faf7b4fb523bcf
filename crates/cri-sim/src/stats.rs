//! What containers and sandboxes use.

use crablet_cri_api::v1;
use tokio::time::Instant;
use tonic::Status;

use super::container::Container;
use super::sandbox::has_network;
use super::world::World;

/// What a container has used of the CPU by the time it is up, in nanoseconds.
const STARTING: u64 = 30_000_000;

/// What a sandbox's own process holds, in bytes.
const SANDBOX_MEMORY: u64 = 200 << 10;

/// The most that a container without a limit is said to hold, in bytes.
const MOST_MEMORY: u64 = 8 << 30;

impl World {
    pub(crate) fn container_stats(
        &mut self,
        asked: &str,
        now: Instant,
    ) -> Result<v1::ContainerStatsResponse, Status> {
        let id = self.find_container(asked).map_err(|missing| missing.status("failed to find container"))?;
        if !has_task(self.container(&id)?) {
            return Err(Status::unknown("unexpected metrics response: []"));
        }
        Ok(v1::ContainerStatsResponse { stats: self.stats_of_container(&id, now) })
    }

    /// Those that do not run are listed without figures, as containerd does.
    pub(crate) fn list_container_stats(
        &mut self,
        filter: Option<v1::ContainerStatsFilter>,
        now: Instant,
    ) -> Vec<v1::ContainerStats> {
        let filter = filter.unwrap_or_default();
        let matching =
            self.select_containers(&filter.id, &filter.pod_sandbox_id).into_iter().filter(|container| {
                filter
                    .label_selector
                    .iter()
                    .all(|(key, value)| container.config.labels.get(key) == Some(value))
            });
        let ids: Vec<String> = matching.map(|container| container.id.clone()).collect();
        ids.iter().filter_map(|id| self.stats_of_container(id, now)).collect()
    }

    fn stats_of_container(&mut self, id: &str, now: Instant) -> Option<v1::ContainerStats> {
        let timestamp = self.clock.nanoseconds(now);
        let container = self.containers.get_mut(id)?;
        let usage = has_task(container).then(|| cpu_of(container, now));
        let cpu = usage.map(|usage| cpu_usage(timestamp, usage, &mut container.last_usage));
        let memory = usage.map(|_| memory_usage(timestamp, memory_of(container), container.memory_limit()));
        Some(v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: container.id.clone(),
                metadata: container.config.metadata.clone(),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            }),
            cpu,
            memory,
            writable_layer: Some(v1::FilesystemUsage {
                timestamp: 0,
                fs_id: Some(v1::FilesystemIdentifier { mountpoint: self.settings.file_system.clone() }),
                used_bytes: Some(v1::UInt64Value { value: 0 }),
                inodes_used: Some(v1::UInt64Value { value: 0 }),
            }),
            swap: None,
            io: None,
        })
    }

    pub(crate) fn sandbox_stats(
        &mut self,
        asked: &str,
        now: Instant,
    ) -> Result<v1::PodSandboxStatsResponse, Status> {
        let id = self.find_sandbox(asked).map_err(|missing| {
            missing.status(format!("an error occurred when trying to find sandbox {asked}"))
        })?;
        let stats = self.stats_of_sandbox(&id, now).map_err(|problem| match problem {
            NoStats::NoCgroup(text) => {
                Status::unknown(format!("failed getting metrics for sandbox {asked}: {text}"))
            }
            NoStats::NotReady(text) => {
                Status::unknown(format!("failed to decode pod sandbox metrics {asked}: {text}"))
            }
        })?;
        Ok(v1::PodSandboxStatsResponse { stats: Some(stats) })
    }

    pub(crate) fn list_sandbox_stats(
        &mut self,
        filter: Option<v1::PodSandboxStatsFilter>,
        now: Instant,
    ) -> Result<Vec<v1::PodSandboxStats>, Status> {
        // With a filter containerd leaves out what is not ready; without one it fails on it.
        let (filter, all) = (filter.clone().unwrap_or_default(), filter.is_none());
        let wanted = match filter.id.as_str() {
            "" => None,
            asked => Some(self.find_sandbox(asked).unwrap_or_default()),
        };
        let matching = self.sandboxes.values().filter(|sandbox| {
            wanted.as_ref().is_none_or(|id| sandbox.id == *id)
                && filter
                    .label_selector
                    .iter()
                    .all(|(key, value)| sandbox.config.labels.get(key) == Some(value))
                && (all || sandbox.ready)
        });
        let ids: Vec<String> = matching.map(|sandbox| sandbox.id.clone()).collect();
        ids.iter()
            .map(|id| {
                self.stats_of_sandbox(id, now).map_err(|problem| match problem {
                    NoStats::NoCgroup(text) => {
                        Status::unknown(format!("failed to obtain metrics for sandbox {id:?}: {text}"))
                    }
                    NoStats::NotReady(text) => Status::unknown(format!(
                        "failed to decode sandbox container metrics for sandbox {id:?}: {text}"
                    )),
                })
            })
            .collect()
    }

    fn stats_of_sandbox(&mut self, id: &str, now: Instant) -> Result<v1::PodSandboxStats, NoStats> {
        let timestamp = self.clock.nanoseconds(now);
        let gone = || NoStats::NotReady("not found".to_owned());
        let config = self.sandboxes.get(id).ok_or_else(gone)?.config.clone();
        if config.linux.as_ref().is_none_or(|linux| linux.cgroup_parent.is_empty()) {
            return Err(NoStats::NoCgroup(format!(
                "failed to get cgroup metrics for sandbox {id} because cgroupPath is empty"
            )));
        }
        let members = self.members.get(id).cloned().unwrap_or_default();
        let running: Vec<&Container> = members
            .iter()
            .filter_map(|id| self.containers.get(id))
            .filter(|container| has_task(container))
            .collect();
        let processes = running.len() as u64;
        let memory = SANDBOX_MEMORY + running.iter().map(|container| memory_of(container)).sum::<u64>();
        let usage = STARTING + running.iter().map(|container| cpu_of(container, now)).sum::<u64>();
        let containers = members.iter().filter_map(|id| self.stats_of_container(id, now)).collect();
        let sandbox = self.sandboxes.get_mut(id).ok_or_else(gone)?;
        if !sandbox.ready {
            return Err(NoStats::NotReady(format!(
                "failed to get pod sandbox stats since sandbox container {id:?} is not in ready state"
            )));
        }
        let value = |value: u64| Some(v1::UInt64Value { value });
        let seconds = now.saturating_duration_since(self.clock.origin()).as_secs();
        let network = has_network(&config).then(|| v1::NetworkUsage {
            timestamp: 0,
            default_interface: Some(v1::NetworkInterfaceUsage {
                name: "eth0".to_owned(),
                rx_bytes: value(1000 + seconds),
                rx_errors: value(0),
                tx_bytes: value(500 + seconds),
                tx_errors: value(0),
            }),
            interfaces: Vec::new(),
        });
        Ok(v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: id.to_owned(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu_usage(timestamp, usage, &mut sandbox.last_usage)),
                memory: Some(memory_usage(timestamp, memory, None)),
                network,
                process: Some(v1::ProcessUsage { timestamp, process_count: value(processes) }),
                containers,
                io: None,
            }),
            windows: None,
        })
    }

    pub(crate) fn sandbox_metrics(&self, now: Instant) -> Vec<v1::PodSandboxMetrics> {
        let timestamp = self.clock.nanoseconds(now);
        let ready = self.sandboxes.values().filter(|sandbox| sandbox.ready);
        ready
            .map(|sandbox| {
                let members = self.members.get(&sandbox.id).into_iter().flatten();
                let containers = members.filter_map(|id| self.containers.get(id)).filter(|one| has_task(one));
                let container_metrics = containers.map(|container| v1::ContainerMetrics {
                    container_id: container.id.clone(),
                    metrics: vec![v1::Metric {
                        name: CPU_METRIC.to_owned(),
                        timestamp,
                        metric_type: v1::MetricType::Counter.into(),
                        label_values: vec![container.id.clone()],
                        value: Some(v1::UInt64Value { value: cpu_of(container, now) / 1_000_000_000 }),
                    }],
                });
                v1::PodSandboxMetrics {
                    pod_sandbox_id: sandbox.id.clone(),
                    metrics: Vec::new(),
                    container_metrics: container_metrics.collect(),
                }
            })
            .collect()
    }
}

const CPU_METRIC: &str = "container_cpu_usage_seconds_total";

pub(crate) fn metric_descriptors() -> Vec<v1::MetricDescriptor> {
    vec![v1::MetricDescriptor {
        name: CPU_METRIC.to_owned(),
        help: "Cumulative cpu time consumed in seconds.".to_owned(),
        label_keys: vec!["id".to_owned()],
    }]
}

/// Why a sandbox has no figures.
enum NoStats {
    NoCgroup(String),
    NotReady(String),
}

fn has_task(container: &Container) -> bool {
    container.is_running() && container.process.as_ref().is_some_and(|process| !process.ended)
}

fn memory_of(container: &Container) -> u64 {
    container.process.as_ref().map_or(0, |process| process.machine.memory.min(MOST_MEMORY))
}

/// The time that a container has had of the CPU, in nanoseconds.
fn cpu_of(container: &Container, now: Instant) -> u64 {
    let Some(process) = &container.process else { return 0 };
    let program = container.program.as_ref().or(container.image.program.as_ref());
    let millicores = program.map_or(0, |program| u64::from(program.cpu));
    let elapsed =
        u64::try_from(now.saturating_duration_since(process.started).as_nanos()).unwrap_or(u64::MAX);
    STARTING.saturating_add(elapsed.saturating_mul(millicores) / 1000)
}

/// The rate is that since the last time it was asked for, as containerd has it.
fn cpu_usage(timestamp: i64, usage: u64, last: &mut Option<(i64, u64)>) -> v1::CpuUsage {
    let rate = match *last {
        Some((then, before)) if timestamp > then => {
            let nanoseconds = (timestamp - then) as f64;
            (usage.saturating_sub(before) as f64 / nanoseconds * 1e9) as u64
        }
        Some(_) | None => 0,
    };
    if last.is_none_or(|(then, _)| timestamp > then) {
        *last = Some((timestamp, usage));
    }
    v1::CpuUsage {
        timestamp,
        usage_core_nano_seconds: Some(v1::UInt64Value { value: usage }),
        usage_nano_cores: Some(v1::UInt64Value { value: rate }),
        psi: None,
    }
}

fn memory_usage(timestamp: i64, bytes: u64, limit: Option<u64>) -> v1::MemoryUsage {
    let value = |value: u64| Some(v1::UInt64Value { value });
    v1::MemoryUsage {
        timestamp,
        working_set_bytes: value(bytes),
        available_bytes: value(limit.map_or(0, |limit| limit.saturating_sub(bytes))),
        usage_bytes: value(bytes),
        rss_bytes: value(bytes / 2),
        page_faults: value(2000),
        major_page_faults: value(0),
        psi: None,
    }
}
