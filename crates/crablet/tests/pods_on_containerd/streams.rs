//! Into containers by a real kubectl, through the embedded API server: with WebSockets, which the node translates, and with
//! SPDY, which passes as it is.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use crablet_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::cluster::Server;
use crate::program::kubectl;
use crate::service::{PODS, ask, awaits_node, awaits_phase, create, solo};
use crate::world::{PATIENCE, World};

/// How kubectl speaks.
#[derive(Debug, Clone, Copy)]
enum Speaks {
    WebSockets,
    Spdy,
}

struct Cluster {
    world: World,
    server: Server,
}

impl Cluster {
    /// A node in the cluster of an embedded API server, with a pod that serves files and waits.
    async fn start() -> Cluster {
        let mut world = World::start().await;
        let server = Server::embedded(&world).await;
        world.stop_agent().await;
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        world.node.join(&server.kubeconfig().await);
        world.node.serve(port, &server.data.join("pki/ca.crt"));
        world.start_agent().await;
        awaits_node(&server.data).await;
        let cluster = Cluster { world, server };
        cluster.run("web", "httpd -p 8080 -h /; sleep 100000", json!({})).await;
        cluster
    }

    /// Has a pod of one container run a script.
    async fn run(&self, name: &str, script: &str, more: Value) {
        let mut container = json!({
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
        });
        for (field, value) in more.as_object().unwrap() {
            container[field] = value.clone();
        }
        let spec = json!({
            "nodeName": "node", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [container],
        });
        create(&self.server.data, name, spec).await;
        awaits_phase(&self.server.data, self.world.agent.as_ref().unwrap(), name, &["Running"]).await;
    }

    fn command(&self, speaks: Speaks, arguments: &[&str]) -> Command {
        let words = match speaks {
            Speaks::WebSockets => "true",
            Speaks::Spdy => "false",
        };
        let mut command = Command::new(kubectl());
        command
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", words)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", words)
            .env("KUBECONFIG", self.server.data.join("admin.conf"))
            .env("HOME", &self.server.data)
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    async fn kubectl(&self, speaks: Speaks, arguments: &[&str], stdin: Option<&Path>) -> Output {
        let mut command = self.command(speaks, arguments);
        command.stdin(match stdin {
            Some(path) => Stdio::from(std::fs::File::open(path).unwrap()),
            None => Stdio::null(),
        });
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        output.unwrap_or_else(|_| panic!("{arguments:?} takes too long\n{}", self.world.node.log())).unwrap()
    }

