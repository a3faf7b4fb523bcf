//! The node of the machine: an API server and the agent, each a unit of systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_host::clock::Clock;
use crablet_testkit::{Image, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// A machine that is emulated is slow: what takes this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Only the machine that is made for these tests has this.
const OURS: &str = "/test/crablet.deb";
/// What kubeadm 1.36 writes.
const KUBEADM: &str = include_str!("../../../config/tests/data/kubeadm-1.36.yaml");
const DROP_IN: &str = include_str!("../data/10-kubeadm.conf");
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Where what differs from kubeadm's configuration is.
const DROP_INS: &str = "/etc/kubernetes/kubelet.conf.d";
/// Where static pods are.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
const API: &str = "/var/lib/crablet-api";
/// Between two questions to an agent that is watched.
const PAUSE: Duration = Duration::from_millis(50);

/// The node, with its agent, as long as a test lasts.
pub struct Node {
    /// Where the journal was when it began.
    cursor: String,
    answers: Arc<Mutex<Answers>>,
    _watched: AbortOnDropHandle<()>,
}

/// Who is the node's kubelet. Both are started by the same unit, with the same flags, configuration and root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubelet {
    Crablet,
    Go,
}

impl Kubelet {
    fn program(self) -> &'static str {
        match self {
            Kubelet::Crablet => "/usr/bin/crablet",
            Kubelet::Go => "/test/go-kubelet",
        }
    }

    /// The Go kubelet is on the disk only if `make vm` was told where it is.
    pub fn is_there(self) -> bool {
        Path::new(self.program()).exists()
    }
}

/// How long the agent took to answer.
#[derive(Default)]
struct Answers {
    healthz: Vec<Duration>,
    pods: Vec<Duration>,
    failures: Vec<String>,
}

/// What a command of the shell prints, if it succeeds.
pub async fn run(command: &str) -> String {
    assert!(Path::new(OURS).exists(), "this changes the machine and is for the one that `make vm` boots");
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {command}")])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output =
        timeout(PATIENCE, output).await.unwrap_or_else(|_| panic!("{command} does not end")).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    assert!(output.status.success(), "{command}: {printed}");
    printed
}

