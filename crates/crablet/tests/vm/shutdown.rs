//! A node that is shut down, and comes back.

use std::fs;

use crablet_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{Node, PATIENCE, container, container_status, pod, run};

const FIELDS: &str = "shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: 20s\n";
/// What pods write on the node as they end.
const WITNESS: &str = "/var/lib/crablet-vm/witness";
/// Tells `boot.sh` that the machine goes down for this test, which is to be run again when it is back.
const GOES_DOWN: &str = "/var/lib/crablet-vm/goes-down";
/// Is there then.
const CAME_BACK: &str = "CRABLET_VM_CAME_BACK";

/// One that takes two seconds to stop, and says so.
fn slow(name: &str, class: &str) -> Value {
    let script = format!(
        "trap 'echo {name} is told >>/w/ends; sleep 2; echo {name} has ended >>/w/ends; exit 0' TERM; \
         while :; do sleep 0.1; done"
    );
    let mut main = container("main", &script, json!({}));
    main["volumeMounts"] = json!([{"name": "w", "mountPath": "/w"}]);
    let mut pod = pod([main]);
    pod["volumes"] = json!([{"name": "w", "hostPath": {"path": WITNESS, "type": "DirectoryOrCreate"}}]);
    pod["terminationGracePeriodSeconds"] = 15.into();
    pod["priorityClassName"] = class.into();
    pod
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_machine_that_is_shut_down_waits_for_its_pods_and_critical_ones_end_last() {
    if std::env::var_os(CAME_BACK).is_none() {
        let node = Node::start(FIELDS).await;
        node.create("critical", slow("critical", "system-node-critical")).await;
        node.create("plain", slow("plain", "")).await;
        for name in ["critical", "plain"] {
            node.awaits_phase(name, "Running").await;
        }
        eventually("the agent holds its lock", PATIENCE, || async {
            let locks = run("systemd-inhibit --list --no-pager").await;
            if locks.contains("kubelet") { Ok(()) } else { Err(locks) }
        })
        .await
        .unwrap();
        fs::write(GOES_DOWN, "").unwrap();
        run("sync && systemctl reboot").await;
        // The machine goes before this does.
        tokio::time::sleep(PATIENCE).await;
        panic!("the machine does not go down");
    }

    let ends = fs::read_to_string(format!("{WITNESS}/ends")).unwrap();
    assert_eq!(ends, "plain is told\nplain has ended\ncritical is told\ncritical has ended\n");
    let node = Node::restart(FIELDS).await;
    for name in ["critical", "plain"] {
        let pod = node.pod(name).await.unwrap();
        let status = &pod["status"];
        assert_eq!(status["reason"], "Terminated", "{status:#}");
        assert_eq!(status["message"], "Pod was terminated in response to imminent node shutdown.");
        assert_eq!(container_status(&pod, "main")["restartCount"], 0, "{status:#}");
    }
    node.end().await;
}
