//! What the tests of the program share: a node of their own, agents on it, and a simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crablet_cri_sim::{Settings, Simulator, serve};
use crablet_host::clock::Clock;
use crablet_testkit::{Daemon, eventually, unmount_below};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Where collectors of logs look for them.
const LINKS: &str = "/var/log/containers";

pub const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_crablet");

/// Long enough for a machine under load: what takes this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is logged when the agent is up.
pub const READY: &str = "Crablet is running";

/// A directory with all that an agent needs, and a cgroup. All that an agent makes goes with it.
pub struct Node {
    pub directory: TempDir,
    cgroup: CgroupRoot,
}

impl Node {
    /// With these lines in the configuration, besides what keeps a test to itself.
    pub fn new(fields: &str) -> Node {
        let node = Node { directory: tempfile::tempdir().unwrap(), cgroup: CgroupRoot::new() };
        let mut text = format!("{HEAD}{fields}\n");
        for (field, value) in [
            // What is left on the disk of whoever runs tests is nobody's business.
            ("evictionHard", "{memory.available: 1Mi}".to_owned()),
            ("imageGCHighThresholdPercent", "100".to_owned()),
            ("failSwapOn", "false".to_owned()),
            ("failCgroupV1", "false".to_owned()),
            ("healthzPort", "0".to_owned()),
            ("makeIPTablesUtilChains", "false".to_owned()),
            ("cgroupRoot", node.cgroup.0.clone()),
            ("podLogsDir", node.path("logs").display().to_string()),
            ("containerRuntimeEndpoint", format!("unix://{}", node.path("runtime.sock").display())),
        ] {
            if !fields.contains(field) {
                text.push_str(&format!("{field}: {value}\n"));
            }
        }
        fs::write(node.path("kubelet.yaml"), text).unwrap();
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A simulated runtime, where the configuration says that there is one.
    pub fn runtime(&self) -> SimulatedRuntime {
        self.runtime_with(Settings::default())
    }

    pub fn runtime_with(&self, settings: Settings) -> SimulatedRuntime {
        // An agent that is real looks for the file system.
        let file_system = self.directory.path().display().to_string();
        let settings =
            Settings { start: Clock::system().now(), file_system, makes_directories: true, ..settings };
        let listener = UnixListener::bind(self.path("runtime.sock")).unwrap();
        let simulator = Simulator::new(settings);
        let served = serve(simulator.clone(), listener, std::future::pending());
        let served = async move { served.await.unwrap() };
        SimulatedRuntime { simulator, _served: AbortOnDropHandle::new(tokio::spawn(served)) }
    }

    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--config={}", self.path("kubelet.yaml").display()),
            format!("--root-dir={}", self.path("root").display()),
            // The machine is whoever's runs tests.
            "--keep-kernel-settings".to_owned(),
        ]
    }

    pub async fn start(&self) -> Agent {
        self.start_with(&[], &[]).await
    }

    pub async fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Agent {
        let arguments = self.arguments().into_iter().chain(arguments.iter().map(ToString::to_string));
        self.spawn(Path::new(PROGRAM), arguments, variables).await
    }

    pub async fn spawn(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = String>,
        variables: &[(&str, &str)],
    ) -> Agent {
        let logs = fs::read_dir(self.directory.path()).unwrap().count();
        let log = self.path(&format!("{logs}.log"));
        let daemon = Daemon::spawn(program, arguments, variables.iter().copied(), &log).await.unwrap();
        Agent { daemon, log }
    }

    /// Runs an agent that is expected to end by itself.
    pub async fn run_with(&self, arguments: &[&str]) -> Output {
        run(Path::new(PROGRAM), self.arguments().iter().map(String::as_str).chain(arguments.iter().copied()))
            .await
    }

    /// `crablet log` with these flags.
    pub async fn log_command(&self, flags: &[&str]) -> Output {
        self.command("log", flags).await
    }

    /// A command that asks the agent.
    pub async fn command(&self, command: &str, arguments: &[&str]) -> Output {
        run(Path::new(PROGRAM), [command, &self.root_dir()].into_iter().chain(arguments.iter().copied()))
            .await
    }

    pub fn root_dir(&self) -> String {
        format!("--root-dir={}", self.path("root").display())
    }

    /// A text with this directory's path shortened.
    pub fn shorten(&self, text: &[u8]) -> String {
        String::from_utf8_lossy(text).replace(self.directory.path().to_str().unwrap(), "DIR")
    }
}

