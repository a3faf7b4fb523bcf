//! What an agent costs that has many pods and nothing to do for them: very many on a simulated runtime in another process,
//! and fewer on containerd, where what the node looks after is real as well: memory, disks, images and cgroups.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use crablet_testkit::{Containerd, Image, Node};
use tokio::time::sleep;

use crate::counters::Counters;
use crate::manifest::{pod, pod_with};
use crate::numbers::all_run;
use crate::on_simulator::OnSimulator;
use crate::promises::Figure;

const RUNS: usize = 5;
const PODS: usize = 500;
/// What is promised of so many pods is ten times what is promised of [`PODS`].
const MANY_PODS: usize = 5_000;
const FEW_PODS: usize = 200;
const FEW_RUNS: usize = 3;
/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// The same where it matters what comes each five minutes: the look at images, and the check of all cgroups.
const WATCHED_LONG: Duration = Duration::from_secs(300);
/// How often its threads are looked at: one that has nothing to do lives longer.
const GLANCE: Duration = Duration::from_secs(5);
/// How long it has for what follows the last pod's start: checkpoints, the relist after the hints, and the end of threads
/// that have nothing more to do.
const SETTLING: Duration = Duration::from_secs(15);
/// Upstream's defaults, which a node under test does not have by itself.
const DEFAULTS: &str = "evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}\n\
                        imageGCHighThresholdPercent: 85";
/// What an agent says that looks after disks, and that has limited what all pods may take.
const LOOKS_AFTER: [&str; 2] =
    ["It is known which file systems there are", "Updated Node Allocatable limit across pods"];
/// What it says where something runs short: then it measures all pods again and again, as it should.
const SHORT: &str = "The node is short of";
const LIMITED: &str = "resources: {requests: {cpu: 1m, memory: 4Mi}, limits: {cpu: 100m, memory: 64Mi}}";

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    measure_pods(crablet, PODS, RUNS, ["settled-500-cpu", "settled-500-rss", "settled-500-wakes"]).await
}

/// The same with ten times the pods.
pub(crate) async fn measure_many(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    measure_pods(crablet, MANY_PODS, 1, ["settled-5000-cpu", "settled-5000-rss", "settled-5000-wakes"]).await
}

async fn measure_pods(
    crablet: &Path,
    pods: usize,
    runs: usize,
    ids: [&'static str; 3],
) -> anyhow::Result<Vec<Figure>> {
    let mut figures = ids.map(|id| Figure { id, runs: Vec::new(), beside: None });
    for _ in 0..runs {
        let manifests = (0..pods).map(|number| (format!("pod-{number}"), pod(&format!("pod-{number}"))));
        let on_simulator = OnSimulator::start(crablet, manifests).await?;
        sleep(SETTLING).await;
        let seen = watch(on_simulator.agent.pid(), WATCHED).await?;
        on_simulator.end().await?;
        for (figure, value) in figures.iter_mut().zip([seen.millicores, seen.rss_mib, seen.wakes_a_second]) {
            figure.runs.push(value);
        }
    }
    Ok(figures.into())
}

/// Fewer pods, with limits, on a runtime whose disk is there.
pub(crate) async fn measure_few(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    let fields = format!("maxPods: {}\nregistryPullQPS: 0\n{DEFAULTS}", FEW_PODS + 1);
    let mut node = Node::new(crablet, &containerd.endpoint(), &containerd.cgroup(), &fields)?;
    for number in 0..FEW_PODS {
        let name = format!("pod-{number}");
        node.put(&name, &pod_with(&name, LIMITED))?;
    }
    let mut agent = node.start().await?;
    all_run(&node, &agent, FEW_PODS).await?;
    sleep(SETTLING).await;
    for told in LOOKS_AFTER {
        ensure!(node.log().contains(told), "the agent does not say {told:?}:\n{}", agent.log_tail());
    }
    ensure!(!node.log().contains(SHORT), "this machine runs short of something:\n{}", agent.log_tail());
    let cgroups = node.pod_cgroups()?.len();
    ensure!(cgroups >= FEW_PODS, "{cgroups} of {FEW_PODS} pods have cgroups");

    let mut figures =
        ["settled-200-cpu", "settled-200-wakes"].map(|id| Figure { id, runs: Vec::new(), beside: None });
    for _ in 0..FEW_RUNS {
        let seen = watch(agent.pid(), WATCHED_LONG).await?;
        for (figure, value) in figures.iter_mut().zip([seen.millicores, seen.wakes_a_second]) {
            figure.runs.push(value);
        }
    }
    ensure!(!node.log().contains(SHORT), "this machine runs short of something:\n{}", agent.log_tail());
    agent.terminate();
    agent.wait().await?;
    containerd.stop().await?;
    Ok(figures.into())
}

struct Seen {
    millicores: f64,
    rss_mib: f64,
    wakes_a_second: f64,
}

/// The measurement itself: a time in which nothing should happen.
async fn watch(agent: i32, time: Duration) -> anyhow::Result<Seen> {
    let before = Counters::read(agent)?;
    let (mut wakes, mut after) = (0.0, Counters::read(agent)?);
    for _ in 0..time.as_secs() / GLANCE.as_secs() {
        sleep(GLANCE).await;
        let now = Counters::read(agent)?;
        wakes += now.wakes_since(&after);
        after = now;
    }
    let seconds = time.as_secs_f64();
    Ok(Seen {
        millicores: (after.cpu_ticks - before.cpu_ticks) * 10.0 / seconds,
        rss_mib: after.rss_kib / 1024.0,
        wakes_a_second: wakes / seconds,
    })
}
