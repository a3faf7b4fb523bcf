//! Volumes in memory, for tests of those who use them. Those of CSI drivers are as real as their drivers and the
//! machine beneath them.

mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use crablet_api::core::{Pod, Volume, VolumeSource};
use crablet_core::qos::PodLevel;
use crablet_core::translate::{MountedVolume, NodeContext};
use crablet_cri_api::v1;
use crablet_host::clock::Clock;
use crablet_host::lanes::Lanes;
use crablet_host::simulation::Fault;
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::atomic_writer::Payload;
use crate::claims;
use crate::contents::{Contents, NoContents};
use crate::csi::Csi;
use crate::error::{FileError, PluginError, SubPathCause, SubPathError, TearDownError, VolumeError};
use crate::places::{CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, LOCAL, PROJECTED, Places, SECRET};
use crate::plugin::{Plugin as _, Request, THREADS, kind};
use crate::plugins::collect;
use crate::sub_path::SubPath;
use crate::volume_file::VolumeFile;
use crate::volumes::{DEADLINE, Volumes, used_volumes};
pub use machine::SimulatedMachine;

/// A kind of call of [`Volumes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    SetUp,
    Refresh,
    SubPath,
    Read,
    TearDown,
}

/// What is wrong with all volumes that are set up or used, until it is put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// They cannot be made.
    Fail(io::ErrorKind),
    /// Their disk or server does not answer.
    Hang,
    /// The node has as many as can be attached to it.
    TooMany,
}

/// Volumes in memory. They answer as a node's do, fail when told to, and can be looked at. Clones are the same volumes,
/// so that an agent that starts again finds what the one before it left.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use crablet_host::simulation::Fault;
/// use crablet_volumes::{Operation, SimulatedVolumes, Volumes};
///
/// let volumes = SimulatedVolumes::new();
/// volumes.plan(Some(Operation::TearDown), 1, Fault::Fails(std::io::ErrorKind::ResourceBusy));
/// assert!(volumes.tear_down("uid").await.is_err());
/// assert!(volumes.tear_down("uid").await.is_ok());
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedVolumes {
    places: Places,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    crash: Notify,
    put_right: Notify,
    held: Mutex<Held>,
}

/// Who has the volumes, and the content of volumes, that are not the node's own.
#[derive(Clone)]
struct Held {
    contents: Arc<dyn Contents>,
    csi: Option<Csi>,
    /// What a driver still does for a pod is waited for, as on a node.
    lanes: Arc<Lanes>,
}

impl Default for Held {
    fn default() -> Held {
        Held { contents: Arc::new(NoContents), csi: None, lanes: Arc::default() }
    }
}

/// What comes of a volume before it is shown.
#[derive(Default)]
struct Collected {
    /// The files that it shows, if it is one that shows files.
    files: Option<Payload>,
    /// Where its driver has put it, if it has one.
    mounted: Option<MountedVolume>,
    /// The group of the piece of storage behind it.
    group: Option<i64>,
}

/// What volumes are looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    SetUp,
    Refresh,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Held")
    }
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<String, BTreeSet<String>>,
    groups: BTreeMap<String, BTreeSet<i64>>,
    sub_paths: BTreeSet<String>,
    /// What files hold, by their paths on the node.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Which calls count, how many of them pass, and what then goes wrong.
    planned: Vec<(Option<Operation>, usize, Fault)>,
    calls: Vec<Operation>,
    crashed: bool,
    trouble: Option<Trouble>,
}

impl Default for SimulatedVolumes {
    fn default() -> SimulatedVolumes {
        SimulatedVolumes { places: Places::new("/var/lib/kubelet"), shared: Arc::default() }
    }
}

impl SimulatedVolumes {
    /// A machine without a single volume.
    pub fn new() -> SimulatedVolumes {
        SimulatedVolumes::default()
    }

    /// Lets the nth call from now go wrong, counted from 1; of one kind, or of all.
    pub fn plan(&self, operation: Option<Operation>, nth: usize, fault: Fault) {
        self.with(|state| state.planned.push((operation, nth.saturating_sub(1), fault)));
    }