    /// The descriptors that the agent has open.
    fn descriptors(&self) -> usize {
        let pid = self.world.agent.as_ref().unwrap().pid();
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that do not repeat soon, in a file.
fn noise(path: &Path, size: usize) {
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    });
    std::fs::write(path, bytes.take(size).collect::<Vec<u8>>()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_gets_into_containers_on_containerd() {
    let cluster = Cluster::start().await;
    let node = ask(&cluster.server.data, "/api/v1/nodes/node", &[]).await.unwrap();
    assert_eq!(
        node["status"]["declaredFeatures"],
        json!([
            "ExtendWebSocketsToKubelet",
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
            "RestartAllContainersOnContainerExits"
        ])
    );
    let before = cluster.descriptors();
    for speaks in [Speaks::WebSockets, Speaks::Spdy] {
        commands(&cluster, speaks).await;
        terminals(&cluster, speaks).await;
        files(&cluster, speaks).await;
        attaches(&cluster, speaks).await;
        ports(&cluster, speaks).await;
        left(&cluster, speaks, before).await;
    }
    debugs(&cluster).await;
    logs(&cluster).await;
    usage(&cluster).await;
    // kubectl falls back to SPDY without a word.
    let (_, metrics) = cluster.world.node.get("/metrics").await.unwrap();
    for (subresource, least) in [("exec", 6), ("attach", 1), ("portforward", 1)] {
        let name = format!("kubelet_websocket_streaming_requests_total{{subresource=\"{subresource}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name)).map(str::parse::<u32>);
        assert!(count.is_some_and(|count| count.unwrap() >= least), "{subresource}: {metrics}");
    }
}

/// The whole cluster in one process.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_gets_into_containers_of_solo_on_containerd() {
    let mut world = World::start().await;
    world.stop_agent().await;
    let data = world.node.path("solo");
    std::fs::create_dir(&data).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let configuration = std::fs::read_to_string(world.node.path("kubelet.yaml")).unwrap();
    let others = ["address:", "enableServer:", "port:"];
    let lines = configuration.lines().filter(|line| !others.iter().any(|field| line.starts_with(field)));
    let authority = data.join("apiserver/pki/ca.crt");
    let served = format!(
        "enableServer: true\nport: {port}\naddress: 0.0.0.0\nauthentication: {{x509: {{clientCAFile: {}}}}}\n",
        authority.display()
    );
    let configuration: String = lines.map(|line| format!("{line}\n")).chain([served]).collect();
    std::fs::write(data.join("kubelet.yaml"), configuration).unwrap();
    world.agent = Some(solo(&world, &data).await);
    let server = Server::within(&data.join("apiserver"));
    awaits_node(&server.data).await;
    let cluster = Cluster { world, server };
    cluster.run("web", "httpd -p 8080 -h /; sleep 100000", json!({})).await;
    for speaks in [Speaks::WebSockets, Speaks::Spdy] {
        files(&cluster, speaks).await;
        ports(&cluster, speaks).await;
    }
    let mut solo = cluster.world.agent.expect("it was started");
    solo.terminate();
    assert!(solo.wait().await.unwrap().success());
}

/// What is said on both streams, how it ends, and that the end of the input is heard.
async fn commands(cluster: &Cluster, speaks: Speaks) {
    let script = "echo out; echo err >&2; exit 7";
    let output = cluster.kubectl(speaks, &["exec", "web", "--", "sh", "-c", script], None).await;
    let said = (output.status.code(), text(&output.stdout), text(&output.stderr));
    let expected = (Some(7), "out\n".to_owned(), "err\ncommand terminated with exit code 7\n".to_owned());
    assert_eq!(said, expected, "{speaks:?}");
    let output = cluster.kubectl(speaks, &["exec", "web", "--", "nosuch"], None).await;
    assert_ne!(output.status.code(), Some(0), "{speaks:?}");
    assert!(text(&output.stderr).contains("executable file not found"), "{speaks:?}: {output:?}");
    let output = cluster.kubectl(speaks, &["exec", "web", "-c", "nosuch", "--", "true"], None).await;
    assert!(text(&output.stderr).contains("nosuch"), "{speaks:?}: {output:?}");

    let input = cluster.world.node.path("noise");
    noise(&input, 32 << 20);
    let output = cluster.kubectl(speaks, &["exec", "-i", "web", "--", "cat"], Some(&input)).await;
    assert!(output.status.success(), "{speaks:?}: {}", text(&output.stderr));
    assert!(output.stdout == std::fs::read(&input).unwrap(), "{speaks:?}: {} bytes", output.stdout.len());
}

/// A terminal has the size that the person's has.
async fn terminals(cluster: &Cluster, speaks: Speaks) {
    let program = kubectl().display().to_string();
    let script = "until stty size | grep -q '33 99'; do sleep 0.1; done; stty size; tty; exit 3";
    let line = format!("stty rows 33 cols 99; {program} exec -it web -- sh -c \"{script}\"");
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .kill_on_drop(true);
    for (name, value) in cluster.command(speaks, &[]).as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output =
        tokio::time::timeout(PATIENCE, command.output()).await.expect("the terminal got its size").unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("33 99\r\n/dev/pts/0\r\n"), "{speaks:?}: {said}");
    assert_eq!(output.status.code(), Some(3), "{speaks:?}: {said}");
}

async fn files(cluster: &Cluster, speaks: Speaks) {
    let (there, back) = (cluster.world.node.path("there"), cluster.world.node.path("back"));
    noise(&there, 3 << 20);
    let _ = std::fs::remove_file(&back);
    let [there_text, back_text] = [&there, &back].map(|path| path.display().to_string());
    for arguments in [["cp", &there_text, "web:/copied"], ["cp", "web:/copied", &back_text]] {
        let output = cluster.kubectl(speaks, &arguments, None).await;
        assert!(output.status.success(), "{speaks:?} {arguments:?}: {}", text(&output.stderr));
    }
    assert!(std::fs::read(&there).unwrap() == std::fs::read(&back).unwrap(), "{speaks:?}");
}

async fn attaches(cluster: &Cluster, speaks: Speaks) {
    let name = format!("{speaks:?}").to_lowercase();
    let more = json!({"stdin": true, "stdinOnce": true});
    cluster.run(&name, "while read line; do echo \"got $line\"; done; echo end", more).await;
    let input = cluster.world.node.path("lines");
    std::fs::write(&input, "one\ntwo\n").unwrap();
    let output = cluster.kubectl(speaks, &["attach", "-i", &name], Some(&input)).await;
    assert!(text(&output.stdout).ends_with("got one\ngot two\nend\n"), "{speaks:?}: {output:?}");
}

async fn ports(cluster: &Cluster, speaks: Speaks) {
    let mut command = cluster.command(speaks, &["port-forward", "pod/web", ":8080"]);
    let mut forwarding = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(forwarding.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let address = format!("127.0.0.1:{}", port.unwrap_or_else(|| panic!("{line:?}")));
    let expected = std::fs::read(cluster.world.node.path("there")).unwrap();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /copied HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let body =
            answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4).unwrap_or_default();
        assert!(
            answer[body..] == expected,
            "{speaks:?}: {} bytes of {}",
            answer.len() - body,
            expected.len()
        );
    }
    forwarding.kill().await.unwrap();
}

