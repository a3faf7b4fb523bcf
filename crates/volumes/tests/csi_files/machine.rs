//! A machine with a driver and an agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::FeatureGates;
use crablet_api::core::{AttachedVolume, Node, Pod};
use crablet_core::translate::{MountedVolume, NodeContext, NodeFacts, Settings as NodeSettings};
use crablet_csi::stand_in::{Capability, Effects, LocalVolumes, Settings, StandIn, Status};
use crablet_csi::{PluginRegistry, PluginType, v1};
use crablet_host::clock::Clock;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_metrics::Registry;
use crablet_volumes::{Attachments, Csi, DEADLINE, HostVolumes, Measuring, Places, TearDownError, Volumes};
use serde_json::json;
use tokio::task::JoinHandle;

use super::cluster::Cluster;

pub const DRIVER: &str = "files.csi.example.com";
const VOLUME: &str = "kubernetes.io/csi/files.csi.example.com^../handle";

pub struct Machine {
    pub root: PathBuf,
    pub driver: StandIn,
    pub cluster: Cluster,
    pub attachments: Attachments,
    pub volumes: Option<Arc<HostVolumes>>,
    pub csi: Option<Csi>,
    /// Whether agents tell how drivers say that volumes are.
    pub tells_health: bool,
    /// What agents are told of the machine, if it is not all as it is.
    pub told: Option<Arc<dyn crablet_volumes::Machine>>,
    /// How long agents wait for volumes.
    pub deadline: Duration,
    tasks: Vec<JoinHandle<()>>,
    registrations: usize,
    _directory: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        for mount in table.under(&self.root) {
            let _ = unmount(&mount.mount_point, UnmountMode::Detach);
        }
    }
}

impl Machine {
    pub async fn new() -> Machine {
        Machine::with(LocalVolumes::new).await
    }

    /// With a driver that has these effects, given a folder for its volumes.
    pub async fn with<E: Effects + 'static>(effects: impl FnOnce(&Path) -> E) -> Machine {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let settings =
            Settings { capabilities: vec![Capability::StageUnstageVolume], ..Settings::new(DRIVER) };
        let driver = StandIn::new(settings, Arc::new(effects(&root.join("data"))));
        for place in ["plugins_registry", "plugins", "data"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        driver.start(&root.join("plugins/csi.sock"), Some(&root.join("plugins_registry/d.sock"))).unwrap();
        let mut machine = Machine {
            root,
            driver,
            cluster: Cluster::default(),
            attachments: Attachments::default(),
            volumes: None,
            csi: None,
            tells_health: false,
            told: None,
            deadline: DEADLINE,
            tasks: Vec::new(),
            registrations: 0,
            _directory: directory,
        };
        machine.start_agent().await;
        machine
    }

    pub async fn start_agent(&mut self) {
        let cluster = Arc::new(self.cluster.clone());
        let (root, attachments) = (&self.root, self.attachments.clone());
        let csi = match self.told.clone() {
            Some(told) => Csi::open_on(told, root, "node", cluster.clone(), attachments),
            None => Csi::open(root, "node", cluster.clone(), attachments),
        };
        let volumes = HostVolumes::new(&self.root, Clock::system(), cluster).with_csi(csi.clone());
        let volumes = volumes.with_deadline(self.deadline);
        let measuring = Measuring { period: Some(Duration::ZERO), tells_health: self.tells_health };
        let volumes = volumes.counted_in(&Registry::new(), &measuring).unwrap();
        let registry = PluginRegistry::new(&self.root).with_handler(PluginType::Csi, Arc::new(csi.clone()));
        self.csi = Some(csi.clone());
        self.tasks = vec![tokio::spawn(registry.run()), tokio::spawn(csi.run())];
        self.volumes = Some(Arc::new(volumes));
        self.until_registered_again().await;
    }

    /// Waits until the driver has made itself known once more.
    pub async fn until_registered_again(&mut self) {
        self.registrations += 1;
        let wanted = self.registrations;
        self.driver
            .until(|calls| calls.iter().filter(|call| call.call.contains("Notify")).count() == wanted)
            .await;
    }

    pub fn stop_agent(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
        self.volumes = None;
        self.csi = None;
        self.attachments = Attachments::default();
    }

