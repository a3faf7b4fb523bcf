//! A machine that is shut down, with its own systemd, bus and logind: it waits for pods.

use std::fs;

use crablet_testkit::eventually;

use crate::common::PATIENCE;
use crate::machine::Machine;

const CONFIGURATION: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
    failCgroupV1: false\nfailSwapOn: false\nevictionHard: {memory.available: 1Mi}\nimageGCHighThresholdPercent: 100\nstaticPodPath: /etc/kubernetes/manifests\n\
    authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n\
    shutdownGracePeriodByPodPriority:\n- {priority: 0, shutdownGracePeriodSeconds: 20}\n\
    - {priority: 100, shutdownGracePeriodSeconds: 15}\n";

const UNIT: &str = "[Service]\nExecStart=/test/crablet --config=/etc/kubernetes/config.yaml \
    --root-dir=/test/kubelet --node-ip=10.0.0.1\n";

/// One that stops after all of its grace period. Two of them take longer than logind waits by itself, and much less than it
/// is asked to.
fn manifest(name: &str, priority: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  priority: {priority}\n  \
         terminationGracePeriodSeconds: 6\n  containers:\n  - name: {name}\n    image: crablet.test/busybox:1\n    command: [sleep, infinity]\n"
    )
}

impl Machine {
    /// Waits until a command prints something with this in it.
    async fn comes_to_print(&self, command: &str, expected: &str) {
        eventually(&format!("{command}: {expected}"), PATIENCE, || async {
            let (printed, _) = self.ask(command).await;
            if printed.contains(expected) {
                Ok(())
            } else {
                Err(format!("{printed}\n{}", self.journal().await))
            }
        })
        .await
        .unwrap();
    }

    fn live(&self) -> Vec<String> {
        let containers = self.runtime.containers().into_iter().filter(|container| container.alive);
        let mut names: Vec<String> = containers.map(|container| container.name).collect();
        names.sort();
        names
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_shut_down_waits_for_its_pods() {
    const LOCKS: &str = "busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
                         ListInhibitors";
    const DELAY: &str = "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 \
                         org.freedesktop.login1.Manager InhibitDelayMaxUSec";
    let machine = Machine::boot().await;
    machine.run("systemctl start dbus.socket systemd-logind.service").await;
    machine.comes_to_print(DELAY, "t 5000000").await;
    for (name, priority) in [("low", 0), ("high", 100)] {
        machine.write(&format!("/etc/kubernetes/manifests/{name}.yaml"), &manifest(name, priority));
    }
    machine.write("/etc/kubernetes/config.yaml", CONFIGURATION);
    machine.write("/etc/systemd/system/kubelet.service", UNIT);
    machine.run("systemctl daemon-reload && systemctl start kubelet").await;
    machine
        .comes_to_print(
            LOCKS,
            "\"shutdown\" \"kubelet\" \"Kubelet needs time to handle node shutdown\" \"delay\"",
        )
        .await;
    machine.comes_to_print(DELAY, "t 40000000").await;
    let drop_in = machine.read("/etc/systemd/logind.conf.d/99-kubelet.conf");
    assert_eq!(drop_in, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=40\n");
    eventually("both pods run", PATIENCE, || async {
        if machine.live() == ["high", "low"] { Ok(()) } else { Err(machine.journal().await) }
    })
    .await
    .unwrap();

    // Who loses the bus finds it again.
    machine.run("systemctl restart dbus.service systemd-logind.service").await;
    machine.comes_to_print("journalctl --no-pager --unit=kubelet.service", "the bus has ended").await;
    machine.comes_to_print(LOCKS, "\"kubelet\"").await;

    let calls = machine.runtime.calls().len();
    machine.run("busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager PowerOff b false").await;
    eventually("the machine is down", PATIENCE, || async {
        match machine.is_down() {
            true => Ok(()),
            false => Err(machine.journal().await),
        }
    })
    .await
    .unwrap();
    assert_eq!(machine.live(), [""; 0]);
    let stops: Vec<String> =
        machine.runtime.calls()[calls..].iter().map(|call| format!("{call:?}")).collect();
    let kept = fs::read_to_string(machine.shared("kubelet/graceful_node_shutdown_state")).unwrap();
    assert!(!kept.contains("0001-01-01"), "it ended before the machine went: {kept} {stops:#?}");
}
