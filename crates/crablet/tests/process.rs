//! The life of the process: what it waits for, what it tells meanwhile, and how it ends.
//!
//! Each test has a directory of its own with a configuration, a root directory, and the socket of a runtime that the
//! test plays. An agent is killed when its test ends, however it ends.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use common::{Node, PATIENCE, PROGRAM, READY, free_port, get, parts, run, start_on_a_port};
use crablet_cri_sim::{CgroupDriver, Settings};
use crablet_host::clock::Clock;
use crablet_testkit::{Containerd, eventually};
use crablet_x509::{Authority, KeyPair, Purpose, Subject};
use jiff::SignedDuration;
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixDatagram, UnixListener};
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn a_signal_stops_it_with_code_0_and_pods_keep_running() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        for awaited in [READY, "Waiting for the container runtime"] {
            let node = Node::new("");
            let _runtime = (awaited == READY).then(|| node.runtime());
            let mut agent = node.start().await;
            agent.logs(&[awaited]).await;
            agent.signal(signal);
            assert_eq!(agent.ends().await, Some(0), "{}", agent.log());
            let log = agent.log();
            let mut last = log.lines().rev();
            assert!(last.next().unwrap().ends_with("] \"Crablet has stopped; pods keep running\""), "{log}");
            assert!(last.next().unwrap().ends_with(&format!("] \"Stopping on {name}\"")), "{log}");
        }
    }
}

#[tokio::test]
async fn it_waits_for_a_runtime_and_says_why_until_one_is_there() {
    let node = Node::new("");
    let agent = node.start().await;
    let endpoint = format!("endpoint=\"unix://{}\"", node.path("runtime.sock").display());
    let waiting = "\"Waiting for the container runtime\"";
    agent.logs(&[waiting, &endpoint, "reason=\"there is no such socket; is the runtime running,"]).await;

    drop(UnixListener::bind(node.path("runtime.sock")).unwrap());
    assert!(node.path("runtime.sock").exists(), "a runtime that died leaves its socket");
    agent.logs(&[waiting, &endpoint, "reason=\"nobody listens on the socket; start the runtime\""]).await;
    assert!(!agent.log().contains(READY), "{}", agent.log());

    fs::remove_file(node.path("runtime.sock")).unwrap();
    let _runtime = node.runtime();
    agent.logs(&["\"Container runtime is there\"", &endpoint, "runtime=\"crablet-sim\""]).await;
    agent.logs(&[READY]).await;
}

#[tokio::test]
async fn a_second_agent_is_refused_until_the_first_is_gone_however_it_went() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let mut first = node.start().await;
    first.logs(&[READY]).await;

    let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    let root = node.path("root");
    let expected = format!(
        "crablet: another agent is running with the root directory {root}; stop it, or choose another with \
         --root-dir: {root}/crablet.lock is held by process {}",
        first.pid(),
        root = root.display()
    );
    assert_eq!(stderr.lines().last(), Some(expected.as_str()));

    first.signal(Signal::KILL);
    assert_eq!(first.ends().await, None, "killed");
    assert!(root.join("crablet.sock").exists(), "a killed agent leaves its socket");
    let mut second = node.start().await;
    second.logs(&[READY]).await;
    let (code, stdout, stderr) = parts(&node.log_command(&[]).await);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (Some(0), "v=0\nvmodule=\nlogging-format=text\n", "")
    );
    second.stops().await;
}

#[tokio::test]
async fn what_cannot_be_read_of_the_agent_before_is_refused_before_a_runtime_is_waited_for() {
    for (file, content, reason) in [
        ("allocated_pods_state", "{\"data\":", "cannot tell what is allocated to pods"),
        ("pods/abc/userns", "{\"uidMappings\":", "cannot tell which users of the node belong to which pod"),
    ] {
        let node = Node::new("");
        let path = node.path("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.lines().last().unwrap().contains(reason), "{stderr}");
        assert!(!node.path("root").join("crablet.sock").exists(), "nothing was bound");
    }
}

#[tokio::test]
async fn cgroup_v1_is_refused_unless_it_is_allowed() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let is_v2 = mounts.lines().any(|line| {
        let mut columns = line.split(' ').skip(1);
        columns.next() == Some("/sys/fs/cgroup") && columns.next() == Some("cgroup2")
    });
    let node = Node::new("failCgroupV1: true");
    let _runtime = node.runtime();
    if is_v2 {
        node.start().await.logs(&[READY]).await;
        return;
    }
    let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
    assert_eq!((code, stdout.as_str()), (Some(4), ""), "{stderr}");
    let expected = "crablet: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is \
                    unsupported and will be removed in a future release; set failCgroupV1 (--fail-cgroupv1) to false \
                    to run here all the same";
    assert_eq!(stderr.lines().last(), Some(expected));
    assert!(!node.path("root").exists(), "it was refused before anything was made");

    let node = Node::new("singleProcessOOMKill: false");
    let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    let expected = "crablet: invalid configuration: singleProcessOOMKill must not be explicitly set to false when \
                    using cgroup v1";
    assert_eq!(stderr.lines().last(), Some(expected));
    assert!(!node.path("root").exists());
}

