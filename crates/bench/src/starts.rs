//! How long pods take to start and to end on a private containerd, beside the same CRI calls made by hand.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::SandboxFilter;
use crablet_testkit::{Containerd, Image, Node};
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use crate::by_hand::{ByHand, Made, is_written};
use crate::manifest::pod;
use crate::promises::Figure;

const RUNS: usize = 5;
/// Two medians of five were seen on either side of the promise, in the same minutes.
const CROWD_RUNS: usize = 10;
/// Pods at once.
const CROWD: usize = 50;
/// How many of a crowd are made by hand at a time; the best counts.
const AT_ONCE: &[usize] = &[1, 2, 4, 8, 16, CROWD];
/// How often it is looked whether something is so, and how often where many pods are looked at.
const GLANCE: Duration = Duration::from_millis(2);
const GLANCE_AT_CROWD: Duration = Duration::from_millis(20);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A containerd, an agent on it, and somebody who makes pods by hand.
struct Bench {
    containerd: Containerd,
    client: Client,
    node: Node,
    agent: crablet_testkit::Daemon,
    by_hand: ByHand,
}

/// One pod at a time.
pub(crate) async fn measure_one(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let bench = Bench::start(crablet).await?;
    let (mut starts, mut stops) = (Against::default(), Against::default());
    // The first of each warms up what both stand on.
    for run in 0..=RUNS {
        let name = format!("pod-{run}");
        let start_by_hand = Instant::now();
        let made = bench.by_hand.make_one(name.clone()).await?;
        let start_by_hand = start_by_hand.elapsed();
        made.listens().await?;
        let stop_by_hand = Instant::now();
        bench.by_hand.end_one(made).await?;
        let stop_by_hand = stop_by_hand.elapsed();

        let start = bench.start_pods(std::slice::from_ref(&name), GLANCE).await?;
        let stop = bench.stop_pods(std::slice::from_ref(&name), GLANCE).await?;
        println!(
            "    start by hand: {start_by_hand:.0?}, by the agent: {start:.0?}; \
             end by hand: {stop_by_hand:.0?}, by the agent: {stop:.0?}"
        );
        if run > 0 {
            starts.push(start, start_by_hand);
            stops.push(stop, stop_by_hand);
        }
    }
    bench.end().await?;
    Ok(vec![starts.figure("pod-start", ""), stops.figure("pod-stop", "")])
}

/// Many pods at once.
pub(crate) async fn measure_crowd(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let bench = Bench::start(crablet).await?;
    let (mut best_start, mut best_stop) = ((Duration::MAX, 0), (Duration::MAX, 0));
    for at_once in AT_ONCE {
        let (start, stop) = bench.crowd_by_hand(&format!("try-{at_once}"), *at_once, *at_once).await?;
        println!("    by hand, {at_once} at a time: start {start:.1?}, end {stop:.1?}");
        best_start = best_start.min((start, *at_once));
        best_stop = best_stop.min((stop, *at_once));
    }
    let (mut starts, mut stops) = (Against::default(), Against::default());
    for run in 0..CROWD_RUNS {
        let (start_by_hand, stop_by_hand) =
            bench.crowd_by_hand(&format!("run-{run}"), best_start.1, best_stop.1).await?;
        let names: Vec<String> = (0..CROWD).map(|number| format!("pod-{run}-{number}")).collect();
        let start = bench.start_pods(&names, GLANCE_AT_CROWD).await?;
        let stop = bench.stop_pods(&names, GLANCE_AT_CROWD).await?;
        println!(
            "    start by hand: {start_by_hand:.1?}, by the agent: {start:.1?}; \
             end by hand: {stop_by_hand:.1?}, by the agent: {stop:.1?}"
        );
        starts.push(start, start_by_hand);
        stops.push(stop, stop_by_hand);
    }
    bench.end().await?;
    let at_a_time = |best: (Duration, usize)| format!(", {} at a time", best.1);
    Ok(vec![
        starts.figure("pods-start-50", &at_a_time(best_start)),
        stops.figure("pods-stop-50", &at_a_time(best_stop)),
    ])
}

/// What something took, against the same by hand.
#[derive(Default)]
struct Against {
    ratios: Vec<f64>,
    floors: Vec<Duration>,
}

impl Against {
    fn push(&mut self, took: Duration, floor: Duration) {
        self.ratios.push(took.as_secs_f64() / floor.as_secs_f64());
        self.floors.push(floor);
    }

    fn figure(mut self, id: &'static str, how: &str) -> Figure {
        self.floors.sort();
        let beside = format!("by hand: {:.0?}{how}", self.floors[self.floors.len() / 2]);
        Figure { id, runs: self.ratios, beside: Some(beside) }
    }
}

impl Bench {
    async fn start(crablet: &Path) -> anyhow::Result<Bench> {
        let containerd = Containerd::start().await?;
        containerd.import(&Image::pause()?).await?;
        let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
        let mut node = Node::new(crablet, &containerd.endpoint(), &containerd.cgroup(), "")?;
        let agent = node.start().await?;
        let by_hand = ByHand::new(client.clone(), &containerd.cgroup())?;
        Ok(Bench { containerd, client, node, agent, by_hand })
    }

    async fn end(mut self) -> anyhow::Result<()> {
        self.agent.terminate();
        self.agent.wait().await?;
        self.containerd.stop().await
    }

    /// How long a crowd takes to start and to end, with so many at a time.
    async fn crowd_by_hand(
        &self,
        round: &str,
        starts_at_once: usize,
        stops_at_once: usize,
    ) -> anyhow::Result<(Duration, Duration)> {
        let began = Instant::now();
        let made = self.by_hand.make(round, CROWD, starts_at_once).await?;
        let start = began.elapsed();
        try_join_all(made.iter().map(Made::listens)).await?;
        let began = Instant::now();
        self.by_hand.end(made, stops_at_once).await?;
        Ok((start, began.elapsed()))
    }

    /// From the first manifest's being written to all pods' being Running in `/pods`.
    async fn start_pods(&self, names: &[String], glance: Duration) -> anyhow::Result<Duration> {
        let began = Instant::now();
        for name in names {
            self.node.put(name, &pod(name))?;
        }
        loop {
            let pods = self.node.pods().await?;
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            if running == names.len() {
                let took = began.elapsed();
                for directory in std::fs::read_dir(self.node.logs())? {
                    is_written(&directory?.path().join("main/0.log")).await?;
                }
                return Ok(took);
            }
            if began.elapsed() > PATIENCE {
                bail!("{running} of {} pods run:\n{}", names.len(), self.node.log());
            }
            sleep(glance).await;
        }
    }

    /// From the first manifest's being deleted to nothing's being left in the runtime.
    async fn stop_pods(&self, names: &[String], glance: Duration) -> anyhow::Result<Duration> {
        let began = Instant::now();
        for name in names {
            self.node.take(name)?;
        }
        loop {
            // A container goes before its sandbox.
            let left = self.client.list_sandboxes(SandboxFilter::default()).await?.len();
            if left == 0 {
                break;
            }
            if began.elapsed() > PATIENCE {
                bail!("{left} pods are left:\n{}", self.node.log());
            }
            sleep(glance).await;
        }
        let took = began.elapsed();
        // What is left of it on the node is not part of the next run.
        while !self.node.pods().await.context("cannot ask for pods")?.is_empty() {
            sleep(glance).await;
        }
        Ok(took)
    }
}
