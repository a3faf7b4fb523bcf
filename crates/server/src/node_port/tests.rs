//! The guard before every path, against what was recorded of the Go kubelet.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use crablet_client::{Body as Answered, Client, Lane, Transport, TransportError};
use crablet_host::clock::Clock;
use futures_util::stream;
use hyper::body::Bytes;
use hyper::{Request, Response};
use serde_json::{Value, json};

use super::*;
use crate::access::{AccessSettings, Authorities, Lasts};
use crate::testing::{Server, running_node};

/// For each method and path, what somebody without a right is told, and what the API server was asked before.
const REVIEWS: &str = include_str!("../../tests/data/golden/reviews.json");
const GOOD: &[&str] = &["Authorization: Bearer good"];

/// An API server that knows one token, allows what it is told to, and remembers what it was asked.
#[derive(Default)]
struct Reviewer {
    allowed: BTreeSet<&'static str>,
    is_away: bool,
    asked: Mutex<Vec<(String, Value)>>,
}

#[async_trait]
impl Transport for Reviewer {
    async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Answered>, TransportError> {
        let question: Value = serde_json::from_slice(request.body()).unwrap();
        let kind = question["kind"].as_str().unwrap().to_owned();
        self.asked.lock().unwrap().push((kind.clone(), question["spec"].clone()));
        let mut answer = question.clone();
        answer["status"] = match kind.as_str() {
            "TokenReview" if question["spec"]["token"] == "good" => {
                let user = "system:serviceaccount:server:<sa>";
                json!({"authenticated": true, "user": {"username": user, "groups": ["system:serviceaccounts"]}})
            }
            "TokenReview" => json!({"error": "invalid"}),
            _ if self.is_away => return Ok(Response::builder().status(400).body(body(&json!({}))).unwrap()),
            _ => {
                let wanted = question["spec"]["resourceAttributes"]["subresource"].as_str().unwrap();
                json!({"allowed": self.allowed.contains(wanted)})
            }
        };
        Ok(Response::new(body(&answer)))
    }
}

fn body(answer: &Value) -> Answered {
    Box::pin(stream::iter([Ok(Bytes::from(answer.to_string()))]))
}

impl Reviewer {
    fn that_allows(subresources: &[&'static str]) -> Arc<Reviewer> {
        Arc::new(Reviewer { allowed: subresources.iter().copied().collect(), ..Reviewer::default() })
    }

    /// What was asked since the last look, of one kind.
    fn take(&self, kind: &str) -> Vec<Value> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.into_iter().filter(|(asked, _)| asked == kind).map(|(_, spec)| spec).collect()
    }
}

async fn server(reviewer: &Arc<Reviewer>) -> Server {
    server_with(reviewer, true).await
}

async fn server_with(reviewer: &Arc<Reviewer>, has_debugging: bool) -> Server {
    let lasts = Lasts { allowed: Duration::from_secs(300), denied: Duration::from_secs(30) };
    let settings = AccessSettings {
        authorities: Authorities::default(),
        tokens: Some(Duration::from_secs(120)),
        allows_anonymous: false,
        reviews: Some(lasts),
    };
    let client = Client::new(Arc::clone(reviewer) as _, "test");
    let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
    let access = Access::new(settings, "<node>", Some(client), clock).unwrap();
    let (node, _) = running_node();
    let (_, logging) = crablet_logging::subscriber(Default::default(), std::io::sink());
    let kubelet_config = json!({"kind": "KubeletConfiguration"});
    let runtime = crablet_cri::Client::new("unix:///nonexistent.sock", None, Default::default()).unwrap();
    let container_logs = ContainerLogs {
        node: node.clone(),
        runtime: Arc::new(runtime.clone()),
        watcher: Default::default(),
        split_streams: false,
    };
    let node_logs = NodeLogSettings::default();
    let health = Health::new();
    let streamer = crablet_streams::Streamer::new(None, Default::default());
    let streams = Streams {
        node: node.clone(),
        runtime: Arc::new(runtime),
        streamer,
        extends_websockets: true,
        metrics: crate::StreamMetrics::new(&node.metrics.kubelet).unwrap(),
    };
    let port = NodePort {
        health,
        logging,
        node,
        access,
        kubelet_config,
        container_logs,
        node_logs,
        streams,
        has_debugging,
    };
    Server::start(node_router(port)).await
}

