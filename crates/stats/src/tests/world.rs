//! A machine in a directory, and a runtime that says what it is told to.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri::Error;
use crablet_cri_api::{Container, ContainerState, Sandbox, SandboxMetadata, SandboxState, v1};
use crablet_host::cgroup::{CgroupDriver, Hierarchy, Layout, V1Mounts};
use crablet_host::clock::Clock;
use crablet_host::machine::Machine;
use crablet_volumes::VolumeStats;
use jiff::Timestamp;
use tempfile::TempDir;

use crate::runtime::RuntimeStats;
use crate::stats::{Parts, Settings, Stats, VolumeMeter};

pub(super) const MEMORY: u64 = 25_276_518_400;

/// A machine in a directory.
pub(super) struct World {
    pub(super) place: TempDir,
    pub(super) runtime: Arc<Runtime>,
    pub(super) volumes: Arc<Volumes>,
    pub(super) layout: Layout,
    pub(super) is_v2: bool,
    pub(super) cached_for: Duration,
}

#[derive(Default)]
pub(super) struct Runtime {
    pub(super) sandboxes: Mutex<Vec<Sandbox>>,
    pub(super) containers: Mutex<Vec<Container>>,
    pub(super) stats: Mutex<Vec<v1::ContainerStats>>,
    pub(super) images: Mutex<Vec<v1::FilesystemUsage>>,
    pub(super) is_away: AtomicBool,
    pub(super) hangs: AtomicBool,
    /// Whether it lists, and does not say what containers use.
    pub(super) counts_slowly: AtomicBool,
    /// How often it was asked for the image of a sandbox.
    pub(super) asked_for_images: AtomicUsize,
    /// How often containers were listed, and their stats.
    pub(super) listed: AtomicUsize,
    pub(super) asked_for_stats: AtomicUsize,
}

#[async_trait]
impl RuntimeStats for Runtime {
    async fn sandboxes(&self) -> Result<Vec<Sandbox>, Error> {
        Ok(self.sandboxes.lock().unwrap().clone())
    }

    async fn containers(&self) -> Result<Vec<Container>, Error> {
        self.listed.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_away.load(Ordering::Relaxed) {
            let within = Duration::from_secs(1);
            return Err(Error::Deadline { method: "ListContainers", endpoint: "runtime".into(), within });
        }
        Ok(self.containers.lock().unwrap().clone())
    }

    async fn container_stats(&self, _: Option<&str>) -> Result<Vec<v1::ContainerStats>, Error> {
        self.asked_for_stats.fetch_add(1, Ordering::Relaxed);
        if self.counts_slowly.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(self.stats.lock().unwrap().clone())
    }

    async fn image_file_systems(&self) -> Result<Vec<v1::FilesystemUsage>, Error> {
        Ok(self.images.lock().unwrap().clone())
    }

    async fn sandbox_image(&self, id: &str) -> Result<Option<String>, Error> {
        self.asked_for_images.fetch_add(1, Ordering::Relaxed);
        Ok(Some(format!("example.org/pause:{id}")))
    }
}

#[derive(Default)]
pub(super) struct Volumes(pub(super) Mutex<Vec<VolumeStats>>);

#[async_trait]
impl VolumeMeter for Volumes {
    async fn of_pod(&self, _: &str) -> Vec<VolumeStats> {
        self.0.lock().unwrap().clone()
    }
}

