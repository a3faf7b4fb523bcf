//! A node for an agent to run on: its directories, its configuration, its manifests, and what it says of its pods.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cleanup::remove_cgroup;
use crate::daemon::Daemon;
use crate::processes::{Mount, mounts};
use crate::wait::eventually;

/// What is logged when an agent is up.
const READY: &str = "Crablet is running";
/// Long enough for a machine under load: what takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that somebody else took first, before this is given up.
const MOST_PORTS: usize = 10;

/// A node with static pods in a directory of manifests. Agents come and go on it; what it is made of stays.
///
/// Its name is `node`, which the names of its pods end with. Dropping it removes its directory, after all mounts in it,
/// and its cgroup, but for what still runs in that.
pub struct Node {
    directory: TempDir,
    program: PathBuf,
    cgroup: String,
    port: u16,
    starts: usize,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Node {
    /// A node whose agents are `program`, on the runtime at `endpoint`, with all cgroups below `cgroup`, and with these
    /// lines in the configuration besides what keeps it to itself.
    pub fn new(program: &Path, endpoint: &str, cgroup: &str, fields: &str) -> Result<Node> {
        let directory = tempfile::Builder::new().prefix("crablet-node.").tempdir()?;
        let node = Node {
            directory,
            program: program.to_owned(),
            cgroup: cgroup.to_owned(),
            port: 0,
            starts: 0,
            flags: Vec::new(),
            variables: Vec::new(),
        };
        fs::create_dir_all(node.path("manifests"))?;
        // What is left on the disk of whoever runs tests is nobody's business.
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             address: 127.0.0.1\n\
             cgroupRoot: {cgroup}\n\
             containerRuntimeEndpoint: {endpoint}\n\
             evictionHard: {{memory.available: 1Mi}}\n\
             failCgroupV1: false\n\
             failSwapOn: false\n\
             healthzPort: 0\n\
             enableServer: false\n\
             imageGCHighThresholdPercent: 100\n\
             makeIPTablesUtilChains: false\n\
             podLogsDir: {logs}\n\
             staticPodPath: {manifests}\n\
             {fields}\n",
            logs = node.logs().display(),
            manifests = node.path("manifests").display(),
        );
        fs::write(node.path("kubelet.yaml"), configuration)?;
        make_cgroup(cgroup)?;
        node.make_memory()?;
        Ok(node)
    }

    /// On most machines `/run` is in memory. Where it is not, this node's part of it is.
    fn make_memory(&self) -> Result<()> {
        const TMPFS: i64 = 0x0102_1994;
        let path = self.memory();
        fs::create_dir_all(&path)?;
        if rustix::fs::statfs(&path)?.f_type != TMPFS {
            mount("tmpfs", &path, "tmpfs", MountFlags::empty(), None)?;
        }
        Ok(())
    }

    /// Has the agents that are started from now on join the cluster of a kubeconfig.
    pub fn join(&mut self, kubeconfig: &Path) {
        self.flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        self.flags.push(format!("--cert-dir={}", self.path("pki").display()));
    }

    /// Has the agents that are started from now on serve the node's API on a port, to those who have a certificate of an
    /// authority, or whom the cluster knows.
    pub fn serve(&mut self, port: u16, authority: &Path) {
        self.flags.push("--enable-server=true".to_owned());
        // The API server reaches it by the node's address.
        self.flags.push("--address=0.0.0.0".to_owned());
        self.flags.push(format!("--port={port}"));
        self.flags.push(format!("--client-ca-file={}", authority.display()));
    }

    /// Has the agents that are started from now on find programs in a directory first.
    pub fn with_programs(&mut self, directory: &Path) {
        let others = std::env::var("PATH").unwrap_or_default();
        self.variables.push(("PATH".to_owned(), format!("{}:{others}", directory.display())));
    }

    /// Something in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The agent's root directory.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Where the agent keeps in memory what need not outlive the machine.
    pub fn memory(&self) -> PathBuf {
        Path::new("/run/crablet").join(self.root().display().to_string().replace('/', "%2F"))
    }

    /// The directory of the pods' logs.
    pub fn logs(&self) -> PathBuf {
        self.path("logs")
    }

