//! Which volume a claim gets.

use std::collections::BTreeSet;

use crablet_api::Quantity;
use crablet_api::core::{Node, NodeSelectorTerm};
use crablet_core::admission::node_affinity;
use serde::Deserialize;
use serde_json::Value;

use crate::controllers::bootstrap::selects;
use crate::object::{self, list, text};
use crate::resources::{PERSISTENT_VOLUMES, STORAGE_CLASSES};
use crate::state::State;

pub(in crate::controllers) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
pub(in crate::controllers) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The volumes that claims can still get.
pub(in crate::controllers) struct Volumes {
    volumes: Vec<Value>,
    taken: BTreeSet<String>,
}

impl Volumes {
    pub(in crate::controllers) fn of(state: &State) -> Volumes {
        Volumes { volumes: state.read_all(&PERSISTENT_VOLUMES, None).collect(), taken: BTreeSet::new() }
    }

    /// The volume that a claim gets: the one that is kept for it, or the smallest that is large enough. A claim that
    /// waits for its pod gets none before a node is known, but one that is kept for it.
    pub(in crate::controllers) fn take(
        &mut self,
        claim: &Value,
        node: Option<&Node>,
        is_delayed: bool,
    ) -> Option<Value> {
        let is_free = |volume: &&Value| !self.taken.contains(object::name(volume));
        let kept = self.volumes.iter().filter(is_free).find(|volume| {
            is_for(volume, claim) && node.is_none_or(|node| is_on(volume, node)) && suits(volume, claim)
        });
        let smallest = || {
            let fitting = self.volumes.iter().filter(is_free).filter(|volume| {
                volume["spec"]["claimRef"].is_null()
                    && text(volume, &["status", "phase"]) == "Available"
                    && is_selected(volume, claim)
                    && class_of(volume) == class_of(claim)
                    && node.is_none_or(|node| is_on(volume, node))
                    && suits(volume, claim)
            });
            fitting.min_by_key(|volume| capacity(volume))
        };
        let found = kept.or_else(|| if is_delayed && node.is_none() { None } else { smallest() })?.clone();
        self.taken.insert(object::name(&found).to_owned());
        Some(found)
    }
}

/// Whether a volume has room, modes and form for a claim, and stays.
pub(super) fn suits(volume: &Value, claim: &Value) -> bool {
    let modes = list(volume, &["spec", "accessModes"]);
    let asked = quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    !object::is_being_deleted(volume)
        && mode_of(volume) == mode_of(claim)
        && list(claim, &["spec", "accessModes"]).iter().all(|mode| modes.contains(mode))
        && capacity(volume) >= asked
        && text(volume, &["spec", "volumeAttributesClassName"])
            == text(claim, &["spec", "volumeAttributesClassName"])
}

/// Whether a volume is kept for a claim.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    let uid = text(reference, &["uid"]);
    text(reference, &["name"]) == object::name(claim)
        && text(reference, &["namespace"]) == object::namespace(claim)
        && (uid.is_empty() || uid == object::uid(claim))
}

/// Whether a volume can be had on a node.
pub(in crate::controllers) fn is_on(volume: &Value, node: &Node) -> bool {
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    if terms.is_null() {
        return true;
    }
    let terms = Vec::<NodeSelectorTerm>::deserialize(terms).unwrap_or_default();
    terms.iter().any(|term| node_affinity::term_matches(term, node))
}

pub(in crate::controllers) fn is_bound(claim: &Value) -> bool {
    !text(claim, &["spec", "volumeName"]).is_empty()
        && !claim["metadata"]["annotations"][BIND_COMPLETED].is_null()
}

/// Whether a claim waits for the first pod that uses it.
pub(in crate::controllers) fn is_delayed(state: &State, claim: &Value) -> bool {
    let class = state.read(&STORAGE_CLASSES, "", class_of(claim));
    class.is_some_and(|class| text(&class, &["volumeBindingMode"]) == "WaitForFirstConsumer")
}

/// The storage class of a claim or volume; empty for none.
pub(in crate::controllers) fn class_of(object: &Value) -> &str {
    let old = object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    old.unwrap_or_else(|| text(object, &["spec", "storageClassName"]))
}

fn is_selected(volume: &Value, claim: &Value) -> bool {
    let selector = &claim["spec"]["selector"];
    selector.is_null() || selects(selector, &object::labels(volume))
}

fn mode_of(object: &Value) -> &str {
    object["spec"]["volumeMode"].as_str().unwrap_or("Filesystem")
}

fn capacity(volume: &Value) -> Quantity {
    quantity(&volume["spec"]["capacity"]["storage"])
}

fn quantity(value: &Value) -> Quantity {
    Quantity::deserialize(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(name: &str, storage: &str, spec: Value) -> Value {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
            "status": {"phase": "Available"},
        });
        for (field, value) in spec.as_object().unwrap() {
            volume["spec"][field] = value.clone();
        }
        volume
    }

    fn taken(volumes: &[Value], spec: Value, is_delayed: bool) -> Option<String> {
        let mut claim = json!({
            "metadata": {"name": "claim", "namespace": "ns", "uid": "u"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "5Gi"}},
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        let mut volumes = Volumes { volumes: volumes.to_vec(), taken: BTreeSet::new() };
        volumes.take(&claim, None, is_delayed).map(|volume| object::name(&volume).to_owned())
    }

    #[test]
    fn a_claim_gets_the_smallest_volume_that_suits_it() {
        let all = [
            volume("large", "100Gi", json!({})),
            volume("small", "1Gi", json!({})),
            volume("right", "10Gi", json!({})),
            volume("slow", "5Gi", json!({"storageClassName": "slow"})),
            volume("block", "6Gi", json!({"volumeMode": "Block"})),
            volume("kept", "7Gi", json!({"claimRef": {"namespace": "ns", "name": "other"}})),
        ];
        for (spec, is_delayed, expected) in [
            (json!({}), false, Some("right")),
            (json!({}), true, None),
            (json!({"volumeMode": "Block"}), false, Some("block")),
            (json!({"storageClassName": "slow"}), false, Some("slow")),
            (json!({"storageClassName": ""}), false, None),
            (json!({"accessModes": ["ReadWriteMany"]}), false, None),
            (json!({"resources": {"requests": {"storage": "11Gi"}}}), false, Some("large")),
            (json!({"resources": {"requests": {"storage": "101Gi"}}}), false, None),
            (json!({"selector": {"matchLabels": {"name": "large"}}}), false, Some("large")),
        ] {
            assert_eq!(taken(&all, spec.clone(), is_delayed).as_deref(), expected, "{spec}");
        }
    }

    #[test]
    fn a_volume_that_is_kept_for_a_claim_goes_before_better_ones() {
        let kept = |uid: &str| {
            volume("kept", "50Gi", json!({"claimRef": {"namespace": "ns", "name": "claim", "uid": uid}}))
        };
        let right = volume("right", "5Gi", json!({}));
        assert_eq!(taken(&[right.clone(), kept("")], json!({}), true).as_deref(), Some("kept"));
        assert_eq!(taken(&[right.clone(), kept("u")], json!({}), false).as_deref(), Some("kept"));
        assert_eq!(taken(&[right, kept("older")], json!({}), false).as_deref(), Some("right"));
    }
}
