//! Volumes of a CSI driver that are mounted with an SELinux label, on a machine that says it has SELinux.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "csi_files/cluster.rs"]
mod cluster;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "csi_files/machine.rs"]
mod machine;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_api::core::SELinuxOptions;
use crablet_core::translate::MountedVolume;
use crablet_host::files::{ReadError, WriteError, read_bounded, write_atomically};
use crablet_volumes::FileError;
use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};

use machine::Machine;

/// This machine, with SELinux.
struct Labelled;

impl crablet_volumes::Machine for Labelled {
    fn work(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        work();
        Box::pin(async {})
    }

    fn make_directories(&self, path: &Path) -> Result<(), FileError> {
        fs::create_dir_all(path).unwrap();
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>, ReadError> {
        read_bounded(path, limit)
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<(), WriteError> {
        write_atomically(path, content, 0o600)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn children(&self, directory: &Path) -> Result<Vec<PathBuf>, FileError> {
        let entries = fs::read_dir(directory).into_iter().flatten();
        Ok(entries.map(|entry| entry.unwrap().path()).collect())
    }

    fn is_mount_point(&self, path: &Path) -> io::Result<bool> {
        crablet_host::mounts::is_mount_point(path)
    }

    fn has_selinux(&self) -> bool {
        true
    }

    fn file_label(&self, options: &SELinuxOptions) -> io::Result<Option<String>> {
        Ok(Some(format!("u:r:t:{}", options.level)))
    }

    fn has_labels(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn mounted_elsewhere(&self, paths: &[PathBuf]) -> Vec<io::Result<Vec<PathBuf>>> {
        paths.iter().map(|_| Ok(Vec::new())).collect()
    }
}

async fn machine() -> Machine {
    let mut machine = Machine::new().await;
    machine.stop_agent();
    machine.told = Some(Arc::new(Labelled));
    machine.start_agent().await;
    machine.cluster.set("driver", json!({"attachRequired": false, "seLinuxMount": true}));
    machine.cluster.set("volume", json!({"accessModes": ["ReadWriteOncePod"], "mountOptions": ["noatime"]}));
    machine.cluster.set("pod", json!({"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}));
    machine
}

/// The mount options of each call that has some.
fn options(machine: &Machine) -> Vec<Json> {
    let calls = machine.driver.calls().into_iter();
    let options = calls.map(|call| call.request["volume_capability"]["mount"]["mount_flags"].clone());
    options.filter(|options| !options.is_null()).collect()
}

fn relabels(mounted: &MountedVolume) -> bool {
    matches!(mounted, MountedVolume::Files { relabel: true, .. })
}

fn written(directory: &Path) -> Json {
    let data: Json = serde_json::from_slice(&fs::read(directory.join("vol_data.json")).unwrap()).unwrap();
    data["seLinuxMountContext"].clone()
}

#[tokio::test]
async fn a_volume_for_one_pod_is_mounted_with_the_pods_label_and_nobody_relabels_it() {
    let machine = machine().await;
    assert!(!relabels(&machine.set_up("a").await.unwrap()));
    let with_label = json!(["noatime", "context=\"u:r:t:s0:c1,c2\""]);
    assert_eq!(options(&machine), [with_label.clone(), with_label]);
    for directory in [machine.staged(), machine.target("a").parent().unwrap().to_owned()] {
        assert_eq!(written(&directory), "u:r:t:s0:c1,c2");
    }
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn no_label_where_the_driver_the_access_mode_or_the_pod_does_not_want_it() {
    let recursive = json!({"securityContext": {
        "seLinuxOptions": {"level": "s0"}, "seLinuxChangePolicy": "Recursive",
    }});
    for (name, said) in [
        ("driver", json!({"attachRequired": false})),
        ("volume", json!({"accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"]})),
        ("pod", json!({})),
        ("pod", recursive),
    ] {
        let machine = machine().await;
        machine.cluster.set(name, said.clone());
        assert!(relabels(&machine.set_up("a").await.unwrap()), "{said}");
        assert_eq!(options(&machine), [json!(["noatime"]), json!(["noatime"])], "{said}");
        assert_eq!(written(&machine.staged()), Json::Null, "{said}");
        machine.tear_down("a").await.unwrap();
        machine.until_forgotten().await;
    }
}

#[tokio::test]
async fn with_the_gate_volumes_of_all_access_modes_have_labels() {
    let machine = machine().await;
    machine.cluster.set("volume", json!({"accessModes": ["ReadWriteMany"]}));
    machine.csi.as_ref().unwrap().label_all();
    assert!(!relabels(&machine.set_up("a").await.unwrap()));
    machine.cluster.set("pod", json!({"securityContext": {"seLinuxOptions": {"level": "s0:c3"}}}));
    let error = machine.set_up("b").await.unwrap_err();
    assert!(
        error.contains("because it is already mounted to a different pod with a different SELinux label"),
        "{error}"
    );
    machine.tear_down("a").await.unwrap();
    machine.until_set_up("b").await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Unpublish", "Unstage", "Stage", "Publish"]);
    assert_eq!(written(&machine.staged()), "u:r:t:s0:c3");
    machine.tear_down("b").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn containers_that_disagree_are_told_so() {
    let machine = machine().await;
    let mounts = json!([{"name": "c", "mountPath": "/c"}]);
    let containers = json!([
        {"name": "one", "volumeMounts": mounts},
        {"name": "two", "volumeMounts": mounts, "securityContext": {"seLinuxOptions": {"level": "s0:c9"}}},
    ]);
    let context = json!({"seLinuxOptions": {"level": "s0:c1"}});
    machine.cluster.set("pod", json!({"securityContext": context, "containers": containers}));
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.ends_with("multiple SELinux labels found: u:r:t:s0:c1,u:r:t:s0:c9"), "{error}");
}

#[tokio::test]
async fn what_a_pod_has_keeps_its_label_when_another_agent_comes() {
    let mut machine = machine().await;
    machine.set_up("a").await.unwrap();
    machine.stop_agent();
    machine.cluster.set("driver", json!({"attachRequired": false, "seLinuxMount": false}));
    machine.start_agent().await;
    assert!(!relabels(&machine.set_up("a").await.unwrap()));
    assert_eq!(options(&machine).len(), 4, "a new agent asks again");
    assert_eq!(options(&machine)[3], json!(["noatime", "context=\"u:r:t:s0:c1,c2\""]));
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}