/// Removes what agents left outside: the mount that their root directory is, and the links to logs that they made for
/// collectors of logs.
impl Drop for Node {
    fn drop(&mut self) {
        unmount_below(self.directory.path());
        for entry in fs::read_dir(LINKS).into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path());
            if target.is_ok_and(|target| target.starts_with(self.directory.path())) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A simulated runtime that is served in this process until it is dropped.
pub struct SimulatedRuntime {
    pub simulator: Simulator,
    _served: AbortOnDropHandle<()>,
}

/// A cgroup in every hierarchy, for an agent to make others in.
struct CgroupRoot(String);

impl CgroupRoot {
    fn new() -> CgroupRoot {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = CgroupRoot(format!("/crablet-process-test-{}-{number}", std::process::id()));
        for directory in root.directories() {
            // Some hierarchies take none; the agent says so if it needs one of them.
            let _ = fs::create_dir(directory);
        }
        root
    }

    fn directories(&self) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mounts = mounts.lines().filter_map(|line| {
            let mut columns = line.split(' ').skip(1);
            let (path, kind) = (columns.next()?, columns.next()?);
            matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(format!("{path}{}", self.0)))
        });
        mounts.collect()
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        fn remove(directory: &Path) {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            let _ = fs::remove_dir(directory);
        }
        self.directories().iter().for_each(|directory| remove(directory));
    }
}

/// A running agent. It is killed before what it made is removed, as long as it is declared after its node.
pub struct Agent {
    pub daemon: Daemon,
    pub log: PathBuf,
}

impl Agent {
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The first line of its log that holds all of these, as soon as there is one.
    pub async fn logs(&self, parts: &[&str]) -> String {
        eventually(&format!("the log says {parts:?}"), PATIENCE, || async {
            let log = self.log();
            let line = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
            line.map(str::to_owned).ok_or(log)
        })
        .await
        .unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// The code that it ends with.
    pub async fn ends(&mut self) -> Option<i32> {
        let status = timeout(PATIENCE, self.daemon.wait()).await.expect("it does not end").unwrap();
        status.code()
    }

    pub async fn stops(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ends().await, Some(0), "{}", self.log());
    }

    /// The ports that it listens on.
    pub fn listening(&self) -> Vec<u16> {
        let proc = PathBuf::from(format!("/proc/{}", self.pid()));
        let descriptors = fs::read_dir(proc.join("fd")).unwrap();
        let own: Vec<String> = descriptors
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()?.to_str().map(str::to_owned))
            .collect();
        let mut ports = Vec::new();
        for table in ["net/tcp", "net/tcp6"] {
            for line in fs::read_to_string(proc.join(table)).unwrap_or_default().lines().skip(1) {
                let columns: Vec<&str> = line.split_whitespace().collect();
                let is_listening = columns[3] == "0A";
                if is_listening && own.contains(&format!("socket:[{}]", columns[9])) {
                    let (_, port) = columns[1].rsplit_once(':').unwrap();
                    ports.push(u16::from_str_radix(port, 16).unwrap());
                }
            }
        }
        ports
    }
}

pub async fn run<'a>(program: &Path, arguments: impl Iterator<Item = &'a str>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    timeout(PATIENCE, command.output()).await.expect("it does not end").unwrap()
}

/// Code, standard output and standard error.
pub fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The status and the body that a path is answered with.
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String), std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

/// A port that nobody had a moment ago.
pub async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// An agent whose configuration names a port. Somebody else may take the port first: then another is tried.
pub async fn start_on_a_port(fields: impl Fn(u16) -> String) -> (Node, Agent, SocketAddr) {
    for _ in 0..10 {
        let port = free_port().await;
        let node = Node::new(&fields(port));
        let agent = node.start().await;
        let listens = eventually("the agent listens", PATIENCE, || async {
            match agent.daemon.exit() {
                None if agent.listening().contains(&port) => Ok(true),
                None => Err(agent.log()),
                Some(_) => Ok(false),
            }
        });
        if listens.await.unwrap() {
            return (node, agent, SocketAddr::from(([127, 0, 0, 1], port)));
        }
        assert!(agent.log().contains("Address already in use"), "{}", agent.log());
    }
    panic!("every port was taken");
}
