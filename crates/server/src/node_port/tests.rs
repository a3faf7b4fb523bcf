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

/// Everything that there is to debug with.
fn debugging() -> Debugging {
    let flags: [(&str, std::borrow::Cow<'static, str>); 1] = [("v", "0".into())];
    let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
    let started_at = clock.now();
    Debugging {
        profiling: true,
        flags_handler: true,
        checkpoints: Some(ContainerCheckpoints {
            node: running_node().0,
            runtime: Arc::new(
                crablet_cri::Client::new("unix:///none.sock", None, Default::default()).unwrap(),
            ),
            folder: "/nonexistent".into(),
        }),
        flagz: Some(flags.into()),
        statusz: Some(Status::new(clock, started_at, "1.36.4")),
    }
}

async fn server(reviewer: &Arc<Reviewer>) -> Server {
    server_with(reviewer, Some(debugging())).await
}

async fn server_with(reviewer: &Arc<Reviewer>, debugging: Option<Debugging>) -> Server {
    Server::start(node_router(port(Arc::clone(reviewer) as _, Authorities::default(), debugging)).unwrap())
        .await
}

/// A node whose API server is reached by `transport`.
fn port(transport: Arc<dyn Transport>, authorities: Authorities, debugging: Option<Debugging>) -> NodePort {
    let lasts = Lasts { allowed: Duration::from_secs(300), denied: Duration::from_secs(30) };
    let settings = AccessSettings {
        authorities,
        tokens: Some(Duration::from_secs(120)),
        allows_anonymous: false,
        reviews: Some(lasts),
        metrics: Default::default(),
    };
    let client = Client::new(transport, "test");
    let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
    let access = Access::new(settings, "<node>", Some(client), clock).unwrap();
    let (node, _) = running_node();
    let (_, logging) = crablet_logging::subscriber(Default::default(), std::io::sink());
    let kubelet_config = json!({"kind": "KubeletConfiguration"});
    let runtime = crablet_cri::Client::new("unix:///nonexistent.sock", None, Default::default()).unwrap();
    let runtime = Arc::new(runtime);
    let container_logs = ContainerLogs {
        node: node.clone(),
        runtime: Arc::clone(&runtime) as _,
        watcher: Default::default(),
        split_streams: false,
    };
    let node_logs = NodeLogSettings::default();
    let health = Health::new().with_check("log", || Ok(())).with_check("syncloop", || Ok(()));
    let streams = Streams {
        node: node.clone(),
        runtime: Arc::clone(&runtime) as _,
        streamer: crablet_streams::Streamer::new(None, Default::default()),
        extends_websockets: true,
        metrics: crate::StreamMetrics::new(&node.metrics.kubelet).unwrap(),
    };
    NodePort {
        health,
        logging,
        node,
        access,
        runtime,
        kubelet_config,
        container_logs,
        node_logs,
        streams,
        debugging,
    }
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
        ("GET", "/healthz/syncloop", 200, "ok"),
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
    let reviewer = Reviewer::that_allows(&["log", "pods", "proxy"]);
    let server = server_with(&reviewer, None).await;
    for path in [
        "/containerLogs/a/b/c",
        "/exec/a/b/c",
        "/attach/a/b/c",
        "/run/a/b/c",
        "/portForward/a/b",
        "/logs/",
        "/logs/x",
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/runningpods/",
    ] {
        let answer = server.send("GET", path, GOOD).await;
        assert_eq!((answer.status, answer.body.as_str()), (405, "Debug endpoints are disabled.\n"), "{path}");
    }
    assert_eq!(server.send("GET", "/pods", GOOD).await.status, 200);
    reviewer.take("");
    for path in ["/configz", "/flagz", "/statusz", "/checkpoint/a/b/c"] {
        let answer = server.send("GET", path, GOOD).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, "404 page not found\n"), "{path}");
    }
    assert_eq!(
        reviewer.take("SubjectAccessReview"),
        [Value::Null; 0],
        "nobody is asked about what there is not"
    );
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
    let server = server_with(&Reviewer::that_allows(&["proxy"]), Some(debugging())).await;
    for path in paths {
        let answer = server.send("POST", path, &[upgrades[0], GOOD].concat()).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, "pod does not exist"), "{path}");
    }
}

