//! The cgroups of this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use rustix::io::Errno;

use super::control::{self, ControlFiles, Mounted};
use super::systemd::Systemd;
use super::tree::{self, Removal, below};
use super::{
    CgroupDriver, CgroupError, CgroupName, Cgroups, Ensured, Hierarchy, Layout, LevelLimits, Limits,
    PodCgroup, QosClass, processes, v1, v2,
};

/// How often removing a cgroup is tried.
const REMOVE_TRIES: u32 = 12;
/// How long the first wait between tries is; each is twice the one before.
const REMOVE_WAIT: Duration = Duration::from_millis(1);
/// How long a wait gets at most.
const LONGEST_REMOVE_WAIT: Duration = Duration::from_millis(512);

/// How often it is looked for processes that are to be gathered: what is forked meanwhile stands where its parent did.
const GATHER_TRIES: u32 = 10;

/// The cgroups of this machine: as files, and with the [`Systemd`](CgroupDriver::Systemd) driver as systemd's slices, whose
/// files are written too. Clones are the same cgroups.
///
/// Each call does its work in a thread of its own: a limit on memory can make the kernel search for pages to free
/// before it returns, and systemd may be busy.
#[derive(Clone)]
pub struct HostCgroups(Arc<Host>);

struct Host {
    hierarchy: Hierarchy,
    layout: Layout,
    files: Box<dyn ControlFiles>,
    /// Who makes cgroups, if it is not us.
    systemd: Option<Systemd>,
}

impl HostCgroups {
    /// The cgroups in a hierarchy.
    pub fn new(hierarchy: Hierarchy, layout: Layout) -> HostCgroups {
        let systemd = match layout.driver() {
            CgroupDriver::Cgroupfs => None,
            CgroupDriver::Systemd => Some(Systemd::of_machine()),
        };
        HostCgroups::with(hierarchy, layout, Box::new(Mounted), systemd)
    }

    pub(super) fn with(
        hierarchy: Hierarchy,
        layout: Layout,
        files: Box<dyn ControlFiles>,
        systemd: Option<Systemd>,
    ) -> HostCgroups {
        HostCgroups(Arc::new(Host { hierarchy, layout, files, systemd }))
    }

    /// What is mounted.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.0.hierarchy
    }

    /// What cgroups are called.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Does something with files in another thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, CgroupError> {
        let host = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&host)).await.unwrap_or(Err(CgroupError::Abandoned))
    }
}

#[async_trait]
impl Cgroups for HostCgroups {
    async fn ensure_levels(&self, limits: &LevelLimits) -> Result<(), CgroupError> {
        let limits = limits.clone();
        self.blocking(move |host| host.ensure_levels(&limits)).await
    }

    async fn limit_existing(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        let layout = &self.0.layout;
        let (path, limits) = (layout.path(&layout.given(cgroup)), limits.clone());
        self.blocking(move |host| match host.missing_directories(&path).into_iter().next() {
            Some(path) => Err(CgroupError::Missing { path }),
            None => host.apply(&path, &limits),
        })
        .await
    }

    async fn enter(&self, cgroup: &str) -> Result<(), CgroupError> {
        let path = CgroupName::from_cgroupfs(cgroup).to_cgroupfs();
        self.blocking(move |host| {
            host.create_files(&path)?;
            host.put(&path, std::process::id())
        })
        .await
    }

    async fn gather(&self, cgroup: &str) -> Result<(), CgroupError> {
        let path = CgroupName::from_cgroupfs(cgroup).to_cgroupfs();
        self.blocking(move |host| host.gather(&path)).await
    }

    async fn ensure_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<Ensured, CgroupError> {
        let (pod, limits) = (pod.clone(), limits.clone());
        self.blocking(move |host| host.ensure_pod(&pod, &limits)).await
    }

    async fn update_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<(), CgroupError> {
        let (path, limits) = (self.pod_path(pod), limits.clone());
        self.blocking(move |host| host.apply(&path, &limits)).await
    }

    async fn pod_limits(&self, pod: &PodCgroup) -> Result<Limits, CgroupError> {
        let path = self.pod_path(pod);
        self.blocking(move |host| host.limits(&path)).await
    }

    async fn pod_memory_usage(&self, pod: &PodCgroup) -> Result<u64, CgroupError> {
        let path = self.pod_path(pod);
        self.blocking(move |host| host.memory_usage(&path)).await
    }

    async fn pod_processes(&self, pod: &PodCgroup) -> Result<Vec<u32>, CgroupError> {
        let path = self.pod_path(pod);
        self.blocking(move |host| host.processes(&path)).await
    }

