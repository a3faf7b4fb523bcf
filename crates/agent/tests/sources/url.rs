//! Manifests from a web server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_agent::sources::{CONFIG_SOURCE, Settings, Sources, StaticPods, start};
use crablet_api::GoDuration;
use crablet_config::{Headers, KubeletConfiguration};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::support::*;

/// A server that says what it is told to, and remembers what it was asked.
struct Server {
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
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Server { port, answers, requests }
    }

    fn say(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/pods", self.port)
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
        (elsewhere("https://example.com"), "sent us on to an address that is an https URL"),
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
        ("https://a/b", "staticPodURL is an https URL, which this version cannot ask yet; accepted is http"),
        ("ftp://a/b", "staticPodURL has the scheme \"ftp\"; accepted is http"),
        ("nonsense", "staticPodURL is not a URL such as http://host:port/path"),
    ] {
        let settings =
            Settings { pods: StaticPods::new("node"), pushed: None, has_api: false, clock: clock() };
        let error = start(&config(url), settings).await.err().unwrap();
        assert_eq!(error.to_string(), expected);
    }
}
