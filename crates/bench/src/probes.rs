//! What probes cost, whether they keep up, and how soon what they find is to be seen.

use std::net::{SocketAddr, TcpListener as Reserved, TcpStream as Bare};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_testkit::{Daemon, Node};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::counters::Counters;
use crate::manifest::pod_with;
use crate::on_simulator::OnSimulator;
use crate::promises::Figure;

const RUNS: usize = 5;
/// Pods whose probe connects, once a second each.
const CONNECTING: usize = 1_000;
/// Pods whose probe runs a program for a fifth of a second, once a second each.
const RUNNING: usize = 500;
/// How long each is watched.
const WATCHED: Duration = Duration::from_secs(10);
/// Until every probe has had its first turn.
const SETTLING: Duration = Duration::from_secs(5);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    Ok(vec![connecting(crablet).await?, running(crablet).await?, readiness(crablet).await?])
}

/// The CPU time of the agent, against that of a loop that does nothing but connect as often.
async fn connecting(crablet: &Path) -> anyhow::Result<Figure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let accepting = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let probe = format!("livenessProbe: {{{}, periodSeconds: 1}}", connects_to(address));
    let on_simulator = OnSimulator::start(crablet, pods(CONNECTING, &probe)).await?;
    sleep(SETTLING).await;

    let directory = tempfile::tempdir()?;
    let arguments = [CONNECT, &address.to_string()];
    let own = std::env::current_exe()?;
    let bare = Daemon::spawn(&own, arguments, [], &directory.path().join("bare.log")).await?;
    let mut figure = Figure { id: "probes-tcp", runs: Vec::new(), beside: None };
    let mut floors = Vec::new();
    for _ in 0..RUNS {
        let probed = probes(&on_simulator.node).await?;
        let before = [on_simulator.agent.pid(), bare.pid()].map(Counters::read);
        sleep(WATCHED).await;
        let after = [on_simulator.agent.pid(), bare.pid()].map(Counters::read);
        let probed = probes(&on_simulator.node).await? - probed;
        let wanted = CONNECTING as f64 * WATCHED.as_secs_f64();
        ensure!(probed > wanted * 0.95, "{probed} of {wanted} probes were made");
        let [agent_before, bare_before] = before;
        let [agent_after, bare_after] = after;
        let agent = agent_after?.cpu_ticks - agent_before?.cpu_ticks;
        let floor = bare_after?.cpu_ticks - bare_before?.cpu_ticks;
        figure.runs.push(agent / floor);
        floors.push(floor * 10.0 / WATCHED.as_secs_f64());
    }
    floors.sort_by(f64::total_cmp);
    figure.beside = Some(format!("the loop: {:.0} millicores", floors[RUNS / 2]));
    accepting.abort();
    on_simulator.end().await?;
    Ok(figure)
}

/// How many periods probes that take their time fall behind.
async fn running(crablet: &Path) -> anyhow::Result<Figure> {
    let probe = "livenessProbe: {exec: {command: [sleep, '0.2']}, periodSeconds: 1}";
    let on_simulator = OnSimulator::start(crablet, pods(RUNNING, probe)).await?;
    sleep(SETTLING).await;
    let mut figure = Figure { id: "probes-exec", runs: Vec::new(), beside: None };
    for _ in 0..RUNS {
        let (before, began) = (probes(&on_simulator.node).await?, Instant::now());
        sleep(WATCHED).await;
        let made = probes(&on_simulator.node).await? - before;
        let periods = began.elapsed().as_secs_f64();
        figure.runs.push((periods - made / RUNNING as f64).max(0.0));
    }
    on_simulator.end().await?;
    Ok(figure)
}

/// From a probe's success to its being in `/pods`.
async fn readiness(crablet: &Path) -> anyhow::Result<Figure> {
    let addresses: Vec<SocketAddr> =
        (0..RUNS).map(|_| Reserved::bind("127.0.0.1:0")?.local_addr()).collect::<std::io::Result<_>>()?;
    let manifests = addresses.iter().enumerate().map(|(number, address)| {
        let probe = format!("readinessProbe: {{{}, periodSeconds: 1}}", connects_to(*address));
        (format!("pod-{number}"), pod_with(&format!("pod-{number}"), &probe))
    });
    let on_simulator = OnSimulator::start(crablet, manifests).await?;
    let mut figure = Figure { id: "readiness", runs: Vec::new(), beside: None };
    for (number, address) in addresses.iter().enumerate() {
        let name = format!("pod-{number}");
        ensure!(!is_ready(&on_simulator.node, &name).await?, "nobody listens, and it is ready");
        let listener = TcpListener::bind(address).await?;
        timeout(PATIENCE, listener.accept()).await.context("nobody probes")??;
        let probed = Instant::now();
        while !is_ready(&on_simulator.node, &name).await? {
            ensure!(probed.elapsed() < PATIENCE, "it does not become ready");
        }
        figure.runs.push(probed.elapsed().as_secs_f64() * 1e3);
    }
    on_simulator.end().await?;
    Ok(figure)
}

fn pods(number: usize, probe: &str) -> impl ExactSizeIterator<Item = (String, String)> {
    (0..number).map(move |number| (format!("pod-{number}"), pod_with(&format!("pod-{number}"), probe)))
}

fn connects_to(address: SocketAddr) -> String {
    format!("tcpSocket: {{host: {}, port: {}}}", address.ip(), address.port())
}

/// How many probes were made.
async fn probes(node: &Node) -> anyhow::Result<f64> {
    let (_, text) = node.get("/metrics/probes").await?;
    let counts = text.lines().filter(|line| line.starts_with("prober_probe_total{"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(counts.sum())
}

async fn is_ready(node: &Node, name: &str) -> anyhow::Result<bool> {
    let pod = node.pod(name).await?.context("the pod is not in /pods")?;
    let conditions = pod["status"]["conditions"].as_array().context("it has no conditions")?;
    Ok(conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
}

/// The argument with which this program is the loop that does nothing but connect.
pub(crate) const CONNECT: &str = "connect";

/// Connects as often as all probes together, until it is ended.
#[expect(clippy::disallowed_methods, reason = "this process does nothing else")]
pub(crate) fn connect(address: &str) -> anyhow::Result<()> {
    let address: SocketAddr = address.parse()?;
    let pause = Duration::from_secs(1) / CONNECTING as u32;
    let mut next = Instant::now();
    loop {
        drop(Bare::connect(address)?);
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
