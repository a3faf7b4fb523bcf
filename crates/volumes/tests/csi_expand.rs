//! Volumes whose pieces of storage become larger, on drivers that do not simply do it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_api::FeatureGates;
use crablet_api::core::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use crablet_api::storage::CsiDriver;
use crablet_core::translate::{NodeContext, NodeFacts, Settings as NodeSettings, Unavailable};
use crablet_csi::stand_in::{Capability, Fault, LocalVolumes, Settings, StandIn};
use crablet_csi::{Code, PluginRegistry, PluginType};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_metrics::Registry;
use crablet_volumes::{
    Attachments, Contents, Csi, FailureKind, HostVolumes, Measuring, Occurrence, Token, TokenRequest, Volumes,
};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

const DRIVER: &str = "grows.csi.example.com";

/// A claim `c` and a piece of storage `pv` behind it.
struct Cluster {
    claim: Mutex<Json>,
    volume: Mutex<Json>,
    /// How many patches are refused that say how large the volume is.
    refuses: AtomicUsize,
}

impl Cluster {
    fn new(mode: &str, access: &str) -> Cluster {
        Cluster {
            claim: Mutex::new(json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "claim", "resourceVersion": "1"},
                "spec": {
                    "volumeName": "pv", "accessModes": [access], "resources": {"requests": {"storage": "128Mi"}},
                },
                "status": {"phase": "Bound", "capacity": {"storage": "64Mi"}},
            })),
            volume: Mutex::new(json!({"metadata": {"name": "pv"}, "spec": {
                "volumeMode": mode, "accessModes": [access], "claimRef": {"uid": "claim"},
                "capacity": {"storage": "64Mi"}, "csi": {"driver": DRIVER, "volumeHandle": "handle"},
            }})),
            refuses: AtomicUsize::new(0),
        }
    }

    /// The piece of storage has become larger.
    fn grow(&self) {
        self.volume.lock().unwrap()["spec"]["capacity"] = json!({"storage": "128Mi"});
        let mut claim = self.claim.lock().unwrap();
        claim["status"]["allocatedResources"] = json!({"storage": "128Mi"});
        claim["status"]["allocatedResourceStatuses"] = json!({"storage": "NodeResizePending"});
    }

    fn status(&self) -> Json {
        self.claim.lock().unwrap()["status"].clone()
    }
}

#[async_trait]
impl Contents for Cluster {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn claim(&self, _: &str, _: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        Ok(Arc::new(serde_json::from_value(self.claim.lock().unwrap().clone()).unwrap()))
    }

    async fn patch_claim_status(
        &self,
        _: &str,
        name: &str,
        patch: String,
    ) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let patch: Json = serde_json::from_str(&patch).unwrap();
        let one_less = |left: usize| left.checked_sub(1);
        if !patch["status"]["capacity"].is_null()
            && self.refuses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        {
            return Err(Unavailable::Other("the object has been modified".to_owned()));
        }
        {
            let mut claim = self.claim.lock().unwrap();
            for (field, value) in patch["status"].as_object().unwrap() {
                claim["status"][field] = value.clone();
            }
        }
        self.claim("ns", name).await
    }

    async fn persistent_volume(&self, _: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        Ok(Arc::new(serde_json::from_value(self.volume.lock().unwrap().clone()).unwrap()))
    }

    async fn csi_driver(&self, _: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        let driver = json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Persistent"]}});
        Ok(Some(Arc::new(serde_json::from_value(driver).unwrap())))
    }

    async fn service_account_token(&self, _: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        Err(Unavailable::NotFound)
    }
}

/// A machine with a driver, and a pod.
struct Machine {
    root: PathBuf,
    cluster: Arc<Cluster>,
    driver: StandIn,
    volumes: HostVolumes,
    metrics: Registry,
    tasks: Vec<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        for file in fs::read_dir(self.devices().join("pv/dev")).into_iter().flatten() {
            let _ = loop_device::detach(&file.unwrap().path());
        }
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        for mount in table.under(&self.root) {
            let _ = unmount(&mount.mount_point, UnmountMode::Detach);
        }
        let _ = loop_device::detach(&LocalVolumes::new(&self.root.join("data")).image("handle"));
    }
}

