//! Persistent volumes and claims: who gets which, what is lost, released and protected. Volumes are made and wiped by
//! others, or by people.

pub(super) mod matching;

use std::collections::BTreeSet;

use crablet_api::Text;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::binder::usage::{field, is_finished};
use super::garbage::{has_finalizer, remove_finalizer, says};
use super::write::{EventType, Told};
use super::{Controller, is_of};
use crate::access::references;
use crate::cluster::Cluster;
use crate::object::{self, text};
use crate::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource, STORAGE_CLASSES};
use crate::state::{Change, ChangeKind, Key, State};
use matching::{BIND_COMPLETED, NO_PROVISIONER, Volumes};

const COMPONENT: &str = "persistentvolume-controller";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Debug, Default)]
pub(super) struct PersistentVolumes {
    /// Volumes and claims that have changed, or whose other half has.
    volumes: BTreeSet<Key>,
    claims: BTreeSet<Key>,
    /// Whether something has come that claims may have waited for.
    rematches: bool,
    /// Namespaces in which pods have left claims that may be waited for.
    left: BTreeSet<Text>,
    /// Pods that may have claims of their own to be made.
    pods: BTreeSet<Key>,
}

impl Controller for PersistentVolumes {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        if is_of(change, &STORAGE_CLASSES) {
            self.rematches = true;
        } else if is_of(change, &PERSISTENT_VOLUMES) {
            let volume = change.object.decode();
            let claim = &volume["spec"]["claimRef"];
            self.rematches |= claim.is_null();
            self.volumes.insert(change.key.clone());
            let (namespace, name) = (text(claim, &["namespace"]), text(claim, &["name"]));
            self.claims.insert(Key::new(&PERSISTENT_VOLUME_CLAIMS, namespace, name));
        } else if is_of(change, &PERSISTENT_VOLUME_CLAIMS) {
            let claim = change.object.decode();
            self.claims.insert(change.key.clone());
            self.volumes.insert(Key::new(&PERSISTENT_VOLUMES, "", text(&claim, &["spec", "volumeName"])));
        } else if is_of(change, &PODS) {
            if change.kind == ChangeKind::Added && says(&change.object, "ephemeral") {
                self.pods.insert(change.key.clone());
            }
            if change.kind == ChangeKind::Deleted || is_finished(&change.object) {
                self.left.insert(change.key.namespace.clone());
            }
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        for key in std::mem::take(&mut self.pods) {
            make_own_claims(cluster, &key, now);
        }
        for namespace in std::mem::take(&mut self.left) {
            let claims = cluster.state.list(&PERSISTENT_VOLUME_CLAIMS, Some(&namespace));
            let ending = claims.filter(|(_, stored)| says(stored, "deletionTimestamp"));
            self.claims.extend(ending.map(|(key, _)| key.clone()));
        }
        if std::mem::take(&mut self.rematches) {
            let claims = cluster.state.list(&PERSISTENT_VOLUME_CLAIMS, None);
            let unbound = claims.filter(|(_, stored)| !says(stored, BIND_COMPLETED));
            self.claims.extend(unbound.map(|(key, _)| key.clone()));
        }
        for key in std::mem::take(&mut self.volumes) {
            sync_volume(cluster, &key, now);
        }
        for key in std::mem::take(&mut self.claims) {
            sync_claim(cluster, &key, now);
        }
    }
}

fn read(state: &State, key: &Key) -> Option<Value> {
    state.get(key).map(|stored| stored.decode())
}

/// Keeps a volume for a claim.
pub(super) fn reserve(cluster: &mut Cluster, mut volume: Value, claim: &Value) {
    if volume["spec"]["claimRef"].is_null() {
        annotate(&mut volume, BOUND_BY_CONTROLLER, "yes");
    }
    volume["spec"]["claimRef"] = reference(claim);
    cluster.update_own(&PERSISTENT_VOLUMES, volume);
}

/// Says for which node a volume is to be made.
pub(super) fn select_node(cluster: &mut Cluster, mut claim: Value, node: &str) {
    if claim["metadata"]["annotations"][SELECTED_NODE] != node {
        annotate(&mut claim, SELECTED_NODE, node);
        cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim);
    }
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][key] = value.into();
}

fn reference(claim: &Value) -> Value {
    json!({
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": object::namespace(claim),
        "name": object::name(claim),
        "uid": object::uid(claim),
        "resourceVersion": object::meta(claim, "resourceVersion"),
    })
}

