//! A client of an API server: connections over TLS, one request at a time on each.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where a server is, and who one is to it.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    pub(crate) connector: TlsConnector,
}

/// A connection to it.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Access {
    /// Reads a kubeconfig that an API server wrote.
    pub(crate) fn read(kubeconfig: &Path) -> anyhow::Result<Access> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let field = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name));
            values.next().map(str::trim).with_context(|| format!("no {name} in {}", kubeconfig.display()))
        };
        let pem = |name: &str| anyhow::Ok(STANDARD.decode(field(name)?)?);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("certificate-authority-data:")?)?)?;
        let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data:")?)?;
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        let address = field("server: https://")?.parse()?;
        Ok(Access { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// A connection to an address that the server's certificate is for.
    pub(crate) async fn dial(&self, address: SocketAddr) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(self.connector.connect(ServerName::IpAddress(address.ip().into()), stream).await?)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let (sender, connection) = handshake(TokioIo::new(self.dial(self.address).await?)).await?;
        // It ends when the sender is dropped; what goes wrong is told to who sends.
        tokio::spawn(connection);
        Ok(Connection(sender))
    }
}

impl Connection {
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.send(Method::GET, path, "", String::new()).await
    }

    pub(crate) async fn create(&mut self, path: &str, object: String) -> anyhow::Result<Bytes> {
        self.send(Method::POST, path, "application/json", object).await
    }

    pub(crate) async fn merge(&mut self, path: &str, patch: String) -> anyhow::Result<Bytes> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Merges lists by the names of what is in them.
    pub(crate) async fn merge_strategically(&mut self, path: &str, patch: String) -> anyhow::Result<Bytes> {
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", patch).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.send(Method::DELETE, path, "", String::new()).await
    }

    /// The body of an answer that does not end.
    pub(crate) async fn follow(&mut self, path: &str) -> anyhow::Result<Incoming> {
        Ok(self.0.send_request(request(Method::GET, path, "", String::new())?).await?.into_body())
    }

    async fn send(&mut self, method: Method, path: &str, kind: &str, body: String) -> anyhow::Result<Bytes> {
        self.0.ready().await?;
        let answer = self.0.send_request(request(method, path, kind, body)?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

fn request(method: Method, path: &str, kind: &str, body: String) -> anyhow::Result<Request<Full<Bytes>>> {
    let request = Request::builder().method(method).uri(path).header("host", "server");
    let request = if kind.is_empty() { request } else { request.header("content-type", kind) };
    Ok(request.body(Full::new(body.into()))?)
}
