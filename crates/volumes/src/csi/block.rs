//! Volumes of CSI drivers that pods have as bare devices: `volumeMode: Block`.
//!
//! They are staged and published as others are, in upstream's directories for devices, which have the name of the piece
//! of storage, and then mapped for the pod. The mount table does not show that a device is staged: what is bound for a
//! pod is staged too, and beyond that each agent remembers what it staged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_api::storage::CsiDriver;
use crablet_core::translate::MountedVolume;
use crablet_csi::{Access, AccessMode, NodeCapabilities, PublishVolume, StageVolume, VolumeCapability};
use crablet_host::lanes::Lane;
use tracing::{info, warn};

use super::vol_data::{self, VolumeData};
use super::{
    Csi, NotTakenBack, Ready, Registered, Staged, Wanted, forget, lock, pod_info, remove_place,
    requires_republish, text,
};
use crate::beneath::Method;
use crate::claims::is_block;
use crate::device_map::{DeviceMap, during, is_device};
use crate::error::PluginError;
use crate::files::make_all;
use crate::machine::{Machine, work_on};
use crate::places::{CSI, Places};
use crate::plugin::Request;
use crate::remove_tree::remove_tree;

/// The directories for all devices, beside those of each.
const STAGING: &str = "staging";
const PUBLISH: &str = "publish";
/// What an error begins with.
const NO_SECRET: &str =
    "kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef";

/// A device that is, or may be, staged, as it is found on the disk.
pub(super) struct Found {
    pub(super) staged: Staged,
    /// The pods that may have it.
    pub(super) users: BTreeSet<String>,
    /// Whether one of them has.
    pub(super) is_bound: bool,
}

/// Where a device's things are.
#[derive(Clone)]
pub(super) struct Device {
    directory: PathBuf,
    pub(super) staging: PathBuf,
    pub(super) publish: PathBuf,
}

impl Device {
    pub(super) fn new(places: &Places, name: &str) -> Device {
        let devices = places.csi_devices();
        Device {
            directory: devices.join(name),
            staging: devices.join(STAGING).join(name),
            publish: devices.join(PUBLISH).join(name),
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn map(&self, places: &Places, uid: &str, name: &str) -> DeviceMap {
        DeviceMap {
            on_node: self.directory.join("dev").join(uid),
            in_pod: places.devices(uid).join(CSI).join(name),
        }
    }

    /// Removes empty directories of a device of which nothing is written.
    fn forget_empty(&self, machine: &dyn Machine) -> Result<(), PluginError> {
        // What is written and cannot be read keeps the rest.
        let within = [&self.data(), &self.staging, &self.publish, &self.directory.join("dev")];
        within.into_iter().try_for_each(|place| remove_place(machine, place))?;
        remove_place(machine, &self.directory)
    }

    /// Forgets a device that is not staged and that no pod has. What is written of it goes last.
    fn forget(&self, machine: &dyn Machine) -> Result<(), PluginError> {
        remove_place(machine, &self.staging)?;
        if let Err(error) = remove_place(machine, &self.publish) {
            // No driver asks for it, nor does it keep anybody from using the directory again.
            warn!(%error, "A driver left something where it published a device");
        }
        forget(machine, &self.data(), &self.directory.join("dev"))?;
        remove_place(machine, &self.directory)
    }

    /// Forgets a device that the driver has unstaged, with what the driver left of it.
    fn forget_unstaged(&self, machine: &dyn Machine) -> Result<(), PluginError> {
        remove_tree(&self.staging, Method::Kernel).map_err(|error| PluginError::Left(error.to_string()))?;
        self.forget(machine)
    }
}

/// The devices of all drivers that are, or may be, staged.
pub(super) fn found(machine: &dyn Machine, places: &Places) -> Vec<Found> {
    let mut all = Vec::new();
    for directory in vol_data::listed(machine, &places.csi_devices()) {
        let Some(name) = directory.file_name().and_then(|name| name.to_str()) else { continue };
        if [STAGING, PUBLISH].contains(&name) {
            continue;
        }
        let device = Device::new(places, name);
        let Some(data) = vol_data::readable(machine, &device.data()) else {
            // An agent died before it asked for anything, or after all was taken back. What is not empty stays.
            let _ = device.forget_empty(machine);
            continue;
        };
        let uid = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        // Nobody knows who has a device whose users cannot be read: it stays as it is.
        let users = machine.children(&directory.join("dev"));
        let users = users.and_then(|mapped| Ok((mapped, machine.children(&device.publish)?)));
        let (mapped, published) = match users {
            Ok(users) => users,
            Err(error) => {
                warn!(%error, "Cannot tell which pods have a device");
                continue;
            }
        };
        let is_bound = mapped.iter().any(|path| is_device(path));
        // The other agent says first by what is published that a pod has it.
        let published = published.into_iter().filter_map(uid);
        let published = published.filter(|uid| places.pod(uid).exists());
        let users = mapped.into_iter().filter_map(uid).chain(published).collect();
        all.push(Found { staged: Staged::device(&data, name), users, is_bound });
    }
    all
}

/// Whether a pod wants a volume as a device.
pub(super) fn is_wanted(request: &Request) -> bool {
    request.claimed.as_ref().is_some_and(|claimed| is_block(&claimed.volume))
}

/// What is staged for a pod that wants a volume: as a device, or not.
pub(super) fn staged(request: &Request, wanted: &Wanted) -> Staged {
    let device = is_wanted(request).then(|| request.spec_name().to_owned());
    Staged { device, ..wanted.staged() }
}

/// What is to be done for a pod.
struct Task<'a> {
    request: &'a Request,
    wanted: &'a Wanted,
    driver: Arc<Registered>,
    capabilities: NodeCapabilities,
    of_cluster: Option<Arc<CsiDriver>>,
    context: BTreeMap<String, String>,
    staged: Staged,
    device: Device,
    map: DeviceMap,
}

impl Task<'_> {
    fn capability(&self) -> VolumeCapability {
        VolumeCapability {
            access: Access::Block,
            access_mode: AccessMode::of_persistent_volume(&self.wanted.access_mode, self.capabilities),
        }
    }
}

