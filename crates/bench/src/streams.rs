//! What a stream into a container takes by way of the node: against the runtime's own, and against bytes that pass through
//! TLS and nothing else.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::{ContainerFilter, v1};
use crablet_testkit::{Containerd, Image};
use crablet_x509::AnyServer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::cluster::Cluster;
use crate::promises::Figure;

/// Commands that do nothing, and runs of one that says much.
const COMMANDS: usize = 100;
const RUNS: usize = 5;
/// What is between two commands.
const APART: Duration = Duration::from_millis(100);
/// How much it says.
const BYTES: u64 = 512 << 20;
const IMAGE: &str = "crablet.test/busybox:1";
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// How a runtime says that a command ended well.
const SUCCESS: &[u8] = br#""status":"Success""#;
/// Protocols of WebSockets: what the runtime speaks, and what the node translates.
const V4: &str = "v4.channel.k8s.io";
const V5: &str = "v5.channel.k8s.io";

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    containerd.import(&Image::busybox()?).await?;
    let client = Client::new(&containerd.endpoint(), None, Settings::default())?;
    let mut cluster = Cluster::new(crablet, &containerd.endpoint(), &containerd.cgroup()).await?;
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let authority = cluster.server.kubeconfig().with_file_name("pki").join("ca.crt");
    cluster.node.serve(port, &authority);
    let (agent, _) = cluster.start().await?;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": {
        "nodeName": "node",
        "containers": [{
            "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "100000"],
        }],
    }});
    cluster.run_pods(vec![pod]).await?;
    let found = client.list_containers(ContainerFilter::default()).await?;
    let container = found.into_iter().next().context("no container runs")?.id;
    let pki = authority.parent().context("the authority is in a directory")?;
    let streams = Streams::new(client, container, SocketAddr::from(([127, 0, 0, 1], port)), pki)?;
    let mut figures = Vec::new();
    for (protocol, id) in [(V4, "exec-trip"), (V5, "exec-trip-v5")] {
        figures.push(streams.trips(protocol, id).await?);
    }
    for (protocol, id) in [(V4, "exec-cat"), (V5, "exec-cat-v5")] {
        figures.push(streams.floods(protocol, id).await?);
    }
    cluster.end(agent).await?;
    containerd.stop().await?;
    Ok(figures)
}

struct Streams {
    client: Client,
    container: String,
    node: SocketAddr,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl Streams {
    fn new(client: Client, container: String, node: SocketAddr, pki: &Path) -> anyhow::Result<Streams> {
        let connector = connector(pki)?;
        // Whose name the bare proxy shows does not matter: nobody looks.
        let (certificate, key) = identity(pki)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let serving = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificate, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(serving));
        Ok(Streams { client, container, node, connector, acceptor })
    }

    /// A command that does nothing, from the question to its end.
    async fn trips(&self, protocol: &str, id: &'static str) -> anyhow::Result<Figure> {
        let (mut ratios, mut floors, mut dials) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..=COMMANDS {
            // One after the other without a pause, the node took 1.3 to 1.7 times as long; why is not known.
            sleep(APART).await;
            let floor = self.by_runtime(&["true"]).await?.0;
            let began = Instant::now();
            drop(self.dial(self.node).await?);
            dials.push(began.elapsed());
            sleep(APART).await;
            let took = self.by_node(&["true"], protocol).await?.0;
            // The first warms up what both stand on.
            if run > 0 {
                ratios.push(took.as_secs_f64() / floor.as_secs_f64());
                floors.push(floor);
            }
        }
        floors.sort();
        dials.sort();
        let beside =
            format!("the runtime: {:.1?}, a connection: {:.1?}", floors[COMMANDS / 2], dials[COMMANDS / 2]);
        Ok(Figure { id, runs: ratios, beside: Some(beside) })
    }

