//! What a kind of volume is to the agent.

use std::sync::Arc;

use async_trait::async_trait;
use crablet_api::core::{PersistentVolumeSource, Pod, ResourceList, VolumeSource};
use crablet_core::qos::PodLevel;
use crablet_core::translate::MountedVolume;
use crablet_host::clock::Clock;
use crablet_host::lanes::Lane;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::claims::Claimed;
use crate::error::PluginError;
use crate::events::{Events, VolumeEvent};
use crate::places::Places;

/// How many threads a pod's volumes have for what may wait: a pod whose disks do not answer takes no more.
pub(crate) const THREADS: usize = 4;

/// A kind of volume.
///
/// A plugin keeps nothing in memory: whether a volume is there already, it finds on the disk and in the mount table. So
/// every call can be repeated, after a call that was given up half-way too.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Whether volumes with this source are this plugin's.
    fn supports(&self, source: &VolumeSource) -> bool;

    /// Whether pieces of storage of this kind, which claims lead to, are this plugin's.
    fn supports_persistent(&self, _: &PersistentVolumeSource) -> bool {
        false
    }

    /// Whether what the volume shows changes while the pod lives, such that setting it up again brings it up to date.
    fn refreshes(&self) -> bool;

    /// Makes a volume, or what is missing of it. Work that may wait for a disk or a server goes through
    /// [`Request::blocking`].
    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError>;

    /// Brings a volume up to date that was set up.
    async fn refresh(&self, request: &Request) -> Result<(), PluginError> {
        self.set_up(request).await.map(drop)
    }
}

/// A volume of a pod that should be there. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Request {
    pub pod: Arc<Pod>,
    /// The volume's name in the pod.
    pub volume: Arc<str>,
    /// Where its content comes from.
    pub source: Arc<VolumeSource>,
    /// The piece of storage that its claim leads to, if it is one.
    pub claimed: Option<Claimed>,
    /// Whether it is for reading only, whoever says so.
    pub read_only: bool,
    /// What pods may use of the node.
    pub allocatable: Arc<ResourceList>,
    /// Whether resources of the pod as a whole are counted.
    pub pod_level: PodLevel,
    /// Where volumes are.
    pub places: Places,
    /// What time it is.
    pub clock: Clock,
    pub(crate) events: Events,
    /// What the pod's volumes have together.
    pub(crate) threads: Arc<Semaphore>,
    #[expect(dead_code, reason = "held for as long as a clone lives, and not read")]
    pub(crate) lane: Lane,
}

impl Request {
    /// The pod's UID.
    pub fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    /// What upstream calls the volume: the name of what its claim leads to, or its own.
    pub fn spec_name(&self) -> &str {
        self.claimed.as_ref().map_or(&self.volume, |claimed| &claimed.volume.metadata.name)
    }

    /// Where the piece of storage is that its claim leads to.
    pub fn persistent_source(&self) -> Option<&PersistentVolumeSource> {
        self.claimed.as_ref()?.volume.spec.source.one()
    }

    /// Has something told to people that happened to the volume.
    pub(crate) fn tell(&self, event: VolumeEvent) {
        self.events.push(self.uid(), event);
    }

    /// Does work that may wait, on a thread of its own. If nobody waits for it any longer it goes on, and until it ends
    /// nothing new is begun for this pod's volumes: two at once would be in each other's way.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Request) -> Result<T, PluginError> + Send + 'static,
    ) -> Result<T, PluginError> {
        let (request, thread) = (self.clone(), self.thread().await);
        let work = move || {
            let _thread = thread;
            work(&request)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or(Err(PluginError::Panicked))
    }

    /// Waits for one of the threads that the pod's volumes have, which is theirs again when this is dropped.
    pub(crate) async fn thread(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.threads).acquire_owned().await.ok()
    }
}

/// What a pod's manifest calls this kind of volume.
pub fn kind(source: &VolumeSource) -> &'static str {
    match source {
        VolumeSource::HostPath(_) => "hostPath",
        VolumeSource::EmptyDir(_) => "emptyDir",
        VolumeSource::GcePersistentDisk(_) => "gcePersistentDisk",
        VolumeSource::AwsElasticBlockStore(_) => "awsElasticBlockStore",
        VolumeSource::GitRepo(_) => "gitRepo",
        VolumeSource::Secret(_) => "secret",
        VolumeSource::Nfs(_) => "nfs",
        VolumeSource::Iscsi(_) => "iscsi",
        VolumeSource::Glusterfs(_) => "glusterfs",
        VolumeSource::PersistentVolumeClaim(_) => "persistentVolumeClaim",
        VolumeSource::Rbd(_) => "rbd",
        VolumeSource::FlexVolume(_) => "flexVolume",
        VolumeSource::Cinder(_) => "cinder",
        VolumeSource::CephFs(_) => "cephfs",
        VolumeSource::Flocker(_) => "flocker",
        VolumeSource::DownwardApi(_) => "downwardAPI",
        VolumeSource::Fc(_) => "fc",
        VolumeSource::AzureFile(_) => "azureFile",
        VolumeSource::ConfigMap(_) => "configMap",
        VolumeSource::VsphereVolume(_) => "vsphereVolume",
        VolumeSource::Quobyte(_) => "quobyte",
        VolumeSource::AzureDisk(_) => "azureDisk",
        VolumeSource::PhotonPersistentDisk(_) => "photonPersistentDisk",
        VolumeSource::Projected(_) => "projected",
        VolumeSource::PortworxVolume(_) => "portworxVolume",
        VolumeSource::ScaleIo(_) => "scaleIO",
        VolumeSource::StorageOs(_) => "storageos",
        VolumeSource::Csi(_) => "csi",
        VolumeSource::Ephemeral(_) => "ephemeral",
        VolumeSource::Image(_) => "image",
    }
}

/// What a piece of storage calls this kind.
pub fn persistent_kind(source: &PersistentVolumeSource) -> &'static str {
    match source {
        PersistentVolumeSource::HostPath(_) => "hostPath",
        PersistentVolumeSource::Nfs(_) => "nfs",
        PersistentVolumeSource::Local(_) => "local",
        PersistentVolumeSource::Csi(_) => "csi",
        PersistentVolumeSource::GcePersistentDisk(_) => "gcePersistentDisk",
        PersistentVolumeSource::AwsElasticBlockStore(_) => "awsElasticBlockStore",
        PersistentVolumeSource::Glusterfs(_) => "glusterfs",
        PersistentVolumeSource::Rbd(_) => "rbd",
        PersistentVolumeSource::Iscsi(_) => "iscsi",
        PersistentVolumeSource::Cinder(_) => "cinder",
        PersistentVolumeSource::CephFs(_) => "cephfs",
        PersistentVolumeSource::Fc(_) => "fc",
        PersistentVolumeSource::Flocker(_) => "flocker",
        PersistentVolumeSource::FlexVolume(_) => "flexVolume",
        PersistentVolumeSource::AzureFile(_) => "azureFile",
        PersistentVolumeSource::VsphereVolume(_) => "vsphereVolume",
        PersistentVolumeSource::Quobyte(_) => "quobyte",
        PersistentVolumeSource::AzureDisk(_) => "azureDisk",
        PersistentVolumeSource::PhotonPersistentDisk(_) => "photonPersistentDisk",
        PersistentVolumeSource::PortworxVolume(_) => "portworxVolume",
        PersistentVolumeSource::ScaleIo(_) => "scaleIO",
        PersistentVolumeSource::StorageOs(_) => "storageos",
    }
}
