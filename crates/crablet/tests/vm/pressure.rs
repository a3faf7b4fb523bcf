//! Pods that take more than there is, and those beside them, which stay.

use std::time::Duration;

use crablet_testkit::eventually;
use rustix::fs::statvfs;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::node::{
    Node, PATIENCE, WAITS, container, container_cgroup, container_status, lives, now, pod, pod_cgroup, read,
};

/// Takes 4 MiB more again and again, some 20 MiB a second, and keeps them.
const EATS: &str = "exec awk 'BEGIN { part = sprintf(\"%4194304s\", \"\"); while (1) { all[n++] = part n; system(\"sleep 0.2\") } }'";
/// Between two looks at the memory of the machine.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the node goes on to say that something is short.
const TRANSITION: &str = "evictionPressureTransitionPeriod: 20s";

/// What upstream takes for the memory that is left on a machine.
fn memory_available() -> Option<u64> {
    let count = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.split([' ', ':']).next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let of_root = |name: &str| count("/sys/fs/cgroup/memory.stat", name);
    let used = (of_root("anon")? + of_root("file")?).saturating_sub(of_root("inactive_file")?);
    Some((count("/proc/meminfo", "MemTotal")? << 10).saturating_sub(used))
}

/// Waits until less memory is left, and says when that was, in seconds since 1970.
async fn crossed(threshold: u64) -> f64 {
    while memory_available().is_none_or(|available| available >= threshold) {
        sleep(PAUSE).await;
    }
    now()
}

/// Who goes for the node's sake is told as disrupted; who broke its own limit is not.
fn is_disrupted(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| {
        condition["type"] == "DisruptionTarget" && condition["reason"] == "TerminationByKubelet"
    })
}

/// Nothing happened to the only container of a pod that runs.
async fn assert_same(node: &Node, name: &str, before: &Value) {
    let pod = node.pod(name).await.unwrap();
    assert_eq!(pod["status"]["phase"], "Running", "{:#}", pod["status"]);
    assert_eq!(lives(&pod, "main"), lives(before, "main"), "{name}");
}

