//! [`ProjectedVolumeSource`]: files from several sources in one directory.

use crate::map::Map;
use crate::meta::LabelSelector;
use crate::object::object;
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

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
        name: Text = "name",
        items: Box<[KeyToPath]> = "items",
        optional: Option<bool> = "optional",
    }
}

object! {
    /// The keys of a config map.
    pub struct ConfigMapProjection {
        name: Text = "name",
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
        audience: Text = "audience",
        expiration_seconds: Option<i64> = "expirationSeconds",
        path: Text = "path" always,
    }
}

object! {
    /// Trust anchors of the cluster.
    pub struct ClusterTrustBundleProjection {
        name: Option<Text> = "name",
        signer_name: Option<Text> = "signerName",
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        optional: Option<bool> = "optional",
        path: Text = "path" always,
    }
}

object! {
    /// A certificate for the pod, renewed before it expires.
    pub struct PodCertificateProjection {
        signer_name: Text = "signerName",
        key_type: Text = "keyType",
        max_expiration_seconds: Option<i32> = "maxExpirationSeconds",
        credential_bundle_path: Text = "credentialBundlePath",
        key_path: Text = "keyPath",
        certificate_chain_path: Text = "certificateChainPath",
        user_annotations: Map<Text> = "userAnnotations",
    }
}