#[tokio::test]
async fn a_node_ip_that_is_no_pair_is_refused_in_upstreams_words() {
    let node = Node::new("");
    let (code, stdout, stderr) = parts(&node.run_with(&["--node-ip=10.0.0.1,10.0.0.2"]).await);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    let expected = "crablet: bad --node-ip \"10.0.0.1,10.0.0.2\": must contain either a single IP or a dual-stack pair \
                    of IPs";
    assert_eq!(stderr.lines().last(), Some(expected));
    assert!(!node.path("root").exists(), "it was refused before anything was made");
}

#[tokio::test]
async fn the_runtime_says_which_cgroup_driver_it_is() {
    let (cgroupfs, systemd) = (CgroupDriver::Cgroupfs, CgroupDriver::Systemd);
    let old = || Settings { cgroup_driver: systemd, ..Settings::containerd_1_6() };
    let new = |cgroup_driver| Settings { cgroup_driver, ..Settings::default() };
    for (configured, runtime) in
        [("cgroupfs", new(cgroupfs)), ("systemd", new(cgroupfs)), ("cgroupfs", old())]
    {
        let node = Node::new(&format!("cgroupDriver: {configured}"));
        let _runtime = node.runtime_with(runtime);
        let mut agent = node.start().await;
        agent.logs(&[READY]).await;
        agent.stops().await;
    }
    // There is no systemd here: who is to be asked is named.
    for (configured, runtime) in [("cgroupfs", new(systemd)), ("systemd", old())] {
        let node = Node::new(&format!("cgroupDriver: {configured}\ncgroupRoot: /"));
        let _runtime = node.runtime_with(runtime);
        let bus = format!("unix:path={}", node.path("no-bus").display());
        let agent = node.start_with(&[], &[("DBUS_SYSTEM_BUS_ADDRESS", &bus)]).await;
        agent
            .logs(&[
                "cannot make the cgroups of pods: cannot ask systemd about kubepods.slice: cannot connect to",
                "no-bus",
            ])
            .await;
    }
}

#[tokio::test]
async fn the_health_port_answers_health_checks_and_nothing_else() {
    let (_node, agent, address) = start_on_a_port(|port| format!("healthzPort: {port}")).await;
    for (path, expected) in [
        ("/healthz", (200, "ok".to_owned())),
        ("/healthz/ping", (200, "ok".to_owned())),
        ("/healthz/log", (200, "ok".to_owned())),
        ("/healthz/syncloop", (200, "ok".to_owned())),
        ("/healthz/no-such-check", (404, "404 page not found\n".to_owned())),
        ("/metrics", (404, "404 page not found\n".to_owned())),
        ("/", (404, "404 page not found\n".to_owned())),
    ] {
        assert_eq!(get(address, path).await.unwrap(), expected, "{path}");
    }
    let listening = format!("address=\"{address}\" purpose=\"health checks\"");
    agent.logs(&["\"Listening\"", &listening]).await;
    assert_eq!(agent.listening(), [address.port()], "the read-only port is off unless it is asked for");
}