impl Csi {
    pub(super) async fn set_up_device(
        &self,
        request: &Request,
        wanted: &Wanted,
        ready: Ready,
    ) -> Result<MountedVolume, PluginError> {
        let staged = async {
            let (task, lane) = self.task(request, wanted, ready).await?;
            self.stage_device(&task).await?;
            drop(lane);
            Ok(task)
        };
        let task = staged.await.map_err(during("SetUpDevice"))?;
        let published = self.publish_device(&task).await.map_err(during("MapPodDevice"))?;
        let in_pod = task.map.in_pod.clone();
        request.blocking(move |request| task.map.map_for(request, &published)).await?;
        Ok(MountedVolume::Device { host_path: Some(text(&in_pod)), read_only: request.read_only })
    }

    /// With the volume's lane.
    async fn task<'a>(
        &self,
        request: &'a Request,
        wanted: &'a Wanted,
        ready: Ready,
    ) -> Result<(Task<'a>, Option<Lane>), PluginError> {
        let Ready { of_cluster, context, lane } = ready;
        let staged = staged(request, wanted);
        let driver = self.driver(&wanted.driver)?;
        let capabilities = driver.capabilities().await?;
        let device = Device::new(&self.0.places, request.spec_name());
        let map = device.map(&self.0.places, request.uid(), request.spec_name());
        let task = Task { request, wanted, driver, capabilities, of_cluster, context, staged, device, map };
        Ok((task, lane))
    }

    async fn stage_device(&self, task: &Task<'_>) -> Result<(), PluginError> {
        let Task { request, wanted, staged, device, .. } = task;
        let data = VolumeData {
            spec_vol_id: Some(request.spec_name().to_owned()),
            node_name: Some(self.0.node.clone()),
            attachment_id: Some(self.attachment(wanted)),
            ..VolumeData::of_staged(&wanted.driver, &wanted.handle)
        };
        let is_staged = lock(&self.0.staged).contains_key(staged);
        let stages = task.capabilities.stage_unstage_volume && !is_staged;
        let secret = wanted.stage_secret.as_ref().filter(|_| stages);
        let secrets =
            self.secrets(secret, ("kubernetes.io/csi: failed to get NodeStageSecretRef", "")).await?;
        let (here, machine) = (device.clone(), Arc::clone(&self.0.machine));
        let made = request.blocking(move |_| {
            make_all(&here.data(), 0o750)?;
            if let Some(there) = vol_data::read(&*machine, &here.data())?
                && (&there.driver_name, &there.volume_handle) != (&data.driver_name, &data.volume_handle)
            {
                let why = format!("{} still holds {:?}", here.directory.display(), there.volume_handle);
                return Err(PluginError::VolumeData(why));
            }
            vol_data::write(&*machine, &here.data(), &data)?;
            if stages {
                make_all(&here.staging, 0o750)?;
            }
            Ok(())
        });
        made.await?;
        if !stages {
            return Ok(());
        }
        let volume = StageVolume {
            volume_id: wanted.handle.clone(),
            staging_target_path: text(&device.staging),
            capability: task.capability(),
            publish_context: task.context.clone(),
            volume_context: wanted.attributes.clone(),
            secrets,
        };
        match task.driver.node.stage(volume).await {
            Ok(()) => {
                lock(&self.0.staged).insert(staged.clone(), false);
                Ok(())
            }
            Err(error) => {
                if error.is_final() {
                    let device = device.clone();
                    // The error of the driver is the one to tell.
                    if let Err(error) = work_on(&self.0.machine, move |machine| device.forget(machine)).await
                    {
                        warn!(%error, "Cannot forget a device that was not staged");
                    }
                }
                Err(PluginError::Csi(error))
            }
        }
    }

    /// Where the driver has put the device for the pod.
    async fn publish_device(&self, task: &Task<'_>) -> Result<PathBuf, PluginError> {
        let Task { request, wanted, device, map, .. } = task;
        let target = device.publish.join(request.uid());
        let is_published = {
            let (map, target) = (map.clone(), target.clone());
            request.blocking(move |_| Ok(map.is_bound() && is_device(&target)))
        };
        let is_published = is_published.await?;
        let of_cluster = task.of_cluster.as_ref().map(|driver| &driver.spec);
        let republishes = requires_republish(task.of_cluster.as_deref());
        self.0.uses.note_republished(request.uid(), request.spec_name(), &wanted.driver, republishes);
        if is_published && !republishes {
            return Ok(target);
        }
        let mut attributes = wanted.attributes.clone();
        if of_cluster.is_some_and(|driver| driver.pod_info_on_mount == Some(true)) {
            attributes.extend(pod_info(request, &wanted.mode));
        }
        let volume = PublishVolume {
            volume_id: wanted.handle.clone(),
            // As upstream: to a driver that does not stage too.
            staging_target_path: text(&device.staging),
            target_path: text(&target),
            capability: task.capability(),
            read_only: request.read_only,
            publish_context: task.context.clone(),
            volume_context: attributes,
            secrets: self.secrets(wanted.publish_secret.as_ref(), (NO_SECRET, "")).await?,
        };
        let made = {
            let (map, publish) = (map.clone(), device.publish.clone());
            request.blocking(move |_| {
                map.reserve()?;
                Ok(make_all(&publish, 0o750)?)
            })
        };
        made.await?;
        match task.driver.node.publish(volume).await {
            Ok(()) => Ok(target),
            Err(error) => {
                if error.is_final() && !is_published {
                    let map = map.clone();
                    // The error of the driver is the one to tell.
                    let undone = request.blocking(move |_| map.unmap().and_then(|()| map.forget()));
                    if let Err(error) = undone.await {
                        warn!(%error, "Cannot forget a device that was not published");
                    }
                }
                Err(PluginError::Csi(error))
            }
        }
    }

    /// Takes a pod's devices from it and asks drivers to take them back. Nothing of the pod runs.
    /// What could not be taken back is told of.
    pub(super) async fn tear_down_devices(&self, uid: &str) -> Vec<NotTakenBack> {
        let mut failed = Vec::new();
        for staged in self.0.uses.devices(uid) {
            if let Err(error) = self.tear_down_device(uid, &staged).await {
                failed.push((Some(staged), error));
            }
        }
        failed
    }

    async fn tear_down_device(&self, uid: &str, staged: &Staged) -> Result<(), PluginError> {
        if let Some(name) = &staged.device {
            let device = Device::new(&self.0.places, name);
            let (map, target) = (device.map(&self.0.places, uid, name), device.publish.join(uid));
            let unmapped = {
                let (map, target) = (map.clone(), target.clone());
                blocking(move || {
                    map.unmap()?;
                    Ok(map.is_reserved() || fs::symlink_metadata(target).is_ok())
                })
            };
            if unmapped.await? {
                let driver = self.driver(&staged.driver)?;
                driver.node.unpublish(&staged.handle, &text(&target)).await.map_err(PluginError::Csi)?;
            }
            blocking(move || map.forget()).await?;
        }
        Ok(())
    }

    pub(super) async fn unstage_device(&self, staged: &Staged, name: &str) -> Result<(), PluginError> {
        let device = Device::new(&self.0.places, name);
        let is_it = vol_data::read(&*self.0.machine, &device.data())?
            .is_some_and(|data| Staged::device(&data, name) == *staged);
        lock(&self.0.staged).remove(staged);
        if !is_it {
            return Ok(());
        }
        if device.staging.exists() {
            let driver = self.driver(&staged.driver)?;
            if driver.capabilities().await?.stage_unstage_volume {
                let done = driver.node.unstage(&staged.handle, &text(&device.staging)).await;
                done.map_err(PluginError::Csi)?;
            }
        }
        info!(driver = staged.driver, volume = staged.handle, "Unstaged a device that no pod uses");
        work_on(&self.0.machine, move |machine| device.forget_unstaged(machine)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(PluginError::Panicked))
}