/// Whoever is killed while a command runs leaves nothing behind in the agent.
async fn left(cluster: &Cluster, speaks: Speaks, before: usize) {
    let mut command = cluster.command(speaks, &["exec", "web", "--", "sh", "-c", "echo here; sleep 1000"]);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("here"), "{speaks:?}");
    assert!(cluster.descriptors() >= before);
    running.kill().await.unwrap();
    eventually("no descriptor is left", PATIENCE, || async {
        let now = cluster.descriptors();
        if now <= before { Ok(()) } else { Err(format!("{now} descriptors, {before} before")) }
    })
    .await
    .unwrap();
}

async fn debugs(cluster: &Cluster) {
    let image = ["--image=crablet.test/busybox:1", "--image-pull-policy=Never"];
    let arguments = [&["debug", "web", "-c", "looker"][..], &image, &["--", "sleep", "1000"]].concat();
    let output = cluster.kubectl(Speaks::WebSockets, &arguments, None).await;
    assert!(output.status.success(), "{output:?}");
    eventually("the ephemeral container runs", PATIENCE, || async {
        let pod = ask(&cluster.server.data, &format!("{PODS}/web"), &[]).await?;
        let state = &pod["status"]["ephemeralContainerStatuses"][0]["state"];
        if state["running"].is_object() { Ok(()) } else { Err(format!("{:#}", pod["status"])) }
    })
    .await
    .unwrap();
    let arguments = ["exec", "web", "-c", "looker", "--", "echo", "within"];
    let output = cluster.kubectl(Speaks::WebSockets, &arguments, None).await;
    assert_eq!(text(&output.stdout), "within\n", "{output:?}");
}

