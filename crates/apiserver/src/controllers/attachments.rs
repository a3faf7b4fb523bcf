//! Volumes that are attached to nodes before they are mounted: for each such volume of a pod on a node there is a
//! `VolumeAttachment`, and the node's status says so.
//!
//! With one machine there is nothing to be moved, and most drivers have nobody beside them who would attach: what is
//! asked for counts as attached.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::binder::usage::{field, takes_room};
use super::garbage::says;
use super::{Controller, is_of};
use crate::access::references;
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object::{self, list, text};
use crate::resources::{
    CSI_DRIVERS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, VOLUME_ATTACHMENTS,
};
use crate::state::{Change, ChangeKind, Key, State};

#[derive(Debug, Default)]
pub(super) struct Attachments {
    is_changed: bool,
}

impl Controller for Attachments {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        let kinds =
            [&CSI_DRIVERS, &NODES, &PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES, &VOLUME_ATTACHMENTS];
        // A pod that only says how it is needs nothing new.
        let is_news = || {
            let was_there = change.previous.as_ref().is_some_and(|previous| takes_room(previous));
            change.kind == ChangeKind::Deleted || was_there != takes_room(&change.object)
        };
        let is_of_pod = || {
            is_of(change, &PODS)
                && is_news()
                && (says(&change.object, "persistentVolumeClaim") || says(&change.object, "ephemeral"))
        };
        self.is_changed |= kinds.into_iter().any(|kind| is_of(change, kind)) || is_of_pod();
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let wanted = wanted(&cluster.state);
        let there: Vec<Value> = cluster.state.read_all(&VOLUME_ATTACHMENTS, None).collect();
        if wanted.is_empty() && there.is_empty() {
            return;
        }
        for (name, attachment) in &wanted {
            if there.iter().any(|there| object::name(there) == name) {
                continue;
            }
            let Attachment { driver, node, volume, .. } = attachment;
            let spec =
                json!({"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}});
            let created = cluster.create_own(
                &VOLUME_ATTACHMENTS,
                json!({"metadata": {"name": name}, "spec": spec, "status": {"attached": true}}),
                now,
            );
            // What is created has no status yet.
            if let Some(mut created) = created
                && created["status"]["attached"] != true
            {
                created["status"] = json!({"attached": true});
                cluster.update_own(&VOLUME_ATTACHMENTS, created);
            }
        }
        for attachment in there {
            let is_ours = is_ours(&attachment);
            let name = object::name(&attachment);
            if is_ours && !wanted.contains_key(name) && !is_in_use(&cluster.state, &attachment) {
                let key = Key::new(&VOLUME_ATTACHMENTS, "", name);
                cluster.delete_own(&key, &DeleteOptions::default(), now);
            }
        }
        say_on_nodes(cluster);
    }
}

/// A volume that a node needs.
struct Attachment {
    driver: String,
    node: String,
    volume: String,
}

/// What is to be attached, by the names of the attachments.
fn wanted(state: &State) -> BTreeMap<String, Attachment> {
    let mut wanted = BTreeMap::new();
    for volume in state.read_all(&PERSISTENT_VOLUMES, None) {
        let driver = text(&volume, &["spec", "csi", "driver"]);
        if driver.is_empty() || !needs_attaching(state, driver) {
            continue;
        }
        let claim = &volume["spec"]["claimRef"];
        let (namespace, claim_name) = (text(claim, &["namespace"]), text(claim, &["name"]));
        let bound = state.read(&PERSISTENT_VOLUME_CLAIMS, namespace, claim_name).unwrap_or_default();
        if text(&bound, &["spec", "volumeName"]) != object::name(&volume) {
            continue;
        }
        for node in nodes_of(state, namespace, claim_name) {
            if state.get(&Key::new(&NODES, "", &node)).is_none() {
                continue;
            }
            let handle = text(&volume, &["spec", "csi", "volumeHandle"]);
            let name = name(handle, driver, &node);
            let volume = object::name(&volume).to_owned();
            wanted.insert(name, Attachment { driver: driver.to_owned(), node, volume });
        }
    }
    wanted
}

/// A driver that is not known is assumed to need it.
fn needs_attaching(state: &State, driver: &str) -> bool {
    let known = state.read(&CSI_DRIVERS, "", driver);
    known.is_none_or(|known| known["spec"]["attachRequired"] != false)
}

/// The nodes with pods that use a claim.
fn nodes_of(state: &State, namespace: &str, claim: &str) -> BTreeSet<String> {
    let pods = state.list(&PODS, Some(namespace)).map(|(_, stored)| stored);
    let using = pods.filter(|stored| {
        takes_room(stored)
            && (says(stored, claim) || says(stored, "ephemeral"))
            && references::claims(&stored.decode()).any(|own| own == claim)
    });
    using.map(|stored| field(stored, "spec.nodeName").to_owned()).collect()
}

fn name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}").as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{digest}")
}

fn is_ours(attachment: &Value) -> bool {
    let digest = object::name(attachment).strip_prefix("csi-");
    digest.is_some_and(|digest| digest.len() == 64)
}