#[tokio::test]
async fn the_file_of_those_who_sign_clients_certificates_is_read_anew_when_it_changes() {
    let now = Clock::system().now();
    let day = SignedDuration::from_hours(24);
    let authority =
        |name: &str| Authority::make(KeyPair::generate().unwrap(), name, &[], now - day, day * 2).unwrap();
    let (first, second) = (authority("first"), authority("second"));
    let port = free_port().await;
    let node = Node::new("");
    let configuration = fs::read_to_string(node.path("kubelet.yaml")).unwrap();
    let file = node.path("clients.crt");
    let replace = |content: &str| {
        fs::write(node.path("new.crt"), content).unwrap();
        fs::rename(node.path("new.crt"), &file).unwrap();
    };
    replace(first.certificate());
    let served = format!(
        "address: 127.0.0.1\nport: {port}\nauthorization: {{mode: AlwaysAllow}}\nauthentication: {{anonymous: \
         {{enabled: false}}, webhook: {{enabled: false}}, x509: {{clientCAFile: {}}}}}\n",
        file.display()
    );
    fs::write(node.path("kubelet.yaml"), format!("{configuration}{served}")).unwrap();
    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;
    for (name, authority) in [("first", &first), ("second", &second)] {
        let key = KeyPair::generate().unwrap();
        let subject = Subject { name, groups: &[] };
        let certificate = authority.issue(key.public(), subject, &[], Purpose::Client, now - day, day * 2);
        fs::write(node.path(name), certificate.unwrap() + &key.to_pkcs8_pem().unwrap()).unwrap();
    }
    let answers = async |name: &str, expected: &str| {
        let (certificate, url) = (node.path(name), format!("https://127.0.0.1:{port}/pods"));
        eventually(&format!("who shows {name}'s is answered {expected}"), PATIENCE, || async {
            let arguments =
                ["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"];
            let mut curl = Command::new("curl");
            let asked =
                curl.args(arguments).arg("--cert").arg(&certificate).arg(&url).output().await.unwrap();
            let code = String::from_utf8(asked.stdout).unwrap();
            if code == expected { Ok(()) } else { Err(code) }
        })
        .await
        .unwrap();
    };
    answers("first", "200").await;
    answers("second", "401").await;
    replace(second.certificate());
    answers("second", "200").await;
    answers("first", "401").await;
    replace("nothing of use");
    agent.logs(&["clients.crt cannot be used (", "the one from before counts on"]).await;
    answers("second", "200").await;
}

#[tokio::test]
async fn a_port_that_is_taken_ends_it_with_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    for (fields, purpose) in [
        (format!("healthzPort: {}", address.port()), "health checks"),
        (format!("address: 127.0.0.1\nreadOnlyPort: {}", address.port()), "the read-only API"),
    ] {
        let node = Node::new(&fields);
        let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        let expected = format!(
            "crablet: cannot listen on {address} for {purpose}: Address already in use (os error 98)"
        );
        assert_eq!(stderr.lines().last(), Some(expected.as_str()));
    }
}

#[tokio::test]
async fn who_asks_for_traces_is_told_that_there_are_none() {
    let node = Node::new("tracing: {endpoint: \"localhost:4317\", samplingRatePerMillion: 100}");
    let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    assert!(stderr.contains("tracing: this kubelet sends no traces; leave the field out"), "{stderr}");
}

#[tokio::test]
async fn port_0_is_no_port() {
    let node = Node::new("healthzPort: 0\nreadOnlyPort: 0");
    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;
    assert_eq!(agent.listening(), Vec::<u16>::new());
    assert!(!agent.log().contains("Listening"), "{}", agent.log());
}

#[tokio::test]
async fn the_read_only_port_serves_health_and_metrics() {
    let (_node, agent, address) =
        start_on_a_port(|port| format!("address: 127.0.0.1\nreadOnlyPort: {port}")).await;
    assert_eq!(get(address, "/healthz").await.unwrap(), (200, "ok".to_owned()));
    let awaited = "the container runtime is awaited\n".to_owned();
    assert_eq!(get(address, "/pods").await.unwrap(), (503, awaited));
    let (status, metrics) = get(address, "/metrics").await.unwrap();
    assert_eq!(status, 200);
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.split([' ', '{']).next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not in:\n{metrics}")).to_owned()
    };
    let build = value("kubernetes_build_info");
    for label in [r#"git_version="v1.36.4""#, r#"major="1""#, r#"minor="36""#] {
        assert!(build.contains(label), "{build}");
    }
    assert!(build.ends_with(" 1"), "{build}");
    let number = |name: &str| value(name).rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    assert!(number("process_resident_memory_bytes") > 1e6, "{metrics}");
    assert!(number("process_open_fds") >= 3.0, "{metrics}");
    assert!(number("process_start_time_seconds") > 1e9, "{metrics}");
    assert!(metrics.contains("\nkubernetes_feature_enabled{"), "{metrics}");
    assert_eq!(agent.listening(), [address.port()]);
}

