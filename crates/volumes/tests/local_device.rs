//! A device of the node that pods have as a file system. Needs root and loop devices.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "common/claimed.rs"]
mod claimed;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_core::translate::{NodeContext, NodeFacts, Settings};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_metrics::Registry;
use crablet_volumes::{HostVolumes, Measuring, Occurrence, Volumes};
use serde_json::json;

use claimed::Claimed;

/// A machine with a disk.
struct Machine {
    root: PathBuf,
    disk: PathBuf,
    volumes: HostVolumes,
    claimed: Arc<Claimed>,
    metrics: Registry,
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
        let claimed = Arc::new(Claimed { volume: json!({"local": {"path": disk}}), ..Claimed::default() });
        let (metrics, measuring) = (Registry::new(), Measuring { period: None, tells_health: false });
        let volumes = HostVolumes::new(&root, Clock::system(), Arc::clone(&claimed) as _);
        let volumes = volumes.counted_in(&metrics, &measuring).unwrap();
        Machine { root, disk, volumes, claimed, metrics, _directory: directory }
    }

    /// How often it is counted that something was done, with this end.
    fn counted(&self, operation: &str, status: &str) -> usize {
        let name = format!(
            "storage_operation_duration_seconds_count{{migrated=\"false\",operation_name=\"{operation}\",\
             status=\"{status}\",volume_plugin=\"kubernetes.io/local-volume\"}} "
        );
        let told = self.metrics.render();
        told.lines().find_map(|line| line.strip_prefix(&*name)).map_or(0, |count| count.parse().unwrap())
    }

    /// Waits until the device has been unmounted so often. That somebody looked whether it is used is not counted.
    async fn unmounted(&self, times: usize) {
        while self.counted("unmount_device", "success") < times {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.counted("unmount_device", "success"), times);
        assert!(self.mounted().is_empty() && !self.global().exists());
    }

    fn global(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/local-volume/mounts/pv")
    }

    /// Makes the disk so many megabytes large, and says so of the piece of storage, but not of the claim.
    fn grow(&self, megabytes: u64, of_claim: u64) {
        fs::File::options()
            .write(true)
            .open(self.root.join("disk"))
            .unwrap()
            .set_len(megabytes << 20)
            .unwrap();
        assert!(Command::new("losetup").arg("-c").arg(&self.disk).status().unwrap().success());
        let size = |megabytes: u64| format!("{megabytes}Mi");
        *self.claimed.sizes.lock().unwrap() = Some((size(megabytes), size(of_claim)));
    }

    fn size_of_claim(&self) -> String {
        self.claimed.sizes.lock().unwrap().clone().unwrap().1
    }

    fn mounted(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.root).into_iter().map(|mount| mount.mount_point.clone()).collect()
    }

    async fn set_up(&self, uid: &str, group: Option<u32>, read_only: bool) -> Result<PathBuf, String> {
        let done = self.volumes.set_up(&pod(uid, group, read_only), &node()).await;
        done.map_err(|errors| errors[0].to_string())?;
        Ok(self.root.join(format!("pods/{uid}/volumes/kubernetes.io~local-volume/pv")))
    }
}

fn pod(uid: &str, group: Option<u32>, read_only: bool) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {
            "nodeName": "n",
            "securityContext": {"fsGroup": group},
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}],
        },
    }))
    .unwrap()
}

fn node() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: Settings::default(),
        features: FeatureGates::default(),
    }
}

/// How many megabytes the files of a volume may take, about.
fn room(volume: &Path) -> u64 {
    let found = rustix::fs::statvfs(volume).unwrap();
    (found.f_blocks * found.f_frsize) >> 20
}

#[tokio::test]
async fn an_empty_disk_is_formatted_once_mounted_once_and_bound_to_each_pod() {
    let machine = Machine::new();
    let error = machine.set_up("r", None, true).await.unwrap_err();
    let global = machine.global();
    let (disk, place) = (machine.disk.display(), global.display());
    assert_eq!(
        error,
        format!(
            "MountVolume.MountDevice failed for volume \"pv\" : local: failed to mount device {disk} at {place} \
             (fstype: ext4), error cannot mount unformatted disk {disk} as we are manipulating it in read-only mode"
        )
    );
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
    machine.unmounted(1).await;
    // What is on it stays.
    let again = machine.set_up("c", None, true).await.unwrap();
    assert_eq!(fs::read_to_string(again.join("file")).unwrap(), "kept");
    fs::write(again.join("file"), "").unwrap_err();
    machine.volumes.tear_down("c").await.unwrap();
    machine.unmounted(2).await;
}

/// Whether the kernel lets us make a file system larger that is mounted.
fn may_resize() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let resource = rustix::thread::CapabilitySet::SYS_RESOURCE.bits();
    u64::from_str_radix(effective.trim(), 16).unwrap() & resource != 0
}