impl Machine {
    async fn new(cluster: Cluster) -> Machine {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let settings = Settings {
            capabilities: vec![Capability::StageUnstageVolume, Capability::ExpandVolume],
            ..Settings::new(DRIVER)
        };
        let driver = StandIn::new(settings, Arc::new(LocalVolumes::new(&root.join("data"))));
        for place in ["plugins_registry", "plugins", "data"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        driver.start(&root.join("plugins/csi.sock"), Some(&root.join("plugins_registry/d.sock"))).unwrap();
        let cluster = Arc::new(cluster);
        let contents: Arc<dyn Contents> = Arc::clone(&cluster) as _;
        let csi = Csi::open(&root, "node", Arc::clone(&contents), Attachments::default());
        let (metrics, measuring) = (Registry::new(), Measuring { period: None, tells_health: false });
        let volumes = HostVolumes::new(&root, Clock::system(), contents)
            .with_csi(csi.clone())
            .counted_in(&metrics, &measuring)
            .unwrap();
        let registry = PluginRegistry::new(&root).with_handler(PluginType::Csi, Arc::new(csi.clone()));
        let tasks = vec![tokio::spawn(registry.run()), tokio::spawn(csi.run())];
        driver.until(|calls| calls.iter().any(|call| call.call.contains("Notify"))).await;
        Machine { root, cluster, driver, volumes, metrics, tasks, _directory: directory }
    }

    fn devices(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi/volumeDevices")
    }

    fn pod(&self, read_only: bool) -> Pod {
        let container = match self.cluster.volume.lock().unwrap()["spec"]["volumeMode"] == "Block" {
            true => json!({"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}),
            false => json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        };
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {
                "nodeName": "node",
                "containers": [container],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}],
            },
        }))
        .unwrap()
    }

    async fn set_up(&self, pod: &Pod) -> Result<(), String> {
        let done = self.volumes.set_up(pod, &context()).await;
        done.map(drop).map_err(|errors| errors[0].to_string())
    }

    async fn look(&self, pod: &Pod) -> Result<(), String> {
        assert!(self.volumes.refresh_after("u").is_some());
        let done = self.volumes.refresh(pod, &context()).await;
        done.map_err(|errors| {
            assert_eq!(errors[0].kind(), FailureKind::Resize);
            errors[0].to_string()
        })
    }

    fn expansions(&self) -> Vec<Json> {
        let calls = self.driver.calls().into_iter().filter(|call| call.call == "Node.NodeExpandVolume");
        calls.map(|call| call.to_json()["request"].clone()).collect()
    }

    fn occurrences(&self) -> Vec<Occurrence> {
        self.volumes.take_events("u").into_iter().map(|event| event.what).collect()
    }
}

fn context() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: NodeSettings::default(),
        features: FeatureGates::default(),
    }
}

#[tokio::test]
async fn a_device_in_use_becomes_larger_in_the_pod() {
    let machine = Machine::new(Cluster::new("Block", "ReadWriteOnce")).await;
    let pod = machine.pod(false);
    machine.set_up(&pod).await.unwrap();
    machine.cluster.grow();
    machine.look(&pod).await.unwrap();
    let asked = machine.expansions();
    let publish = machine.devices().join("publish/pv/u");
    assert_eq!(asked[0]["volume_path"], publish.display().to_string());
    assert_eq!(asked[0]["volume_capability"]["block"], json!({}));
    assert_eq!(machine.cluster.status()["capacity"]["storage"], "128Mi");
    let link = machine.root.join("pods/u/volumeDevices/kubernetes.io~csi/pv");
    let mut device = fs::File::open(link).unwrap();
    assert_eq!(std::io::Seek::seek(&mut device, std::io::SeekFrom::End(0)).unwrap(), 128 << 20);
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.expansions().len(), 1);
    let told = machine.metrics.render();
    for expected in [
        "storage_operation_duration_seconds_count{migrated=\"false\",\
         operation_name=\"map_volume\",status=\"success\",volume_plugin=\"kubernetes.io/csi:grows.csi.example.com\"} 1\n",
        "storage_operation_duration_seconds_count{migrated=\"false\",\
         operation_name=\"volume_fs_resize\",status=\"success\",volume_plugin=\"kubernetes.io/csi:grows.csi.example.com\"} 1\n",
        "volume_operation_total_seconds_count{operation_name=\"overall_volume_mount\",\
         plugin_name=\"kubernetes.io/csi:grows.csi.example.com\"} 1\n",
        "csi_operations_seconds_count{driver_name=\"grows.csi.example.com\",\
         grpc_status_code=\"OK\",method_name=\"/csi.v1.Node/NodeExpandVolume\",migrated=\"false\"} 1\n",
    ] {
        assert!(told.contains(expected), "{expected} in {told}");
    }
}

