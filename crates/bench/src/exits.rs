//! How long after its end a container is told to have died: by the observer, on a private containerd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use crablet_cri::client::Settings;
use crablet_cri::observer::{Event, EventKind, Observer, Source};
use crablet_cri::{Client, Runtime};
use crablet_cri_api::v1;
use crablet_host::clock::Clock;
use crablet_testkit::{Containerd, Image};
use futures_util::future::try_join_all;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::promises::Figure;

const PODS: usize = 4;
const CONTAINERS_AT_ONCE: usize = 20;
const BATCHES: usize = 10;
/// When the first of a batch ends: all have started by then.
const FIRST_END: Duration = Duration::from_secs(6);
/// From one end to the next, give or take what a start takes: containerd itself takes some 30 ms of a core for one, and
/// what is measured is how long an end takes to be told, not how many can be told at once.
const BETWEEN_ENDS: Duration = Duration::from_millis(250);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);

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

    let mut delays = Vec::new();
    let pods = try_join_all((0..PODS).map(|number| Pod::run(&client, number, containerd.cgroup()))).await?;
    for batch in 0..BATCHES {
        delays.extend(exits_of_a_batch(&client, &pods, batch, &mut events).await?);
    }
    observer.abort();
    containerd.stop().await?;

    delays.sort_by(f64::total_cmp);
    let percentile = |percent: usize| delays[(delays.len() * percent).div_ceil(100) - 1];
    let beside = format!("p50: {:.2}, by {source}", percentile(50));
    Ok(vec![Figure { id: "exit-seen", runs: vec![percentile(99)], beside: Some(beside) }])
}

/// Starts containers that end one after the other once all have started, and gives the milliseconds from the end of
/// each to its event.
async fn exits_of_a_batch(
    client: &Client,
    pods: &[Pod],
    batch: usize,
    events: &mut mpsc::Receiver<Event>,
) -> anyhow::Result<Vec<f64>> {
    let began = Instant::now();
    let started = try_join_all(pods.iter().enumerate().map(|(pod_number, pod)| async move {
        let mut ids = Vec::new();
        for number in 0..CONTAINERS_AT_ONCE / PODS {
            let ends = FIRST_END + BETWEEN_ENDS * (number * PODS + pod_number) as u32;
            let lives = ends.saturating_sub(began.elapsed());
            ids.push(pod.run_container(client, &format!("{batch}-{number}"), lives).await?);
        }
        anyhow::Ok(ids)
    }))
    .await?;
    let ids: BTreeSet<String> = started.into_iter().flatten().collect();
    let clock = Clock::system();
    let mut delays = Vec::new();
    while delays.len() < ids.len() {
        let event = timeout(PATIENCE, events.recv()).await.context("an exit was not told")?;
        let now = clock.now();
        let event = event.context("the observer ended")?;
        if let EventKind::ContainerDied(exit) = event.kind {
            ensure!(ids.contains(&*event.id), "a container of an earlier batch died twice");
            let finished_at = exit.and_then(|exit| exit.finished_at).context("an exit without a time")?;
            delays.push((now.as_nanosecond() - finished_at.as_nanosecond()) as f64 / 1e6);
        }
    }
    try_join_all(ids.iter().map(|id| client.remove_container(id))).await?;
    Ok(delays)
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

    /// Runs a container that ends by itself after some time.
    async fn run_container(&self, client: &Client, name: &str, lives: Duration) -> anyhow::Result<String> {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            command: vec!["/bin/usleep".to_owned(), lives.as_micros().to_string()],
            labels: self.config.labels.clone(),
            ..Default::default()
        };
        let id = client.create_container(&self.id, &config, &self.config).await?;
        client.start_container(&id).await?;
        Ok(id)
    }
}

fn labels(pod: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), format!("uid-{pod}"))])
}
