//! An agent that begins while the API server is away, and servers, clocks and machines that are not what they were.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use crablet_api::coordination::Lease;
use crablet_api::core::{ConfigMap, Node, NodeConditionType, PodPhase, Secret, Service};
use crablet_api::meta::DeleteOptions;
use crablet_client::PatchType;
use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
use crablet_simulation::api_server::Trouble;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;

use common::joined::{Cluster, FOREVER, eventually, token_volume};
use common::seconds;

/// A node that starts remembered pods.
async fn start() -> Cluster {
    start_with(Some(SimulatedCheckpoints::new())).await
}

async fn start_with(memory: Option<SimulatedCheckpoints>) -> Cluster {
    let mut world = World::new(0, Trace::new(false));
    world.memory = memory;
    let cluster = Cluster::join(world).await;
    cluster.until_ready().await;
    cluster
}

/// Starts the machine again, with the server away.
async fn reboot_offline(cluster: &mut Cluster) {
    cluster.server.set_trouble(Some(Trouble::Refused));
    cluster.world.reboot().await;
    cluster.start_agent().await;
    seconds(30).await;
}

async fn put_secret(cluster: &Cluster, name: &str) {
    let text = format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: default}}, data: {{word: czNjcjN0}}}}"
    );
    cluster.put::<Secret>(&text).await;
}

/// How many files were written to what is kept.
fn writes(cluster: &Cluster) -> usize {
    let calls = cluster.world.memory.as_ref().unwrap().calls();
    calls.iter().filter(|call| **call == Operation::Save).count()
}

/// A pod that shows a config map as a file and as a variable.
const CONFIGURED: &str = "{terminationGracePeriodSeconds: 1, volumes: [{name: v, configMap: {name: settings}}], \
    containers: [{name: c, image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}], \
    env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}]}]}";

