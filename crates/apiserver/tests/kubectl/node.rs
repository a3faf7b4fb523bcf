//! A stand-in for the node's server: logs say what was asked for, what is used grows evenly, and `exec` runs commands on this machine, over
//! WebSockets as a kubelet of 1.36 has them.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;

use crate::play::Stage;
use crate::stand_in;

const PROTOCOL: &str = "v5.channel.k8s.io";
/// The channels of that protocol.
const OUTPUT: u8 = 1;
const ERROR: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;
/// What a WebSocket is greeted with.
const GREETING: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Kinds of frames.
const BINARY: u8 = 2;
const CLOSING: u8 = 8;

/// Starts one, and makes it known as the node `stand-in`.
pub async fn register(stage: &Stage, authority: &Path) {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let port = stand_in::listen(authority, move |request| answer(Arc::clone(&directory), request)).await;
    let node = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "stand-in"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        },
    });
    stage.create(&node.to_string()).await;
}

async fn answer(
    directory: Arc<TempDir>,
    mut request: Request<Incoming>,
) -> hyper::Result<Response<Full<Bytes>>> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let refuse = |code: u16, text: String| {
        Ok(Response::builder().status(code).body(Full::from(Bytes::from(text))).unwrap())
    };
    let mut parts = path.split('/').skip(1);
    let (what, container) = (parts.next().unwrap_or_default(), parts.nth(2).unwrap_or_default());
    match what {
        "containerLogs" if container == "waiting" => refuse(
            400,
            "container \"waiting\" in pod \"a\" is waiting to start: ContainerCreating".to_owned(),
        ),
        "metrics" => refuse(200, usage(LOOKS.fetch_add(1, Ordering::Relaxed))),
        "containerLogs" => refuse(200, format!("{container} was asked for {query:?}\n")),
        "exec" | "attach" => {
            let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
            let is_spoken = header("sec-websocket-protocol").is_some_and(|all| all.contains(PROTOCOL));
            let Some(key) = header("sec-websocket-key").filter(|_| is_spoken) else {
                return refuse(403, format!("only {PROTOCOL} is spoken here"));
            };
            let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GREETING}").as_bytes());
            let command = match what {
                "attach" => vec!["cat".to_owned()],
                _ => command_in(&query),
            };
            let takes_input = query.split('&').any(|part| part == "input=1");
            tokio::spawn(run(directory, command, takes_input, hyper::upgrade::on(&mut request)));
            let switch = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            let switch = switch.header("connection", "Upgrade").header("upgrade", "websocket");
            let switch = switch.header("sec-websocket-accept", STANDARD.encode(accept));
            Ok(switch.header("sec-websocket-protocol", PROTOCOL).body(Full::default()).unwrap())
        }
        _ => refuse(404, format!("no {path} here")),
    }
}

/// How often it was asked what is used: each time it says that a second has passed.
static LOOKS: AtomicU64 = AtomicU64::new(1);

/// A quarter of a core for the node, a tenth of one for a pod.
fn usage(seconds: u64) -> String {
    let (at, cpu) = (seconds * 1000, seconds as f64);
    let main = r#"{container="main",namespace="default",pod="a"}"#;
    format!(
        "container_cpu_usage_seconds_total{main} {} {at}\n\
         container_memory_working_set_bytes{main} 5.24288e+07 {at}\n\
         node_cpu_usage_seconds_total {} {at}\n\
         node_memory_working_set_bytes 1.073741824e+09 {at}\n",
        cpu / 10.0,
        cpu / 4.0
    )
}

fn command_in(query: &str) -> Vec<String> {
    let words = query.split('&').filter_map(|part| part.strip_prefix("command="));
    let decode = |word: &str| {
        percent_encoding::percent_decode_str(&word.replace('+', " ")).decode_utf8().unwrap().into_owned()
    };
    words.map(decode).collect()
}

/// Runs a command with its input and output on a WebSocket.
async fn run(directory: Arc<TempDir>, command: Vec<String>, takes_input: bool, upgrade: OnUpgrade) {
    let Ok(stream) = upgrade.await else { return };
    let (reader, mut writer) = tokio::io::split(TokioIo::new(stream));
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).current_dir(directory.path()).kill_on_drop(true);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let input = process.stdin.take().filter(|_| takes_input);
    let (frames, mut written) = mpsc::channel(16);
    let output = pass_on(OUTPUT, process.stdout.take().unwrap(), frames.clone());
    let errors = pass_on(ERROR, process.stderr.take().unwrap(), frames.clone());
    tokio::spawn(feed(reader, input));
    tokio::spawn(async move {
        tokio::join!(output, errors);
        let code = process.wait().await.unwrap().code().unwrap_or(-1);
        let status = match code {
            0 => serde_json::json!({"metadata": {}, "status": "Success"}),
            code => serde_json::json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        };
        let _ = frames.send((BINARY, [&[STATUS], status.to_string().as_bytes()].concat())).await;
        let _ = frames.send((CLOSING, 1000_u16.to_be_bytes().to_vec())).await;
    });
    while let Some((kind, payload)) = written.recv().await {
        let mut frame = vec![0x80 | kind];
        match u16::try_from(payload.len()).unwrap() {
            length @ 0..126 => frame.push(length.to_le_bytes()[0]),
            length => frame.extend([&[126][..], &length.to_be_bytes()].concat()),
        }
        frame.extend(payload);
        if writer.write_all(&frame).await.is_err() {
            break;
        }
    }
    let _ = writer.shutdown().await;
}

async fn pass_on(channel: u8, mut from: impl AsyncRead + Unpin, frames: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if frames.send((BINARY, [&[channel], &buffer[..count]].concat())).await.is_err() {
            return;
        }
    }
}

/// Reads what the client sends, and gives its input to the command.
async fn feed(mut reader: ReadHalf<TokioIo<Upgraded>>, mut input: Option<ChildStdin>) {
    while let Ok((kind, payload)) = read_frame(&mut reader).await {
        match (kind, payload.as_slice()) {
            (CLOSING, _) => break,
            (BINARY, [CLOSE, 0]) => input = None,
            (BINARY, [0, bytes @ ..]) => {
                if let Some(input) = &mut input {
                    let _ = input.write_all(bytes).await;
                }
            }
            (_, _) => {}
        }
    }
}

async fn read_frame(reader: &mut ReadHalf<TokioIo<Upgraded>>) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = reader.read_u8().await? & 0x0f;
    let length = match reader.read_u8().await? & 0x7f {
        126 => u64::from(reader.read_u16().await?),
        127 => reader.read_u64().await?,
        length => u64::from(length),
    };
    let mut mask = [0; 4];
    reader.read_exact(&mut mask).await?;
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    reader.read_exact(&mut payload).await?;
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[at % 4];
    }
    Ok((kind, payload))
}
