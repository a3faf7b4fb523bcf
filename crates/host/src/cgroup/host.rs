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
const GATHER_TRIES: u32 = 11;

/// The cgroups of this machine: as files, and with the [`Systemd`](CgroupDriver::Systemd) driver as systemd's slices, whose
/// files are written too. Clones are the same cgroups.
///
/// Files are read and written in a thread of their own: a limit on memory can make the kernel search for pages to free
/// before it returns. No thread waits for systemd, which may be busy.
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

/// What a call has made of a cgroup, beside those above it.
#[derive(Default)]
struct Made {
    /// systemd's slice.
    slice: bool,
    /// What systemd did not make.
    directories: Vec<PathBuf>,
}

impl HostCgroups {
    /// Makes a cgroup if it is not there, hands controllers down to it, and gives it limits. `made` says what has been
    /// made, also after an error. systemd hears everything before files are written, since it takes controllers from whom
    /// it was not told to give them.
    async fn make(&self, path: &str, limits: &Limits, made: &mut Made) -> Result<(), CgroupError> {
        if let Some(systemd) = &self.0.systemd {
            let at = path.to_owned();
            if !self.blocking(move |host| Ok(host.missing_directories(&at).is_empty())).await? {
                made.slice = systemd.start_slice(path, self.0.hierarchy.version()).await?;
            }
        }
        let limits = self.tell_systemd(path, limits).await?;
        let at = path.to_owned();
        made.directories = self.blocking(move |host| host.create_files(&at)).await?;
        let at = path.to_owned();
        self.blocking(move |host| host.write(&at, &limits)).await
    }

    /// Takes back what was made, as long as nobody has moved in. What stays is made again or removed later.
    async fn take_back(&self, path: &str, made: Made) {
        let at = path.to_owned();
        let is_empty = self.blocking(move |host| Ok(host.processes(&at)?.is_empty())).await;
        if !is_empty.unwrap_or(false) {
            return;
        }
        if let (Some(systemd), true) = (&self.0.systemd, made.slice) {
            let _ = systemd.stop(path).await;
        }
        let remove = move |host: &Host| {
            made.directories.iter().for_each(|directory| _ = host.files.remove(directory));
            Ok(())
        };
        let _ = self.blocking(remove).await;
    }

    /// Sets limits of a cgroup that is there.
    async fn limit(&self, path: &str, limits: &Limits) -> Result<(), CgroupError> {
        let limits = self.tell_systemd(path, limits).await?;
        let at = path.to_owned();
        self.blocking(move |host| host.write(&at, &limits)).await
    }

    /// Tells systemd of limits, where it makes cgroups. Gives the limits as they are by then.
    async fn tell_systemd(&self, path: &str, limits: &Limits) -> Result<Limits, CgroupError> {
        match &self.0.systemd {
            Some(systemd) => systemd.set(path, limits, self.0.hierarchy.version()).await,
            None => Ok(limits.clone()),
        }
    }

    /// Kills what is in a cgroup, and removes it from every tree where that is possible by now.
    async fn try_remove(&self, path: &str) -> Result<Removal, CgroupError> {
        let at = path.to_owned();
        let directories = self.blocking(move |host| host.kill(&at)).await?;
        // Only what is empty: systemd would wait for processes that do not die, with everything that it is asked then.
        if let (Some(systemd), Some(directory)) = (&self.0.systemd, directories.first()) {
            let at = path.to_owned();
            if !self.blocking(move |host| Ok(host.processes(&at)?.is_empty())).await? {
                return Ok(Removal::Busy(directory.clone()));
            }
            systemd.stop(path).await?;
        }
        self.blocking(move |host| {
            let mut removal = Removal::Done;
            for directory in directories {
                match tree::remove(&*host.files, &directory)? {
                    Removal::Done => {}
                    busy @ Removal::Busy(_) => removal = busy,
                }
            }
            Ok(removal)
        })
        .await
    }
}

#[async_trait]
impl Cgroups for HostCgroups {
    async fn ensure_levels(&self, limits: &LevelLimits) -> Result<(), CgroupError> {
        let layout = &self.0.layout;
        let root = layout.path(layout.root());
        if let Some(path) =
            self.blocking(move |host| Ok(host.missing_directories(&root).into_iter().next())).await?
        {
            return Err(CgroupError::RootMissing { path });
        }
        let kubepods = layout.path(&layout.kubepods());
        self.make(&kubepods, &limits.node, &mut Made::default()).await?;
        // What is below may lack what systemd was not told to hand down, as with upstream. What a limit needs and is not
        // there is an error of that limit.
        self.blocking(move |host| host.check_controllers(&kubepods)).await?;
        for (class, limits) in
            [(QosClass::Burstable, &limits.burstable), (QosClass::BestEffort, &limits.best_effort)]
        {
            self.make(&layout.path(&layout.qos(class)), limits, &mut Made::default()).await?;
        }
        Ok(())
    }

