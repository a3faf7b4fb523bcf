//! A real kube-apiserver with its etcd, for as long as the test runs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Asked, Body, Server};

pub struct Real {
    directory: TempDir,
    port: u16,
    processes: Vec<Child>,
}

impl Drop for Real {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Real {
    pub fn start(assets: &Path) -> Real {
        let directory = tempfile::tempdir().unwrap();
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        let mut server = Real { directory, port, processes: Vec::new() };
        server.make_certificates();
        let etcd = format!("http://127.0.0.1:{etcd_port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let data = server.path("etcd");
        server.run(
            &assets.join("etcd"),
            &[
                &format!("--data-dir={}", data.display()),
                &format!("--listen-client-urls={etcd}"),
                &format!("--advertise-client-urls={etcd}"),
                &format!("--listen-peer-urls={peer}"),
                &format!("--initial-advertise-peer-urls={peer}"),
                &format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync",
            ],
        );
        let at = |name: &str| server.path(name).display().to_string();
        let arguments = [
            format!("--etcd-servers={etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={}", at("ca.crt")),
            format!("--tls-cert-file={}", at("server.crt")),
            format!("--tls-private-key-file={}", at("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", at("sa.key")),
            format!("--service-account-signing-key-file={}", at("sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
            "--allow-privileged".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--runtime-config=certificates.k8s.io/v1beta1=true".to_owned(),
            "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        server.run(&assets.join("kube-apiserver"), &arguments);
        server.wait_until_ready();
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&mut self, program: &Path, arguments: &[&str]) {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let process = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes.push(process);
    }

    fn make_certificates(&self) {
        let script = r#"
            set -e
            openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3650 -subj /CN=ca
            issue() {
                openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2"
                printf '%s' "$3" > "$1.ext"
                openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 3650 -extfile "$1.ext"
            }
            issue server /CN=server 'subjectAltName=IP:127.0.0.1
extendedKeyUsage=serverAuth'
            issue admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
            openssl genrsa -out sa.key 2048
        "#;
        let output =
            Command::new("sh").args(["-c", script]).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[expect(clippy::disallowed_methods, reason = "a process is waited for, and nobody else is here")]
    fn wait_until_ready(&mut self) {
        for _ in 0..240 {
            let asked = Asked {
                method: "GET".to_owned(),
                path: "/readyz".to_owned(),
                query: String::new(),
                headers: Vec::new(),
                body: String::new(),
            };
            if self.try_to_ask(&asked).is_some_and(|(code, _)| code == 200) {
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let log = std::fs::read_to_string(self.path("kube-apiserver.log")).unwrap_or_default();
        panic!("the real server does not come up:\n{log}");
    }

    fn try_to_ask(&self, asked: &Asked) -> Option<(u16, Body)> {
        let query = if asked.query.is_empty() { String::new() } else { format!("?{}", asked.query) };
        let url = format!("https://127.0.0.1:{}{}{query}", self.port, asked.path);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--globoff", "--path-as-is", "--max-time", "30", "--cacert", "ca.crt"]);
        curl.args(["--cert", "admin.crt", "--key", "admin.key", "--request", &asked.method, &url]);
        curl.args(["--write-out", "\n%{http_code}"]);
        let has = |name: &str| asked.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        for (name, value) in &asked.headers {
            curl.args(["--header", &format!("{name}: {value}")]);
        }
        if !has("Accept") {
            curl.args(["--header", "Accept: application/json"]);
        }
        if !has("Content-Type") {
            curl.args(["--header", "Content-Type: application/json"]);
        }
        if !asked.body.is_empty() {
            curl.args(["--data-binary", &asked.body]);
        }
        let output = curl.current_dir(self.directory.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).ok()?;
        let (body, code) = text.rsplit_once('\n')?;
        let code: u16 = code.parse().ok().filter(|code| *code != 0)?;
        if asked.query.contains("watch=") && code == 200 {
            return Some((
                code,
                Body::Lines(body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()),
            ));
        }
        let body = match serde_json::from_str(body) {
            Ok(json) if body.trim_start().starts_with(['{', '[']) => Body::Json(json),
            Ok(_) | Err(_) => Body::Text(body.trim_end().to_owned()),
        };
        Some((code, body))
    }
}

impl Server for Real {
    fn ask(&mut self, asked: &Asked) -> (u16, Body) {
        self.try_to_ask(asked).unwrap_or_else(|| panic!("no answer to {} {}", asked.method, asked.path))
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
