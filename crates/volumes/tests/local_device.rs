//! A device of the node that pods have as a file system. Needs root and loop devices.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "common/claimed.rs"]
mod claimed;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_core::translate::{NodeContext, NodeFacts, Settings};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_volumes::{HostVolumes, Occurrence, Volumes};
use serde_json::json;

use claimed::Claimed;

/// A machine with a disk.
struct Machine {
    root: PathBuf,
    disk: PathBuf,
    volumes: HostVolumes,
    _directory: tempfile::TempDir,
}

impl Drop for Machine {
    fn drop(&mut self) {
        for mount in self.mounted() {
            let _ = unmount(&mount, UnmountMode::Detach);
        }
        let _ = loop_device::detach(&self.root.join("disk"));
    }
}

impl Machine {
    fn new() -> Machine {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::File::create(root.join("disk")).unwrap().set_len(32 << 20).unwrap();
        let disk = loop_device::attach(&root.join("disk")).unwrap();
        let volumes = HostVolumes::new(
            &root,
            Clock::system(),
            Arc::new(Claimed { volume: json!({"local": {"path": disk}}), ..Claimed::default() }),
        );
        Machine { root, disk, volumes, _directory: directory }
    }

    fn mounted(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.root).into_iter().map(|mount| mount.mount_point.clone()).collect()
    }

    async fn set_up(&self, uid: &str, group: Option<u32>, read_only: bool) -> Result<PathBuf, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid},
            "spec": {
                "securityContext": {"fsGroup": group},
                "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}],
            },
        }))
        .unwrap();
        let node = NodeContext {
            facts: NodeFacts::default(),
            settings: Settings::default(),
            features: FeatureGates::default(),
        };
        let done = self.volumes.set_up(&pod, &node).await;
        done.map_err(|errors| errors[0].to_string())?;
        Ok(self.root.join(format!("pods/{uid}/volumes/kubernetes.io~local-volume/pv")))
    }
}

#[tokio::test]
async fn an_empty_disk_is_formatted_once_mounted_once_and_bound_to_each_pod() {
    let machine = Machine::new();
    let error = machine.set_up("r", None, true).await.unwrap_err();
    assert!(error.contains("cannot mount unformatted disk"), "{error}");
    let global = machine.root.join("plugins/kubernetes.io/local-volume/mounts/pv");
    assert!(machine.mounted().is_empty() && !global.exists());
    let one = machine.set_up("a", Some(100), false).await.unwrap();
    fs::write(one.join("file"), "kept").unwrap();
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
    let mount = table.at(&global).unwrap();
    assert_eq!((&*mount.file_system, Path::new(&*mount.source)), ("ext4", &*machine.disk));
    assert_eq!(machine.volumes.take_events("a"), []);
    let other = machine.set_up("b", Some(200), false).await.unwrap();
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "kept");
    let told = machine.volumes.take_events("b");
    assert_eq!(told[0].what, Occurrence::OtherGroup);
    assert_eq!(
        told[0].message,
        "The requested fsGroup is 200, but the volume pv has GID 100. The volume may not be shareable."
    );
    machine.volumes.tear_down("a").await.unwrap();
    assert!(machine.mounted().contains(&global), "the other pod has it");
    machine.volumes.tear_down("b").await.unwrap();
    assert!(machine.mounted().is_empty() && !global.exists());
    // What is on it stays.
    let again = machine.set_up("c", None, true).await.unwrap();
    assert_eq!(fs::read_to_string(again.join("file")).unwrap(), "kept");
    fs::write(again.join("file"), "").unwrap_err();
    machine.volumes.tear_down("c").await.unwrap();
    assert!(machine.mounted().is_empty());
}