/// What a container wrote: all of it, parts of it, that of the container before, and what it goes on to write.
async fn logs(cluster: &Cluster) {
    let script = "if [ ! -e /kept/again ]; then touch /kept/again; echo before; exit 1; fi; \
                  echo one; echo two; echo three; until [ -e /kept/go ]; do sleep 0.1; done; echo four";
    let spec = json!({
        "nodeName": "node", "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "kept", "emptyDir": {}}],
        "containers": [{
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
        }],
    });
    create(&cluster.server.data, "talks", spec).await;
    let logs = async |arguments: &[&str]| {
        let output =
            cluster.kubectl(Speaks::WebSockets, &[&["logs", "talks"], arguments].concat(), None).await;
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    };
    const ALL: &str = "one\ntwo\nthree\n";
    eventually("the second container has written all", PATIENCE, || async {
        let said = logs(&[]).await?;
        if said == ALL { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    for (arguments, expected) in [
        (&["--previous"][..], "before\n"),
        (&["--tail=1"], "three\n"),
        (&["--tail=0"], ""),
        (&["--since=1h"], ALL),
        (&["--since-time=2100-01-01T00:00:00Z"], ""),
        (&["--since=1h", "--tail=2", "--container=main"], "two\nthree\n"),
    ] {
        assert_eq!(logs(arguments).await.as_deref(), Ok(expected), "{arguments:?}");
    }
    let stamped = logs(&["--timestamps"]).await.unwrap();
    let words: Vec<(&str, &str)> = stamped.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(words.iter().map(|(_, word)| *word).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert!(words.iter().all(|(at, _)| at.parse::<jiff::Timestamp>().is_ok()), "{stamped}");
    assert!(logs(&["--container=nosuch"]).await.unwrap_err().contains("nosuch"));

    let mut command = cluster.command(Speaks::WebSockets, &["logs", "--follow", "talks"]);
    let mut following = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut line = async || tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    for expected in ["one", "two", "three"] {
        assert_eq!(line().await.as_deref(), Some(expected));
    }
    let arguments = ["exec", "talks", "--", "touch", "/kept/go"];
    assert!(cluster.kubectl(Speaks::WebSockets, &arguments, None).await.status.success());
    assert_eq!(line().await.as_deref(), Some("four"));
    assert_eq!(line().await, None, "it ends with the container");
    assert!(following.wait().await.unwrap().success());
}

/// What nodes and containers use.
async fn usage(cluster: &Cluster) {
    for (arguments, head, row) in [
        (&["top", "node"][..], "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)", "node "),
        (&["top", "pod", "web", "--containers"], "POD NAME CPU(cores) MEMORY(bytes)", "web main "),
    ] {
        eventually(&format!("{arguments:?} tells"), PATIENCE, || async {
            let output = cluster.kubectl(Speaks::WebSockets, arguments, None).await;
            let table: Vec<String> = text(&output.stdout)
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            let is_told = table.first().is_some_and(|line| line == head)
                && table.iter().any(|line| line.starts_with(row));
            if is_told { Ok(()) } else { Err(format!("{output:?}")) }
        })
        .await
        .unwrap();
    }
}

/// A gigabyte, which takes a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn soak_a_gigabyte_passes_unchanged_on_containerd() {
    const SIZE: u64 = 1 << 30;
    let cluster = Cluster::start().await;
    let input = cluster.world.node.path("noise");
    noise(&input, 1 << 20);
    let one = std::fs::read(&input).unwrap();
    for speaks in [Speaks::WebSockets, Speaks::Spdy] {
        let mut command = cluster.command(speaks, &["exec", "-i", "web", "--", "cat"]);
        let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
        let sent = one.clone();
        let sending = tokio::spawn(async move {
            for _ in 0..SIZE / sent.len() as u64 {
                to.write_all(&sent).await.unwrap();
            }
        });
        let (mut seen, mut buffer) = (0_u64, vec![0; 1 << 16]);
        while let Ok(count @ 1..) =
            tokio::time::timeout(Duration::from_secs(60), from.read(&mut buffer)).await.unwrap()
        {
            for byte in &buffer[..count] {
                assert_eq!(*byte, one[(seen % one.len() as u64) as usize], "{speaks:?}: byte {seen}");
                seen += 1;
            }
        }
        sending.await.unwrap();
        assert_eq!(seen, SIZE, "{speaks:?}");
        assert!(running.wait().await.unwrap().success());
    }
}
