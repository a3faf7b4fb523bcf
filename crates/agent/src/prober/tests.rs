//! Attempts of every kind, against servers that behave and servers that do not; and many at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, default_pod};
use crablet_cri::Client;
use crablet_cri::client::Settings as ClientSettings;
use crablet_cri_api::v1;
use crablet_cri_sim::{Image, Latencies, Latency, Program, Settings, Simulator};
use crablet_metrics::Registry;
use hyper::body::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::story::Stories;

/// How many connections somebody has open.
#[derive(Clone, Default)]
struct Open(Arc<AtomicUsize>);

impl Open {
    /// Waits until all have been closed by the other side.
    async fn none(&self) {
        while self.0.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// A server on this machine that does the same with each connection; its port, and its connections.
async fn server<F, Fut>(serve: F) -> (u16, Open)
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Open::default();
    let counted = open.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.0.fetch_add(1, Ordering::SeqCst);
            let (served, counted) = (serve(stream), counted.clone());
            tokio::spawn(async move {
                served.await;
                counted.0.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (port, open)
}

/// Reads a request to the end of its head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

/// What a server of HTTP does.
#[derive(Clone, Copy)]
enum Does {
    /// Answers this.
    Says(&'static str),
    /// Answers this, and waits for the other side to close.
    SaysAndWaits(&'static str),
    /// Never answers.
    Nothing,
    /// Answers without end.
    Streams,
    /// Resets the connection.
    Resets,
    /// Tells what it was asked, as a refusal.
    Repeats,
    /// Sends the other side round in circles, to itself.
    Redirects,
}

async fn http(mut stream: impl AsyncRead + AsyncWrite + Unpin, does: Does) {
    let asked = head(&mut stream).await;
    let say = |text: String| text.into_bytes();
    let written = match does {
        Does::Says(text) | Does::SaysAndWaits(text) => stream.write_all(text.as_bytes()).await,
        Does::Nothing | Does::Resets => Ok(()),
        Does::Streams => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
            return;
        }
        Does::Repeats => {
            let location = asked.replace("\r\n", "|");
            let answer = format!(
                "HTTP/1.1 307 x\r\nLocation: http://elsewhere/\r\nContent-Length: {}\r\n\r\n{location}",
                location.len()
            );
            stream.write_all(&say(answer)).await
        }
        Does::Redirects => {
            stream.write_all(b"HTTP/1.1 302 x\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n").await
        }
    };
    match does {
        Does::Says(_) | Does::Repeats | Does::Redirects if written.is_ok() => {
            let _ = stream.shutdown().await;
            until_closed(&mut stream).await;
        }
        Does::Resets => {}
        _ => until_closed(&mut stream).await,
    }
}

async fn http_server(does: Does) -> (u16, Open) {
    server(move |stream| async move {
        if matches!(does, Does::Resets) {
            let mut stream = stream;
            head(&mut stream).await;
            stream.set_zero_linger().unwrap();
            return;
        }
        http(stream, does).await;
    })
    .await
}

async fn https_server(does: Does) -> (u16, Open) {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("testdata/cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("testdata/key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                http(stream, does).await;
            }
        }
    })
    .await
}

fn pod_with(probe: &str) -> Pod {
    let mut pod = pod_yaml(&format!(
        "metadata: {{name: p, namespace: default, uid: u}}\nspec: {{containers: [{{name: c, image: i, livenessProbe: {probe}}}]}}"
    ));
    default_pod(&mut pod, &FeatureGates::default());
    pod
}

/// Asks as a probe with a timeout of a second does.
async fn probe(handler: &str) -> Answer {
    let pod = pod_with(&format!("{{{handler}}}"));
    let container = &pod.spec.containers[0];
    let target = target(container.liveness_probe.as_deref().unwrap(), container, "127.0.0.1").unwrap();
    let runtime = Client::in_process(
        "nobody",
        Simulator::new(Settings::default()).services(),
        ClientSettings::default(),
    );
    ask(&runtime, "nobody", &target, Duration::from_secs(1)).await
}

async fn get(port: u16, more: &str) -> Answer {
    probe(&format!("httpGet: {{port: {port}{more}}}")).await
}

fn failure(text: &str) -> Answer {
    Answer::Failure(text.into())
}

/// A port that nobody listens on.
async fn nobody() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn an_answer_is_judged_by_its_status() {
    for (says, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Answer::Success),
        ("HTTP/1.0 204 No\r\n\r\n", Answer::Success),
        ("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", failure("HTTP probe failed with statuscode: 404")),
        (
            "HTTP/1.1 500 No\r\nContent-Length: 6\r\n\r\nsecret",
            failure("HTTP probe failed with statuscode: 500"),
        ),
        (
            "HTTP/1.1 302 x\r\nLocation: http://elsewhere/\r\nContent-Length: 4\r\n\r\naway",
            Answer::Warning("Probe terminated redirects, Response body: away".into()),
        ),
        ("HTTP/1.1 304 x\r\n\r\n", Answer::Warning("Probe terminated redirects, Response body: ".into())),
    ] {
        let (port, open) = http_server(Does::Says(says)).await;
        assert_eq!(get(port, "").await, expected, "{says}");
        open.none().await;
    }
}

