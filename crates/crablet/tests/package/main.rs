//! The Debian package, as people install, upgrade, leave and purge it: on a machine with a systemd, beside kubeadm's package
//! and in the place of the kubelet's. Needs root.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod cgroups;
#[path = "../common/mod.rs"]
mod common;
mod machine;
mod shutdown;
mod upstream;

use std::path::Path;
use std::process::Command;

use common::{PATIENCE, PROGRAM};
use crablet_testkit::{Daemon, eventually};
use machine::Machine;
use serde_json::Value;

/// What kubeadm 1.36 writes, on whatever machine this is.
const CONFIGURATION: &str = concat!(
    include_str!("../../../config/tests/data/kubeadm-1.36.yaml"),
    "failCgroupV1: false\nfailSwapOn: false\n",
    "evictionHard: {memory.available: 1Mi}\nimageGCHighThresholdPercent: 100\n"
);

const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: main\n    \
                        image: crablet.test/busybox:1\n    command: [sleep, infinity]\n";

/// A machine with our package, of two versions, and upstream's in `/test`.
async fn machine() -> Machine {
    let machine = Machine::boot().await;
    for version in ["1.0", "1.1"] {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let built = Command::new(workspace.join("scripts/deb"))
            .args(["--quick", "--binary", PROGRAM, "--output"])
            .arg(machine.shared(""))
            .env("VERSION", version)
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    machine
        .run("mv /test/crablet_1.0_*.deb /test/crablet.deb; mv /test/crablet_1.1_*.deb /test/newer.deb")
        .await;
    upstream::build(&machine.shared(""));
    machine
}

impl Machine {
    async fn install(&self, package: &str) -> String {
        self.run(&format!(
            "apt-get install --yes --no-install-recommends --allow-downgrades /test/{package}.deb"
        ))
        .await
    }

    /// Those of these packages that are there, with what is left of them.
    async fn packages(&self) -> String {
        let format = "${binary:Package} ${db:Status-Status}\\n";
        let (printed, _) = self
            .ask(&format!("dpkg-query --show --showformat='{format}' crablet kubelet kubeadm 2>/dev/null"))
            .await;
        let known = printed.lines().filter(|line| !line.ends_with("not-installed"));
        known.map(|line| line.replace(' ', ": ")).collect::<Vec<_>>().join(", ")
    }

    /// Does what `kubeadm join` does before it restarts the kubelet: an API server, a token for it, a configuration.
    async fn configure(&self) -> Daemon {
        let server = self.start("exec /test/crablet apiserver --data-dir /test/api").await;
        eventually("the API server answers", PATIENCE, || async {
            let (answer, answers) = self.ask(&format!("{ASK}/readyz")).await;
            if answers { Ok(()) } else { Err(answer) }
        })
        .await
        .unwrap();
        let token = self.run("/test/crablet token create --kubeconfig /test/api/admin.conf").await;
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:6443\n    \
             certificate-authority: /etc/kubernetes/pki/ca.crt\nusers:\n- name: u\n  user:\n    token: {token}\n\
             contexts:\n- name: c\n  context: {{cluster: c, user: u}}\ncurrent-context: c\n"
        );
        self.run("install -D /test/api/pki/ca.crt /etc/kubernetes/pki/ca.crt").await;
        self.write("/etc/kubernetes/bootstrap-kubelet.conf", &kubeconfig);
        self.write("/etc/kubernetes/manifests/web.yaml", MANIFEST);
        let flags = "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1 --node-labels=flags=kubeadms\"\n";
        self.write("/var/lib/kubelet/kubeadm-flags.env", flags);
        self.write("/var/lib/kubelet/config.yaml", CONFIGURATION);
        server
    }

    /// The node, as soon as it is ready.
    async fn ready_node(&self) -> Value {
        eventually("the node is ready", PATIENCE, || async {
            let (printed, _) = self.ask(&format!("{ASK}/api/v1/nodes/node-1")).await;
            let node: Value = serde_json::from_str(&printed).unwrap_or_default();
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            let conditions = node["status"]["conditions"].as_array();
            match conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
                true => Ok(node),
                false => Err(format!("{printed}\n{}", self.journal().await)),
            }
        })
        .await
        .unwrap()
    }

    /// The containers of the runtime that run, once there are some.
    async fn containers(&self) -> Vec<String> {
        eventually("a container runs", PATIENCE, || async {
            let containers = self.runtime.containers();
            let running = containers.iter().filter(|container| container.alive);
            let ids: Vec<String> = running.map(|container| container.id.clone()).collect();
            if ids.is_empty() { Err(self.journal().await) } else { Ok(ids) }
        })
        .await
        .unwrap()
    }
}

