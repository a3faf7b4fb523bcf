//! A real kube-apiserver with its etcd, for as long as the test runs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

pub struct Real {
    directory: TempDir,
    pub port: u16,
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
    /// Starts one without some of the APIs, such as `apps/v1`.
    pub fn start(assets: &Path, without: &[&str]) -> Real {
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
        let disabled: String = without.iter().map(|api| format!(",{api}=false")).collect();
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
            format!("--kubelet-client-certificate={}", at("admin.crt")),
            format!("--kubelet-client-key={}", at("admin.key")),
            format!("--runtime-config=certificates.k8s.io/v1beta1=true{disabled}"),
            "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        server.run(&assets.join("kube-apiserver"), &arguments);
        server.wait_until_ready();
        server
    }

    /// Of a file of its own: `ca.crt`, and the certificates and keys of `admin` and `kubernetes-admin`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The process of kube-apiserver.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn process(&self) -> u32 {
        self.processes.last().map(Child::id).unwrap_or_default()
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
            issue kubernetes-admin /O=system:masters/CN=kubernetes-admin extendedKeyUsage=clientAuth
            openssl genrsa -out sa.key 2048
        "#;
        let output =
            Command::new("sh").args(["-c", script]).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[expect(clippy::disallowed_methods, reason = "a process is waited for, and nobody else is here")]
    fn wait_until_ready(&mut self) {
        for _ in 0..240 {
            let url = format!("https://127.0.0.1:{}/readyz", self.port);
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--fail", "--output", "/dev/null", "--cacert", "ca.crt", &url]);
            if curl.current_dir(self.directory.path()).status().unwrap().success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let log = std::fs::read_to_string(self.path("kube-apiserver.log")).unwrap_or_default();
        panic!("the real server does not come up:\n{log}");
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
