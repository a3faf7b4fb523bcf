//! What a person asks of an agent and tells it: `pods`, `explain`, `apply`, `delete`, `logs`, and `GET /pods`.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{
    Agent, Node, PATIENCE, PROGRAM, READY, SimulatedRuntime, free_port, get, parts, start_on_a_port,
};
use crablet_cri_sim::{Image, Latencies, Latency, Method, Settings};
use crablet_testkit::{Containerd, Image as TestImage, eventually};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A pod of one container that runs a script.
fn manifest(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers:\n  - name: main\n    image: crablet.test/busybox:1\n    \
         command: [sh, -c, {script:?}]\n"
    )
}

const SERVES: &str = "echo hello; echo oops >&2; trap 'exit 0' TERM; while true; do sleep 1; done";

/// A node, its simulated runtime, and an agent that is up. The agent is dropped first.
struct Running {
    agent: Agent,
    runtime: SimulatedRuntime,
    node: Node,
}

impl Running {
    async fn start() -> Running {
        Running::start_with("", Settings::default()).await
    }

    async fn start_with(fields: &str, settings: Settings) -> Running {
        let node = Node::new(fields);
        let runtime = node.runtime_with(settings);
        let agent = node.start_with(&["--hostname-override=node-1"], &[]).await;
        agent.logs(&[READY]).await;
        Running { agent, runtime, node }
    }

    async fn apply(&self, text: &str) -> (Option<i32>, String, String) {
        fs::write(self.node.path("pod.yaml"), text).unwrap();
        let path = self.node.path("pod.yaml");
        self.command("apply", &[path.to_str().unwrap()]).await
    }

    /// Code, standard output and standard error, with the directory shortened.
    async fn command(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let (code, stdout, stderr) = parts(&self.node.command(command, arguments).await);
        (code, self.node.shorten(stdout.as_bytes()), self.node.shorten(stderr.as_bytes()))
    }

    /// What a command prints, which must succeed.
    async fn prints(&self, command: &str, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.command(command, arguments).await;
        assert_eq!(code, Some(0), "{command} {arguments:?}: {stdout}{stderr}{}", self.agent.log());
        stdout
    }

    /// What a command prints, as soon as it has all of these parts.
    async fn prints_eventually(&self, command: &str, arguments: &[&str], words: &[&str]) -> String {
        eventually(&format!("{command} {arguments:?} prints {words:?}"), PATIENCE, || async {
            let (_, stdout, stderr) = self.command(command, arguments).await;
            match words.iter().all(|word| stdout.contains(word)) {
                true => Ok(stdout),
                false => Err(format!("{stdout}{stderr}{}", self.agent.log())),
            }
        })
        .await
        .unwrap()
    }

