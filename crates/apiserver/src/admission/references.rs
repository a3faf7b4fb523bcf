//! What of the API a pod names.

use serde_json::Value;

use crate::object;
use crate::rules::pods::CONTAINER_LISTS;

/// Whether a pod names secrets anywhere.
pub(super) fn names_secrets(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let volume_names = |volume: &Value| {
        let mut sources = object::list(volume, &["projected", "sources"]).iter();
        volume["secret"].is_object()
            || volume["azureFile"].is_object()
            || sources.any(|source| source["secret"].is_object())
            || ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"]
                .iter()
                .any(|source| volume[*source]["secretRef"].is_object())
            || volume["csi"]["nodePublishSecretRef"].is_object()
    };
    !object::list(spec, &["imagePullSecrets"]).is_empty()
        || any_variable(spec, "secretKeyRef", "secretRef")
        || object::list(spec, &["volumes"]).iter().any(volume_names)
}

fn any_variable(spec: &Value, key: &str, whole: &str) -> bool {
    let mut containers = CONTAINER_LISTS.iter().flat_map(|list| object::list(spec, &[list]));
    containers.any(|container| {
        object::list(container, &["env"]).iter().any(|variable| variable["valueFrom"][key].is_object())
            || object::list(container, &["envFrom"]).iter().any(|source| source[whole].is_object())
    })
}

/// What of the API a pod names, in upstream's order.
pub(super) fn named_objects(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    if !object::text(spec, &["serviceAccountName"]).is_empty() {
        return Some("serviceaccounts");
    }
    if names_secrets(pod) {
        return Some("secrets");
    }
    let volumes = object::list(spec, &["volumes"]);
    let names_config_maps = volumes.iter().any(|volume| {
        let mut sources = object::list(volume, &["projected", "sources"]).iter();
        volume["configMap"].is_object() || sources.any(|source| source["configMap"].is_object())
    });
    if names_config_maps || any_variable(spec, "configMapKeyRef", "configMapRef") {
        return Some("configmaps");
    }
    if !object::list(spec, &["resourceClaims"]).is_empty() {
        return Some("resourceclaims");
    }
    volumes.iter().find_map(|volume| {
        let has = |field: &str| volume[field].is_object();
        if has("csi") {
            return Some("csidrivers (via CSI volumes)");
        }
        if has("glusterfs") {
            return Some("endpoints (via glusterFS volumes)");
        }
        if has("persistentVolumeClaim") {
            return Some("persistentvolumeclaims");
        }
        if has("ephemeral") {
            return Some("persistentvolumeclaims (via ephemeral volumes)");
        }
        object::list(volume, &["projected", "sources"]).iter().find_map(|source| {
            let has = |field: &str| source[field].is_object();
            match () {
                () if has("serviceAccountToken") => Some("serviceaccounts (via projected volumes)"),
                () if has("clusterTrustBundle") => Some("clustertrustbundles"),
                () if has("podCertificate") => Some("podcertificates"),
                () => None,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pod_names_is_found() {
        for (spec, expected) in [
            (json!({"containers": [{}], "volumes": [{"hostPath": {"path": "/"}}]}), None),
            (json!({"serviceAccountName": "a"}), Some("serviceaccounts")),
            (json!({"containers": [{"envFrom": [{"secretRef": {"name": "a"}}]}]}), Some("secrets")),
            (json!({"volumes": [{"configMap": {"name": "a"}}]}), Some("configmaps")),
            (
                json!({"volumes": [{"persistentVolumeClaim": {"claimName": "a"}}]}),
                Some("persistentvolumeclaims"),
            ),
        ] {
            assert_eq!(named_objects(&json!({"spec": spec})), expected, "{spec}");
        }
    }
}
