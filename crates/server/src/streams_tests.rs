//! Streams against what was recorded of the Go kubelet, and with a runtime's streaming server that is played by hand.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use axum::middleware::from_fn_with_state;
use crablet_agent::agent::Agent;
use crablet_api::core::{Container, ContainerState, ContainerStateRunning, ContainerStatus};
use crablet_cri_api::ExecOutput;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http_metrics::{HttpMetrics, ServerType, count};
use crate::testing::{Server, running_node, view};

/// A runtime in which container `a` of the pod `u1` runs.
#[derive(Default)]
struct Scripted {
    /// Where its streaming server is.
    url: String,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl StreamRuntime for Scripted {
    async fn running_container(&self, pod_uid: &str, name: &str) -> Result<Option<String>, Error> {
        Ok((pod_uid == "u1" && name == "a").then(|| "id-a".to_owned()))
    }
    async fn ready_sandbox(&self, pod_uid: &str) -> Result<Option<String>, Error> {
        Ok((pod_uid == "u1").then(|| "sandbox".to_owned()))
    }
    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        self.asked.lock().unwrap().push(format!("{request:?}"));
        Ok(self.url.clone())
    }
    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        self.asked.lock().unwrap().push(format!("{request:?}"));
        Ok(self.url.clone())
    }
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error> {
        self.asked.lock().unwrap().push(format!("{request:?}"));
        Ok(self.url.clone())
    }
    async fn run(&self, id: &str, command: &[String]) -> Result<ExecOutput, Error> {
        assert_eq!(id, "id-a");
        Ok(match command.join(" ").as_str() {
            "id" => ExecOutput {
                stdout: b"uid=0(root) gid=0(root) groups=0(root)\n".to_vec(),
                ..ExecOutput::default()
            },
            "true" => ExecOutput::default(),
            "cat" => {
                let endpoint = "unix:///x".into();
                return Err(Error::TooLarge { method: "ExecSync", endpoint, limit: 1, hint: "" });
            }
            _ => ExecOutput { exit_code: 1, ..ExecOutput::default() },
        })
    }
}

struct Played {
    server: Server,
    runtime: Arc<Scripted>,
    streamer: Streamer,
    counted: Registry,
    /// The runtime's streaming server.
    backend: TcpListener,
    stop: CancellationToken,
    agent: Agent,
}

impl Played {
    async fn start() -> Played {
        Played::start_with(None).await
    }

    async fn start_with(idle: Option<Duration>) -> Played {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token", backend.local_addr().unwrap());
        let runtime = Arc::new(Scripted { url, ..Scripted::default() });
        let (node, agent) = running_node();
        let mut shown = view("server", "two", "u1");
        let container = Container { name: "a".into(), tty: true, ..Container::default() };
        Arc::make_mut(&mut shown.pod).spec.containers = [container].into();
        agent.statuses.show(shown);
        let stop = CancellationToken::new();
        let streamer = Streamer::new(idle, stop.clone());
        let streams = Streams {
            node,
            runtime: Arc::clone(&runtime) as _,
            streamer: streamer.clone(),
            extends_websockets: true,
            metrics: StreamMetrics::new(&Registry::new()).unwrap(),
        };
        let router =
            streams_router(streams).method_not_allowed_fallback(crate::node_port::method_not_allowed);
        let counted = Registry::new();
        let metrics = HttpMetrics::register(&counted, ServerType::ReadWrite).unwrap();
        let server = Server::start_with_upgrades(router.layer(from_fn_with_state(metrics, count))).await;
        Played { server, runtime, streamer, counted, backend, stop, agent }
    }