    /// Lets volumes be in trouble, or puts them right.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.with(|state| state.trouble = trouble);
        self.shared.put_right.notify_waiters();
    }

    /// Says who has the content of volumes that is not the node's own.
    pub fn set_contents(&self, contents: Arc<dyn Contents>) {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).contents = contents;
    }

    /// Says who asks CSI drivers, for an agent that begins. Without, they have no volumes.
    pub fn set_csi(&self, csi: Csi) {
        let mut held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        (held.csi, held.lanes) = (Some(csi), Arc::default());
    }

    fn held(&self) -> Held {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for as long as volumes hang, and no longer than a node would.
    async fn trouble(&self, pod: &Pod) -> Result<(), Vec<VolumeError>> {
        let over = async {
            loop {
                let put_right = self.shared.put_right.notified();
                match self.with(|state| state.trouble) {
                    Some(Trouble::Hang) => put_right.await,
                    Some(Trouble::Fail(kind)) => return Err(self.failed(pod, kind.into())),
                    Some(Trouble::TooMany) => {
                        let cause = PluginError::AttachmentLimit("one".to_owned());
                        return Err(vec![self.of_first(pod, cause)]);
                    }
                    None => return Ok(()),
                }
            }
        };
        match timeout(DEADLINE, over).await {
            Ok(result) => result,
            Err(_) => Err(vec![self.of_first(pod, PluginError::TimedOut(DEADLINE))]),
        }
    }

    /// Waits for as long as volumes hang, and no longer than a node would.
    async fn hang(&self) {
        let over = async {
            loop {
                let put_right = self.shared.put_right.notified();
                if self.with(|state| state.trouble) != Some(Trouble::Hang) {
                    return;
                }
                put_right.await;
            }
        };
        let _ = timeout(DEADLINE, over).await;
    }

    /// Completes when a planned crash happens.
    pub async fn crashed(&self) {
        loop {
            let crash = self.shared.crash.notified();
            if self.with(|state| state.crashed) {
                return;
            }
            crash.await;
        }
    }

    /// Lets calls return again after a crash. What was made is still there.
    pub fn restart(&self) {
        self.with(|state| state.crashed = false);
    }

    /// Lets the machine start again: what was shown from memory is gone.
    pub fn reboot(&self) {
        let is_in_memory = |path: &Path| {
            let mut parts = path.components().map(|part| part.as_os_str());
            parts.any(|part| [SECRET, PROJECTED].iter().any(|plugin| part == *plugin))
        };
        self.with(|state| state.files.retain(|path, _| !is_in_memory(path)));
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Operation> {
        self.with(|state| state.calls.clone())
    }

    /// The pods that have volumes, with their names: what a leak would show in.
    pub fn pods(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.with(|state| state.pods.clone())
    }

    /// The sub paths that are ready.
    pub fn sub_paths(&self) -> BTreeSet<String> {
        self.with(|state| state.sub_paths.clone())
    }

    /// Writes a file of a volume, as a container would: the path is below where the volume is on the node.
    pub fn write(&self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.with(|state| state.files.insert(path.into(), content.into()));
    }

    /// What a file of a volume holds.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.with(|state| state.files.get(path.as_ref()).cloned())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call with an effect. It gives way once before, as a real one would.
    async fn call<T, E>(
        &self,
        operation: Operation,
        failed: impl FnOnce(io::Error) -> E + Send,
        effect: impl FnOnce(&mut State) -> Result<T, E> + Send,
    ) -> Result<T, E> {
        tokio::task::yield_now().await;
        let returned = self.with(|state| {
            if state.crashed {
                return None;
            }
            match state.enter(operation) {
                None => Some(effect(state)),
                Some(Fault::Fails(kind)) => Some(Err(failed(kind.into()))),
                Some(Fault::FailsAfterEffect(kind)) => {
                    Some(effect(state).and_then(|_| Err(failed(kind.into()))))
                }
                Some(Fault::CrashBeforeEffect) => {
                    state.crashed = true;
                    None
                }
                Some(Fault::CrashAfterEffect) => {
                    let _ = effect(state);
                    state.crashed = true;
                    None
                }
            }
        });
        match returned {
            Some(result) => result,
            None => {
                self.shared.crash.notify_waiters();
                never().await
            }
        }
    }

    /// What a pod's volumes show that are files, where drivers have put the others, or why neither.
    async fn collect(
        &self,
        pod: &Pod,
        node: &NodeContext,
        why: Why,
    ) -> Vec<(String, Result<Collected, PluginError>)> {
        let Held { contents, csi, lanes } = self.held();
        let deadline = Instant::now() + DEADLINE;
        let Ok(lane) = timeout_at(deadline, lanes.enter(&pod.metadata.uid)).await else {
            let busy = |volume: &str| (volume.to_owned(), Err(PluginError::Busy(DEADLINE)));
            return used_volumes(pod).into_iter().map(busy).collect();
        };
        let (used, shared, same) = (used_volumes(pod), Arc::new(pod.clone()), Lanes::default());
        let one = async |volume: &Volume| {
            let source = volume.source.one()?;
            let mut request = Request {
                pod: Arc::clone(&shared),
                volume: volume.name.as_str().into(),
                source: Arc::new(source.clone()),
                claimed: None,
                read_only: false,
                allocatable: Arc::new(node.facts.allocatable.clone()),
                pod_level: PodLevel::from(&node.features),
                places: self.places.clone(),
                clock: Clock::simulated(Timestamp::UNIX_EPOCH),
                events: Default::default(),
                threads: Arc::new(Semaphore::new(THREADS)),
                lane: lane.clone(),
            };
            let found = match source {
                VolumeSource::EmptyDir(_) | VolumeSource::HostPath(_) | VolumeSource::Image(_) => {
                    return None;
                }
                VolumeSource::PersistentVolumeClaim(_)
                | VolumeSource::Ephemeral(_)
                | VolumeSource::Csi(_) => {
                    if csi.is_some() && why == Why::Refresh {
                        return None;
                    }
                    let mounted = async {
                        request.claimed = claims::resolve(&*contents, pod, volume).await?;
                        request.read_only = request.claimed.as_ref().is_some_and(|claimed| claimed.read_only);
                        // Two volumes of a pod may be the same piece of storage.
                        let _alone = same.enter(request.spec_name()).await;
                        match &csi {
                            Some(csi) => csi.set_up(&request).await.map(Some),
                            None => Ok(None),
                        }
                    };
                    let mounted = timeout_at(deadline, mounted).await;
                    let mounted = mounted.unwrap_or(Err(PluginError::TimedOut(DEADLINE)));
                    let claimed = request.claimed.as_ref();
                    let group = claimed.and_then(|claimed| claims::group(&claimed.volume));
                    mounted.map(|mounted| Collected { mounted, group, ..Collected::default() })
                }
                _ => {
                    let files = collect(&request, &*contents).await;
                    files.map(|files| Collected { files, ..Collected::default() })
                }
            };
            Some((volume.name.to_string(), found))
        };
        let used = pod.spec.volumes.iter().filter(|volume| used.contains(volume.name.as_str()));
        join_all(used.map(one)).await.into_iter().flatten().collect()
    }

    /// What a node would have for a volume.
    fn mounted(&self, uid: &str, volume: &Volume) -> Result<MountedVolume, PluginError> {
        let source = volume.source.one().ok_or(PluginError::NoSource)?;
        let files = |plugin: &str, read_only| MountedVolume::Files {
            host_path: self.places.volume(uid, plugin, &volume.name).display().to_string(),
            read_only,
            relabel: true,
        };
        match source {
            VolumeSource::EmptyDir(_) => Ok(files(EMPTY_DIR, false)),
            VolumeSource::DownwardApi(_) => Ok(files(DOWNWARD_API, true)),
            VolumeSource::Projected(_) => Ok(files(PROJECTED, true)),
            VolumeSource::ConfigMap(_) => Ok(files(CONFIG_MAP, true)),
            VolumeSource::Secret(_) => Ok(files(SECRET, true)),
            VolumeSource::HostPath(path) => Ok(MountedVolume::Files {
                host_path: path.path.to_string(),
                read_only: false,
                relabel: false,
            }),
            VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_) => Ok(files(LOCAL, false)),
            VolumeSource::Image(image) => Ok(MountedVolume::Image(v1::ImageSpec {
                image: image.reference.to_string(),
                user_specified_image: image.reference.to_string(),
                ..v1::ImageSpec::default()
            })),
            other => Err(PluginError::Kind { kind: kind(other) }),
        }
    }

    /// The error of a volume whose directory could not be made.
    fn failed(&self, pod: &Pod, source: io::Error) -> Vec<VolumeError> {
        let volume = used_volumes(pod).into_iter().next().unwrap_or_default();
        let path = self.places.volumes(&pod.metadata.uid).join(volume);
        vec![self.of_first(pod, FileError { call: "mkdir", path, source }.into())]
    }

    fn of_first(&self, pod: &Pod, cause: PluginError) -> VolumeError {
        let volume = used_volumes(pod).into_iter().next().unwrap_or_default().to_owned();
        VolumeError::new(&volume, cause)
    }
}

