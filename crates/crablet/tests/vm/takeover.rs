//! The Go kubelet and the agent in each other's place under live pods, with the unit, the flags, the configuration and the root
//! directory that kubeadm gives them: `make vm GO_KUBELET=…`. Both have systemd make cgroups, so that each finds the slices and
//! scopes that the other asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crablet_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{
    Kubelet, MANIFESTS, Node, PATIENCE, container, container_cgroup, lives, pod, pod_cgroup, read, run,
};

const ROOT: &str = "/var/lib/kubelet";
const CGROUPS: &str = "/sys/fs/cgroup/kubepods.slice";
/// What is set in a cgroup, and who lives there.
const FILES: [&str; 11] = [
    "cgroup.procs",
    "cpu.idle",
    "cpu.max",
    "cpu.weight",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.oom.group",
    "memory.swap.max",
    "pids.max",
];
/// The same two processes for as long as it lives.
const WAITS: &str = "trap 'exit 0' TERM; sleep 1000000 & wait";
const PODS: [&str; 6] = ["guaranteed", "burstable", "besteffort", "grows", "deferred", "static-node-1"];

fn resources(request: &str, limit: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": request, "memory": "32Mi"}, "limits": {"cpu": limit, "memory": memory}})
}

fn equal(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

/// All that can be seen of the pods, each thing under its name.
type Outside = BTreeMap<String, String>;

async fn outside(node: &Node) -> Outside {
    let mut found = Outside::new();
    for name in PODS {
        let pod = node.pod(name).await.unwrap();
        found.insert(format!("{name}: uid"), pod["metadata"]["uid"].to_string());
        for (field, value) in without_known_differences(&pod["status"]).as_object().unwrap() {
            found.insert(format!("{name}: {field}"), format!("{value:#}"));
        }
        // A static pod's own UID is not that of what stands for it.
        let of_manifest = &pod["metadata"]["annotations"]["kubernetes.io/config.hash"];
        let uid = of_manifest.as_str().or(pod["metadata"]["uid"].as_str()).unwrap();
        for (file, entries) in entries() {
            let entry = entries[uid].as_object().unwrap_or_else(|| panic!("{file} has {name}: {entries:#}"));
            found.insert(format!("{file}: {name}"), json!(entry).to_string());
        }
    }
    put_cgroups(Path::new(CGROUPS), &mut found);
    let units = run("systemctl list-units --all --no-legend --plain --type=slice,scope 'kubepods*' 'cri-containerd*' | cut -d ' ' -f 1").await;
    // A unit that was stopped and started has another invocation.
    let properties = "InvocationID,ControlGroup,MemoryMax,CPUQuotaPerSecUSec,CPUWeight,TasksMax";
    for unit in units.lines() {
        found.insert(
            format!("unit {unit}"),
            run(&format!("systemctl show --property={properties} {unit}")).await,
        );
    }
    // Of what pods share, upstream's weight counts what a resize asks for that waits for room, and ours what there is.
    found.retain(|name, _| !name.ends_with("kubepods-burstable.slice/cpu.weight"));
    found.entry("unit kubepods-burstable.slice".into()).and_modify(|unit| {
        *unit = unit.lines().filter(|line| !line.starts_with("CPUWeight=")).collect::<Vec<_>>().join("\n");
    });
    for entry in fs::read_dir(ROOT).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with("_manager_state") {
            found.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    found
}

/// A status without that of which the two of them are known to say something else.
fn without_known_differences(status: &Value) -> Value {
    let mut status = status.clone();
    // Upstream reads it from the weight of the pod's cgroup, and 50m become 28m.
    status["resources"]["requests"]["cpu"].take();
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "PodResizePending") {
        // When it was tried last, and what others had then; and upstream forgets since when it waits.
        for field in ["lastProbeTime", "message", "lastTransitionTime"] {
            condition[field].take();
        }
    }
    status
}

fn put_cgroups(directory: &Path, found: &mut Outside) {
    for file in FILES {
        if let Ok(text) = read(directory, file) {
            found.insert(directory.join(file).display().to_string(), text);
        }
    }
    for entry in fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        put_cgroups(&entry.path(), found);
    }
}