    /// A pod that mounts the claims `c` and, where it is called `two…`, `c2`; or that has `c` as a device, where it is
    /// called `device`.
    pub fn pod(&self, uid: &str) -> Pod {
        let names = if uid.starts_with("two") { vec!["c", "c2"] } else { vec!["c"] };
        let field = if uid == "device" { "volumeDevices" } else { "volumeMounts" };
        let mounts: Vec<_> =
            names.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}"), "devicePath": format!("/{name}")})).collect();
        let volumes: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        let spec = json!({"containers": [{"name": "c", field: mounts}], "volumes": volumes});
        serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": self.cluster.spec("pod", spec),
        }))
        .unwrap()
    }

    pub async fn set_up(&self, uid: &str) -> Result<MountedVolume, String> {
        let mounted = self.volumes.as_ref().unwrap().set_up(&self.pod(uid), &context()).await;
        mounted.map(|mut all| all.remove("c").unwrap()).map_err(|errors| errors[0].to_string())
    }

    /// Tries again until the volume is there.
    pub async fn until_set_up(&self, uid: &str) {
        for _ in 0..6000 {
            if self.set_up(uid).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the volume never came to be there");
    }

    /// Tries again until that fails in these words.
    pub async fn until_it_fails_with(&self, uid: &str, expected: &str) {
        let mut last = String::new();
        for _ in 0..600 {
            match self.set_up(uid).await {
                Err(error) if error == expected => return,
                other => last = format!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never failed with {expected}, but last {last}");
    }

    /// The volume has to be attached, and is.
    pub fn attach(&self) {
        self.cluster.set("driver", json!({"attachRequired": true}));
        self.cluster.set("attachment", json!({"status": {"attached": true}}));
        let mut node = Node::default();
        node.status.volumes_in_use = [VOLUME.into()].into();
        node.status.volumes_attached =
            [AttachedVolume { name: VOLUME.into(), ..AttachedVolume::default() }].into();
        self.attachments.note(&node);
    }

    pub fn is_in_use(&self) -> bool {
        self.attachments.in_use().borrow().iter().any(|used| **used == *VOLUME)
    }

    pub async fn tear_down(&self, uid: &str) -> Result<(), TearDownError> {
        self.volumes.as_ref().unwrap().tear_down(uid).await
    }

    /// Where the volume is published to a pod.
    pub fn target(&self, uid: &str) -> PathBuf {
        self.root.join(format!("pods/{uid}/volumes/kubernetes.io~csi/pv/mount"))
    }

    /// Where it is staged.
    pub fn staged(&self) -> PathBuf {
        Places::new(&self.root).csi_staged(DRIVER, "../handle")
    }

    /// What the driver was asked that changes something on the node.
    pub fn asked(&self) -> Vec<&'static str> {
        let calls = self.driver.calls().into_iter().map(|call| call.call);
        calls.filter_map(|call| call.strip_prefix("Node.Node")?.strip_suffix("Volume")).collect()
    }

    /// Waits until something is so, and fails if it never is.
    pub async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never came about: {what}");
    }

    /// Waits until nothing is staged, and sees that nothing is left.
    pub async fn until_forgotten(&self) {
        let of_driver = self.root.join("plugins/kubernetes.io/csi").join(DRIVER);
        let is_unstaged = || fs::read_dir(&of_driver).into_iter().flatten().next().is_none();
        self.until("all is unstaged", is_unstaged).await;
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        assert!(table.under(&self.root).is_empty(), "{:?}", table.under(&self.root));
        for pod in fs::read_dir(self.root.join("pods")).into_iter().flatten() {
            let left = pod.unwrap().path().join("volumes");
            assert!(!left.exists(), "{}", left.display());
        }
    }
}

pub fn context() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: NodeSettings::default(),
        features: FeatureGates::default(),
    }
}

/// What a driver does that mounts nothing where it stages: it writes a file there.
pub struct StagesByFile(LocalVolumes);

impl StagesByFile {
    pub fn new(folder: &Path) -> StagesByFile {
        StagesByFile(LocalVolumes::new(folder))
    }
}

#[async_trait]
impl Effects for StagesByFile {
    async fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        fs::write(Path::new(&request.staging_target_path).join("staged"), "").unwrap();
        Ok(())
    }

    async fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        fs::remove_file(Path::new(&request.staging_target_path).join("staged")).unwrap();
        Ok(())
    }

    async fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        assert!(Path::new(&request.staging_target_path).join("staged").exists());
        let request = v1::NodePublishVolumeRequest { staging_target_path: String::new(), ..request.clone() };
        self.0.publish(&request).await
    }

    async fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        self.0.unpublish(request).await
    }
}