    /// A command that goes on.
    fn follow(&self, command: &str, arguments: &[&str]) -> Following {
        let mut child = Command::new(PROGRAM)
            .args([command, &self.node.root_dir()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Following { child, lines, seen: String::new() }
    }
}

struct Following {
    child: Child,
    lines: BufReader<tokio::process::ChildStdout>,
    seen: String,
}

impl Following {
    /// The next line that has these words.
    async fn says(&mut self, words: &[&str]) -> String {
        let line = timeout(PATIENCE, async {
            loop {
                let mut line = String::new();
                assert_ne!(self.lines.read_line(&mut line).await.unwrap(), 0, "{words:?} in {}", self.seen);
                self.seen.push_str(&line);
                if words.iter().all(|word| line.contains(word)) {
                    return line;
                }
            }
        });
        line.await.unwrap_or_else(|_| panic!("{words:?} is not in {}", self.seen))
    }

    /// Its code, and what else it said.
    async fn ends(mut self) -> (Option<i32>, String, String) {
        let (mut rest, mut errors) = (String::new(), String::new());
        timeout(PATIENCE, self.lines.read_to_string(&mut rest)).await.expect("it does not end").unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        (self.child.wait().await.unwrap().code(), rest, errors)
    }
}

#[tokio::test]
async fn a_pod_is_applied_seen_explained_and_deleted() {
    let running = Running::start().await;
    let (code, stdout, stderr) = running.apply(&manifest("web", SERVES)).await;
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "pod/web-node-1 created\n", ""));
    let table = running.prints_eventually("pods", &[], &["1/1", "Running", "10.88."]).await;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]);
    assert_eq!(lines[1][..5], ["default", "web-node-1", "1/1", "Running", "0"]);

    let sentence = running.prints_eventually("explain", &[], &["default/web-node-1 runs (for "]).await;
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    let story = running.prints("explain", &["web"]).await;
    assert!(story.starts_with("default/web-node-1 runs (for "), "{story}");
    assert!(story.contains("started container main"), "{story}");
    let json: Value = serde_json::from_str(&running.prints("explain", &["web", "-o", "json"]).await).unwrap();
    assert_eq!(json["stories"][0]["headline"]["state"], "Running");

    let json: Value = serde_json::from_str(&running.prints("pods", &["-o", "json"]).await).unwrap();
    assert_eq!((&json["kind"], &json["items"][0]["status"]["phase"]), (&"PodList".into(), &"Running".into()));
    let yaml = running.prints("pods", &["web", "-o", "yaml"]).await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\n"), "{yaml}");
    assert!(running.prints("pods", &["-o", "wide"]).await.contains("node-1   push"), "{table}");
    let (code, stdout, stderr) = running.command("pods", &["-n", "other"]).await;
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (Some(0), "", "there are no pods; `crablet apply FILE` makes one\n")
    );

    let (_, stdout, _) = running.apply(&manifest("web", SERVES)).await;
    assert_eq!(stdout, "pod/web-node-1 unchanged\n");
    assert_eq!(running.prints("delete", &["web"]).await, "pod/web-node-1 deleted\n");
    let (_, stdout, _) = running.command("pods", &[]).await;
    assert_eq!(stdout, "");
    assert!(running.runtime.simulator.containers().is_empty());
    let gone = running.prints("explain", &["web"]).await;
    assert!(gone.starts_with("default/web-node-1 went "), "{gone}");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_file_line_and_field() {
    let running = Running::start().await;
    let bad = manifest("web", SERVES).replace("image:", "imagine:");
    let (code, stdout, stderr) = running.apply(&format!("{}---\n{bad}", manifest("db", SERVES))).await;
    assert_eq!(
        (code, stdout.as_str()),
        (Some(1), "pod/db-node-1 created\n"),
        "the other one is made: {stderr}"
    );
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].starts_with("DIR/pod.yaml:20: spec.containers[0].imagine: unknown field"), "{stderr}");
    assert_eq!(lines.last(), Some(&"crablet: 1 of 2 manifests were refused"));

    let (code, _, stderr) = running.apply("# nothing\n").await;
    assert_eq!((code, stderr.as_str()), (Some(1), "crablet: DIR/pod.yaml: there is no manifest in it\n"));
    let (code, _, stderr) = running.command("apply", &["/nonexistent.yaml"]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("crablet: cannot read /nonexistent.yaml: No such file"), "{stderr}");
    let (code, _, stderr) = running.command("delete", &["nosuch"]).await;
    assert_eq!((code, stderr.as_str()), (Some(1), "crablet: there is no pod default/nosuch\n"));
    let (code, _, stderr) = running.command("explain", &["dv"]).await;
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "crablet: no pod is called \"dv\", and none of that name went lately\ndid you mean default/db-node-1?\n\
         there are: default/db-node-1\n"
    );
    let (code, _, stderr) = running.command("logs", &["nosuch"]).await;
    assert_eq!(
        (code, stderr.as_str()),
        (Some(1), "crablet: there is no pod \"nosuch\"; there is default/db-node-1\n")
    );
}

#[tokio::test]
async fn a_manifest_comes_by_standard_input_too() {
    let running = Running::start().await;
    let mut child = Command::new(PROGRAM)
        .args(["apply", &running.node.root_dir(), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifest("web", SERVES).as_bytes()).await.unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "pod/web-node-1 created\n");
}

