//! The main port over TLS, with clients who mean no good: each is refused or bounded, and nobody else waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crablet_x509::{AlternativeName, AnyServer, Authority, KeyPair, Purpose, Subject};
use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ProtocolVersion, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tls::{TlsSettings, tls_config};

const NOW: &str = "2026-11-15T03:46:00Z";
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The main port on a real socket.
struct Port {
    address: SocketAddr,
    stop: CancellationToken,
    authority: Authority,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn authority(name: &str) -> Authority {
    Authority::make(KeyPair::generate().unwrap(), name, &[], now() - YEAR, YEAR * 3).unwrap()
}

/// A certificate and its key, of somebody in the group that may do everything.
fn issued(by: &Authority, purpose: Purpose, from: Timestamp, lasts: SignedDuration) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let subject = Subject { name: "somebody", groups: &["system:masters"] };
    let names = [AlternativeName::of("127.0.0.1")];
    let certificate = by.issue(key.public(), subject, &names, purpose, from, lasts).unwrap();
    (certificate, key.to_pkcs8_pem().unwrap())
}

fn certified((certificate, key): &(String, String)) -> CertifiedKey {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    CertifiedKey::new(chain, aws_lc_rs::sign::any_supported_type(&key).unwrap())
}

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for One {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

async fn start(transport: Arc<dyn Transport>) -> Port {
    start_with(transport, TlsSettings::default()).await
}

async fn start_with(transport: Arc<dyn Transport>, settings: TlsSettings<'_>) -> Port {
    let authority = authority("clients");
    let authorities = Authorities::default();
    authorities.set(authority.certificate().as_bytes()).unwrap();
    let router = node_router(port(transport, authorities, Some(debugging()))).unwrap();
    let served = certified(&issued(&authority, Purpose::Server, now(), YEAR));
    let config = tls_config(settings, Arc::new(One(Arc::new(served)))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(crate::serve_tls(listener, config, router, stop.clone().cancelled_owned()));
    Port { address, stop, authority }
}

impl Port {
    async fn connect(&self, shows: Option<&(String, String)>) -> TlsStream<TcpStream> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider)));
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap);
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.collect(), key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// The status and the text of an answer to a request on a connection of its own.
    async fn get(&self, shows: Option<&(String, String)>, path: &str, headers: &str) -> (u16, String) {
        let mut stream = self.connect(shows).await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        // Who closes without a word of TLS has still answered.
        let _ = stream.read_to_end(&mut text).await;
        let text = String::from_utf8_lossy(&text).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }
}

/// What a handshake comes to in which only this version and these suites are offered, or the alert that it is refused with.
async fn shakes_hands(
    port: &Port,
    version: &'static SupportedProtocolVersion,
    suites: &[CipherSuite],
) -> Result<(ProtocolVersion, CipherSuite), String> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suites.contains(&suite.suite()));
    let provider = Arc::new(provider);
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider)))
        .with_no_client_auth();
    let stream = TcpStream::connect(port.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let (_, connection) = stream.get_ref();
    Ok((connection.protocol_version().unwrap(), connection.negotiated_cipher_suite().unwrap().suite()))
}

const OLDER: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
const OTHER_OLDER: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
const NEWER: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;

#[tokio::test]
async fn a_version_below_the_least_one_is_refused() {
    let reviewer = || Reviewer::that_allows(&[]);
    let usual = start(reviewer()).await;
    let older = shakes_hands(&usual, &TLS12, &[OLDER]).await;
    assert_eq!(older, Ok((ProtocolVersion::TLSv1_2, OLDER)));
    let newest = TlsSettings { min_version: "VersionTLS13", ..TlsSettings::default() };
    let newest = start_with(reviewer(), newest).await;
    let refused = shakes_hands(&newest, &TLS12, &[OLDER]).await.unwrap_err();
    assert!(refused.contains("ProtocolVersion"), "{refused}");
    assert_eq!(shakes_hands(&newest, &TLS13, &[NEWER]).await, Ok((ProtocolVersion::TLSv1_3, NEWER)));
}

#[tokio::test]
async fn a_cipher_suite_that_is_not_listed_is_refused() {
    let suites = [format!("{OLDER:?}").into()];
    let settings = TlsSettings { cipher_suites: &suites, ..TlsSettings::default() };
    let port = start_with(Reviewer::that_allows(&[]), settings).await;
    let refused = shakes_hands(&port, &TLS12, &[OTHER_OLDER]).await.unwrap_err();
    assert!(refused.contains("HandshakeFailure"), "{refused}");
    let both = shakes_hands(&port, &TLS12, &[OTHER_OLDER, OLDER]).await;
    assert_eq!(both, Ok((ProtocolVersion::TLSv1_2, OLDER)));
    // The newer suites are not chosen among, as upstream.
    assert_eq!(shakes_hands(&port, &TLS13, &[NEWER]).await, Ok((ProtocolVersion::TLSv1_3, NEWER)));
}

