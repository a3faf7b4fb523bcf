//! Probes and hooks, against servers in containers.

use std::path::Path;
use std::process::Command;

use crablet_testkit::{Image, eventually};
use serde_json::Value;

use crate::world::{Ear, OBEDIENT, PATIENCE, World, container, container_status, entries, is_ready};

/// A gRPC health server of few words: it says that it serves, whatever it is asked. Settings, their acknowledgement, a
/// head with the status 200 and the type, the message, and trailers with the status 0.
const GRPC: &str = concat!(
    "sleep 0.2; printf '\\\\000\\\\000\\\\000\\\\004\\\\000\\\\000\\\\000\\\\000\\\\000",
    "\\\\000\\\\000\\\\000\\\\004\\\\001\\\\000\\\\000\\\\000\\\\000",
    "\\\\000\\\\000\\\\024\\\\001\\\\004\\\\000\\\\000\\\\000\\\\001\\\\210\\\\017\\\\020\\\\020application/grpc",
    "\\\\000\\\\000\\\\007\\\\000\\\\000\\\\000\\\\000\\\\000\\\\001\\\\000\\\\000\\\\000\\\\000\\\\002\\\\010\\\\001",
    "\\\\000\\\\000\\\\017\\\\001\\\\005\\\\000\\\\000\\\\000\\\\001\\\\000\\\\013grpc-status\\\\0010'; sleep 2"
);

/// A container with a probe or a hook.
fn with(script: &str, more: &str) -> String {
    format!("  terminationGracePeriodSeconds: 5\n  containers:\n{}    {more}\n", container("main", script))
}

fn probe(kind: &str, handler: &str, more: &str) -> String {
    format!("{kind}Probe: {{{handler}, periodSeconds: 1, timeoutSeconds: 1{more}}}")
}

/// An image with openssl and what it needs, and a certificate.
fn openssl() -> Image {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let program = "/usr/bin/openssl";
    let folder = tempfile::tempdir().unwrap();
    let (key, certificate) = (folder.path().join("key"), folder.path().join("cert"));
    let (key_path, certificate_path) = (key.to_str().unwrap(), certificate.to_str().unwrap());
    run(
        program,
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=nobody",
            "-days",
            "1",
            "-keyout",
            key_path,
            "-out",
            certificate_path,
        ],
    );
    let mut image = Image::busybox().unwrap().named("crablet.test/openssl:1");
    let libraries = run("ldd", &[program]);
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in libraries.chain([program]) {
        image = image.file(path, std::fs::read(path).unwrap(), 0o755);
    }
    image.file("/tls/key", std::fs::read(&key).unwrap(), 0o600).file(
        "/tls/cert",
        std::fs::read(&certificate).unwrap(),
        0o644,
    )
}

