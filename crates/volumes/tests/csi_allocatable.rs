//! Drivers that are asked again how many of their volumes the node can have.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "common/claimed.rs"]
mod claimed;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crablet_api::FeatureGates;
use crablet_api::core::{Node, Pod};
use crablet_core::translate::{NodeContext, NodeFacts, Settings as NodeSettings};
use crablet_csi::stand_in::{NoEffects, Settings, StandIn};
use crablet_csi::{PluginRegistry, PluginType};
use crablet_host::clock::Clock;
use crablet_volumes::{Attachments, Contents, Csi, FailureKind, HostVolumes, Volumes};
use serde_json::json;

use claimed::Claimed;

const DRIVER: &str = "full.csi.example.com";

/// A cluster whose object of the driver has this period, and in which nothing can be attached.
fn cluster(period: i64) -> Claimed {
    Claimed {
        volume: json!({"csi": {"driver": DRIVER, "volumeHandle": "handle"}}),
        driver: json!({
            "volumeLifecycleModes": ["Persistent"], "nodeAllocatableUpdatePeriodSeconds": period,
        }),
        attachment: json!({"attached": false, "attachError": {"message": "too many", "errorCode": 8}}),
        ..Claimed::default()
    }
}

/// A driver that is registered, and says then that the node can have fewer volumes.
async fn with_fewer(root: &Path, cluster: Claimed, attachments: &Attachments) -> (StandIn, Csi, HostVolumes) {
    for place in ["plugins_registry", "plugins"] {
        fs::create_dir_all(root.join(place)).unwrap();
    }
    let settings = Settings { max_volumes_per_node: 8, ..Settings::new(DRIVER) };
    let driver = StandIn::new(settings, Arc::new(NoEffects));
    driver.start(&root.join("plugins/csi.sock"), Some(&root.join("plugins_registry/d.sock"))).unwrap();
    let contents: Arc<dyn Contents> = Arc::new(cluster);
    let csi = Csi::open(root, "node", Arc::clone(&contents), attachments.clone());
    let volumes = HostVolumes::new(root, Clock::system(), contents).with_csi(csi.clone());
    let registry = PluginRegistry::new(root).with_handler(PluginType::Csi, Arc::new(csi.clone()));
    tokio::spawn(registry.run());
    tokio::spawn(csi.clone().run());
    driver.until(|calls| calls.iter().any(|call| call.call.contains("Notify"))).await;
    driver.change(|settings| settings.max_volumes_per_node = 4);
    (driver, csi, volumes)
}

#[tokio::test]
async fn a_driver_is_asked_again_as_often_as_its_object_says() {
    let directory = tempfile::tempdir().unwrap();
    let (_driver, csi, _) = with_fewer(directory.path(), cluster(1), &Attachments::default()).await;
    let mut told = csi.drivers();
    told.wait_for(|told| told[DRIVER].max_volumes_per_node == 4).await.unwrap();
}

#[tokio::test]
async fn a_driver_is_asked_again_when_the_node_has_too_many_of_its_volumes() {
    let directory = tempfile::tempdir().unwrap();
    let attachments = Attachments::default();
    let (driver, csi, volumes) = with_fewer(directory.path(), cluster(3600), &attachments).await;
    let volume = format!("kubernetes.io/csi/{DRIVER}^handle");
    let mut node = Node::default();
    node.status.volumes_in_use = [volume.as_str().into()].into();
    node.status.volumes_attached =
        serde_json::from_value(json!([{"name": volume, "devicePath": ""}])).unwrap();
    attachments.note(&node);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid"},
        "spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    }))
    .unwrap();
    let context = NodeContext {
        facts: NodeFacts::default(),
        settings: NodeSettings::default(),
        features: FeatureGates::default(),
    };
    let errors = volumes.set_up(&pod, &context).await.unwrap_err();
    assert!(errors[0].to_string().ends_with("too many"), "{}", errors[0]);
    let mut told = csi.drivers();
    told.wait_for(|told| told[DRIVER].max_volumes_per_node == 4).await.unwrap();
    assert_eq!(driver.calls().iter().filter(|call| call.call == "Node.NodeGetInfo").count(), 2);
    // Nobody says that it is attached, for as long as a pod waits.
    node.status.volumes_attached = Box::default();
    attachments.note(&node);
    tokio::time::pause();
    let errors = volumes.set_up(&pod, &context).await.unwrap_err();
    assert_eq!(errors[0].kind(), FailureKind::AttachmentLimit, "{}", errors[0]);
}