#[tokio::test]
async fn without_an_agent_each_command_says_where_it_looked() {
    let node = Node::new("");
    fs::write(node.path("pod.yaml"), manifest("web", SERVES)).unwrap();
    let file = node.path("pod.yaml");
    for (command, arguments) in [
        ("pods", &[][..]),
        ("explain", &["web"]),
        ("delete", &["web"]),
        ("logs", &["web"]),
        ("apply", &[file.to_str().unwrap()]),
    ] {
        let (code, stdout, stderr) = parts(&node.command(command, arguments).await);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{command}");
        assert_eq!(
            node.shorten(stderr.as_bytes()),
            "crablet: no agent is running with root directory DIR/root (nothing listens on DIR/root/crablet.sock); \
             --root-dir names another one\n",
            "{command}"
        );
    }
}

#[tokio::test]
async fn without_a_runtime_pods_are_taken_in_and_run_when_there_is_one() {
    let node = Node::new("");
    let agent = node.start().await;
    agent.logs(&["Waiting for the container runtime"]).await;
    fs::write(node.path("pod.yaml"), manifest("web", SERVES)).unwrap();
    let (code, stdout, stderr) =
        parts(&node.command("apply", &[node.path("pod.yaml").to_str().unwrap()]).await);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.ends_with(" created\n"), "{stdout}");
    let (_, stdout, _) = parts(&node.command("explain", &[]).await);
    assert!(
        stdout.starts_with("No pod is started yet: the agent waits for the container runtime at "),
        "{stdout}"
    );
    let (code, _, stderr) = parts(&node.command("pods", &[]).await);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("crablet: the agent waits for the container runtime at unix://"), "{stderr}");

    let _runtime = node.runtime();
    eventually("the pod runs", PATIENCE, || async {
        let (_, stdout, stderr) = parts(&node.command("pods", &[]).await);
        if stdout.contains("Running") { Ok(()) } else { Err(format!("{stdout}{stderr}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn changes_are_watched_as_they_come() {
    let running = Running::start().await;
    let mut watch = running.follow("pods", &["--watch"]);
    watch.says(&["NAMESPACE", "STATUS"]).await;
    running.apply(&manifest("web", SERVES)).await;
    watch.says(&["default", "web-node-1", "Running", "10.88."]).await;
    running.prints("delete", &["web"]).await;
    watch.says(&["web-node-1", "Terminating"]).await;
    watch.says(&["web-node-1", "Gone"]).await;
}

#[tokio::test]
async fn an_agent_that_stops_does_not_wait_for_those_who_watch() {
    let mut running = Running::start().await;
    let mut watch = running.follow("pods", &["--watch"]);
    watch.says(&["NAMESPACE"]).await;
    let began = tokio::time::Instant::now();
    running.agent.stops().await;
    assert!(began.elapsed().as_secs() < 4, "{:?}", began.elapsed());
    let (code, _, stderr) = watch.ends().await;
    assert_eq!(code, Some(1), "{stderr}");
}

#[tokio::test]
async fn logs_are_shown_and_followed_to_the_end() {
    let running = Running::start().await;
    let script = "echo one; echo oops >&2; echo two; sleep 2; echo three; exit 3";
    let text = manifest("job", script).replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    running.apply(&text).await;
    let following = running.follow("logs", &["-f", "job"]);
    let (code, stdout, stderr) = following.ends().await;
    assert_eq!((code, stdout.as_str()), (Some(0), "one\ntwo\nthree\n"), "{stderr}");
    assert!(stderr.contains("oops\n"), "{stderr}");

    let (code, stdout, stderr) = running.command("logs", &["--tail", "1", "default/job-node-1"]).await;
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "three\n", ""));
    let stdout = running.prints("logs", &["--timestamps", "job"]).await;
    let (time, line) = stdout.lines().next().unwrap().split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && line == "one", "{stdout}");
    assert_eq!(running.prints("logs", &["--since", "1h", "--tail=2", "job"]).await, "two\nthree\n");
    for (arguments, expected) in [
        (&["-c", "x", "job"][..], "crablet: pod job-node-1 has no container \"x\"; it has main\n"),
        (
            &["--previous", "job"],
            "crablet: container \"main\" of pod job-node-1 was not restarted, so there is none before\n",
        ),
    ] {
        let (code, stdout, stderr) = running.command("logs", arguments).await;
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(1), "", expected));
    }
    running.prints_eventually("pods", &[], &["0/1", "Error"]).await;
}

