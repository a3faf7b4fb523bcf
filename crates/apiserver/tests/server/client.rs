//! A client: one connection for each request.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    pub http2: bool,
    pub headers: Vec<(&'static str, String)>,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

impl Client {
    /// One that trusts the authority in a directory.
    pub fn new(address: SocketAddr, pki: &Path) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap()).unwrap();
        Client { address, roots: Arc::new(roots), identity: None, http2: true, headers: Vec::new() }
    }

    pub fn with_certificate(mut self, pki: &Path, name: &str) -> Client {
        let read = |kind: &str| std::fs::read(pki.join(format!("{name}.{kind}"))).unwrap();
        self.identity = Some((read("crt"), read("key")));
        self
    }

    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Client {
        self.headers.push((name, value.into()));
        self
    }

    pub fn http1(mut self) -> Client {
        self.http2 = false;
        self
    }

    pub async fn connect(&self) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().unwrap();
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = vec![if self.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("kubernetes.default.svc").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    pub fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(format!("https://{}{path}", self.address));
        if !self.http2 {
            request = request.uri(path).header("host", "kubernetes.default.svc");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::from(body.into())).unwrap()
    }

    /// Sends a request on a new connection. What comes back is read by the caller.
    pub async fn begin<B>(&self, request: Request<B>) -> hyper::Result<Response<Incoming>>
    where
        B: hyper::body::Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let io = TokioIo::new(self.connect().await);
        if self.http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
            tokio::spawn(connection.with_upgrades());
            sender.send_request(request).await
        }
    }

    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> hyper::Result<Answer> {
        let response = self.begin(self.request(method, path, body)).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_send(method, path, body).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let client = self.clone().with_header("content-type", "application/json");
        client.send(Method::POST, path, body.to_string()).await
    }
}