#[tokio::test]
async fn how_it_logs_is_changed_while_it_runs() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;

    let changed = |flag: &str, value: &str| format!("flag=\"{flag}\" value=\"{value}\"");
    let (code, stdout, stderr) = parts(&node.log_command(&["--v=4"]).await);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (Some(0), "v=4\nvmodule=\nlogging-format=text\n", "")
    );
    agent.logs(&["\"Logging was changed over the admin socket\"", &changed("v", "4")]).await;

    let (code, stdout, _) = parts(&node.log_command(&["--vmodule=serve=6,admin*=2"]).await);
    let shown = "v=4\nvmodule=serve=6,admin*=2\nlogging-format=text\n";
    assert_eq!((code, stdout.as_str()), (Some(0), shown));
    agent.logs(&[&changed("vmodule", "serve=6,admin*=2")]).await;

    let (code, stdout, _) = parts(&node.log_command(&["--logging-format=json"]).await);
    let shown = "v=4\nvmodule=serve=6,admin*=2\nlogging-format=json\n";
    assert_eq!((code, stdout.as_str()), (Some(0), shown));
    let (code, stdout, _) = parts(&node.log_command(&["--v=0", "--vmodule="]).await);
    assert_eq!((code, stdout.as_str()), (Some(0), "v=0\nvmodule=\nlogging-format=json\n"));
    agent.logs(&["\"flag\":\"vmodule\"", "\"value\":\"\""]).await;
    let log = agent.log();
    let json: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let flags: Vec<&str> = json.iter().filter_map(|line| line["flag"].as_str()).collect();
    assert_eq!(flags, ["logging-format", "v", "vmodule"], "the first line after the change is JSON: {log}");
}