/// Brings the phase of a volume up to what its claim is.
fn sync_volume(cluster: &mut Cluster, key: &Key, now: Timestamp) {
    let Some(mut volume) = read(&cluster.state, key) else { return };
    let before = volume.clone();
    if object::is_being_deleted(&volume) {
        if has_finalizer(&volume, VOLUME_PROTECTION) && text(&volume, &["status", "phase"]) != "Bound" {
            remove_finalizer(&mut volume, VOLUME_PROTECTION);
        }
    } else {
        object::add_finalizer(&mut volume, VOLUME_PROTECTION);
    }
    let claim = &volume["spec"]["claimRef"];
    let (namespace, name) = (text(claim, &["namespace"]).to_owned(), text(claim, &["name"]).to_owned());
    let uid = text(claim, &["uid"]).to_owned();
    let phase = text(&volume, &["status", "phase"]).to_owned();
    let found = cluster.state.read(&PERSISTENT_VOLUME_CLAIMS, &namespace, &name);
    let found = found.filter(|found| object::uid(found) == uid);
    let mut told = None;
    let new = match found {
        _ if uid.is_empty() => "Available".to_owned(),
        Some(found) if text(&found, &["spec", "volumeName"]) == object::name(&volume) => "Bound".to_owned(),
        // The claim has not said yes yet.
        Some(_) if phase.is_empty() => "Available".to_owned(),
        Some(_) => phase.clone(),
        None => match text(&volume, &["spec", "persistentVolumeReclaimPolicy"]) {
            "Delete" if volume["metadata"]["annotations"][PROVISIONED_BY].is_null() => {
                let why = format!(
                    "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                    object::name(&volume)
                );
                volume["status"]["message"] = why.as_str().into();
                told = Some(why);
                "Failed".to_owned()
            }
            _ if phase == "Failed" => phase.clone(),
            _ => "Released".to_owned(),
        },
    };
    if new != phase {
        volume["status"]["phase"] = new.as_str().into();
        volume["status"]["lastPhaseTransitionTime"] = object::time(now);
    }
    if volume != before {
        cluster.update_own(&PERSISTENT_VOLUMES, volume.clone());
        if let Some(why) = told.filter(|_| new != phase) {
            tell(cluster, &PERSISTENT_VOLUMES, &volume, EventType::Warning, "VolumeFailedDelete", &why, now);
        }
    }
}

fn sync_claim(cluster: &mut Cluster, key: &Key, now: Timestamp) {
    protect_claim(cluster, key);
    let Some(claim) = read(&cluster.state, key) else { return };
    match claim["metadata"]["annotations"][BIND_COMPLETED].is_null() {
        true => sync_unbound(cluster, claim, now),
        false => sync_bound(cluster, claim, now),
    }
}

fn sync_bound(cluster: &mut Cluster, claim: Value, now: Timestamp) {
    let name = text(&claim, &["spec", "volumeName"]);
    if name.is_empty() {
        let why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lose(cluster, claim, "ClaimLost", why, now);
    }
    let Some(volume) = cluster.state.read(&PERSISTENT_VOLUMES, "", name) else {
        let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lose(cluster, claim, "ClaimLost", why, now);
    };
    let uid = text(&volume, &["spec", "claimRef", "uid"]);
    if volume["spec"]["claimRef"].is_null() || uid == object::uid(&claim) {
        bind(cluster, volume, claim, now);
    } else {
        let why = "Two claims are bound to the same volume, this one is bound incorrectly";
        lose(cluster, claim, "ClaimMisbound", why, now);
    }
}

fn lose(cluster: &mut Cluster, mut claim: Value, reason: &str, why: &str, now: Timestamp) {
    if text(&claim, &["status", "phase"]) == "Lost" {
        return;
    }
    claim["status"] = json!({"phase": "Lost"});
    cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim.clone());
    tell(cluster, &PERSISTENT_VOLUME_CLAIMS, &claim, EventType::Warning, reason, why, now);
}

