//! The agent and an API server, and what lies between them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use crablet_agent::sources::{CONFIG_MIRROR, SourceKind};
use crablet_api::coordination::Lease;
use crablet_api::core::{Node, Pod, PodPhase};
use crablet_api::meta::{ConditionStatus, DeleteOptions};
use crablet_client::PatchType;
use crablet_simulation::api_server::Trouble;
use crablet_simulation::manifest::from_text;

use common::joined::{Cluster, FOREVER, eventually};

#[tokio::test(start_paused = true)]
async fn a_node_joins_and_says_that_it_is_alive() {
    let cluster = Cluster::start().await;
    let node = cluster.admin.get::<Node>("", "node").await.unwrap();
    let lease = async || cluster.admin.get::<Lease>("kube-node-lease", "node").await.ok();
    eventually("it has a lease", async || lease().await.is_some()).await;
    let first = lease().await.unwrap();
    assert_eq!(first.metadata.owner_references[0].uid, node.metadata.uid);
    assert_eq!(first.spec.holder_identity.as_deref(), Some("node"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(lease().await.unwrap().spec.renew_time > first.spec.renew_time);
    // At rest a minute needs six renewals, and watches that begin anew.
    cluster.server.take_asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked: Vec<String> = cluster.server.take_asked().into_iter().map(|asked| asked.path).collect();
    assert!(asked.len() <= 8, "{asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_runs_is_deleted_and_gone() {
    let cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    let pod = cluster.until_phase("web", PodPhase::Running).await;
    assert_eq!(pod.status.container_statuses.len(), 1);
    assert!(!pod.status.pod_ip.is_empty());
    assert_eq!(cluster.running(), 1);
    let options = DeleteOptions::default();
    cluster.admin.delete::<Pod>("default", "web", &options).await.unwrap();
    eventually("it is gone", async || cluster.pod("web").await.is_none()).await;
    assert_eq!(cluster.running(), 0);
    eventually("nothing is left", async || cluster.world.simulator.sandboxes().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_says_so_and_stays() {
    let cluster = Cluster::start().await;
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}";
    cluster.create("job", spec).await;
    cluster.until_phase("job", PodPhase::Succeeded).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.pod("job").await.unwrap().status.phase, Some(PodPhase::Succeeded));
    assert_eq!(cluster.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_begins_anew_in_another_sandbox_is_told_of_though_its_init_container_ended_for_good() {
    let cluster = Cluster::start().await;
    let spec = "{restartPolicy: OnFailure, initContainers: [{name: i, image: 'sim/exits-0-3:1'}],
                 containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("p", spec).await;
    cluster.until_phase("p", PodPhase::Running).await;
    let sandbox = cluster.world.simulator.sandboxes().remove(0).id;
    cluster.world.simulator.kill_sandbox_process(&sandbox);
    eventually("the container of the new sandbox is told", async || {
        let status = cluster.pod("p").await.unwrap().status;
        let container = &status.container_statuses[0];
        container.restart_count == 1 && container.ready
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_server_is_away_is_told_when_it_is_back() {
    let says = [403, 409, 410, 500].map(|code| Trouble::Says(code, None));
    for trouble in [Trouble::Refused, Trouble::Hangs, Trouble::AnswersAreLost].into_iter().chain(says) {
        let cluster = Cluster::start().await;
        cluster.create("web", FOREVER).await;
        cluster.until_phase("web", PodPhase::Running).await;
        cluster.server.set_trouble(Some(trouble));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let container = cluster.world.simulator.containers()[0].id.clone();
        cluster.world.simulator.exit_container(&container, 3);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(cluster.running(), 1, "{trouble:?}: what runs is restarted without the server");
        cluster.server.set_trouble(None);
        eventually("the restart is told", async || {
            let pod = cluster.pod("web").await.unwrap();
            pod.status.container_statuses[0].restart_count == 1
        })
        .await;
        cluster.until_ready().await;
        let containers = cluster.world.simulator.containers().into_iter();
        assert_eq!(containers.filter(|one| one.alive).count(), 1, "{trouble:?}");
        assert_eq!(cluster.phase("web").await, Some(PodPhase::Running), "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_wait_for_is_told_first_when_the_server_is_back() {
    let cluster = Cluster::start().await;
    let names: Vec<String> = (0..6).map(|number| format!("p{number}")).collect();
    for name in &names {
        cluster.create(name, FOREVER).await;
        cluster.until_phase(name, PodPhase::Running).await;
    }
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("job", spec).await;
    cluster.until_phase("job", PodPhase::Running).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    cluster.server.set_trouble(Some(Trouble::Refused));
    let containers = cluster.containers();
    for name in &names {
        cluster.world.simulator.exit_container(&containers[name], 3);
    }
    // Before the node counts as lost, with which its pods' readiness would go.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.running(), 7, "all were restarted");
    // It is the last to have something to tell.
    cluster.world.simulator.exit_container(&containers["job"], 0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.server.take_asked();
    cluster.server.set_trouble(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let told = patches(&cluster, "");
    assert_eq!(told.first().map(String::as_str), Some("job"), "{told:?}");
    assert!(names.iter().all(|name| told.contains(name)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn of_a_pod_one_status_at_a_time_is_under_way() {
    let cluster = Cluster::start().await;
    let spec = "{restartPolicy: Never, containers: [{name: a, image: 'sim/forever:1'},
                 {name: b, image: 'sim/forever:1'}, {name: c, image: 'sim/forever:1'}]}";
    cluster.create("web", spec).await;
    cluster.until_phase("web", PodPhase::Running).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    cluster.server.take_asked();
    cluster.server.set_trouble(Some(Trouble::Hangs));
    for container in cluster.world.simulator.containers() {
        cluster.world.simulator.exit_container(&container.id, 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let agent = &cluster.world.agent.as_ref().unwrap().agent;
    let shown = agent.statuses.list().into_iter().find(|report| &*report.pod.metadata.name == "web").unwrap();
    assert_eq!(shown.status.phase, Some(PodPhase::Succeeded), "there was more to tell each time");
    assert_eq!(patches(&cluster, "web").len(), 1);
    cluster.server.set_trouble(None);
    cluster.until_phase("web", PodPhase::Succeeded).await;
}

/// The pods of which statuses were told since this was asked last, in order; or those of one pod.
fn patches(cluster: &Cluster, of: &str) -> Vec<String> {
    let asked = cluster.server.take_asked().into_iter().filter(|asked| asked.method == "PATCH");
    let pods = asked.filter_map(|asked| {
        let (_, rest) = asked.path.split_once("/pods/")?;
        rest.strip_suffix("/status").map(str::to_owned)
    });
    pods.filter(|pod| of.is_empty() || pod == of).collect()
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_again_restarts_nothing_and_goes_on() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    cluster.create("old", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    cluster.until_phase("old", PodPhase::Running).await;
    cluster.world.kill().await;
    // One is force-deleted while nobody looks.
    let uid = cluster.pod("old").await.unwrap().metadata.uid;
    cluster.admin.delete::<Pod>("default", "old", &DeleteOptions::now(&uid)).await.unwrap();
    // Nothing is ended before the server was heard.
    cluster.server.set_trouble(Some(Trouble::Refused));
    cluster.world.start(None).await;
    cluster.world.tell_all();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.running(), 2);
    cluster.server.set_trouble(None);
    eventually("what nobody wants is gone", async || cluster.running() == 1).await;
    let pod = cluster.until_phase("web", PodPhase::Running).await;
    assert_eq!(pod.status.container_statuses[0].restart_count, 0);
    eventually("nothing else is left", async || cluster.world.simulator.containers().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_has_a_mirror_that_can_be_deleted_without_touching_it() {
    let mut cluster = Cluster::start().await;
    cluster.want_static(&["h1"]);
    let mirror = cluster.until_phase("st-node", PodPhase::Running).await;
    assert_eq!(mirror.metadata.annotations[CONFIG_MIRROR], "h1");
    assert_eq!(mirror.metadata.owner_references[0].controller, Some(true));
    let first = mirror.metadata.uid.clone();
    cluster.admin.delete::<Pod>("default", "st-node", &DeleteOptions::now(&first)).await.unwrap();
    eventually("it is back", async || {
        cluster.pod("st-node").await.is_some_and(|mirror| mirror.metadata.uid != first)
    })
    .await;
    let mirror = cluster.until_phase("st-node", PodPhase::Running).await;
    assert_eq!(mirror.status.container_statuses[0].restart_count, 0);
    assert_eq!(cluster.world.simulator.containers().len(), 1);

    // Deleted with time to go, it goes and comes back as well.
    cluster.admin.delete::<Pod>("default", "st-node", &DeleteOptions::default()).await.unwrap();
    let second = mirror.metadata.uid.clone();
    eventually("it is back again", async || {
        cluster.pod("st-node").await.is_some_and(|mirror| mirror.metadata.uid != second)
    })
    .await;
    assert_eq!(cluster.world.simulator.containers().len(), 1);

    cluster.want_static(&["h2"]);
    eventually("another manifest has another mirror", async || {
        cluster.pod("st-node").await.is_some_and(|mirror| mirror.metadata.annotations[CONFIG_MIRROR] == "h2")
    })
    .await;
    cluster.until_phase("st-node", PodPhase::Running).await;
    cluster.want_static(&[]);
    eventually("it is gone", async || cluster.pod("st-node").await.is_none()).await;
    eventually("nothing runs", async || cluster.running() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_came_and_went_while_watches_were_silent_comes_back() {
    let mut cluster = Cluster::start().await;
    cluster.server.silence_watches(true);
    cluster.want_static(&["h1"]);
    let mirror = cluster.until_phase("st-node", PodPhase::Running).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let first = mirror.metadata.uid.clone();
    cluster.admin.delete::<Pod>("default", "st-node", &DeleteOptions::now(&first)).await.unwrap();
    cluster.server.silence_watches(false);
    eventually("it is back", async || {
        cluster.pod("st-node").await.is_some_and(|mirror| mirror.metadata.uid != first)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_of_what_is_no_longer_there_goes_when_the_agent_begins() {
    let mut cluster = Cluster::start().await;
    cluster.want_static(&["h1"]);
    cluster.until_phase("st-node", PodPhase::Running).await;
    cluster.world.kill().await;
    cluster.world.wanted.entry(SourceKind::File).or_default().clear();
    cluster.world.start(None).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(cluster.pod("st-node").await.is_some(), "not before all sources were heard");
    cluster.world.tell_all();
    eventually("the mirror is gone", async || cluster.pod("st-node").await.is_none()).await;
    eventually("nothing runs", async || cluster.running() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_others_write_into_a_status_is_kept_where_it_is_theirs_and_undone_where_it_is_ours() {
    let cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    let patch =
        r#"{"status": {"phase": "Failed", "conditions": [{"type": "example.com/gate", "status": "True"}]}}"#;
    let kind = PatchType::StrategicMerge;
    let patched = cluster.admin.patch::<Pod>("default", "web", "/status", kind, patch.into()).await.unwrap();
    assert_eq!(patched.status.phase, Some(PodPhase::Failed));
    let pod = cluster.until_phase("web", PodPhase::Running).await;
    assert!(pod.status.conditions.iter().any(|condition| condition.r#type.as_str() == "example.com/gate"));
    assert_eq!(cluster.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_of_a_name_is_its_own() {
    let mut cluster = Cluster::start().await;
    for agent_is_there in [true, false] {
        cluster.create("web", FOREVER).await;
        let old = cluster.until_phase("web", PodPhase::Running).await;
        if !agent_is_there {
            cluster.world.kill().await;
        }
        cluster.admin.delete::<Pod>("default", "web", &DeleteOptions::now(&old.metadata.uid)).await.unwrap();
        cluster.create("web", FOREVER).await;
        if !agent_is_there {
            cluster.world.start(None).await;
            cluster.world.tell_all();
        }
        let new = cluster.until_phase("web", PodPhase::Running).await;
        assert_ne!(new.metadata.uid, old.metadata.uid);
        assert_ne!(
            new.status.container_statuses[0].container_id,
            old.status.container_statuses[0].container_id
        );
        eventually("the old one is gone", async || cluster.running() == 1).await;
        let uid = &new.metadata.uid;
        cluster.admin.delete::<Pod>("default", "web", &DeleteOptions::now(uid)).await.unwrap();
        eventually("all is gone", async || cluster.running() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_watches_or_wants_to_be_left_alone_is_followed_all_the_same() {
    let cluster = Cluster::start().await;
    let server = cluster.server.clone();
    let closing = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.close_watches();
        }
    });
    for number in 0..5 {
        let name = format!("p{number}");
        cluster.create(&name, FOREVER).await;
        cluster.until_phase(&name, PodPhase::Running).await;
    }
    closing.abort();
    cluster.server.set_trouble(Some(Trouble::Says(429, Some(7))));
    cluster.create("late", FOREVER).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.server.take_asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = cluster.server.take_asked().len();
    assert!(asked < 60, "{asked} requests in a minute to a server that wants seven seconds");
    cluster.server.set_trouble(None);
    cluster.until_phase("late", PodPhase::Running).await;
    cluster.until_ready().await;
    assert_eq!(cluster.running(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_deletes_stays_deleted_until_the_agent_starts_again() {
    let mut cluster = Cluster::start().await;
    cluster.admin.delete::<Node>("", "node", &DeleteOptions::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(cluster.admin.get::<Node>("", "node").await.is_err());
    cluster.world.kill().await;
    cluster.world.start(None).await;
    cluster.world.tell_all();
    cluster.until_ready().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_say_of_the_node_is_what_pods_are_admitted_by() {
    let cluster = Cluster::start().await;
    let spec = "{nodeName: node, nodeSelector: {zone: a}, containers: [{name: c, image: 'sim/forever:1'}]}";
    cluster.create("early", spec).await;
    let pod = cluster.until_phase("early", PodPhase::Failed).await;
    assert_eq!(pod.status.reason, "NodeAffinity");
    let patch = r#"{"metadata": {"labels": {"zone": "a"}}}"#;
    cluster.admin.patch::<Node>("", "node", "", PatchType::Merge, patch.into()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.create("late", spec).await;
    cluster.until_phase("late", PodPhase::Running).await;
}

/// Lets a folder have the manifest of a static pod for nodes in zone `a`.
fn want_in_zone(cluster: &mut Cluster) {
    let pod = from_text(
        "metadata: {name: st-node, namespace: default, uid: h, annotations: {kubernetes.io/config.source: file, \
         kubernetes.io/config.hash: h}}
spec: {nodeName: node, nodeSelector: {zone: a}, containers: [{name: c, image: 'sim/forever:1'}]}
",
    );
    cluster.world.ledger.want(&pod, SourceKind::File);
    cluster.world.wanted.entry(SourceKind::File).or_default().insert("h".to_owned(), pod);
    cluster.world.tell(SourceKind::File);
}

#[tokio::test(start_paused = true)]
async fn a_label_of_which_the_watch_has_not_told_yet_lets_a_pod_in() {
    let mut cluster = Cluster::start().await;
    cluster.server.silence_watches(true);
    cluster.patch_node("", r#"{"metadata": {"labels": {"zone": "a"}}}"#).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    want_in_zone(&mut cluster);
    eventually("it runs", async || cluster.running() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_label_lets_in_fails_whether_the_server_says_so_or_not() {
    for trouble in [None, Some(Trouble::Hangs), Some(Trouble::Refused)] {
        let mut cluster = Cluster::start().await;
        cluster.server.set_trouble(trouble);
        cluster.server.take_asked();
        want_in_zone(&mut cluster);
        let statuses = cluster.world.agent.as_ref().unwrap().agent.statuses.clone();
        eventually("it has failed", async || {
            let report = statuses.get("h");
            report.is_some_and(|report| report.status.phase == Some(PodPhase::Failed))
        })
        .await;
        assert_eq!(statuses.get("h").unwrap().status.reason, "NodeAffinity");
        let asked = cluster.server.take_asked().into_iter();
        let read = asked.filter(|asked| asked.method == "GET" && asked.path.ends_with("/nodes/node"));
        assert_ne!(read.count(), 0, "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_down_makes_the_node_unready_and_nothing_is_declared_dead() {
    let cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    cluster.world.simulator.die();
    eventually("the node is not ready", async || cluster.node_is(ConditionStatus::False).await).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.pod("web").await.unwrap().status.phase, Some(PodPhase::Running));
    cluster.world.simulator.come_back();
    cluster.until_ready().await;
    assert_eq!(cluster.pod("web").await.unwrap().status.container_statuses[0].restart_count, 0);
}