#[tokio::test]
async fn a_request_says_who_asks_and_what_the_manifest_says() {
    let (port, _) = http_server(Does::Repeats).await;
    let more = ", path: /a?b, httpHeaders: [{name: Host, value: shop}, {name: x-a, value: '1'}]";
    let expected = "Probe terminated redirects, Response body: GET /a?b HTTP/1.1|Host: shop|X-A: 1|\
                    User-Agent: kube-probe/1.36|Accept: */*|Connection: close||";
    assert_eq!(get(port, more).await, Answer::Warning(expected.into()));
}

#[tokio::test]
async fn redirects_to_itself_are_followed_ten_times() {
    let (port, open) = http_server(Does::Redirects).await;
    let url = format!("http://127.0.0.1:{port}/again");
    assert_eq!(get(port, "").await, failure(&format!("Get \"{url}\": stopped after 10 redirects")));
    open.none().await;
}

#[tokio::test]
async fn servers_that_misbehave_end_within_the_timeout_and_leave_nothing_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (silent, silents) = http_server(Does::Nothing).await;
    let (endless, endlesses) = http_server(Does::Streams).await;
    let (rude, rudes) = http_server(Does::Resets).await;
    let (stalled, stalls) =
        http_server(Does::SaysAndWaits("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")).await;
    let (strange, strangers) = http_server(Does::Says("SSH-2.0-x\r\n\r\n")).await;
    let (refused, before) = (nobody().await, tasks());
    let (silent_answer, endless_answer, rude_answer, stalled_answer, strange_answer, refused_answer, deaf) = tokio::join!(
        get(silent, ""),
        get(endless, ""),
        get(rude, ""),
        get(stalled, ""),
        get(strange, ""),
        get(refused, ""),
        get(silent, ", scheme: HTTPS"),
    );
    let of = |port: u16, words: &str| failure(&format!("Get \"http://127.0.0.1:{port}/\": {words}"));
    let too_long = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(silent_answer, of(silent, too_long));
    assert_eq!(endless_answer, Answer::Success);
    assert_eq!(rude_answer, of(rude, "read: connection reset by peer"));
    let message = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    assert_eq!(stalled_answer, Answer::Error { state: "failure", message: message.into() });
    assert!(
        matches!(&strange_answer, Answer::Failure(words) if words.contains("invalid HTTP")),
        "{strange_answer:?}"
    );
    assert_eq!(
        refused_answer,
        of(refused, &format!("dial tcp 127.0.0.1:{refused}: connect: connection refused"))
    );
    assert_eq!(deaf, failure(&format!("Get \"https://127.0.0.1:{silent}/\": {too_long}")));
    for open in [silents, endlesses, rudes, stalls, strangers] {
        open.none().await;
    }
    while tasks() > before {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn https_takes_any_certificate() {
    let (port, open) = https_server(Does::Says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    assert_eq!(get(port, ", scheme: HTTPS").await, Answer::Success);
    assert_eq!(get(port, ", scheme: HTTPS, host: localhost").await, Answer::Success);
    let (unwell, _) = https_server(Does::Says("HTTP/1.1 503 No\r\n\r\n")).await;
    assert_eq!(get(unwell, ", scheme: HTTPS").await, failure("HTTP probe failed with statuscode: 503"));
    open.none().await;
    // Somebody who does not speak TLS.
    let (plain, _) = http_server(Does::Says("HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    let (answering, _) = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        until_closed(&mut stream).await;
    })
    .await;
    let words = "http: server gave HTTP response to HTTPS client";
    let expected = failure(&format!("Get \"https://127.0.0.1:{answering}/\": {words}"));
    assert_eq!(get(answering, ", scheme: HTTPS").await, expected);
    assert!(matches!(get(plain, ", scheme: HTTPS").await, Answer::Failure(_)));
}

#[tokio::test]
async fn a_connection_that_opens_is_enough_for_tcp() {
    let (port, open) = server(|mut stream| async move { until_closed(&mut stream).await }).await;
    assert_eq!(probe(&format!("tcpSocket: {{port: {port}}}")).await, Answer::Success);
    open.none().await;
    let refused = nobody().await;
    assert_eq!(
        probe(&format!("tcpSocket: {{port: {refused}}}")).await,
        failure(&format!("dial tcp 127.0.0.1:{refused}: connect: connection refused"))
    );
    let answer = probe("tcpSocket: {port: 80, host: no-such-name.invalid.}").await;
    assert!(matches!(&answer, Answer::Failure(words) if words.starts_with("dial tcp")), "{answer:?}");
}

/// A gRPC server that answers with a state, or with a code.
async fn grpc_server(answer: Result<u8, u8>) -> (u16, Open) {
    server(move |stream| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let mut trailers = hyper::HeaderMap::new();
            let head = hyper::Response::builder().header("content-type", "application/grpc");
            match answer {
                Ok(state) => {
                    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, state]), false).unwrap();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    body.send_trailers(trailers).unwrap();
                }
                Err(code) => {
                    let head =
                        head.header("grpc-status", code.to_string()).header("grpc-message", "not%20here");
                    respond.send_response(head.body(()).unwrap(), true).unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_grpc_server_is_asked_for_its_health() {
    for (answers, expected) in [
        (Ok(1), Answer::Success),
        (Ok(2), failure("service unhealthy (responded with \"NOT_SERVING\")")),
        (Ok(3), failure("service unhealthy (responded with \"SERVICE_UNKNOWN\")")),
        (Err(5), failure("error: health rpc probe failed: rpc error: code = NotFound desc = not here")),
        (
            Err(12),
            failure(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): not here",
            ),
        ),
    ] {
        let (port, open) = grpc_server(answers).await;
        assert_eq!(probe(&format!("grpc: {{port: {port}, service: shop}}")).await, expected);
        open.none().await;
    }
}

#[tokio::test]
async fn what_is_no_grpc_server_fails_within_the_timeout() {
    let (silent, silents) = http_server(Does::Nothing).await;
    assert_eq!(
        probe(&format!("grpc: {{port: {silent}}}")).await,
        failure("timeout: health rpc did not complete within 1s")
    );
    silents.none().await;
    let refused = nobody().await;
    let expected = format!(
        "error: failed to connect service at \"127.0.0.1:{refused}\": dial tcp 127.0.0.1:{refused}: connect: connection refused"
    );
    assert_eq!(probe(&format!("grpc: {{port: {refused}}}")).await, failure(&expected));
    let (web, _) = http_server(Does::Says("HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    assert!(matches!(probe(&format!("grpc: {{port: {web}}}")).await, Answer::Failure(_)));
}

/// Containers on a simulated runtime, whose commands hang for one image and succeed for the other.
async fn containers(client: &Client, hung: usize) -> Vec<String> {
    let sandbox = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata { name: "p".into(), uid: "u".into(), ..Default::default() }),
        ..Default::default()
    };
    let in_sandbox = client.run_sandbox(&sandbox, "").await.unwrap();
    let mut ids = Vec::new();
    for index in 0..=hung {
        let image = if index < hung { "hung:1" } else { "well:1" };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: format!("c{index}"), attempt: 0 }),
            image: Some(v1::ImageSpec { image: image.into(), ..Default::default() }),
            ..Default::default()
        };
        let id = client.create_container(&in_sandbox, &config, &sandbox).await.unwrap();
        client.start_container(&id).await.unwrap();
        ids.push(id);
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn a_thousand_attempts_that_hang_do_not_hold_up_the_next() {
    const HUNG: usize = 1000;
    let image = |name, program| Image::new(name).entrypoint(["/program"]).program(program);
    let ours = [
        image("hung:1", Program::run_forever().hanging_exec()),
        image("well:1", Program::run_forever().failing_exec(0)),
    ];
    let settings = Settings {
        images: Settings::default().images.into_iter().chain(ours).collect(),
        latencies: Latencies::all(Latency::Fixed(Duration::from_millis(1))),
        ..Settings::default()
    };
    let clock = Clock::simulated(settings.start);
    let client =
        Client::in_process("the simulator", Simulator::new(settings).services(), ClientSettings::default());
    let ids = containers(&client, HUNG).await;
    let registry = Registry::new();
    let prober = Prober::new();
    let recorder = Recorder::new(clock.clone(), Stories::new(clock.clone()));
    let parts =
        Parts { runtime: Arc::new(client), clock, recorder, metrics: Metrics::new(&registry).unwrap() };
    let task = tokio::spawn(prober.clone().run(parts));

    let timeout = ", timeoutSeconds: 100000";
    let mut mailboxes = BTreeMap::new();
    for (index, id) in ids.iter().enumerate() {
        let more = if index < HUNG { timeout } else { "" };
        let pod = pod_with(&format!("{{exec: {{command: [x]}}, periodSeconds: 1{more}}}"));
        let mailbox = Mailbox::new();
        mailboxes.insert(index, mailbox.clone());
        let running = Running { id: id.clone(), name: "c".into(), since: None, started: true };
        let watch = Watch {
            pod: Arc::new(pod),
            mailbox,
            pod_ip: String::new(),
            stopping: false,
            running: vec![running],
        };
        if index < HUNG {
            prober.watch(&format!("hung-{index}"), watch);
        } else {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let asked = Instant::now();
            prober.watch("well", watch);
            let found = mailboxes[&index].wait_for_probes().await;
            assert_eq!(found.of(id).liveness, Some(crablet_core::probes::ProbeResult::Success));
            // The time that the runtime takes for a call, and no more.
            assert!(asked.elapsed() < Duration::from_millis(10), "{:?}", asked.elapsed());
        }
    }
    task.abort();
}
