//! What a static pod may not ask for: it must start without an API server, so it may not refer to its objects.

use crate::core::{EnvVarSource, PodSpec, Volume, VolumeProjection, VolumeSource};
use crate::one_of::OneOf;

use super::containers::all_containers;
use super::error::{Errors, quoted};
use super::path::Path;
use super::spec::service_account;

/// Refuses every reference to an object of the API. Upstream names the first one, without its field; the words are
/// the same.
pub(super) fn check_references(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    if !service_account(spec).is_empty() {
        let field =
            if spec.service_account_name.is_empty() { "serviceAccount" } else { "serviceAccountName" };
        refuse(errors, &path.child(field), "serviceaccounts");
    }
    let pull_secrets = path.child("imagePullSecrets");
    for (index, secret) in spec.image_pull_secrets.iter().enumerate() {
        if !secret.name.is_empty() {
            refuse(errors, &pull_secrets.index(index), "secrets");
        }
    }
    check_env_references(errors, path, spec);
    let claims = path.child("resourceClaims");
    for index in 0..spec.resource_claims.len() {
        refuse(errors, &claims.index(index), "resourceclaims");
    }
    let volumes = path.child("volumes");
    for (index, volume) in spec.volumes.iter().enumerate() {
        check_volume_references(errors, &volumes.index(index), volume);
    }
}

/// What was refused before all references were.
pub(super) fn check_claims_and_trust_bundles(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    let volumes = path.child("volumes");
    for (index, volume) in spec.volumes.iter().enumerate() {
        let volume_path = volumes.index(index);
        let projected = volume_path.child("projected");
        let sources = projected.child("sources");
        for (index, projection) in projections(volume) {
            if matches!(projection, VolumeProjection::ClusterTrustBundle(_)) {
                let path = sources.index(index);
                let detail = "static pods may not use ClusterTrustBundle projected volume sources";
                errors.forbidden(&path.child("clusterTrustBundle"), detail);
            }
        }
    }
    if !spec.resource_claims.is_empty() {
        errors.forbidden(&path.child("resourceClaims"), "static pods may not use ResourceClaims");
    }
}

fn refuse(errors: &mut Errors, path: &Path<'_>, what: &str) {
    errors.forbidden(path, format!("static pods may not reference {what}"));
}

fn projected_sources(volume: &Volume) -> impl Iterator<Item = (usize, &OneOf<VolumeProjection>)> {
    let projected = volume.source.as_slice().iter().filter_map(|source| match source {
        VolumeSource::Projected(projected) => Some(projected),
        _ => None,
    });
    projected.flat_map(|projected| projected.sources.iter().enumerate())
}

fn projections(volume: &Volume) -> impl Iterator<Item = (usize, &VolumeProjection)> {
    projected_sources(volume)
        .flat_map(|(index, source)| source.as_slice().iter().map(move |projection| (index, projection)))
}

fn check_env_references(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    for (list, index, container) in all_containers(spec) {
        let list = path.child(list);
        let container_path = list.index(index);
        let env_from = container_path.child("envFrom");
        for (index, source) in container.env_from.iter().enumerate() {
            let path = env_from.index(index);
            if source.secret_ref.as_ref().is_some_and(|secret| !secret.name.is_empty()) {
                refuse(errors, &path.child("secretRef"), "secrets");
            }
            if source.config_map_ref.as_ref().is_some_and(|config_map| !config_map.name.is_empty()) {
                refuse(errors, &path.child("configMapRef"), "configmaps");
            }
        }
        let env = container_path.child("env");
        for (index, variable) in container.env.iter().enumerate() {
            let path = env.index(index);
            let path = path.child("valueFrom");
            for source in variable.value_from.iter().flat_map(|source| source.as_slice()) {
                match source {
                    EnvVarSource::SecretKeyRef(key) if !key.name.is_empty() => {
                        refuse(errors, &path.child("secretKeyRef"), "secrets");
                    }
                    EnvVarSource::ConfigMapKeyRef(key) if !key.name.is_empty() => {
                        refuse(errors, &path.child("configMapKeyRef"), "configmaps");
                    }
                    EnvVarSource::SecretKeyRef(_)
                    | EnvVarSource::ConfigMapKeyRef(_)
                    | EnvVarSource::FieldRef(_)
                    | EnvVarSource::ResourceFieldRef(_)
                    | EnvVarSource::FileKeyRef(_) => {}
                }
            }
        }
    }
}

fn check_volume_references(errors: &mut Errors, path: &Path<'_>, volume: &Volume) {
    for source in volume.source.as_slice() {
        let secret = match source {
            VolumeSource::CephFs(it) => ("cephfs", &it.secret_ref),
            VolumeSource::Cinder(it) => ("cinder", &it.secret_ref),
            VolumeSource::FlexVolume(it) => ("flexVolume", &it.secret_ref),
            VolumeSource::Rbd(it) => ("rbd", &it.secret_ref),
            VolumeSource::ScaleIo(it) => ("scaleIO", &it.secret_ref),
            VolumeSource::Iscsi(it) => ("iscsi", &it.secret_ref),
            VolumeSource::StorageOs(it) => ("storageos", &it.secret_ref),
            other => {
                check_volume_source(errors, path, other);
                continue;
            }
        };
        if let (field, Some(reference)) = secret
            && !reference.name.is_empty()
        {
            let path = path.child(field);
            refuse(errors, &path.child("secretRef"), "secrets");
        }
    }
    let projected = path.child("projected");
    let sources = projected.child("sources");
    for (index, source) in projected_sources(volume) {
        if source.as_slice().is_empty() {
            let detail = format!("unknown source for projected volume {}", quoted(&volume.name));
            errors.forbidden(&sources.index(index), detail);
        }
    }
    for (index, projection) in projections(volume) {
        let (field, what) = match projection {
            VolumeProjection::Secret(_) => ("secret", "secrets"),
            VolumeProjection::ConfigMap(_) => ("configMap", "configmaps"),
            VolumeProjection::ServiceAccountToken(_) => {
                ("serviceAccountToken", "serviceaccounts (via projected volumes)")
            }
            VolumeProjection::ClusterTrustBundle(_) => ("clusterTrustBundle", "clustertrustbundles"),
            VolumeProjection::PodCertificate(_) => ("podCertificate", "podcertificates"),
            VolumeProjection::DownwardApi(_) => continue,
        };
        let path = sources.index(index);
        refuse(errors, &path.child(field), what);
    }
}

/// Sources that are nothing but a reference.
fn check_volume_source(errors: &mut Errors, path: &Path<'_>, source: &VolumeSource) {
    let (field, what) = match source {
        VolumeSource::Secret(_) => ("secret", "secrets"),
        VolumeSource::ConfigMap(_) => ("configMap", "configmaps"),
        VolumeSource::Csi(it) if it.node_publish_secret_ref.is_some() => ("csi", "secrets"),
        VolumeSource::Csi(_) => ("csi", "csidrivers (via CSI volumes)"),
        VolumeSource::Glusterfs(_) => ("glusterfs", "endpoints (via glusterFS volumes)"),
        VolumeSource::PersistentVolumeClaim(_) => ("persistentVolumeClaim", "persistentvolumeclaims"),
        VolumeSource::Ephemeral(_) => ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        VolumeSource::AzureFile(_) => ("azureFile", "secrets"),
        _ => return,
    };
    refuse(errors, &path.child(field), what);
}
