//! The cgroups of this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::control::{ControlFiles, Mounted};
use super::tree::{self, Removal, below};
use super::{
    CgroupError, CgroupName, Cgroups, Ensured, Hierarchy, Layout, LevelLimits, Limits, PodCgroup, QosClass,
    processes, v1, v2,
};

/// How often removing a cgroup is tried.
const REMOVE_TRIES: u32 = 12;
/// How long the first wait between tries is; each is twice the one before.
const REMOVE_WAIT: Duration = Duration::from_millis(1);
/// How long a wait gets at most.
const LONGEST_REMOVE_WAIT: Duration = Duration::from_millis(512);

/// The cgroups of this machine, as files. Clones are the same cgroups.
///
/// Each call does its work in a thread of its own: a limit on memory can make the kernel search for pages to free
/// before it returns.
#[derive(Clone)]
pub struct HostCgroups(Arc<Host>);

struct Host {
    hierarchy: Hierarchy,
    layout: Layout,
    files: Box<dyn ControlFiles>,
}

impl HostCgroups {
    /// The cgroups in a hierarchy. With the [`Systemd`](super::CgroupDriver::Systemd) driver, names are systemd's, but the
    /// cgroups are made in the file system, behind its back.
    pub fn new(hierarchy: Hierarchy, layout: Layout) -> HostCgroups {
        HostCgroups::with_files(hierarchy, layout, Box::new(Mounted))
    }

    pub(super) fn with_files(
        hierarchy: Hierarchy,
        layout: Layout,
        files: Box<dyn ControlFiles>,
    ) -> HostCgroups {
        HostCgroups(Arc::new(Host { hierarchy, layout, files }))
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
                for directory in made {
                    // The error that is told is the one that led here; what stays is made again or removed later.
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

    /// Makes a cgroup. Gives the directories that had to be made for it.
    fn create(&self, path: &str) -> Result<Vec<PathBuf>, CgroupError> {
        match &self.hierarchy {
            Hierarchy::V1(mounts) => v1::create(&*self.files, mounts, path),
            Hierarchy::V2 { mount } => Ok(v2::create(&*self.files, mount, path)?.into_iter().collect()),
        }
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
        for directory in self.directories(path) {
            processes::kill(&*self.files, &directory)?;
        }
        let mut removal = Removal::Done;
        for directory in self.directories(path) {
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
