//! Cgroups on the kernel that this runs on, of either version, below a root of their own. Needs root.
//!
//! `tests/cgroup-v2` runs them on a kernel with cgroups of version 2, where the machine has version 1.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crablet_host::cgroup::{
    Bound, CgroupDriver, CgroupError, Cgroups, CpuBandwidth, Ensured, Hierarchy, HostCgroups, HugePages,
    Layout, LevelLimits, Limits, PodCgroup, QosClass,
};
use crablet_host::mounts::PROC_SELF_MOUNTINFO;

/// Cgroups below a root that is there for as long as the test runs.
struct Place {
    name: String,
    cgroups: HostCgroups,
}

impl Place {
    fn new(test: &str) -> Place {
        let name = format!("crablet-test-{}-{test}", std::process::id());
        let hierarchy = Hierarchy::detect(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let cgroups = HostCgroups::new(hierarchy, Layout::new(&name, CgroupDriver::Cgroupfs));
        let place = Place { name, cgroups };
        for mount in place.mounts() {
            std::fs::create_dir(mount.join(&place.name)).unwrap();
        }
        place
    }

    fn mounts(&self) -> Vec<PathBuf> {
        let mut mounts: Vec<PathBuf> = match self.cgroups.hierarchy() {
            Hierarchy::V1(mounts) => mounts.controllers.values().chain(&mounts.unified).cloned().collect(),
            Hierarchy::V2 { mount } => vec![mount.clone()],
        };
        mounts.sort();
        mounts.dedup();
        mounts
    }

    /// Where a pod's cgroup is, in each tree.
    fn directories(&self, pod: &PodCgroup) -> Vec<PathBuf> {
        let path = self.cgroups.pod_path(pod);
        self.mounts().iter().map(|mount| mount.join(path.trim_start_matches('/'))).collect()
    }

    async fn levels(&self) {
        self.cgroups.ensure_levels(&LevelLimits::default()).await.unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for mount in self.mounts() {
            remove_all(&mount.join(&self.name));
        }
    }
}

/// Removes a cgroup and all below it, also when the test failed half-way.
fn remove_all(cgroup: &Path) {
    for entry in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(cgroup);
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start() -> Process {
        Process(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn enter(&self, cgroup: &Path) {
        std::fs::write(cgroup.join("cgroup.procs"), self.id().to_string()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pod(qos: QosClass) -> PodCgroup {
    PodCgroup::new(qos, "7ec5c0b2-0c1f-4b7a-8a1e-3f1f0c0e8a11").unwrap()
}

fn limits() -> Limits {
    Limits {
        cpu_shares: Some(2048),
        cpu_bandwidth: Some(CpuBandwidth { quota: Bound::At(50_000), period: 100_000 }),
        memory: Some(Bound::At(64 << 20)),
        processes: Some(Bound::At(123)),
        huge_pages: HugePages::Only([].into()),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_pod_has_the_limits_that_it_was_given_until_they_are_changed() {
    let place = Place::new("limits");
    let cgroups = &place.cgroups;
    place.levels().await;
    place.levels().await;
    for qos in QosClass::ALL {
        let pod = pod(qos);
        assert_eq!(cgroups.ensure_pod(&pod, &limits()).await.unwrap(), Ensured::Created);
        assert_eq!(cgroups.ensure_pod(&pod, &Limits::default()).await.unwrap(), Ensured::Existed);
        let found = cgroups.pod_limits(&pod).await.unwrap();
        let expected = match cgroups.hierarchy() {
            Hierarchy::V1(_) => 2048,
            Hierarchy::V2 { .. } => 2046,
        };
        assert_eq!(found.cpu_shares, Some(expected));
        assert_eq!(found.cpu_bandwidth, limits().cpu_bandwidth);
        assert_eq!(found.memory, limits().memory);
        assert_eq!(found.processes, limits().processes);
        cgroups.pod_memory_usage(&pod).await.unwrap();

        // A shorter period goes with a smaller quota, whichever is set first.
        let bandwidth = CpuBandwidth { quota: Bound::At(2_000), period: 10_000 };
        let changes = Limits {
            cpu_bandwidth: Some(bandwidth),
            memory: Some(Bound::Unlimited),
            processes: Some(Bound::Unlimited),
            cpus: Some("0".into()),
            ..Limits::default()
        };
        cgroups.update_pod(&pod, &changes).await.unwrap();
        let found = cgroups.pod_limits(&pod).await.unwrap();
        assert_eq!(found.cpu_bandwidth, Some(bandwidth));
        assert_eq!((found.memory, found.processes), (Some(Bound::Unlimited), Some(Bound::Unlimited)));
        assert_eq!(found.cpus.as_deref(), Some("0"));
        cgroups.remove_pod(&pod).await.unwrap();
    }
}

#[tokio::test]
async fn every_pod_with_a_cgroup_is_found_and_nothing_else() {
    let place = Place::new("pods");
    let cgroups = &place.cgroups;
    assert_eq!(cgroups.pods().await.unwrap(), []);
    place.levels().await;
    let mut pods: Vec<PodCgroup> = QosClass::ALL.map(pod).into();
    for pod in &pods {
        cgroups.ensure_pod(pod, &Limits::default()).await.unwrap();
    }
    // A half that a removal left over counts too.
    let half = PodCgroup::new(QosClass::Burstable, "half").unwrap();
    std::fs::create_dir(&place.directories(&half)[0]).unwrap();
    pods.push(half);
    pods.sort();
    assert_eq!(cgroups.pods().await.unwrap(), pods);
    for pod in &pods {
        cgroups.remove_pod(pod).await.unwrap();
        assert!(place.directories(pod).iter().all(|directory| !directory.exists()));
    }
    assert_eq!(cgroups.pods().await.unwrap(), []);
}

#[tokio::test]
async fn removing_a_pod_kills_what_runs_in_it_at_any_depth() {
    let place = Place::new("kill");
    let cgroups = &place.cgroups;
    place.levels().await;
    let pod = pod(QosClass::Burstable);
    cgroups.ensure_pod(&pod, &limits()).await.unwrap();
    let container = place.directories(&pod)[0].join("container");
    std::fs::create_dir_all(container.join("nested/deep")).unwrap();
    let mut processes = [Process::start(), Process::start()];
    processes[0].enter(&container);
    processes[1].enter(&container.join("nested/deep"));
    let mut expected = processes.each_ref().map(Process::id);
    expected.sort();
    assert_eq!(cgroups.pod_processes(&pod).await.unwrap(), expected);

    let bystander = Process::start();
    tokio::time::timeout(Duration::from_secs(10), cgroups.remove_pod(&pod)).await.unwrap().unwrap();
    for process in &mut processes {
        assert!(!process.0.wait().unwrap().success());
    }
    assert!(rustix::process::test_kill_process(rustix::process::Pid::from_child(&bystander.0)).is_ok());
    assert!(place.directories(&pod).iter().all(|directory| !directory.exists()));
    cgroups.remove_pod(&pod).await.unwrap();
    assert_eq!(cgroups.pod_processes(&pod).await.unwrap(), [0; 0]);
}

#[tokio::test]
async fn a_process_can_be_put_into_a_new_pods_cgroup_in_every_tree() {
    let place = Place::new("enter");
    let cgroups = &place.cgroups;
    place.levels().await;
    let pod = pod(QosClass::BestEffort);
    cgroups.ensure_pod(&pod, &Limits::default()).await.unwrap();
    let process = Process::start();
    for directory in place.directories(&pod) {
        process.enter(&directory);
    }
    assert_eq!(cgroups.pod_processes(&pod).await.unwrap(), [process.id()]);
    cgroups.remove_pod(&pod).await.unwrap();
}

#[tokio::test]
async fn a_limit_that_the_kernel_refuses_is_named_and_leaves_no_cgroup() {
    let place = Place::new("refused");
    let cgroups = &place.cgroups;
    place.levels().await;
    let pod = pod(QosClass::Guaranteed);
    let refused = Limits { cpus: Some("999999".into()), ..Limits::default() };
    let error = cgroups.ensure_pod(&pod, &refused).await.unwrap_err();
    let CgroupError::Write { path, value, .. } = &error else { panic!("{error}") };
    assert!(path.ends_with("cpuset.cpus"), "{}", path.display());
    assert_eq!(value, "999999");
    assert_eq!(cgroups.pods().await.unwrap(), []);
}

#[tokio::test]
async fn a_root_that_is_missing_is_not_made() {
    let hierarchy = Hierarchy::detect(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
    let cgroups =
        HostCgroups::new(hierarchy, Layout::new("/crablet-test-no-such-root", CgroupDriver::Cgroupfs));
    let error = cgroups.ensure_levels(&LevelLimits::default()).await.unwrap_err();
    assert!(matches!(error, CgroupError::RootMissing { .. }), "{error}");
}
