//! Devices of a CSI driver that fails, and of agents and machines that die: whoever comes next finds what is there.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "common/claimed.rs"]
mod claimed;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_core::translate::{MountedVolume, NodeContext, NodeFacts, Settings as NodeSettings};
use crablet_csi::stand_in::{Capability, Fault, LocalVolumes, Moment, Settings, StandIn, Trouble};
use crablet_csi::{Code, PluginRegistry, PluginType};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_volumes::{Attachments, Csi, HostVolumes, Volumes};
use serde_json::json;
use tokio::task::JoinHandle;

use claimed::Claimed;

const DRIVER: &str = "device.csi.example.com";

/// A claim to a device.
fn cluster() -> Arc<Claimed> {
    Arc::new(Claimed {
        volume: json!({
            "volumeMode": "Block", "accessModes": ["ReadWriteMany"],
            "csi": {"driver": DRIVER, "volumeHandle": "../handle"},
        }),
        driver: json!({"attachRequired": false}),
        ..Claimed::default()
    })
}

/// A machine with a driver and an agent.
struct Machine {
    root: PathBuf,
    driver: StandIn,
    volumes: Option<HostVolumes>,
    tasks: Vec<JoinHandle<()>>,
    agents: usize,
    _directory: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.lose_mounts();
        let _ = loop_device::detach(&self.image());
    }
}

impl Machine {
    async fn new() -> Machine {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let settings =
            Settings { capabilities: vec![Capability::StageUnstageVolume], ..Settings::new(DRIVER) };
        let driver = StandIn::new(settings, Arc::new(LocalVolumes::new(&root.join("data"))));
        for place in ["plugins_registry", "plugins", "data"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        driver.start(&root.join("plugins/csi.sock"), Some(&root.join("plugins_registry/d.sock"))).unwrap();
        let mut machine =
            Machine { root, driver, volumes: None, tasks: Vec::new(), agents: 0, _directory: directory };
        machine.start_agent().await;
        machine
    }

    async fn start_agent(&mut self) {
        let csi = Csi::open(&self.root, "node", cluster(), Attachments::default());
        let volumes = HostVolumes::new(&self.root, Clock::system(), cluster()).with_csi(csi.clone());
        let registry = PluginRegistry::new(&self.root).with_handler(PluginType::Csi, Arc::new(csi.clone()));
        self.tasks = vec![tokio::spawn(registry.run()), tokio::spawn(csi.run())];
        self.volumes = Some(volumes);
        self.agents += 1;
        let wanted = self.agents;
        self.driver
            .until(|calls| calls.iter().filter(|call| call.call.contains("Notify")).count() == wanted)
            .await;
    }

    fn stop_agent(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
        self.volumes = None;
    }

    /// What a machine forgets when it starts anew.
    fn lose_mounts(&self) {
        for file in fs::read_dir(self.directory().join("pv/dev")).into_iter().flatten() {
            loop_device::detach(&file.unwrap().path()).unwrap();
        }
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        for mount in table.under(&self.root) {
            unmount(&mount.mount_point, UnmountMode::Plain).unwrap();
        }
    }

    fn directory(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi/volumeDevices")
    }

    fn image(&self) -> PathBuf {
        LocalVolumes::new(&self.root.join("data")).image("../handle")
    }

    async fn set_up(&self, uid: &str, read_only: bool) -> Result<MountedVolume, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {
                "containers": [{"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}],
            },
        }))
        .unwrap();
        let node = NodeContext {
            facts: NodeFacts::default(),
            settings: NodeSettings::default(),
            features: FeatureGates::default(),
        };
        let mounted = self.volumes.as_ref().unwrap().set_up(&pod, &node).await;
        mounted.map(|mut all| all.remove("v").unwrap()).map_err(|errors| errors[0].to_string())
    }

    async fn tear_down(&self, uid: &str) {
        self.volumes.as_ref().unwrap().tear_down(uid).await.unwrap();
    }

    /// What the driver was asked that changes something on the node.
    fn asked(&self) -> Vec<&'static str> {
        let calls = self.driver.calls().into_iter().map(|call| call.call);
        calls.filter_map(|call| call.strip_prefix("Node.Node")?.strip_suffix("Volume")).collect()
    }

    async fn until_forgotten(&self) {
        for _ in 0..6000 {
            if !self.directory().join("pv").exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let left = |place: &str| fs::read_dir(self.directory().join(place)).into_iter().flatten().count();
        assert_eq!((left("pv"), left("staging"), left("publish")), (0, 0, 0));
        assert_eq!(loop_device::attached(&self.image()).unwrap(), None);
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        assert!(table.under(&self.root).is_empty(), "{table:?}");
    }
}