#[tokio::test]
async fn a_verbosity_shows_and_hides_lines_of_the_running_agent() {
    let (node, agent, address) = start_on_a_port(|port| format!("healthzPort: {port}")).await;
    // A request that is none makes the server log a line for developers.
    let ended_early = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"this is not HTTP\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
    };
    ended_early().await;
    assert_eq!(node.log_command(&["--v=4"]).await.status.code(), Some(0));
    ended_early().await;
    agent.logs(&["\"Connection ended early\""]).await;
    let log = agent.log();
    let changed = log.find("Logging was changed").unwrap();
    assert!(!log[..changed].contains("Connection ended early"), "not before it was asked for: {log}");

    assert_eq!(node.log_command(&["--v=0"]).await.status.code(), Some(0));
    let before = agent.log().matches("Connection ended early").count();
    assert_eq!(node.log_command(&["--vmodule=serve=4"]).await.status.code(), Some(0));
    ended_early().await;
    eventually("the file's own verbosity shows the line", PATIENCE, || async {
        let log = agent.log();
        if log.matches("Connection ended early").count() > before { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_bad_change_of_the_log_is_refused_with_the_reason() {
    let node = Node::new("");
    let (code, stdout, stderr) = parts(&node.log_command(&["--v=4"]).await);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(
        node.shorten(stderr.as_bytes()),
        "crablet: no agent is running with root directory DIR/root (nothing listens on DIR/root/crablet.sock); \
         --root-dir names another one\n"
    );

    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;
    for (flag, expected) in [
        ("--v=loud", "crablet: --v: verbosity \"loud\" is not a whole number from 0 to 2147483647\n"),
        ("--v=-1", "crablet: --v: verbosity \"-1\" is not a whole number from 0 to 2147483647\n"),
        (
            "--vmodule=serve",
            "crablet: --vmodule: vmodule item \"serve\": expected pattern=N, for example worker=4\n",
        ),
        (
            "--logging-format=xml",
            "crablet: --logging-format: log format \"xml\" is not known: expected text or json\n",
        ),
    ] {
        let (code, stdout, stderr) = parts(&node.log_command(&[flag]).await);
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(1), "", expected), "{flag}");
    }
    let (_, stdout, _) = parts(&node.log_command(&[]).await);
    assert_eq!(stdout, "v=0\nvmodule=\nlogging-format=text\n", "nothing was changed");
}

#[tokio::test]
async fn what_it_makes_is_closed_to_others() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;
    let mode = |path: &str| fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("root"), 0o750);
    assert_eq!(mode("root/crablet.sock"), 0o600);
    assert_eq!(mode("root/crablet.lock"), 0o600);
    let mut made: Vec<_> =
        fs::read_dir(node.path("root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    made.sort();
    // Where plugins make themselves known is made behind everybody's back.
    made.retain(|name| name != "plugins_registry");
    assert_eq!(made, ["crablet", "crablet.lock", "crablet.sock", "image_manager", "pod-resources"]);
    assert_eq!(mode("root/pod-resources"), 0o750);
    assert_eq!(mode("root/pod-resources/kubelet.sock"), 0o600);
    assert_eq!(mode("root/image_manager"), 0o700, "who may use which image is nobody's business");
    assert_eq!(mode("root/crablet"), 0o700, "manifests can hold secrets");
}

/// The service manager's end of `NOTIFY_SOCKET`.
struct Notifications {
    socket: UnixDatagram,
    path: String,
}

impl Notifications {
    fn listen(node: &Node) -> Notifications {
        let path = node.path("notify.sock");
        Notifications { socket: UnixDatagram::bind(&path).unwrap(), path: path.to_str().unwrap().to_owned() }
    }

    async fn next(&self) -> String {
        let mut buffer = vec![0; 4096];
        let length =
            timeout(PATIENCE, self.socket.recv(&mut buffer)).await.expect("nothing is told").unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap().trim_end().to_owned()
    }

    /// All that is told up to the first message with this line, and that message.
    async fn until(&self, line: &str) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            let message = self.next().await;
            let found = message.lines().any(|told| told == line);
            told.push(message);
            if found {
                return told;
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_is_told_how_it_is() {
    let node = Node::new("");
    let notifications = Notifications::listen(&node);
    let variables = [("NOTIFY_SOCKET", notifications.path.as_str()), ("WATCHDOG_USEC", "20000")];
    let mut agent = node.start_with(&[], &variables).await;
    let waiting = format!(
        "STATUS=waiting for the container runtime at unix://{}: there is no such socket; ",
        node.path("runtime.sock").display()
    );
    let told = notifications.next().await;
    assert!(told.starts_with(&waiting) && told.ends_with("\nEXTEND_TIMEOUT_USEC=120000000"), "{told}");

    let _runtime = node.runtime();
    assert_eq!(notifications.next().await, "READY=1\nSTATUS=running");
    for _ in 0..3 {
        assert_eq!(notifications.next().await, "WATCHDOG=1");
    }
    agent.signal(Signal::TERM);
    let told = notifications.until("STOPPING=1").await;
    let (last, before) = told.split_last().unwrap();
    assert_eq!(last, "STOPPING=1\nSTATUS=stopping; pods keep running");
    assert!(before.iter().all(|message| message == "WATCHDOG=1"), "{before:?}");
    assert_eq!(agent.ends().await, Some(0));
}

#[tokio::test]
async fn the_watchdog_is_fed_by_the_process_that_it_is_meant_for_alone() {
    // As systemd does: the process that is started learns its own number.
    let script = "WATCHDOG_PID=$$ exec \"$0\" \"$@\"";
    for (watchdog_pid, limit, is_fed) in [
        (None, "1000", true),
        (Some("own"), "1000", true),
        (Some("1"), "1000", false),
        (None, "0", false),
        (None, "often", false),
    ] {
        let node = Node::new("");
        let _runtime = node.runtime();
        let notifications = Notifications::listen(&node);
        let mut variables = vec![("NOTIFY_SOCKET", notifications.path.as_str()), ("WATCHDOG_USEC", limit)];
        let mut agent = match watchdog_pid {
            Some("own") => {
                let arguments = ["-c".to_owned(), script.to_owned(), PROGRAM.to_owned()];
                let arguments = arguments.into_iter().chain(node.arguments());
                node.spawn(Path::new("/bin/sh"), arguments, &variables).await
            }
            other => {
                variables.extend(other.map(|pid| ("WATCHDOG_PID", pid)));
                node.start_with(&[], &variables).await
            }
        };
        notifications.until("READY=1").await;
        if is_fed {
            assert_eq!(notifications.next().await, "WATCHDOG=1", "{watchdog_pid:?}");
        } else {
            // It has answered by then, and would have been told of many times.
            assert_eq!(node.log_command(&[]).await.status.code(), Some(0), "{}", agent.log());
        }
        agent.signal(Signal::TERM);
        let told = notifications.until("STOPPING=1").await;
        let fed = told.iter().any(|message| message == "WATCHDOG=1");
        assert!(is_fed || !fed, "{watchdog_pid:?} {limit}: {told:?}");
        assert_eq!(agent.ends().await, Some(0), "{watchdog_pid:?} {limit}: {}", agent.log());
    }
}

#[tokio::test]
async fn a_service_manager_that_does_not_listen_does_not_matter() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let nowhere = node.path("nowhere.sock");
    let mut agent = node.start_with(&[], &[("NOTIFY_SOCKET", nowhere.to_str().unwrap())]).await;
    agent.logs(&["\"Cannot tell the service manager how we are\""]).await;
    agent.logs(&[READY]).await;
    agent.stops().await;
}

#[tokio::test]
async fn under_the_name_kubelet_it_is_the_kubelet() {
    let node = Node::new("");
    let kubelet = node.path("kubelet");
    symlink(PROGRAM, &kubelet).unwrap();
    let (code, stdout, stderr) = parts(&run(&kubelet, ["--version"].into_iter()).await);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "Kubernetes v1.36.4\n", ""));
    let (code, stdout, stderr) = parts(&run(&kubelet, ["--help"].into_iter()).await);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("\nUsage: kubelet [OPTIONS]"), "{stdout}");
    let (_, stdout, _) = parts(&run(Path::new(PROGRAM), ["--help"].into_iter()).await);
    assert!(stdout.contains("\nUsage: crablet [OPTIONS]"), "{stdout}");

    let _runtime = node.runtime();
    let mut agent = node.spawn(&kubelet, node.arguments(), &[]).await;
    agent.logs(&[READY]).await;
    agent.stops().await;
}

