//! Volumes that are attached to nodes before they are mounted: for each such volume of a pod on a node there is a
//! `VolumeAttachment`, and the node's status says so.
//!
//! Who attaches comes with a driver, as upstream's `external-attacher`, and is waited for where a `CSIDriver` says that the
//! driver needs it, or does not say otherwise. For a driver without that object, upstream waits too; here there is
//! nothing to be moved on one machine, and what is asked for counts as attached.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::binder::usage::{field, takes_room};
use super::garbage::says;
use super::write::{EventType, Told};
use super::{Controller, is_of};
use crate::access::references;
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object::{self, list, text};
use crate::resources::{
    CSI_DRIVERS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, VOLUME_ATTACHMENTS,
};
use crate::state::{Change, ChangeKind, Key, State, Stored};

/// Who tells of it, upstream.
const COMPONENT: &str = "attachdetach-controller";
/// How long somebody may take to attach a volume before it is told that he is waited for, and then again.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

#[derive(Debug, Default)]
pub(super) struct Attachments {
    is_changed: bool,
    /// The attachments of which it was just said why they cannot be made.
    failed: BTreeSet<String>,
    /// The attachments of which nothing was said yet, and when that is told.
    awaited: BTreeMap<String, Timestamp>,
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
        if is_of(change, &VOLUME_ATTACHMENTS) {
            let error = |stored: &Stored| stored.decode()["status"]["attachError"].take();
            let (before, now) = (change.previous.as_deref().map(error), error(&change.object));
            if !now.is_null() && before != Some(now) {
                self.failed.insert(change.key.name.to_string());
            }
        }
    }

    fn next(&self) -> Option<Timestamp> {
        self.awaited.values().min().copied()
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        let is_time = self.next().is_some_and(|next| next <= now);
        if !std::mem::take(&mut self.is_changed) && !is_time {
            return;
        }
        let wanted = wanted(&cluster.state);
        let there: Vec<Value> = cluster.state.read_all(&VOLUME_ATTACHMENTS, None).collect();
        if wanted.is_empty() && there.is_empty() {
            *self = Attachments::default();
            return;
        }
        for (name, attachment) in &wanted {
            let Attachment { driver, node, volume, .. } = attachment;
            let spec =
                json!({"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}});
            let known = there.iter().find(|there| object::name(there) == name).cloned();
            let known = known.or_else(|| {
                let attachment = json!({"metadata": {"name": name}, "spec": spec});
                cluster.create_own(&VOLUME_ATTACHMENTS, attachment, now)
            });
            if let Some(mut known) = known
                && !is_awaited(&cluster.state, driver)
                && !is_attached(&known)
                && !object::is_being_deleted(&known)
            {
                known["status"] = json!({"attached": true});
                cluster.update_own(&VOLUME_ATTACHMENTS, known);
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
        self.tell_of_failures(cluster, &wanted, now);
        say_on_nodes(cluster, &wanted, now);
    }
}

impl Attachments {
    /// Tells why volumes are not attached, as soon as somebody says so, and at times of those that nobody says anything of.
    fn tell_of_failures(
        &mut self,
        cluster: &mut Cluster,
        wanted: &BTreeMap<String, Attachment>,
        now: Timestamp,
    ) {
        let (failed, before) = (std::mem::take(&mut self.failed), std::mem::take(&mut self.awaited));
        for (name, attachment) in wanted {
            let Some(known) = cluster.state.read(&VOLUME_ATTACHMENTS, "", name) else { continue };
            if is_attached(&known) || object::is_being_deleted(&known) {
                continue;
            }
            let Attachment { driver, handle, .. } = attachment;
            let error = &known["status"]["attachError"];
            let why = if failed.contains(name) {
                text(error, &["message"]).to_owned()
            } else if !error.is_null() {
                continue;
            } else {
                let later = now.saturating_add(PATIENCE).unwrap_or(Timestamp::MAX);
                match before.get(name) {
                    Some(due) if *due > now => {
                        self.awaited.insert(name.clone(), *due);
                        continue;
                    }
                    None => {
                        self.awaited.insert(name.clone(), later);
                        continue;
                    }
                    Some(_) => {
                        self.awaited.insert(name.clone(), later);
                        format!(
                            "timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
                        )
                    }
                }
            };
            let message = format!("AttachVolume.Attach failed for volume {:?} : {why}", attachment.volume);
            attachment.tell(cluster, EventType::Warning, "FailedAttachVolume", &message, now);
        }
    }
}

/// A volume that a node needs.
struct Attachment {
    driver: String,
    handle: String,
    node: String,
    volume: String,
    /// Who needs it.
    pods: Vec<Key>,
}

impl Attachment {
    fn tell(&self, cluster: &mut Cluster, kind: EventType, reason: &str, message: &str, now: Timestamp) {
        let told = Told { component: COMPONENT, kind, reason, action: "", message };
        for pod in &self.pods {
            if let Some(pod) = cluster.state.read(&PODS, &pod.namespace, &pod.name) {
                cluster.tell(&PODS, &pod, &told, now);
            }
        }
    }
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
        for (node, pods) in users_of(state, namespace, claim_name) {
            if state.get(&Key::new(&NODES, "", &node)).is_none() {
                continue;
            }
            let handle = text(&volume, &["spec", "csi", "volumeHandle"]).to_owned();
            let name = name(&handle, driver, &node);
            let (driver, volume) = (driver.to_owned(), object::name(&volume).to_owned());
            wanted.insert(name, Attachment { driver, handle, node, volume, pods });
        }
    }
    wanted
}

/// A driver that is not known is assumed to need it.
fn needs_attaching(state: &State, driver: &str) -> bool {
    let known = state.read(&CSI_DRIVERS, "", driver);
    known.is_none_or(|known| known["spec"]["attachRequired"] != false)
}

/// Whether somebody attaches the volumes of a driver.
fn is_awaited(state: &State, driver: &str) -> bool {
    state.get(&Key::new(&CSI_DRIVERS, "", driver)).is_some()
}

fn is_attached(attachment: &Value) -> bool {
    attachment["status"]["attached"] == true
}

/// The pods that use a claim, by their nodes.
fn users_of(state: &State, namespace: &str, claim: &str) -> BTreeMap<String, Vec<Key>> {
    let pods = state.list(&PODS, Some(namespace));
    let using = pods.filter(|(_, stored)| {
        takes_room(stored)
            && (says(stored, claim) || says(stored, "ephemeral"))
            && references::claims(&stored.decode()).any(|own| own == claim)
    });
    let mut users = BTreeMap::<_, Vec<_>>::new();
    for (key, stored) in using {
        users.entry(field(stored, "spec.nodeName").to_owned()).or_default().push(key.clone());
    }
    users
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

/// Lets the nodes' statuses name what is attached to them, and tells it to the pods that have waited for it.
fn say_on_nodes(cluster: &mut Cluster, wanted: &BTreeMap<String, Attachment>, now: Timestamp) {
    let attachments: Vec<Value> = cluster.state.read_all(&VOLUME_ATTACHMENTS, None).collect();
    let nodes: Vec<Value> = cluster.state.read_all(&NODES, None).collect();
    for mut node in nodes {
        let attached = attachments.iter().filter(|attachment| {
            text(attachment, &["spec", "nodeName"]) == object::name(&node)
                && is_attached(attachment)
                && !object::is_being_deleted(attachment)
        });
        let names: BTreeMap<String, &str> = attached
            .filter_map(|attachment| {
                let volume = text(attachment, &["spec", "source", "persistentVolumeName"]);
                let volume = cluster.state.read(&PERSISTENT_VOLUMES, "", volume)?;
                Some((unique_name(&volume), object::name(attachment)))
            })
            .collect();
        let attached: Vec<Value> = names.keys().map(|name| json!({"name": name, "devicePath": ""})).collect();
        let before = list(&node, &["status", "volumesAttached"]).to_vec();
        if before == attached {
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
        for (unique, name) in names {
            if before.iter().any(|before| before["name"] == unique) {
                continue;
            }
            if let Some(attachment) = wanted.get(name) {
                // The space at the end is upstream's.
                let message = format!("AttachVolume.Attach succeeded for volume {:?} ", attachment.volume);
                attachment.tell(cluster, EventType::Normal, "SuccessfulAttachVolume", &message, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::resources::EVENTS;

    /// A pod with a volume of a driver that says of itself whether its volumes must be attached, or nothing.
    fn cluster(attach_required: Option<bool>) -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(now());
        if let Some(attach_required) = attach_required {
            let spec = json!({"attachRequired": attach_required});
            cluster.state.put(&CSI_DRIVERS, json!({"metadata": {"name": "d.example.com"}, "spec": spec}));
        }
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
        let mut cluster = cluster(None);
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

    /// The reasons and messages of events about pods, the earliest first.
    fn events(cluster: &Cluster) -> Vec<(String, String, i64)> {
        let mut events: Vec<Value> = cluster.state.read_all(&EVENTS, None).collect();
        events.sort_by_key(|event| object::meta(event, "creationTimestamp").to_owned());
        let told = events.iter().filter(|event| event["involvedObject"]["kind"] == "Pod");
        told.map(|event| {
            let words = ["reason", "message"].map(|field| text(event, &[field]).to_owned());
            let [reason, message] = words;
            (reason, message, event["count"].as_i64().unwrap())
        })
        .collect()
    }

    #[test]
    fn a_driver_that_says_nothing_of_itself_has_its_volumes_attached_at_once() {
        let mut cluster = cluster(None);
        let told = "AttachVolume.Attach succeeded for volume \"v\" ".to_owned();
        assert_eq!(events(&cluster), [("SuccessfulAttachVolume".to_owned(), told, 1)]);
        let before = cluster.state.revision();
        assert_eq!(cluster.tick(now()), cluster.tick(now()));
        assert_eq!(cluster.state.revision(), before, "and only once");
    }

    #[test]
    fn a_driver_that_needs_its_volumes_attached_is_waited_for() {
        let mut cluster = cluster(Some(true));
        let at = |seconds| now() + SignedDuration::from_secs(seconds);
        let attached = |cluster: &Cluster| {
            cluster.state.read(&NODES, "", "n").unwrap()["status"]["volumesAttached"].clone()
        };
        assert!(!is_attached(&attachments(&cluster)[0]));
        assert_eq!((events(&cluster), attached(&cluster)), (Vec::new(), Value::Null));
        assert!(cluster.tick(at(119)).is_some_and(|next| next <= at(120)));
        assert_eq!(events(&cluster), []);
        let failed = |why: &str, times| {
            let message = format!("AttachVolume.Attach failed for volume \"v\" : {why}");
            ("FailedAttachVolume".to_owned(), message, times)
        };
        let late =
            "timed out waiting for external-attacher of d.example.com CSI driver to attach volume handle";
        cluster.tick(at(120));
        assert_eq!(events(&cluster), [failed(late, 1)]);
        cluster.tick(at(240));
        assert_eq!(events(&cluster), [failed(late, 2)]);

        let mut attachment = attachments(&cluster).remove(0);
        attachment["status"] = json!({"attached": false, "attachError": {"message": "no room"}});
        cluster.state.put(&VOLUME_ATTACHMENTS, attachment.clone());
        cluster.tick(at(241));
        assert_eq!(events(&cluster), [failed(late, 2), failed("no room", 1)]);
        cluster.tick(at(1000));
        assert_eq!(events(&cluster), [failed(late, 2), failed("no room", 1)]);

        let status = json!({"attached": true, "attachmentMetadata": {"slot": "1"}});
        attachment["status"] = status.clone();
        cluster.state.put(&VOLUME_ATTACHMENTS, attachment);
        cluster.tick(at(1001));
        assert_eq!(attachments(&cluster)[0]["status"], status);
        assert_eq!(attached(&cluster)[0]["name"], "kubernetes.io/csi/d.example.com^handle");
        assert_eq!(events(&cluster).last().unwrap().0, "SuccessfulAttachVolume");

        // Without its object nobody is known to attach what it needs.
        cluster.state.remove(
            &VOLUME_ATTACHMENTS,
            &Key::new(&VOLUME_ATTACHMENTS, "", &name("handle", "d.example.com", "n")),
        );
        cluster.tick(at(1002));
        assert!(!is_attached(&attachments(&cluster)[0]));
        cluster.state.remove(&CSI_DRIVERS, &Key::new(&CSI_DRIVERS, "", "d.example.com"));
        cluster.tick(at(1003));
        assert!(is_attached(&attachments(&cluster)[0]));
    }

    #[test]
    fn a_driver_that_attaches_nothing_gets_no_attachment() {
        assert_eq!(attachments(&cluster(Some(false))), Vec::<Value>::new());
    }

    #[test]
    fn the_name_is_upstreams() {
        assert_eq!(
            name("vol", "driver", "node"),
            "csi-4af94228ee9d441e02225497584706bfc975bdb4d2db3571d8c5db2668c1e969"
        );
    }
}