    async fn limit_existing(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        let path = self.0.layout.path(&self.0.layout.given(cgroup));
        let at = path.clone();
        match self.blocking(move |host| Ok(host.missing_directories(&at).into_iter().next())).await? {
            Some(path) => Err(CgroupError::Missing { path }),
            None => self.limit(&path, limits).await,
        }
    }

    async fn enter(&self, cgroup: &str) -> Result<(), CgroupError> {
        let path = CgroupName::from_cgroupfs(cgroup).to_cgroupfs();
        self.blocking(move |host| {
            // What those above hand down is the business of whoever put this process there.
            if processes::place(&host.files.own_places()?, host.hierarchy.version()) == Some(&*path) {
                return Ok(());
            }
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
        let path = self.pod_path(pod);
        let at = path.clone();
        if self.blocking(move |host| host.is_complete(&at)).await? {
            return Ok(Ensured::Existed);
        }
        let mut made = Made::default();
        match self.make(&path, limits, &mut made).await {
            Ok(()) => Ok(Ensured::Created),
            Err(error) => {
                self.take_back(&path, made).await;
                Err(error)
            }
        }
    }

    async fn update_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<(), CgroupError> {
        self.limit(&self.pod_path(pod), limits).await
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
            match self.try_remove(&path).await? {
                Removal::Done => return Ok(()),
                Removal::Busy(_) => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(LONGEST_REMOVE_WAIT);
        }
        match self.try_remove(&path).await? {
            Removal::Done => Ok(()),
            Removal::Busy(busy) => {
                let processes = self.blocking(move |host| host.processes(&path)).await?;
                Err(CgroupError::Busy { path: busy, processes })
            }
        }
    }

    async fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        self.blocking(|host| host.pods()).await
    }

    fn pod_path(&self, pod: &PodCgroup) -> String {
        self.0.layout.path(&self.0.layout.pod(pod))
    }

    fn kubepods(&self) -> Option<CgroupName> {
        Some(self.0.layout.kubepods())
    }
}

impl Host {
    /// Whether a cgroup is there with the controllers that pods are limited by. `cpuset` is not among them: systemd takes it
    /// from slices of pods that run, and who makes containers hands it down again.
    fn is_complete(&self, path: &str) -> Result<bool, CgroupError> {
        if !self.missing_directories(path).is_empty() {
            return Ok(false);
        }
        match &self.hierarchy {
            Hierarchy::V1(_) => Ok(true),
            Hierarchy::V2 { mount } => {
                Ok(v2::missing(&*self.files, mount, path)?.iter().all(|controller| controller == "cpuset"))
            }
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

    /// Makes a cgroup in the file system, as far as systemd has not, and hands controllers down to it. Gives the
    /// directories that had to be made for it.
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
        let (mut left, mut last) = (Vec::new(), None);
        for _ in 0..GATHER_TRIES {
            left = self.outside()?;
            if left.is_empty() {
                return Ok(());
            }
            self.create_files(path)?;
            for process in &left {
                match self.put(path, *process) {
                    Ok(()) => {}
                    // It has ended meanwhile.
                    Err(CgroupError::Write { source, .. })
                        if source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    // One that cannot be moved, as a real-time process under a controller without a budget for it,
                    // keeps no other where it is.
                    Err(error) => last = Some(Box::new(error)),
                }
            }
        }
        Err(CgroupError::NotGathered { path: path.into(), processes: left, source: last })
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
        let missing = v2::missing(&*self.files, mount, path)?;
        if missing.is_empty() {
            return Ok(());
        }
        // systemd may have taken them away since they were handed down: it looks at the tree in its own time.
        v2::create(&*self.files, mount, path)?;
        match v2::missing(&*self.files, mount, path)? {
            missing if missing.is_empty() => Ok(()),
            missing => Err(CgroupError::ControllersMissing { path: below(mount, path), missing }),
        }
    }

    /// Writes limits to the files.
    fn write(&self, path: &str, limits: &Limits) -> Result<(), CgroupError> {
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

    /// Kills what is in a cgroup. Gives its directories.
    fn kill(&self, path: &str) -> Result<Vec<PathBuf>, CgroupError> {
        let directories: Vec<PathBuf> =
            self.directories(path).into_iter().filter(|directory| self.files.exists(directory)).collect();
        for directory in &directories {
            processes::kill(&*self.files, directory)?;
        }
        Ok(directories)
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
