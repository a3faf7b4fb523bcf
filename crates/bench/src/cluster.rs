//! What a node in a cluster costs, and how soon its pods are ready at the API server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::SandboxFilter;
use crablet_testkit::{Containerd, Daemon, Image, Node};
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::api_client::Connection;
use crate::api_server::{IN_MEMORY, Server};
use crate::by_hand::{ByHand, Made};
use crate::counters::Counters;
use crate::manifest::IMAGE;
use crate::on_simulator::SimulatedRuntime;
use crate::promises::Figure;

const RUNS: usize = 5;
/// Pods that are ready, with nothing to do.
const RESTING: usize = 100;
const REST_RUNS: usize = 1;
/// Pods whose readiness changes each second: ten thousand changes a minute.
const CHANGING: usize = 167;
/// Pods at once on a real runtime, and how many of them are made by hand at a time; the best counts.
const CROWD: usize = 100;
const CROWD_RUNS: usize = 5;
const AT_ONCE: &[usize] = &[8, 16];
/// Pods with a token, a config map and a secret.
const WITH_VOLUMES: usize = 50;
/// What a pod's way through the API server may take beside the runtime's own work.
const ALLOWANCE: Duration = Duration::from_millis(20);
/// How long a node is watched that has nothing to do, and how long it has until then.
pub(crate) const WATCHED: Duration = Duration::from_secs(60);
pub(crate) const SETTLING: Duration = Duration::from_secs(20);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const NODE: &str = "/api/v1/nodes/node";

/// An API server, a node that joins it, and what happens to its pods.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) node: Node,
    pub(crate) connection: Connection,
    events: mpsc::Receiver<PodEvent>,
}

struct PodEvent {
    at: Instant,
    name: String,
    is_ready: bool,
    is_gone: bool,
}

impl Cluster {
    /// A node on a runtime; its agent is not started.
    pub(crate) async fn new(crablet: &Path, endpoint: &str, cgroup: &str) -> anyhow::Result<Cluster> {
        Cluster::with_fields(crablet, endpoint, cgroup, "").await
    }

    /// The same with more lines in the node's configuration, which count instead of those that it has anyway.
    pub(crate) async fn with_fields(
        crablet: &Path,
        endpoint: &str,
        cgroup: &str,
        fields: &str,
    ) -> anyhow::Result<Cluster> {
        // Its disk is not the node's: what both write would hold up the runtime, whose floor has no server beside it.
        let server = Server::start(crablet, Path::new(IN_MEMORY)).await?;
        let fields = format!("maxPods: 300\nregistryPullQPS: 0\nrotateCertificates: false\n{fields}");
        let mut node = Node::new(crablet, endpoint, cgroup, &fields)?;
        node.join(&server.kubeconfig());
        let connection = server.access.connect().await?;
        let mut watching = server.access.connect().await?;
        let body = watching.follow(&format!("{PODS}?watch=1&resourceVersion=0")).await?;
        let (heard, events) = mpsc::channel(1024);
        tokio::spawn(listen(body, watching, heard));
        Ok(Cluster { server, node, connection, events })
    }

    /// Starts an agent, and waits until its node is ready; how long that took.
    pub(crate) async fn start(&mut self) -> anyhow::Result<(Daemon, Duration)> {
        let began = Instant::now();
        let agent = self.node.spawn().await?;
        loop {
            let is_ready = match self.connection.get(NODE).await {
                Ok(node) => is_true(&serde_json::from_slice(&node)?, "Ready"),
                // It is not there yet.
                Err(_) => false,
            };
            if is_ready {
                return Ok((agent, began.elapsed()));
            }
            if began.elapsed() > PATIENCE || agent.exit().is_some() {
                bail!("the node is not ready:\n{}", agent.log_tail());
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// From the first pod's creation until all are ready.
    pub(crate) async fn run_pods(&mut self, pods: Vec<Value>) -> anyhow::Result<Duration> {
        let mut missing: std::collections::BTreeSet<String> =
            pods.iter().filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect();
        self.connect().await?;
        let began = Instant::now();
        for pod in pods {
            self.connection.create(PODS, pod.to_string()).await?;
        }
        let mut last = began;
        while !missing.is_empty() {
            let event = timeout(PATIENCE, self.events.recv()).await;
            let Ok(Some(event)) = event else {
                bail!("{} pods are not ready:\n{}", missing.len(), self.node.log())
            };
            if event.is_ready && missing.remove(&event.name) {
                last = event.at;
            }
        }
        Ok(last - began)
    }

    /// Deletes pods, and waits until they are gone.
    pub(crate) async fn delete_pods(&mut self, names: &[String]) -> anyhow::Result<()> {
        self.connect().await?;
        for name in names {
            self.connection.delete(&format!("{PODS}/{name}")).await?;
        }
        let mut left = names.len();
        while left > 0 {
            let event = timeout(PATIENCE, self.events.recv()).await;
            let Ok(Some(event)) = event else { bail!("{left} pods are left:\n{}", self.node.log()) };
            left -= usize::from(event.is_gone);
        }
        Ok(())
    }

    /// A connection that nothing was asked on for a while is closed.
    pub(crate) async fn connect(&mut self) -> anyhow::Result<()> {
        self.connection = self.server.access.connect().await?;
        Ok(())
    }

    /// How many requests the agent has made so far.
    async fn requests(&self) -> anyhow::Result<f64> {
        let (_, text) = self.node.get("/metrics").await?;
        let counts = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        let counts: Vec<f64> = counts.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        ensure!(!counts.is_empty(), "no request was made:\n{text}");
        Ok(counts.iter().sum())
    }

    pub(crate) async fn end(self, mut agent: Daemon) -> anyhow::Result<()> {
        agent.terminate();
        agent.wait().await?;
        self.server.end().await
    }
}

/// A pod on the node.
pub(crate) fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {
        "nodeName": "node",
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}],
    }})
}

pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

pub(crate) fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|found| found["type"] == condition && found["status"] == "True")
}

/// Tells what happens to pods.
async fn listen(mut body: Incoming, _open: Connection, heard: mpsc::Sender<PodEvent>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                heard.send(pod_event(&line)?).await?;
                line.clear();
            }
        }
    }
    Ok(())
}

fn pod_event(line: &[u8]) -> anyhow::Result<PodEvent> {
    let at = Instant::now();
    let event: Value = serde_json::from_slice(line)?;
    let pod = &event["object"];
    Ok(PodEvent {
        at,
        name: pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        is_ready: is_true(pod, "Ready"),
        is_gone: event["type"] == "DELETED",
    })
}

/// How soon a node is ready, and what it costs when nothing happens.
pub(crate) async fn at_rest(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = ["join-ready", "join-requests", "join-rss", "join-cpu"].map(|id| Figure {
        id,
        runs: Vec::new(),
        beside: None,
    });
    let runtime = SimulatedRuntime::start(crablet).await?;
    let mut cluster = Cluster::new(crablet, &runtime.endpoint, &cgroup()).await?;
    for _ in 0..RUNS {
        let (mut agent, took) = cluster.start().await?;
        figures[0].runs.push(took.as_secs_f64() * 1000.0);
        agent.terminate();
        agent.wait().await?;
        cluster.connection.delete(NODE).await?;
    }
    let (agent, _) = cluster.start().await?;
    let took = cluster.run_pods(names("pod", RESTING).iter().map(|name| pod(name)).collect()).await?;
    println!("    {RESTING} pods are ready after {took:.1?}");
    // These are the measurement itself: the time in which nothing should happen.
    sleep(SETTLING).await;
    for _ in 0..REST_RUNS {
        let requests = cluster.requests().await?;
        let before = Counters::read(agent.pid())?;
        sleep(WATCHED).await;
        let after = Counters::read(agent.pid())?;
        figures[1].runs.push(cluster.requests().await? - requests);
        figures[2].runs.push(after.rss_kib / 1024.0);
        figures[3].runs.push((after.cpu_ticks - before.cpu_ticks) * 10.0 / WATCHED.as_secs_f64());
    }
    cluster.end(agent).await?;
    Ok(figures.into())
}

pub(crate) fn cgroup() -> String {
    format!("/crablet-bench-{}", std::process::id())
}

