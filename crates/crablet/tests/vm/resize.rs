//! Pods whose resources change while they run, where systemd has their slices and scopes.

use crablet_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{
    Node, PATIENCE, WAITS, container, container_cgroup, container_status, lives, pod, pod_cgroup, read, run,
};

fn resources(request: &str, limit: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": request, "memory": "32Mi"}, "limits": {"cpu": limit, "memory": memory}})
}

/// Waits until a container and its pod have these MiB and microseconds of each period.
async fn is_enforced(node: &Node, name: &str, expected: [(u64, u64); 2]) -> Value {
    eventually(&format!("{name} has {expected:?}"), PATIENCE, || async {
        let pod = node.pod("p").await?;
        let cgroups = [container_cgroup(&pod, name), pod_cgroup(&pod)];
        for (cgroup, (memory, quota)) in cgroups.iter().zip(expected) {
            let found = (read(cgroup, "memory.max")?, read(cgroup, "cpu.max")?);
            if found != ((memory << 20).to_string(), format!("{quota} 100000")) {
                return Err(format!("{}: {found:?}", cgroup.display()));
            }
        }
        let conditions = pod["status"]["conditions"].to_string();
        if conditions.contains("Resize") { Err(conditions) } else { Ok(pod) }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_resize_is_what_the_kernel_and_systemd_enforce_and_restarts_only_what_asks_for_it() {
    let node = Node::start("").await;
    let with = |name: &str, policy: Value| {
        let mut container = container(name, WAITS, resources("50m", "100m", "64Mi"));
        container["resizePolicy"] = policy;
        container
    };
    let restarts = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    node.create("p", pod([with("main", json!([])), with("restarts", restarts)])).await;
    node.awaits_phase("p", "Running").await;
    let before = is_enforced(&node, "main", [(64, 10_000), (128, 20_000)]).await;

    node.resize("p", "main", &resources("80m", "160m", "96Mi")).await;
    let grown = is_enforced(&node, "main", [(96, 16_000), (160, 26_000)]).await;
    node.resize("p", "main", &resources("50m", "100m", "48Mi")).await;
    let shrunk = is_enforced(&node, "main", [(48, 10_000), (112, 20_000)]).await;
    for pod in [&grown, &shrunk] {
        for name in ["main", "restarts"] {
            assert_eq!(lives(pod, name), lives(&before, name));
        }
    }
    let status = container_status(&shrunk, "main");
    assert_eq!(status["resources"], resources("50m", "100m", "48Mi"));
    assert_eq!(status["allocatedResources"], resources("50m", "100m", "48Mi")["requests"]);

    // What systemd was told stays when it reads its units anew.
    run("systemctl daemon-reload").await;
    is_enforced(&node, "main", [(48, 10_000), (112, 20_000)]).await;

    node.resize("p", "restarts", &resources("50m", "100m", "96Mi")).await;
    let restarted = is_enforced(&node, "restarts", [(96, 10_000), (144, 20_000)]).await;
    assert_eq!(lives(&restarted, "restarts").1, 1);
    assert_eq!(lives(&restarted, "main"), lives(&before, "main"));
    node.end().await;
}
