//! How long after its end a container is told to have died: by the observer, on a private containerd, and beside it by
//! asking CRI without pause.
//!
//! From an exit to its own answer that says so, containerd starts three programs. On a slow machine that alone takes
//! longer than is promised, so that what is asked without pause in the same run is the floor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use crablet_cri::client::Settings;
use crablet_cri::observer::{Event, EventKind, Observer, Source};
use crablet_cri::{Client, Runtime};
use crablet_cri_api::{ContainerState, v1};
use crablet_host::clock::Clock;
use crablet_testkit::{Containerd, Image};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::promises::Figure;

const PODS: usize = 4;
const CONTAINERS_AT_ONCE: usize = 20;
const BATCHES: usize = 20;
/// From an exit that was seen to the next: containerd still tidies up.
const BETWEEN_ENDS: Duration = Duration::from_millis(100);
/// Between two questions of the one who asks without pause.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(1);
/// The milliseconds within which an exit is to be seen. Where containerd itself takes longer to agree, that is the
/// measure.
const PROMISED: f64 = 50.0;
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where a container finds what it waits for.
const GATES: &str = "/gates";

pub(crate) async fn measure() -> anyhow::Result<Vec<Figure>> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    containerd.import(&Image::busybox()?).await?;
    let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
    let (observer, mut events, mut status) = Observer::new(Arc::new(client.clone()));
    let observer = tokio::spawn(observer.run());
    timeout(PATIENCE, status.wait_for(|status| status.source != Source::Relist))
        .await
        .context("no event stream")??;
    let source = status.borrow().source;

    let gates = containerd.directory("gates")?;
    let pods = try_join_all((0..PODS).map(|number| Pod::run(&client, number, containerd.cgroup()))).await?;
    let mut seen = Vec::new();
    let mut floor = Vec::new();
    for batch in 0..BATCHES {
        let containers = start_a_batch(&client, &pods, batch, &gates).await?;
        // Every other exit is the floor's.
        for (number, container) in containers.iter().enumerate() {
            if number % 2 == 0 {
                container.end().await?;
                seen.push(told(&container.id, &mut events).await?);
            } else {
                container.end().await?;
                floor.push(agreed(&client, &container.id).await?);
                told(&container.id, &mut events).await?;
            }
            tokio::time::sleep(BETWEEN_ENDS).await;
        }
        try_join_all(containers.iter().map(|container| client.remove_container(&container.id))).await?;
    }
    observer.abort();
    containerd.stop().await?;

    let [p50, p99] = [50, 99].map(|percent| percentile(&mut seen, percent));
    let [floor_p50, floor_p99] = [50, 99].map(|percent| percentile(&mut floor, percent));
    let beside = format!(
        "p99 {p99:.1} ms and p50 {p50:.1} ms by {source}, {floor_p99:.1} and {floor_p50:.1} by asking"
    );
    Ok(vec![Figure { id: "exit-seen", runs: vec![p99 / floor_p99.max(PROMISED)], beside: Some(beside) }])
}

fn percentile(delays: &mut [f64], percent: usize) -> f64 {
    delays.sort_by(f64::total_cmp);
    delays[(delays.len() * percent).div_ceil(100) - 1]
}

/// Starts containers that each wait for their gate.
async fn start_a_batch(
    client: &Client,
    pods: &[Pod],
    batch: usize,
    gates: &Path,
) -> anyhow::Result<Vec<Container>> {
    let started = try_join_all(pods.iter().enumerate().map(|(pod_number, pod)| async move {
        let mut containers = Vec::new();
        for number in 0..CONTAINERS_AT_ONCE / PODS {
            let name = format!("{batch}-{pod_number}-{number}");
            containers.push(pod.run_container(client, name, gates).await?);
        }
        anyhow::Ok(containers)
    }))
    .await?;
    Ok(started.into_iter().flatten().collect())
}

/// The milliseconds from the end of a container to its event.
async fn told(id: &str, events: &mut mpsc::Receiver<Event>) -> anyhow::Result<f64> {
    loop {
        let event = timeout(PATIENCE, events.recv()).await.context("an exit was not told")?;
        let event = event.context("the observer ended")?;
        if let EventKind::ContainerDied(exit) = event.kind {
            ensure!(*event.id == *id, "another container died");
            return since(exit.and_then(|exit| exit.finished_at));
        }
    }
}

/// The milliseconds from the end of a container to the answer that it has ended, when asked without pause.
async fn agreed(client: &Client, id: &str) -> anyhow::Result<f64> {
    loop {
        let status = client.container_status(id).await?;
        if status.state == ContainerState::Exited {
            return since(status.finished_at);
        }
        tokio::time::sleep(BETWEEN_QUESTIONS).await;
    }
}

fn since(finished_at: Option<Timestamp>) -> anyhow::Result<f64> {
    let finished_at = finished_at.context("an exit without a time")?;
    Ok((Clock::system().now().as_nanosecond() - finished_at.as_nanosecond()) as f64 / 1e6)
}

/// A container that reads from a pipe until nobody holds it open.
struct Container {
    id: String,
    gate: PathBuf,
}

impl Container {
    async fn end(&self) -> anyhow::Result<()> {
        let mut options = tokio::fs::OpenOptions::new();
        timeout(PATIENCE, options.write(true).open(&self.gate))
            .await
            .context("a container does not read from its pipe")??;
        Ok(())
    }
}

struct Pod {
    config: v1::PodSandboxConfig,
    id: String,
}

impl Pod {
    /// Runs a pod in the host's network, which takes the least.
    async fn run(client: &Client, number: usize, cgroup_parent: String) -> anyhow::Result<Pod> {
        let namespace_options =
            v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
        let security_context = v1::LinuxSandboxSecurityContext {
            namespace_options: Some(namespace_options),
            ..Default::default()
        };
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{number}"),
                namespace: "default".to_owned(),
                uid: format!("uid-{number}"),
                attempt: 0,
            }),
            labels: labels(number),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent,
                security_context: Some(security_context),
                ..Default::default()
            }),
            ..Default::default()
        };
        let id = client.run_sandbox(&config, "").await?;
        Ok(Pod { config, id })
    }

    /// Runs a container that waits for its gate.
    async fn run_container(&self, client: &Client, name: String, gates: &Path) -> anyhow::Result<Container> {
        let gate = gates.join(&name);
        mkfifoat(CWD, &gate, Mode::from_raw_mode(0o600))?;
        let mount = v1::Mount {
            container_path: GATES.to_owned(),
            host_path: gates.display().to_string(),
            ..Default::default()
        };
        let config = v1::ContainerConfig {
            command: vec!["/bin/cat".to_owned(), format!("{GATES}/{name}")],
            metadata: Some(v1::ContainerMetadata { name, attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            labels: self.config.labels.clone(),
            mounts: vec![mount],
            ..Default::default()
        };
        let id = client.create_container(&self.id, &config, &self.config).await?;
        client.start_container(&id).await?;
        Ok(Container { id, gate })
    }
}

fn labels(pod: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), format!("uid-{pod}"))])
}