#[tokio::test]
async fn it_waits_for_the_lock_file_of_another_and_goes_on_when_it_is_released() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let path = node.path("agent.lock");
    fs::write(&path, "4711\n").unwrap();
    let other = fs::File::open(&path).unwrap();
    rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
    let notifications = Notifications::listen(&node);

    let flag = format!("--lock-file={}", path.display());
    let variables = [("NOTIFY_SOCKET", notifications.path.as_str())];
    let mut agent = node.start_with(&[&flag], &variables).await;
    let holder = format!("path=\"{}\" holder=\"4711\"", path.display());
    agent.logs(&["\"Waiting for the file lock\"", &holder]).await;
    assert_eq!(notifications.next().await, "STATUS=waiting for the file lock\nEXTEND_TIMEOUT_USEC=120000000");
    assert!(!agent.log().contains(READY), "{}", agent.log());
    assert!(!node.path("root/crablet.sock").exists(), "nothing is served meanwhile");

    drop(other);
    agent.logs(&[READY]).await;
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", agent.pid()));
    let other = fs::File::open(&path).unwrap();
    let refused = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    agent.stops().await;
}

#[tokio::test]
async fn a_signal_stops_it_while_it_waits_for_the_lock_file() {
    let node = Node::new("");
    let path = node.path("agent.lock");
    let other = fs::File::create(&path).unwrap();
    rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
    let mut agent = node.start_with(&[&format!("--lock-file={}", path.display())], &[]).await;
    agent.logs(&["\"Waiting for the file lock\"", "holder=\"\""]).await;
    agent.stops().await;
}

#[tokio::test]
async fn it_makes_way_when_somebody_opens_the_lock_file_if_it_is_to() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let path = node.path("agent.lock");
    let flag = format!("--lock-file={}", path.display());

    let mut agent = node.start_with(&[&flag], &[]).await;
    agent.logs(&[READY]).await;
    drop(fs::File::open(&path).unwrap());
    assert_eq!(node.log_command(&[]).await.status.code(), Some(0), "it was not asked to make way");
    agent.stops().await;

    let mut agent = node.start_with(&[&flag, "--exit-on-lock-contention"], &[]).await;
    agent.logs(&[READY]).await;
    // Once is enough, but not before it watches.
    eventually("the agent has ended", PATIENCE, || async {
        drop(fs::File::open(&path).unwrap());
        agent.daemon.exit().map(|_| ()).ok_or_else(|| agent.log())
    })
    .await
    .unwrap();
    assert_eq!(agent.ends().await, Some(0));
    agent.logs(&["\"Stopping: somebody else wants the file lock\""]).await;
}

