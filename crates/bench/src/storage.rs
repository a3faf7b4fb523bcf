//! What volumes of CSI drivers cost: beside what the driver itself takes, at rest, and when their pods end.
//!
//! The mounts are real and the runtime is simulated: each process that a real one starts gets a copy of all of the node's
//! mounts, and reads their table several times, which would be most of what is measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use async_trait::async_trait;
use crablet_csi::stand_in::{Capability, Effects, LocalVolumes, Settings, StandIn};
use crablet_csi::v1;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::cluster::{Cluster, SETTLING, WATCHED, cgroup, milliseconds, names, pod};
use crate::counters::Counters;
use crate::on_simulator::SimulatedRuntime;
use crate::promises::Figure;

const DRIVER: &str = "bench.csi.example.com";
/// Pods that come one after another, with a volume each.
const ONE_BY_ONE: usize = 50;
/// How long after one the next comes: sooner, and the agent's limit of requests (`kubeAPIQPS`) would be measured.
const APART: Duration = Duration::from_millis(300);
/// Pods that come at once, and the volumes of each.
const PODS: usize = 200;
const VOLUMES: usize = 5;

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let runtime = SimulatedRuntime::start(crablet).await?;
    let mut cluster = Cluster::new(crablet, &runtime.endpoint, &cgroup()).await?;
    let spent =
        Arc::new(Spent { volumes: LocalVolumes::new(&cluster.node.path("driver")), on: Mutex::default() });
    let root = cluster.node.root();
    let settings = Settings { capabilities: vec![Capability::StageUnstageVolume], ..Settings::new(DRIVER) };
    let driver = StandIn::new(settings, Arc::clone(&spent) as _);
    driver.start(
        &root.join("plugins").join(DRIVER).join("csi.sock"),
        Some(&root.join("plugins_registry/bench-reg.sock")),
    )?;
    let of_driver = json!({"kind": "CSIDriver", "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    cluster.connection.create("/apis/storage.k8s.io/v1/csidrivers", of_driver.to_string()).await?;
    let mut figures = vec![one_by_one(&mut cluster, &spent).await?];
    figures.extend(many(&mut cluster, &driver).await?);
    drop(driver);
    cluster.server.end().await?;
    Ok(figures)
}

/// What a driver does on the node, and how long it takes for each volume to be mounted.
struct Spent {
    volumes: LocalVolumes,
    on: Mutex<BTreeMap<String, Duration>>,
}

impl Spent {
    fn add(&self, volume: &str, since: Instant) {
        let mut on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        *on.entry(volume.to_owned()).or_default() += since.elapsed();
    }

    fn on(&self, volume: &str) -> Duration {
        self.on.lock().unwrap_or_else(PoisonError::into_inner).get(volume).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Effects for Spent {
    async fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        let began = Instant::now();
        let done = self.volumes.stage(request).await;
        self.add(&request.volume_id, began);
        done
    }

    async fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        self.volumes.unstage(request).await
    }

    async fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        let began = Instant::now();
        let done = self.volumes.publish(request).await;
        self.add(&request.volume_id, began);
        done
    }

    async fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        self.volumes.unpublish(request).await
    }
}

/// What staging and publishing takes of one volume at a time, less what the driver itself takes.
async fn one_by_one(cluster: &mut Cluster, spent: &Spent) -> anyhow::Result<Figure> {
    let (mut agent, _) = cluster.start().await?;
    let all = names("one", ONE_BY_ONE);
    let (mut ours, mut of_driver) = (Vec::new(), Vec::new());
    for name in &all {
        let pods = vec![with_volumes(cluster, name, 1).await?];
        cluster.run_pods(pods).await?;
        let log = cluster.node.log();
        let told = log.lines().rfind(|line| line.contains("set up its volumes (1)"));
        let took = told.and_then(|line| milliseconds(line.split_once("took=\"")?.1.split_once('"')?.0));
        let Some(took) = took else { anyhow::bail!("no story tells of the volumes of {name}") };
        let driver = spent.on(&format!("{name}-0")).as_secs_f64() * 1000.0;
        ours.push(took - driver);
        of_driver.push(driver);
        cluster.delete_pods(std::slice::from_ref(name)).await?;
        sleep(APART).await;
    }
    agent.terminate();
    agent.wait().await?;
    ours.sort_by(f64::total_cmp);
    of_driver.sort_by(f64::total_cmp);
    let middle = ONE_BY_ONE / 2;
    let beside = format!("the driver: {:.2}", of_driver[middle]);
    Ok(Figure { id: "csi-mount", runs: vec![ours[middle]], beside: Some(beside) })
}