/// Asks the API server, with the certificate of its admin.
const ASK: &str = "curl --silent --show-error --fail --cacert /test/api/pki/ca.crt --cert /test/api/pki/admin.crt \
                   --key /test/api/pki/admin.key https://127.0.0.1:6443";

#[tokio::test(flavor = "multi_thread")]
async fn a_package_takes_the_kubelets_place_under_kubeadm_and_gives_it_back() {
    let machine = machine().await;
    machine.install("kubelet").await;
    machine.install("kubeadm").await;
    let _server = machine.configure().await;
    machine.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-labels=flags-too=peoples\n");
    machine.run("systemctl daemon-reload && systemctl start kubelet").await;
    assert_eq!(machine.unit("ActiveState").await, "active");

    // In its place.
    machine.install("crablet").await;
    assert_eq!(machine.packages().await, "crablet: installed, kubeadm: installed, kubelet: config-files");
    assert_eq!(machine.run("dpkg --audit; dpkg --verify crablet").await, "??5?????? c /etc/default/kubelet");
    assert_eq!(machine.run("kubelet --version").await, "Kubernetes v1.36.4");
    assert!(machine.run("crablet --version=raw").await.starts_with("crablet "));
    assert_eq!(machine.run("systemctl is-enabled kubelet").await, "enabled");
    machine.unit_comes_to("StatusText", "running").await;
    let labels = machine.ready_node().await["metadata"]["labels"].clone();
    assert_eq!((&labels["flags"], &labels["flags-too"]), (&"kubeadms".into(), &"peoples".into()));
    let containers = machine.containers().await;
    assert_eq!(machine.run("ps -o comm= -p $(systemctl show --value -p MainPID kubelet)").await, "kubelet");
    assert_eq!(machine.run("systemd-analyze verify kubelet.service").await, "");

    // What is left of the other package can go without a trace here.
    machine.run("dpkg --purge kubelet").await;
    assert_eq!(machine.packages().await, "crablet: installed, kubeadm: installed");
    assert_eq!(machine.run("systemctl is-enabled kubelet").await, "enabled");
    assert!(machine.read("/etc/default/kubelet").contains("peoples"));

    // A newer one is started in its place, and finds what runs.
    let process = machine.unit("MainPID").await;
    machine.install("newer").await;
    machine.unit_comes_to("StatusText", "running").await;
    assert_ne!(machine.unit("MainPID").await, process);
    assert_eq!(machine.unit("NRestarts").await, "0", "{}", machine.journal().await);
    machine.ready_node().await;
    assert_eq!(machine.containers().await, containers);

    // Back.
    machine.install("kubelet").await;
    assert_eq!(machine.packages().await, "crablet: config-files, kubeadm: installed, kubelet: installed");
    assert_eq!(machine.run("kubelet --version").await, "Kubernetes v1.36.3");
    assert_eq!(machine.run("systemctl is-enabled kubelet").await, "enabled");
    assert!(!machine.ask("command -v crablet").await.1);
    machine.run("systemctl start kubelet").await;
    assert_eq!(machine.containers().await, containers, "whoever goes, containers stay");
    machine.run("dpkg --purge crablet").await;
    assert_eq!(machine.packages().await, "kubeadm: installed, kubelet: installed");
    assert_eq!(machine.unit("ActiveState").await, "active");
    assert_eq!(machine.run("systemctl is-enabled kubelet").await, "enabled");
    assert!(machine.read("/etc/default/kubelet").contains("peoples"));
    let ours: Vec<_> = machine.differs().await.into_iter().filter(|path| path.contains("crablet")).collect();
    assert_eq!(ours, Vec::<String>::new());
    assert!(machine.read("/var/lib/kubelet/config.yaml").contains("cgroupDriver"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_waits_for_its_configuration_and_leaves_nothing_behind() {
    let machine = machine().await;
    let before = machine.differs().await;
    machine.install("crablet").await;
    assert_eq!(machine.unit("ActiveState").await, "inactive", "there is nothing to start it with");
    assert_eq!(machine.run("systemctl is-enabled kubelet").await, "enabled");
    machine.install("kubeadm").await;
    assert_eq!(machine.packages().await, "crablet: installed, kubeadm: installed");

    // As after a boot: it is tried again, until kubeadm has been there.
    machine.run("systemctl start kubelet").await;
    machine.unit_comes_to("SubState", "auto-restart").await;
    assert_eq!(machine.unit("ExecMainStatus").await, "2");
    assert!(machine.journal().await.contains("/var/lib/kubelet/config.yaml"), "{}", machine.journal().await);
    let _server = machine.configure().await;
    machine.unit_comes_to("StatusText", "running").await;
    assert_eq!(machine.unit("NRestarts").await, "1");
    machine.ready_node().await;
    let containers = machine.containers().await;

    // A stop is a stop, and no failure.
    machine.run("systemctl stop kubelet").await;
    assert_eq!(machine.unit("ActiveState").await, "inactive");
    assert_eq!(machine.unit("Result").await, "success");

    // Who has disabled it finds it disabled and stopped after an upgrade.
    machine.run("systemctl disable kubelet").await;
    machine.install("newer").await;
    assert_eq!(machine.ask("systemctl is-enabled kubelet").await.0, "disabled");
    assert_eq!(machine.unit("ActiveState").await, "inactive");
    machine.run("systemctl enable --now kubelet").await;
    machine.unit_comes_to("StatusText", "running").await;

    // Removed, it leaves what people wrote, and what is known of pods that still run; purged, not even that.
    machine.run("apt-get remove --yes kubeadm crablet").await;
    assert_eq!(machine.packages().await, "crablet: config-files");
    assert_eq!(machine.containers().await, containers);
    machine.run("test ! -e /run/crablet").await;
    let is_state =
        |file: &&String| ["/var/lib/kubelet/", "/etc/kubernetes/"].iter().any(|path| file.contains(path));
    let after = machine.differs().await;
    let left: Vec<_> = after.difference(&before).filter(|file| !is_state(file)).collect();
    assert_eq!(left, ["f /etc/default/kubelet"]);
    machine.run("dpkg --purge crablet").await;
    let after = machine.differs().await;
    let left: Vec<_> =
        after.difference(&before).filter(|file| !is_state(file) || file.contains("crablet")).collect();
    assert_eq!(left, Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_starts_on_a_node_that_a_person_configured_elsewhere() {
    let machine = machine().await;
    machine.install("kubelet").await;
    machine.write("/etc/kubernetes/own.yaml", CONFIGURATION);
    machine.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--config=/etc/kubernetes/own.yaml\n");
    machine.run("systemctl daemon-reload && systemctl start kubelet").await;
    machine.install("crablet").await;
    machine.unit_comes_to("StatusText", "running").await;
    assert_eq!(machine.unit("NRestarts").await, "0", "{}", machine.journal().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_leaves_a_kubelet_that_was_disabled_or_held_as_it_was() {
    let machine = machine().await;
    machine.install("kubelet").await;
    machine.run("systemctl disable kubelet && apt-mark hold kubelet").await;
    machine.write("/var/lib/kubelet/config.yaml", CONFIGURATION);

    assert!(!machine.ask("apt-get install --yes /test/crablet.deb").await.1);
    assert_eq!(machine.run("kubelet --version").await, "Kubernetes v1.36.3");
    machine.run("apt-mark unhold kubelet").await;

    // dpkg by itself knows what to do, too.
    machine.run("dpkg --install /test/crablet.deb").await;
    assert_eq!(machine.packages().await, "crablet: installed, kubelet: config-files");
    assert_eq!(machine.ask("systemctl is-enabled kubelet").await.0, "disabled");
    assert_eq!(machine.unit("ActiveState").await, "inactive");
}