#[tokio::test]
async fn a_pod_that_waits_for_its_image_says_how_long_it_is_being_pulled() {
    let latencies = Latencies::default().with(Method::PullImage, Latency::Fixed(PATIENCE));
    let settings =
        Settings { latencies, registry: vec![Image::new("example.test/slow:1")], ..Settings::default() };
    let running = Running::start_with("", settings).await;
    running.apply(&manifest("web", SERVES).replace("crablet.test/busybox:1", "example.test/slow:1")).await;
    let expected = ["is not running yet: it waits for image example.test/slow:1", "is being pulled (for "];
    running.prints_eventually("explain", &[], &expected).await;
    running.prints_eventually("explain", &["web"], &expected).await;
    running.prints_eventually("pods", &[], &["0/1", "ContainerCreating"]).await;
    let (code, _, stderr) = running.command("logs", &["web"]).await;
    assert_eq!(code, Some(1));
    let expected = "crablet: container \"main\" of pod web-node-1 has not started yet: ContainerCreating";
    assert!(stderr.starts_with(expected), "{stderr}");
}

#[tokio::test]
async fn a_broken_manifest_is_told_of_and_its_pod_is_looked_for_there() {
    let node = Node::new("");
    let manifests = node.path("manifests");
    fs::create_dir(&manifests).unwrap();
    fs::write(manifests.join("good.yaml"), manifest("good", SERVES)).unwrap();
    fs::write(manifests.join("web.yaml"), manifest("web", SERVES).replace("image:", "imagine:")).unwrap();
    let runtime = node.runtime();
    let flags =
        ["--hostname-override=node-1".to_owned(), format!("--pod-manifest-path={}", manifests.display())];
    let agent = node.start_with(&flags.each_ref().map(String::as_str), &[]).await;
    agent.logs(&[READY]).await;
    let running = Running { agent, runtime, node };
    let problem = "DIR/manifests/web.yaml:9: spec.containers[0].imagine: unknown field";
    let overview = running.prints_eventually("explain", &[], &["default/good-node-1 runs", problem]).await;
    assert!(
        overview.starts_with("Manifests that something is wrong with:\n  DIR/manifests/web.yaml:"),
        "{overview}"
    );
    let (code, _, stderr) = running.command("explain", &["web"]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("no pod is called \"web\"") && stderr.contains(problem), "{stderr}");
    let (code, _, stderr) = running.command("delete", &["good"]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is not deleted here: remove the file DIR/manifests/good.yaml"), "{stderr}");
}

#[tokio::test]
async fn the_read_only_port_lists_pods() {
    let (node, agent, address) =
        start_on_a_port(|port| format!("address: 127.0.0.1\nreadOnlyPort: {port}")).await;
    let _runtime = node.runtime();
    agent.logs(&[READY]).await;
    let (status, list) = get(address, "/pods").await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((status, &list["kind"], &list["items"]), (200, &"PodList".into(), &Value::Array(vec![])));
    assert_eq!(get(address, "/explain").await.unwrap().0, 404, "that is for administrators");
}

#[tokio::test]
async fn every_command_helps_with_examples() {
    let node = Node::new("");
    for command in ["pods", "explain", "apply", "delete", "logs"] {
        let (code, stdout, stderr) = parts(&node.command(command, &["--help"]).await);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{command}");
        assert!(stdout.contains(&format!("Examples:\n  crablet {command} ")), "{stdout}");
        assert!(stdout.contains("--root-dir"), "{stdout}");
    }
}

#[tokio::test]
async fn on_containerd_a_pod_goes_from_apply_to_gone() {
    let containerd = Containerd::start().await.unwrap();
    containerd.import(&TestImage::pause().unwrap()).await.unwrap();
    containerd.import(&TestImage::busybox().unwrap()).await.unwrap();
    let node = Node::new(&format!("containerRuntimeEndpoint: {}", containerd.endpoint()));
    let agent = node.start_with(&["--hostname-override=node-1"], &[]).await;
    agent.logs(&[READY]).await;
    fs::write(node.path("pod.yaml"), manifest("web", SERVES)).unwrap();
    let ask = async |command: &str, arguments: &[&str]| {
        let (code, stdout, stderr) = parts(&node.command(command, arguments).await);
        assert_eq!(code, Some(0), "{command} {arguments:?}: {stdout}{stderr}{}", agent.log());
        stdout
    };
    assert_eq!(ask("apply", &[node.path("pod.yaml").to_str().unwrap()]).await, "pod/web-node-1 created\n");
    let address = format!(" {}", containerd.subnet().rsplit_once('.').unwrap().0);
    eventually("the pod runs and has an address", PATIENCE, || async {
        let table = ask("pods", &[]).await;
        let runs = ["1/1", "Running", &address].iter().all(|word| table.contains(word));
        if runs { Ok(()) } else { Err(format!("{table}{}", agent.log())) }
    })
    .await
    .unwrap();
    eventually("the log is there", PATIENCE, || async {
        let (_, stdout, stderr) = parts(&node.command("logs", &["web"]).await);
        if (&*stdout, &*stderr) == ("hello\n", "oops\n") { Ok(()) } else { Err(format!("{stdout}{stderr}")) }
    })
    .await
    .unwrap();
    let story = ask("explain", &["web"]).await;
    assert!(story.starts_with("default/web-node-1 runs (for "), "{story}");
    assert_eq!(ask("delete", &["web"]).await, "pod/web-node-1 deleted\n");
    let (_, stdout, _) = parts(&node.command("pods", &[]).await);
    assert_eq!(stdout, "");
    let gone = ask("explain", &["web"]).await;
    assert!(gone.starts_with("default/web-node-1 went "), "{gone}");
    drop(agent);
    containerd.stop().await.unwrap();
}

#[tokio::test]
async fn on_containerd_make_run_shows_a_pod_that_answers_and_removes_it_again() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let binaries = Path::new(PROGRAM).parent().unwrap();
    if !binaries.join("private-containerd").exists() {
        // Built with the whole workspace, but not where this package alone is tested.
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "crablet-testkit", "--bin", "private-containerd"])
            .env("CARGO_TARGET_DIR", binaries.parent().unwrap())
            .status();
        assert!(build.await.unwrap().success());
    }
    let temporary = tempfile::tempdir().unwrap();
    let (healthz, node, secure) = (free_port().await, free_port().await, free_port().await);
    let script = "curl --silent http://$POD_IP:8080/ && $CRABLET logs --root-dir $ROOT_DIR hello 2>/dev/null; \
                  ask /api/v1/namespaces/default/pods/hello/log | sed 's/^/by the API server: /'; exit 7";
    let run = Command::new(workspace.join("scripts/run"))
        .args(["bash", "-c", script])
        .env("CARGO_TARGET_DIR", binaries.parent().unwrap())
        .env("TMPDIR", temporary.path())
        .envs(
            [("HEALTHZ_PORT", healthz), ("NODE_PORT", node), ("SECURE_PORT", secure)]
                .map(|(name, port)| (name, port.to_string())),
        )
        .kill_on_drop(true)
        .output();
    let (code, stdout, stderr) = parts(&timeout(PATIENCE * 2, run).await.unwrap().unwrap());
    assert_eq!(code, Some(7), "{stdout}{stderr}");
    assert!(
        stdout.contains("\nhello from hello\n")
            && stdout.contains("\nserving /www on port 8080")
            && stdout.contains("\nby the API server: serving /www on port 8080"),
        "{stdout}{stderr}"
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "nothing is left");
}