/// What many pods cost with volumes of a CSI driver, beside the same pods without.
async fn many(cluster: &mut Cluster, driver: &StandIn) -> anyhow::Result<Vec<Figure>> {
    let mut seen = Vec::new();
    for volumes in [0, VOLUMES] {
        let (mut agent, _) = cluster.start().await?;
        let all = names(&format!("with-{volumes}"), PODS);
        let mut pods = Vec::new();
        for name in &all {
            pods.push(with_volumes(cluster, name, volumes).await?);
        }
        let started = cluster.run_pods(pods).await?;
        // These are the measurement itself: the time in which nothing should happen.
        sleep(SETTLING).await;
        let calls = driver.calls().len();
        let before = Counters::read(agent.pid())?;
        sleep(WATCHED).await;
        let after = Counters::read(agent.pid())?;
        ensure!(driver.calls().len() == calls, "a driver was asked that nobody wants anything of");
        let began = Instant::now();
        cluster.delete_pods(&all).await?;
        let ended = began.elapsed();
        println!("    {PODS} pods with {volumes} volumes: ready after {started:.1?}, gone after {ended:.1?}");
        agent.terminate();
        agent.wait().await?;
        println!("    all that was resident: {:.2} MiB", after.rss_kib / 1024.0);
        seen.push((
            after.anonymous_kib,
            after.wakes_since(&before) / WATCHED.as_secs_f64(),
            ended.as_secs_f64(),
        ));
    }
    let [without, with] = seen[..] else { anyhow::bail!("both are measured") };
    ensure!(without.2 > 0.0, "pods end in no time");
    let figure = |id, value, beside: String| Figure { id, runs: vec![value], beside: Some(beside) };
    Ok(vec![
        figure("csi-wakes", with.1, format!("without volumes: {:.2}", without.1)),
        figure(
            "csi-rss",
            (with.0 - without.0) * 1.024 / (PODS * VOLUMES) as f64,
            format!("{:.2} MiB beside {:.2}", with.0 / 1024.0, without.0 / 1024.0),
        ),
        figure("csi-end", with.2 / without.2, format!("{:.1} s beside {:.1}", with.2, without.2)),
    ])
}

/// A pod with so many volumes, which nobody else uses, and whose claims are bound. The volumes are called by its name and a number.
async fn with_volumes(cluster: &mut Cluster, name: &str, count: usize) -> anyhow::Result<Value> {
    // One that nothing was asked on for a while is closed.
    cluster.connect().await?;
    let mut pod = pod(name);
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let volumes = (0..count).map(|number| format!("{name}-{number}")).collect::<Vec<_>>();
    for volume in &volumes {
        let (size, modes) = (json!({"storage": "1Mi"}), json!(["ReadWriteOnce"]));
        let object = json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": volume}, "spec": {
            "capacity": size, "accessModes": modes, "storageClassName": "",
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": volume},
            "csi": {"driver": DRIVER, "volumeHandle": volume},
        }});
        cluster.connection.create("/api/v1/persistentvolumes", object.to_string()).await?;
        let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": volume}, "spec": {
            "accessModes": modes, "storageClassName": "", "volumeName": volume, "resources": {"requests": size},
        }});
        let path = "/api/v1/namespaces/default/persistentvolumeclaims";
        cluster.connection.create(path, claim.to_string()).await?;
    }
    for volume in &volumes {
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{volume}");
        let mut phase = Value::Null;
        while phase != "Bound" {
            sleep(Duration::from_millis(5)).await;
            phase =
                serde_json::from_slice::<Value>(&cluster.connection.get(&path).await?)?["status"]["phase"]
                    .take();
        }
    }
    pod["spec"]["volumes"] = volumes
        .iter()
        .map(|volume| json!({"name": volume, "persistentVolumeClaim": {"claimName": volume}}))
        .collect();
    pod["spec"]["containers"][0]["volumeMounts"] =
        volumes.iter().map(|volume| json!({"name": volume, "mountPath": format!("/{volume}")})).collect();
    Ok(pod)
}