/// What the state files about resizes have of pods, by their UIDs.
fn entries() -> [(&'static str, Value); 2] {
    ["allocated_pods_state", "actuated_pods_state"].map(|name| {
        let text = fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        let checkpoint: Value = serde_json::from_str(&text).unwrap();
        let data: Value = serde_json::from_str(checkpoint["data"].as_str().unwrap()).unwrap();
        (name, data["entries"].clone())
    })
}

/// What is not the same, a line each.
fn differences(before: &Outside, after: &Outside) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    differ
        .map(|name| {
            let text = |found: &Outside| found.get(name).cloned().unwrap_or_else(|| "not there".to_owned());
            format!("{name}: {}\n  is now {}", text(before), text(after))
        })
        .collect()
}

/// Resizes a pod in place, and waits until that is what the kernel enforces and nothing of it is left to be told.
async fn grow(node: &Node, cpu: u64, memory: u64) {
    let before = node.pod("grows").await.unwrap();
    let limit = resources(&format!("{}m", cpu / 2), &format!("{cpu}m"), &format!("{memory}Mi"));
    node.resize("grows", "main", &limit).await;
    let expected = ((memory << 20).to_string(), format!("{} 100000", cpu * 100));
    let after = eventually(&format!("the pod has {cpu} mCPU and {memory} MiB"), PATIENCE, || async {
        let pod = node.pod("grows").await?;
        for cgroup in [container_cgroup(&pod, "main"), pod_cgroup(&pod)] {
            let found = (read(&cgroup, "memory.max")?, read(&cgroup, "cpu.max")?);
            if found != expected {
                return Err(format!("{}: {found:?}", cgroup.display()));
            }
        }
        let conditions = pod["status"]["conditions"].to_string();
        if conditions.contains("Resize") { Err(conditions) } else { Ok(pod) }
    })
    .await
    .unwrap();
    assert_eq!(lives(&after, "main"), lives(&before, "main"));
}

/// Waits until whoever is the kubelet has seen to a pod from its beginning to its end, which is when it knows all of them.
async fn goes_on(node: &Node) {
    node.create("later", pod([container("main", WAITS, json!({}))])).await;
    let later = node.awaits_phase("later", "Running").await;
    node.delete("later").await;
    eventually("nothing is left of the later pod", PATIENCE, || async {
        match (node.pod("later").await, pod_cgroup(&later).exists()) {
            (Err(_), false) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn the_go_kubelet_and_crablet_take_over_from_each_other_and_neither_changes_anything_of_pods() {
    if !Kubelet::Go.is_there() {
        println!("skipped: there is no Go kubelet; make vm GO_KUBELET=program");
        return;
    }
    // Its certificate is one that the Go kubelet asked for.
    run(&format!("systemctl stop kubelet && rm -rf {ROOT}/pki /etc/kubernetes/kubelet.conf")).await;
    let mut node = Node::start_as(Kubelet::Go, "").await;
    let small = resources("50m", "100m", "64Mi");
    let spec = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"},
        "spec": pod([container("main", WAITS, small.clone())]),
    });
    fs::write(format!("{MANIFESTS}/static.yaml"), spec.to_string()).unwrap();
    node.create("guaranteed", pod([container("main", WAITS, equal("100m", "32Mi"))])).await;
    node.create("besteffort", pod([container("main", WAITS, json!({}))])).await;
    for name in ["burstable", "grows", "deferred"] {
        node.create(name, pod([container("main", WAITS, small.clone())])).await;
    }
    for name in PODS {
        node.awaits(name, "is ready", |pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
        .await;
    }
    grow(&node, 160, 96).await;
    // This asks for more than the others leave: what it has, only the state files tell.
    let pending = resources("1900m", "1900m", "64Mi");
    node.resize("deferred", "main", &pending).await;
    node.awaits("deferred", "waits for room", |pod| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "PodResizePending" && one["reason"] == "Deferred")
    })
    .await;
    goes_on(&node).await;
    let mut before = outside(&node).await;
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let deferred = &before[&format!("{file}: deferred")];
        assert!(deferred.contains(&small.to_string()), "{file} tells what it has: {deferred}");
    }

    let mut problems = Vec::new();
    for (kubelet, cpu, memory) in
        [(Kubelet::Crablet, 120, 80), (Kubelet::Go, 140, 112), (Kubelet::Crablet, 100, 64)]
    {
        node.leave();
        node = Node::restart_as(kubelet, "").await;
        goes_on(&node).await;
        let after = outside(&node).await;
        let other = differences(&before, &after);
        println!("{kubelet:?} took over: of {} things, {} are other", before.len(), other.len());
        problems.extend(other.into_iter().map(|other| format!("{kubelet:?} took over: {other}")));
        // It goes on from what the other one gave it.
        grow(&node, cpu, memory).await;
        before = outside(&node).await;
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    node.end().await;
}