/// What asks the API server as the admin.
fn asking(path: &str) -> Command {
    let file = |name: &str| format!("{API}/pki/{name}");
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--fail-with-body"])
        .args(["--cacert", &file("ca.crt"), "--cert", &file("admin.crt"), "--key", &file("admin.key")])
        .arg(format!("https://127.0.0.1:6443{path}"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// What it answers.
async fn ask(path: &str, arguments: &[&str]) -> Result<Value, String> {
    let output = asking(path).args(["--max-time", "20"]).args(arguments).output();
    let output = output.await.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{path}: {output:?}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

async fn cursor() -> String {
    let last = run("journalctl --lines=0 --show-cursor").await;
    last.lines().find_map(|line| line.strip_prefix("-- cursor: ")).unwrap().to_owned()
}

impl Node {
    /// Starts the agent anew on a node without pods, with the configuration that kubeadm writes and these lines in a file beside it, and watches it.
    pub async fn start(fields: &str) -> Node {
        Node::start_as(Kubelet::Crablet, fields).await
    }

    /// The same with one or the other.
    pub async fn start_as(kubelet: Kubelet, fields: &str) -> Node {
        import_images().await;
        start_api_server().await;
        if has_pods().await {
            put_in_place(Kubelet::Crablet).await;
            run("systemctl start kubelet").await;
            clear().await;
        }
        Node::restart_as(kubelet, fields).await
    }

    /// Starts the agent anew where pods stay.
    pub async fn restart(fields: &str) -> Node {
        Node::restart_as(Kubelet::Crablet, fields).await
    }

    /// The same with one or the other, whoever was it before.
    pub async fn restart_as(kubelet: Kubelet, fields: &str) -> Node {
        // What systemd was told to run does not come back with the machine.
        start_api_server().await;
        put_in_place(kubelet).await;
        configure(fields).await;
        let cursor = cursor().await;
        run("systemctl daemon-reload && systemctl start kubelet").await;
        await_ready(kubelet).await;
        let answers = Arc::default();
        let watched = tokio::spawn(watch(kubelet, Arc::clone(&answers)));
        Node { cursor, answers, _watched: AbortOnDropHandle::new(watched) }
    }

    /// Removes all pods and says how long the agent took to answer while it was watched. It always did.
    pub async fn end(self) {
        clear().await;
        self.leave();
    }

    /// The same, and pods stay.
    pub fn leave(self) {
        let answers = self.answers.lock().unwrap();
        for (question, took) in [("/healthz", &answers.healthz), ("`crablet pods`", &answers.pods)] {
            let mut took = took.clone();
            took.sort();
            if let (Some(median), Some(worst)) = (took.get(took.len() / 2), took.last()) {
                println!(
                    "the agent answered {question} {} times, mostly after {median:.1?}, at worst after {worst:.1?}",
                    took.len()
                );
            }
        }
        assert_eq!(answers.failures, Vec::<String>::new(), "it always answers");
    }

    pub async fn create(&self, name: &str, spec: Value) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let request = ["--header", "Content-Type: application/json", "--data", &pod.to_string()];
        // A pod is refused until its service account is there.
        eventually("the pod is created", PATIENCE, || ask(PODS, &request)).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        ask(&format!("{PODS}/{name}"), &["--request", "DELETE"]).await.unwrap();
    }

    /// Asks for other resources of a container.
    pub async fn resize(&self, pod: &str, container: &str, resources: &Value) {
        let patch =
            json!({"spec": {"containers": [{"name": container, "resources": resources}]}}).to_string();
        let header = "Content-Type: application/strategic-merge-patch+json";
        let request = ["--request", "PATCH", "--header", header, "--data", &patch];
        ask(&format!("{PODS}/{pod}/resize"), &request).await.unwrap();
    }

    pub async fn pod(&self, name: &str) -> Result<Value, String> {
        ask(&format!("{PODS}/{name}"), &[]).await
    }

    /// The pod, once it is as it is awaited.
    pub async fn awaits(&self, name: &str, awaited: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("pod {name} {awaited}"), PATIENCE, || async {
            let pod = self.pod(name).await?;
            if is_so(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
        })
        .await
        .unwrap()
    }

    pub async fn awaits_phase(&self, name: &str, phase: &str) -> Value {
        self.awaits(name, &format!("is {phase}"), |pod| pod["status"]["phase"] == phase).await
    }

    /// What the API server has of the node.
    pub async fn status(&self) -> Result<Value, String> {
        Ok(ask("/api/v1/nodes/node-1", &[]).await?["status"].take())
    }

    /// Waits until a condition of the node has this status.
    pub async fn awaits_condition(&self, kind: &str, status: &str) {
        eventually(&format!("{kind} is {status}"), PATIENCE, || async {
            let found = condition(kind).await?;
            if found == status { Ok(()) } else { Err(found) }
        })
        .await
        .unwrap();
    }

    /// Whether there is an event of this reason about something of this name.
    pub async fn awaits_event(&self, about: &str, reason: &str) -> Value {
        eventually(&format!("{reason} is told of {about}"), PATIENCE, || async {
            let events = ask("/api/v1/events", &[]).await?;
            let mut events = events["items"].as_array().cloned().unwrap_or_default();
            events.retain(|event| event["involvedObject"]["name"] == about);
            let found = events.iter().find(|event| event["reason"] == reason).cloned();
            found.ok_or_else(|| format!("{events:#?}"))
        })
        .await
        .unwrap()
    }

    /// The events about something of this name, the oldest first.
    pub async fn events(&self, about: &str) -> Vec<Value> {
        let events = ask("/api/v1/events", &[]).await.unwrap();
        let mut events = events["items"].as_array().cloned().unwrap_or_default();
        events.retain(|event| event["involvedObject"]["name"] == about);
        events.sort_by_key(|event| {
            event["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
        });
        events
    }

    /// Follows a pod, from how it is now on.
    pub async fn follow(&self, name: &str) -> Followed {
        let file = tempfile::NamedTempFile::new().unwrap();
        let watch = asking(&format!("{PODS}?watch=1&fieldSelector=metadata.name={name}"))
            .arg("--no-buffer")
            .stdout(file.reopen().unwrap())
            .spawn()
            .unwrap();
        let followed = Followed { file, _watch: watch };
        eventually("the pod is followed", PATIENCE, || async {
            if followed.pods().is_empty() { Err("nothing is told yet") } else { Ok(()) }
        })
        .await
        .unwrap();
        followed
    }

    /// What the agent has logged since it was started, each line after the seconds since 1970.
    pub async fn log(&self) -> String {
        run(&format!(
            "journalctl --no-pager --output=short-unix --unit=kubelet --after-cursor='{}'",
            self.cursor
        ))
        .await
    }

    /// Those lines of the kernel's log since then that have this in them.
    pub async fn kernel_log(&self, text: &str) -> String {
        run(&format!(
            "journalctl --no-pager --dmesg --after-cursor='{}' | {{ grep '{text}' || true; }}",
            self.cursor
        ))
        .await
    }

    /// When the agent logged the first line with this in it, in seconds since 1970.
    pub async fn logged_at(&self, text: &str) -> f64 {
        let log = self.log().await;
        let line =
            log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?}: {log}"));
        line.split(' ').next().unwrap().parse().unwrap()
    }
}

/// All that is told of a pod.
pub struct Followed {
    file: tempfile::NamedTempFile,
    _watch: Child,
}

impl Followed {
    /// The pod as it was, again and again.
    pub fn pods(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file.path()).unwrap();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.map(|mut event| event["object"].take()).collect()
    }
}

impl Drop for Node {
    /// What went wrong is in the journal, which is in a file outside.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the journal from {} on tells of this test", self.cursor);
        }
    }
}

