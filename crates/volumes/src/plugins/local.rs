//! `local`: a directory of this node that a claim leads to, or a device.
//!
//! A device that is not wanted as one is mounted once on the node, formatted if there is nothing on it, and bound to each
//! pod from there. The mount table says whether a pod still has it. Where the piece of storage has become larger, so
//! does the file system on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use crablet_api::Quantity;
use crablet_api::core::{PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;
use crablet_host::lanes::{Lane, Lanes};
use crablet_host::mounts::{self, MountTable, PROC_SELF_MOUNTINFO, UnmountMode};
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::warn;

use crate::claims::{is_block, mount_options};
use crate::contents::Contents;
use crate::device_map::DeviceMap;
use crate::error::{LocalPathError, PluginError, failed};
use crate::events::{Occurrence, VolumeEvent};
use crate::expand::{ExpandError, Expansion, Moment, Sizes};
use crate::files::make_all;
use crate::inventory::PluginName;
use crate::metrics::{Metrics, Operation};
use crate::ownership::{self, ChangePolicy, Ownership};
use crate::places::{LOCAL, Places};
use crate::plugin::{Plugin, Request};
use crate::tools;

/// Volumes of the kind `local`.
#[derive(Clone)]
pub struct Local(Arc<Inner>);

struct Inner {
    contents: Arc<dyn Contents>,
    /// One thing at a time for each piece of storage, so that the next pod sees that it is not the first.
    lanes: Lanes,
    sizes: Sizes,
    /// The UIDs of the pods that have a piece of storage, by its name.
    users: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// The pieces of storage whose devices somebody is about to look at.
    waited_for: Mutex<BTreeSet<String>>,
    metrics: OnceLock<Arc<Metrics>>,
}

#[async_trait]
impl Plugin for Local {
    fn supports(&self, _: &VolumeSource) -> bool {
        false
    }

    fn supports_persistent(&self, source: &PersistentVolumeSource) -> bool {
        matches!(source, PersistentVolumeSource::Local(_))
    }

    fn refreshes(&self) -> bool {
        true
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let Some(PersistentVolumeSource::Local(source)) = request.persistent_source() else {
            return Err(PluginError::NoSource);
        };
        let from = PathBuf::from(&*source.path);
        if is_device(request) {
            let map = map_for(&request.places, request.uid(), request.spec_name());
            let host_path = Some(map.in_pod.display().to_string());
            request.blocking(move |request| map.map_for(request, &from)).await?;
            self.expand_if_smaller(request, Moment::Map).await?;
            return Ok(MountedVolume::Device { host_path, read_only: request.read_only });
        }
        let format = source.fs_type.as_deref().filter(|format| !format.is_empty());
        let format = format.unwrap_or(tools::DEFAULT_FORMAT).to_owned();
        let lane = self.0.lanes.enter(request.spec_name()).await;
        let work = move |request: &Request| {
            let _lane = lane;
            mount(request, &from, &format)
        };
        let mounted = request.blocking(work).await?;
        self.expand_if_smaller(request, Moment::Mount).await?;
        Ok(mounted)
    }

    /// What is there is not looked at, but for its size.
    async fn refresh(&self, request: &Request) -> Result<(), PluginError> {
        self.expand_if_smaller(request, Moment::InUse).await
    }
}

impl Local {
    pub fn new(contents: Arc<dyn Contents>) -> Local {
        Local(Arc::new(Inner {
            contents,
            lanes: Lanes::default(),
            sizes: Sizes::default(),
            users: Mutex::default(),
            waited_for: Mutex::default(),
            metrics: OnceLock::new(),
        }))
    }

    /// Has what is done counted.
    pub(crate) fn count_in(&self, metrics: &Arc<Metrics>) {
        // Once is enough: it is always the same.
        let _ = self.0.metrics.set(Arc::clone(metrics));
    }

    fn count(&self, what: Operation, is_done: bool, since: Instant) {
        if let Some(metrics) = self.0.metrics.get() {
            metrics.operation(&PluginName::LOCAL, what, is_done, since.elapsed());
        }
    }

    /// Whether a pod has a volume whose size is to be looked at now and then.
    pub(crate) fn looks(&self, uid: &str) -> bool {
        lock(&self.0.users).values().any(|users| users.contains(uid))
    }

    /// A pod has no volume any more.
    pub(crate) fn forget(&self, uid: &str) {
        for (name, _) in lock(&self.0.users).extract_if(.., |_, users| users.remove(uid) && users.is_empty())
        {
            self.0.sizes.forget(&name);
        }
    }

    /// Has a volume that a pod has expanded, if it is smaller than its piece of storage. Bare devices and directories
    /// are as large as they are, which is then said of them.
    async fn expand_if_smaller(&self, request: &Request, moment: Moment) -> Result<(), PluginError> {
        let Some(PersistentVolumeSource::Local(source)) = request.persistent_source() else {
            return Err(PluginError::NoSource);
        };
        let name = request.spec_name();
        if !request.read_only {
            lock(&self.0.users).entry(name.to_owned()).or_default().insert(request.uid().to_owned());
        }
        let (from, target) =
            (PathBuf::from(&*source.path), request.places.volume(request.uid(), LOCAL, name));
        let expand = |_: Quantity, lane: Lane| {
            let is_device = is_device(request);
            let work = request.blocking(move |_| {
                let _lane = lane;
                match is_device {
                    true => Ok(()),
                    false => enlarge_files(&from, &target),
                }
            });
            async move {
                let began = Instant::now();
                let done = work.await.map_err(|error| ExpandError::Local(Box::new(error)));
                if moment == Moment::InUse {
                    self.count(Operation::Resize, done.is_ok(), began);
                }
                done
            }
            .boxed()
        };
        let (sizes, contents) = (&self.0.sizes, &*self.0.contents);
        let expansion = Expansion { sizes, contents, request, key: name, moment };
        let done = expansion.run(self.0.lanes.enter(name), expand).await;
        done.map_err(|cause| PluginError::Expand { moment, cause })
    }

    /// Unmounts those of these devices that no pod has any more. No pod waits for it, since somebody may work on one for
    /// long, or a disk may hang. One that cannot be unmounted is tried again when the next pod goes.
    pub(crate) fn unmount_unused(&self, places: &Places, mounted: Vec<String>) {
        for name in mounted {
            // Who waits for a device looks at it after its wait, and so for all that went meanwhile.
            if lock(&self.0.waited_for).insert(name.clone()) {
                tokio::spawn(self.clone().unmount_device(places.clone(), name));
            }
        }
    }

    async fn unmount_device(self, places: Places, name: String) {
        let lane = self.0.lanes.enter(&name).await;
        lock(&self.0.waited_for).remove(&name);
        let (pods, place) = (places.root().join("pods"), places.local_mounts().join(&name));
        let unmount = move || {
            let _lane = lane;
            unmount_if_unused(&pods, &place)
        };
        let began = Instant::now();
        let done = tokio::task::spawn_blocking(unmount).await.unwrap_or(Err(PluginError::Panicked));
        if !matches!(done, Ok(Unused::No)) {
            self.count(Operation::UnmountDevice, done.is_ok(), began);
        }
        if let Err(error) = done {
            warn!(volume = name, %error, "Cannot unmount a device that no pod has");
        }
    }
}

/// The pieces of storage whose devices are mounted on the node.
pub(crate) fn mounted(places: &Places) -> Vec<String> {
    let entries = fs::read_dir(places.local_mounts()).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether a device was one that no pod has, and is mounted no more.
enum Unused {
    Yes,
    No,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_device(request: &Request) -> bool {
    request.claimed.as_ref().is_some_and(|claimed| is_block(&claimed.volume))
}

/// What the path of a local volume leads to.
enum Kind {
    Directory,
    Device,
}

fn kind_of(path: &Path) -> Result<Kind, LocalPathError> {
    if path.as_os_str().is_empty() {
        return Err(LocalPathError::Empty);
    }
    let kind = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LocalPathError::NotThere(path.to_owned()));
        }
        found => found.map_err(failed("stat", path))?.file_type(),
    };
    match (kind.is_dir(), kind.is_block_device()) {
        (true, _) => Ok(Kind::Directory),
        (false, true) => Ok(Kind::Device),
        (false, false) => Err(LocalPathError::Kind),
    }
}