#[tokio::test]
async fn a_token_that_the_server_could_not_judge_is_asked_about_anew_and_websockets_may_bring_one() {
    let reviewer = Reviewer::that_allows(&["pods"]);
    let server = server(&reviewer).await;
    for _ in 0..2 {
        assert_eq!(server.send("GET", "/pods", &["Authorization: Bearer bad"]).await.status, 401);
    }
    assert_eq!(reviewer.asked.lock().unwrap().len(), 2, "an error is not remembered");
    let token = "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.Z29vZA, v4.channel.k8s.io";
    for (headers, status) in
        [(&["Upgrade: websocket", "Connection: Upgrade", token][..], 200), (&[token], 401)]
    {
        assert_eq!(server.send("GET", "/pods", headers).await.status, status);
    }
}

#[tokio::test]
async fn who_forgot_a_slash_is_sent_to_where_it_is() {
    let reviewer = Reviewer::that_allows(&["log", "pods", "proxy"]);
    for (debugging, paths) in [
        (Some(debugging()), &["/runningpods", "/logs", "/debug/pprof"][..]),
        (None, &["/runningpods", "/logs", "/debug/pprof", "/run", "/exec", "/containerLogs"]),
    ] {
        let server = server_with(&reviewer, debugging).await;
        for path in paths {
            let answer = server.send("GET", &format!("{path}?a=1&b"), GOOD).await;
            assert_eq!(answer.status, 307, "{path}");
            assert!(answer.head.contains(&format!("\r\nlocation: {path}/?a=1&b\r\n")), "{}", answer.head);
            assert!(answer.head.contains("content-type: text/html; charset=utf-8\r\n"), "{}", answer.head);
            let page = format!("<a href=\"{path}/?a=1&amp;b\">Temporary Redirect</a>.\n\n");
            assert_eq!(answer.body, page);
            let answer = server.send("POST", path, GOOD).await;
            assert_eq!((answer.status, answer.body.as_str()), (307, ""), "{path}");
            assert!(!answer.head.contains("content-type"), "{}", answer.head);
        }
    }
}

#[tokio::test]
async fn each_handler_can_be_turned_off_by_itself() {
    let reviewer = Reviewer::that_allows(&["configz", "proxy", "statusz"]);
    let less =
        Debugging { profiling: false, flags_handler: false, checkpoints: None, flagz: None, statusz: None };
    let server = server_with(&reviewer, Some(less)).await;
    for (path, status, body) in [
        ("/debug/pprof/heap", 405, "profiling endpoint is disabled.\n"),
        ("/debug/flags/v", 405, "flags endpoint is disabled.\n"),
        ("/flagz", 404, "404 page not found\n"),
        ("/checkpoint/a/b/c", 404, "404 page not found\n"),
        ("/statusz", 404, "404 page not found\n"),
        ("/configz", 200, "{\"kubeletconfig\":{\"kind\":\"KubeletConfiguration\"}}"),
    ] {
        let answer = server.send("GET", path, GOOD).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{path}");
    }
}

/// What was recorded of paths whose answers do not depend on the pods: equal in status, text and the headers that count.
#[tokio::test]
async fn answers_are_those_that_were_recorded() {
    let reviewer = Reviewer::that_allows(&["healthz", "pods", "proxy", "stats"]);
    let server = server(&reviewer).await;
    for recorded in [
        include_str!("../../tests/data/golden/answers/attributes.json"),
        include_str!("../../tests/data/golden/answers/debug-flags-get.json"),
        include_str!("../../tests/data/golden/answers/healthz.json"),
        include_str!("../../tests/data/golden/answers/healthz-none.json"),
        include_str!("../../tests/data/golden/answers/healthz-ping.json"),
        include_str!("../../tests/data/golden/answers/healthz-syncloop.json"),
        include_str!("../../tests/data/golden/answers/nothing.json"),
        include_str!("../../tests/data/golden/answers/pods-post.json"),
        include_str!("../../tests/data/golden/answers/root.json"),
        include_str!("../../tests/data/golden/answers/spec.json"),
        include_str!("../../tests/data/golden/answers/stats.json"),
    ] {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        is_as_recorded(&server, GOOD, &recorded).await;
    }
    for (recorded, headers) in [
        (include_str!("../../tests/data/golden/answers/unauthenticated.json"), &[][..]),
        (include_str!("../../tests/data/golden/answers/bad-token.json"), &["Authorization: Bearer bad"]),
    ] {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        is_as_recorded(&server, headers, &recorded).await;
    }
    let recorded = include_str!("../../tests/data/golden/answers/healthz-verbose.json");
    let mut recorded: Value = serde_json::from_str(recorded).unwrap();
    // There are no plugins of devices yet.
    let body = recorded["body"].as_str().unwrap().replace("[+]device-plugin ok\n", "");
    recorded["headers"]["Content-Length"] = body.len().to_string().into();
    recorded["body"] = body.into();
    is_as_recorded(&server, GOOD, &recorded).await;
}

