//! The claims of a pod that is to be bound: bound already, to be bound with it, or in its way.

use crablet_api::core::Node;
use serde_json::Value;

use super::fit::Misfit;
use crate::access::references;
use crate::controllers::volumes::matching::{self, Volumes};
use crate::object::{self, text};
use crate::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, RESOURCE_CLAIMS, STORAGE_CLASSES};
use crate::state::State;

/// What is decided about a claim when its pod gets a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decided {
    /// It gets a volume that there is.
    Volume { volume: Value, claim: Value },
    /// A volume is made for it, by somebody else, for the node.
    Provision { claim: Value },
}

/// The claims that are not bound yet and wait for their pod.
pub(super) fn waiting(state: &State, pod: &Value) -> Result<Vec<Value>, String> {
    let mut waiting = Vec::new();
    for name in references::claims(pod) {
        let is_own = is_own_claim(pod, &name);
        let Some(claim) = state.read(&PERSISTENT_VOLUME_CLAIMS, object::namespace(pod), &name) else {
            return Err(match is_own {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if text(&claim, &["status", "phase"]) == "Lost" {
            let volume = text(&claim, &["spec", "volumeName"]);
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if object::is_being_deleted(&claim) {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if matching::is_bound(&claim) {
            continue;
        }
        if !matching::is_delayed(state, &claim) || !text(&claim, &["spec", "volumeName"]).is_empty() {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        waiting.push(claim);
    }
    for name in resource_claims(pod) {
        let claim = state.read(&RESOURCE_CLAIMS, object::namespace(pod), &name);
        match claim {
            None => return Err(format!("resourceclaim.resource.k8s.io {name:?} not found")),
            Some(claim) if claim["status"]["allocation"].is_null() => {
                return Err("cannot allocate all claims".to_owned());
            }
            Some(_) => {}
        }
    }
    Ok(waiting)
}

/// Whether the volumes of a pod can be had on a node, and what is to be done for it.
pub(super) fn decide(
    state: &State,
    pod: &Value,
    waiting: &[Value],
    node: &Node,
) -> Result<Vec<Decided>, Misfit> {
    for name in references::claims(pod) {
        let claim = state.read(&PERSISTENT_VOLUME_CLAIMS, object::namespace(pod), &name).unwrap_or_default();
        if !matching::is_bound(&claim) {
            continue;
        }
        let volume = state.read(&PERSISTENT_VOLUMES, "", text(&claim, &["spec", "volumeName"]));
        match volume {
            None => {
                return Err(Misfit::always(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                ));
            }
            Some(volume) if !matching::is_on(&volume, node) => {
                return Err(Misfit::always("node(s) didn't match PersistentVolume's node affinity"));
            }
            Some(_) => {}
        }
    }
    let mut volumes = Volumes::of(state);
    let mut decided = Vec::new();
    for claim in waiting {
        if let Some(volume) = volumes.take(claim, Some(node), true) {
            decided.push(Decided::Volume { volume, claim: claim.clone() });
            continue;
        }
        let class = state.read(&STORAGE_CLASSES, "", matching::class_of(claim)).unwrap_or_default();
        let provisioner = text(&class, &["provisioner"]);
        if provisioner.is_empty() || provisioner == matching::NO_PROVISIONER {
            return Err(Misfit::always("node(s) didn't find available persistent volumes to bind"));
        }
        decided.push(Decided::Provision { claim: claim.clone() });
    }
    Ok(decided)
}

fn is_own_claim(pod: &Value, claim: &str) -> bool {
    object::list(pod, &["spec", "volumes"]).iter().any(|volume| {
        !volume["ephemeral"].is_null()
            && format!("{}-{}", object::name(pod), text(volume, &["name"])) == claim
    })
}

fn resource_claims(pod: &Value) -> Vec<String> {
    let statuses = object::list(pod, &["status", "resourceClaimStatuses"]);
    let claims = object::list(pod, &["spec", "resourceClaims"]).iter().map(|claim| {
        let of_template = || statuses.iter().find(|status| status["name"] == claim["name"]);
        let name = claim["resourceClaimName"].as_str();
        let name = name.or_else(|| of_template().and_then(|status| status["resourceClaimName"].as_str()));
        name.unwrap_or_default().to_owned()
    });
    claims.collect()
}
