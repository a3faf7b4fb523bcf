//! A server that tells who asked on which connection, and does what tests need.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crablet_apiserver::pki::{Identity, Pki};
use crablet_client::{ClientCertificate, Cluster, Kubeconfig, Pem, User};
use crablet_host::clock::Clock;
use futures_util::{StreamExt as _, stream};
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// What a server is like.
pub struct Manner {
    pub most_streams: u32,
    pub protocols: &'static [&'static str],
    pub tls: bool,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner { most_streams: 100, protocols: &["h2", "http/1.1"], tls: true }
    }
}

pub struct Server {
    pub directory: TempDir,
    pub pki: Pki,
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    connections: AtomicUsize,
    /// What watches tell.
    news: watch::Sender<u32>,
    /// Of each connection.
    shutdowns: Mutex<Vec<CancellationToken>>,
    /// The only token that is known, if there is one.
    token: Mutex<Option<String>>,
}

impl Server {
    pub async fn start(manner: Manner) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let names = BTreeSet::from(["127.0.0.1".to_owned(), "kubernetes".to_owned()]);
        let pki = Pki::open(&directory.path().join("pki"), &names, Clock::system().now()).unwrap();
        let acceptor = manner.tls.then(|| acceptor(&pki, manner.protocols));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            connections: AtomicUsize::new(0),
            news: watch::Sender::new(0),
            shutdowns: Mutex::default(),
            token: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    match acceptor {
                        None => {
                            serve(stream, false, manner.most_streams, number, "nobody".to_owned(), state)
                                .await
                        }
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            let session = stream.get_ref().1;
                            let who = match session.peer_certificates() {
                                Some([leaf, ..]) => digest(leaf),
                                Some([]) | None => "nobody".to_owned(),
                            };
                            let is_http2 = session.alpn_protocol() == Some(b"h2");
                            serve(stream, is_http2, manner.most_streams, number, who, state).await;
                        }
                    }
                });
            }
        });
        Server { directory, pki, address, state }
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Every watch tells this.
    pub fn tell(&self, news: u32) {
        self.state.news.send_replace(news);
    }

    /// Lets all connections finish what is under way, and take nothing more.
    pub fn shut_connections_down(&self) {
        self.state.shutdowns.lock().unwrap().iter().for_each(CancellationToken::cancel);
    }

    /// From now on only who has this token is known.
    pub fn know(&self, token: &str) {
        *self.state.token.lock().unwrap() = Some(token.to_owned());
    }

    /// Of somebody without a certificate.
    pub fn kubeconfig(&self) -> Kubeconfig {
        let authority = self.pki.keys.authority().certificate();
        let cluster = Cluster {
            server: format!("https://{}", self.address),
            certificate_authority: Some(Pem::Data(authority.into())),
            ..Cluster::default()
        };
        Kubeconfig { cluster, user: User::default(), namespace: String::new() }
    }

    /// With a certificate and key in a file, which is overwritten with those of somebody.
    pub fn kubeconfig_with(&self, identity: &Identity) -> Kubeconfig {
        let path = self.directory.path().join("client.pem");
        write_identity(&path, identity);
        let pem = Pem::File(path);
        let client_certificate = Some(ClientCertificate { certificate: pem.clone(), key: pem });
        Kubeconfig { user: User { client_certificate, ..User::default() }, ..self.kubeconfig() }
    }
}

pub fn write_identity(path: &Path, identity: &Identity) {
    std::fs::write(path, format!("{}{}", identity.certificate, identity.key)).unwrap();
}

/// What the server calls who shows a certificate.
pub fn name_of(identity: &Identity) -> String {
    digest(&CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap())
}

fn digest(certificate: &CertificateDer<'_>) -> String {
    certificate.iter().rev().take(8).map(|byte| format!("{byte:02x}")).collect()
}

pub fn acceptor(pki: &Pki, protocols: &[&str]) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    let authority = pki.keys.authority().certificate();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_slice(pki.serving.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pki.serving.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve<S>(stream: S, is_http2: bool, most_streams: u32, number: usize, who: String, state: Arc<State>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shutdown = CancellationToken::new();
    state.shutdowns.lock().unwrap().push(shutdown.clone());
    let service = service_fn(move |request| {
        let (state, who) = (Arc::clone(&state), who.clone());
        async move { Ok::<_, Infallible>(answer(&request, number, &who, &state).await) }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let mut connection = std::pin::pin!(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(most_streams)
                .serve_connection(io, service)
        );
        tokio::select! {
            _ = connection.as_mut() => return,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let mut connection =
            std::pin::pin!(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(
    request: &Request<Incoming>,
    number: usize,
    who: &str,
    state: &Arc<State>,
) -> Response<AnswerBody> {
    let authorization = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let known = state.token.lock().unwrap().clone();
    if let Some(known) = known
        && authorization.as_deref() != Some(&format!("Bearer {known}"))
    {
        return Response::builder().status(StatusCode::UNAUTHORIZED).body(whole("")).unwrap();
    }
    match request.uri().path() {
        "/watch" => {
            let mut news = state.news.subscribe();
            news.mark_unchanged();
            let lines = stream::unfold(news, |mut news| async {
                news.changed().await.ok()?;
                let line = format!("{}\n", *news.borrow_and_update());
                Some((Ok(Frame::data(Bytes::from(line))), news))
            });
            let lines: Pin<Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>> =
                Box::pin(lines);
            Response::new(StreamBody::new(lines).boxed_unsync())
        }
        "/hang" => std::future::pending().await,
        "/busy" => Response::builder().status(429).header("retry-after", "7").body(whole("")).unwrap(),
        path => Response::new(whole(&format!("{path} {number} {who}"))),
    }
}

fn whole(text: &str) -> AnswerBody {
    let parts = [Ok(Frame::data(Bytes::from(text.to_owned())))];
    StreamBody::new(stream::iter(parts).boxed()).boxed_unsync()
}