/// The descriptors of this process that are sockets.
fn open_sockets() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Waits until as few sockets and tasks are left as there were.
async fn as_before(sockets: usize, tasks: usize) {
    let begun = Instant::now();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    while open_sockets() > sockets || alive() > tasks {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} sockets, {} tasks", open_sockets(), alive());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn only_certificates_of_our_authority_that_last_are_believed() {
    let reviewer = Reviewer::that_allows(&["pods"]);
    let port = start(Arc::clone(&reviewer) as _).await;
    let good = issued(&port.authority, Purpose::Client, now(), YEAR);
    assert_eq!(port.get(Some(&good), "/pods", "").await.0, 200);
    let (sockets, tasks) = (open_sockets(), tasks());
    let hour = SignedDuration::from_hours(1);
    for (what, shown) in [
        ("another authority's", issued(&authority("clients"), Purpose::Client, now(), YEAR)),
        ("expired", issued(&port.authority, Purpose::Client, now() - hour * 48, hour)),
        ("not valid yet", issued(&port.authority, Purpose::Client, now() + hour * 48, hour)),
        ("a server's", issued(&port.authority, Purpose::Server, now(), YEAR)),
    ] {
        reviewer.take("");
        let answer = port.get(Some(&shown), "/pods", "").await;
        assert_eq!(answer, (401, "Unauthorized".to_owned()), "{what}");
        assert_eq!(reviewer.take("SubjectAccessReview"), [Value::Null; 0], "{what}");
    }
    as_before(sockets, tasks).await;
}

#[tokio::test]
async fn a_token_that_is_not_for_us_is_refused() {
    // The server says so by not saying whose it is: a token for somebody else is not authenticated here.
    let reviewer = Reviewer::that_allows(&["pods"]);
    let port = start(Arc::clone(&reviewer) as _).await;
    assert_eq!(port.get(None, "/pods", "Authorization: Bearer good\r\n").await.0, 200);
    let answer = port.get(None, "/pods", "Authorization: Bearer for-another-audience\r\n").await;
    assert_eq!(answer, (401, "Unauthorized".to_owned()));
    let asked = reviewer.take("TokenReview");
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|spec| spec.get("audiences").is_none()), "{asked:?}");
}

/// An API server that takes questions about strangers and never answers.
#[derive(Default)]
struct Hanging {
    asked: AtomicUsize,
}

#[async_trait]
impl Transport for Hanging {
    async fn send(&self, _: Request<Bytes>, _: Lane) -> Result<Response<Answered>, TransportError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_reviewer_that_hangs_holds_up_nobody_who_need_not_be_asked_about_and_leaves_nothing() {
    let hanging = Arc::new(Hanging::default());
    let port = start(Arc::clone(&hanging) as _).await;
    let warm = port.connect(None).await;
    drop(warm);
    let (sockets, tasks) = (open_sockets(), tasks());
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut stream = port.connect(None).await;
        let request = "GET /pods HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer same\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let begun = Instant::now();
    while hanging.asked.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Somebody without a token is turned away, and what is not there is not there, while the others wait.
    assert_eq!(port.get(None, "/pods", "").await.0, 401);
    assert_eq!(port.get(None, "/nothing", "").await.0, 404);
    let [waits, ..] = &mut *waiting else { unreachable!("there are fifty") };
    assert!(waits.read_u8().now_or_never().is_none(), "nobody was answered");
    assert_eq!(hanging.asked.load(Ordering::Relaxed), 1, "many who ask the same are one question");
    // Who waits and goes takes everything along.
    drop(waiting);
    as_before(sockets, tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_that_hangs_is_given_up_after_a_while() {
    let begun = Instant::now();
    let hanging = Arc::new(Hanging::default());
    let port = port(Arc::clone(&hanging) as _, Authorities::default(), Some(debugging()));
    let router = node_router(port).unwrap();
    let request = Request::get("/pods").header("Authorization", "Bearer x").body(axum::body::Body::empty());
    let answer = tower::ServiceExt::oneshot(router, request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 401);
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let port = start(Reviewer::that_allows(&["pods"])).await;
    let large = format!("X: {}\r\n", "x".repeat(200 << 10));
    let (status, _) = port.get(None, "/pods", &large).await;
    assert!(status == 431 || status == 0, "{status}");
    let many: String = (0..5000).map(|number| format!("X-{number}: y\r\n")).collect();
    let (status, _) = port.get(None, "/pods", &many).await;
    assert!(status == 431 || status == 0, "{status}");
    assert_eq!(port.get(None, "/pods", "Authorization: Bearer good\r\n").await.0, 200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_where_one_is_read() {
    let port = start(Reviewer::that_allows(&["proxy"])).await;
    let mut stream = port.connect(None).await;
    let body = vec![b'1'; LARGEST_FLAG + 1];
    let length = body.len();
    let head = format!(
        "PUT /debug/flags/v HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer good\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn who_never_speaks_and_who_never_reads_hold_up_nobody() {
    let port = start(Reviewer::that_allows(&["metrics", "pods"])).await;
    drop(port.connect(None).await);
    let (sockets, tasks) = (open_sockets(), tasks());
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(port.address).await.unwrap());
    }
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut stream = port.connect(None).await;
        // Many requests at once, whose answers nobody takes.
        let request = "GET /pods HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer good\r\n\r\n".repeat(50);
        stream.write_all(request.as_bytes()).await.unwrap();
        greedy.push(stream);
    }
    assert_eq!(port.get(None, "/pods", "Authorization: Bearer good\r\n").await.0, 200);
    assert!(silent[0].read_u8().now_or_never().is_none(), "nobody had to be given up for it");
    drop((silent, greedy));
    as_before(sockets, tasks).await;
}
