//! The volumes of a pod: each has a name of its own and exactly one source.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::{EmptyDirVolumeSource, Pod, Volume, VolumeSource};
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors};

use super::Rules;
use super::claim_template::check_claim_template;
use super::containers::check_pull_policy;
use super::error::{Errors, quoted};
use super::path::Path;
use super::projected::{check_downward_api, check_key_to_path, check_projected};
use super::storage;
use super::text;

/// The volumes that containers can mount, by their names.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a VolumeSource>;

/// Checks the volumes; the answer has those that are well.
pub(super) fn check_volumes<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    pod: &'a Pod,
    rules: &Rules<'_>,
) -> Volumes<'a> {
    let pod_name = pod.metadata.name.as_ref();
    let is_ephemeral = |source: &VolumeSource| matches!(source, VolumeSource::Ephemeral(_));
    let created_claims: BTreeSet<String> = pod
        .spec
        .volumes
        .iter()
        .filter(|volume| !pod_name.is_empty() && volume.source.as_slice().iter().any(is_ephemeral))
        .map(|volume| format!("{pod_name}-{}", volume.name))
        .collect();
    let mut volumes = Volumes::new();
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let path = path.index(index);
        let mut of_volume = Errors::default();
        check_sources(&mut of_volume, &path, volume, pod_name, rules);
        let name = volume.name.as_ref();
        if name.is_empty() {
            of_volume.required(&path.child("name"), "");
        } else {
            of_volume.invalid_each(&path.child("name"), name, dns1123_label_errors(name));
        }
        if volumes.contains_key(name) {
            of_volume.duplicate(&path.child("name"), name);
        }
        if let (true, Some(source)) = (of_volume.is_empty(), volume.source.one()) {
            volumes.insert(name, source);
        }
        errors.extend(of_volume.into_list());
        for source in volume.source.as_slice() {
            if let VolumeSource::PersistentVolumeClaim(claim) = source
                && created_claims.contains(claim.claim_name.as_ref())
            {
                let path = path.child("persistentVolumeClaim");
                let detail = "must not reference a PVC that gets created for an ephemeral volume";
                errors.invalid(&path.child("claimName"), claim.claim_name.as_ref(), detail);
            }
        }
    }
    volumes
}

fn check_sources(errors: &mut Errors, path: &Path<'_>, volume: &Volume, pod_name: &str, rules: &Rules<'_>) {
    let mut sources: Vec<&VolumeSource> = volume.source.as_slice().iter().collect();
    sources.sort_by_key(|source| order_and_field(source));
    for (index, source) in sources.iter().enumerate() {
        if index == 0 {
            check_source(errors, path, source, rules);
        } else {
            let (_, field) = order_and_field(source);
            errors.forbidden(&path.child(field), "may not specify more than 1 volume type");
        }
        match source {
            VolumeSource::Iscsi(iscsi) => storage::check_iscsi_name(errors, path, &volume.name, iscsi),
            VolumeSource::Ephemeral(_) if index == 0 && !pod_name.is_empty() && !volume.name.is_empty() => {
                let claim = format!("{pod_name}-{}", volume.name);
                for problem in dns1123_subdomain_errors(&claim) {
                    let detail = format!("PVC name {}: {problem}", quoted(&claim));
                    errors.invalid(&path.child("name"), volume.name.as_ref(), detail);
                }
            }
            _ => {}
        }
    }
    if sources.is_empty() {
        errors.required(path, "must specify a volume type");
    }
}

/// Where upstream looks for a source, and the field that it names where there is another one already.
fn order_and_field(source: &VolumeSource) -> (u8, &'static str) {
    match source {
        VolumeSource::EmptyDir(_) => (0, "emptyDir"),
        VolumeSource::HostPath(_) => (1, "hostPath"),
        VolumeSource::GitRepo(_) => (2, "gitRepo"),
        VolumeSource::GcePersistentDisk(_) => (3, "gcePersistentDisk"),
        VolumeSource::AwsElasticBlockStore(_) => (4, "awsElasticBlockStore"),
        VolumeSource::Secret(_) => (5, "secret"),
        VolumeSource::Nfs(_) => (6, "nfs"),
        VolumeSource::Iscsi(_) => (7, "iscsi"),
        VolumeSource::Glusterfs(_) => (8, "glusterfs"),
        VolumeSource::Flocker(_) => (9, "flocker"),
        VolumeSource::PersistentVolumeClaim(_) => (10, "persistentVolumeClaim"),
        VolumeSource::Rbd(_) => (11, "rbd"),
        VolumeSource::Cinder(_) => (12, "cinder"),
        VolumeSource::CephFs(_) => (13, "cephFS"),
        VolumeSource::Quobyte(_) => (14, "quobyte"),
        VolumeSource::DownwardApi(_) => (15, "downwarAPI"),
        VolumeSource::Fc(_) => (16, "fc"),
        VolumeSource::FlexVolume(_) => (17, "flexVolume"),
        VolumeSource::ConfigMap(_) => (18, "configMap"),
        VolumeSource::AzureFile(_) => (19, "azureFile"),
        VolumeSource::VsphereVolume(_) => (20, "vsphereVolume"),
        VolumeSource::PhotonPersistentDisk(_) => (21, "photonPersistentDisk"),
        VolumeSource::PortworxVolume(_) => (22, "portworxVolume"),
        VolumeSource::AzureDisk(_) => (23, "azureDisk"),
        VolumeSource::StorageOs(_) => (24, "storageos"),
        VolumeSource::Projected(_) => (25, "projected"),
        VolumeSource::ScaleIo(_) => (26, "scaleIO"),
        VolumeSource::Csi(_) => (27, "csi"),
        VolumeSource::Ephemeral(_) => (28, "ephemeral"),
        VolumeSource::Image(_) => (29, "image"),
    }
}

