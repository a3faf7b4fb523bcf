//! How soon a resize is what the kernel enforces, beside the same change by the CRI call that an agent makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::v1;
use crablet_testkit::{Containerd, Image, eventually};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cgroups::kubepods;
use crate::cluster::{Cluster, PODS, pod};
use crate::promises::Figure;

const RUNS: usize = 11;
const POD: &str = "resized";
/// What the container may take of a CPU, in turns, in thousandths.
const LIMITS: [u64; 2] = [100, 200];
/// What it gets by hand: less than its pod has, or the kernel would refuse.
const BY_HAND: u64 = 50;
/// Microseconds of a period in which the kernel counts.
const PERIOD: u64 = 100_000;
/// How often it is looked whether something is so.
const GLANCE: Duration = Duration::from_millis(1);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
    let mut cluster = Cluster::new(crablet, &containerd.endpoint(), &containerd.cgroup()).await?;
    let (agent, _) = cluster.start().await?;
    let mut pod = pod(POD);
    pod["spec"]["containers"][0]["resources"] = resources(LIMITS[0]);
    cluster.run_pods(vec![pod]).await?;
    let container = Container::find(&mut cluster, client, &containerd.cgroup()).await?;

    let mut figure = Figure { id: "resize-applied", runs: Vec::new(), beside: None };
    let mut floors = Vec::new();
    // The first warms up what both stand on.
    for run in 0..=RUNS {
        let (before, after) = (LIMITS[run % 2], LIMITS[(run + 1) % 2]);
        let away = container.change_by_hand(BY_HAND).await?;
        let back = container.change_by_hand(before).await?;
        let floor = (away + back) / 2;
        let took = resize(&mut cluster, &container, after).await?;
        println!("    by hand: {floor:.1?}, by the agent: {took:.1?}");
        if run > 0 {
            figure.runs.push((took.as_secs_f64() - floor.as_secs_f64()) * 1000.0);
            floors.push(floor);
        }
    }
    floors.sort();
    figure.beside = Some(format!("the runtime: {:.1?}", floors[floors.len() / 2]));
    cluster.delete_pods(&[POD.to_owned()]).await?;
    cluster.end(agent).await?;
    containerd.stop().await?;
    Ok(vec![figure])
}

fn resources(limit: u64) -> Value {
    json!({
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": format!("{limit}m"), "memory": "64Mi"},
    })
}

/// Asks for another limit, and says how long after the API server's answer the kernel has it.
async fn resize(cluster: &mut Cluster, container: &Container, limit: u64) -> anyhow::Result<Duration> {
    cluster.connect().await?;
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources(limit)}]}});
    cluster.connection.merge_strategically(&format!("{PODS}/{POD}/resize"), patch.to_string()).await?;
    let answered = Instant::now();
    container.awaits(limit).await.with_context(|| cluster.node.log())?;
    let took = answered.elapsed();
    eventually("the resize is over", PATIENCE, || async {
        let status = status(cluster).await?;
        let conditions = status["conditions"].to_string();
        ensure!(!conditions.contains("Resize"), "{conditions}");
        let found = &status["containerStatuses"][0]["resources"];
        ensure!(*found == resources(limit), "it has {found}");
        Ok(())
    })
    .await?;
    Ok(took)
}

async fn status(cluster: &Cluster) -> anyhow::Result<Value> {
    let mut connection = cluster.server.access.connect().await?;
    let mut pod: Value = serde_json::from_slice(&connection.get(&format!("{PODS}/{POD}")).await?)?;
    Ok(pod["status"].take())
}

/// The pod's container, as runtime and kernel know it.
struct Container {
    client: Client,
    id: String,
    cgroup: PathBuf,
}

impl Container {
    async fn find(cluster: &mut Cluster, client: Client, cgroup: &str) -> anyhow::Result<Container> {
        let pod: Value = serde_json::from_slice(&cluster.connection.get(&format!("{PODS}/{POD}")).await?)?;
        let uid = pod["metadata"]["uid"].as_str().context("the pod has no UID")?;
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let (_, id) = id.and_then(|id| id.split_once("://")).context("the container has no ID")?;
        let cgroup = kubepods("cpu", cgroup)?.join("burstable").join(format!("pod{uid}")).join(id);
        Ok(Container { client, id: id.to_owned(), cgroup })
    }

    /// Changes its limit by the call that an agent makes, and says how long after that call the kernel has it.
    async fn change_by_hand(&self, limit: u64) -> anyhow::Result<Duration> {
        let resources = v1::LinuxContainerResources {
            cpu_period: i64::try_from(PERIOD)?,
            cpu_quota: i64::try_from(quota(limit))?,
            ..v1::LinuxContainerResources::default()
        };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: self.id.clone(),
            linux: Some(resources),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let began = Instant::now();
        let called = async {
            self.client.update_container_resources(request).await.context("UpdateContainerResources")
        };
        let seen = async {
            self.awaits(limit).await?;
            Ok(began.elapsed())
        };
        let ((), took) = tokio::try_join!(called, seen)?;
        Ok(took)
    }

    /// Waits until the kernel holds it to so much.
    async fn awaits(&self, limit: u64) -> anyhow::Result<()> {
        let has = async {
            while self.quota()? != quota(limit).to_string() {
                sleep(GLANCE).await;
            }
            Ok(())
        };
        timeout(PATIENCE, has)
            .await
            .with_context(|| format!("it does not get {limit} thousandths of a CPU"))?
    }

    /// What the kernel holds it to, whichever version of cgroups there is.
    fn quota(&self) -> anyhow::Result<String> {
        let files = ["cpu.cfs_quota_us", "cpu.max"].map(|name| self.cgroup.join(name));
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
        let text = text.with_context(|| format!("{} says nothing of its CPU", self.cgroup.display()))?;
        Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
    }
}

/// A limit in thousandths, as microseconds of each period.
fn quota(limit: u64) -> u64 {
    limit * PERIOD / 1000
}