    /// The log of the latest agent.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.path(&format!("agent-{}.log", self.starts))
    }

    /// Starts an agent and returns at once.
    pub async fn spawn(&mut self) -> Result<Daemon> {
        let program = self.program.clone();
        self.spawn_as(&program).await
    }

    /// The same with another program, which takes the same flags.
    pub async fn spawn_as(&mut self, program: &Path) -> Result<Daemon> {
        self.starts += 1;
        self.port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
        let arguments = [
            format!("--config={}", self.path("kubelet.yaml").display()),
            format!("--root-dir={}", self.root().display()),
            format!("--read-only-port={}", self.port),
            "--hostname-override=node".to_owned(),
        ];
        // The machine is whoever's runs tests. The Go kubelet cannot be told so.
        let keeps = program.file_name() == Some("crablet".as_ref());
        let ours = keeps.then(|| "--keep-kernel-settings".to_owned());
        let arguments = arguments.iter().chain(&self.flags).chain(&ours);
        let variables = self.variables.iter().map(|(name, value)| (&**name, &**value));
        Daemon::spawn(program, arguments, variables, &self.log_file()).await
    }

    /// Starts an agent and waits until it is up.
    pub async fn start(&mut self) -> Result<Daemon> {
        for _ in 0..MOST_PORTS {
            let agent = self.spawn().await?;
            let is_up = eventually("the agent is up", PATIENCE, || async {
                match agent.exit() {
                    None if self.log().contains(READY) => Ok(true),
                    None => Err(agent.log_tail()),
                    Some(_) => Ok(false),
                }
            });
            if is_up.await? {
                return Ok(agent);
            }
            ensure!(self.log().contains("Address already in use"), "the agent ended:\n{}", self.log());
        }
        bail!("every port was taken")
    }

    /// Puts a manifest into the directory, or in the place of the one of that name, all at once.
    pub fn put(&self, name: &str, manifest: &str) -> Result<()> {
        let temporary = self.path("manifest");
        fs::write(&temporary, manifest)?;
        Ok(fs::rename(&temporary, self.manifest(name))?)
    }

    /// Takes a manifest out of the directory.
    pub fn take(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifest(name)).with_context(|| format!("cannot remove the manifest {name}"))
    }

    /// Where the manifest of a name is.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.path("manifests").join(format!("{name}.yaml"))
    }

    /// What the agent says of its pods: the items of `/pods`.
    pub async fn pods(&self) -> Result<Vec<Value>> {
        let (status, body) = self.get("/pods").await?;
        ensure!(status == 200, "/pods is answered with {status}: {body}");
        let mut list: Value = serde_json::from_str(&body).with_context(|| format!("/pods is {body:?}"))?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            Value::Null => Ok(Vec::new()),
            other => bail!("the items of /pods are {other}"),
        }
    }

    /// What the agent says of the pod whose manifest has this name, if it knows it.
    pub async fn pod(&self, name: &str) -> Result<Option<Value>> {
        let full_name = format!("{name}-node");
        Ok(self.pods().await?.into_iter().find(|pod| pod["metadata"]["name"] == full_name.as_str()))
    }

    /// The status and the body that the read-only port answers a path with.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut stream = TcpStream::connect(address).await?;
        // The oldest version of the protocol has the simplest answers.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).context("no status in the answer")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// The cgroups of pods that there are, in whichever hierarchy.
    pub fn pod_cgroups(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for hierarchy in hierarchies()? {
            let kubepods = below(&hierarchy, &self.cgroup).join("kubepods");
            for level in [kubepods.clone(), kubepods.join("burstable"), kubepods.join("besteffort")] {
                let Ok(entries) = fs::read_dir(level) else { continue };
                let is_pod = |path: &PathBuf| {
                    path.is_dir()
                        && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pod"))
                };
                found.extend(entries.flatten().map(|entry| entry.path()).filter(is_pod));
            }
        }
        Ok(found)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", self.log());
        }
        unmount_below(self.directory.path());
        // It may be no mount.
        let _ = unmount(self.memory(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        let _ = fs::remove_dir_all(self.memory());
        for hierarchy in hierarchies().unwrap_or_default() {
            // What still runs in it keeps it; whoever runs that removes it.
            let _ = remove_cgroup(&below(&hierarchy, &self.cgroup));
        }
    }
}

/// Unmounts all that is mounted in a directory, before it is removed: what a pod's volume shows may be the host's.
pub fn unmount_below(directory: &Path) {
    let own = |mount: &&Mount| mount.path.starts_with(directory);
    for mount in mounts().unwrap_or_default().iter().rev().filter(own) {
        let _ = unmount(&mount.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let is_cgroup = |filesystem: &str| matches!(filesystem, "cgroup" | "cgroup2");
    let mounts = mounts()?.into_iter().filter(|mount| is_cgroup(&mount.filesystem));
    Ok(mounts.map(|mount| mount.path).filter(|path| path.starts_with("/sys/fs/cgroup")).collect())
}

fn make_cgroup(cgroup: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let path = below(&hierarchy, cgroup);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    Ok(())
}

fn below(hierarchy: &Path, cgroup: &str) -> PathBuf {
    hierarchy.join(cgroup.trim_start_matches('/'))
}
