//! What the API server costs, and how soon it tells what was written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use crablet_testkit::Daemon;
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use crate::api_client::{Access, Connection};
use crate::counters::Counters;
use crate::promises::Figure;

const RUNS: usize = 5;
/// How many pods there are where only the number matters.
const PODS: usize = 1_000;
/// How many pods there are where their memory matters.
const MANY_PODS: usize = 10_000;
const WATCHERS: usize = 10;
/// Watches that nobody reads.
const UNREAD: usize = 100;
const CONNECTIONS: usize = 8;
const PATCHES: usize = 20_000;
const NAMESPACE: &str = "shop";
/// Where nothing is synced, since there is no disk.
pub(crate) const IN_MEMORY: &str = "/dev/shm";

/// The pod with two containers, eight variables each, three volumes, probes and a status.
const POD: &str = include_str!("../../api/benches/pod.json");

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures =
        Vec::from(["api-start", "api-rss"].map(|id| Figure { id, runs: Vec::new(), beside: None }));
    let disk = std::env::temp_dir();
    for _ in 0..RUNS {
        let server = Server::start(crablet, &disk).await?;
        figures[0].runs.push(server.took.as_secs_f64() * 1000.0);
        server.access.connect().await?.get("/api/v1/namespaces").await?;
        figures[1].runs.push(server.rss_mib()?);
        server.end().await?;
    }
    figures.push(pods_rss(crablet, &disk).await?);

    let in_memory = Server::start(crablet, Path::new(IN_MEMORY)).await?;
    in_memory.fill(PODS).await?;
    figures.push(events(&in_memory).await?);
    let on_disk = Server::start(crablet, &disk).await?;
    on_disk.fill(PODS).await?;
    figures.push(patches(&in_memory, &on_disk).await?);
    on_disk.end().await?;
    figures.push(unread(&in_memory).await?);
    in_memory.end().await?;
    Ok(figures)
}

/// An API server with data of its own.
pub(crate) struct Server {
    daemon: Daemon,
    directory: TempDir,
    pub(crate) access: Access,
    /// From its start until it said that it is ready.
    took: Duration,
}

impl Server {
    pub(crate) async fn start(crablet: &Path, within: &Path) -> anyhow::Result<Server> {
        let directory = TempDir::new_in(within)?;
        let data = directory.path().join("data");
        let arguments = ["apiserver", "--secure-port=0", "--data-dir"].map(Into::into);
        let arguments = arguments.into_iter().chain([data.clone()]);
        let began = Instant::now();
        let log = directory.path().join("log");
        let daemon = Daemon::spawn(crablet, arguments, [] as [(&str, &str); 0], &log).await?;
        let access = loop {
            match ready(&data.join("admin.conf")).await {
                Ok(access) => break access,
                Err(error) if began.elapsed() > Duration::from_secs(30) || daemon.exit().is_some() => {
                    return Err(error.context(daemon.log_tail()));
                }
                // It has not come so far.
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        };
        Ok(Server { daemon, directory, access, took: began.elapsed() })
    }

    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.daemon.terminate();
        self.daemon.wait().await?;
        Ok(())
    }

