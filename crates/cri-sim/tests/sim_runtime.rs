//! `crablet-sim-runtime`, asked by a client that is not ours.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crablet-sim-runtime");

/// Long enough for a machine under load: what takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulated runtime that serves; it is killed when it is dropped.
struct Runtime {
    process: Child,
    greeting: String,
}

impl Runtime {
    async fn start(socket: &Path) -> Runtime {
        let mut process = Command::new(PROGRAM)
            .args(["--listen", &format!("unix://{}", socket.display())])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut greeting = String::new();
        // It serves before it says so; the second line is the last.
        for _ in 0..2 {
            let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
            greeting.push_str(&line.unwrap());
            greeting.push('\n');
        }
        Runtime { process, greeting }
    }

    async fn stop(mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(self.process.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
        timeout(PATIENCE, self.process.wait()).await.unwrap().unwrap().code()
    }
}

async fn refused(endpoint: &str) -> String {
    let run = Command::new(PROGRAM).args(["--listen", endpoint]).output();
    let Output { status, stderr, .. } = timeout(PATIENCE, run).await.unwrap().unwrap();
    format!("{}: {}", status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// The Python that has gRPC.
fn python() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let python = cache.join("crablet/python/bin/python");
    assert!(python.exists(), "{} is not there: run scripts/setup test", python.display());
    python
}

#[tokio::test]
async fn a_client_in_python_drives_a_pods_whole_life_however_it_names_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sim.sock");
    let descriptors = directory.path().join("descriptors.bin");
    let logs = directory.path().join("logs");
    fs::write(&descriptors, crablet_cri_api::DESCRIPTORS).unwrap();
    fs::create_dir(&logs).unwrap();
    let runtime = Runtime::start(&socket).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pod_life.py");
    let run =
        Command::new(python()).arg(script).args([&socket, &descriptors, &logs]).kill_on_drop(true).output();
    let Output { status, stdout, stderr } = timeout(PATIENCE, run).await.unwrap().unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{told}");
    assert_eq!(told.matches("ok: the events").count(), 5, "{told}");
    assert_eq!(runtime.stop(Signal::TERM).await, Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn it_says_what_it_serves_and_ends_on_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sim.sock");
    let runtime = Runtime::start(&socket).await;
    let shown = socket.display();
    assert_eq!(
        runtime.greeting,
        format!(
            "serving a simulated CRI v1 runtime on unix://{shown} (seed 1)\n\
             try: crictl --runtime-endpoint unix://{shown} version\n"
        )
    );
    assert_eq!(runtime.stop(Signal::INT).await, Some(0));
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_replaced_and_any_other_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sim.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let runtime = Runtime::start(&socket).await;
    let endpoint = format!("unix://{}", socket.display());
    assert_eq!(
        refused(&endpoint).await,
        format!(
            "1: crablet-sim-runtime: another process listens on {}: stop it, or choose another path\n",
            socket.display()
        )
    );
    assert_eq!(runtime.stop(Signal::TERM).await, Some(0));

    fs::write(&socket, "mine").unwrap();
    assert_eq!(
        refused(&endpoint).await,
        format!(
            "1: crablet-sim-runtime: {} is there and is no socket: choose another path, or remove it\n",
            socket.display()
        )
    );
    assert_eq!(fs::read(&socket).unwrap(), b"mine");
}

#[tokio::test]
async fn an_endpoint_that_is_no_socket_is_refused() {
    assert_eq!(
        refused("sim.sock").await,
        "2: crablet-sim-runtime: --listen: \"sim.sock\" is no unix socket: expected unix:///path/to/socket (see --help)\n"
    );
    let missing = refused("unix:///no/such/directory/sim.sock").await;
    assert!(
        missing.starts_with("1: crablet-sim-runtime: cannot listen on /no/such/directory/sim.sock: "),
        "{missing}"
    );
}