    async fn remove_pod(&self, pod: &PodCgroup) -> Result<(), CgroupError> {
        let path = self.pod_path(pod);
        let mut wait = REMOVE_WAIT;
        for _ in 1..REMOVE_TRIES {
            let path = path.clone();
            match self.blocking(move |host| host.try_remove(&path)).await? {
                Removal::Done => return Ok(()),
                Removal::Busy(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(LONGEST_REMOVE_WAIT);
        }
        self.blocking(move |host| match host.try_remove(&path)? {
            Removal::Done => Ok(()),
            Removal::Busy(busy) => Err(CgroupError::Busy { path: busy, processes: host.processes(&path)? }),
        })
        .await
    }

    async fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        self.blocking(|host| host.pods()).await
    }

    fn pod_path(&self, pod: &PodCgroup) -> String {
        self.0.layout.path(&self.0.layout.pod(pod))
    }

    fn kubepods(&self) -> CgroupName {
        self.0.layout.kubepods()
    }
}

impl Host {
    fn ensure_levels(&self, limits: &LevelLimits) -> Result<(), CgroupError> {
        let root = self.layout.path(self.layout.root());
        if let Some(path) = self.missing_directories(&root).into_iter().next() {
            return Err(CgroupError::RootMissing { path });
        }
        let levels: [(CgroupName, &Limits); 3] = [
            (self.layout.kubepods(), &limits.node),
            (self.layout.qos(QosClass::Burstable), &limits.burstable),
            (self.layout.qos(QosClass::BestEffort), &limits.best_effort),
        ];
        for (name, limits) in levels {
            let path = self.layout.path(&name);
            self.create(&path)?;
            self.check_controllers(&path)?;
            self.apply(&path, limits)?;
        }
        Ok(())
    }

    fn ensure_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<Ensured, CgroupError> {
        let path = self.layout.path(&self.layout.pod(pod));
        if self.is_complete(&path)? {
            return Ok(Ensured::Existed);
        }
        let made = self.create(&path)?;
        let limited = self.check_controllers(&path).and_then(|()| self.apply(&path, limits));
        match limited {
            Ok(()) => Ok(Ensured::Created),
            Err(error) => {
                // The error that is told is the one that led here; what stays is made again or removed later.
                if let Some(systemd) = &self.systemd {
                    let _ = wait(systemd.stop(&path));
                }
                for directory in made {
                    let _ = self.files.remove(&directory);
                }
                Err(error)
            }
        }
    }

    fn is_complete(&self, path: &str) -> Result<bool, CgroupError> {
        if !self.missing_directories(path).is_empty() {
            return Ok(false);
        }
        match &self.hierarchy {
            Hierarchy::V1(_) => Ok(true),
            Hierarchy::V2 { mount } => Ok(v2::missing(&*self.files, mount, path)?.is_empty()),
        }
    }

    /// The directories without which a cgroup is not there.
    fn missing_directories(&self, path: &str) -> Vec<PathBuf> {
        let needed = match &self.hierarchy {
            Hierarchy::V1(mounts) => mounts.needed(),
            Hierarchy::V2 { mount } => vec![mount.as_path()],
        };
        let needed = needed.into_iter().map(|mount| below(mount, path));
        needed.filter(|directory| !self.files.exists(directory)).collect()
    }

    /// Makes a cgroup. Gives the directories that had to be made for it beside those that systemd made.
    fn create(&self, path: &str) -> Result<Vec<PathBuf>, CgroupError> {
        if let Some(systemd) = &self.systemd
            && !self.missing_directories(path).is_empty()
        {
            wait(systemd.start_slice(path, self.hierarchy.version()))?;
        }
        self.create_files(path)
    }

    /// Makes a cgroup in the file system, behind systemd's back.
    fn create_files(&self, path: &str) -> Result<Vec<PathBuf>, CgroupError> {
        match &self.hierarchy {
            Hierarchy::V1(mounts) => v1::create(&*self.files, mounts, path),
            Hierarchy::V2 { mount } => Ok(v2::create(&*self.files, mount, path)?.into_iter().collect()),
        }
    }

    /// Puts a process into a cgroup in every tree.
    fn put(&self, path: &str, process: u32) -> Result<(), CgroupError> {
        let directories = self.directories(path);
        directories.iter().try_for_each(|directory| {
            control::write(&*self.files, directory, "cgroup.procs", &process.to_string())
        })
    }

    fn gather(&self, path: &str) -> Result<(), CgroupError> {
        self.create_files(path)?;
        let mut left = Vec::new();
        for _ in 0..GATHER_TRIES {
            left = self.outside()?;
            if left.is_empty() {
                return Ok(());
            }
            for process in &left {
                match self.put(path, *process) {
                    // It has ended meanwhile.
                    Err(CgroupError::Write { source, .. })
                        if source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    put => put?,
                }
            }
        }
        Err(CgroupError::NotGathered { path: path.into(), processes: left })
    }

