//! Volumes under agents that are killed.

use std::path::PathBuf;
use std::time::Duration;

use crablet_cri::Runtime as _;

use crablet_testkit::eventually;

use crate::world::{OBEDIENT, PATIENCE, World, container, is_ready};

#[tokio::test]
async fn volumes_outlive_agents_and_go_with_their_pods_on_containerd() {
    let mut world = World::start().await;
    let host = world.node.path("host");
    std::fs::create_dir(&host).unwrap();
    let script = format!("echo kept | tee /memory/word /host/word; {OBEDIENT}");
    let spec = format!(
        "  containers:
{}    volumeMounts:
    - {{name: memory, mountPath: /memory}}
    - {{name: host, mountPath: /host, subPath: deep/down}}
    - {{name: about, mountPath: /about}}
  volumes:
  - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
  - {{name: host, hostPath: {{path: {}, type: Directory}}}}
  - {{name: about, downwardAPI: {{items: [{{path: name, fieldRef: {{fieldPath: metadata.name}}}}]}}}}
",
        container("main", &script),
        host.display()
    );
    world.put("keeps", &spec);
    world.awaits("keeps", "is ready", is_ready).await;
    let containers = world.containers_of("keeps").await;
    assert_eq!(
        world.mounted().len(),
        3,
        "the memory, what tells about the pod, and the part of the host's directory"
    );

    kill_agent(&mut world).await;
    world.start_agent().await;
    world.awaits("keeps", "is ready", is_ready).await;
    assert_eq!(world.containers_of("keeps").await, containers);
    let command = ["cat", "/memory/word", "/host/word", "/about/name"].map(str::to_owned);
    let output =
        world.client.exec_sync(&containers[0].1, &command, Some(Duration::from_secs(20))).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "kept\nkept\nkeeps-node");

    kill_agent(&mut world).await;
    world.node.take("keeps").unwrap();
    world.start_agent().await;
    world.awaits_end("keeps").await;
    world.assert_nothing_is_left().await;
    assert_eq!(world.mounted(), Vec::<PathBuf>::new());
    assert_eq!(std::fs::read_to_string(host.join("deep/down/word")).unwrap(), "kept\n", "it is the host's");
    world.containerd.stop().await.unwrap();
}

/// As the driver of a volume does that runs in a pod.
#[tokio::test]
async fn a_pod_that_shares_its_mounts_mounts_for_the_node_on_containerd() {
    let world = World::start().await;
    let plugins = world.node.root().join("plugins");
    let spec = format!(
        "  containers:
{}    securityContext: {{privileged: true}}
    volumeMounts:
    - {{name: plugins, mountPath: /plugins, mountPropagation: Bidirectional}}
  volumes:
  - {{name: plugins, hostPath: {{path: {}, type: DirectoryOrCreate}}}}
",
        container("main", &format!("mkdir -p /plugins/own && mount -t tmpfs own /plugins/own; {OBEDIENT}")),
        plugins.display()
    );
    world.put("mounts", &spec);
    world.awaits("mounts", "is ready", is_ready).await;
    eventually("its mount is the node's", PATIENCE, || async {
        let found = world.mounted();
        if found.iter().any(|mount| mount.ends_with("plugins/own")) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await
    .unwrap();
    world.take_all().await;
    world.containerd.stop().await.unwrap();
}

#[tokio::test]
async fn what_an_init_container_writes_can_be_the_environment_of_others_on_containerd() {
    let world = World::start().await;
    let spec = format!(
        "  initContainers:
{}    volumeMounts:
    - {{name: config, mountPath: /config}}
  containers:
{}    env:
    - {{name: WORD, valueFrom: {{fileKeyRef: {{volumeName: config, path: app.env, key: WORD}}}}}}
    - {{name: NONE, valueFrom: {{fileKeyRef: {{volumeName: config, path: app.env, key: NONE, optional: true}}}}}}
  volumes:
  - {{name: config, emptyDir: {{}}}}
",
        container("writes", "printf \"WORD='it is\\nwritten'\\n\" > /config/app.env"),
        container("reads", OBEDIENT),
    );
    world.put("told", &spec);
    world.awaits("told", "is ready", is_ready).await;
    let containers = world.containers_of("told").await;
    let reads = containers.iter().find(|(name, ..)| name == "reads").unwrap();
    let command = ["sh", "-c", "echo \"$WORD ${NONE-unset}\""].map(str::to_owned);
    let output = world.client.exec_sync(&reads.1, &command, Some(Duration::from_secs(20))).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "it is\nwritten unset\n");
    world.take_all().await;
    world.containerd.stop().await.unwrap();
}

async fn kill_agent(world: &mut World) {
    let mut agent = world.agent.take().unwrap();
    agent.kill();
    agent.wait().await.unwrap();
}
