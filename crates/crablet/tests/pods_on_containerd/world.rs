//! What a test stands on, and what it asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::{ContainerFilter, SandboxFilter};
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO};
use crablet_testkit::{Containerd, Daemon, Image, Node, eventually};
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_crablet");

/// Long enough for a machine under load: what takes this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs until it is asked to stop, and then stops at once.
pub(crate) const OBEDIENT: &str = "trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// A containerd, a node on it, and its agent.
pub(crate) struct World {
    pub(crate) agent: Option<Daemon>,
    pub(crate) node: Node,
    pub(crate) client: Client,
    pub(crate) containerd: Containerd,
}

impl World {
    pub(crate) async fn start() -> World {
        World::start_with("").await
    }

    /// One whose configuration has these fields, too.
    pub(crate) async fn start_with(fields: &str) -> World {
        let containerd = Containerd::start().await.unwrap();
        containerd.import(&Image::pause().unwrap()).await.unwrap();
        containerd.import(&Image::busybox().unwrap()).await.unwrap();
        let client = Client::new(&containerd.endpoint(), None, Settings::default()).unwrap();
        let fields = format!("fileCheckFrequency: 300s\n{fields}");
        let mut node =
            Node::new(Path::new(PROGRAM), &containerd.endpoint(), &containerd.cgroup(), &fields).unwrap();
        let agent = Some(node.start().await.unwrap());
        World { agent, node, client, containerd }
    }

    /// Puts a pod with this spec onto the node.
    pub(crate) fn put(&self, name: &str, spec: &str) {
        self.node.put(name, &manifest(name, spec)).unwrap();
    }

    /// What a command of crablet says of the node.
    pub(crate) async fn prints(&self, command: &str, arguments: &[&str]) -> String {
        let root = format!("--root-dir={}", self.node.root().display());
        let mut program = tokio::process::Command::new(PROGRAM);
        let output = program.arg(command).arg(root).args(arguments).output().await.unwrap();
        assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn stop_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.terminate();
        agent.wait().await.unwrap();
    }

    pub(crate) async fn start_agent(&mut self) {
        self.agent = Some(self.node.start().await.unwrap());
    }

