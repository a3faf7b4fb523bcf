//! From a pod's claim to the piece of storage behind it, with upstream's checks.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_api::core::{
    Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimPhase, PersistentVolumeMode, Pod,
    Volume, VolumeSource,
};
use crablet_api::{Map, Text};
use crablet_core::admission::node_affinity::term_matches;
use crablet_core::translate::Unavailable;

use crate::contents::Contents;
use crate::error::PluginError;

/// What keeps a claim from being removed while pods use it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The piece of storage that a pod's claim leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    pub volume: Arc<PersistentVolume>,
    pub claim: Arc<PersistentVolumeClaim>,
    /// Whether the pod wants it for reading only.
    pub read_only: bool,
}

/// Why a claim leads nowhere. Each is a part of upstream's event `FailedMount`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("error processing PVC {namespace}/{name}: {why}")]
    Claim { namespace: String, name: String, why: Broken },
    #[error("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwned { namespace: String, name: String, pod: String },
    #[error("volume {volume} has volumeMode {mode}, but is specified in {used_in}")]
    Mode { volume: String, mode: &'static str, used_in: &'static str },
}

/// What is wrong with a claim, or with what it leads to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("failed to fetch PVC from API server: {}", words(why, "persistentvolumeclaims", name))]
    NoClaim { name: String, why: Unavailable },
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoName,
    #[error("failed to fetch PV {name} from API server: {}", words(why, "persistentvolumes", name))]
    NoVolume { name: String, why: Unavailable },
    #[error(
        "found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
    )]
    NotClaimed(String),
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {theirs} does not point to claim.UID {ours}"
    )]
    OtherClaim { volume: String, theirs: String, ours: String },
}

pub(crate) fn words(why: &Unavailable, plural: &str, name: &str) -> String {
    match why {
        Unavailable::NotFound => format!("{plural} {name:?} not found"),
        Unavailable::NoClient => "there is no API server".to_owned(),
        Unavailable::Other(why) => why.clone(),
    }
}

/// Whether what a volume shows is nothing that the node makes: a claim, something that makes one, or a driver's.
pub(crate) fn is_of_others(volume: &Volume) -> bool {
    matches!(
        volume.source.one(),
        Some(VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_) | VolumeSource::Csi(_))
    )
}

/// What a volume of a pod leads to, if it is a claim, or something that makes one.
pub async fn resolve(
    contents: &dyn Contents,
    pod: &Pod,
    volume: &Volume,
) -> Result<Option<Claimed>, ClaimError> {
    let (name, read_only, is_of_pod) = match volume.source.one() {
        Some(VolumeSource::PersistentVolumeClaim(source)) => {
            (source.claim_name.to_string(), source.read_only, false)
        }
        Some(VolumeSource::Ephemeral(_)) => (format!("{}-{}", pod.metadata.name, volume.name), false, true),
        Some(_) | None => return Ok(None),
    };
    let namespace = pod.metadata.namespace.to_string();
    let broken = |why| ClaimError::Claim { namespace: namespace.clone(), name: name.clone(), why };
    let claim = match contents.claim(&namespace, &name).await {
        Ok(claim) => claim,
        Err(why) => return Err(broken(Broken::NoClaim { name: name.clone(), why })),
    };
    check(&claim).map_err(broken)?;
    if is_of_pod && !is_owned_by(&claim, pod) {
        return Err(ClaimError::NotOwned { namespace, name, pod: pod.metadata.name.to_string() });
    }
    let found = contents.persistent_volume(&claim.spec.volume_name).await;
    let found = found.map_err(|why| Broken::NoVolume { name: claim.spec.volume_name.to_string(), why });
    let found = found.and_then(|found| check_volume(&claim, &found).map(|()| found)).map_err(broken)?;
    check_mode(pod, volume, &found)?;
    Ok(Some(Claimed { volume: found, claim, read_only }))
}

fn check(claim: &PersistentVolumeClaim) -> Result<(), Broken> {
    let metadata = &claim.metadata;
    let is_protected = metadata.finalizers.iter().any(|finalizer| *finalizer == *PROTECTION);
    if metadata.deletion_timestamp.is_some() && !is_protected {
        return Err(Broken::Deleted);
    }
    if claim.status.phase != Some(PersistentVolumeClaimPhase::Bound) {
        return Err(Broken::NotBound);
    }
    if claim.spec.volume_name.is_empty() { Err(Broken::NoName) } else { Ok(()) }
}

fn is_owned_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == pod.metadata.uid)
}

fn check_volume(claim: &PersistentVolumeClaim, found: &PersistentVolume) -> Result<(), Broken> {
    let name = || found.metadata.name.to_string();
    let Some(claimed) = &found.spec.claim_ref else { return Err(Broken::NotClaimed(name())) };
    if claimed.uid == claim.metadata.uid {
        return Ok(());
    }
    let (theirs, ours) = (claimed.uid.to_string(), claim.metadata.uid.to_string());
    Err(Broken::OtherClaim { volume: name(), theirs, ours })
}

/// Whether a piece of storage is a bare device.
pub fn is_block(volume: &PersistentVolume) -> bool {
    volume.spec.volume_mode == Some(PersistentVolumeMode::Block)
}

/// The group that a pod must be in to use a piece of storage, if whoever made it says so.
pub(crate) fn group(volume: &PersistentVolume) -> Option<i64> {
    volume.metadata.annotations.get("pv.beta.kubernetes.io/gid")?.parse().ok()
}

/// A piece of storage that nodes like this one cannot reach is of no use to a pod here.
pub(crate) fn check_node(volume: &PersistentVolume, labels: &Map<Text>) -> Result<(), PluginError> {
    let affinity = volume.spec.node_affinity.as_ref();
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return Ok(()) };
    let mut node = Node::default();
    node.metadata.labels = labels.clone();
    if required.node_selector_terms.iter().any(|term| term_matches(term, &node)) {
        return Ok(());
    }
    let check = if is_block(volume) { "MapVolume.NodeAffinity" } else { "MountVolume.NodeAffinity" };
    Err(PluginError::Check { check, why: "no matching NodeSelectorTerms" })
}

/// A device is not mounted, and files are no device.
fn check_mode(pod: &Pod, volume: &Volume, found: &PersistentVolume) -> Result<(), ClaimError> {
    let containers = || pod.spec.all_containers();
    let mounts: BTreeSet<&str> =
        containers().flat_map(|container| &container.volume_mounts).map(|mount| &*mount.name).collect();
    let devices: BTreeSet<&str> =
        containers().flat_map(|container| &container.volume_devices).map(|device| &*device.name).collect();
    let wrong = |mode, used_in| Err(ClaimError::Mode { volume: volume.name.to_string(), mode, used_in });
    match is_block(found) {
        true if mounts.contains(&*volume.name) => wrong("Block", "volumeMounts"),
        false if devices.contains(&*volume.name) => wrong("Filesystem", "volumeDevices"),
        true | false => Ok(()),
    }
}

/// The options that a piece of storage is mounted with, each once and in order: an annotation's before the volume's own.
pub(crate) fn mount_options(volume: &PersistentVolume) -> BTreeSet<String> {
    let mut options: BTreeSet<String> =
        match volume.metadata.annotations.get("volume.beta.kubernetes.io/mount-options") {
            Some(options) => options.split(',').map(str::to_owned).collect(),
            None => volume.spec.mount_options.iter().map(ToString::to_string).collect(),
        };
    options.remove("");
    options
}
