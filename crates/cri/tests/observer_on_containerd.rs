//! The observer on a real containerd, by the best stream that it offers.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crablet_cri::client::Settings;
use crablet_cri::observer::{Event, EventKind, Observer, Source, Status};
use crablet_cri::{Client, HintSource, Runtime};
use crablet_cri_api::v1;
use crablet_testkit::{Containerd, Image, eventually};
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Less than the slow relist takes to come: what arrives within it came by the stream.
const SOON: Duration = Duration::from_secs(20);

/// A containerd, an observer of it, and a pod in it.
struct Node {
    containerd: Containerd,
    client: Client,
    events: mpsc::Receiver<Event>,
    status: watch::Receiver<Status>,
    best: Source,
    /// Containers see it as `/exits`.
    exits: PathBuf,
    sandbox: v1::PodSandboxConfig,
    sandbox_id: String,
}

impl Node {
    async fn start() -> Result<Node> {
        let containerd = Containerd::start().await?;
        containerd.import(&Image::pause()?).await?;
        containerd.import(&Image::busybox()?).await?;
        let exits = containerd.directory("exits")?;
        let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
        let (observer, events, mut status) = Observer::new(Arc::new(client.clone()));
        tokio::spawn(observer.run());
        let best = best_source(&client).await;
        timeout(SOON, status.wait_for(|status| status.source == best))
            .await
            .context("the best source is not taken")??;
        let sandbox = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "pod".to_owned(),
                namespace: "default".to_owned(),
                uid: "uid".to_owned(),
                attempt: 0,
            }),
            labels: labels(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: containerd.cgroup(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: v1::NamespaceMode::Node.into(),
                        ..v1::NamespaceOption::default()
                    }),
                    ..v1::LinuxSandboxSecurityContext::default()
                }),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        };
        let sandbox_id = client.run_sandbox(&sandbox, "").await?;
        let mut node = Node { containerd, client, events, status, best, exits, sandbox, sandbox_id };
        let started = node.next().await?;
        assert_eq!((&*started.id, started.kind), (node.sandbox_id.as_str(), EventKind::SandboxStarted));
        Ok(node)
    }

    /// Starts a container that ends with this code once [`Node::let_end`] says so, and waits until that is told.
    async fn run(&mut self, name: &str, code: i32) -> Result<String> {
        let script = format!(
            "while [ ! -e /exits/{name} ]; do usleep 10000; done; touch /exits/{name}.ended; exit {code}"
        );
        self.run_script(name, &script, None).await
    }

    async fn run_script(&mut self, name: &str, script: &str, memory: Option<i64>) -> Result<String> {
        let id = self.create(name, script, memory).await?;
        self.client.start_container(&id).await?;
        let event = self.next().await?;
        assert_eq!((&*event.id, event.kind), (id.as_str(), EventKind::ContainerStarted));
        Ok(id)
    }

    async fn create(&self, name: &str, script: &str, memory: Option<i64>) -> Result<String> {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            labels: labels(),
            mounts: vec![v1::Mount {
                container_path: "/exits".to_owned(),
                host_path: self.exits.display().to_string(),
                ..v1::Mount::default()
            }],
            linux: memory.map(|bytes| v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    memory_limit_in_bytes: bytes,
                    ..v1::LinuxContainerResources::default()
                }),
                ..v1::LinuxContainerConfig::default()
            }),
            ..v1::ContainerConfig::default()
        };
        Ok(self.client.create_container(&self.sandbox_id, &config, &self.sandbox).await?)
    }

    fn let_end(&self, name: &str) -> Result<()> {
        Ok(fs::write(self.exits.join(name), "")?)
    }

    async fn ended(&self, name: &str) -> Result<()> {
        let path = self.exits.join(format!("{name}.ended"));
        eventually("the container ends", SOON, || async { fs::metadata(&path).map(drop) }).await
    }

    async fn next(&mut self) -> Result<Event> {
        let event = timeout(SOON, self.events.recv()).await.context("no event came")?;
        event.context("the observer ended")
    }

    /// The exit codes in as many events that say that a container died, by ID.
    async fn exits(&mut self, count: usize) -> Result<BTreeMap<String, i32>> {
        let mut codes = BTreeMap::new();
        while codes.len() < count {
            let event = self.next().await.with_context(|| format!("{codes:?}"))?;
            let EventKind::ContainerDied(Some(exit)) = &event.kind else { bail!("{event:?}") };
            let known = codes.insert(event.id.to_string(), exit.exit_code);
            assert_eq!(known, None, "{event:?} is told twice");
        }
        Ok(codes)
    }

    async fn until_source(&mut self, source: Source) -> Result<()> {
        let waited = timeout(SOON, self.status.wait_for(|status| status.source == source)).await;
        waited.with_context(|| format!("{source} is not taken"))??;
        Ok(())
    }
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), "uid".to_owned())])
}