/// Seconds since 1970.
pub fn now() -> f64 {
    Clock::system().now().as_microsecond() as f64 / 1e6
}

/// The pods' slices, one on each line.
pub async fn slices() -> String {
    run("systemctl list-units --no-legend --plain --type=slice 'kubepods*' | cut -d ' ' -f 1").await
}

/// The status of a container.
pub fn container_status<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    all.into_iter().find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

/// Which run of a container it is: its ID, and how often it was restarted.
pub fn lives(pod: &Value, name: &str) -> (Value, Value) {
    let status = container_status(pod, name);
    (status["containerID"].clone(), status["restartCount"].clone())
}

/// The directory of a pod's cgroup, as systemd names it.
pub fn pod_cgroup(pod: &Value) -> PathBuf {
    let uid = pod["metadata"]["uid"].as_str().unwrap().replace('-', "_");
    let slice = match pod["status"]["qosClass"].as_str().unwrap() {
        "Guaranteed" => format!("kubepods-pod{uid}.slice"),
        class => {
            let class = class.to_lowercase();
            format!("kubepods-{class}.slice/kubepods-{class}-pod{uid}.slice")
        }
    };
    Path::new("/sys/fs/cgroup/kubepods.slice").join(slice)
}

/// That of a container of it.
pub fn container_cgroup(pod: &Value, name: &str) -> PathBuf {
    let id = container_status(pod, name)["containerID"].as_str().unwrap();
    pod_cgroup(pod).join(format!("cri-containerd-{}.scope", id.rsplit('/').next().unwrap()))
}