/// Makes the file system on a device as large as that, if it is one.
fn enlarge_files(from: &Path, target: &Path) -> Result<(), PluginError> {
    match kind_of(from)? {
        Kind::Directory => Ok(()),
        Kind::Device => Ok(tools::resize(from, target)?),
    }
}

fn unmount_if_unused(pods: &Path, place: &Path) -> Result<Unused, PluginError> {
    let table = MountTable::shared().map_err(PluginError::MountTable)?;
    let resolved = |path: &Path| mounts::resolved(path).map_err(failed("lstat", path));
    let pods = resolved(pods)?;
    if let Some(own) = table.at(&resolved(place)?) {
        let mut of_pods = table.under(&pods).into_iter();
        if of_pods.any(|mount| mount.device == own.device) {
            return Ok(Unused::No);
        }
        mounts::unmount(place, UnmountMode::Plain)?;
    }
    fs::remove_dir(place).map_err(failed("remove", place))?;
    Ok(Unused::Yes)
}

fn map_for(places: &Places, uid: &str, name: &str) -> DeviceMap {
    DeviceMap {
        on_node: places.node_devices(LOCAL).join(name).join(uid),
        in_pod: places.devices(uid).join(LOCAL).join(name),
    }
}

/// Takes a pod's devices from it. Nothing of the pod runs.
pub(crate) fn tear_down_devices(places: &Places, uid: &str) -> Result<(), PluginError> {
    // It is made before all the rest, and goes last.
    if !places.devices(uid).join(LOCAL).exists() {
        return Ok(());
    }
    let devices = places.node_devices(LOCAL);
    let entries = match fs::read_dir(&devices) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("open", &devices))?,
    };
    for entry in entries {
        let name = entry.map_err(failed("readdirent", &devices))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let map = map_for(places, uid, name);
        if map.is_reserved() {
            map.unmap()?;
            map.forget()?;
            // It stays while another pod has the device.
            let _ = fs::remove_dir(devices.join(name));
        }
    }
    Ok(())
}

