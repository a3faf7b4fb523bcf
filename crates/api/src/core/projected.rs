//! [`ProjectedVolumeSource`]: files from several sources in one directory.

use crate::map::Map;
use crate::meta::LabelSelector;
use crate::object::object;
use crate::one_of::{OneOf, one_of};

use super::{DownwardAPIVolumeFile, KeyToPath};

object! {
    /// Files from several sources in one directory.
    pub struct ProjectedVolumeSource {
        sources: Box<[OneOf<VolumeProjection>]> = "sources" always,
        default_mode: Option<i32> = "defaultMode",
    }
}

one_of! {
    /// One source of a projected volume.
    pub enum VolumeProjection {
        Secret(SecretProjection) = "secret",
        DownwardApi(DownwardAPIProjection) = "downwardAPI",
        ConfigMap(ConfigMapProjection) = "configMap",
        ServiceAccountToken(ServiceAccountTokenProjection) = "serviceAccountToken",
        ClusterTrustBundle(ClusterTrustBundleProjection) = "clusterTrustBundle",
        PodCertificate(PodCertificateProjection) = "podCertificate",
    }
}

object! {
    /// The keys of a secret.
    pub struct SecretProjection {
        name: Box<str> = "name",
        items: Box<[KeyToPath]> = "items",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// The keys of a config map.
    pub struct ConfigMapProjection {
        name: Box<str> = "name",
        items: Box<[KeyToPath]> = "items",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// Facts about the pod.
    pub struct DownwardAPIProjection {
        items: Box<[DownwardAPIVolumeFile]> = "items",
    }
}

object! {
    /// A token of the pod's service account, renewed before it expires.
    pub struct ServiceAccountTokenProjection {
        audience: Box<str> = "audience",
        expiration_seconds: Option<i64> = "expirationSeconds",
        path: Box<str> = "path" always,
    }
}

object! {
    /// Trust anchors of the cluster.
    pub struct ClusterTrustBundleProjection {
        name: Option<Box<str>> = "name",
        signer_name: Option<Box<str>> = "signerName",
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        optional: Option<bool> = "optional",
        path: Box<str> = "path" always,
    }
}

object! {
    /// A certificate for the pod, renewed before it expires.
    pub struct PodCertificateProjection {
        signer_name: Box<str> = "signerName",
        key_type: Box<str> = "keyType",
        max_expiration_seconds: Option<i32> = "maxExpirationSeconds",
        credential_bundle_path: Box<str> = "credentialBundlePath",
        key_path: Box<str> = "keyPath",
        certificate_chain_path: Box<str> = "certificateChainPath",
        user_annotations: Map<Box<str>> = "userAnnotations",
    }
}
