//! Manifests from a web server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_agent::sources::{CONFIG_SOURCE, Settings, Sources, TrustStore, start};
use crablet_api::GoDuration;
use crablet_config::{Headers, KubeletConfiguration};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// The certificate of a server that is as it should be.
const GOOD: &str = include_str!("testdata/server.pem");

/// A server that says what it is told to, and remembers what it was asked.
struct Server {
    scheme: &'static str,
    port: u16,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
    requests: watch::Receiver<Vec<String>>,
}

#[derive(Clone)]
enum Answer {
    Body(Vec<u8>),
    Status(u16),
    Elsewhere(String),
    Silence,
}

impl Server {
    async fn start() -> Server {
        Server::serving(None).await
    }

    /// One that shows this certificate. Those of `testdata` are for 127.0.0.1 and signed by its authority.
    async fn secure(certificate: &str) -> Server {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate], key).unwrap();
        Server::serving(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serving(tls: Option<TlsAcceptor>) -> Server {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new(Mutex::new(BTreeMap::<String, Answer>::new()));
        let (asked, requests) = watch::channel(Vec::new());
        let (table, asked) = (answers.clone(), Arc::new(asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (table, asked) = (table.clone(), asked.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let header = |name: &str| {
                        let value = request.headers().get(name);
                        value.map_or("-".to_owned(), |value| value.to_str().unwrap().to_owned())
                    };
                    let path = request.uri().to_string();
                    let line = format!("{path} {} {}", header("x-secret"), header("authorization"));
                    asked.send_modify(|requests| requests.push(line));
                    let answer = table.lock().unwrap().get(&path).cloned();
                    async move {
                        let response = Response::builder();
                        let response = match answer {
                            None => response.status(404).body(Full::default()),
                            Some(Answer::Body(body)) => response.body(Full::new(Bytes::from(body))),
                            Some(Answer::Status(status)) => response.status(status).body(Full::default()),
                            Some(Answer::Elsewhere(location)) => {
                                response.status(302).header("location", location).body(Full::default())
                            }
                            Some(Answer::Silence) => std::future::pending().await,
                        };
                        Ok::<_, std::convert::Infallible>(response.unwrap())
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let tls = tls.clone();
                tokio::spawn(async move {
                    // Somebody who does not trust us, or goes away, ends the connection alone.
                    match tls {
                        None => drop(connection.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                            }
                        }
                    }
                });
            }
        });
        Server { scheme, port, answers, requests }
    }

    fn say(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/pods", self.scheme, self.port)
    }

    /// Waits until it was asked so many times more.
    async fn asked(&mut self, times: usize) {
        let before = self.requests.borrow().len();
        let waited = self.requests.wait_for(|requests| requests.len() >= before + times);
        tokio::time::timeout(LONG, waited).await.unwrap().unwrap();
    }
}

fn list(pods: &[&str]) -> Answer {
    let item = |name: &&str| {
        format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}}"#)
    };
    let items: Vec<String> = pods.iter().map(item).collect();
    Answer::Body(format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#, items.join(",")).into())
}

fn config(url: &str) -> KubeletConfiguration {
    KubeletConfiguration {
        static_pod_url: url.into(),
        static_pod_url_header: Headers([("X-Secret".into(), vec!["s3cret".into()])].into()),
        http_check_frequency: GoDuration::from_millis(100),
        ..KubeletConfiguration::default()
    }
}

async fn reading(server: &Server) -> Sources {
    started(&config(&server.url()), None).await
}

#[tokio::test]
async fn pods_come_change_and_go_with_the_answer() {
    let mut server = Server::start().await;
    server.say("/pods", Answer::Body(manifest("a", "one").into()));
    let mut sources = reading(&server).await;
    let change = next_change(&mut sources).await;
    assert_eq!(shown(&change), "ADD default/a-node");
    assert_eq!(change.pod().metadata.annotations[CONFIG_SOURCE], "http");
    assert_eq!(change.pod().spec.tolerations.len(), 0);
    server.say("/pods", list(&["b", "c"]));
    assert_eq!(next(&mut sources).await, "REMOVE default/a-node");
    assert_eq!(next(&mut sources).await, "ADD default/b-node");
    assert_eq!(next(&mut sources).await, "ADD default/c-node");
    server.say("/pods", list(&["c"]));
    assert_eq!(next(&mut sources).await, "REMOVE default/b-node");
    // The same answer again and again changes nothing.
    server.asked(3).await;
    server.say("/pods", list(&[]));
    assert_eq!(next(&mut sources).await, "REMOVE default/c-node");
    assert_eq!(problems(&sources, 0).await, [""; 0]);
}