fn mount(request: &Request, from: &Path, format: &str) -> Result<MountedVolume, PluginError> {
    let from = match kind_of(from)? {
        Kind::Directory => from.to_owned(),
        Kind::Device => {
            mount_device(request, from, format).map_err(|cause| PluginError::MountDevice(Box::new(cause)))?
        }
    };
    if from.components().any(|part| part == Component::ParentDir) {
        return Err(PluginError::LocalBacksteps(from.display().to_string()));
    }
    let target = request.places.volume(request.uid(), LOCAL, request.spec_name());
    make_all(&target, 0o750)?;
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).map_err(PluginError::MountTable)?;
    let resolved = mounts::resolved(&target).map_err(failed("lstat", &target))?;
    let there = table.at(&resolved);
    let options = options(request);
    if there.is_none() {
        // Before it is mounted, which says that it is done: what a pod makes of its files is the pod's then.
        match is_mounted_for_others(request, &table, &from, &resolved)? {
            true => warn_of_other_group(request, &from)?,
            false if request.read_only || options.contains("ro") => {}
            false => give_to_group(request, &from, &target)?,
        }
        mounts::bind(&from, &target, false)?;
    }
    let is_read_only = there.is_some_and(|mount| mount.has_option("ro"));
    if let Err(error) = set_options(request, options, &from, &target, is_read_only) {
        // Nobody has what was not there before. The first error is the one to tell.
        if there.is_none() {
            let _ = mounts::unmount(&target, UnmountMode::Plain);
        }
        return Err(error);
    }
    let host_path = target.display().to_string();
    Ok(MountedVolume::Files { host_path, read_only: request.read_only, relabel: true })
}