/// A file of a cgroup.
pub fn read(cgroup: &Path, file: &str) -> Result<String, String> {
    let path = cgroup.join(file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

/// A container that runs a script until it is asked to stop.
pub fn container(name: &str, script: &str, resources: Value) -> Value {
    json!({
        "name": name, "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script], "resources": resources,
    })
}

/// The script of one that waits until it is asked to stop.
pub const WAITS: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A pod of these containers.
pub fn pod(containers: impl Into<Value>) -> Value {
    json!({"nodeName": "node-1", "terminationGracePeriodSeconds": 1, "containers": containers.into()})
}

async fn has_pods() -> bool {
    ask(PODS, &[]).await.unwrap()["items"].as_array().is_some_and(|pods| !pods.is_empty())
}

/// Removes all pods, and waits until nothing is left of them.
async fn clear() {
    run(&format!("rm -f {MANIFESTS}/*")).await;
    let pods = ask(PODS, &[]).await.unwrap();
    for pod in pods["items"].as_array().into_iter().flatten() {
        // What stands for a static pod may be gone by then.
        let name = pod["metadata"]["name"].as_str().unwrap();
        let _ = ask(&format!("{PODS}/{name}"), &["--request", "DELETE"]).await;
    }
    eventually("all pods are gone", PATIENCE, || async {
        let pods = ask(PODS, &[]).await?;
        match pods["items"].as_array().is_none_or(Vec::is_empty) {
            true => Ok(()),
            false => Err(format!("{:#}", pods["items"][0]["status"])),
        }
    })
    .await
    .unwrap();
    eventually("all slices are gone", PATIENCE, || async {
        let slices = slices().await;
        if slices.contains("-pod") { Err(slices) } else { Ok(()) }
    })
    .await
    .unwrap();
}

async fn import_images() {
    let known = run("ctr --namespace k8s.io images list --quiet").await;
    for image in [Image::pause().unwrap(), Image::busybox().unwrap()] {
        if !known.lines().any(|name| name == image.reference()) {
            fs::write("/tmp/image.tar", image.archive().unwrap()).unwrap();
            run("ctr --namespace k8s.io images import /tmp/image.tar && rm /tmp/image.tar").await;
        }
    }
}

async fn start_api_server() {
    if run("systemctl is-active api || true").await != "active" {
        // What runs out is not its affair.
        run(&format!(
            "systemd-run --quiet --unit=api --property=OOMScoreAdjust=-999 --property=MemoryMin=128M \
             crablet apiserver --data-dir {API}"
        ))
        .await;
    }
    eventually("the API server answers", PATIENCE, || ask("/api/v1/namespaces/default", &[])).await.unwrap();
}

/// Ends whoever is the kubelet, and has another one take its name.
async fn put_in_place(kubelet: Kubelet) {
    run(&format!("systemctl stop kubelet && ln -sfn {} /usr/bin/kubelet", kubelet.program())).await;
}

/// Does what `kubeadm join` does before it restarts the kubelet.
async fn configure(fields: &str) {
    let bootstrap = Path::new("/etc/kubernetes/bootstrap-kubelet.conf");
    if !bootstrap.exists() {
        let token = run(&format!("crablet token create --kubeconfig {API}/admin.conf")).await;
        run(&format!("install -D {API}/pki/ca.crt /etc/kubernetes/pki/ca.crt")).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": "https://127.0.0.1:6443", "certificate-authority": "/etc/kubernetes/pki/ca.crt",
            }}],
            "users": [{"name": "u", "user": {"token": token}}],
        });
        fs::write(bootstrap, kubeconfig.to_string()).unwrap();
        let drop_ins = Path::new("/usr/lib/systemd/system/kubelet.service.d");
        fs::create_dir_all(drop_ins).unwrap();
        fs::write(drop_ins.join("10-kubeadm.conf"), DROP_IN).unwrap();
        fs::write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1\"\n")
            .unwrap();
    }
    fs::write("/var/lib/kubelet/config.yaml", KUBEADM).unwrap();
    // What a test wants otherwise is in a directory for that.
    fs::create_dir_all(DROP_INS).unwrap();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    fs::write(format!("{DROP_INS}/10-test.conf"), format!("{head}{fields}")).unwrap();
    let flags = if fields.is_empty() { String::new() } else { format!("--config-dir={DROP_INS}") };
    fs::write("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={flags}\n")).unwrap();
}

async fn condition(kind: &str) -> Result<String, String> {
    let node = ask("/api/v1/nodes/node-1", &[]).await?;
    let conditions = node["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    Ok(found.and_then(|condition| condition["status"].as_str()).unwrap_or("not there").to_owned())
}

async fn await_ready(kubelet: Kubelet) {
    eventually("the node is ready", PATIENCE, || async {
        healthz().await?;
        if kubelet == Kubelet::Crablet {
            pods().await?;
        }
        let ready = condition("Ready").await?;
        if ready == "True" { Ok(()) } else { Err(ready) }
    })
    .await
    .unwrap();
}

async fn healthz() -> Result<(), String> {
    let asked = async {
        let mut stream = TcpStream::connect("127.0.0.1:10248").await?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<String, std::io::Error>(answer)
    };
    let answer = timeout(PATIENCE, asked).await.map_err(|_| "/healthz: no answer".to_owned())?;
    let answer = answer.map_err(|error| format!("/healthz: {error}"))?;
    if answer.ends_with("\r\n\r\nok") { Ok(()) } else { Err(format!("/healthz: {answer}")) }
}

async fn pods() -> Result<(), String> {
    let asked = Command::new("crablet").arg("pods").kill_on_drop(true).output();
    let output = timeout(PATIENCE, asked).await.map_err(|_| "crablet pods: no answer".to_owned())?;
    let output = output.map_err(|error| format!("crablet pods: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("crablet pods: {output:?}")) }
}

/// Asks the agent again and again, one way and, if it is ours, the other.
async fn watch(kubelet: Kubelet, answers: Arc<Mutex<Answers>>) {
    loop {
        let began = Instant::now();
        let healthz = healthz().await;
        {
            let mut answers = answers.lock().unwrap();
            answers.healthz.push(began.elapsed());
            answers.failures.extend(healthz.err());
        }
        if kubelet == Kubelet::Crablet {
            let began = Instant::now();
            let pods = pods().await;
            let mut answers = answers.lock().unwrap();
            answers.pods.push(began.elapsed());
            answers.failures.extend(pods.err());
        }
        sleep(PAUSE).await;
    }
}
