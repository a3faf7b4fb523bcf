//! What a volume does not say.

use crate::core::{
    AzureDataDiskCachingMode, AzureDataDiskKind, AzureDiskVolumeSource, DownwardAPIVolumeFile,
    EmptyDirVolumeSource, HostPathType, PersistentVolumeMode, ProjectedVolumeSource, RBDVolumeSource, Volume,
    VolumeProjection, VolumeSource,
};
use crate::one_of::OneOf;

use super::{container::default_field_selector, fill, image};

/// Files that their owner may write and everyone may read.
const FILE_MODE: i32 = 0o644;

pub(super) fn default_volume(volume: &mut Volume) {
    if matches!(volume.source, OneOf::Nothing) {
        volume.source = OneOf::One(EmptyDirVolumeSource::default().into());
    }
    for source in volume.source.as_mut_slice() {
        default_source(source);
    }
}

fn default_source(source: &mut VolumeSource) {
    match source {
        VolumeSource::HostPath(path) => fill(&mut path.r#type, HostPathType::Unset),
        VolumeSource::Secret(secret) => fill(&mut secret.default_mode, FILE_MODE),
        VolumeSource::ConfigMap(config_map) => fill(&mut config_map.default_mode, FILE_MODE),
        VolumeSource::DownwardApi(downward) => {
            fill(&mut downward.default_mode, FILE_MODE);
            default_downward_files(&mut downward.items);
        }
        VolumeSource::Projected(projected) => default_projected(projected),
        VolumeSource::Image(image) => {
            fill(&mut image.pull_policy, image::pull_policy(&image.reference));
        }
        VolumeSource::Ephemeral(ephemeral) => {
            if let Some(template) = &mut ephemeral.volume_claim_template {
                fill(&mut template.spec.volume_mode, PersistentVolumeMode::Filesystem);
            }
        }
        VolumeSource::Iscsi(disk) => fill(&mut disk.iscsi_interface, "default"),
        VolumeSource::Rbd(device) => default_rbd(device),
        VolumeSource::AzureDisk(disk) => default_azure_disk(disk),
        VolumeSource::ScaleIo(volume) => {
            fill(&mut volume.storage_mode, "ThinProvisioned");
            fill(&mut volume.fs_type, "xfs");
        }
        VolumeSource::EmptyDir(_)
        | VolumeSource::GcePersistentDisk(_)
        | VolumeSource::AwsElasticBlockStore(_)
        | VolumeSource::GitRepo(_)
        | VolumeSource::Nfs(_)
        | VolumeSource::Glusterfs(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::FlexVolume(_)
        | VolumeSource::Cinder(_)
        | VolumeSource::CephFs(_)
        | VolumeSource::Flocker(_)
        | VolumeSource::Fc(_)
        | VolumeSource::AzureFile(_)
        | VolumeSource::VsphereVolume(_)
        | VolumeSource::Quobyte(_)
        | VolumeSource::PhotonPersistentDisk(_)
        | VolumeSource::PortworxVolume(_)
        | VolumeSource::StorageOs(_)
        | VolumeSource::Csi(_) => {}
    }
}

fn default_projected(projected: &mut ProjectedVolumeSource) {
    fill(&mut projected.default_mode, FILE_MODE);
    for source in projected.sources.iter_mut().flat_map(OneOf::as_mut_slice) {
        match source {
            VolumeProjection::DownwardApi(downward) => default_downward_files(&mut downward.items),
            VolumeProjection::ServiceAccountToken(token) => {
                fill(&mut token.expiration_seconds, Some(60 * 60))
            }
            VolumeProjection::Secret(_)
            | VolumeProjection::ConfigMap(_)
            | VolumeProjection::ClusterTrustBundle(_)
            | VolumeProjection::PodCertificate(_) => {}
        }
    }
}

fn default_downward_files(files: &mut [DownwardAPIVolumeFile]) {
    for selector in files.iter_mut().filter_map(|file| file.field_ref.as_mut()) {
        default_field_selector(selector);
    }
}

fn default_rbd(device: &mut RBDVolumeSource) {
    fill(&mut device.pool, "rbd");
    fill(&mut device.user, "admin");
    fill(&mut device.keyring, "/etc/ceph/keyring");
}

fn default_azure_disk(disk: &mut AzureDiskVolumeSource) {
    fill(&mut disk.caching_mode, AzureDataDiskCachingMode::ReadWrite);
    fill(&mut disk.fs_type, Some("ext4".into()));
    fill(&mut disk.read_only, false);
    fill(&mut disk.kind, AzureDataDiskKind::Shared);
}
