//! How much of volumes is used, and what is told of it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "common/claimed.rs"]
mod claimed;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_core::translate::{NodeContext, NodeFacts, Settings};
use crablet_host::clock::Clock;
use crablet_metrics::Registry;
use crablet_volumes::{HostVolumes, Measuring, Volumes};
use serde_json::json;

use claimed::Claimed;

fn pod() -> Pod {
    let mounts = ["scratch", "claimed", "shared"].map(|name| json!({"name": name, "mountPath": name}));
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid"},
        "spec": {
            "containers": [{"name": "c", "volumeMounts": mounts}],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "claimed", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "shared", "hostPath": {"path": "/"}},
            ],
        },
    }))
    .unwrap()
}

fn volumes(root: &Path, period: Option<Duration>, registry: &Registry) -> HostVolumes {
    fs::create_dir_all(root.join("disk")).unwrap();
    let contents =
        Arc::new(Claimed { volume: json!({"local": {"path": root.join("disk")}}), ..Claimed::default() });
    HostVolumes::new(root, Clock::system(), contents)
        .counted_in(registry, &Measuring { period, tells_health: false })
        .unwrap()
}

fn context() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: Settings::default(),
        features: FeatureGates::default(),
    }
}

#[tokio::test]
async fn what_a_pod_uses_is_measured_when_somebody_asks_and_not_again_for_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let scratch = root.join("pods/uid/volumes/kubernetes.io~empty-dir/scratch");
    for (period, grows) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
        let volumes = volumes(&root, Some(period), &Registry::new());
        volumes.set_up(&pod(), &context()).await.unwrap();
        let used = async || {
            let stats = volumes.stats("uid").await;
            let names: Vec<&str> = stats.iter().map(|found| &*found.name).collect();
            assert_eq!(names, ["scratch", "claimed"], "nobody measures what is the node's own");
            assert!(stats[0].is_local_ephemeral && !stats[1].is_local_ephemeral);
            assert!(stats[0].usage.capacity > 0 && stats[1].usage.inodes_used > 0);
            assert_eq!(stats[1].claim.as_deref(), Some("c"));
            (stats[0].usage.used, stats[0].usage.inodes_used)
        };
        let before = used().await;
        fs::write(scratch.join("file"), vec![1; 1 << 20]).unwrap();
        let after = used().await;
        match grows {
            true => {
                assert!(after.0 >= before.0 + (1 << 20) && after.1 == before.1 + 1, "{before:?} {after:?}")
            }
            false => assert_eq!(after, before),
        }
        volumes.tear_down("uid").await.unwrap();
        assert_eq!(volumes.stats("uid").await, []);
    }
}

#[tokio::test]
async fn an_agent_that_starts_again_measures_what_pods_have_that_run() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let names = async |volumes: &HostVolumes| {
        let stats = volumes.stats("uid").await.into_iter();
        stats.filter(|found| found.usage.capacity > 0).map(|found| found.name).collect::<Vec<_>>()
    };
    volumes(&root, None, &Registry::new()).set_up(&pod(), &context()).await.unwrap();
    let registry = Registry::new();
    let again = volumes(&root, Some(Duration::ZERO), &registry);
    for _ in 0..2 {
        again.refresh(&pod(), &context()).await.unwrap();
        assert_eq!(names(&again).await, ["scratch", "claimed"]);
    }
    let told = tokio::task::spawn_blocking(move || registry.render()).await.unwrap();
    let expected = "volume_manager_total_volumes{plugin_name=\"kubernetes.io/local-volume\",state=\"actual_state_of_world\"} 1\n";
    assert!(told.contains(expected), "{told}");
    again.tear_down("uid").await.unwrap();
    assert!(names(&again).await.is_empty());
}

#[tokio::test]
async fn the_first_page_of_metrics_tells_how_much_of_claims_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let registry = Registry::new();
    let volumes = volumes(&root, Some(Duration::from_secs(60)), &registry);
    volumes.set_up(&pod(), &context()).await.unwrap();
    let told = tokio::task::spawn_blocking(move || registry.render()).await.unwrap();
    let expected = "kubelet_volume_stats_used_bytes{namespace=\"ns\",persistentvolumeclaim=\"c\"} ";
    assert!(told.contains(expected), "{told}");
}

#[tokio::test]
async fn metrics_tell_which_volumes_there_are_and_how_much_of_claims_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let registry = Registry::new();
    let volumes = volumes(&root, Some(Duration::from_secs(60)), &registry);
    volumes.set_up(&pod(), &context()).await.unwrap();
    // Somebody who asks is told what was measured for the one before.
    volumes.stats("uid").await;
    let told = registry.render();
    for expected in [
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"actual_state_of_world\"} 1\n",
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/local-volume\",state=\"desired_state_of_world\"} 1\n",
        "kubelet_volume_stats_used_bytes{namespace=\"ns\",persistentvolumeclaim=\"c\"} ",
        "kubelet_volume_stats_inodes{namespace=\"ns\",persistentvolumeclaim=\"c\"} ",
        "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"du\"} 1\n",
        "storage_operation_duration_seconds_bucket{migrated=\"false\",\
         operation_name=\"volume_mount\",status=\"success\",volume_plugin=\"kubernetes.io/host-path\",le=\"600\"} 1\n",
    ] {
        assert!(told.contains(expected), "{expected} in {told}");
    }
    assert!(!told.contains("health_status_abnormal"), "{told}");
    volumes.tear_down("uid").await.unwrap();
    let told = registry.render();
    assert!(!told.contains("volume_manager_total_volumes{") && !told.contains("kubelet_volume_stats_used"));
    assert!(told.contains("operation_name=\"volume_unmount\""));
}
