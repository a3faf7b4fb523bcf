//! Every pod runs as somebody: its service account, whose token it finds mounted.

use serde_json::{Value, json};

use super::{Operation, forbidden};
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::{SERVICE_ACCOUNTS, Subresource};
use crate::rules::pods::CONTAINER_LISTS;
use crate::status::Refusal;

const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// An hour and some seconds, by which the server knows a token that it may let live longer.
pub(crate) const TOKEN_LASTS: i64 = 3607;

pub(super) fn mutate(cluster: &mut Cluster, call: &Call<'_>, pod: &mut Value) -> Result<(), Refusal> {
    if is_mirror(pod) {
        return validate(cluster, call, Operation::Create, pod);
    }
    if object::text(pod, &["spec", "serviceAccountName"]).is_empty() && pod["spec"].is_object() {
        pod["spec"]["serviceAccountName"] = "default".into();
    }
    let name = object::text(pod, &["spec", "serviceAccountName"]).to_owned();
    let account = account(cluster, call, pod, &name)?;
    if pod["spec"].is_object() {
        // The former name of the field says the same.
        pod["spec"]["serviceAccount"] = name.into();
    }
    let mounts = &pod["spec"]["automountServiceAccountToken"];
    if mounts.as_bool().or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
        mount_token(cluster, pod);
    }
    let secrets = object::list(&account, &["imagePullSecrets"]);
    if object::list(pod, &["spec", "imagePullSecrets"]).is_empty() && !secrets.is_empty() {
        let names = secrets.iter().map(|secret| json!({"name": object::text(secret, &["name"])}));
        pod["spec"]["imagePullSecrets"] = names.collect();
    }
    Ok(())
}

pub(super) fn validate(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    pod: &Value,
) -> Result<(), Refusal> {
    let is_ephemeral = call.target.subresource == Some(Subresource::EphemeralContainers);
    if operation != Operation::Create && !is_ephemeral {
        return Ok(());
    }
    let name = object::text(pod, &["spec", "serviceAccountName"]);
    if !is_ephemeral && is_mirror(pod) {
        return match mirror_problem(pod, name) {
            Some(why) => Err(forbidden(call, pod, why)),
            None => Ok(()),
        };
    }
    if name.is_empty() {
        let why =
            format!("no service account specified for pod {}/{}", call.target.namespace, object::name(pod));
        return Err(forbidden(call, pod, why));
    }
    let account = account(cluster, call, pod, name)?;
    let limits = object::text(&account, &["metadata", "annotations", MOUNTABLE_SECRETS]);
    if !matches!(limits, "1" | "t" | "T" | "TRUE" | "true" | "True") {
        return Ok(());
    }
    match secret_problem(&account, pod, is_ephemeral) {
        Some(why) => Err(forbidden(call, pod, why)),
        None => Ok(()),
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

fn account(cluster: &Cluster, call: &Call<'_>, pod: &Value, name: &str) -> Result<Value, Refusal> {
    let namespace = call.target.namespace.as_str();
    cluster.state.read(&SERVICE_ACCOUNTS, namespace, name).ok_or_else(|| {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        forbidden(call, pod, why)
    })
}

fn mount_token(cluster: &mut Cluster, pod: &mut Value) {
    let volumes = object::list(pod, &["spec", "volumes"]);
    let known = volumes.iter().filter_map(|volume| volume["name"].as_str());
    let known = known.filter(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned).next();
    let has_volume = known.is_some();
    let name = known.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", cluster.chance.suffix()));
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = object::list(container, &["volumeMounts"]);
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            let mut mounts = mounts.to_vec();
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container["volumeMounts"] = mounts.into();
            is_needed = true;
        }
    }
    if !is_needed || has_volume {
        return;
    }
    let mut volumes = object::list(pod, &["spec", "volumes"]).to_vec();
    volumes.push(json!({"name": name, "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_LASTS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ],
        "defaultMode": 420,
    }}));
    pod["spec"]["volumes"] = volumes.into();
}

/// Mirrors of static pods refer to nothing in the API.
fn mirror_problem(pod: &Value, account: &str) -> Option<&'static str> {
    if !account.is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if super::references::names_secrets(pod) {
        return Some("a mirror pod may not reference secrets");
    }
    let volumes = object::list(pod, &["spec", "volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| object::list(volume, &["projected", "sources"]));
    let has_token = sources.any(|source| source["serviceAccountToken"].is_object());
    has_token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// A secret that the pod uses and its account does not name.
fn secret_problem(account: &Value, pod: &Value, is_ephemeral: bool) -> Option<String> {
    let names = |field: &str| -> Vec<&str> {
        object::list(account, &[field]).iter().map(|secret| object::text(secret, &["name"])).collect()
    };
    let (secrets, owner) = (names("secrets"), object::name(account));
    let not_named = format!("is not allowed because service account {owner} does not reference that secret");
    if !is_ephemeral {
        for volume in object::list(pod, &["spec", "volumes"]) {
            if let Some(name) = volume["secret"]["secretName"].as_str().filter(|name| !secrets.contains(name))
            {
                return Some(format!("volume with secret.secretName=\"{name}\" {not_named}"));
            }
        }
    }
    for list in CONTAINER_LISTS.into_iter().filter(|list| (*list == "ephemeralContainers") == is_ephemeral) {
        let kind = match list {
            "initContainers" => "init container",
            "ephemeralContainers" => "ephemeral container",
            _ => "container",
        };
        for container in object::list(pod, &["spec", list]) {
            let container_name = object::text(container, &["name"]);
            for variable in object::list(container, &["env"]) {
                let name = variable["valueFrom"]["secretKeyRef"]["name"].as_str();
                if let Some(name) = name.filter(|name| !secrets.contains(name)) {
                    let variable = object::text(variable, &["name"]);
                    return Some(format!(
                        "{kind} {container_name} with envVar {variable} referencing secret.secretName=\"{name}\" \
                         {not_named}"
                    ));
                }
            }
            for source in object::list(container, &["envFrom"]) {
                let name = source["secretRef"]["name"].as_str();
                if let Some(name) = name.filter(|name| !secrets.contains(name)) {
                    return Some(format!(
                        "{kind} {container_name} with envFrom referencing secret.secretName=\"{name}\" {not_named}"
                    ));
                }
            }
        }
    }
    if is_ephemeral {
        return None;
    }
    let pull_secrets = names("imagePullSecrets");
    let own = object::list(pod, &["spec", "imagePullSecrets"]).iter().enumerate();
    let mut own = own.map(|(index, secret)| (index, object::text(secret, &["name"])));
    own.find(|(_, name)| !pull_secrets.contains(name)).map(|(index, name)| {
        format!(
            "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {owner} does not \
             reference that imagePullSecret"
        )
    })
}