fn sync_unbound(cluster: &mut Cluster, mut claim: Value, now: Timestamp) {
    let name = text(&claim, &["spec", "volumeName"]).to_owned();
    if !name.is_empty() {
        let Some(volume) = cluster.state.read(&PERSISTENT_VOLUMES, "", &name) else {
            return set_pending(cluster, claim);
        };
        if volume["spec"]["claimRef"].is_null() || matching::is_for(&volume, &claim) {
            if matching::suits(&volume, &claim) && matching::class_of(&volume) == matching::class_of(&claim) {
                return bind(cluster, volume, claim, now);
            }
            let why = format!("Cannot bind to requested volume {name:?}: it does not match the claim");
            tell_once(cluster, &claim, EventType::Warning, "VolumeMismatch", &why, now);
        } else {
            let why = format!("volume {name:?} already bound to a different claim.");
            tell_once(cluster, &claim, EventType::Warning, "FailedBinding", &why, now);
        }
        return set_pending(cluster, claim);
    }
    let is_delayed = matching::is_delayed(&cluster.state, &claim);
    if let Some(volume) = Volumes::of(&cluster.state).take(&claim, None, is_delayed) {
        return bind(cluster, volume, claim, now);
    }
    let class_name = matching::class_of(&claim).to_owned();
    let class = cluster.state.read(&STORAGE_CLASSES, "", &class_name);
    let is_selected = !claim["metadata"]["annotations"][SELECTED_NODE].is_null();
    match class {
        None if class_name.is_empty() => {
            let why = "no persistent volumes available for this claim and no storage class is set";
            tell_once(cluster, &claim, EventType::Normal, "FailedBinding", why, now);
        }
        None => {
            let why = format!("storageclass.storage.k8s.io {class_name:?} not found");
            tell_once(cluster, &claim, EventType::Warning, "ProvisioningFailed", &why, now);
        }
        Some(_) if is_delayed && !is_selected => {
            let why = "waiting for first consumer to be created before binding";
            tell_once(cluster, &claim, EventType::Normal, "WaitForFirstConsumer", why, now);
        }
        Some(class) => {
            let provisioner = text(&class, &["provisioner"]);
            if provisioner == NO_PROVISIONER {
                let why = format!("no volume plugin matched name: {provisioner}");
                tell_once(cluster, &claim, EventType::Warning, "ProvisioningFailed", &why, now);
            } else {
                let why = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
                );
                tell_once(cluster, &claim, EventType::Normal, "ExternalProvisioning", &why, now);
                annotate(&mut claim, STORAGE_PROVISIONER, provisioner);
                annotate(&mut claim, OLD_STORAGE_PROVISIONER, provisioner);
            }
        }
    }
    set_pending(cluster, claim);
}

fn set_pending(cluster: &mut Cluster, mut claim: Value) {
    let key = Key::new(&PERSISTENT_VOLUME_CLAIMS, object::namespace(&claim), object::name(&claim));
    if !claim["status"].is_object() {
        claim["status"] = json!({});
    }
    claim["status"]["phase"] = "Pending".into();
    if read(&cluster.state, &key).is_some_and(|before| before != claim) {
        cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim);
    }
}

/// Binds a claim and a volume to each other, as far as they are not.
fn bind(cluster: &mut Cluster, mut volume: Value, mut claim: Value, now: Timestamp) {
    let (volume_before, claim_before) = (volume.clone(), claim.clone());
    if text(&volume, &["spec", "claimRef", "uid"]) != object::uid(&claim) {
        if volume["spec"]["claimRef"].is_null() {
            annotate(&mut volume, BOUND_BY_CONTROLLER, "yes");
        }
        volume["spec"]["claimRef"] = reference(&claim);
    }
    if text(&volume, &["status", "phase"]) != "Bound" {
        volume["status"]["phase"] = "Bound".into();
        volume["status"]["lastPhaseTransitionTime"] = object::time(now);
    }
    if text(&claim, &["spec", "volumeName"]).is_empty() {
        claim["spec"]["volumeName"] = object::name(&volume).into();
        annotate(&mut claim, BOUND_BY_CONTROLLER, "yes");
    }
    annotate(&mut claim, BIND_COMPLETED, "yes");
    if !claim["status"].is_object() {
        claim["status"] = json!({});
    }
    let is_new = claim_before["metadata"]["annotations"][BIND_COMPLETED].is_null();
    claim["status"]["phase"] = "Bound".into();
    claim["status"]["accessModes"] = volume["spec"]["accessModes"].clone();
    // A claim that has grown says so itself.
    if is_new || claim["status"]["capacity"].is_null() {
        claim["status"]["capacity"] = volume["spec"]["capacity"].clone();
    }
    if volume != volume_before {
        cluster.update_own(&PERSISTENT_VOLUMES, volume);
    }
    if claim != claim_before {
        cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim);
    }
}