    /// What an administrator connects by.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/admin.conf")
    }

    fn rss_mib(&self) -> anyhow::Result<f64> {
        Ok(Counters::read(self.daemon.pid())?.rss_kib / 1024.0)
    }

    fn pki(&self, file: &str) -> PathBuf {
        self.directory.path().join("data/pki").join(file)
    }

    async fn connections(&self) -> anyhow::Result<Vec<Connection>> {
        try_join_all((0..CONNECTIONS).map(|_| self.access.connect())).await
    }

    /// Makes a node with so many pods on it, with their status.
    async fn fill(&self, pods: usize) -> anyhow::Result<()> {
        let mut connections = self.connections().await?;
        let pod: Value = serde_json::from_str(POD)?;
        let first = &mut connections[0];
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": pod["spec"]["nodeName"]}});
        first.create("/api/v1/nodes", node.to_string()).await?;
        let named = |kind: &str, name: &Value| {
            json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name}}).to_string()
        };
        first.create("/api/v1/namespaces", named("Namespace", &NAMESPACE.into())).await?;
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        first.create(&accounts, named("ServiceAccount", &pod["spec"]["serviceAccountName"])).await?;
        let status = json!({"status": pod["status"]}).to_string();
        let share = connections.iter_mut().enumerate().map(|(lane, connection)| {
            let (pod, status) = (pod.clone(), &status);
            async move {
                for number in (lane..pods).step_by(CONNECTIONS) {
                    let mut pod = pod.clone();
                    let metadata = pod["metadata"].as_object_mut().context("a pod has metadata")?;
                    // What the server says itself; an owner that is not there would have them removed.
                    for field in
                        ["uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"]
                    {
                        metadata.remove(field);
                    }
                    metadata.insert("name".into(), name(number).into());
                    connection
                        .create(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), pod.to_string())
                        .await?;
                    connection.merge(&status_of(number), status.clone()).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(share).await?;
        Ok(())
    }

    /// Changes the status of pods, on several connections at once; the answer is how many a second.
    async fn patch(&self, patches: usize) -> anyhow::Result<f64> {
        let mut connections = self.connections().await?;
        let began = Instant::now();
        let share = connections.iter_mut().enumerate().map(|(lane, connection)| async move {
            for number in (lane..patches).step_by(CONNECTIONS) {
                connection.merge(&status_of(number % PODS), message(number)).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(share).await?;
        Ok(patches as f64 / began.elapsed().as_secs_f64())
    }
}

async fn ready(kubeconfig: &Path) -> anyhow::Result<Access> {
    let access = Access::read(kubeconfig)?;
    access.connect().await?.get("/readyz").await?;
    Ok(access)
}

fn name(number: usize) -> String {
    format!("shop-6d5f7b8c9d-{number:05}")
}

fn status_of(number: usize) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{}/status", name(number))
}

/// A patch that tells which one it is.
fn message(number: usize) -> String {
    json!({"status": {"message": format!("patch {number}.")}}).to_string()
}

/// What pods add to the memory of a server.
async fn pods_rss(crablet: &Path, disk: &Path) -> anyhow::Result<Figure> {
    let server = Server::start(crablet, disk).await?;
    server.access.connect().await?.get("/api/v1/namespaces").await?;
    let before = server.rss_mib()?;
    server.fill(MANY_PODS).await?;
    // This is part of the measurement: an allocator gives back what was freed after a while.
    sleep(Duration::from_secs(12)).await;
    let grown = server.rss_mib()? - before;
    server.end().await?;
    Ok(Figure { id: "api-pods-rss", runs: vec![grown], beside: None })
}

/// How soon each of some watchers hears of a write, against an echo over TLS of what it hears.
async fn events(server: &Server) -> anyhow::Result<Figure> {
    let (heard, mut hears) = mpsc::channel(WATCHERS);
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = server.access.connect().await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&resourceVersion=0");
        let body = connection.follow(&path).await?;
        watchers.push(tokio::spawn(listen(body, connection, heard.clone())));
    }
    let mut writer = server.access.connect().await?;
    let event = writer.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", name(0))).await?.len();
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let mut all = Vec::new();
        for number in 0..PODS {
            let marker = run * PODS + number;
            let began = Instant::now();
            writer.merge(&status_of(number), message(marker)).await?;
            let mut missing = WATCHERS;
            while missing > 0 {
                let (at, seen): (Instant, usize) = hears.recv().await.context("no watcher is left")?;
                if seen == marker {
                    missing -= 1;
                    all.push(at - began);
                }
            }
        }
        let echo = p99(&mut echoes(server, event).await?)?;
        let ours = p99(&mut all)?;
        ratios.push(ours.as_secs_f64() / echo.as_secs_f64());
        times.push((ours, echo));
    }
    let (ours, echo) = times[RUNS / 2];
    let beside = Some(format!("{} µs beside an echo's {} µs", ours.as_micros(), echo.as_micros()));
    watchers.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(Figure { id: "api-event", runs: ratios, beside })
}

/// Tells when each patch that a watch shows was heard of.
async fn listen(
    mut body: Incoming,
    _open: Connection,
    heard: mpsc::Sender<(Instant, usize)>,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if !piece.ends_with(b"\n") {
                continue;
            }
            if let Some(number) = patch_number(&line) {
                heard.send((Instant::now(), number)).await?;
            }
            line.clear();
        }
    }
    Ok(())
}