#[tokio::test]
async fn the_api_server_is_asked_what_upstream_asks_and_who_may_not_is_told_so() {
    let recorded: Vec<Value> = serde_json::from_str(REVIEWS).unwrap();
    assert!(recorded.len() > 30);
    for case in recorded {
        let (method, path) = (case["method"].as_str().unwrap(), case["path"].as_str().unwrap());
        let reviewer = Reviewer::that_allows(&[]);
        let answer = server(&reviewer).await.send(method, path, GOOD).await;
        let asked = reviewer.take("SubjectAccessReview");
        let expected = case["reviews"].as_array().unwrap();
        assert_eq!(asked.len(), expected.len(), "{method} {path}");
        for (asked, expected) in asked.iter().zip(expected) {
            assert_eq!(asked["resourceAttributes"], expected["resourceAttributes"], "{method} {path}");
            assert_eq!(asked["user"], "system:serviceaccount:server:<sa>");
            assert_eq!(asked["groups"], json!(["system:serviceaccounts", "system:authenticated"]));
        }
        assert_eq!(answer.status, case["status"], "{method} {path}");
        if method != "HEAD" {
            assert_eq!(answer.body, case["body"].as_str().unwrap(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn who_is_not_known_is_turned_away_and_nobody_is_asked_what_they_may() {
    let reviewer = Reviewer::that_allows(&["pods"]);
    let server = server(&reviewer).await;
    for headers in [&[][..], &["Authorization: Bearer bad"], &["Authorization: Basic good"]] {
        let answer = server.send("GET", "/pods", headers).await;
        assert_eq!((answer.status, answer.body.as_str()), (401, "Unauthorized"), "{headers:?}");
        assert!(answer.head.contains("content-type: text/plain; charset=utf-8\r\n"), "{}", answer.head);
    }
    assert_eq!(reviewer.take("SubjectAccessReview"), [Value::Null; 0]);
}

#[tokio::test]
async fn one_right_of_those_that_would_do_is_enough_and_answers_are_remembered() {
    for right in ["pods", "proxy"] {
        let reviewer = Reviewer::that_allows(&[right]);
        let server = server(&reviewer).await;
        for _ in 0..3 {
            assert_eq!(server.send("GET", "/pods", GOOD).await.status, 200, "{right}");
        }
        assert_eq!(server.send("GET", "/metrics", GOOD).await.status, 403, "{right}");
        let asked = reviewer.asked.lock().unwrap().len();
        assert_eq!(asked, 1 + if right == "pods" { 1 } else { 2 } + 1, "{right}");
    }
}

#[tokio::test]
async fn while_the_api_server_does_not_say_nothing_is_allowed() {
    let reviewer = Arc::new(Reviewer { is_away: true, ..Reviewer::default() });
    let answer = server(&reviewer).await.send("GET", "/stats/summary", GOOD).await;
    let expected = "Authorization error (user=system:serviceaccount:server:<sa>, verb=get, resource=nodes, subresource=stats)";
    assert_eq!((answer.status, answer.body.as_str()), (500, expected));
}

#[tokio::test]
async fn who_may_gets_what_there_is_and_is_told_what_there_is_not() {
    let reviewer = Reviewer::that_allows(&["pods", "proxy", "healthz", "configz", "metrics"]);
    let server = server(&reviewer).await;
    for (method, path, status, text) in [
        ("GET", "/pods", 200, "{\"apiVersion\":\"v1\",\"kind\":\"PodList\""),
        ("GET", "/pods/", 200, "{\"apiVersion\":\"v1\",\"kind\":\"PodList\""),
        ("POST", "/pods", 405, "405: Method Not Allowed"),
        ("GET", "/pods/x", 404, "404: Page Not Found"),
        ("GET", "/healthz", 200, "ok"),
        ("GET", "/healthz/ping", 200, "ok"),
        ("GET", "/configz", 200, "{\"kubeletconfig\":{\"kind\":\"KubeletConfiguration\"}}"),
        ("GET", "/debug/flags/v", 406, "unsupported http method\n"),
        ("GET", "/debug/pprof/heap", 501, "this kubelet is not written in Go"),
        ("GET", "/metrics/none", 404, "404: Page Not Found"),
    ] {
        let answer = server.send(method, path, GOOD).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.body.starts_with(text), "{method} {path}: {}", answer.body);
    }
}

#[tokio::test]
async fn without_debugging_handlers_nothing_shows_the_insides_of_containers() {
    let server = server_with(&Reviewer::that_allows(&["log", "pods", "proxy"]), false).await;
    for path in
        ["/containerLogs/a/b/c", "/exec/a/b/c", "/logs/", "/logs/x", "/debug/pprof/heap", "/runningpods/"]
    {
        let answer = server.send("GET", path, GOOD).await;
        assert_eq!((answer.status, answer.body.as_str()), (405, "Debug endpoints are disabled.\n"), "{path}");
    }
    assert_eq!(server.send("GET", "/pods", GOOD).await.status, 200);
}

#[tokio::test]
async fn a_switch_of_protocols_needs_the_same_right_as_anything_else() {
    let reviewer = Reviewer::that_allows(&["log", "pods", "stats", "metrics"]);
    let server = server(&reviewer).await;
    let paths = [
        "/exec/server/two/a?command=id&output=1",
        "/exec/server/two/uid/a?command=id&output=1",
        "/attach/server/two/a?output=1",
        "/attach/server/two/uid/a?output=1",
        "/portForward/server/two",
        "/portForward/server/two/uid",
        "/run/server/two/a?cmd=id",
        "/run/server/two/uid/a?cmd=id",
    ];
    let upgrades = [
        &["Connection: Upgrade", "Upgrade: SPDY/3.1"][..],
        &["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: v5.channel.k8s.io"],
        &["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"],
        &[],
    ];
    for path in paths {
        for upgrade in upgrades {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] {
                let answer = server.send(method, path, &[upgrade, GOOD].concat()).await;
                assert_eq!(answer.status, 403, "{method} {path} {upgrade:?}");
                assert_eq!(
                    server.send(method, path, upgrade).await.status,
                    401,
                    "{method} {path} {upgrade:?}"
                );
            }
        }
    }
    // With the right to it, there is no such pod.
    let server = server_with(&Reviewer::that_allows(&["proxy"]), true).await;
    for path in paths {
        let answer = server.send("POST", path, &[upgrades[0], GOOD].concat()).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, "pod does not exist"), "{path}");
    }
}
