//! Which volumes pods have on the node, or want: what is counted of them is counted here, and nothing is decided by it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use crablet_api::core::{PersistentVolumeSource, Pod, Volume, VolumeSource};
use tokio::time::Instant;

use crate::claims::{Claimed, is_block};
use crate::csi;
use crate::places::{CONFIG_MAP, CSI, DOWNWARD_API, EMPTY_DIR, LOCAL, NFS, PROJECTED, Places, SECRET};
use crate::stats::VolumeUsage;

/// What upstream calls volumes of drivers.
const OF_DRIVERS: &str = "kubernetes.io/csi";

/// The volumes of all pods. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Inventory(Arc<Mutex<BTreeMap<Text, Vec<Held>>>>);

/// A volume of a pod.
pub(crate) struct Held {
    /// Its name in the pod.
    pub(crate) name: Text,
    pub(crate) namespace: Text,
    /// The name of its claim, if it is one.
    pub(crate) claim: Option<Text>,
    pub(crate) plugin: PluginName,
    /// Whether what it takes counts as the pod's use of the node's own disk.
    pub(crate) is_local_ephemeral: bool,
    since: Instant,
    /// How it is measured, once it is there.
    pub(crate) meter: Option<Meter>,
    /// What was measured last, and when.
    pub(crate) latest: Option<Box<(Instant, VolumeUsage)>>,
    /// Somebody is at it.
    pub(crate) is_measured: bool,
}

/// What upstream calls a kind of volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PluginName {
    plugin: &'static str,
    driver: Option<Text>,
}

/// How a volume is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meter {
    /// It is not.
    Nothing,
    /// All that is in it is added up.
    Content(PathBuf),
    /// It is a file system.
    FileSystem(PathBuf),
    Device(PathBuf),
    Driver {
        driver: Text,
        handle: Box<str>,
        path: PathBuf,
    },
}

impl Inventory {
    /// A pod wants a volume.
    pub(crate) fn want(&self, pod: &Pod, volume: &Volume, plugin: PluginName) {
        let mut pods = self.lock();
        let volumes = pods.entry(pod.metadata.uid.clone()).or_default();
        if volumes.iter().any(|held| held.name == volume.name) {
            return;
        }
        let source = volume.source.one();
        let claim = match source {
            Some(VolumeSource::PersistentVolumeClaim(source)) => Some(source.claim_name.clone()),
            Some(VolumeSource::Ephemeral(_)) => Some(format!("{}-{}", pod.metadata.name, volume.name).into()),
            Some(_) | None => None,
        };
        let is_local_ephemeral = match source {
            Some(VolumeSource::EmptyDir(source)) => {
                source.medium.as_ref().is_none_or(|medium| medium.as_str().is_empty())
            }
            source => matches!(source, Some(VolumeSource::ConfigMap(_) | VolumeSource::GitRepo(_))),
        };
        volumes.push(Held {
            name: volume.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            claim,
            plugin,
            is_local_ephemeral,
            since: Instant::now(),
            meter: None,
            latest: None,
            is_measured: false,
        });
    }

    /// Whether it is known that a pod has a volume.
    pub(crate) fn knows(&self, uid: &str, name: &str) -> bool {
        let pods = self.lock();
        let mut held = pods.get(uid).into_iter().flatten();
        held.any(|held| *held.name == *name && held.meter.is_some())
    }

    /// A volume is there. Says since when it was wanted, if it was not there before.
    pub(crate) fn mounted(&self, uid: &str, name: &str, meter: Meter) -> Option<Instant> {
        let mut pods = self.lock();
        let held = pods.get_mut(uid)?.iter_mut().find(|held| *held.name == *name)?;
        held.meter.replace(meter).is_none().then_some(held.since)
    }

    /// A pod has none any more. Says of which kinds it had some.
    pub(crate) fn remove(&self, uid: &str) -> Vec<PluginName> {
        let kinds = self.kinds(uid);
        self.lock().remove(uid);
        kinds
    }

    /// Of which kinds a pod has volumes, one for each.
    pub(crate) fn kinds(&self, uid: &str) -> Vec<PluginName> {
        let pods = self.lock();
        let there = pods.get(uid).into_iter().flatten().filter(|held| held.meter.is_some());
        there.map(|held| held.plugin.clone()).collect()
    }