impl State {
    /// Shows files in a volume instead of those before.
    fn show(&mut self, volume: &MountedVolume, files: Option<&Payload>) {
        let (MountedVolume::Files { host_path, .. }, Some(files)) = (volume, files) else { return };
        if files.is_incomplete() && self.files.keys().any(|path| path.starts_with(host_path)) {
            return;
        }
        self.files.retain(|path, _| !path.starts_with(host_path));
        for (path, file) in files.files() {
            self.files.insert(Path::new(host_path).join(path), file.content.clone());
        }
    }

    /// Counts a call and says what goes wrong with it.
    fn enter(&mut self, operation: Operation) -> Option<Fault> {
        self.calls.push(operation);
        let mut due = None;
        for (index, (only, passes, _)) in self.planned.iter_mut().enumerate() {
            if only.is_some_and(|only| only != operation) {
                continue;
            }
            match passes.checked_sub(1) {
                Some(left) => *passes = left,
                None => due = due.or(Some(index)),
            }
        }
        due.map(|index| self.planned.remove(index).2)
    }
}

fn never<T>() -> impl Future<Output = T> {
    std::future::pending()
}

#[async_trait]
impl Volumes for SimulatedVolumes {
    async fn set_up(
        &self,
        pod: &Pod,
        node: &NodeContext,
    ) -> Result<BTreeMap<String, MountedVolume>, Vec<VolumeError>> {
        self.trouble(pod).await?;
        let mut collected = self.collect(pod, node, Why::SetUp).await;
        let effect = |state: &mut State| {
            let (mut done, mut errors) = (BTreeMap::new(), Vec::new());
            let used = used_volumes(pod);
            for volume in pod.spec.volumes.iter().filter(|volume| used.contains(volume.name.as_str())) {
                let name = volume.name.to_string();
                let found = collected.iter_mut().find(|(of, _)| *of == name);
                let found = found.map_or_else(
                    || Ok(Collected::default()),
                    |(_, found)| std::mem::replace(found, Ok(Collected::default())),
                );
                let found = found.and_then(|Collected { files, mounted, group }| {
                    let groups = state.groups.entry(pod.metadata.uid.to_string()).or_default();
                    groups.extend(group);
                    Ok((mounted.map_or_else(|| self.mounted(&pod.metadata.uid, volume), Ok)?, files))
                });
                match found {
                    Ok((mounted, files)) => {
                        state.show(&mounted, files.as_ref());
                        done.insert(name, mounted);
                    }
                    Err(cause) => errors.push(VolumeError::new(&name, cause)),
                }
            }
            if !done.is_empty() {
                state.pods.entry(pod.metadata.uid.to_string()).or_default().extend(done.keys().cloned());
            }
            if errors.is_empty() { Ok(done) } else { Err(errors) }
        };
        self.call(Operation::SetUp, |error| self.failed(pod, error), effect).await
    }