fn assert_evicted(pod: &Value, message: &str) {
    let status = &pod["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&"Failed".into(), &"Evicted".into()), "{status:#}");
    assert!(status["message"].as_str().unwrap().starts_with(message), "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_pod_that_eats_the_nodes_memory_is_evicted_and_not_those_beside_it() {
    const THRESHOLD: u64 = 300 << 20;
    let node = Node::start(&format!("evictionHard: {{memory.available: 300Mi}}\n{TRANSITION}\n")).await;
    let request = json!({"requests": {"memory": "64Mi"}});
    let keeps = "head -c 32m /dev/zero | tail -n 1 | sleep 100000";
    node.create("within", pod([container("main", keeps, request)])).await;
    node.create("beside", pod([container("main", WAITS, json!({}))])).await;
    let mut before = Vec::new();
    for name in ["within", "beside"] {
        before.push((name, node.awaits_phase(name, "Running").await));
    }
    let crossed = AbortOnDropHandle::new(tokio::spawn(crossed(THRESHOLD)));
    node.create("eats", pod([container("main", EATS, json!({}))])).await;

    let pressure = node.awaits_condition("MemoryPressure", "True");
    let (evicted, ()) = tokio::join!(node.awaits_phase("eats", "Failed"), pressure);
    assert_evicted(&evicted, "The node was low on resource: memory. Threshold quantity: 300Mi, available: ");
    node.awaits_event("eats", "Evicted").await;
    node.awaits_event("node-1", "EvictionThresholdMet").await;
    let begun = node.logged_at("Evicting a pod").await;
    let seen = node.logged_at("The node is short of memory").await;
    let crossed = crossed.await.unwrap();
    println!(
        "from the threshold crossed, at {} MiB, to the look that saw it {:.0} ms, to the eviction {:.0} ms",
        THRESHOLD >> 20,
        (seen - crossed) * 1000.0,
        (begun - crossed) * 1000.0
    );

    node.awaits_condition("MemoryPressure", "False").await;
    for (name, before) in before {
        assert_same(&node, name, &before).await;
    }
    assert_eq!(node.kernel_log("Out of memory").await, "", "the kernel had to end nothing");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_pod_that_fills_the_nodes_disk_is_evicted_and_not_the_one_beside_it() {
    let disk = statvfs("/var/lib/kubelet").unwrap();
    let threshold = ((disk.f_bavail * disk.f_frsize) >> 20) - 300;
    let fields =
        format!("evictionHard: {{memory.available: 100Mi, nodefs.available: {threshold}Mi}}\n{TRANSITION}\n");
    let node = Node::start(&fields).await;
    node.create("beside", pod([container("main", WAITS, json!({}))])).await;
    let beside = node.awaits_phase("beside", "Running").await;
    let fills = format!("for part in $(seq 40); do dd if=/dev/zero bs=1M count=10 >>/big; done; {WAITS}");
    node.create("fills", pod([container("main", &fills, json!({}))])).await;

    let pressure = node.awaits_condition("DiskPressure", "True");
    let (evicted, ()) = tokio::join!(node.awaits_phase("fills", "Failed"), pressure);
    let message = format!(
        "The node was low on resource: ephemeral-storage. Threshold quantity: {threshold}Mi, available: "
    );
    assert_evicted(&evicted, &message);
    assert!(is_disrupted(&evicted), "{:#}", evicted["status"]);
    node.delete("fills").await;
    node.awaits_condition("DiskPressure", "False").await;
    assert_same(&node, "beside", &beside).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn pods_over_their_limits_of_local_storage_are_evicted_and_not_the_one_within() {
    let node = Node::start("").await;
    let with_directory = |writes: &str| {
        let script = format!("dd if=/dev/zero of=/d/file bs=1M count={writes}; {WAITS}");
        let mut main = container("main", &script, json!({}));
        main["volumeMounts"] = json!([{"name": "d", "mountPath": "/d"}]);
        let mut pod = pod([main]);
        pod["volumes"] = json!([{"name": "d", "emptyDir": {"sizeLimit": "16Mi"}}]);
        pod
    };
    node.create("within", with_directory("8")).await;
    let within = node.awaits_phase("within", "Running").await;
    node.create("directory", with_directory("32")).await;
    let writes = format!("dd if=/dev/zero of=/big bs=1M count=32; {WAITS}");
    let limit = |amount: &str| json!({"limits": {"ephemeral-storage": amount}});
    let main = container("main", &writes, limit("16Mi"));
    // Together they are within what they may take.
    node.create("layer", pod([main, container("other", WAITS, limit("64Mi"))])).await;

    for (name, message) in [
        ("directory", "Usage of EmptyDir volume \"d\" exceeds the limit \"16Mi\". "),
        ("layer", "Container main exceeded its local ephemeral storage limit \"16Mi\". "),
    ] {
        let evicted = node.awaits_phase(name, "Failed").await;
        assert_evicted(&evicted, message);
        assert!(!is_disrupted(&evicted), "{:#}", evicted["status"]);
    }
    assert_same(&node, "within", &within).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_fork_bomb_stays_within_its_pod_and_goes_when_it_is_deleted() {
    let node = Node::start("podPidsLimit: 64\n").await;
    node.create("beside", pod([container("main", WAITS, json!({}))])).await;
    let beside = node.awaits_phase("beside", "Running").await;
    // It goes on when there are no more processes to have.
    let bomb = "awk 'BEGIN { while (1) system(\"while :; do sleep 100000 & done\") }'";
    node.create("bomb", pod([container("main", bomb, json!({"limits": {"cpu": "500m"}}))])).await;

    let running = node.awaits_phase("bomb", "Running").await;
    let cgroup = pod_cgroup(&running);
    eventually("there are no more processes to have", PATIENCE, || async {
        let found = read(&cgroup, "pids.current")?;
        if found == "64" { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    // Others still start.
    node.create("later", pod([container("main", WAITS, json!({}))])).await;
    node.awaits_phase("later", "Running").await;
    assert_eq!(
        (read(&cgroup, "pids.max").unwrap(), read(&cgroup, "pids.peak").unwrap()),
        ("64".into(), "64".into())
    );
    node.delete("bomb").await;
    eventually("the bomb is gone", PATIENCE, || async {
        if cgroup.exists() { Err(read(&cgroup, "pids.current").unwrap_or_default()) } else { Ok(()) }
    })
    .await
    .unwrap();
    assert_same(&node, "beside", &beside).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_container_that_eats_more_than_its_limit_is_killed_and_restarted_alone() {
    let node = Node::start("").await;
    // In its second life it is content.
    let once =
        format!("[ -e /d/eaten ] || {{ touch /d/eaten; head -c 100m /dev/zero | tail -n 1; }}; {WAITS}");
    let mut eats = container("eats", &once, json!({"limits": {"memory": "32Mi"}}));
    eats["volumeMounts"] = json!([{"name": "d", "mountPath": "/d"}]);
    let mut spec = pod([eats, container("beside", WAITS, json!({}))]);
    spec["volumes"] = json!([{"name": "d", "emptyDir": {}}]);
    node.create("eater", spec).await;
    let restarted = node
        .awaits("eater", "has restarted a container", |pod| {
            let status = container_status(pod, "eats");
            status["restartCount"] == 1 && status["state"]["running"].is_object()
        })
        .await;
    let ended = &container_status(&restarted, "eats")["lastState"]["terminated"];
    assert_eq!(ended["exitCode"], 137, "{ended:#}");
    // Also where containerd's shim comes too late to read of it, since the cgroup goes with its last process.
    assert_eq!(ended["reason"], "OOMKilled", "{ended:#}");
    let beside = container_status(&restarted, "beside");
    assert_eq!((&beside["restartCount"], &beside["lastState"]), (&0.into(), &json!({})));
    assert!(beside["state"]["running"].is_object(), "{beside:#}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn one_process_of_a_container_is_killed_alone_where_that_is_configured() {
    let node = Node::start("singleProcessOOMKill: true\n").await;
    let script = format!("sh -c 'head -c 100m /dev/zero | tail -n 1 >/dev/null'; {WAITS}");
    let limit = json!({"limits": {"memory": "32Mi"}});
    node.create("eater", pod([container("main", &script, limit)])).await;
    let running = node.awaits_phase("eater", "Running").await;
    let cgroup = container_cgroup(&running, "main");
    eventually("a process was killed", PATIENCE, || async {
        let events = read(&cgroup, "memory.events")?;
        if events.contains("oom_kill 1") { Ok(()) } else { Err(events) }
    })
    .await
    .unwrap();
    assert_eq!(read(&cgroup, "memory.oom.group").unwrap(), "0");
    assert_eq!(lives(&node.pod("eater").await.unwrap(), "main"), lives(&running, "main"));
    node.end().await;
}