#[tokio::test]
async fn a_driver_that_expands_nothing_in_use_is_not_asked_again_and_keeps_no_pod_waiting() {
    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteOnce")).await;
    let pod = machine.pod(false);
    machine.set_up(&pod).await.unwrap();
    machine.cluster.grow();
    machine.driver.plan("NodeExpandVolume", Fault::always_fail(Code::FailedPrecondition, "in use"));
    machine.look(&pod).await.unwrap();
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.expansions().len(), 1);
    let status = machine.cluster.status();
    assert_eq!(status["conditions"][0]["type"], "NodeResizeError");
    assert_eq!(status["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    assert_eq!(machine.occurrences(), []);
    // The pod that gets it next does.
    machine.driver.forgive();
    machine.volumes.tear_down("u").await.unwrap();
    machine.driver.until(|calls| calls.iter().any(|call| call.call == "Node.NodeUnstageVolume")).await;
    machine.set_up(&pod).await.unwrap();
    assert_eq!(machine.cluster.status()["capacity"]["storage"], "128Mi");
    assert_eq!(machine.occurrences(), [Occurrence::Resized]);
}

#[tokio::test]
async fn what_can_never_be_done_is_said_once_and_then_the_pod_starts() {
    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteOnce")).await;
    let pod = machine.pod(false);
    machine.cluster.grow();
    machine.driver.plan("NodeExpandVolume", Fault::always_fail(Code::OutOfRange, "too large"));
    let error = machine.set_up(&pod).await.unwrap_err();
    assert_eq!(
        error,
        "MountVolume.Setup failed while expanding volume for volume \"pv\" : Expander.NodeExpand failed to expand \
         the volume rpc error: code = OutOfRange desc = too large"
    );
    assert_eq!(machine.cluster.status()["allocatedResourceStatuses"]["storage"], "NodeResizeInfeasible");
    machine.set_up(&pod).await.unwrap();
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.expansions().len(), 1);
}

#[tokio::test]
async fn a_volume_in_use_that_fails_to_grow_is_told_of_and_tried_again() {
    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteOnce")).await;
    let pod = machine.pod(false);
    machine.set_up(&pod).await.unwrap();
    machine.cluster.grow();
    machine.driver.plan("NodeExpandVolume", Fault::fail(Code::Internal, "no", 1));
    assert_eq!(
        machine.look(&pod).await.unwrap_err(),
        "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : Expander.NodeExpand failed to expand the \
         volume : rpc error: code = Internal desc = no"
    );
    machine.look(&pod).await.unwrap();
    assert_eq!((machine.expansions().len(), machine.occurrences()), (2, vec![Occurrence::Resized]));
    assert!(machine.cluster.status()["conditions"].is_null());
}

#[tokio::test]
async fn a_claim_that_could_not_be_told_that_its_volume_grew_in_use_is_told_later() {
    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteOnce")).await;
    let pod = machine.pod(false);
    machine.set_up(&pod).await.unwrap();
    machine.cluster.grow();
    machine.cluster.refuses.store(1, Ordering::Relaxed);
    assert_eq!(
        machine.look(&pod).await.unwrap_err(),
        "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : mountVolume.NodeExpandVolume update pvc status \
         failed: the object has been modified"
    );
    assert_eq!(machine.cluster.status()["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.cluster.status()["capacity"]["storage"], "128Mi");
    assert!(machine.cluster.status()["allocatedResourceStatuses"].is_null());
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.expansions().len(), 2);
}

#[tokio::test]
async fn what_several_nodes_have_grows_on_each_and_what_is_only_read_does_not() {
    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteMany")).await;
    let pod = machine.pod(false);
    machine.set_up(&pod).await.unwrap();
    machine.cluster.grow();
    {
        // Another node has done it.
        let mut claim = machine.cluster.claim.lock().unwrap();
        claim["status"]["capacity"] = json!({"storage": "128Mi"});
        claim["status"]["allocatedResourceStatuses"] = Json::Null;
    }
    machine.look(&pod).await.unwrap();
    machine.look(&pod).await.unwrap();
    assert_eq!(machine.expansions().len(), 1);

    let machine = Machine::new(Cluster::new("Filesystem", "ReadWriteOnce")).await;
    machine.cluster.grow();
    machine.set_up(&machine.pod(true)).await.unwrap();
    assert_eq!((machine.expansions().len(), machine.occurrences()), (0, vec![Occurrence::NotResized]));
}

#[tokio::test]
async fn what_is_for_one_pod_waits_for_the_pod_that_has_it() {
    for (mode, step) in [("Filesystem", "MountVolume.SetUp"), ("Block", "MapVolume.SetUpDevice")] {
        let machine = Machine::new(Cluster::new(mode, "ReadWriteOncePod")).await;
        let (one, mut other) = (machine.pod(false), machine.pod(false));
        other.metadata.uid = "other".into();
        machine.set_up(&one).await.unwrap();
        let error = machine.set_up(&other).await.unwrap_err();
        assert_eq!(
            error,
            format!(
                "{step} failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is already \
                 in use by another pod"
            )
        );
        machine.set_up(&one).await.unwrap();
        machine.volumes.tear_down("u").await.unwrap();
        machine.set_up(&other).await.unwrap();
        machine.volumes.tear_down("other").await.unwrap();
    }
}