    /// How many there are of each kind: wanted, and there.
    pub(crate) fn counts(&self) -> BTreeMap<PluginName, (usize, usize)> {
        let mut counts = BTreeMap::<PluginName, (usize, usize)>::new();
        for held in self.lock().values().flatten() {
            let (wanted, there) = counts.entry(held.plugin.clone()).or_default();
            *wanted += 1;
            *there += usize::from(held.meter.is_some());
        }
        counts
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Text, Vec<Held>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PluginName {
    pub(crate) const LOCAL: PluginName = PluginName { plugin: "kubernetes.io/local-volume", driver: None };

    pub(crate) fn new(source: &VolumeSource, claimed: Option<&Claimed>) -> PluginName {
        let persistent = claimed.and_then(|claimed| claimed.volume.spec.source.one());
        let driver = match (persistent, source) {
            (Some(PersistentVolumeSource::Csi(source)), _) => Some(source.driver.clone()),
            (None, VolumeSource::Csi(source)) => Some(source.driver.clone()),
            (_, _) => None,
        };
        let plugin = match (persistent, source) {
            (Some(PersistentVolumeSource::HostPath(_)), _) | (None, VolumeSource::HostPath(_)) => {
                "kubernetes.io/host-path"
            }
            (Some(PersistentVolumeSource::Nfs(_)), _) | (None, VolumeSource::Nfs(_)) => "kubernetes.io/nfs",
            (Some(PersistentVolumeSource::Local(_)), _) => PluginName::LOCAL.plugin,
            (None, VolumeSource::EmptyDir(_)) => "kubernetes.io/empty-dir",
            (None, VolumeSource::ConfigMap(_)) => "kubernetes.io/configmap",
            (None, VolumeSource::Secret(_)) => "kubernetes.io/secret",
            (None, VolumeSource::DownwardApi(_)) => "kubernetes.io/downward-api",
            (None, VolumeSource::Projected(_)) => "kubernetes.io/projected",
            (None, VolumeSource::Image(_)) => "kubernetes.io/image",
            (_, _) if driver.is_some() => OF_DRIVERS,
            (_, _) => "N/A",
        };
        PluginName { plugin, driver }
    }

    pub(crate) fn of_driver(driver: &str) -> PluginName {
        PluginName { plugin: OF_DRIVERS, driver: Some(driver.into()) }
    }

    /// As a label has it.
    pub(crate) fn label(&self) -> Cow<'static, str> {
        match &self.driver {
            Some(driver) => format!("{}:{driver}", self.plugin).into(),
            None => self.plugin.into(),
        }
    }
}

impl Meter {
    /// How a volume that is there is measured, as upstream does.
    pub(crate) fn new(places: &Places, uid: &str, volume: &Volume, claimed: Option<&Claimed>) -> Meter {
        let name = claimed.map_or(&volume.name, |claimed| &claimed.volume.metadata.name);
        let persistent = claimed.and_then(|claimed| claimed.volume.spec.source.one());
        let is_device = claimed.is_some_and(|claimed| is_block(&claimed.volume));
        let files = |plugin: &str| places.volume(uid, plugin, name);
        let of_driver = |driver: &Text, handle: &str| {
            let path = match is_device {
                true => places.csi_devices().join(&**name).join("dev").join(uid),
                false => files(CSI).join("mount"),
            };
            Meter::Driver { driver: driver.clone(), handle: handle.into(), path }
        };
        match (persistent, volume.source.one()) {
            (Some(PersistentVolumeSource::Csi(source)), _) => {
                of_driver(&source.driver, &source.volume_handle)
            }
            (None, Some(VolumeSource::Csi(source))) => {
                of_driver(&source.driver, &csi::ephemeral_handle(uid, &volume.name))
            }
            (Some(PersistentVolumeSource::Local(_)), _) if is_device => {
                Meter::Device(places.devices(uid).join(LOCAL).join(&**name))
            }
            (Some(PersistentVolumeSource::Local(_)), _) => Meter::FileSystem(files(LOCAL)),
            (Some(PersistentVolumeSource::Nfs(_)), _) | (None, Some(VolumeSource::Nfs(_))) => {
                Meter::FileSystem(files(NFS))
            }
            (None, Some(VolumeSource::EmptyDir(_))) => Meter::Content(files(EMPTY_DIR)),
            (None, Some(VolumeSource::ConfigMap(_))) => Meter::Content(files(CONFIG_MAP)),
            (None, Some(VolumeSource::Secret(_))) => Meter::Content(files(SECRET)),
            (None, Some(VolumeSource::Projected(_))) => Meter::Content(files(PROJECTED)),
            (None, Some(VolumeSource::DownwardApi(_))) => Meter::Content(files(DOWNWARD_API)),
            (_, _) => Meter::Nothing,
        }
    }
}