/// What changes of readiness take of a core, beside the same probes without a change.
pub(crate) async fn changes(crablet: &Path) -> anyhow::Result<Figure> {
    let answers = Answers::start().await?;
    let runtime = SimulatedRuntime::start(crablet).await?;
    let mut cluster = Cluster::new(crablet, &runtime.endpoint, &cgroup()).await?;
    let (agent, _) = cluster.start().await?;
    let pods = names("pod", CHANGING).into_iter().enumerate().map(|(number, name)| {
        let mut pod = pod(&name);
        pod["spec"]["containers"][0]["readinessProbe"] = json!({
            "httpGet": {"host": "127.0.0.1", "port": answers.port, "path": format!("/{number}")},
            "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5,
        });
        pod
    });
    cluster.run_pods(pods.collect()).await?;
    sleep(SETTLING).await;
    let mut spent = Vec::new();
    let mut beside = Vec::new();
    for is_changing in [false, true] {
        answers.is_changing.store(is_changing, Ordering::Relaxed);
        let (requests, answered) = (cluster.requests().await?, answers.count.load(Ordering::Relaxed));
        let before = Counters::read(agent.pid())?;
        let drained = drain(&mut cluster.events, WATCHED).await;
        let after = Counters::read(agent.pid())?;
        let answered = answers.count.load(Ordering::Relaxed) - answered;
        ensure!(answered as f64 > 9_500.0, "{answered} probes were answered in a minute");
        spent.push((after.cpu_ticks - before.cpu_ticks) / WATCHED.as_secs_f64());
        let requests = cluster.requests().await? - requests;
        beside.push(format!("{answered} answers, {drained} events, {requests} requests"));
    }
    println!("    without changes: {}; with them: {}", beside[0], beside[1]);
    cluster.end(agent).await?;
    let [still, changing] = spent[..] else { bail!("two minutes are measured") };
    let beside = format!("with their probes {changing:.1}, of which the probes {still:.1}; {}", beside[1]);
    Ok(Figure { id: "join-changes", runs: vec![changing - still], beside: Some(beside) })
}

/// Takes events for so long; how many there were.
async fn drain(events: &mut mpsc::Receiver<PodEvent>, time: Duration) -> usize {
    let end = Instant::now() + time;
    let mut count = 0;
    while let Ok(Some(_)) = tokio::time::timeout_at(end, events.recv()).await {
        count += 1;
    }
    count
}

/// A server that says to each pod that it is well, or that it is and is not in turns.
struct Answers {
    port: u16,
    is_changing: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl Answers {
    async fn start() -> anyhow::Result<Answers> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (is_changing, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let turns: Arc<Vec<AtomicBool>> = Arc::new((0..CHANGING).map(|_| AtomicBool::new(true)).collect());
        let answers = Answers { port, is_changing: Arc::clone(&is_changing), count: Arc::clone(&count) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                // Who asked and went away misses nothing.
                tokio::spawn(answer(stream, Arc::clone(&turns), is_changing.load(Ordering::Relaxed)));
            }
        });
        Ok(answers)
    }
}

async fn answer(mut stream: TcpStream, turns: Arc<Vec<AtomicBool>>, is_changing: bool) -> anyhow::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    let text = std::str::from_utf8(&request[..length])?;
    let number: usize =
        text.split([' ', '/']).find_map(|word| word.parse().ok()).context("no number in the path")?;
    let turn = turns.get(number).context("no such pod")?;
    let is_well = !is_changing || turn.fetch_xor(true, Ordering::Relaxed);
    let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
    let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    Ok(stream.write_all(answer.as_bytes()).await?)
}

/// How soon pods are ready on a real runtime, against the same CRI calls by hand.
pub(crate) async fn on_containerd(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
    let by_hand = ByHand::new(client.clone(), &containerd.cgroup())?;
    let mut cluster = Cluster::new(crablet, &containerd.endpoint(), &containerd.cgroup()).await?;
    let (agent, _) = cluster.start().await?;
    let figures = vec![
        one(&mut cluster, &by_hand).await?,
        volumes(&mut cluster).await?,
        crowd(&mut cluster, &by_hand, &client).await?,
    ];
    cluster.end(agent).await?;
    containerd.stop().await?;
    Ok(figures)
}

/// One pod at a time.
async fn one(cluster: &mut Cluster, by_hand: &ByHand) -> anyhow::Result<Figure> {
    let (mut ratios, mut floors) = (Vec::new(), Vec::new());
    // The first warms up what both stand on.
    for run in 0..=2 * RUNS {
        let name = format!("one-{run}");
        let began = Instant::now();
        let made = by_hand.make_one(name.clone()).await?;
        let floor = began.elapsed();
        made.listens().await?;
        by_hand.end_one(made).await?;
        let took = cluster.run_pods(vec![pod(&name)]).await?;
        cluster.delete_pods(&[name]).await?;
        println!("    by hand: {floor:.0?}, created to Ready: {took:.0?}");
        if run > 0 {
            ratios.push(took.saturating_sub(ALLOWANCE).as_secs_f64() / floor.as_secs_f64());
            floors.push(floor);
        }
    }
    floors.sort();
    let beside = format!("by hand: {:.0?}", floors[floors.len() / 2]);
    Ok(Figure { id: "join-start", runs: ratios, beside: Some(beside) })
}