#[tokio::test(start_paused = true)]
async fn a_remembered_pod_runs_after_a_reboot_before_the_server_answers_and_what_happened_is_told_later() {
    for trouble in [Trouble::Refused, Trouble::Hangs, Trouble::Says(500, None)] {
        let mut cluster = start().await;
        cluster.want_static(&["st"]);
        cluster.put_config_map("settings", "level", "low").await;
        let service = "{apiVersion: v1, kind: Service, metadata: {name: db, namespace: default}, \
            spec: {clusterIP: 10.96.0.77, ports: [{port: 5432}]}}";
        cluster.put::<Service>(service).await;
        let pod = cluster.create("web", CONFIGURED).await;
        cluster.until_phase("web", PodPhase::Running).await;
        cluster.until_phase("st-node", PodPhase::Running).await;
        seconds(5).await;

        reboot_offline(&mut cluster).await;
        cluster.server.set_trouble(Some(trouble));
        seconds(30).await;
        assert_eq!(cluster.live(), ["st-node", "web"], "{trouble:?} {}", cluster.story("web"));
        let variables = cluster.variables("web").await;
        assert_eq!((&*variables["LEVEL"], &*variables["DB_SERVICE_HOST"]), ("low", "10.96.0.77"));
        assert_eq!(cluster.file(&pod, "v", "level").as_deref(), Some("low"));
        let volume = token_volume(&pod);
        assert!(cluster.file(&pod, &volume, "ca.crt").is_some());
        assert_eq!(cluster.file(&pod, &volume, "token"), None, "tokens are not kept");
        for name in ["web", "node"] {
            let story = cluster.story(name);
            assert!(story.contains("the API server has not answered since 20"), "{story}");
            assert!(story.contains("run from memory"), "{story}");
        }

        // It is looked after as any other.
        let first = cluster.containers()["web"].clone();
        cluster.world.simulator.exit_container(&first, 3);
        seconds(60).await;
        let second = cluster.containers()["web"].clone();
        assert_ne!(second, first);

        cluster.server.set_trouble(None);
        eventually("it has a token", async || cluster.file(&pod, &volume, "token").is_some()).await;
        seconds(10).await;
        let told = cluster.pod("web").await.unwrap();
        assert_eq!(told.status.phase, Some(PodPhase::Running));
        let status = &told.status.container_statuses[0];
        assert!(status.container_id.ends_with(&second), "{status:?}");
        assert_eq!(cluster.containers()["web"], second, "nothing is restarted then");
        assert!(cluster.story("web").contains("answers and wants it"), "{}", cluster.story("web"));
        cluster.until_ready().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_static_pods_alone_start_before_the_server_answers() {
    let mut cluster = start_with(None).await;
    cluster.want_static(&["st"]);
    cluster.create("web", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    reboot_offline(&mut cluster).await;
    seconds(3600).await;
    assert_eq!(cluster.live(), ["st-node"]);
    cluster.server.set_trouble(None);
    eventually("it runs again", async || cluster.live() == ["st-node", "web"]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_may_be_elsewhere_by_now_or_are_to_go_or_over_wait_for_the_server() {
    let mut cluster = start().await;
    let owner =
        "ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: set, uid: s, controller: true}]";
    cluster.create_with("set-0", owner, FOREVER).await;
    let claims = "{nodeName: node, volumes: [{name: v, persistentVolumeClaim: {claimName: mine}}], containers: [{name: c, \
        image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}]}";
    cluster.create("claims", claims).await;
    let ephemeral = claims.replace(
        "persistentVolumeClaim: {claimName: mine}",
        "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}",
    );
    cluster.create("ephemeral", &ephemeral).await;
    cluster
        .create(
            "leaving",
            "{terminationGracePeriodSeconds: 3600, containers: [{name: c, image: 'sim/stubborn:1'}]}",
        )
        .await;
    cluster
        .create("job", "{restartPolicy: OnFailure, containers: [{name: c, image: 'sim/exits-0-3:1'}]}")
        .await;
    cluster
        .create("late-job", "{restartPolicy: OnFailure, containers: [{name: c, image: 'sim/forever:1'}]}")
        .await;
    cluster.create("web", FOREVER).await;
    for name in ["set-0", "leaving", "late-job", "web"] {
        cluster.until_phase(name, PodPhase::Running).await;
    }
    cluster.until_phase("job", PodPhase::Succeeded).await;
    cluster.delete("leaving", &DeleteOptions::default()).await;
    seconds(10).await;
    // One is over when nobody hears of it any more.
    cluster.server.set_trouble(Some(Trouble::Refused));
    let late = cluster.containers()["late-job"].clone();
    cluster.world.simulator.exit_container(&late, 0);
    seconds(10).await;

    reboot_offline(&mut cluster).await;
    seconds(3600).await;
    assert_eq!(cluster.live(), ["web"]);
    let story = cluster.story("node");
    let left = "left as they are until it answers: default/claims has a PersistentVolumeClaim, \
        default/ephemeral has a PersistentVolumeClaim, default/set-0 belongs to a StatefulSet";
    assert!(story.contains(left), "{story}");
    assert!(story.contains("2 of the pods that it wanted are run from memory"), "{story}");

    cluster.server.set_trouble(None);
    eventually("what waited runs", async || cluster.live() == ["set-0", "web"]).await;
    eventually("what was to go is gone", async || cluster.pod("leaving").await.is_none()).await;
    cluster.until_phase("late-job", PodPhase::Succeeded).await;
    assert_eq!(cluster.pod("job").await.unwrap().status.phase, Some(PodPhase::Succeeded));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_needs_a_secret_waits_for_the_server_and_says_so() {
    let mut cluster = start().await;
    put_secret(&cluster, "password").await;
    let mounts = "{volumes: [{name: v, secret: {secretName: password}}], containers: [{name: c, \
        image: 'sim/forever:1', volumeMounts: [{name: v, mountPath: /v}]}]}";
    let variable = "{containers: [{name: c, image: 'sim/forever:1', \
        env: [{name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}]}]}";
    for (name, spec) in [("mounts", mounts), ("variable", variable)] {
        cluster.create(name, spec).await;
        cluster.until_phase(name, PodPhase::Running).await;
    }
    seconds(5).await;
    reboot_offline(&mut cluster).await;
    seconds(600).await;
    assert_eq!(cluster.live(), [""; 0]);
    for name in ["mounts", "variable"] {
        let story = cluster.story(name);
        let headline = story.lines().next().unwrap();
        let why = "secret \"password\" is not kept on the node, and the API server has not answered since 20";
        assert!(headline.contains(why), "{headline}");
    }
    let kept = cluster.world.memory.as_ref().unwrap().content();
    let kept: String = kept.values().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    assert!(!kept.contains("czNjcjN0") && !kept.contains("s3cr3t"), "{kept}");
    cluster.server.set_trouble(None);
    eventually("both run", async || cluster.live() == ["mounts", "variable"]).await;
    assert_eq!(cluster.variables("variable").await["WORD"], "s3cr3t");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_wants_no_more_ends_when_it_answers_and_what_it_changed_is_changed() {
    let mut cluster = start().await;
    cluster.put_config_map("settings", "level", "low").await;
    let pod = cluster.create("web", CONFIGURED).await;
    let old = cluster.create("old", FOREVER).await;
    cluster.create("same", FOREVER).await;
    for name in ["web", "old", "same"] {
        cluster.until_phase(name, PodPhase::Running).await;
    }
    cluster.server.set_trouble(Some(Trouble::Refused));
    cluster.delete("old", &DeleteOptions::now(&old.metadata.uid)).await;
    let patch = "{\"data\": {\"level\": \"high\"}}";
    cluster
        .admin
        .patch::<ConfigMap>("default", "settings", "", PatchType::Merge, patch.into())
        .await
        .unwrap();
    reboot_offline(&mut cluster).await;
    seconds(600).await;
    assert_eq!(cluster.live(), ["old", "same", "web"], "nothing is ended before the server was heard");
    let before = cluster.containers();
    cluster.server.set_trouble(None);
    eventually("what nobody wants is gone", async || cluster.live() == ["same", "web"]).await;
    eventually("nothing is left of it", async || {
        let sandboxes = cluster.world.simulator.sandboxes();
        sandboxes.iter().all(|sandbox| sandbox.metadata.name != "old")
    })
    .await;
    eventually("the map is shown as it is", async || {
        cluster.file(&pod, "v", "level").as_deref() == Some("high")
    })
    .await;
    let after = cluster.containers();
    assert_eq!((&before["same"], &before["web"]), (&after["same"], &after["web"]));
    // What is gone is not remembered.
    reboot_offline(&mut cluster).await;
    assert_eq!(cluster.live(), ["same", "web"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_again_while_the_server_is_away_looks_after_what_runs() {
    let mut cluster = start().await;
    let pod = cluster.create("web", FOREVER).await;
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: set, uid: s}]";
    cluster.create_with("set-0", owner, FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    cluster.until_phase("set-0", PodPhase::Running).await;
    let left_alone = cluster.containers()["set-0"].clone();
    let (first, volume) = (cluster.containers()["web"].clone(), token_volume(&pod));
    let token = cluster.file(&pod, &volume, "token").unwrap();
    cluster.server.set_trouble(Some(Trouble::Refused));
    cluster.world.kill().await;
    cluster.world.start(None).await;
    cluster.world.tell_all();
    seconds(60).await;
    assert_eq!(cluster.containers()["web"], first);
    assert_eq!(cluster.file(&pod, &volume, "token"), Some(token.clone()), "what is shown stays");
    cluster.world.simulator.exit_container(&first, 1);
    seconds(30).await;
    let second = cluster.containers()["web"].clone();
    assert_ne!(second, first);
    assert_eq!(cluster.file(&pod, &volume, "token"), Some(token));
    assert_eq!(cluster.containers()["set-0"], left_alone);
    cluster.server.set_trouble(None);
    eventually("the restart is told", async || {
        cluster.pod("web").await.unwrap().status.container_statuses[0].restart_count == 1
    })
    .await;
    assert_eq!(cluster.containers(), [("set-0".to_owned(), left_alone), ("web".to_owned(), second)].into());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_at_once_is_believed_and_memory_is_not_used() {
    let mut cluster = start().await;
    let old = cluster.create("old", FOREVER).await;
    cluster.create("web", FOREVER).await;
    cluster.until_phase("old", PodPhase::Running).await;
    cluster.until_phase("web", PodPhase::Running).await;
    cluster.world.reboot().await;
    cluster.delete("old", &DeleteOptions::now(&old.metadata.uid)).await;
    cluster.world.start(None).await;
    cluster.world.tell_all();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!cluster.live().contains(&"old".to_owned()));
    }
    assert_eq!(cluster.live(), ["web"]);
    assert!(!cluster.story("node").contains("memory"), "{}", cluster.story("node"));
}

#[tokio::test(start_paused = true)]
async fn pods_are_admitted_from_memory_by_what_others_said_of_the_node() {
    let mut cluster = start().await;
    let patch = r#"{"metadata": {"labels": {"zone": "a"}}}"#;
    cluster.admin.patch::<Node>("", "node", "", PatchType::Merge, patch.into()).await.unwrap();
    seconds(1).await;
    cluster
        .create(
            "web",
            "{nodeName: node, nodeSelector: {zone: a}, containers: [{name: c, image: 'sim/forever:1'}]}",
        )
        .await;
    cluster.until_phase("web", PodPhase::Running).await;
    reboot_offline(&mut cluster).await;
    assert_eq!(cluster.live(), ["web"], "{}", cluster.story("web"));
    cluster.server.set_trouble(None);
    cluster.until_ready().await;
    assert_eq!(cluster.pod("web").await.unwrap().status.phase, Some(PodPhase::Running));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_wanted_is_written_and_nothing_twice() {
    let mut cluster = start().await;
    cluster.put_config_map("settings", "level", "low").await;
    cluster.create("web", CONFIGURED).await;
    cluster.until_phase("web", PodPhase::Running).await;
    seconds(10).await;
    let written = writes(&cluster);
    for _ in 0..3 {
        let container = cluster.containers()["web"].clone();
        cluster.world.simulator.exit_container(&container, 1);
        seconds(120).await;
    }
    let told = cluster.pod("web").await.unwrap();
    assert_eq!(told.status.container_statuses[0].restart_count, 3);
    assert_eq!(writes(&cluster), written, "statuses are not kept");
    cluster.server.close_watches();
    seconds(60).await;
    cluster.world.kill().await;
    cluster.world.start(None).await;
    cluster.world.tell_all();
    seconds(60).await;
    assert_eq!(writes(&cluster), written, "and neither is what is kept already");
    let kinds = |cluster: &Cluster| {
        let kept = cluster.world.memory.as_ref().unwrap().content();
        let kinds = kept.into_keys().map(|name| name.split('.').next().unwrap().to_owned());
        kinds.filter(|kind| kind != "services" && kind != "cluster").collect::<Vec<_>>()
    };
    assert_eq!(kinds(&cluster), ["configmaps", "configmaps", "nodes", "pods"]);
    cluster.delete("web", &DeleteOptions::default()).await;
    eventually("all of it is forgotten", async || kinds(&cluster) == ["nodes"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_restored_server_knows_runs_on_and_the_rest_ends() {
    let mut cluster = start().await;
    cluster.want_static(&["st"]);
    cluster.create("kept", FOREVER).await;
    let gone = cluster.create("gone-since", FOREVER).await;
    cluster.until_phase("kept", PodPhase::Running).await;
    cluster.until_phase("gone-since", PodPhase::Running).await;
    let backup = cluster.server.backup();
    seconds(600).await;
    cluster.create("new", FOREVER).await;
    cluster.until_phase("new", PodPhase::Running).await;
    cluster.delete("gone-since", &DeleteOptions::now(&gone.metadata.uid)).await;
    let kept = cluster.containers()["kept"].clone();
    cluster.world.simulator.exit_container(&kept, 1);
    let patch = r#"{"metadata": {"labels": {"zone": "a"}}}"#;
    cluster.admin.patch::<Node>("", "node", "", PatchType::Merge, patch.into()).await.unwrap();
    seconds(2 * 3600).await;
    assert_eq!(cluster.live(), ["kept", "new", "st-node"]);
    let restarts = async |cluster: &Cluster| {
        let pod = cluster.pod("kept").await.unwrap();
        pod.status.container_statuses[0].restart_count
    };
    // The last that it answered is not told of any more.
    cluster.server.silence_watches(true);
    let kept = cluster.containers()["kept"].clone();
    cluster.world.simulator.exit_container(&kept, 1);
    eventually("the restart is told", async || restarts(&cluster).await == 2).await;
    seconds(5).await;
    let before = cluster.containers();
    cluster.server.restore(backup);
    cluster.server.silence_watches(false);
    assert_eq!(restarts(&cluster).await, 0);
    eventually("the server's idea is the node's", async || {
        cluster.live() == ["gone-since", "kept", "st-node"]
    })
    .await;
    let after = cluster.containers();
    assert_eq!((&before["kept"], &before["st-node"]), (&after["kept"], &after["st-node"]));
    eventually("every status is right", async || restarts(&cluster).await == 2).await;
    eventually("the mirror is there", async || cluster.pod("st-node").await.is_some()).await;
    cluster.until_phase("st-node", PodPhase::Running).await;
    let reported = async || {
        let node = cluster.admin.get::<Node>("", "node").await.unwrap();
        node.status
            .conditions
            .iter()
            .find(|it| it.r#type == NodeConditionType::Ready)
            .unwrap()
            .last_heartbeat_time
    };
    let first = reported().await;
    seconds(300).await;
    assert!(reported().await > first);
    // What others say of the node is what they say now.
    let spec = "{nodeName: node, nodeSelector: {zone: a}, containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("elsewhere", spec).await;
    cluster.until_phase("elsewhere", PodPhase::Failed).await;
    cluster.until_ready().await;
    let lease = async || cluster.admin.get::<Lease>("kube-node-lease", "node").await.unwrap().spec.renew_time;
    let first = lease().await;
    eventually("the lease is renewed", async || lease().await > first).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_moves_a_day_restarts_nothing_and_the_node_stays_ready() {
    const DAY: i64 = 24 * 3600;
    for by in [DAY, -DAY] {
        let mut cluster = start().await;
        cluster.want_static(&["st"]);
        let pod = cluster.create("web", FOREVER).await;
        cluster.until_phase("web", PodPhase::Running).await;
        cluster.until_phase("st-node", PodPhase::Running).await;
        let (before, volume) = (cluster.containers(), token_volume(&pod));
        let token = cluster.file(&pod, &volume, "token").unwrap();
        cluster.world.clock.set_by(by);
        let lease =
            async || cluster.admin.get::<Lease>("kube-node-lease", "node").await.unwrap().spec.renew_time;
        let first = lease().await;
        seconds(120).await;
        assert_ne!(lease().await, first, "{by}");
        let renewed = cluster.file(&pod, &volume, "token").unwrap() != token;
        assert_eq!(renewed, by > 0, "by this clock the token's time is over");
        let first = lease().await;
        seconds(60).await;
        assert!(lease().await > first, "{by}");
        assert_eq!(cluster.containers(), before, "{by}");
        cluster.until_ready().await;
        // What happens from here on is told.
        cluster.world.simulator.exit_container(&before["web"], 1);
        eventually("the restart is told", async || {
            cluster.pod("web").await.unwrap().status.container_statuses[0].restart_count == 1
        })
        .await;
        cluster.delete("web", &DeleteOptions::default()).await;
        eventually("it is gone", async || cluster.pod("web").await.is_none()).await;
        assert_eq!(cluster.live(), ["st-node"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_node_of_the_same_name_says_so_and_takes_over() {
    let mut world = World::new(0, Trace::new(false));
    let server = world.add_api_server();
    let admin = server.admin();
    let node = "{apiVersion: v1, kind: Node, metadata: {name: node}}";
    let (node, _) = crablet_api::from_manifest::<Node>("test", node).unwrap();
    admin.create(&node).await.unwrap();
    let patch = r#"{"status": {"nodeInfo": {"machineID": "another"}}}"#;
    admin.patch::<Node>("", "node", "/status", PatchType::Merge, patch.into()).await.unwrap();
    world.start(None).await;
    world.tell_all();
    let cluster = Cluster { world, admin, server };
    cluster.until_ready().await;
    let story = cluster.story("node");
    let said = "the API server has a node of this name on another machine (machine ID another, here it is ";
    assert!(story.contains(said), "{story}");
    assert_ne!(cluster.admin.get::<Node>("", "node").await.unwrap().status.node_info.machine_id, "another");
}