fn check_source(errors: &mut Errors, path: &Path<'_>, source: &VolumeSource, rules: &Rules<'_>) {
    // Upstream names two sources otherwise where they are alone.
    let field = match source {
        VolumeSource::GcePersistentDisk(_) => "persistentDisk",
        VolumeSource::CephFs(_) => "cephfs",
        VolumeSource::DownwardApi(_) => "downwardAPI",
        other => order_and_field(other).1,
    };
    let path = &path.child(field);
    match source {
        VolumeSource::EmptyDir(it) => check_empty_dir(errors, path, it),
        VolumeSource::HostPath(it) => storage::check_host_path(errors, path, it),
        VolumeSource::GitRepo(it) => storage::check_git_repo(errors, path, it),
        VolumeSource::GcePersistentDisk(it) => {
            storage::check_disk(errors, path, ("pdName", &it.pd_name), it.partition);
        }
        VolumeSource::AwsElasticBlockStore(it) => {
            storage::check_disk(errors, path, ("volumeID", &it.volume_id), it.partition);
        }
        VolumeSource::Secret(it) => {
            storage::check_filled(errors, path, &[("secretName", &it.secret_name)]);
            text::check_file_mode(errors, &path.child("defaultMode"), it.default_mode);
            let items = path.child("items");
            for (index, item) in it.items.iter().enumerate() {
                check_key_to_path(errors, &items.index(index), item);
            }
        }
        VolumeSource::ConfigMap(it) => {
            storage::check_filled(errors, path, &[("name", &it.name)]);
            text::check_file_mode(errors, &path.child("defaultMode"), it.default_mode);
            let items = path.child("items");
            for (index, item) in it.items.iter().enumerate() {
                check_key_to_path(errors, &items.index(index), item);
            }
        }
        VolumeSource::Nfs(it) => storage::check_nfs(errors, path, it),
        VolumeSource::Iscsi(it) => storage::check_iscsi(errors, path, it),
        VolumeSource::Glusterfs(it) => {
            storage::check_filled(errors, path, &[("endpoints", &it.endpoints), ("path", &it.path)]);
        }
        VolumeSource::Flocker(it) => storage::check_flocker(errors, path, it),
        VolumeSource::PersistentVolumeClaim(it) => {
            storage::check_filled(errors, path, &[("claimName", &it.claim_name)]);
        }
        VolumeSource::Rbd(it) => storage::check_rbd(errors, path, it),
        VolumeSource::Cinder(it) => {
            storage::check_filled(errors, path, &[("volumeID", &it.volume_id)]);
            storage::check_secret_reference(errors, path, it.secret_ref.as_ref());
        }
        VolumeSource::CephFs(it) => {
            if it.monitors.is_empty() {
                errors.required(&path.child("monitors"), "");
            }
        }
        VolumeSource::Quobyte(it) => storage::check_quobyte(errors, path, it),
        VolumeSource::DownwardApi(it) => check_downward_api(errors, path, it),
        VolumeSource::Fc(it) => storage::check_fibre_channel(errors, path, it),
        VolumeSource::FlexVolume(it) => storage::check_flex_volume(errors, path, it),
        VolumeSource::AzureFile(it) => {
            storage::check_filled(
                errors,
                path,
                &[("secretName", &it.secret_name), ("shareName", &it.share_name)],
            );
        }
        VolumeSource::VsphereVolume(it) => {
            storage::check_filled(errors, path, &[("volumePath", &it.volume_path)]);
        }
        VolumeSource::PhotonPersistentDisk(it) => storage::check_filled(errors, path, &[("pdID", &it.pd_id)]),
        VolumeSource::PortworxVolume(it) => {
            storage::check_filled(errors, path, &[("volumeID", &it.volume_id)])
        }
        VolumeSource::AzureDisk(it) => storage::check_azure_disk(errors, path, it),
        VolumeSource::StorageOs(it) => storage::check_storage_os(errors, path, it),
        VolumeSource::Projected(it) => check_projected(errors, path, it),
        VolumeSource::ScaleIo(it) => storage::check_filled(
            errors,
            path,
            &[("gateway", &it.gateway), ("system", &it.system), ("volumeName", &it.volume_name)],
        ),
        VolumeSource::Csi(it) => storage::check_csi(errors, path, it),
        VolumeSource::Ephemeral(it) => {
            let path = path.child("volumeClaimTemplate");
            match it.volume_claim_template.as_deref() {
                None => errors.required(&path, ""),
                Some(template) => check_claim_template(errors, &path, template),
            }
        }
        VolumeSource::Image(it) => {
            if rules.resource_is_pod && it.reference.is_empty() {
                errors.required(&path.child("reference"), "");
            }
            check_pull_policy(errors, &path.child("pullPolicy"), it.pull_policy.as_ref());
        }
    }
}

fn check_empty_dir(errors: &mut Errors, path: &Path<'_>, source: &EmptyDirVolumeSource) {
    if source.size_limit.as_ref().is_some_and(|limit| limit.sign() < 0) {
        errors.forbidden(&path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}