#[tokio::test]
async fn what_is_being_answered_on_the_main_port_when_it_stops_is_answered_to_its_end() {
    let port = free_port().await;
    let node = Node::new(&format!(
        "address: 127.0.0.1\nport: {port}\nenableSystemLogQuery: true\nfeatureGates: {{NodeLogQuery: true}}\n\
         authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}\n\
         authorization: {{mode: AlwaysAllow}}"
    ));
    // A journal that goes on when it is told to.
    let programs = node.path("programs");
    fs::create_dir(&programs).unwrap();
    let told = node.path("told");
    let journal = format!(
        "#!/bin/sh\n[ \"$1\" = --field ] && echo kubelet.service && exit\n\
         echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two\n",
        told.display()
    );
    fs::write(programs.join("journalctl"), journal).unwrap();
    fs::set_permissions(programs.join("journalctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let _runtime = node.runtime();
    let mut agent = node.start_with(&[], &[("PATH", &path)]).await;
    agent.logs(&[READY]).await;

    let url = format!("https://127.0.0.1:{port}/logs/?query=kubelet");
    let mut asking = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", "--no-buffer", &url])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut answer = BufReader::new(asking.stdout.take().unwrap()).lines();
    assert_eq!(answer.next_line().await.unwrap().as_deref(), Some("one"), "{}", agent.log());
    agent.signal(Signal::TERM);
    eventually("the port is closed", PATIENCE, || async {
        if agent.listening().contains(&port) { Err(agent.log()) } else { Ok(()) }
    })
    .await
    .unwrap();
    fs::write(told, "").unwrap();
    assert_eq!(answer.next_line().await.unwrap().as_deref(), Some("two"), "{}", agent.log());
    assert_eq!(agent.ends().await, Some(0), "{}", agent.log());
}

#[tokio::test]
async fn a_log_in_json_is_json_from_the_first_line_to_the_last() {
    let node = Node::new("logging: {format: json}\niptablesDropBit: 3\nnoSuchField: 1");
    let _runtime = node.runtime();
    let mut agent = node.start().await;
    agent.logs(&[READY]).await;
    // Said by other tasks, before or after that, and where the machine does not let it be the last to be killed.
    let said_meanwhile = [
        "Container runtime and network are ready",
        "It is known which file systems there are",
        "Event occurred",
        "Failed to apply oomScoreAdj",
    ];
    agent.logs(&said_meanwhile[..1]).await;
    agent.stops().await;
    let log = agent.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let messages = lines.iter().map(|line| line["msg"].as_str().unwrap());
    let messages: Vec<&str> = messages.filter(|message| !said_meanwhile.contains(message)).collect();
    assert_eq!(
        messages,
        [
            "Starting crablet",
            "Doubtful configuration",
            "These settings are accepted, but this version does not act on them yet",
            "Container runtime is there",
            "The node's API is not served: there is no API server to ask who may use it. With \
             authentication.webhook.enabled: false and authorization.mode: AlwaysAllow it is, for whoever has a \
             certificate of clientCAFile",
            READY,
            "Stopping on SIGTERM",
            "Crablet has stopped; pods keep running",
        ]
    );
    assert_eq!(lines[0]["kubernetes"], "v1.36.4");
    let field = node.shorten(lines[1]["warning"].as_str().unwrap().as_bytes());
    assert_eq!(field, "DIR/kubelet.yaml:5: noSuchField: unknown field");
}

#[tokio::test]
async fn settings_that_it_does_not_act_on_are_named_in_one_warning() {
    let node = Node::new(
        "featureGates: {PodAndContainerStatsFromCRI: true}\niptablesDropBit: 3\n\
         logging: {verbosity: 2, flushFrequency: 1s}",
    );
    let _runtime = node.runtime();
    let agent = node.start_with(&["--experimental-mounter-path=/b"], &[]).await;
    agent.logs(&[READY]).await;
    let log = agent.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.starts_with('W')).collect();
    let [deprecated, not_acted_on] = warnings[..] else { panic!("{log}") };
    assert!(deprecated.ends_with("warning=\"--experimental-mounter-path: is deprecated\""), "{log}");
    let expected = "\"These settings are accepted, but this version does not act on them yet\" \
                    fields=\"iptablesDropBit, logging.flushFrequency, featureGates.PodAndContainerStatsFromCRI, \
                    --experimental-mounter-path\"";
    assert!(not_acted_on.ends_with(expected), "{log}");
}

#[tokio::test]
async fn who_sets_nothing_is_warned_of_nothing() {
    let node = Node::new("");
    let _runtime = node.runtime();
    let agent = node.start().await;
    agent.logs(&[READY]).await;
    let log = agent.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.starts_with('W')).collect();
    assert_eq!(warnings, Vec::<&str>::new(), "{log}");
}