/// Keeps a claim as long as pods use it.
fn protect_claim(cluster: &mut Cluster, key: &Key) {
    let Some(mut claim) = read(&cluster.state, key) else { return };
    if !object::is_being_deleted(&claim) {
        if !has_finalizer(&claim, CLAIM_PROTECTION) {
            object::add_finalizer(&mut claim, CLAIM_PROTECTION);
            cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim);
        }
    } else if has_finalizer(&claim, CLAIM_PROTECTION) && !is_used(&cluster.state, key) {
        remove_finalizer(&mut claim, CLAIM_PROTECTION);
        cluster.update_own(&PERSISTENT_VOLUME_CLAIMS, claim);
    }
}

fn is_used(state: &State, claim: &Key) -> bool {
    let pods = state.list(&PODS, Some(&claim.namespace)).map(|(_, stored)| stored);
    let mut running = pods.filter(|stored| {
        let names = says(stored, &claim.name) || says(stored, "ephemeral");
        names && !field(stored, "spec.nodeName").is_empty() && !is_finished(stored)
    });
    running.any(|stored| references::claims(&stored.decode()).any(|name| name == *claim.name))
}

/// Makes the claims that a pod has for itself.
fn make_own_claims(cluster: &mut Cluster, key: &Key, now: Timestamp) {
    let Some(pod) = read(&cluster.state, key) else { return };
    if object::is_being_deleted(&pod) {
        return;
    }
    for volume in object::list(&pod, &["spec", "volumes"]) {
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let name = format!("{}-{}", object::name(&pod), text(volume, &["name"]));
        let claim_key = Key::new(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, &name);
        if template.is_null() || cluster.state.get(&claim_key).is_some() {
            continue;
        }
        let owner = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "name": object::name(&pod),
            "uid": object::uid(&pod),
            "controller": true,
            "blockOwnerDeletion": true,
        });
        let mut claim = json!({
            "metadata": {"name": name, "namespace": key.namespace.as_str(), "ownerReferences": [owner]},
            "spec": template["spec"],
        });
        for field in ["labels", "annotations"] {
            if !template["metadata"][field].is_null() {
                claim["metadata"][field] = template["metadata"][field].clone();
            }
        }
        cluster.create_own(&PERSISTENT_VOLUME_CLAIMS, claim, now);
    }
}

fn tell(
    cluster: &mut Cluster,
    resource: &'static Resource,
    about: &Value,
    kind: EventType,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let told = Told { component: COMPONENT, kind, reason, action: "", message };
    cluster.tell(resource, about, &told, now);
}

