use crablet_api::testing::pod_yaml;
use crablet_host::checkpoint::{Operation, SimulatedCheckpoints};
use crablet_host::simulation::Fault;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

async fn open(disk: &SimulatedCheckpoints) -> Memory {
    open_of(disk, b"cluster").await
}

async fn open_of(disk: &SimulatedCheckpoints, cluster: &[u8]) -> Memory {
    let tasks = Tasks::new(CancellationToken::new(), TaskTracker::new());
    Memory::open(Arc::new(disk.clone()), cluster, &tasks).await.unwrap()
}

async fn settled() {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

fn pod(spec: &str) -> Pod {
    pod_yaml(&format!("metadata: {{name: p, namespace: ns, uid: u}}\nspec: {spec}"))
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    (map.metadata.namespace, map.metadata.name) = ("ns".into(), name.into());
    map.data.insert("k", value.into());
    map
}

fn key(name: &str) -> Key {
    ("ns".into(), name.into())
}

/// How many objects were written so far, beside the name of the cluster.
fn writes(disk: &SimulatedCheckpoints) -> usize {
    disk.calls().iter().filter(|call| **call == Operation::Save).count() - 1
}

/// How many objects are kept.
fn kept(disk: &SimulatedCheckpoints) -> usize {
    let content = disk.content();
    assert!(content.contains_key(CLUSTER), "nobody could tell whose they are");
    content.len() - 1
}

#[tokio::test(start_paused = true)]
async fn what_says_the_same_is_not_written_again_and_a_status_is_not_kept() {
    let disk = SimulatedCheckpoints::new();
    let memory = open(&disk).await;
    let mut first = pod("{containers: [{name: c, image: one}]}");
    first.status.message = "this changes all the time".into();
    memory.keep(&key("p"), None, Some(&first));
    settled().await;
    assert_eq!(writes(&disk), 1);
    let mut second = first.clone();
    second.status.message = "other".into();
    second.metadata.resource_version = "7".into();
    second.metadata.annotations.insert(crablet_agent::sources::CONFIG_SEEN, "now".into());
    memory.keep(&key("p"), Some(&first), Some(&second));
    settled().await;
    assert_eq!(writes(&disk), 1);
    second.metadata.labels.insert("a", "b".into());
    memory.keep(&key("p"), Some(&first), Some(&second));
    settled().await;
    assert_eq!(writes(&disk), 2);

    let after = open(&disk).await;
    let recalled = after.recalled::<Pod>("ns", "p").unwrap();
    assert_eq!((&*recalled.metadata.labels["a"], &*recalled.status.message), ("b", ""));
    after.keep(&key("p"), Some(&*recalled), Some(&second));
    settled().await;
    assert_eq!(writes(&disk), 2);
    assert!(after.recalled::<Pod>("ns", "p").is_none(), "the server has told of it");
    after.keep::<Pod>(&key("p"), Some(&second), None);
    settled().await;
    assert_eq!(kept(&disk), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_no_more_and_what_no_pod_refers_to_is_forgotten() {
    let disk = SimulatedCheckpoints::new();
    let memory = open(&disk).await;
    let now: Shelf<ConfigMap> =
        ["a", "b", "c"].into_iter().map(|name| (key(name), Arc::new(config_map(name, "v")))).collect();
    memory.keep_all(&Shelf::new(), &now);
    let pod = pod("{volumes: [{name: v, configMap: {name: a}}]}");
    memory.keep(&key("p"), None, Some(&pod));
    settled().await;
    assert_eq!(kept(&disk), 4);
    let mut fewer = now.clone();
    fewer.remove(&key("c"));
    memory.keep_all(&now, &fewer);
    settled().await;
    assert_eq!((kept(&disk), writes(&disk)), (3, 4));
    // An agent ended before it could forget the other.
    let memory = open(&disk).await;
    settled().await;
    assert_eq!(memory.all_recalled::<ConfigMap>().into_keys().collect::<Vec<_>>(), [key("a")]);
    assert_eq!(kept(&disk), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_power_cut_left_or_nobody_knows_is_removed() {
    let disk = SimulatedCheckpoints::new();
    open(&disk).await;
    for (name, text) in [("pods.1", ""), ("secrets.1", "{}"), ("other", "{}")] {
        disk.save(name, text.as_bytes()).await.unwrap();
    }
    let memory = open(&disk).await;
    settled().await;
    assert_eq!((memory.all_recalled::<Pod>().len(), kept(&disk)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_sent_to_another_cluster_starts_with_nothing_even_if_it_dies_meanwhile() {
    for nth in 1.. {
        let disk = SimulatedCheckpoints::new();
        let memory = open_of(&disk, b"one").await;
        for name in ["a", "b"] {
            memory.keep(&key(name), None, Some(&config_map(name, "v")));
        }
        memory.keep(&key("p"), None, Some(&pod("{volumes: [{name: v, configMap: {name: a}}]}")));
        settled().await;
        assert_eq!(open_of(&disk, b"one").await.all_recalled::<Pod>().len(), 1);
        settled().await;
        disk.plan(None, nth, Fault::Fails(std::io::ErrorKind::Other));
        let tasks = Tasks::new(CancellationToken::new(), TaskTracker::new());
        let opened = Memory::open(Arc::new(disk.clone()), b"two", &tasks).await;
        let is_last = opened.is_ok();
        let memory = match opened {
            Ok(memory) => memory,
            Err(_) => open_of(&disk, b"two").await,
        };
        assert!(memory.all_recalled::<Pod>().is_empty() && memory.all_recalled::<ConfigMap>().is_empty());
        if is_last {
            assert_eq!(nth, 5, "a look, two objects and the name of the cluster");
            break;
        }
    }
}

#[test]
fn the_longest_names_can_be_kept() {
    let key = ("n".repeat(63).as_str().into(), "x".repeat(253).as_str().into());
    assert!(file_name::<RuntimeClass>(&key).len() < 255);
}