/// A cgroup that holds those in it to a GiB of memory, where this process may make one.
struct Held(std::path::PathBuf);

impl Held {
    fn new() -> Option<Held> {
        let root = Path::new("/sys/fs/cgroup");
        let (base, file) = match root.join("memory").is_dir() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false => (root.to_owned(), "memory.max"),
        };
        let held = Held(base.join(format!("crablet-process-test-held-{}", std::process::id())));
        fs::create_dir(&held.0).ok()?;
        fs::write(held.0.join(file), (1_u64 << 30).to_string()).ok()?;
        Some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn who_is_held_to_less_than_the_machine_has_is_told_by_which_cgroup() {
    let Some(held) = Held::new() else {
        println!("skipped: no cgroup of memory can be made here");
        return;
    };
    let node = Node::new("");
    let _runtime = node.runtime();
    let shell = ["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"", held.0.to_str().unwrap(), PROGRAM];
    let arguments = shell.map(str::to_owned).into_iter().chain(node.arguments());
    let mut agent = node.spawn(Path::new("/bin/sh"), arguments, &[]).await;
    let name = held.0.file_name().unwrap().to_str().unwrap();
    agent.logs(&["the agent's own cgroup allows for", name, "limit=1073741824", "resource=\"memory\""]).await;
    agent.logs(&[READY]).await;
    agent.stops().await;

    let mut agent = node.start().await;
    agent.logs(&[READY]).await;
    assert!(!agent.log().contains(name), "{}", agent.log());
    agent.stops().await;
}

#[tokio::test]
async fn credential_providers_that_are_not_there_end_it_before_anything_is_made() {
    let node = Node::new("");
    let flag = "--image-credential-provider-bin-dir=/nonexistent";
    let (code, stdout, stderr) = parts(&node.run_with(&[flag]).await);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    for told in
        ["plugin binary directory /nonexistent did not exist", "credential provider config path is empty"]
    {
        assert!(stderr.contains(told), "{stderr}");
    }
    assert!(!node.path("root").exists());
}

#[tokio::test]
async fn a_root_directory_that_cannot_be_made_ends_it_with_the_reason() {
    let node = Node::new("");
    fs::write(node.path("root"), "").unwrap();
    let (code, stdout, stderr) = parts(&node.run_with(&[]).await);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert_eq!(
        node.shorten(stderr.as_bytes()).lines().last(),
        Some("crablet: cannot make the root directory DIR/root: File exists (os error 17)")
    );
}

#[tokio::test]
async fn on_containerd_it_comes_up_and_outlives_its_restart() {
    let mut containerd = Containerd::start().await.unwrap();
    let endpoint = containerd.endpoint();
    let (node, mut agent, address) =
        start_on_a_port(|port| format!("healthzPort: {port}\ncontainerRuntimeEndpoint: {endpoint}")).await;
    agent.logs(&["\"Container runtime is there\"", &format!("endpoint=\"{endpoint}\"")]).await;
    agent.logs(&[READY]).await;
    assert_eq!(get(address, "/healthz").await.unwrap(), (200, "ok".to_owned()));

    containerd.restart().await.unwrap();
    assert_eq!(get(address, "/healthz").await.unwrap(), (200, "ok".to_owned()));
    containerd.kill().await.unwrap();
    assert_eq!(get(address, "/healthz").await.unwrap(), (200, "ok".to_owned()));
    assert_eq!(node.log_command(&[]).await.status.code(), Some(0), "{}", agent.log());
    containerd.start_again().await.unwrap();
    agent.stops().await;
    containerd.stop().await.unwrap();
}