async fn is_as_recorded(server: &Server, headers: &[&str], recorded: &Value) {
    let (method, path) = (recorded["method"].as_str().unwrap(), recorded["path"].as_str().unwrap());
    let answer = server.send(method, path, headers).await;
    assert_eq!(answer.status, recorded["status"], "{method} {path}");
    assert_eq!(answer.body, recorded["body"].as_str().unwrap(), "{method} {path}");
    for (name, value) in recorded["headers"].as_object().unwrap() {
        let line = format!("\r\n{}: {}\r\n", name.to_lowercase(), value.as_str().unwrap());
        assert!(answer.head.contains(&line), "{method} {path}: {line:?} in {}", answer.head);
    }
}

/// The paths that a router has, as it tells of itself.
fn paths_of(router: &Router) -> Vec<String> {
    let text = format!("{router:?}");
    let quoted = text.split('"').skip(1).step_by(2);
    // What answers for all other paths has names of its own.
    let is_path = |path: &&str| path.len() > 1 && path.starts_with('/') && !path.contains("__private");
    let paths: BTreeSet<&str> = quoted.filter(is_path).collect();
    paths.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn every_path_and_method_is_authorized() {
    for debugging in [Some(debugging()), None] {
        let reviewer = Reviewer::that_allows(&[]);
        let router =
            node_router(port(Arc::clone(&reviewer) as _, Authorities::default(), debugging)).unwrap();
        let paths = paths_of(&router);
        assert!(paths.len() > 15 && paths.iter().any(|path| path == "/pods"), "{paths:?}");
        let server = Server::start(router).await;
        for path in paths {
            let path = path.replace("{*", "{").replace(['{', '}'], "");
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
                let unknown = server.send(method, &path, &[]).await;
                assert_eq!(unknown.status, 401, "{method} {path}");
                let upgrade = ["Connection: Upgrade", "Upgrade: SPDY/3.1", GOOD[0]];
                let powerless = server.send(method, &path, &upgrade).await;
                assert_eq!(powerless.status, 403, "{method} {path}");
                if method != "HEAD" {
                    assert!(powerless.body.starts_with("Forbidden (user="), "{method} {path}");
                }
            }
        }
    }
}

/// Ways out of a path's segment.
const WAYS_OUT: &[&str] = &[
    "..",
    "../..",
    "%2e%2e",
    "%2e%2e%2f",
    "..%2f..%2fetc%2fpasswd",
    "",
    "%00",
    "a%00b",
    ".",
    "%ff",
    "%2f",
    "a%0ab",
];

#[tokio::test]
async fn a_segment_is_a_name_and_never_a_way() {
    let all = ["checkpoint", "configz", "healthz", "log", "metrics", "pods", "proxy", "stats", "statusz"];
    let reviewer = Reviewer::that_allows(&all);
    let port = port(Arc::clone(&reviewer) as _, Authorities::default(), Some(debugging()));
    let router = node_router(port).unwrap();
    let mut paths = paths_of(&router);
    let server = Server::start(router).await;
    // Also where another part of the program will answer one day.
    paths.extend(["/exec/{a}/{b}/{c}", "/run/{a}/{b}/{c}", "/checkpoint/{a}/{b}/{c}"].map(str::to_owned));
    for path in paths {
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        for (index, _) in segments.iter().enumerate() {
            for way in WAYS_OUT {
                let mut tried: Vec<&str> = segments.clone();
                tried[index] = way;
                let target = format!("/{}", tried.join("/")).replace("{*", "{").replace(['{', '}'], "");
                let answer = server.send("GET", &target, GOOD).await;
                // What is there without its last segment may be shown; nothing else of the node.
                let text = &answer.body;
                assert!((200..600).contains(&answer.status), "{target}: {}", answer.status);
                assert!(!text.contains("root:x:0:0"), "{target}: {text}");
                if answer.status == 200 {
                    let shown = ["/healthz", "/pods", "/metrics", "/logs", "/configz", "/flagz", "/statusz"];
                    assert!(shown.iter().any(|path| target.starts_with(path)), "{target}: {text}");
                }
            }
        }
    }
    // It still answers everybody.
    assert_eq!(server.send("GET", "/pods", GOOD).await.status, 200);
}

mod tls;
