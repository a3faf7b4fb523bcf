//! Static pods that another kubelet ran.

use std::fs;
use std::time::Duration;

use crablet_testkit::eventually;
use jiff::Timestamp;
use serde_json::Value;

use crate::world::{OBEDIENT, World, container_status, entries, manifest, of_one};

/// The Go kubelet's UIDs are 32 hexadecimal digits, too.
const UIDS: [(&str, &str); 4] = [
    ("runs", "0123456789abcdef0123456789abcd01"),
    ("done", "0123456789abcdef0123456789abcd02"),
    ("failed", "0123456789abcdef0123456789abcd03"),
    ("loops", "0123456789abcdef0123456789abcd04"),
];

fn spec(name: &str) -> String {
    let env = "    env: [{name: WHO, value: its me}, {name: GREETING, value: hello $(WHO)}]\n";
    match name {
        "runs" => {
            let volumes = "  volumes: [{name: v, emptyDir: {}}, {name: h, hostPath: {path: /tmp/}}]\n";
            let mounts =
                "    volumeMounts: [{name: v, mountPath: /v}, {name: h, mountPath: /h, readOnly: true}]\n";
            format!("{}{env}{mounts}{volumes}", of_one(OBEDIENT))
        }
        "done" => format!("{}  restartPolicy: OnFailure\n", of_one("echo $(GREETING); exit 0")),
        "failed" => format!("{}{env}  restartPolicy: Never\n", of_one("echo $(GREETING); exit 1")),
        _ => of_one("exit 3"),
    }
}

/// The containers of those that run or are over, and when they were started: nobody touches them.
async fn settled(world: &World) -> Vec<Vec<(String, String, Option<Timestamp>)>> {
    let mut found = Vec::new();
    for name in ["runs", "done", "failed"] {
        found.push(world.containers_of(name).await);
    }
    found
}

fn restarts(pod: &Value) -> u64 {
    container_status(pod, "main")["restartCount"].as_u64().unwrap()
}

#[tokio::test]
async fn static_pods_of_another_kubelet_are_adopted_whatever_their_state_on_containerd() {
    let mut world = World::start().await;
    // What a kubelet leaves in the runtime is the same whoever it is: the recordings show that. Nothing else of this one
    // is left, but for the UIDs that it was told to take.
    for (name, uid) in UIDS {
        let metadata = format!("{{name: {name}, uid: {uid}}}");
        let text = manifest(name, &spec(name)).replacen(&format!("{{name: {name}}}"), &metadata, 1);
        world.node.put(name, &text).unwrap();
    }
    world.awaits_phase("runs", "Running").await;
    world.awaits_phase("done", "Succeeded").await;
    world.awaits_phase("failed", "Failed").await;
    world.awaits("loops", "was restarted", |pod| restarts(pod) >= 1).await;
    world.stop_agent().await;
    fs::remove_dir_all(world.node.root().join("crablet")).unwrap();

    let mut counted = 1;
    for round in 0..3 {
        // The manifests are written anew each time: they are younger than what was made from them.
        for (name, _) in UIDS {
            world.put(name, &format!("{}# Written in round {round}.\n", spec(name)));
        }
        let before = settled(&world).await;
        world.start_agent().await;
        world.awaits_phase("runs", "Running").await;
        world.awaits_phase("done", "Succeeded").await;
        world.awaits_phase("failed", "Failed").await;
        let looping = world.awaits("loops", "goes on to count", |pod| restarts(pod) >= counted).await;
        counted = restarts(&looping);
        for (name, uid) in UIDS {
            let pod = world.node.pod(name).await.unwrap().unwrap();
            assert_eq!(pod["metadata"]["uid"], uid, "{name} in round {round}");
        }
        assert_eq!(settled(&world).await, before, "nothing runs again in round {round}");
        let mut records = entries(&world.node.root().join("crablet/adopted"));
        records.sort();
        assert_eq!(records, UIDS.map(|(_, uid)| uid), "round {round}");
        world.stop_agent().await;
    }

    // Another manifest makes another pod, in the place of the one that was adopted.
    world.put("runs", &spec("runs").replace("its me", "somebody else"));
    world.start_agent().await;
    let is_another = |pod: &Value| pod["metadata"]["uid"] != UIDS[0].1 && pod["status"]["phase"] == "Running";
    world.awaits("runs", "is another, and runs", is_another).await;
    world.take_all().await;
    // What was written down of them goes when the next agent finds that the runtime has nothing of them any more.
    world.stop_agent().await;
    world.start_agent().await;
    let adopted = world.node.root().join("crablet/adopted");
    eventually("the records go", Duration::from_secs(20), || {
        let left = entries(&adopted);
        async move { if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are left")) } }
    })
    .await
    .unwrap();
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}