#[tokio::test]
async fn headers_are_sent_and_not_told_to_others() {
    let (server, other) = (Server::start().await, Server::start().await);
    server.say("/pods", Answer::Elsewhere("/moved".into()));
    server.say("/moved", Answer::Elsewhere(other.url()));
    other.say("/pods", list(&["a"]));
    let url = format!("http://user:pass@127.0.0.1:{}/pods", server.port);
    let mut sources = started(&config(&url), None).await;
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    assert_eq!(
        server.requests.borrow()[..2],
        ["/pods s3cret Basic dXNlcjpwYXNz", "/moved s3cret Basic dXNlcjpwYXNz"]
    );
    assert_eq!(other.requests.borrow()[0], "/pods - -");
}

#[tokio::test]
async fn pods_come_by_tls_from_a_server_that_can_be_trusted() {
    let mut server = Server::secure(GOOD).await;
    server.say("/pods", list(&["a"]));
    let mut sources = reading(&server).await;
    let change = next_change(&mut sources).await;
    assert_eq!(shown(&change), "ADD default/a-node");
    assert_eq!(change.pod().metadata.annotations[CONFIG_SOURCE], "http");
    server.asked(3).await;
    server.say("/pods", list(&[]));
    assert_eq!(next(&mut sources).await, "REMOVE default/a-node");
    assert_eq!(server.requests.borrow()[0], "/pods s3cret -");
    assert_eq!(problems(&sources, 0).await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_told_nothing() {
    let good = Server::secure(GOOD).await;
    let expired = Server::secure(include_str!("testdata/expired.pem")).await;
    let plain = Server::start().await;
    let strange = TrustStore::from_variables(|_| {
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/src/prober/testdata/cert.pem").into())
    });
    let nobody = TrustStore::from_variables(|_| Some("/nonexistent".into()));
    let url = |host: &str, server: &Server| format!("https://{host}:{}/pods", server.port);
    for (url, trust, expected) in [
        (good.url(), strange, "the certificate of 127.0.0.1 is signed by an unknown authority"),
        (
            good.url(),
            nobody,
            "cannot be asked by TLS: there is no certificate of an authority in /nonexistent, /nonexistent; \
             SSL_CERT_FILE and SSL_CERT_DIR may name other places",
        ),
        (url("localhost", &good), settings().trust, "the certificate of localhost is for other names"),
        (expired.url(), settings().trust, "the certificate of 127.0.0.1 has expired"),
        (
            url("127.0.0.1", &plain),
            settings().trust,
            "127.0.0.1 does not speak TLS; if that is meant, its URL begins with http://",
        ),
    ] {
        let sources = start(&config(&url), Settings { trust, ..settings() }).await.unwrap();
        assert_eq!(problems(&sources, 1).await, [format!("{url}: {expected} [Ignored]")]);
    }
    for server in [good, expired, plain] {
        assert_eq!(*server.requests.borrow(), [""; 0]);
    }
}

#[tokio::test]
async fn a_server_may_send_us_on_to_tls_and_from_it() {
    let (first, secure, last) = (Server::start().await, Server::secure(GOOD).await, Server::start().await);
    first.say("/pods", Answer::Elsewhere(secure.url()));
    secure.say("/pods", Answer::Elsewhere(last.url()));
    last.say("/pods", list(&["a"]));
    let mut sources = reading(&first).await;
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    // That it is the same host was proven by the second alone.
    assert_eq!(first.requests.borrow()[0], "/pods s3cret -");
    assert_eq!(secure.requests.borrow()[0], "/pods s3cret -");
    assert_eq!(last.requests.borrow()[0], "/pods - -");
}

#[tokio::test]
async fn what_goes_wrong_is_said_once_and_the_last_good_answer_stays_in_force() {
    let mut server = Server::start().await;
    server.say("/pods", list(&["a"]));
    let mut sources = reading(&server).await;
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    let reports = sources.problems.reports();
    let mut expected_reports = 0;
    let elsewhere = |location: &str| Answer::Elsewhere(location.to_owned());
    for (answer, expected) in [
        (Answer::Status(500), "answered 500 Internal Server Error"),
        (Answer::Status(204), "answered 204 No Content"),
        (Answer::Body(vec![]), "gave an empty answer; no pods are an empty PodList"),
        (Answer::Body(vec![b' '; 11 << 20]), "gave an answer of more than 10485760 bytes"),
        (Answer::Body(b"\xff".to_vec()), "is not UTF-8 text"),
        (Answer::Body(b"<html>".to_vec()), "expected a mapping, found text"),
        (Answer::Body(manifest("a", "''").into()), "spec.containers[0].image: Required value"),
        (list(&["b", "B", ""]), "items[1].metadata.name: Invalid value: \"B-node\""),
        (elsewhere("ftp://example.com"), "sent us on to an address that has the scheme \"ftp\""),
        (elsewhere("/pods"), "sent us on to somewhere else more than 10 times"),
    ] {
        server.say("/pods", answer);
        let mut waiting = sources.problems.reports();
        let found = || sources.problems.list().iter().any(|problem| problem.message.starts_with(expected));
        let waited = tokio::time::timeout(LONG, waiting.wait_for(|_| found())).await;
        assert!(waited.is_ok(), "{expected}: {:?}", sources.problems.list());
        server.asked(if expected.contains("10 times") { 12 } else { 3 }).await;
        expected_reports += 1;
        assert_eq!(*reports.borrow(), expected_reports, "{:?}", sources.problems.list());
        assert!(sources.problems.list().iter().all(|problem| !problem.to_string().contains("s3cret")));
    }
    server.say("/pods", list(&["a", "b"]));
    assert_eq!(next(&mut sources).await, "ADD default/b-node");
    assert_eq!(problems(&sources, 0).await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_waited_for() {
    let server = Server::start().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sources = started(&config(&format!("http://{gone}/pods?token=s3cret")), None).await;
    let expected = format!(
        "http://{gone}/pods?<masked>: cannot be reached: Connection refused (os error 111) [Ignored]"
    );
    assert_eq!(problems(&sources, 1).await, [expected]);
    assert!(!sources.ready.is_ready());

    let mut sources = reading(&server).await;
    assert_eq!(problems(&sources, 1).await.len(), 1);
    server.say("/pods", Answer::Body(vec![]));
    // It was heard, though it said nothing.
    ready_without_pods(&mut sources).await;
    server.say("/pods", list(&["a"]));
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_after_ten_seconds() {
    let mut server = Server::start().await;
    server.say("/pods", Answer::Silence);
    let sources = reading(&server).await;
    server.asked(1).await;
    tokio::time::pause();
    let url = server.url();
    assert_eq!(
        problems_within(&sources, Duration::from_secs(11)).await,
        [format!("{url}: did not answer within 10s [Ignored]")]
    );
}

async fn problems_within(sources: &Sources, time: Duration) -> Vec<String> {
    let mut reports = sources.problems.reports();
    tokio::time::timeout(time, reports.changed()).await.unwrap().unwrap();
    problems(sources, 1).await
}

#[tokio::test]
async fn a_url_that_cannot_be_asked_is_refused_at_the_start() {
    for (url, expected) in [
        ("ftp://a/b", "staticPodURL has the scheme \"ftp\"; accepted are http and https"),
        ("nonsense", "staticPodURL is not a URL such as http://host:port/path"),
    ] {
        let error = start(&config(url), settings()).await.err().unwrap();
        assert_eq!(error.to_string(), expected);
    }
}
