//! The configuration that kubeadm writes.

use serde_json::json;

use crate::node::{Node, WAITS, container, container_cgroup, lives, pod, pod_cgroup, read, run, slices};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn what_kubeadm_writes_runs_unchanged_and_systemd_has_the_slices_of_pods_with_their_limits() {
    let node = Node::start("").await;
    let small =
        json!({"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "32Mi"}});
    let equal =
        json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "32Mi"}});
    for (name, resources) in [("guaranteed", equal), ("burstable", small), ("besteffort", json!({}))] {
        node.create(name, pod([container("main", WAITS, resources)])).await;
    }

    for (name, max, period, weight) in [
        ("guaranteed", (32 << 20).to_string(), "10000 100000", 4),
        ("burstable", (32 << 20).to_string(), "20000 100000", 4),
        ("besteffort", "max".to_owned(), "max 100000", 1),
    ] {
        let pod = node.awaits_phase(name, "Running").await;
        assert_eq!(pod["status"]["qosClass"].as_str().unwrap().to_lowercase(), name);
        let container = container_cgroup(&pod, "main");
        for cgroup in [&pod_cgroup(&pod), &container] {
            assert_eq!(read(cgroup, "memory.max").unwrap(), max, "{name}: {}", cgroup.display());
            assert_eq!(read(cgroup, "cpu.max").unwrap(), period, "{name}: {}", cgroup.display());
        }
        assert_eq!(read(&pod_cgroup(&pod), "cpu.weight").unwrap(), weight.to_string(), "{name}");
        assert_eq!(read(&container, "memory.oom.group").unwrap(), "1", "{name}");
        // systemd knows both by the names that upstream gives them, and what it was told of the slice.
        let unit = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
        for cgroup in [&pod_cgroup(&pod), &container] {
            let control_group =
                run(&format!("systemctl show --value --property=ControlGroup {}", unit(cgroup))).await;
            assert_eq!(format!("/sys/fs/cgroup{control_group}"), cgroup.display().to_string());
        }
        let memory =
            run(&format!("systemctl show --value --property=MemoryMax {}", unit(&pod_cgroup(&pod)))).await;
        assert_eq!(memory.replace("infinity", "max"), max, "{name}");
    }
    let named = slices().await;
    assert_eq!(named.lines().count(), 6, "{named}");

    // Neither an agent that starts again nor a systemd that reads its units anew changes anything of it.
    let pod = node.pod("burstable").await.unwrap();
    drop(node);
    let node = Node::restart("").await;
    let later = node.awaits_phase("burstable", "Running").await;
    assert_eq!(lives(&later, "main"), lives(&pod, "main"));
    assert_eq!(slices().await, named);
    assert_eq!(read(&pod_cgroup(&later), "memory.max").unwrap(), (32 << 20).to_string());
    node.end().await;
}