impl World {
    pub(super) fn new(driver: CgroupDriver, is_v2: bool) -> World {
        let world = World {
            place: tempfile::tempdir().unwrap(),
            runtime: Arc::default(),
            volumes: Arc::default(),
            layout: Layout::new("", driver),
            is_v2,
            cached_for: Duration::ZERO,
        };
        world.write("proc/loadavg", "0.02 0.11 0.09 1/218 12345\n");
        world.write("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/vda rw\n");
        world.write("proc/self/cgroup", "4:cpu,cpuacct:/\n0::/\n");
        world.write(
            "proc/diskstats",
            " 254 0 vda 535869 29640 17534570 458969 820571 476371 77943368 482329 0 97472 992063 0 0 0 0\n",
        );
        world.write(
            "proc/1/limits",
            "Max open files            32768                32768                files\n",
        );
        for processor in ["0", "1"] {
            let topology = format!("sys/devices/system/cpu/cpu{processor}/topology");
            world.write(&format!("{topology}/core_id"), processor);
            world.write(&format!("{topology}/physical_package_id"), "0\n");
        }
        world.write("sys/dev/block/8:16/uevent", "MAJOR=8\nMINOR=16\nDEVNAME=sdb\n");
        world.runtime.images.lock().unwrap().push(v1::FilesystemUsage {
            timestamp: 1_794_763_468_000_000_000,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: world.path("").display().to_string() }),
            used_bytes: Some(v1::UInt64Value { value: 218_230_784 }),
            inodes_used: Some(v1::UInt64Value { value: 4_848 }),
        });
        world
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    /// Who reads meanwhile gets what was there before, or all of this.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_added_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Files of a cgroup, by the tree that they are in for v1.
    pub(super) fn cgroup(&self, path: &str, files: &[(&str, &str, &str)]) {
        for (tree, name, text) in files {
            let tree = if self.is_v2 { "" } else { tree };
            self.write(&format!("cgroup/{tree}/{path}/{name}"), text);
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let at = |tree: &str| (tree.to_owned(), self.path("cgroup").join(tree));
        let hierarchy = match self.is_v2 {
            true => Hierarchy::V2 { mount: self.path("cgroup") },
            false => Hierarchy::V1(V1Mounts {
                controllers: ["cpu", "cpuacct", "memory", "pids", "blkio"].map(at).into(),
                unified: None,
            }),
        };
        let settings = Settings {
            root: self.place.path().to_owned(),
            node_name: "<node>".to_owned(),
            root_dir: self.path("kubelet"),
            pod_logs_dir: self.path("logs"),
            hierarchy,
            layout: self.layout.clone(),
            machine: machine(),
            kubelet_cgroup: String::new(),
            runtime_cgroup: String::new(),
            system_cgroup: String::new(),
            cached_for: self.cached_for,
        };
        std::fs::create_dir_all(self.path("kubelet")).unwrap();
        let images = HashMap::from([("c1".to_owned(), "example.org/app:1".to_owned())]);
        let parts = Parts {
            runtime: Arc::clone(&self.runtime) as Arc<dyn RuntimeStats>,
            volumes: Arc::clone(&self.volumes) as Arc<dyn VolumeMeter>,
            clock: Clock::system(),
            images: Arc::new(move || images.clone()),
        };
        Stats::new(settings, parts).unwrap()
    }
}

fn machine() -> Machine {
    Machine {
        cpus: 2,
        online_cpus: vec![0, 1],
        memory: MEMORY,
        swap: 0,
        huge_pages: BTreeMap::new(),
        processes: Some(32_768),
        machine_id: "<machineID>".to_owned(),
        system_uuid: "<systemUUID>".to_owned(),
        boot_id: "<bootID>".to_owned(),
        boot_time: Timestamp::from_second(1_794_757_975).ok(),
        kernel_version: "<kernel>".to_owned(),
        os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        architecture: "amd64",
    }
}

pub(super) fn sandbox(id: &str, namespace: &str, name: &str, uid: &str) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        metadata: SandboxMetadata {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            uid: uid.to_owned(),
            attempt: 0,
        },
        state: SandboxState::Ready,
        created_at: Timestamp::from_second(1_794_763_424).ok(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        runtime_handler: String::new(),
    }
}

pub(super) fn container(id: &str, sandbox: &str, name: &str, created: i128) -> Container {
    Container {
        id: id.to_owned(),
        sandbox_id: sandbox.to_owned(),
        name: name.to_owned(),
        attempt: 0,
        image: format!("sha256:{id}"),
        image_ref: String::new(),
        image_id: String::new(),
        state: ContainerState::Running,
        created_at: Timestamp::from_nanosecond(created).ok(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// The text of an answer that was recorded.
pub(super) fn recorded(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(format!("{name}.json"));
    let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    answer["body"].clone()
}