/// Many pods at once.
async fn crowd(cluster: &mut Cluster, by_hand: &ByHand, client: &Client) -> anyhow::Result<Figure> {
    let mut best = (Duration::MAX, 0);
    for at_once in AT_ONCE {
        let took = crowd_by_hand(by_hand, &format!("try-{at_once}"), *at_once).await?;
        println!("    by hand, {at_once} at a time: {took:.1?}");
        best = best.min((took, *at_once));
    }
    let (mut ratios, mut floors) = (Vec::new(), Vec::new());
    for run in 0..CROWD_RUNS {
        let floor = crowd_by_hand(by_hand, &format!("run-{run}"), best.1).await?;
        let all = names(&format!("crowd-{run}"), CROWD);
        let took = cluster.run_pods(all.iter().map(|name| pod(name)).collect()).await?;
        println!("    by hand: {floor:.1?}, created to Ready: {took:.1?}");
        ratios.push(took.as_secs_f64() / floor.as_secs_f64());
        floors.push(floor);
        cluster.delete_pods(&all).await?;
        while !client.list_sandboxes(SandboxFilter::default()).await?.is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    }
    floors.sort();
    let beside = format!("by hand: {:.1?}, {} at a time", floors[floors.len() / 2], best.1);
    Ok(Figure { id: "join-start-100", runs: ratios, beside: Some(beside) })
}

async fn crowd_by_hand(by_hand: &ByHand, round: &str, at_once: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let made = by_hand.make(round, CROWD, at_once).await?;
    let took = began.elapsed();
    try_join_all(made.iter().map(Made::listens)).await?;
    by_hand.end(made, at_once).await?;
    Ok(took)
}

/// What the volumes of a pod take that has a token, a config map and a secret, less what the token's request takes.
async fn volumes(cluster: &mut Cluster) -> anyhow::Result<Figure> {
    let settings = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings"},
        "data": {"key": "value"}});
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "secret"},
        "stringData": {"key": "value"}});
    cluster.connection.create("/api/v1/namespaces/default/configmaps", settings.to_string()).await?;
    cluster.connection.create("/api/v1/namespaces/default/secrets", secret.to_string()).await?;
    let all = names("volumes", WITH_VOLUMES);
    for name in &all {
        let mut pod = pod(name);
        pod["spec"]["volumes"] = json!([
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "secret", "secret": {"secretName": "secret"}},
        ]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([
            {"name": "settings", "mountPath": "/settings"}, {"name": "secret", "mountPath": "/secret"},
        ]);
        cluster.run_pods(vec![pod]).await?;
    }
    let log = cluster.node.log();
    let mut steps: Vec<f64> = log
        .lines()
        .filter(|line| line.contains("set up its volumes (3)"))
        .filter_map(|line| milliseconds(line.split_once("took=\"")?.1.split_once('"')?.0))
        .collect();
    ensure!(steps.len() == WITH_VOLUMES, "{} of {WITH_VOLUMES} stories tell of volumes", steps.len());
    let mut requests = Vec::new();
    let request =
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}});
    for _ in 0..WITH_VOLUMES {
        let began = Instant::now();
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        cluster.connection.create(path, request.to_string()).await?;
        requests.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    cluster.delete_pods(&all).await?;
    steps.sort_by(f64::total_cmp);
    requests.sort_by(f64::total_cmp);
    let (step, token) = (steps[WITH_VOLUMES / 2], requests[WITH_VOLUMES / 2]);
    let beside = format!("{step:.2} with the token's request, which takes {token:.2}");
    Ok(Figure { id: "join-volumes", runs: vec![step - token], beside: Some(beside) })
}

/// A duration as the log has it.
pub(crate) fn milliseconds(text: &str) -> Option<f64> {
    let (number, factor) = [("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3)]
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_log_are_read() {
        for (text, expected) in [("0ns", 0.0), ("850.5µs", 0.8505), ("12ms", 12.0), ("3.563s", 3563.0)] {
            assert!((milliseconds(text).unwrap() - expected).abs() < 1e-9, "{text}");
        }
        assert_eq!(milliseconds("soon"), None);
    }

    #[test]
    fn a_pod_is_ready_by_its_condition() {
        let line = |status: &str, kind: &str| {
            json!({"type": kind, "object": {"metadata": {"name": "a"}, "status":
                {"conditions": [{"type": "Ready", "status": status}]}}})
            .to_string()
        };
        let event = pod_event(line("True", "MODIFIED").as_bytes()).unwrap();
        assert!(event.is_ready && !event.is_gone && event.name == "a");
        let event = pod_event(line("False", "DELETED").as_bytes()).unwrap();
        assert!(!event.is_ready && event.is_gone);
    }
}