/// A bind mount gets its options in a second step, which whoever began may not have come to.
fn set_options(
    request: &Request,
    mut options: BTreeSet<String>,
    from: &Path,
    target: &Path,
    is_read_only: bool,
) -> Result<(), PluginError> {
    if options.is_empty() {
        return match request.read_only && !is_read_only {
            true => Ok(mounts::remount_bind_read_only(target)?),
            false => Ok(()),
        };
    }
    if request.read_only {
        options.insert("ro".to_owned());
    }
    let options: Vec<&str> = ["bind", "remount"].into_iter().chain(options.iter().map(|it| &**it)).collect();
    let [from, target] = [from, target].map(|path| path.display().to_string());
    Ok(tools::mount(&["-o", &options.join(","), &from, &target])?)
}

/// What the piece of storage wants to be mounted with.
fn options(request: &Request) -> BTreeSet<String> {
    request.claimed.as_ref().map(|claimed| mount_options(&claimed.volume)).unwrap_or_default()
}

/// Mounts a device on the node, where it is not, and says where.
fn mount_device(request: &Request, device: &Path, format: &str) -> Result<PathBuf, PluginError> {
    let place = request.places.local_mounts().join(request.spec_name());
    make_all(&place, 0o750)?;
    if mounts::is_mount_point(&place).map_err(PluginError::MountTable)? {
        return Ok(place);
    }
    let mut options = options(request);
    if request.read_only {
        options.insert("ro".to_owned());
    }
    let mounted = tools::format_and_mount(device, &place, format, options.into_iter().collect());
    mounted.map_err(|cause| {
        // It is only a place to mount something on; the first error is the one to tell.
        let _ = fs::remove_dir(&place);
        let (device, place, format) = (device.to_owned(), place.clone(), format.to_owned());
        PluginError::LocalDevice { device, place, format, cause: Box::new(cause) }
    })?;
    Ok(place)
}

/// Files that belong to another group than the pod's stay as they are while another pod has them, which people are told.
fn warn_of_other_group(request: &Request, from: &Path) -> Result<(), PluginError> {
    let Some(wanted) = ownership::group_of_pod(&request.pod) else { return Ok(()) };
    let found = fs::metadata(from).map_err(failed("stat", from))?.gid();
    if found != wanted {
        let volume = request.spec_name();
        request.tell(VolumeEvent {
            what: Occurrence::OtherGroup,
            message: format!(
                "The requested fsGroup is {wanted}, but the volume {volume} has GID {found}. The volume may not be shareable."
            ),
            claim: None,
        });
    }
    Ok(())
}

/// Whether another pod has the directory. Then its files are as they should be, or as that pod wants them.
fn is_mounted_for_others(
    request: &Request,
    table: &MountTable,
    from: &Path,
    here: &Path,
) -> Result<bool, PluginError> {
    let from = from.canonicalize().map_err(failed("lstat", from))?;
    let pods = request.places.root().join("pods");
    let pods = pods.canonicalize().map_err(failed("lstat", &pods))?;
    let mut elsewhere = table.elsewhere(&from).into_iter().map(|mount| &mount.mount_point);
    Ok(elsewhere.any(|path| path != here && path.starts_with(&pods)))
}

fn give_to_group(request: &Request, from: &Path, target: &Path) -> Result<(), PluginError> {
    let Some(group) = ownership::group_of_pod(&request.pod) else { return Ok(()) };
    let policy = ChangePolicy::of_pod(&request.pod);
    Ok(ownership::give(request, from, target, Ownership { group, read_only: false, policy })?)
}