    /// A command that says much, with the same runtime behind a proxy that does nothing but TLS.
    async fn floods(&self, protocol: &str, id: &'static str) -> anyhow::Result<Figure> {
        let bytes = BYTES.to_string();
        let command = ["head", "-c", &bytes, "/dev/zero"];
        let (mut ratios, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let (floor, said) = self.by_proxy(&command).await?;
            ensure!(said >= BYTES, "{said} bytes came through the proxy");
            let (took, said) = self.by_node(&command, protocol).await?;
            ensure!(said >= BYTES, "{said} bytes came through the node");
            ratios.push(took.as_secs_f64() / floor.as_secs_f64());
            floors.push(BYTES as f64 / floor.as_secs_f64() / f64::from(1 << 20));
        }
        floors.sort_by(f64::total_cmp);
        let beside = format!("the proxy: {:.0} MiB a second", floors[RUNS / 2]);
        Ok(Figure { id, runs: ratios, beside: Some(beside) })
    }

    /// Where the runtime lets a command be talked to, as address and path.
    async fn address(&self, command: &[&str]) -> anyhow::Result<(SocketAddr, String)> {
        let asked = v1::ExecRequest {
            container_id: self.container.clone(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            stdout: true,
            ..v1::ExecRequest::default()
        };
        let url = self.client.exec(asked).await?;
        let rest = url.strip_prefix("http://").context("an address over HTTP")?;
        let (host, path) = rest.split_once('/').context("an address with a path")?;
        Ok((host.parse()?, format!("/{path}")))
    }

    async fn by_runtime(&self, command: &[&str]) -> anyhow::Result<(Duration, u64)> {
        let began = Instant::now();
        let (address, path) = self.address(command).await?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let said = listen(stream, &path, V4).await?;
        Ok((began.elapsed(), said))
    }

    async fn by_node(&self, command: &[&str], protocol: &str) -> anyhow::Result<(Duration, u64)> {
        let words: String =
            command.iter().map(|word| format!("&command={}", word.replace('/', "%2F"))).collect();
        let began = Instant::now();
        let stream = self.dial(self.node).await?;
        let said = listen(stream, &format!("/exec/default/web/main?output=1{words}"), protocol).await?;
        Ok((began.elapsed(), said))
    }

    async fn by_proxy(&self, command: &[&str]) -> anyhow::Result<(Duration, u64)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = listener.local_addr()?;
        let began = Instant::now();
        let (address, path) = self.address(command).await?;
        let acceptor = self.acceptor.clone();
        let passing = tokio::spawn(async move {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let mut client = acceptor.accept(stream).await?;
            let mut runtime = TcpStream::connect(address).await?;
            runtime.set_nodelay(true)?;
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut runtime, 32 << 10, 32 << 10).await
        });
        let said = listen(self.dial(proxy).await?, &path, V4).await?;
        let took = began.elapsed();
        passing.abort();
        Ok((took, said))
    }

    async fn dial(&self, address: SocketAddr) -> anyhow::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(self.connector.connect(ServerName::IpAddress(address.ip().into()), stream).await?)
    }
}

/// One's way to the node as the cluster's administrator, whose certificate is among these.
pub(crate) fn connector(pki: &Path) -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (certificate, key) = identity(pki)?;
    let asking = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider)))
        .with_client_auth_cert(certificate, key)?;
    Ok(TlsConnector::from(Arc::new(asking)))
}

fn identity(pki: &Path) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificate = CertificateDer::from_pem_file(pki.join("admin.crt"))?;
    Ok((vec![certificate], PrivateKeyDer::from_pem_file(pki.join("admin.key"))?))
}

/// Asks for a WebSocket and hears it until the command has ended well; how much it said.
async fn listen<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    path: &str,
    protocol: &str,
) -> anyhow::Result<u64> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let (mut buffer, mut said, mut tail) = (vec![0; 64 << 10], 0_u64, Vec::new());
    loop {
        let count = timeout(PATIENCE, stream.read(&mut buffer)).await??;
        said += count as u64;
        tail.extend_from_slice(&buffer[count.saturating_sub(256)..count]);
        if tail.windows(SUCCESS.len()).any(|part| part == SUCCESS) {
            return Ok(said);
        }
        if count == 0 {
            bail!("{path}: {}", String::from_utf8_lossy(&tail));
        }
        tail.drain(..tail.len().saturating_sub(256));
    }
}