/// What nodes call a volume.
fn unique_name(volume: &Value) -> String {
    let csi = &volume["spec"]["csi"];
    format!("kubernetes.io/csi/{}^{}", text(csi, &["driver"]), text(csi, &["volumeHandle"]))
}

/// Whether a node still has a volume mounted.
fn is_in_use(state: &State, attachment: &Value) -> bool {
    let node = state.read(&NODES, "", text(attachment, &["spec", "nodeName"])).unwrap_or_default();
    let volume = text(attachment, &["spec", "source", "persistentVolumeName"]);
    let Some(volume) = state.read(&PERSISTENT_VOLUMES, "", volume) else { return false };
    let volume = unique_name(&volume);
    list(&node, &["status", "volumesInUse"]).iter().any(|used| *used == *volume)
}

/// Lets the nodes' statuses name what is attached to them.
fn say_on_nodes(cluster: &mut Cluster) {
    let attachments: Vec<Value> = cluster.state.read_all(&VOLUME_ATTACHMENTS, None).collect();
    let nodes: Vec<Value> = cluster.state.read_all(&NODES, None).collect();
    for mut node in nodes {
        let attached = attachments.iter().filter(|attachment| {
            text(attachment, &["spec", "nodeName"]) == object::name(&node)
                && attachment["status"]["attached"] == true
                && !object::is_being_deleted(attachment)
        });
        let names: BTreeSet<String> = attached
            .filter_map(|attachment| {
                let volume = text(attachment, &["spec", "source", "persistentVolumeName"]);
                cluster.state.read(&PERSISTENT_VOLUMES, "", volume).map(|volume| unique_name(&volume))
            })
            .collect();
        let attached: Vec<Value> = names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        if list(&node, &["status", "volumesAttached"]) == attached {
            continue;
        }
        if !node["status"].is_object() {
            node["status"] = json!({});
        }
        match attached.is_empty() {
            true => drop(object::remove(&mut node["status"], "volumesAttached")),
            false => node["status"]["volumesAttached"] = attached.into(),
        }
        cluster.update_own(&NODES, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;

    fn cluster(attach_required: bool) -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(now());
        let driver =
            json!({"metadata": {"name": "d.example.com"}, "spec": {"attachRequired": attach_required}});
        cluster.state.put(&CSI_DRIVERS, driver);
        cluster.state.put(&NODES, json!({"metadata": {"name": "n", "uid": "n"}}));
        let spec = json!({
            "claimRef": {"namespace": "default", "name": "c", "uid": "c"},
            "csi": {"driver": "d.example.com", "volumeHandle": "handle"},
        });
        cluster.state.put(&PERSISTENT_VOLUMES, json!({"metadata": {"name": "v", "uid": "v"}, "spec": spec}));
        let metadata = json!({
            "name": "c",
            "namespace": "default",
            "uid": "c",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        });
        let claim = json!({"metadata": metadata, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
        cluster.state.put(&PERSISTENT_VOLUME_CLAIMS, claim);
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
        let metadata = json!({"name": "p", "namespace": "default", "uid": "p"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "volumes": volumes}, "status": {"phase": "Pending"}});
        cluster.state.put(&PODS, pod);
        cluster.tick(now());
        cluster
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn attachments(cluster: &Cluster) -> Vec<Value> {
        cluster.state.read_all(&VOLUME_ATTACHMENTS, None).collect()
    }

    #[test]
    fn a_volume_is_attached_while_a_pod_needs_it_and_its_node_has_it() {
        let mut cluster = cluster(true);
        let there = attachments(&cluster);
        assert_eq!(there.len(), 1);
        assert_eq!(
            there[0]["spec"],
            json!({"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}})
        );
        assert_eq!(there[0]["status"]["attached"], true);
        let mut node = cluster.state.read(&NODES, "", "n").unwrap();
        let unique = "kubernetes.io/csi/d.example.com^handle";
        assert_eq!(node["status"]["volumesAttached"], json!([{"name": unique, "devicePath": ""}]));
        node["status"]["volumesInUse"] = json!([unique]);
        cluster.state.put(&NODES, node.clone());
        cluster.state.remove(&PODS, &Key::new(&PODS, "default", "p"));
        cluster.tick(now());
        assert_eq!(attachments(&cluster).len(), 1);
        let mut node = cluster.state.read(&NODES, "", "n").unwrap();
        object::remove(&mut node["status"], "volumesInUse");
        cluster.state.put(&NODES, node);
        cluster.tick(now());
        assert_eq!(attachments(&cluster).len(), 0);
        let node = cluster.state.read(&NODES, "", "n").unwrap();
        assert_eq!(node["status"]["volumesAttached"], Value::Null);
    }

    #[test]
    fn a_driver_that_attaches_nothing_gets_no_attachment() {
        assert_eq!(attachments(&cluster(false)), Vec::<Value>::new());
    }

    #[test]
    fn the_name_is_upstreams() {
        assert_eq!(
            name("vol", "driver", "node"),
            "csi-4af94228ee9d441e02225497584706bfc975bdb4d2db3571d8c5db2668c1e969"
        );
    }
}
