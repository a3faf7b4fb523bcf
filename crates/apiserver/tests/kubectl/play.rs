//! A server, a kubectl, and commands that are run and what they print.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crablet_apiserver::pki::{self, Identity};
use crablet_apiserver::server::{Options, Server};
use crablet_host::clock::Clock;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::case::{Case, File, Printed};
use crate::real::Real;
use crate::{neutral, program};

/// How long a command may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What commands may use beside kubectl: `lines FILE N` waits until a file has so many lines, and `seen FILE TEXT` until
/// it has that text.
const PRELUDE: &str = r#"
lines() {
    touch "$1"
    until [ "$(wc -l <"$1")" -ge "$2" ]; do sleep 0.02; done
}
seen() {
    touch "$1"
    until grep -q "$2" "$1"; do sleep 0.02; done
}
"#;

pub struct Embedded {
    directory: TempDir,
    url: String,
    _stop: DropGuard,
}

impl Embedded {
    pub async fn start(controllers: bool) -> Embedded {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: directory.path().to_owned(),
            bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
            secure_port: 0,
            advertise_address: None,
            serves_pods: false,
            names: Vec::new(),
            kubelet_certificate_authority: None,
            controllers,
            node: None,
        };
        let server = Server::start(options, Clock::system()).await.unwrap();
        let (url, stop) = (server.url().to_owned(), CancellationToken::new());
        tokio::spawn(server.run(stop.clone()));
        Embedded { directory, url, _stop: stop.drop_guard() }
    }

    pub fn stage(&self) -> Stage {
        Stage::new(&self.url, std::fs::read_to_string(self.directory.path().join("admin.conf")).unwrap())
    }

    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("pki/ca.crt")
    }
}

/// Where commands run.
pub struct Stage {
    address: String,
    kubeconfig: String,
    directory: TempDir,
}

impl Stage {
    fn new(url: &str, kubeconfig: String) -> Stage {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(program::kubectl(), programs.join("kubectl")).unwrap();
        Stage { address: url.trim_start_matches("https://").to_owned(), kubeconfig, directory }
    }

    pub fn of_real(server: &Real) -> Stage {
        let read = |name: &str| std::fs::read_to_string(server.path(name)).unwrap();
        let admin = Identity { certificate: read("kubernetes-admin.crt"), key: read("kubernetes-admin.key") };
        let url = format!("https://127.0.0.1:{}", server.port);
        Stage::new(&url, pki::kubeconfig(&url, &read("ca.crt"), "kubernetes-admin", &admin))
    }

    /// Every case has a namespace of its own, with the account that pods run as, unless a controller makes it.
    pub async fn prepare(&self, file: &File, controllers: bool) {
        let mut objects = String::new();
        for position in 0..file.cases.len() {
            let namespace = namespace_of(position);
            objects.push_str(&format!(
                "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n"
            ));
            if !controllers {
                objects.push_str(&format!(
                    "---\n{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {namespace}}}}}\n"
                ));
            }
        }
        self.create(&objects).await;
    }

    /// Creates objects that are there before the first case.
    pub async fn create(&self, objects: &str) {
        let directory = self.directory.path().join("preparation");
        std::fs::create_dir_all(&directory).unwrap();
        let made = self.run(&directory, "default", "kubectl create -f -", objects).await;
        assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Plays a case; what each of its commands printed, as it compares.
    pub async fn play(&self, position: usize, files: &[(String, String)], case: &Case) -> Vec<Printed> {
        let namespace = namespace_of(position);
        let directory = self.directory.path().join(&namespace);
        std::fs::create_dir(&directory).unwrap();
        for (name, content) in files.iter().chain(&case.files) {
            std::fs::write(directory.join(name), content.replace("{ns}", &namespace)).unwrap();
        }
        let mut all = Vec::new();
        for step in &case.steps {
            let command = step.command.replace("{ns}", &namespace);
            let output = self.run(&directory, &namespace, &command, "").await;
            let plain = |bytes| neutral::text(&String::from_utf8_lossy(bytes), &namespace, &self.address);
            all.push(Printed {
                output: plain(&output.stdout),
                error: plain(&output.stderr),
                code: output.status.code().unwrap_or(-1),
            });
        }
        all
    }

    async fn run(
        &self,
        directory: &Path,
        namespace: &str,
        command: &str,
        input: &str,
    ) -> std::process::Output {
        let config = directory.join(".kubeconfig");
        let cluster = "    cluster: kubernetes\n";
        let kubeconfig = self.kubeconfig.replace(cluster, &format!("{cluster}    namespace: {namespace}\n"));
        std::fs::write(&config, kubeconfig).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{PRELUDE}{command}")]).current_dir(directory).kill_on_drop(true);
        shell.env_clear().env("KUBECONFIG", config).env("HOME", self.directory.path());
        shell.env("PATH", format!("{}:{path}", self.directory.path().join("bin").display()));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        // Who does not read gets nothing.
        let _ = shell.stdin.take().unwrap().write_all(input.as_bytes()).await;
        let ended = tokio::time::timeout(PATIENCE, shell.wait_with_output()).await;
        ended.unwrap_or_else(|_| panic!("{command}: does not come to an end")).unwrap()
    }
}

fn namespace_of(position: usize) -> String {
    format!("case-{position:03}")
}

/// What is otherwise, line by line.
pub fn difference(expected: &Printed, found: &Printed) -> String {
    let lines = |printed: &Printed| {
        let marked = |mark: &'static str, text: &str| -> Vec<String> {
            text.lines().map(|line| format!("{mark} {line}")).collect()
        };
        [marked(">", &printed.output), marked("!", &printed.error), vec![format!("= {}", printed.code)]]
            .concat()
    };
    let (expected, found) = (lines(expected), lines(found));
    // The common beginning and end say nothing.
    let before = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let after = expected[before..].iter().rev().zip(found[before..].iter().rev());
    let after = after.take_while(|(a, b)| a == b).count();
    let part = |sign: &str, lines: &[String]| -> String {
        lines[before..lines.len() - after].iter().map(|line| format!("{sign}{line}\n")).collect()
    };
    part("-", &expected) + &part("+", &found)
}