/// How many sockets a process has open.
fn sockets(pid: i32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// How many processes of this machine have such a word among their arguments.
fn processes_with(word: &str) -> usize {
    let processes = entries(Path::new("/proc")).into_iter().filter(|name| name.parse::<u32>().is_ok());
    let lines = processes.filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
}

async fn awaits_count(world: &World, pod: &str, result: &str, least: u64) {
    eventually(&format!("{pod} has {least} probes that were {result}"), PATIENCE, || async {
        let (_, metrics) = world.node.get("/metrics/probes").await.map_err(|error| error.to_string())?;
        let lines = metrics.lines().filter(|line| {
            line.starts_with("prober_probe_total")
                && line.contains(&format!("pod=\"{pod}-node\""))
                && line.contains(&format!("result=\"{result}\""))
        });
        let count: u64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
        if count >= least { Ok(()) } else { Err(format!("{count}: {metrics}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn containers_are_probed_and_their_hooks_run_on_containerd() {
    let world = World::start().await;
    world.containerd.import(&openssl()).await.unwrap();
    let pid = world.agent.as_ref().unwrap().pid();
    let ear = Ear::open().await;
    let before = sockets(pid);

    let web = "mkdir /www; echo hello > /www/ok; exec httpd -f -p 8080 -h /www";
    let http =
        |path: &str, port: &str| probe("readiness", &format!("httpGet: {{path: {path}, port: {port}}}"), "");
    let ports = "ports: [{name: web, containerPort: 8080}]";
    world.put("http", &with(web, &format!("{}\n    {ports}", http("/ok", "web"))));
    world.put("http-absent", &with(web, &http("/absent", "8080")));
    world.put("http-port", &with(web, &http("/ok", "8081")));
    let tls = "exec openssl s_server -quiet -www -accept 8443 -key /tls/key -cert /tls/cert";
    let https = probe("readiness", "httpGet: {path: /, port: 8443, scheme: HTTPS}", "");
    world.put("https", &with(tls, &https).replace("busybox:1", "openssl:1"));
    let listen = |port: u16, program: &str| format!("exec nc -ll -p {port} -e {program}");
    world.put("tcp", &with(&listen(7000, "cat"), &probe("readiness", "tcpSocket: {port: 7000}", "")));
    let serve = format!("echo \"{GRPC}\" > /serve; {}", listen(90, "sh /serve"));
    world.put("grpc", &with(&serve, &probe("readiness", "grpc: {port: 90}", "")));
    world.put("exec", &with(OBEDIENT, &probe("readiness", "exec: {command: [test, -e, /bin/sh]}", "")));
    let patient = ", failureThreshold: 1000";
    let silent = probe("liveness", "httpGet: {port: 7001}", patient);
    world.put("silent", &with(&listen(7001, "sleep 1000"), &silent));
    let endless = probe("liveness", "httpGet: {port: 7002}", patient);
    world.put("endless", &with(&listen(7002, "yes"), &endless));
    let unknown = probe("liveness", "tcpSocket: {port: 80, host: no-such-name.invalid}", patient);
    world.put("unknown", &with(OBEDIENT, &unknown));
    let stubborn = "exec: {command: [sh, -c, \"trap '' TERM; sleep 987654\"]}";
    world.put("stubborn", &with(OBEDIENT, &probe("liveness", stubborn, ", failureThreshold: 2")));
    let hooks = format!(
        "lifecycle: {{postStart: {{exec: {{command: [sh, -c, '{}']}}}}, preStop: {{exec: {{command: [sh, -c, '{}']}}}}}}",
        ear.say("began"),
        ear.say("ends")
    );
    world.put("hooks", &format!("  hostNetwork: true\n{}", with(OBEDIENT, &hooks)));
    world.put("bad-hook", &with(OBEDIENT, "lifecycle: {postStart: {exec: {command: ['false']}}}"));

    for name in ["http", "https", "tcp", "grpc", "exec", "hooks"] {
        world.awaits(name, "is ready", is_ready).await;
    }
    for name in ["http-absent", "http-port", "silent", "endless", "unknown"] {
        awaits_count(&world, name, "failed", 3).await;
    }
    for name in ["http-absent", "http-port"] {
        assert!(!is_ready(&world.node.pod(name).await.unwrap().unwrap()), "{name}");
    }
    let restarted = |pod: &Value| container_status(pod, "main")["restartCount"].as_u64() >= Some(1);
    world.awaits("stubborn", "is started anew", restarted).await;
    world.awaits("bad-hook", "is started anew", restarted).await;
    assert!(processes_with("987654") <= 2, "one attempt at a time: a shell and its command");
    ear.hears("began").await;

    world.take_all().await;
    ear.hears("ends").await;
    eventually("no socket, process or metric is left of probes", PATIENCE, || async {
        let (open, left) = (sockets(pid), processes_with("987654"));
        let (_, metrics) = world.node.get("/metrics/probes").await.map_err(|error| error.to_string())?;
        let is_clean = open <= before + 1 && left == 0 && !metrics.contains("pod=");
        if is_clean {
            Ok(())
        } else {
            Err(format!("{before} sockets and now {open}, {left} processes, {metrics}"))
        }
    })
    .await
    .unwrap();
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}
