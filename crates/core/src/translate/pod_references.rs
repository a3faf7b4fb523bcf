//! What a whole pod refers to.

use std::collections::BTreeSet;

use crablet_api::core::{LocalObjectReference, Pod, VolumeProjection, VolumeSource};

use super::environment::references;
use super::refusal::ObjectKind;

/// The config maps and secrets that a pod refers to, by name: in its containers' environments, in its volumes, and to
/// pull its images. All are in its namespace.
pub fn pod_references(pod: &Pod) -> BTreeSet<(ObjectKind, &str)> {
    let spec = &pod.spec;
    let mut found = BTreeSet::new();
    for container in spec.all_containers() {
        let names = references(container);
        found.extend(names.config_maps.into_iter().map(|name| (ObjectKind::ConfigMap, name)));
        found.extend(names.secrets.into_iter().map(|name| (ObjectKind::Secret, name)));
    }
    found.extend(spec.image_pull_secrets.iter().map(|secret| (ObjectKind::Secret, secret.name.as_str())));
    for source in spec.volumes.iter().filter_map(|volume| volume.source.one()) {
        add_volume(source, &mut found);
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

fn add_volume<'a>(source: &'a VolumeSource, found: &mut BTreeSet<(ObjectKind, &'a str)>) {
    let named = |reference: &'a Option<LocalObjectReference>| {
        reference.as_ref().map(|reference| (ObjectKind::Secret, reference.name.as_str()))
    };
    match source {
        VolumeSource::ConfigMap(volume) => found.extend([(ObjectKind::ConfigMap, volume.name.as_str())]),
        VolumeSource::Secret(volume) => found.extend([(ObjectKind::Secret, volume.secret_name.as_str())]),
        VolumeSource::Projected(volume) => {
            found.extend(volume.sources.iter().filter_map(|source| match source.one()? {
                VolumeProjection::ConfigMap(projection) => {
                    Some((ObjectKind::ConfigMap, projection.name.as_str()))
                }
                VolumeProjection::Secret(projection) => Some((ObjectKind::Secret, projection.name.as_str())),
                VolumeProjection::DownwardApi(_)
                | VolumeProjection::ServiceAccountToken(_)
                | VolumeProjection::ClusterTrustBundle(_)
                | VolumeProjection::PodCertificate(_) => None,
            }));
        }
        VolumeSource::AzureFile(volume) => found.extend([(ObjectKind::Secret, volume.secret_name.as_str())]),
        VolumeSource::CephFs(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::Cinder(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::FlexVolume(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::Rbd(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::ScaleIo(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::Iscsi(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::StorageOs(volume) => found.extend(named(&volume.secret_ref)),
        VolumeSource::Csi(volume) => found.extend(named(&volume.node_publish_secret_ref)),
        VolumeSource::HostPath(_)
        | VolumeSource::EmptyDir(_)
        | VolumeSource::GcePersistentDisk(_)
        | VolumeSource::AwsElasticBlockStore(_)
        | VolumeSource::GitRepo(_)
        | VolumeSource::Nfs(_)
        | VolumeSource::Glusterfs(_)
        | VolumeSource::PersistentVolumeClaim(_)
        | VolumeSource::Flocker(_)
        | VolumeSource::DownwardApi(_)
        | VolumeSource::Fc(_)
        | VolumeSource::VsphereVolume(_)
        | VolumeSource::Quobyte(_)
        | VolumeSource::AzureDisk(_)
        | VolumeSource::PhotonPersistentDisk(_)
        | VolumeSource::PortworxVolume(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::Image(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    #[track_caller]
    fn check(spec: &str, expected: &[&str]) {
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {{{spec}}}"));
        let found = pod_references(&pod).into_iter();
        let found: Vec<String> = found.map(|(kind, name)| format!("{kind:?} {name}")).collect();
        assert_eq!(found, expected, "{spec}");
    }

    #[test]
    fn environments_of_all_containers_name_config_maps_and_secrets() {
        check("containers: [{name: c, env: [{name: A, value: a}]}]", &[]);
        check(
            "initContainers: [{name: i, envFrom: [{configMapRef: {name: whole}}, {secretRef: {name: hidden}}]}],
             containers: [{name: c, env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: k}}},
                                          {name: B, valueFrom: {secretKeyRef: {name: hidden, key: k}}}]}],
             ephemeralContainers: [{name: e, envFrom: [{configMapRef: {name: debug}}]}]",
            &["ConfigMap debug", "ConfigMap one", "ConfigMap whole", "Secret hidden"],
        );
    }

    #[test]
    fn volumes_name_them_too_whether_they_are_used_or_not() {
        let volume = |source: &str| format!("volumes: [{{name: v, {source}}}]");
        check(&volume("configMap: {name: a}"), &["ConfigMap a"]);
        check(&volume("secret: {secretName: a}"), &["Secret a"]);
        check(
            &volume("projected: {sources: [{configMap: {name: a}}, {secret: {name: b}}, {downwardAPI: {}}]}"),
            &["ConfigMap a", "Secret b"],
        );
        check(&volume("csi: {driver: d, nodePublishSecretRef: {name: a}}"), &["Secret a"]);
        check(&volume("azureFile: {secretName: a, shareName: s}"), &["Secret a"]);
        for kind in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            check(&volume(&format!("{kind}: {{secretRef: {{name: a}}}}")), &["Secret a"]);
            check(&volume(&format!("{kind}: {{}}")), &[]);
        }
        check(&volume("emptyDir: {}"), &[]);
    }

    #[test]
    fn what_pulls_images_counts_and_a_name_that_is_empty_does_not() {
        check("imagePullSecrets: [{name: pull}, {}]", &["Secret pull"]);
        check("volumes: [{name: v, secret: {}}]", &[]);
    }
}