    /// A client that has sent this request.
    async fn client(&self, method: &str, target: &str, headers: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The connection that the runtime's streaming server got, with the head of its request, answered.
    async fn backend(&self, answer: &[u8]) -> (TcpStream, String) {
        let (mut stream, _) = self.backend.accept().await.unwrap();
        let head = head(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        (stream, head)
    }

    async fn awaits_none_open(&self) {
        for _ in 0..1000 {
            if self.streamer.open() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} streams are left", self.streamer.open());
    }
}

/// What comes up to the end of a head.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

const SPDY: &[&str] =
    &["Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"];
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
const EXEC: &str = "/exec/server/two/a?command=ls&command=-l&input=1&output=1";

#[tokio::test]
async fn who_asks_wrongly_is_told_what_upstream_tells() {
    let recorded = [
        include_str!("../tests/data/golden/answers/attach-get-no-upgrade.json"),
        include_str!("../tests/data/golden/answers/exec-get-no-upgrade.json"),
        include_str!("../tests/data/golden/answers/exec-no-container.json"),
        include_str!("../tests/data/golden/answers/exec-no-pod.json"),
        include_str!("../tests/data/golden/answers/exec-no-streams.json"),
        include_str!("../tests/data/golden/answers/exec-post-no-upgrade.json"),
        include_str!("../tests/data/golden/answers/portforward-get-no-upgrade.json"),
        include_str!("../tests/data/golden/answers/run-fails.json"),
        include_str!("../tests/data/golden/answers/run-get.json"),
        include_str!("../tests/data/golden/answers/run-no-container.json"),
        include_str!("../tests/data/golden/answers/run.json"),
    ];
    let played = Played::start().await;
    for recorded in recorded {
        let recorded: Value = serde_json::from_str(recorded).unwrap();
        let text = |name: &str| recorded[name].as_str().unwrap();
        let answer = played.server.send(text("method"), text("path"), &[]).await;
        assert_eq!(answer.status, recorded["status"], "{}", text("path"));
        assert_eq!(answer.body, text("body"), "{}", text("path"));
        for (name, value) in recorded["headers"].as_object().unwrap() {
            let line = format!("\r\n{}: {}\r\n", name.to_lowercase(), value.as_str().unwrap());
            assert!(answer.head.contains(&line), "{}: no {line:?} in {:?}", text("path"), answer.head);
        }
        let has_nosniff = recorded["headers"]["X-Content-Type-Options"].is_string();
        assert_eq!(answer.head.contains("x-content-type-options"), has_nosniff, "{}", text("path"));
    }
    assert!(played.runtime.asked.lock().unwrap().is_empty(), "no address was asked for that nobody uses");
    assert_eq!(played.server.send("POST", "/run/server/two/a?cmd=true", &[]).await.body, "");
}

#[tokio::test]
async fn a_container_whose_end_the_agent_has_not_seen_yet_is_not_found() {
    let played = Played::start().await;
    let mut shown = view("server", "ended", "u2");
    let running = ContainerState::Running(Box::<ContainerStateRunning>::default());
    let status = ContainerStatus {
        name: "a".into(),
        container_id: "containerd://1".into(),
        state: running.into(),
        ..ContainerStatus::default()
    };
    Arc::make_mut(&mut shown.status).container_statuses = [status].into();
    played.agent.statuses.show(shown);
    for (target, body) in [
        ("/exec/server/ended/a?output=1", "container not found (\"a\")"),
        ("/attach/server/ended/a?output=1", "container a not found in pod ended_server"),
    ] {
        let answer = played.server.send("GET", target, &["Upgrade: websocket", "Connection: Upgrade"]).await;
        assert_eq!((answer.status, answer.body.as_str()), (500, body), "{target}");
    }
    assert!(played.runtime.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn paths_name_pods_and_nothing_else() {
    let played = Played::start().await;
    for (target, status, body) in [
        ("/exec/server/..%2Ftwo/a?output=1", 404, "pod does not exist"),
        ("/exec/..%2f..%2fserver/two/a?output=1", 404, "pod does not exist"),
        ("/exec/server/two/..%2Fa?output=1", 500, "container not found (\"../a\")"),
        ("/attach/server/two/..%2Fa?output=1", 500, "container ../a not found in pod two_server"),
        ("/attach/server/two/other/a?output=1", 500, "pod two_server not found"),
        ("/exec/server/two/other/a?output=1", 500, "Upgrade request required\n"),
        ("/portForward/server/..%2Ftwo", 404, "pod does not exist"),
        ("/portForward/server/two/other", 404, "pod not found"),
        ("/portForward/server/two/u1", 500, "Upgrade request required\n"),
        ("/exec/server/two/a?tty=1&error=1", 400, "you must specify at least 1 of stdin, stdout, stderr"),
    ] {
        let answer = played.server.send("GET", target, &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{target}");
    }
    let websocket = ["Upgrade: websocket", "Connection: Upgrade"];
    for (query, why) in [
        ("", "query parameter \"port\" is required"),
        ("?port=", "query parameter \"port\" cannot be empty"),
        ("?port=80,0", "port \"80,0\" must be > 0"),
        (
            "?port=%2B80",
            "unable to parse \"+80\" as a port: strconv.ParseUint: parsing \"+80\": invalid syntax",
        ),
        ("?port=x", "unable to parse \"x\" as a port: strconv.ParseUint: parsing \"x\": invalid syntax"),
        (
            "?port=65536",
            "unable to parse \"65536\" as a port: strconv.ParseUint: parsing \"65536\": value out of range",
        ),
    ] {
        let mut client = played.client("GET", &format!("/portForward/server/two{query}"), &websocket).await;
        let head = head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{query}: {head}");
        let mut body = vec![0; why.len()];
        client.read_exact(&mut body).await.unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), why);
    }
}

#[tokio::test]
async fn bytes_pass_both_ways_and_none_behind_a_head_is_lost() {
    let played = Played::start().await;
    let mut headers = SPDY.to_vec();
    headers.push("Authorization: Bearer secret");
    let mut client = played.client("POST", EXEC, &headers).await;
    client.write_all(b"before you answered").await.unwrap();
    let (mut runtime, asked) = played.backend(&[SWITCHED, b"with the head"].concat()).await;
    assert!(asked.starts_with("POST /exec/token HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains("upgrade: spdy/3.1\r\n") && !asked.contains("secret"), "{asked}");
    let wanted = "ExecRequest { container_id: \"id-a\", cmd: [\"ls\", \"-l\"], tty: false, stdin: true, stdout: true, stderr: false }";
    assert_eq!(*played.runtime.asked.lock().unwrap(), [wanted]);
    let answer = head(&mut client).await.to_lowercase();
    assert!(answer.starts_with("http/1.1 101 ") && answer.contains("\r\nupgrade: spdy/3.1\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n"), "{answer}");
    let mut heard = [0; 19];
    runtime.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"before you answered");
    assert_eq!(played.streamer.open(), 1);
    drop(runtime);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "with the head");
    drop(client);
    played.awaits_none_open().await;
}

#[tokio::test]
async fn what_the_runtime_refuses_is_told_and_nothing_is_left() {
    let played = Played::start().await;
    for (answer, expected) in [
        (&b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n"[..], "HTTP/1.1 403 Forbidden\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 Internal Server Error\r\n"),
        (b"garbage\r\n\r\n", "HTTP/1.1 500 Internal Server Error\r\n"),
    ] {
        let mut client = played.client("POST", EXEC, SPDY).await;
        let (runtime, _) = played.backend(answer).await;
        drop(runtime);
        let head = head(&mut client).await;
        assert!(head.starts_with(expected), "{head}");
        played.awaits_none_open().await;
    }
    // A client that leaves while the runtime makes up its mind.
    let client = played.client("POST", EXEC, SPDY).await;
    let (_runtime, _) = played.backend(b"").await;
    drop(client);
    played.awaits_none_open().await;
}

#[tokio::test]
async fn nothing_is_left_when_a_side_dies_is_silent_or_talks_nonsense() {
    let played = Played::start_with(Some(Duration::from_millis(300))).await;
    let v5 = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
    ];
    for headers in [SPDY, &v5] {
        let method = if headers.len() == 3 { "POST" } else { "GET" };
        for what in ["client dies", "runtime dies", "silence", "garbage"] {
            let mut client = played.client(method, EXEC, headers).await;
            let (runtime, _) = played.backend(SWITCHED).await;
            assert!(head(&mut client).await.starts_with("HTTP/1.1 101 "), "{what}");
            match what {
                "client dies" => drop(client),
                "runtime dies" => {
                    drop(runtime);
                    let mut rest = Vec::new();
                    client.read_to_end(&mut rest).await.unwrap();
                    drop(client);
                }
                // Who speaks WebSocket is told, in order.
                "silence" if headers.len() > 3 => {
                    let mut told = Vec::new();
                    client.read_to_end(&mut told).await.unwrap();
                    assert!(told.ends_with(&[0x88, 2, 3, 0xe8]), "{told:?}");
                    let told = String::from_utf8_lossy(&told).into_owned();
                    assert!(
                        told.contains("Internal error occurred: the stream was idle for too long"),
                        "{told}"
                    );
                }
                "garbage" => client.write_all(&[0xff; 1000]).await.unwrap(),
                _ => {}
            }
            played.awaits_none_open().await;
        }
    }
    let _client = played.client("POST", EXEC, SPDY).await;
    let (_runtime, _) = played.backend(SWITCHED).await;
    played.stop.cancel();
    played.streamer.none_open().await;
}

#[tokio::test]
async fn a_request_lasts_as_long_as_its_stream() {
    let played = Played::start().await;
    let counted = |name: &str| {
        let of = "{long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"}";
        let text = played.counted.render();
        text.lines().find_map(|line| line.strip_prefix(&format!("{name}{of} ")).map(str::to_owned))
    };
    let mut client = played.client("POST", EXEC, SPDY).await;
    let (runtime, _) = played.backend(SWITCHED).await;
    assert!(head(&mut client).await.starts_with("HTTP/1.1 101 "));
    client.write_all(b"a word").await.unwrap();
    assert_eq!(counted("kubelet_http_requests_total").as_deref(), Some("1"));
    assert_eq!(counted("kubelet_http_inflight_requests").as_deref(), Some("1"));
    assert_eq!(counted("kubelet_http_requests_duration_seconds_count"), None);
    drop((client, runtime));
    played.streamer.none_open().await;
    assert_eq!(counted("kubelet_http_inflight_requests").as_deref(), Some("0"));
    assert_eq!(counted("kubelet_http_requests_duration_seconds_count").as_deref(), Some("1"));
}

#[tokio::test]
async fn what_is_run_may_stand_in_a_form_and_whatever_goes_wrong_with_it_is_the_servers_fault() {
    let played = Played::start().await;
    let run = async |query: &str, kind: &str, form: &str| {
        let target = format!("/run/server/two/a{query}");
        let (kind, length) = (format!("Content-Type: {kind}"), format!("Content-Length: {}", form.len()));
        let mut client = played.client("POST", &target, &[&kind, &length, "Connection: close"]).await;
        client.write_all(form.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    };
    let form = "Application/X-WWW-form-urlencoded; charset=utf-8";
    let id = ("200".to_owned(), "uid=0(root) gid=0(root) groups=0(root)\n".to_owned());
    assert_eq!(run("", form, "x=1&cmd=id").await, id);
    assert_eq!(run("?cmd=false", form, "%63md=id").await, id, "the form comes first");
    assert_eq!(run("?cmd=id", form, "x=1").await, id);
    assert_eq!(run("?cmd=id", "text/plain", "cmd=false").await, id, "that is no form");
    let (status, body) = run("", form, "cmd=not+there").await;
    assert_eq!((status.as_str(), body.as_str()), ("500", "command 'not there' exited with 1: "));
    // For exec that would be no room, and come with when to try again.
    assert_eq!(run("", form, "cmd=cat").await.0, "500");
    assert_eq!(run("?cmd=id", form, &"x".repeat(LARGEST_FORM + 1)).await.0, "413");
}

#[tokio::test]
async fn a_tunnel_is_asked_for_as_spdy_and_unwrapped() {
    let played = Played::start().await;
    let headers = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io",
    ];
    let mut client = played.client("GET", "/portForward/server/two", &headers).await;
    let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\nearly";
    let (mut runtime, asked) = played.backend(switched).await;
    let asked = asked.to_lowercase();
    assert!(asked.starts_with("post /exec/token http/1.1\r\n") && !asked.contains("websocket"), "{asked}");
    assert!(asked.contains("\r\nx-stream-protocol-version: portforward.k8s.io\r\n"), "{asked}");
    let answer = head(&mut client).await.to_lowercase();
    assert!(answer.contains("\r\nsec-websocket-protocol: spdy/3.1+portforward.k8s.io\r\n"), "{answer}");
    assert!(answer.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{answer}");
    client.write_all(b"\x82\x85\0\0\0\0hello").await.unwrap();
    let mut heard = [0; 5];
    runtime.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    let mut heard = [0; 7];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"\x82\x05early");
    drop((client, runtime));
    played.awaits_none_open().await;
}

#[tokio::test]
async fn a_bad_websocket_is_refused_before_the_runtime_hears_of_it() {
    let played = Played::start().await;
    let headers = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: v5.channel.k8s.io"];
    for (method, code) in [("GET", "400"), ("POST", "405")] {
        let mut client = played.client(method, EXEC, &headers).await;
        assert!(head(&mut client).await.starts_with(&format!("HTTP/1.1 {code} ")));
    }
    assert_eq!(played.streamer.open(), 0);
}
