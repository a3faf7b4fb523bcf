//! An agent is killed at any moment of its work on volumes, and the next one carries on.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_api::testing::pod_yaml;
use crablet_core::translate::{MountedVolume, NodeContext, NodeFacts, Settings};
use crablet_host::clock::Clock;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, unmount};
use crablet_volumes::{HostVolumes, NoContents, SubPath, Volumes};

/// Tells the child where to work. It is this program again.
const CHILD: &str = "CRABLET_VOLUMES_TEST_ROOT";

fn node() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: Settings::default(),
        features: FeatureGates::default(),
    }
}

fn pod(label: usize) -> Pod {
    pod_yaml(&format!(
        "metadata: {{name: p, uid: uid, labels: {{a: '{label}'}}}}\nspec: {{securityContext: {{fsGroup: 4321}},
         containers: [{{name: c, volumeMounts: [{{name: disk, mountPath: /d}}, {{name: memory, mountPath: /m}},
         {{name: told, mountPath: /t}}]}}], volumes: [{{name: disk, emptyDir: {{}}}},
         {{name: memory, emptyDir: {{medium: Memory}}}}, {{name: told, downwardAPI: {{defaultMode: 420, items: [
         {{path: one, fieldRef: {{fieldPath: metadata.labels}}}},
         {{path: two, fieldRef: {{fieldPath: metadata.labels}}}}]}}}}]}}"
    ))
}

/// One round of everything that is ever done to a pod's volumes but their end.
async fn round(volumes: &HostVolumes, label: usize) -> PathBuf {
    let mounted = volumes.set_up(&pod(label), &node()).await.unwrap();
    let path = |name: &str| match &mounted[name] {
        MountedVolume::Files { host_path, .. } => PathBuf::from(host_path),
        other => panic!("{other:?}"),
    };
    let wanted = SubPath {
        uid: "uid".to_owned(),
        container: "c".to_owned(),
        index: 0,
        volume: "memory".to_owned(),
        volume_path: path("memory"),
        path: format!("part{}", label % 2),
    };
    let part = volumes.sub_path(&wanted).await.unwrap();
    std::fs::write(Path::new(&part).join("file"), "x").unwrap();
    path("told")
}

#[tokio::test]
async fn child() {
    let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let volumes = HostVolumes::new(&root, Clock::system(), Arc::new(NoContents));
    for label in 0.. {
        round(&volumes, label).await;
        if label % 3 == 2 {
            volumes.tear_down("uid").await.unwrap();
        }
        std::fs::write(root.join("started"), "").unwrap();
    }
}

/// Unmounts what a failed test leaves.
struct Cleanup(PathBuf);

impl Cleanup {
    fn mounts(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.0).iter().map(|mount| mount.mount_point.clone()).collect()
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        for mount in self.mounts() {
            let _ = unmount(&mount, UnmountMode::Detach);
        }
    }
}

#[tokio::test]
async fn an_agent_killed_at_any_moment_leaves_nothing_that_the_next_cannot_carry_on_from() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let cleanup = Cleanup(root.clone());
    for run in 0..25_u64 {
        let _ = std::fs::remove_file(root.join("started"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact"])
            .env(CHILD, &root)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !root.join("started").exists() {
            assert!(child.try_wait().unwrap().is_none(), "run {run}: the child could not carry on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Any moment will do: each run takes another one.
        tokio::time::sleep(Duration::from_micros(run * 1700 % 11_000)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let volumes = HostVolumes::new(&root, Clock::system(), Arc::new(NoContents));
        if run % 2 == 0 {
            let told = round(&volumes, 1000).await;
            for file in ["one", "two"] {
                assert_eq!(std::fs::read_to_string(told.join(file)).unwrap(), "a=\"1000\"", "run {run}");
            }
            let versions = std::fs::read_dir(&told).unwrap().count();
            assert_eq!(versions, 4, "run {run}: one version, one link to it and one to each file");
            assert_eq!(cleanup.mounts().len(), 3, "run {run}: nothing is mounted twice");
        }
        if run % 3 == 0 {
            volumes.tear_down("uid").await.unwrap();
            assert_eq!(cleanup.mounts(), Vec::<PathBuf>::new(), "run {run}");
            assert!(
                !root.join("pods/uid/volumes").exists() && !root.join("pods/uid/volume-subpaths").exists()
            );
        }
    }
}
