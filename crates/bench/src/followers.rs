//! What the node's port costs who asks much of it: followers of a log that is written quickly, and the memory that is left
//! taken when everything was asked for and nobody asks any more.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_testkit::eventually;
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::api_client::Access;
use crate::cluster::{Cluster, SETTLING, names, pod};
use crate::counters::Counters;
use crate::on_simulator::SimulatedRuntime;
use crate::promises::Figure;
use crate::streams::connector;

const PODS: usize = 100;
const FOLLOWERS: usize = 100;
/// How many lines are written at a time, how often, and for how long: ten thousand a second.
const LINES: usize = 100;
const EVERY: Duration = Duration::from_millis(10);
const TIMES: u32 = 1_000;
/// How often each page is asked for.
const SCRAPES: usize = 3;
const PAGES: [&str; 6] =
    ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/stats/summary", "/pods"];
/// How often the memory of an agent is looked at that does nothing.
const LOOKS: usize = 8;
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let runtime = SimulatedRuntime::start(crablet).await?;
    let cgroup = format!("/crablet-bench-{}", std::process::id());
    let mut cluster = Cluster::new(crablet, &runtime.endpoint, &cgroup).await?;
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let authority = cluster.server.kubeconfig().with_file_name("pki").join("ca.crt");
    cluster.node.serve(port, &authority);
    let (agent, _) = cluster.start().await?;
    cluster.run_pods(names("pod", PODS).iter().map(|name| pod(name)).collect()).await?;
    let pki = authority.parent().context("the authority is in a directory")?;
    let node = Access { address: SocketAddr::from(([127, 0, 0, 1], port)), connector: connector(pki)? };
    let before = resting(agent.pid()).await?;
    ask_for_everything(&node).await?;
    let log = log_of(&cluster.node.logs(), "pod-0")?;
    let began = Counters::read(agent.pid())?;
    let followed = follow(&node, &log).await?;
    let ended = Counters::read(agent.pid())?;
    let after = resting(agent.pid()).await?;
    cluster.end(agent).await?;
    let millicores = (ended.cpu_ticks - began.cpu_ticks) * 10.0 / (EVERY * TIMES).as_secs_f64();
    let lost = FOLLOWERS as u64 * written() - followed.lines;
    Ok(vec![
        Figure {
            id: "follow-lost",
            runs: vec![lost as f64],
            beside: Some(format!("{millicores:.0} millicores, {:.0?} behind", followed.behind)),
        },
        Figure {
            id: "asked-rss",
            runs: vec![(after - before) / 1024.0],
            beside: Some(format!("{:.1} MiB before", before / 1024.0)),
        },
    ])
}

/// Resident memory of a process at rest, in KiB: an agent lets go of code that it does not need every two minutes.
async fn resting(process: i32) -> anyhow::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..LOOKS {
        sleep(SETTLING).await;
        least = least.min(Counters::read(process)?.rss_kib);
    }
    Ok(least)
}

/// Every page, a command in a container, and a log.
async fn ask_for_everything(node: &Access) -> anyhow::Result<()> {
    for _ in 0..SCRAPES {
        let mut connection = node.connect().await?;
        for page in PAGES {
            connection.get(page).await?;
        }
        connection.create("/run/default/pod-0/main?cmd=true", String::new()).await?;
        connection.get("/containerLogs/default/pod-0/main").await?;
    }
    Ok(())
}

/// The log of a pod's only container.
fn log_of(logs: &Path, pod: &str) -> anyhow::Result<PathBuf> {
    let prefix = format!("default_{pod}_");
    let found = std::fs::read_dir(logs)?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    Ok(found.with_context(|| format!("{pod} has no logs"))?.path().join("main/0.log"))
}

/// What all followers got.
struct Got {
    lines: u64,
    /// From the last line that was written until the last follower had it.
    behind: Duration,
}

fn written() -> u64 {
    LINES as u64 * u64::from(TIMES)
}

/// The number of a line, as it is told.
fn told(number: u64) -> String {
    format!("line {number:0>10}\n")
}

async fn follow(node: &Access, log: &Path) -> anyhow::Result<Got> {
    let expected: Arc<str> = (0..written()).map(told).collect::<String>().into();
    let following = (0..FOLLOWERS).map(|_| {
        let (node, expected) = (node.clone(), Arc::clone(&expected));
        tokio::spawn(async move { hear(&node, &expected).await })
    });
    let following: Vec<_> = following.collect();
    eventually("the log is there", PATIENCE, || async { std::fs::metadata(log) }).await?;
    let mut file = std::fs::OpenOptions::new().append(true).open(log)?;
    let began = Instant::now();
    for time in 0..TIMES {
        let first = u64::from(time) * LINES as u64;
        let lines = (first..first + LINES as u64).map(told);
        let text: String =
            lines.map(|line| format!("2026-01-01T00:00:00.000000000Z stdout F {line}")).collect();
        file.write_all(text.as_bytes())?;
        sleep_until(began + EVERY * (time + 1)).await;
    }
    let last = Instant::now();
    let mut got = Got { lines: 0, behind: Duration::ZERO };
    for heard in try_join_all(following).await? {
        let (lines, at) = heard?;
        got.lines += lines;
        got.behind = got.behind.max(at.saturating_duration_since(last));
    }
    Ok(got)
}

/// Follows the log until all of it came, or nothing more comes; how many lines there were, and when the last came. A line
/// that is not the next one is an error.
async fn hear(node: &Access, expected: &str) -> anyhow::Result<(u64, Instant)> {
    let mut connection = node.connect().await?;
    let mut body = connection.follow("/containerLogs/default/pod-0/main?follow=true").await?;
    let (mut heard, mut at) = (0, Instant::now());
    while heard < expected.len() {
        let Ok(Some(frame)) = timeout(PATIENCE, body.frame()).await else { break };
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        let next = expected.as_bytes().get(heard..heard + data.len());
        ensure!(next == Some(&data[..]), "after {heard} bytes comes what was not written there");
        heard += data.len();
        at = Instant::now();
    }
    Ok((heard as u64 / told(0).len() as u64, at))
}