    /// The processes that stand in the root and can be moved. In v1 it is the tree of devices that tells, as upstream has
    /// it: where others stand is nobody's business whose controller nobody uses.
    fn outside(&self) -> Result<Vec<u32>, CgroupError> {
        let root = match &self.hierarchy {
            Hierarchy::V1(mounts) => mounts.of("devices").ok_or(CgroupError::NotMounted)?,
            Hierarchy::V2 { mount } => mount,
        };
        let listed = control::read(&*self.files, root, "cgroup.procs")?;
        let processes = listed.lines().filter_map(|line| line.parse::<u32>().ok());
        Ok(processes.filter(|process| *process > 1 && self.files.has_program(*process)).collect())
    }

    /// In v2, those above can keep a controller from a cgroup.
    fn check_controllers(&self, path: &str) -> Result<(), CgroupError> {
        let Hierarchy::V2 { mount } = &self.hierarchy else { return Ok(()) };
        match v2::missing(&*self.files, mount, path)? {
            missing if missing.is_empty() => Ok(()),
            missing => Err(CgroupError::ControllersMissing { path: below(mount, path), missing }),
        }
    }

    fn apply(&self, path: &str, limits: &Limits) -> Result<(), CgroupError> {
        let limits = match &self.systemd {
            Some(systemd) => &wait(systemd.set(path, limits, self.hierarchy.version()))?,
            None => limits,
        };
        match &self.hierarchy {
            Hierarchy::V1(mounts) => v1::apply(&*self.files, mounts, path, limits),
            Hierarchy::V2 { mount } => v2::apply(&*self.files, &below(mount, path), limits),
        }
    }

    fn limits(&self, path: &str) -> Result<Limits, CgroupError> {
        match &self.hierarchy {
            Hierarchy::V1(mounts) => v1::limits(&*self.files, mounts, path),
            Hierarchy::V2 { mount } => v2::limits(&*self.files, &below(mount, path)),
        }
    }

    fn memory_usage(&self, path: &str) -> Result<u64, CgroupError> {
        match &self.hierarchy {
            Hierarchy::V1(mounts) => match mounts.of("memory") {
                Some(mount) => v1::memory_usage(&*self.files, &below(mount, path)),
                None => {
                    Err(CgroupError::ControllersMissing { path: path.into(), missing: vec!["memory".into()] })
                }
            },
            Hierarchy::V2 { mount } => v2::memory_usage(&*self.files, &below(mount, path)),
        }
    }

    fn processes(&self, path: &str) -> Result<Vec<u32>, CgroupError> {
        let mut found = BTreeSet::new();
        for directory in self.directories(path) {
            found.extend(processes::processes(&*self.files, &directory)?);
        }
        Ok(found.into_iter().collect())
    }

    /// Kills what is in a cgroup, and removes it from every tree where that is possible by now.
    fn try_remove(&self, path: &str) -> Result<Removal, CgroupError> {
        let directories: Vec<PathBuf> =
            self.directories(path).into_iter().filter(|directory| self.files.exists(directory)).collect();
        for directory in &directories {
            processes::kill(&*self.files, directory)?;
        }
        // Only what is empty: systemd would wait for processes that do not die, with everything that it is asked then.
        if let (Some(systemd), Some(directory)) = (&self.systemd, directories.first()) {
            if !self.processes(path)?.is_empty() {
                return Ok(Removal::Busy(directory.clone()));
            }
            wait(systemd.stop(path))?;
        }
        let mut removal = Removal::Done;
        for directory in directories {
            match tree::remove(&*self.files, &directory)? {
                Removal::Done => {}
                busy @ Removal::Busy(_) => removal = busy,
            }
        }
        Ok(removal)
    }

    fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        let mut pods = BTreeSet::new();
        for qos in QosClass::ALL {
            for directory in self.directories(&self.layout.path(&self.layout.qos(qos))) {
                match self.files.children(&directory) {
                    Ok(names) => {
                        pods.extend(names.iter().filter_map(|name| self.layout.pod_from_directory(qos, name)))
                    }
                    Err(error) if tree::is_gone(&error) => {}
                    Err(source) => return Err(CgroupError::Read { path: directory, source }),
                }
            }
        }
        Ok(pods.into_iter().collect())
    }

    /// Where a cgroup is in each tree.
    fn directories(&self, path: &str) -> Vec<PathBuf> {
        self.hierarchy.mounts().into_iter().map(|mount| below(mount, path)).collect()
    }
}

/// Waits for systemd, in a thread that may.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Handle::current().block_on(answer)
}