    /// The pod, as soon as `/pods` shows it as it is awaited.
    pub(crate) async fn awaits(&self, name: &str, awaited: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("pod {name} {awaited}"), PATIENCE, || async {
            let pod = self.node.pod(name).await.map_err(|error| format!("{error:#}"))?;
            let pod = pod.ok_or("there is no such pod")?;
            if is_so(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn awaits_phase(&self, name: &str, phase: &str) -> Value {
        self.awaits(name, &format!("is {phase}"), |pod| pod["status"]["phase"] == phase).await
    }

    /// Takes every manifest away, and waits until the agent shows no pod.
    pub(crate) async fn take_all(&self) {
        for name in entries(&self.node.path("manifests")) {
            self.node.take(name.strip_suffix(".yaml").unwrap()).unwrap();
        }
        eventually("all pods are gone", PATIENCE, || async {
            let pods = self.node.pods().await.map_err(|error| error.to_string())?;
            if pods.is_empty() { Ok(()) } else { Err(format!("{} pods", pods.len())) }
        })
        .await
        .unwrap();
    }

    /// Waits until neither the agent nor the runtime knows a pod of this name.
    pub(crate) async fn awaits_end(&self, name: &str) {
        eventually(&format!("pod {name} is gone"), PATIENCE, || async {
            if let Some(pod) = self.node.pod(name).await.map_err(|error| format!("{error:#}"))? {
                return Err(format!("{:#}", pod["status"]));
            }
            // Of an orphan, the agent knows a little after its start.
            let containers = self.containers_of(name).await;
            if containers.is_empty() { Ok(()) } else { Err(format!("the runtime has {containers:?}")) }
        })
        .await
        .unwrap();
    }

    /// The names and IDs of the containers of a pod, and when they were started.
    pub(crate) async fn containers_of(&self, name: &str) -> Vec<(String, String, Option<Timestamp>)> {
        let labels = BTreeMap::from([("io.kubernetes.pod.name".to_owned(), format!("{name}-node"))]);
        let filter = ContainerFilter { labels, ..ContainerFilter::default() };
        let mut found = Vec::new();
        for container in self.client.list_containers(filter).await.unwrap() {
            let status = self.client.container_status(&container.id).await.unwrap();
            found.push((container.name, container.id, status.started_at));
        }
        found.sort();
        found
    }

    /// Nothing is left of any pod: in the runtime, in cgroups, on disk.
    pub(crate) async fn assert_nothing_is_left(&self) {
        assert_eq!(self.client.list_sandboxes(SandboxFilter::default()).await.unwrap(), []);
        assert_eq!(self.client.list_containers(ContainerFilter::default()).await.unwrap(), []);
        assert_eq!(self.node.pod_cgroups().unwrap(), Vec::<PathBuf>::new());
        let directories = ["root/pods", "root/crablet/pods", "logs"].map(|path| self.node.path(path));
        for directory in directories.into_iter().chain([self.node.memory().join("pods")]) {
            let mut entries = entries(&directory);
            // What the agent has for itself there.
            entries.retain(|name| !name.starts_with('.'));
            assert_eq!(entries, Vec::<String>::new(), "{}", directory.display());
        }
    }
}

pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn manifest(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n{spec}")
}

/// The spec of a container in a shell, as an item of a list.
pub(crate) fn container(name: &str, script: &str) -> String {
    let script = script.replace('"', "\\\"");
    format!(
        "  - name: {name}\n    image: crablet.test/busybox:1\n    imagePullPolicy: Never\n    \
         command: [/bin/sh, -c, \"{script}\"]\n"
    )
}

pub(crate) fn of_one(script: &str) -> String {
    format!("  containers:\n{}", container("main", script))
}

/// The status of a container, init container or not.
pub(crate) fn container_status<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let all = lists.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Who hears what containers say, in the order in which they say it. They must be in the host's network.
#[derive(Clone)]
pub(crate) struct Ear {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Ear {
    pub(crate) async fn open() -> Ear {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ear = Ear { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
        let heard = Arc::clone(&ear.heard);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut word = String::new();
                // One after the other: who says something waits until it was heard.
                stream.read_to_string(&mut word).await.unwrap();
                heard.lock().unwrap().push(word.trim().to_owned());
            }
        });
        ear
    }

    /// A command of a shell that says something to this ear.
    pub(crate) fn say(&self, word: &str) -> String {
        format!("echo {word} | nc 127.0.0.1 {}", self.port)
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) async fn hears(&self, word: &str) {
        eventually(&format!("{word:?} is heard"), PATIENCE, || async {
            let heard = self.heard();
            if heard.iter().any(|other| other == word) { Ok(()) } else { Err(format!("heard {heard:?}")) }
        })
        .await
        .unwrap();
    }

    /// The place of each of these among all that was heard.
    pub(crate) fn order(&self, words: &[&str]) -> Vec<Option<usize>> {
        let heard = self.heard();
        words.iter().map(|word| heard.iter().position(|other| other == word)).collect()
    }
}

/// What must not change: of each pod its UID, start and readiness, and its containers.
pub(crate) type Unchanging = BTreeMap<String, (Value, Value, bool, Vec<(String, String, Option<Timestamp>)>)>;

impl World {
    /// What is mounted for pods: the node's directory itself is a mount where the machine shares none.
    pub(crate) fn mounted(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let root = self.node.root().canonicalize().unwrap();
        let below = table.under(&root).into_iter().filter(|mount| mount.mount_point != root);
        below.map(|mount| mount.mount_point.clone()).collect()
    }

    pub(crate) async fn pods_and_containers(&self) -> Unchanging {
        let mut found = BTreeMap::new();
        for pod in self.node.pods().await.unwrap() {
            let name = pod["metadata"]["name"].as_str().unwrap().strip_suffix("-node").unwrap().to_owned();
            let containers = self.containers_of(&name).await;
            let uid = pod["metadata"]["uid"].clone();
            found.insert(name, (uid, pod["status"]["startTime"].clone(), is_ready(&pod), containers));
        }
        found
    }
}

pub(crate) fn without(all: &Unchanging, name: &str) -> Unchanging {
    all.iter().filter(|(other, _)| *other != name).map(|(name, pod)| (name.clone(), pod.clone())).collect()
}