#[tokio::test]
async fn files_get_more_room_when_the_disk_has_become_larger_be_it_in_use_or_not() {
    let machine = Machine::new();
    machine.grow(32, 32);
    let volume = machine.set_up("a", None, false).await.unwrap();
    assert!(room(&volume) < 32 && machine.volumes.take_events("a").is_empty());
    assert!(machine.volumes.refresh_after("a").is_some(), "its size is looked at");

    machine.grow(64, 32);
    let resized = machine.volumes.refresh(&pod("a", None, false), &node()).await;
    if may_resize() {
        resized.unwrap();
        assert!(room(&volume) > 40, "{} MB", room(&volume));
        assert_eq!(machine.size_of_claim(), "64Mi");
        let told = machine.volumes.take_events("a");
        assert_eq!(told[0].what, Occurrence::Resized);
        assert_eq!(told[0].message, "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n");
        assert_eq!(machine.counted("volume_fs_resize", "success"), 1);
    } else {
        // That it was tried is all that can be seen.
        let error = resized.unwrap_err()[0].to_string();
        let expected =
            format!("resize of device {} failed: exit status 1. resize2fs output:", machine.disk.display());
        assert!(error.contains(&expected) && error.contains("Permission denied"), "{error}");
        assert_eq!(machine.size_of_claim(), "32Mi");
        assert_eq!(machine.counted("volume_fs_resize", "fail-unknown"), 1);
    }
    machine.volumes.tear_down("a").await.unwrap();
    assert!(machine.volumes.refresh_after("a").is_none());

    machine.grow(96, 64);
    machine.set_up("b", None, true).await.unwrap();
    let told = machine.volumes.take_events("b");
    assert_eq!(told[0].what, Occurrence::NotResized);
    machine.volumes.tear_down("b").await.unwrap();
    let mounted = machine.set_up("c", None, false).await;
    match may_resize() {
        true => assert!(room(&mounted.unwrap()) > 72 && machine.size_of_claim() == "96Mi"),
        false => {
            let error = mounted.unwrap_err();
            let expected =
                "MountVolume.Setup failed while expanding volume for volume \"pv\" : resize of device";
            assert!(error.starts_with(expected), "{error}");
        }
    }
    machine.volumes.tear_down("c").await.unwrap();
}

/// Tells the child where its tools are. It is this program again, with another `resize2fs`.
const TOOLS: &str = "CRABLET_VOLUMES_TEST_TOOLS";

#[test]
fn a_device_is_made_larger_by_one_at_a_time_also_when_nobody_waits_any_longer() {
    let tools = tempfile::tempdir().unwrap();
    let script = tools.path().join("resize2fs");
    // It says that it has begun, and goes on when it is told to.
    fs::write(&script, "#!/bin/sh\necho began >> \"${0%/*}/begun\"\ncat \"${0%/*}/gate\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("mkfifo").arg(tools.path().join("gate")).status().unwrap().success());
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("PATH", path)
        .env(TOOLS, tools.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

#[tokio::test]
async fn child() {
    let Some(tools) = std::env::var_os(TOOLS).map(PathBuf::from) else { return };
    let mut machine = Machine::new();
    machine.grow(32, 32);
    for uid in ["a", "b"] {
        machine.set_up(uid, None, false).await.unwrap();
    }
    machine.grow(64, 32);
    let begun = || fs::read_to_string(tools.join("begun")).unwrap_or_default().lines().count();
    let (contents, deadline) = (Arc::clone(&machine.claimed), Duration::from_millis(200));
    machine.volumes = HostVolumes::new(&machine.root, Clock::system(), contents as _).with_deadline(deadline);
    for (uid, expected) in [("a", "timed out"), ("b", "timed out"), ("a", "earlier work")] {
        let late = machine.volumes.refresh(&pod(uid, None, false), &node()).await.unwrap_err();
        assert!(late[0].to_string().contains(expected), "{uid}: {late:?}");
        while begun() == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((begun(), machine.size_of_claim()), (1, "32Mi".to_owned()));
    // Nor does a pod that goes wait for it, for as long as anybody would.
    let gone = tokio::time::timeout(Duration::from_secs(9), machine.volumes.tear_down("b"));
    gone.await.unwrap().unwrap();
    fs::write(tools.join("gate"), "").unwrap();
}

#[tokio::test]
async fn a_directory_is_as_large_as_it_is_which_is_said_of_its_claim() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    fs::create_dir(root.join("files")).unwrap();
    let sizes = Some(("2Gi".to_owned(), "1Gi".to_owned()));
    let claimed = Arc::new(Claimed {
        volume: json!({"local": {"path": root.join("files")}}),
        sizes: sizes.into(),
        ..Claimed::default()
    });
    let volumes = HostVolumes::new(&root, Clock::system(), Arc::clone(&claimed) as _);
    volumes.set_up(&pod("a", None, false), &node()).await.unwrap();
    assert_eq!(claimed.sizes.lock().unwrap().clone().unwrap().1, "2Gi");
    volumes.tear_down("a").await.unwrap();
}
