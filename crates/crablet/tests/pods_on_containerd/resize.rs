//! Pods that are resized in place: what the kernel enforces changes, and nothing restarts that did not ask for it.

use std::path::{Path, PathBuf};

use crablet_cri::Runtime as _;
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
    resize_in(server, "containers", container, resources).await;
}

/// The same of a container in one of the pod's lists.
async fn resize_in(server: &Server, list: &str, container: &str, resources: Value) {
    let patch = json!({"spec": {list: [{"name": container, "resources": resources}]}});
    patch_resize(server, "p", &patch).await;
}

async fn patch_resize(server: &Server, pod: &str, patch: &Value) {
    let patch = patch.to_string();
    let header = "Content-Type: application/strategic-merge-patch+json";
    let request = ["--request", "PATCH", "--header", header, "--data", &patch];
    ask(&server.data, &format!("{PODS}/{pod}/resize"), &request).await.unwrap();
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

/// How a container weighs against others when CPU is short.
fn weight(pod: &Value, container: &str) -> Option<String> {
    let id = container_status(pod, container)["containerID"].as_str().unwrap();
    read(id.rsplit('/').next().unwrap(), "cpu.shares", "cpu.weight")
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
    is_enforced_in(server, "p", container, expected).await
}

async fn is_enforced_in(server: &Server, pod: &str, container: &str, expected: [(u64, u64); 2]) -> Value {
    let name = pod;
    let what = format!("{container} has {expected:?}");
    let expected: Vec<Option<String>> = expected
        .iter()
        .flat_map(|(memory, quota)| [Some((memory << 20).to_string()), Some(quota.to_string())])
        .collect();
    eventually(&what, PATIENCE, || async {
        let pod = server.pod(name).await?;
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

/// What a state file has of the containers of a pod.
fn known(world: &World, file: &str, pod: &Value) -> Value {
    let text = std::fs::read_to_string(world.node.root().join(file)).unwrap();
    let checkpoint: Value = serde_json::from_str(&text).unwrap();
    let mut data: Value = serde_json::from_str(checkpoint["data"].as_str().unwrap()).unwrap();
    data["entries"][pod["metadata"]["uid"].as_str().unwrap()]["ContainerResources"].take()
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
    let mut sidecar = container("sidecar", json!([]));
    sidecar["restartPolicy"] = "Always".into();
    let spec = json!({
        "nodeName": "node", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "initContainers": [sidecar],
        "containers": [container("main", json!([])), container("restarts", restarts)],
    });
    create(&server.data, "p", spec).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "p", &["Running"]).await;
    let before = is_enforced(&server, "main", [(64, 10_000), (192, 30_000)]).await;
    let run = |pod: &Value, name: &str| {
        let status = container_status(pod, name);
        (status["containerID"].clone(), status["restartCount"].as_u64())
    };

    resize(&server, "main", resources("80m", "160m", "96Mi")).await;
    let grown = is_enforced(&server, "main", [(96, 16_000), (224, 36_000)]).await;
    resize(&server, "main", resources("50m", "100m", "48Mi")).await;
    let shrunk = is_enforced(&server, "main", [(48, 10_000), (176, 30_000)]).await;
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
    let resumed = is_enforced(&server, "main", [(80, 12_000), (208, 32_000)]).await;
    assert_eq!(run(&resumed, "main"), run(&before, "main"));

    // Its CPU changes as any other's; for more memory it starts anew, and nobody beside it does.
    resize(&server, "restarts", resources("80m", "160m", "64Mi")).await;
    let same = is_enforced(&server, "restarts", [(64, 16_000), (208, 38_000)]).await;
    assert_eq!(run(&same, "restarts"), run(&before, "restarts"));
    resize(&server, "restarts", resources("80m", "160m", "96Mi")).await;
    let restarted = is_enforced(&server, "restarts", [(96, 16_000), (240, 38_000)]).await;
    assert_eq!(run(&restarted, "restarts").1, Some(1));
    assert_eq!(run(&restarted, "main"), run(&before, "main"));

    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let known = known(&world, file, &before);
        assert_eq!(known["main"], resources("60m", "120m", "80Mi"), "{file}");
    }

    // A request alone is a weight.
    let before = weight(&restarted, "main");
    resize(&server, "main", resources("90m", "120m", "80Mi")).await;
    let pod = eventually("main weighs more", PATIENCE, || async {
        let pod = server.pod("p").await?;
        let (weight, conditions) = (weight(&pod, "main"), pod["status"]["conditions"].to_string());
        match weight != before && !conditions.contains("Resize") {
            true => Ok(pod),
            false => Err(format!("{weight:?}, {conditions}")),
        }
    })
    .await
    .unwrap();
    if Path::new("/sys/fs/cgroup/cpu").is_dir() {
        assert_eq!(weight(&pod, "main").as_deref(), Some("92"));
    }
    assert_eq!(run(&pod, "main"), run(&restarted, "main"));

    // What is in use is not taken away, until it is used no more.
    let id = container_status(&pod, "main")["containerID"].as_str().unwrap();
    let id = id.rsplit('/').next().unwrap().to_owned();
    let runs = async |script: &str| {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let output = world.client.exec_sync(&id, &command, Some(PATIENCE)).await.unwrap();
        assert_eq!(output.exit_code, 0, "{script}");
    };
    runs("dd if=/dev/zero of=/dev/shm/kept bs=1M count=50").await;
    resize(&server, "main", resources("60m", "120m", "40Mi")).await;
    eventually("the shrink is refused", PATIENCE, || async {
        let conditions = server.pod("p").await?["status"]["conditions"].to_string();
        match conditions.contains("memory limit (41943040) below current usage") {
            true => Ok(()),
            false => Err(conditions),
        }
    })
    .await
    .unwrap();
    let pod = server.pod("p").await.unwrap();
    assert_eq!(enforced(&pod, "main")[0], Some((80 << 20).to_string()));
    runs("rm /dev/shm/kept").await;
    is_enforced(&server, "main", [(40, 12_000), (200, 38_000)]).await;

    // An agent that dies when a resize is granted, or amid it, is followed by one that goes on with it.
    resize_in(&server, "initContainers", "sidecar", resources("60m", "120m", "96Mi")).await;
    let granted = resources("60m", "120m", "96Mi");
    eventually("the resize is granted", PATIENCE, || async {
        let known = &known(&world, "allocated_pods_state", &restarted)["sidecar"];
        if *known == granted { Ok(()) } else { Err(known.to_string()) }
    })
    .await
    .unwrap();
    let mut agent = world.agent.take().unwrap();
    agent.kill();
    agent.wait().await.unwrap();
    world.start_agent().await;
    let after = is_enforced(&server, "sidecar", [(96, 12_000), (232, 40_000)]).await;
    for name in ["main", "sidecar"] {
        assert_eq!(run(&after, name), run(&restarted, name));
    }

    // A pod as a whole, whose container has no limits of its own.
    let whole = |cpu: &str, memory: &str| {
        let requests = json!({"cpu": "50m", "memory": "32Mi"});
        json!({"requests": requests, "limits": {"cpu": cpu, "memory": memory}})
    };
    let mut unlimited = container("main", json!([]));
    unlimited["resources"] = json!({});
    let spec = json!({
        "nodeName": "node", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "resources": whole("100m", "64Mi"), "containers": [unlimited],
    });
    create(&server.data, "whole", spec).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "whole", &["Running"]).await;
    let before = is_enforced_in(&server, "whole", "main", [(64, 10_000), (64, 10_000)]).await;
    for (cpu, memory, expected) in [("160m", "96Mi", (96, 16_000)), ("80m", "48Mi", (48, 8_000))] {
        patch_resize(&server, "whole", &json!({"spec": {"resources": whole(cpu, memory)}})).await;
        let after = is_enforced_in(&server, "whole", "main", [expected, expected]).await;
        assert_eq!(run(&after, "main"), run(&before, "main"));
    }
    server.delete("whole").await;
    server.awaits_end("whole").await;
    server.delete("p").await;
    server.awaits_end("p").await;
    world.stop_agent().await;
}
