//! Where the objects of a kind are.

use crablet_api::Object;
use crablet_api::certificates::{CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest};
use crablet_api::coordination::Lease;
use crablet_api::core::{
    ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use crablet_api::meta::ObjectMeta;
use crablet_api::node::RuntimeClass;
use crablet_api::storage::{CsiDriver, CsiNode, VolumeAttachment};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What may stand in a part of a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A kind of object that an API server has.
pub trait Resource: Object + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in paths.
    const PLURAL: &'static str;
    /// Whether its objects are in namespaces.
    const NAMESPACED: bool;

    fn metadata(&self) -> &ObjectMeta;

    /// The path of all objects of the kind: of a namespace, or of all where that is empty.
    fn collection(namespace: &str) -> String {
        let root = if Self::API_VERSION.contains('/') { "/apis" } else { "/api" };
        let (version, plural) = (Self::API_VERSION, Self::PLURAL);
        match Self::NAMESPACED && !namespace.is_empty() {
            true => format!("{root}/{version}/namespaces/{}/{plural}", escaped(namespace)),
            false => format!("{root}/{version}/{plural}"),
        }
    }

    /// The path of one object.
    fn path(namespace: &str, name: &str) -> String {
        format!("{}/{}", Self::collection(namespace), escaped(name))
    }
}

pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

macro_rules! resources {
    ($($kind:ty: $plural:literal, $namespaced:literal;)*) => {$(
        impl Resource for $kind {
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = $namespaced;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
        }
    )*};
}

resources! {
    CertificateSigningRequest: "certificatesigningrequests", false;
    ClusterTrustBundle: "clustertrustbundles", false;
    ConfigMap: "configmaps", true;
    CsiDriver: "csidrivers", false;
    CsiNode: "csinodes", false;
    Event: "events", true;
    Lease: "leases", true;
    Node: "nodes", false;
    PersistentVolume: "persistentvolumes", false;
    PersistentVolumeClaim: "persistentvolumeclaims", true;
    Pod: "pods", true;
    PodCertificateRequest: "podcertificaterequests", true;
    RuntimeClass: "runtimeclasses", false;
    Secret: "secrets", true;
    Service: "services", true;
    VolumeAttachment: "volumeattachments", false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_group_namespace_and_object() {
        assert_eq!(Pod::path("default", "web"), "/api/v1/namespaces/default/pods/web");
        assert_eq!(Pod::collection(""), "/api/v1/pods");
        assert_eq!(Node::path("", "a b"), "/api/v1/nodes/a%20b");
        let lease = Lease::path("kube-node-lease", "n");
        assert_eq!(lease, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n");
    }
}
