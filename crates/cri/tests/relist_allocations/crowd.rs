//! A simulated runtime with 10,000 containers, and what its relists cost.

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use crablet_cri::observer::{Found, Table};
use crablet_cri::{Client, Runtime as _, client};
use crablet_cri_api::{Container, ContainerFilter, Sandbox, SandboxFilter, v1};
use crablet_cri_sim::{Settings, Simulator};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

pub const PODS: usize = 2500;
pub const CONTAINERS: usize = 10_000;

/// A runtime with many containers, and what is known of them. A single thread must drive it, because everybody's
/// allocations are counted.
pub struct Crowd {
    simulator: Simulator,
    client: Client,
    table: Table,
    /// The containers that run.
    running: Vec<String>,
}

/// What the diff of a relist found, and what that took.
pub struct Diff {
    pub found: Found,
    #[allow(dead_code, reason = "a test does not ask how long anything takes")]
    pub milliseconds: f64,
    pub allocations: usize,
}

impl Crowd {
    /// Has all of them run, and known.
    pub async fn gather() -> Crowd {
        let simulator = Simulator::new(Settings::default());
        let client = Client::in_process("simulator", simulator.services(), client::Settings::default());
        let mut running = Vec::new();
        for pod in 0..PODS {
            run_pod(&client, pod, &mut running).await;
        }
        let mut crowd = Crowd { simulator, client, table: Table::default(), running };
        let first = crowd.relist().await;
        assert_eq!(first.found.events.len(), PODS + CONTAINERS);
        crowd
    }

    /// Asks for both lists, and compares them with what is known.
    pub async fn relist(&mut self) -> Diff {
        let began = self.table.begin();
        let (sandboxes, containers) = self.lists().await;
        let mut found = Found::default();
        let region = Region::new(ALLOCATOR);
        let milliseconds = timed(|| {
            self.table.relist(began, black_box(&sandboxes), black_box(&containers), &mut found);
            self.table.end(began);
        });
        let change = region.change();
        Diff { found, milliseconds, allocations: change.allocations + change.reallocations }
    }

    /// Has so many containers exit.
    pub fn end(&mut self, count: usize) {
        for id in self.running.drain(..count) {
            assert!(self.simulator.exit_container(&id, 1));
        }
    }

    /// Reads how containers ended, as is done after a relist that says that they did.
    pub async fn read(&mut self, exited: &[Arc<str>]) {
        for id in exited {
            let began = self.table.begin();
            let status = self.client.container_status(id).await.unwrap();
            let mut found = Found::default();
            self.table.read_container(began, &status, false, &mut found);
            self.table.end(began);
            assert_eq!(found.events.len(), 1);
        }
    }

    async fn lists(&self) -> (Vec<Sandbox>, Vec<Container>) {
        let sandboxes = self.client.list_sandboxes(SandboxFilter::default()).await.unwrap();
        let containers = self.client.list_containers(ContainerFilter::default()).await.unwrap();
        assert_eq!((sandboxes.len(), containers.len()), (PODS, CONTAINERS));
        (sandboxes, containers)
    }
}

/// Runs a pod with the labels that a kubelet gives it, and its share of containers.
async fn run_pod(client: &Client, number: usize, ids: &mut Vec<String>) {
    let (name, uid) = (format!("pod-{number}"), format!("5b1d7f9e-0000-4000-8000-{number:012}"));
    let labels = BTreeMap::from([
        ("io.kubernetes.pod.name".to_owned(), name.clone()),
        ("io.kubernetes.pod.namespace".to_owned(), "default".to_owned()),
        ("io.kubernetes.pod.uid".to_owned(), uid.clone()),
    ]);
    let metadata = v1::PodSandboxMetadata { name, uid, namespace: "default".to_owned(), attempt: 0 };
    let pod = v1::PodSandboxConfig { metadata: Some(metadata), labels: labels.clone(), ..Default::default() };
    let sandbox_id = client.run_sandbox(&pod, "").await.unwrap();
    for number in 0..CONTAINERS / PODS {
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: format!("c{number}"), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            command: ["sleep", "1000000"].map(str::to_owned).into(),
            labels: labels.clone(),
            ..Default::default()
        };
        let id = client.create_container(&sandbox_id, &container, &pod).await.unwrap();
        client.start_container(&id).await.unwrap();
        ids.push(id);
    }
}

/// Milliseconds that something takes.
#[allow(clippy::disallowed_types, reason = "real time is what is measured")]
fn timed(act: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    act();
    start.elapsed().as_secs_f64() * 1e3
}
