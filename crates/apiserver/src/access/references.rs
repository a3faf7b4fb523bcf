//! What of other objects a pod or a volume needs: who runs the one may read the other.

use serde_json::Value;

use crate::object::{self, list, text};

/// What a pod can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    ConfigMap,
    PersistentVolumeClaim,
    ResourceClaim,
    Secret,
    ServiceAccount,
}

/// What mirror pods have. They name things that their node was not given by the API.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Volumes with a `secretRef`.
const WITH_SECRET_REF: [&str; 7] = ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"];

/// Whether a pod needs the object of its namespace that has a name.
pub(crate) fn pod_names(pod: &Value, what: Named, name: &str) -> bool {
    if !pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_null() || name.is_empty() {
        return false;
    }
    let volumes = || list(pod, &["spec", "volumes"]).iter();
    let projected = || volumes().flat_map(|volume| list(volume, &["projected", "sources"]));
    let containers = || {
        let kinds = ["containers", "initContainers", "ephemeralContainers"];
        kinds.into_iter().flat_map(|kind| list(pod, &["spec", kind]))
    };
    let in_environment = |whole: &str, key: &str| {
        containers().any(|container| {
            list(container, &["envFrom"]).iter().any(|from| from[whole]["name"] == name)
                || list(container, &["env"]).iter().any(|one| one["valueFrom"][key]["name"] == name)
        })
    };
    match what {
        Named::ServiceAccount => text(pod, &["spec", "serviceAccountName"]) == name,
        Named::ConfigMap => {
            in_environment("configMapRef", "configMapKeyRef")
                || volumes().any(|volume| volume["configMap"]["name"] == name)
                || projected().any(|source| source["configMap"]["name"] == name)
        }
        Named::Secret => {
            let in_volume = |volume: &Value| {
                volume["secret"]["secretName"] == name
                    || volume["azureFile"]["secretName"] == name
                    || volume["csi"]["nodePublishSecretRef"]["name"] == name
                    || WITH_SECRET_REF.iter().any(|kind| volume[kind]["secretRef"]["name"] == name)
            };
            list(pod, &["spec", "imagePullSecrets"]).iter().any(|pull| pull["name"] == name)
                || in_environment("secretRef", "secretKeyRef")
                || volumes().any(in_volume)
                || projected().any(|source| source["secret"]["name"] == name)
        }
        Named::PersistentVolumeClaim => claims(pod).any(|claim| claim == name),
        Named::ResourceClaim => {
            let statuses = list(pod, &["status", "resourceClaimStatuses"]);
            list(pod, &["spec", "resourceClaims"]).iter().any(|claim| {
                let of_template =
                    |status: &Value| status["name"] == claim["name"] && status["resourceClaimName"] == name;
                claim["resourceClaimName"] == name || statuses.iter().any(of_template)
            }) || text(pod, &["status", "extendedResourceClaimStatus", "resourceClaimName"]) == name
        }
    }
}

/// The claims for persistent volumes that a pod uses, those of its own included.
pub(crate) fn claims(pod: &Value) -> impl Iterator<Item = String> {
    list(pod, &["spec", "volumes"]).iter().filter_map(|volume| {
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return Some(claim.to_owned());
        }
        let own = || format!("{}-{}", object::name(pod), text(volume, &["name"]));
        (!volume["ephemeral"].is_null()).then(own)
    })
}

/// Whether the node that mounts a volume needs a secret for it.
pub(super) fn volume_names_secret(volume: &Value, namespace: &str, name: &str) -> bool {
    let spec = &volume["spec"];
    let of_claim = text(spec, &["claimRef", "namespace"]);
    let is_it = |reference: &Value| {
        let said = reference["namespace"].as_str().filter(|said| !said.is_empty());
        reference["name"] == name && said.unwrap_or(of_claim) == namespace
    };
    let azure = &spec["azureFile"];
    let of_azure = azure["secretNamespace"].as_str().filter(|said| !said.is_empty()).unwrap_or(of_claim);
    (azure["secretName"] == name && of_azure == namespace)
        || WITH_SECRET_REF.iter().any(|kind| is_it(&spec[kind]["secretRef"]))
        || ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"]
            .iter()
            .any(|reference| is_it(&spec["csi"][reference]))
}
