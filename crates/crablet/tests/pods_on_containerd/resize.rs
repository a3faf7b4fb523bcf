//! Pods that are resized in place: what the kernel enforces changes, and nothing restarts that did not ask for it.

use std::path::{Path, PathBuf};

use crablet_testkit::eventually;
use serde_json::{Value, json};

use crate::cluster::Server;
use crate::service::{PODS, ask, awaits_node, awaits_phase, create};
use crate::world::{OBEDIENT, PATIENCE, World, container_status, of_one};

const POD_CGROUPS: [&str; 2] = ["cpu", "memory"];

fn container(name: &str, policy: Value) -> Value {
    json!({
        "name": name, "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", OBEDIENT],
        "resources": resources("50m", "100m", "64Mi"), "resizePolicy": policy,
    })
}

fn resources(request: &str, limit: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": request, "memory": "32Mi"}, "limits": {"cpu": limit, "memory": memory}})
}

async fn resize(server: &Server, container: &str, resources: Value) {
    let patch = json!({"spec": {"containers": [{"name": container, "resources": resources}]}}).to_string();
    let header = "Content-Type: application/strategic-merge-patch+json";
    let request = ["--request", "PATCH", "--header", header, "--data", &patch];
    ask(&server.data, &format!("{PODS}/p/resize"), &request).await.unwrap();
}

/// The directories of a cgroup under the controllers that have it, and of all below it.
fn directories(base: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.push(entry.path());
            directories(&entry.path(), found);
        }
    }
}

/// What a file of a cgroup says whose path ends so, whichever version of cgroups there is.
fn read(ends: &str, v1: &str, v2: &str) -> Option<String> {
    let mut found = Vec::new();
    let root = Path::new("/sys/fs/cgroup");
    for base in POD_CGROUPS.map(|controller| root.join(controller)).iter().filter(|path| path.is_dir()) {
        directories(base, &mut found);
    }
    if found.is_empty() {
        directories(root, &mut found);
    }
    let cgroups = found.iter().filter(|path| path.to_string_lossy().ends_with(ends));
    let mut files = cgroups.flat_map(|path| [path.join(v1), path.join(v2)]);
    files.find_map(|file| std::fs::read_to_string(file).ok()).map(|text| text.trim().to_owned())
}

/// Memory's limit and the microseconds of CPU in each period, of a container and of its pod.
fn enforced(pod: &Value, container: &str) -> [Option<String>; 4] {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let id = container_status(pod, container)["containerID"].as_str().unwrap();
    let id = id.rsplit('/').next().unwrap();
    let quota = |ends: &str| {
        read(ends, "cpu.cfs_quota_us", "cpu.max")
            .map(|text| text.split(' ').next().unwrap_or_default().to_owned())
    };
    let memory = |ends: &str| read(ends, "memory.limit_in_bytes", "memory.max");
    [memory(id), quota(id), memory(&format!("pod{uid}")), quota(&format!("pod{uid}"))]
}

async fn is_enforced(server: &Server, container: &str, expected: [(u64, u64); 2]) -> Value {
    let what = format!("{container} has {expected:?}");
    let expected: Vec<Option<String>> = expected
        .iter()
        .flat_map(|(memory, quota)| [Some((memory << 20).to_string()), Some(quota.to_string())])
        .collect();
    eventually(&what, PATIENCE, || async {
        let pod = server.pod("p").await?;
        let found = enforced(&pod, container);
        let conditions = pod["status"]["conditions"].to_string();
        if found.as_slice() == expected && !conditions.contains("Resize") {
            Ok(pod)
        } else {
            Err(format!("{found:?}, {conditions}"))
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn without_cgroups_for_pods_containers_are_held_to_their_limits_all_the_same_on_containerd() {
    let world = World::start_with("cgroupsPerQOS: false\nenforceNodeAllocatable: []").await;
    let limited = format!("{}    resources: {{limits: {{memory: 64Mi}}}}\n", of_one(OBEDIENT));
    world.put("p", &limited);
    let pod = world.awaits_phase("p", "Running").await;
    assert_eq!(world.node.pod_cgroups().unwrap(), Vec::<PathBuf>::new());
    let [memory, _, of_pod, _] = enforced(&pod, "main");
    assert_eq!((memory, of_pod), (Some((64 << 20).to_string()), None));
    world.take_all().await;
    world.awaits_end("p").await;
    world.assert_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_is_what_the_kernel_enforces_and_restarts_only_what_asks_for_it_on_containerd() {
    let mut world = World::start().await;
    let server = Server::embedded(&world).await;
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.start_agent().await;
    awaits_node(&server.data).await;
    let restarts = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let spec = json!({
        "nodeName": "node", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "containers": [container("main", json!([])), container("restarts", restarts)],
    });
    create(&server.data, "p", spec).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "p", &["Running"]).await;
    let before = is_enforced(&server, "main", [(64, 10_000), (128, 20_000)]).await;
    let run = |pod: &Value, name: &str| {
        let status = container_status(pod, name);
        (status["containerID"].clone(), status["restartCount"].as_u64())
    };

    resize(&server, "main", resources("80m", "160m", "96Mi")).await;
    let grown = is_enforced(&server, "main", [(96, 16_000), (160, 26_000)]).await;
    resize(&server, "main", resources("50m", "100m", "48Mi")).await;
    let shrunk = is_enforced(&server, "main", [(48, 10_000), (112, 20_000)]).await;
    for pod in [&grown, &shrunk] {
        assert_eq!(
            ["main", "restarts"].map(|name| run(pod, name)),
            ["main", "restarts"].map(|name| run(&before, name))
        );
    }
    let status = container_status(&shrunk, "main");
    assert_eq!(status["resources"], resources("50m", "100m", "48Mi"));
    assert_eq!(status["allocatedResources"], resources("50m", "100m", "48Mi")["requests"]);

    // An agent that was away finds what is asked for by now, and goes on from what the one before wrote down.
    world.stop_agent().await;
    resize(&server, "main", resources("60m", "120m", "80Mi")).await;
    world.start_agent().await;
    let resumed = is_enforced(&server, "main", [(80, 12_000), (144, 22_000)]).await;
    assert_eq!(run(&resumed, "main"), run(&before, "main"));

    // Its CPU changes as any other's; for more memory it starts anew, and nobody beside it does.
    resize(&server, "restarts", resources("80m", "160m", "64Mi")).await;
    let same = is_enforced(&server, "restarts", [(64, 16_000), (144, 28_000)]).await;
    assert_eq!(run(&same, "restarts"), run(&before, "restarts"));
    resize(&server, "restarts", resources("80m", "160m", "96Mi")).await;
    let restarted = is_enforced(&server, "restarts", [(96, 16_000), (176, 28_000)]).await;
    assert_eq!(run(&restarted, "restarts").1, Some(1));
    assert_eq!(run(&restarted, "main"), run(&before, "main"));

    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let text = std::fs::read_to_string(world.node.root().join(file)).unwrap();
        let checkpoint: Value = serde_json::from_str(&text).unwrap();
        let data: Value = serde_json::from_str(checkpoint["data"].as_str().unwrap()).unwrap();
        let known = &data["entries"][before["metadata"]["uid"].as_str().unwrap()]["ContainerResources"];
        assert_eq!(known["main"], resources("60m", "120m", "80Mi"), "{file}");
    }
    server.delete("p").await;
    server.awaits_end("p").await;
    world.stop_agent().await;
}