/// Tells what keeps a claim waiting, the first time that it is looked at.
fn tell_once(
    cluster: &mut Cluster,
    claim: &Value,
    kind: EventType,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let told = Told { component: COMPONENT, kind, reason, action: "", message };
    if !cluster.has_told(claim, &told) {
        cluster.tell(&PERSISTENT_VOLUME_CLAIMS, claim, &told, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::cluster::delete::DeleteOptions;
    use crate::resources::{EVENTS, NODES};

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(now());
        cluster
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn put_volume(cluster: &mut Cluster, name: &str, policy: &str) {
        let spec = json!({
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "persistentVolumeReclaimPolicy": policy,
        });
        cluster
            .state
            .put(&PERSISTENT_VOLUMES, json!({"metadata": {"name": name, "uid": name}, "spec": spec}));
    }

    fn put_claim(cluster: &mut Cluster, name: &str) {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "5Gi"}},
        });
        let metadata = json!({"name": name, "namespace": "default", "uid": name});
        cluster.state.put(&PERSISTENT_VOLUME_CLAIMS, json!({"metadata": metadata, "spec": spec}));
    }

    fn put_class(cluster: &mut Cluster, mode: &str) {
        let class =
            json!({"metadata": {"name": "local"}, "provisioner": NO_PROVISIONER, "volumeBindingMode": mode});
        cluster.state.put(&STORAGE_CLASSES, class);
    }

    fn claim(cluster: &Cluster, name: &str) -> Value {
        cluster.state.read(&PERSISTENT_VOLUME_CLAIMS, "default", name).unwrap()
    }

    fn volume(cluster: &Cluster, name: &str) -> Value {
        cluster.state.read(&PERSISTENT_VOLUMES, "", name).unwrap()
    }

    fn phases(cluster: &Cluster) -> (String, String) {
        let phase = |object: Value| text(&object, &["status", "phase"]).to_owned();
        (phase(claim(cluster, "c")), phase(volume(cluster, "v")))
    }

    #[test]
    fn a_claim_and_a_volume_are_bound_to_each_other() {
        let mut cluster = cluster();
        put_class(&mut cluster, "Immediate");
        put_claim(&mut cluster, "c");
        cluster.tick(now());
        assert_eq!(claim(&cluster, "c")["status"]["phase"], "Pending");
        put_volume(&mut cluster, "v", "Retain");
        cluster.tick(now());
        assert_eq!(phases(&cluster), ("Bound".to_owned(), "Bound".to_owned()));
        let (claim, volume) = (claim(&cluster, "c"), volume(&cluster, "v"));
        assert_eq!(claim["spec"]["volumeName"], "v");
        assert_eq!(claim["status"]["capacity"], json!({"storage": "10Gi"}));
        assert_eq!(
            claim["metadata"]["annotations"],
            json!({BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"})
        );
        assert_eq!(text(&volume, &["spec", "claimRef", "uid"]), "c");
        let before = cluster.state.revision();
        cluster.tick(now());
        assert_eq!(cluster.state.revision(), before);
    }

    #[test]
    fn a_volume_is_released_and_a_claim_is_lost() {
        let mut cluster = cluster();
        put_class(&mut cluster, "Immediate");
        put_volume(&mut cluster, "v", "Retain");
        put_claim(&mut cluster, "c");
        cluster.tick(now());
        let key = Key::new(&PERSISTENT_VOLUME_CLAIMS, "default", "c");
        cluster.delete_own(&key, &DeleteOptions::default(), now());
        cluster.tick(now());
        assert!(cluster.state.get(&key).is_none());
        assert_eq!(volume(&cluster, "v")["status"]["phase"], "Released");
        put_volume(&mut cluster, "w", "Delete");
        put_claim(&mut cluster, "d");
        cluster.tick(now());
        assert_eq!(volume(&cluster, "w")["status"]["phase"], "Bound");
        cluster.state.remove(&PERSISTENT_VOLUMES, &Key::new(&PERSISTENT_VOLUMES, "", "w"));
        cluster.tick(now());
        assert_eq!(claim(&cluster, "d")["status"], json!({"phase": "Lost"}));
    }

    #[test]
    fn a_volume_that_nobody_can_wipe_fails() {
        let mut cluster = cluster();
        put_class(&mut cluster, "Immediate");
        put_volume(&mut cluster, "v", "Delete");
        put_claim(&mut cluster, "c");
        cluster.tick(now());
        cluster.delete_own(
            &Key::new(&PERSISTENT_VOLUME_CLAIMS, "default", "c"),
            &DeleteOptions::default(),
            now(),
        );
        cluster.tick(now());
        assert_eq!(volume(&cluster, "v")["status"]["phase"], "Failed");
        let event =
            cluster.state.read_all(&EVENTS, None).find(|event| event["reason"] == "VolumeFailedDelete");
        assert!(event.is_some());
    }

    #[test]
    fn a_claim_that_waits_for_its_pod_is_bound_with_it() {
        let mut cluster = cluster();
        put_class(&mut cluster, "WaitForFirstConsumer");
        put_volume(&mut cluster, "v", "Retain");
        put_claim(&mut cluster, "c");
        cluster.tick(now());
        assert_eq!(phases(&cluster), ("Pending".to_owned(), "Available".to_owned()));
        let status = json!({"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        cluster.state.put(&NODES, json!({"metadata": {"name": "n", "uid": "n"}, "status": status}));
        let spec = json!({
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        });
        cluster
            .state
            .put(&PODS, json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec}));
        cluster.tick(now());
        assert_eq!(phases(&cluster), ("Bound".to_owned(), "Bound".to_owned()));
        let pod = cluster.state.read(&PODS, "default", "p").unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n");
        // And it stays while the pod does.
        let key = Key::new(&PERSISTENT_VOLUME_CLAIMS, "default", "c");
        cluster.delete_own(&key, &DeleteOptions::default(), now());
        cluster.tick(now());
        assert!(cluster.state.get(&key).is_some());
        cluster.state.remove(&PODS, &Key::new(&PODS, "default", "p"));
        cluster.tick(now());
        assert!(cluster.state.get(&key).is_none());
    }
}
