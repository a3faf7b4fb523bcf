//! Pods whose resources change while they run, where systemd has their slices and scopes.

use crablet_testkit::eventually;
use serde_json::{Value, json};

use crate::node::{
    Node, PATIENCE, WAITS, container, container_cgroup, container_status, lives, pod, pod_cgroup, read, run,
};

/// What the Go kubelet said of a pod that was resized.
const RECORDED: &str = include_str!("../../../core/tests/data/golden/api/resize.json");

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

/// What a status tells of resources.
fn of_resources(status: &Value) -> Value {
    let container = &status["containerStatuses"][0];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let resizes = conditions.filter(|one| one["type"].as_str().unwrap_or_default().starts_with("PodResize"));
    let told = |one: &Value| {
        json!([one["type"], one["status"], one["reason"], one["message"], one["observedGeneration"]])
    };
    let mut resources = status["resources"].clone();
    // The memory that a pod asks for follows what it was given, where upstream tells the first amount for ever.
    resources["requests"]["memory"].take();
    json!({
        "observedGeneration": status["observedGeneration"],
        "allocatedResources": status["allocatedResources"],
        "resources": resources,
        "of the container": [container["allocatedResources"], container["resources"], container["restartCount"]],
        "resizes": resizes.map(told).collect::<Value>(),
    })
}

/// Applies what was recorded of a patch: conditions are known by their types, and lists are replaced otherwise.
fn merge(status: &mut Value, patch: &Value) {
    for (name, change) in patch.as_object().into_iter().flatten() {
        match change {
            _ if name.starts_with('$') => {}
            Value::Array(changes) if name == "conditions" => {
                let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
                for change in changes {
                    let place = all.iter().position(|one| one["type"] == change["type"]);
                    match (place, change["$patch"] == "delete") {
                        (Some(place), true) => drop(all.remove(place)),
                        (Some(place), false) => merge(&mut all[place], change),
                        (None, _) => all.push(change.clone()),
                    }
                }
                status["conditions"] = all.into();
            }
            Value::Object(_) if status[name].is_object() => merge(&mut status[name], change),
            _ => status[name] = change.clone(),
        }
    }
}

/// What was recorded of resources, up to the end of the pod, and the events of resizes.
fn recorded() -> (Vec<Value>, Vec<Value>) {
    let requests: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let (mut status, mut told, mut events) = (json!({}), Vec::new(), Vec::new());
    for request in &requests {
        let body = &request["body"];
        if request["verb"] == "patch" {
            merge(&mut status, &body["status"]);
            told.push(of_resources(&status));
        } else if body["reason"] == "Killing" {
            break;
        } else if body["reason"].as_str().is_some_and(|reason| reason.starts_with("Resize")) {
            events.push(json!([body["type"], body["reason"], body["message"]]));
        }
    }
    (told, events)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_resize_is_told_as_the_go_kubelet_was_recorded_to_tell_it() {
    let (recorded, recorded_events) = recorded();
    let node = Node::start("").await;
    node.create("p", pod([container("c", WAITS, resources("50m", "100m", "64Mi"))])).await;
    node.awaits_phase("p", "Running").await;
    is_enforced(&node, "c", [(64, 10_000), (64, 10_000)]).await;
    let followed = node.follow("p").await;
    let grown =
        json!({"requests": {"cpu": "80m", "memory": "48Mi"}, "limits": {"cpu": "160m", "memory": "96Mi"}});
    node.resize("p", "c", &grown).await;
    let told = eventually("the last of it is told", PATIENCE, || async {
        let pods = followed.pods();
        let mut told: Vec<Value> = pods.iter().map(|pod| of_resources(&pod["status"])).collect();
        told.dedup();
        if told.last() == recorded.last() { Ok(told) } else { Err(format!("{told:#?}\n{recorded:#?}")) }
    })
    .await
    .unwrap();
    // What came and went between two looks may be missing; nothing else is told, and in no other order.
    let mut left = recorded.iter();
    for status in &told {
        assert!(left.any(|one| one == status), "{status:#}\n{recorded:#?}");
    }
    let resizes = |events: Vec<Value>| -> Vec<Value> {
        let events = events.into_iter();
        let events = events.map(|event| json!([event["type"], event["reason"], event["message"]]));
        events.filter(|event| event[1].as_str().unwrap_or_default().starts_with("Resize")).collect()
    };
    let events = eventually("the last event is there", PATIENCE, || async {
        let events = resizes(node.events("p").await);
        if events.len() >= recorded_events.len() { Ok(events) } else { Err(format!("{events:#?}")) }
    })
    .await
    .unwrap();
    assert_eq!(events, recorded_events);
    println!(
        "{} of the {} recorded statuses were told, and {} events",
        told.len(),
        recorded.len(),
        events.len()
    );
    node.end().await;
}