#[tokio::test]
async fn a_device_is_staged_once_for_all_pods_and_unstaged_after_the_last() {
    let machine = Machine::new().await;
    let mounted = machine.set_up("a", false).await.unwrap();
    let link = machine.root.join("pods/a/volumeDevices/kubernetes.io~csi/pv");
    let host_path = Some(link.display().to_string());
    assert_eq!(mounted, MountedVolume::Device { host_path, read_only: false });
    fs::write(&link, "written").unwrap();
    let beside = machine.set_up("b", true).await.unwrap();
    assert!(matches!(beside, MountedVolume::Device { read_only: true, .. }), "{beside:?}");
    machine.set_up("a", false).await.unwrap();
    machine.tear_down("a").await;
    assert!(!machine.root.join("pods/a/volumeDevices").exists());
    assert_eq!(machine.asked(), ["Stage", "Publish", "Publish", "Unpublish"]);
    let calls = machine.driver.calls();
    let read_only: Vec<bool> = calls
        .iter()
        .filter(|call| call.call.ends_with("NodePublishVolume"))
        .map(|call| call.to_json()["request"]["readonly"] == true)
        .collect();
    assert_eq!(read_only, [false, true]);
    machine.tear_down("b").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked()[4..], ["Unpublish", "Unstage"]);
    assert!(fs::read(machine.image()).unwrap().starts_with(b"written"));
}

#[tokio::test]
async fn what_a_driver_refuses_for_good_is_forgotten_and_not_taken_back() {
    let machine = Machine::new().await;
    machine.driver.plan("NodeStageVolume", Fault::fail(Code::Internal, "no disk", 1));
    let error = machine.set_up("a", false).await.unwrap_err();
    assert_eq!(
        error,
        "MapVolume.SetUpDevice failed for volume \"pv\" : rpc error: code = Internal desc = no disk"
    );
    machine.until_forgotten().await;
    machine.tear_down("a").await;
    assert_eq!(machine.asked(), ["Stage"]);

    machine.driver.plan("NodePublishVolume", Fault::fail(Code::Internal, "no node", 1));
    let error = machine.set_up("a", false).await.unwrap_err();
    assert_eq!(
        error,
        "MapVolume.MapPodDevice failed for volume \"pv\" : rpc error: code = Internal desc = no node"
    );
    machine.tear_down("a").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Stage", "Publish", "Unstage"]);

    machine.driver.stop();
    for _ in 0..6000 {
        let error = machine.set_up("a", false).await.unwrap_err();
        if error
            == format!(
                "MapVolume.SetUpDevice failed for volume \"pv\" : kubernetes.io/csi: blockMapper.SetUpDevice failed \
                 to get CSI client: driver name {DRIVER} not found in the list of registered CSI drivers"
            )
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the driver is still known");
}

#[tokio::test]
async fn what_may_have_had_an_effect_is_taken_back() {
    let machine = Machine::new().await;
    let lost = |method| {
        let trouble = Trouble::Fail { code: Code::Unavailable, message: "lost".to_owned() };
        machine.driver.plan(method, Fault { trouble, moment: Moment::AfterEffect, times: Some(1) });
    };
    lost("NodeStageVolume");
    machine.set_up("a", false).await.unwrap_err();
    machine.tear_down("a").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Unstage"]);
    lost("NodePublishVolume");
    machine.set_up("a", false).await.unwrap_err();
    machine.tear_down("a").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked()[2..], ["Stage", "Publish", "Unpublish", "Unstage"]);
}

#[tokio::test]
async fn the_next_agent_takes_back_what_an_agent_that_died_had_asked_for() {
    let mut machine = Machine::new().await;
    // It dies when the device is published, and before it is mapped.
    let lost = Trouble::Fail { code: Code::Unavailable, message: "lost".to_owned() };
    machine.driver.plan(
        "NodePublishVolume",
        Fault { trouble: lost.clone(), moment: Moment::AfterEffect, times: Some(1) },
    );
    machine.set_up("a", false).await.unwrap_err();
    machine.stop_agent();
    machine.start_agent().await;
    machine.tear_down("a").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Unpublish", "Unstage"]);
    // It dies when the device is staged, and no pod comes back for it.
    machine
        .driver
        .plan("NodeStageVolume", Fault { trouble: lost, moment: Moment::AfterEffect, times: Some(1) });
    machine.set_up("b", false).await.unwrap_err();
    machine.stop_agent();
    machine.start_agent().await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked()[4..], ["Stage", "Unstage"]);
}

#[tokio::test]
async fn a_machine_that_starts_anew_has_its_devices_staged_and_published_again() {
    let mut machine = Machine::new().await;
    machine.set_up("a", false).await.unwrap();
    machine.stop_agent();
    machine.start_agent().await;
    machine.set_up("a", false).await.unwrap();
    assert_eq!(machine.asked(), ["Stage", "Publish"], "an agent alone loses nothing");
    machine.stop_agent();
    machine.lose_mounts();
    machine.start_agent().await;
    machine.set_up("a", false).await.unwrap();
    machine.tear_down("a").await;
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Stage", "Publish", "Unpublish", "Unstage"]);
}

#[tokio::test]
async fn empty_directories_go_that_an_agent_left_which_died_at_the_beginning_or_the_end() {
    let mut machine = Machine::new().await;
    for left in [&["pv/data", "staging/pv"][..], &["pv/dev", "publish/pv"], &["pv"]] {
        machine.stop_agent();
        left.iter().for_each(|place| fs::create_dir_all(machine.directory().join(place)).unwrap());
        machine.start_agent().await;
        machine.until_forgotten().await;
    }
    assert!(machine.asked().is_empty());
}