/// The best that this runtime offers: what it does not have it refuses at once.
async fn best_source(client: &Client) -> Source {
    for source in [HintSource::Cri, HintSource::Containerd] {
        match timeout(Duration::from_secs(1), client.hints(source).next()).await {
            Ok(Some(Err(error))) => assert!(error.is_unsupported(), "{error}"),
            Ok(Some(Ok(_)) | None) | Err(_) => return Source::Stream(source),
        }
    }
    Source::Relist
}

#[tokio::test(flavor = "multi_thread")]
async fn each_exit_is_told_by_the_best_stream_on_containerd() -> Result<()> {
    let mut node = Node::start().await?;
    assert_ne!(node.best, Source::Relist);
    let mut expected = BTreeMap::new();
    for code in 0..8 {
        expected.insert(node.run(&format!("c{code}"), code).await?, code);
    }
    // The end of a command in a container is not the container's.
    let any = expected.keys().next().context("no container")?;
    node.client.exec_sync(any, &["/bin/true".to_owned()], Some(SOON)).await?;
    for code in 0..8 {
        node.let_end(&format!("c{code}"))?;
    }
    assert_eq!(node.exits(8).await?, expected);

    let (first, _) = expected.pop_first().context("no container")?;
    node.client.remove_container(&first).await?;
    let event = node.next().await?;
    assert_eq!((&*event.id, event.kind), (first.as_str(), EventKind::ContainerRemoved));

    node.client.stop_sandbox(&node.sandbox_id).await?;
    assert_eq!(node.next().await?.kind, EventKind::SandboxStopped);
    node.client.remove_sandbox(&node.sandbox_id).await?;
    let mut removed = Vec::new();
    while removed.len() < 8 {
        removed.push(node.next().await?.kind);
    }
    let sandboxes = removed.iter().filter(|kind| **kind == EventKind::SandboxRemoved).count();
    assert_eq!(sandboxes, 1);
    assert!(
        removed.iter().all(|kind| matches!(kind, EventKind::SandboxRemoved | EventKind::ContainerRemoved))
    );
    node.containerd.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_runtime_loses_no_exit_on_containerd() -> Result<()> {
    let mut node = Node::start().await?;
    let before = node.run("before", 1).await?;
    let during = node.run("during", 2).await?;
    let after = node.run("after", 3).await?;
    let lives = node.run("lives", 4).await?;

    node.let_end("before")?;
    node.ended("before").await?;
    node.containerd.kill().await?;
    node.until_source(Source::Relist).await?;
    node.let_end("during")?;
    node.ended("during").await?;
    node.containerd.start_again().await?;
    node.let_end("after")?;

    // Exactly these, each once. Codes are compared with CRI's: containerd 1.7 forgets that of a container which ends
    // while it is down, and answers 255.
    let exits = node.exits(3).await?;
    let mut expected = BTreeMap::new();
    for id in [before, during, after] {
        let code = node.client.container_status(&id).await?.exit_code;
        expected.insert(id, code);
    }
    assert_eq!(exits, expected);
    let best = node.best;
    node.until_source(best).await?;
    // What lives was not declared dead, and the stream that is back tells its end.
    node.let_end("lives")?;
    assert_eq!(node.exits(1).await?, BTreeMap::from([(lives, 4)]));
    node.containerd.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_out_of_memory_is_marked_on_containerd() -> Result<()> {
    let mut node = Node::start().await?;
    let script = "while [ ! -e /exits/hungry ]; do usleep 10000; done; tail /dev/zero; exit $?";
    let id = node.run_script("hungry", script, Some(16 << 20)).await?;
    node.let_end("hungry")?;
    loop {
        let event = node.next().await?;
        assert_eq!(&*event.id, id.as_str());
        match event.kind {
            // The shell lives for a moment longer than its child.
            EventKind::ContainerOutOfMemory => {}
            EventKind::ContainerDied(Some(exit)) => {
                assert!(exit.out_of_memory && exit.exit_code == 137, "{exit:?}");
                break;
            }
            other => bail!("{other}"),
        }
    }
    node.containerd.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_process_the_cri_service_does_not_know_of_is_removed_on_containerd() -> Result<()> {
    let node = Node::start().await?;
    let id = node.create("forgotten", "sleep 1000", None).await?;
    // As after a start whose caller went away.
    node.containerd.ctr(["tasks", "start", "--detach", "--null-io", &id]).await?;
    node.client.remove_container(&id).await?;
    assert!(node.client.container_status(&id).await.unwrap_err().is_not_found());
    assert!(!node.containerd.ctr(["tasks", "list"]).await?.contains(&id));
    node.containerd.stop().await
}