fn patch_number(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line).ok()?;
    text.split_once("\"message\":\"patch ")?.1.split_once('.')?.0.parse().ok()
}

/// How long it takes to send something over TLS and get it back, a thousand times.
async fn echoes(server: &Server, size: usize) -> anyhow::Result<Vec<Duration>> {
    let certificate = CertificateDer::from_pem_file(server.pki("apiserver.crt"))?;
    let key = PrivateKeyDer::from_pem_file(server.pki("apiserver.key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut stream = acceptor.accept(stream).await?;
        let mut bytes = vec![0; size];
        loop {
            stream.read_exact(&mut bytes).await?;
            stream.write_all(&bytes).await?;
            stream.flush().await?;
        }
        #[allow(unreachable_code, reason = "it says what the task's error is")]
        anyhow::Ok(())
    });
    let mut stream = server.access.dial(address).await?;
    let (mut bytes, mut times) = (vec![b'x'; size], Vec::new());
    for _ in 0..PODS {
        let began = Instant::now();
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        stream.read_exact(&mut bytes).await?;
        times.push(began.elapsed());
    }
    echo.abort();
    Ok(times)
}

fn p99(times: &mut [Duration]) -> anyhow::Result<Duration> {
    times.sort();
    times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().context("nothing was measured")
}

/// What a status patch takes of a core where nothing is synced, and how many a second there are with and without.
async fn patches(in_memory: &Server, on_disk: &Server) -> anyhow::Result<Figure> {
    let (mut runs, mut a_second) = (Vec::new(), 0.0);
    for _ in 0..3 {
        let before = Counters::read(in_memory.daemon.pid())?;
        a_second = in_memory.patch(PATCHES).await?;
        let after = Counters::read(in_memory.daemon.pid())?;
        runs.push((after.cpu_ticks - before.cpu_ticks) * 10_000.0 / PATCHES as f64);
    }
    let synced = on_disk.patch(PATCHES / 4).await?;
    let beside = format!("{a_second:.0} a second beside their client on two cores, {synced:.0} with fsync");
    Ok(Figure { id: "api-patch", runs, beside: Some(beside) })
}

/// What a watch that nobody reads adds to the memory of a server, while more happens than it could keep.
async fn unread(server: &Server) -> anyhow::Result<Figure> {
    server.patch(PATCHES).await?;
    sleep(Duration::from_secs(12)).await;
    let before = server.rss_mib()?;
    let mut watches = Vec::new();
    for _ in 0..UNREAD {
        let mut connection = server.access.connect().await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&resourceVersion=0");
        watches.push((connection.follow(&path).await?, connection));
    }
    server.patch(PATCHES).await?;
    let each = (server.rss_mib()? - before) / UNREAD as f64;
    ensure!(watches.len() == UNREAD, "they stay open");
    Ok(Figure { id: "api-unread", runs: vec![each], beside: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_known_again_in_the_event() {
        let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, message(17));
        assert_eq!(patch_number(line.as_bytes()), Some(17));
        assert_eq!(patch_number(b"{}"), None);
    }

    #[test]
    fn of_a_hundred_times_the_last_but_one_counts() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(p99(&mut times).unwrap(), Duration::from_millis(99));
        assert!(p99(&mut []).is_err());
    }
}