    async fn refresh(&self, pod: &Pod, node: &NodeContext) -> Result<(), Vec<VolumeError>> {
        let collected = self.collect(pod, node, Why::Refresh).await;
        let effect = |state: &mut State| {
            let mut errors = Vec::new();
            for (name, found) in collected {
                let volume = pod.spec.volumes.iter().find(|volume| *volume.name == *name);
                let mounted = volume.map(|volume| self.mounted(&pod.metadata.uid, volume));
                match (found, mounted) {
                    (Ok(found), Some(Ok(mounted))) => state.show(&mounted, found.files.as_ref()),
                    (Err(cause), _) => errors.push(VolumeError::new(&name, cause)),
                    (Ok(_), Some(Err(_)) | None) => {}
                }
            }
            if errors.is_empty() { Ok(()) } else { Err(errors) }
        };
        self.call(Operation::Refresh, |error| self.failed(pod, error), effect).await
    }

    fn groups(&self, uid: &str) -> Vec<i64> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.get(uid).into_iter().flatten().copied().collect()
    }

    async fn sub_path(&self, wanted: &SubPath) -> Result<String, SubPathError> {
        self.hang().await;
        let path = self.places.sub_path(&wanted.uid, &wanted.volume, &wanted.container, wanted.index);
        let path = path.display().to_string();
        let failed = |error| SubPathError::NotPrepared {
            mount: wanted.volume.clone(),
            container: wanted.container.clone(),
            source: SubPathCause::Simulated(error),
        };
        let effect = |state: &mut State| {
            state.sub_paths.insert(path.clone());
            Ok(path)
        };
        self.call(Operation::SubPath, failed, effect).await
    }

    async fn read(&self, file: &VolumeFile, limit: usize) -> io::Result<Vec<u8>> {
        self.hang().await;
        let path = file.volume_path.join(&file.path);
        let effect = |state: &mut State| {
            let content = state.files.get(&path).ok_or(io::ErrorKind::NotFound)?;
            Ok(content[..content.len().min(limit)].to_owned())
        };
        self.call(Operation::Read, |error| error, effect).await
    }

    async fn tear_down(&self, uid: &str) -> Result<(), TearDownError> {
        let Held { csi, lanes, .. } = self.held();
        let entered = timeout(DEADLINE, lanes.enter(uid)).await;
        let _lane = entered.map_err(|_| TearDownError::TimedOut(DEADLINE))?;
        if let Some(csi) = csi {
            csi.tear_down(uid).await?;
        }
        let pod = self.places.pod(uid);
        let failed = |source| FileError { call: "remove", path: pod.clone(), source }.into();
        let below = format!("{}/", self.places.sub_paths(uid).display());
        let effect = |state: &mut State| {
            state.pods.remove(uid);
            state.groups.remove(uid);
            state.sub_paths.retain(|path| !path.starts_with(&below));
            state.files.retain(|path, _| !path.starts_with(&pod));
            Ok(())
        };
        self.call(Operation::TearDown, failed, effect).await
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::FeatureGates;
    use crablet_api::testing::pod_yaml;
    use crablet_core::translate::{NodeFacts, Settings};

    use super::*;

    fn node() -> NodeContext {
        NodeContext {
            facts: NodeFacts::default(),
            settings: Settings::default(),
            features: FeatureGates::default(),
        }
    }

    #[tokio::test]
    async fn what_was_set_up_is_there_until_it_is_taken_away() {
        let volumes = SimulatedVolumes::new();
        let pod = pod_yaml(
            "metadata: {name: p, uid: u}\nspec: {containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}]}],
             volumes: [{name: v, emptyDir: {}}, {name: unused, nfs: {server: s, path: /}}]}",
        );
        volumes.plan(Some(Operation::SetUp), 1, Fault::FailsAfterEffect(io::ErrorKind::StorageFull));
        let errors = volumes.set_up(&pod, &node()).await.unwrap_err();
        assert_eq!(
            errors[0].to_string(),
            "MountVolume.SetUp failed for volume \"v\" : mkdir /var/lib/kubelet/pods/u/volumes/v: no storage space"
        );
        assert_eq!(volumes.pods()["u"], BTreeSet::from(["v".to_owned()]));
        let mounted = volumes.set_up(&pod, &node()).await.unwrap();
        let MountedVolume::Files { host_path, .. } = &mounted["v"] else { panic!("{mounted:?}") };
        assert_eq!(host_path, "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v");
        let wanted = SubPath {
            uid: "u".into(),
            container: "c".into(),
            index: 0,
            volume: "v".into(),
            volume_path: host_path.into(),
            path: "a".into(),
        };
        let path = volumes.sub_path(&wanted).await.unwrap();
        assert_eq!(volumes.sub_paths(), BTreeSet::from([path]));
        volumes.refresh(&pod, &node()).await.unwrap();
        volumes.tear_down("u").await.unwrap();
        assert!(volumes.pods().is_empty() && volumes.sub_paths().is_empty());
        assert_eq!(volumes.calls().len(), 5);
    }

    #[tokio::test]
    async fn after_a_crash_nothing_returns_until_the_restart() {
        let volumes = SimulatedVolumes::new();
        volumes.plan(None, 1, Fault::CrashBeforeEffect);
        tokio::select! {
            biased;
            _ = volumes.tear_down("u") => panic!("returned"),
            () = volumes.crashed() => {}
        }
        volumes.restart();
        volumes.tear_down("u").await.unwrap();
    }
}
