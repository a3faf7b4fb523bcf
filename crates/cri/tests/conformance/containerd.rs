//! The cases on a real containerd. Needs root, and what `scripts/setup test` installs.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use crablet_cri::Client;
use crablet_cri::client::Settings;
use crablet_testkit::{Containerd, Image};
use tokio::sync::Mutex;

use crate::cases::{self, Case};
use crate::registry::Registry;
use crate::runner;
use crate::world::{BUSYBOX, DESCRIBED, Host, PAUSE};

/// How many cases are at it at once on one containerd.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_that_leaves_the_runtime_running_holds_on_containerd() -> Result<()> {
    hold(cases::all().into_iter().filter(|case| !case.kills_the_runtime).collect(), AT_ONCE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_that_kills_the_runtime_holds_on_containerd() -> Result<()> {
    hold(cases::all().into_iter().filter(|case| case.kills_the_runtime).collect(), 1).await
}

async fn hold(cases: Vec<Case>, at_once: usize) -> Result<()> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?.named(PAUSE)).await?;
    containerd.import(&Image::busybox()?.named(BUSYBOX)).await?;
    let described = Image::busybox()?
        .named(DESCRIBED)
        .user("1000")
        .stop_signal("SIGUSR1")
        .env("GREETING", "hello")
        .entrypoint(["sh", "-c"])
        .cmd(["echo \"$GREETING world\""]);
    containerd.import(&described).await?;
    let directory = containerd.directory("cases")?;
    let host = Arc::new(OnContainerd {
        client: Arc::new(Client::new(&containerd.endpoint(), None, Settings::default())?),
        cgroup: containerd.cgroup(),
        registry: Registry::start().await?,
        containerd: Mutex::new(Some(containerd)),
    });
    let as_host: Arc<dyn Host> = host.clone();
    let failed = runner::run(runner::chosen(cases), at_once, &as_host, &directory).await;
    let containerd = host.containerd.lock().await.take().context("nobody else takes it")?;
    if !failed.is_empty() {
        eprintln!("containerd's log ends with:\n{}", containerd.log());
    }
    containerd.stop().await?;
    assert!(failed.is_empty(), "these cases failed: {failed:#?}");
    Ok(())
}

struct OnContainerd {
    containerd: Mutex<Option<Containerd>>,
    client: Arc<Client>,
    cgroup: String,
    registry: Registry,
}

#[async_trait]
impl Host for OnContainerd {
    fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    fn cgroup_parent(&self) -> String {
        self.cgroup.clone()
    }

    async fn add_image(&self, name: &str, content: &str) -> Result<()> {
        let image = Image::busybox()?.named(name).file("/content", content, 0o644);
        self.containerd.lock().await.as_ref().context("it is stopped last")?.import(&image).await
    }

    fn registry(&self) -> String {
        self.registry.host.clone()
    }

    async fn publish(&self, repository: &str, tag: &str, content: &str) -> Result<()> {
        let image = Image::busybox()?.file("/content", content, 0o644);
        self.registry.publish(repository, tag, &image)
    }

    async fn kill(&self) -> Result<()> {
        self.containerd.lock().await.as_mut().context("it is stopped last")?.kill().await
    }

    async fn start_again(&self) -> Result<()> {
        self.containerd.lock().await.as_mut().context("it is stopped last")?.start_again().await
    }
}
