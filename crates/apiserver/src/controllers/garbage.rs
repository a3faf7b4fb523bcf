//! The garbage collector: what belongs to something that is gone goes too.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::Text;
use jiff::Timestamp;
use serde_json::Value;

use super::{Controller, is_of, resource_of};
use crate::cluster::Cluster;
use crate::cluster::delete::DeleteOptions;
use crate::object::{self, text};
use crate::resources::{EVENTS, RESOURCES};
use crate::state::{Change, ChangeKind, Key, State, Stored};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// What belongs to an owner, by the owner's UID.
    owned: BTreeMap<Text, BTreeSet<Key>>,
    /// Dependents whose owners may have gone.
    doubtful: BTreeSet<Key>,
    /// Owners that wait for their dependents.
    waiting: BTreeSet<Key>,
    /// Whether one of those may have waited long enough.
    is_one_due: bool,
}

impl Controller for Garbage {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        // Events belong to nobody, and there are many.
        if is_of(change, &EVENTS) {
            return;
        }
        let previous = change.previous.as_ref().filter(|_| !self.owned.is_empty());
        let had_owners = previous.is_some_and(|previous| says(previous, "ownerReferences"));
        let has_owners = says(&change.object, "ownerReferences");
        if had_owners && let Some(previous) = &change.previous {
            self.forget(&change.key, &previous.decode());
        }
        if change.kind == ChangeKind::Deleted {
            self.waiting.remove(&change.key);
            self.doubtful.remove(&change.key);
            if !self.owned.is_empty() {
                let uid: Text = object::uid(&change.object.decode()).into();
                self.doubtful.extend(self.owned.get(&uid).into_iter().flatten().cloned());
            }
            return;
        }
        if has_owners {
            for reference in object::list(&change.object.decode(), &["metadata", "ownerReferences"]) {
                let owned = self.owned.entry(text(reference, &["uid"]).into()).or_default();
                owned.insert(change.key.clone());
            }
            self.doubtful.insert(change.key.clone());
        }
        let waits = || says(&change.object, FOREGROUND) || says(&change.object, ORPHAN);
        if says(&change.object, "deletionTimestamp") && waits() {
            self.waiting.insert(change.key.clone());
            self.is_one_due = true;
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        if std::mem::take(&mut self.is_one_due) {
            for key in self.waiting.clone() {
                self.see_whether_it_can_go(cluster, &key);
            }
        }
        for key in std::mem::take(&mut self.doubtful) {
            collect(cluster, &key, now);
        }
    }
}

impl Garbage {
    /// Forgets whom an object belonged to.
    fn forget(&mut self, key: &Key, object: &Value) {
        for reference in object::list(object, &["metadata", "ownerReferences"]) {
            let uid = text(reference, &["uid"]);
            if let Some(owned) = self.owned.get_mut(uid) {
                owned.remove(key);
                if owned.is_empty() {
                    self.owned.remove(uid);
                }
            }
            self.is_one_due |= !self.waiting.is_empty();
        }
    }

    /// Lets an owner go whose dependents are gone, or are told that they belong to nobody.
    fn see_whether_it_can_go(&mut self, cluster: &mut Cluster, key: &Key) {
        let Some(resource) = resource_of(key.resource) else { return };
        let Some(mut owner) = cluster.state.get(key).map(|stored| stored.decode()) else {
            self.waiting.remove(key);
            return;
        };
        if !object::is_being_deleted(&owner) {
            return;
        }
        let uid: Text = object::uid(&owner).into();
        let dependents: Vec<Key> = self.owned.get(&uid).into_iter().flatten().cloned().collect();
        if has_finalizer(&owner, ORPHAN) {
            for dependent in dependents {
                release(cluster, &dependent, |reference| text(reference, &["uid"]) != uid.as_str());
            }
            remove_finalizer(&mut owner, ORPHAN);
            cluster.update_own(resource, owner);
        } else if has_finalizer(&owner, FOREGROUND) {
            let blocks = |dependent: &Key| {
                let dependent =
                    cluster.state.get(dependent).map(|stored| stored.decode()).unwrap_or_default();
                object::list(&dependent, &["metadata", "ownerReferences"]).iter().any(|reference| {
                    text(reference, &["uid"]) == uid.as_str() && reference["blockOwnerDeletion"] == true
                })
            };
            if dependents.iter().any(blocks) {
                self.doubtful.extend(dependents);
            } else {
                remove_finalizer(&mut owner, FOREGROUND);
                self.waiting.remove(key);
                cluster.update_own(resource, owner);
            }
        } else {
            self.waiting.remove(key);
        }
    }
}

/// What an owner that is named in an object is to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    There,
    /// It is being deleted, and waits for what belongs to it.
    Waiting,
    Gone,
}

fn owner(state: &State, dependent: &Key, reference: &Value) -> Owner {
    let (version, kind) = (text(reference, &["apiVersion"]), text(reference, &["kind"]));
    let mut kinds = RESOURCES.into_iter();
    let Some(resource) = kinds.find(|resource| resource.kind == kind && resource.api_version() == version)
    else {
        // Nobody here knows of such things, so nobody here can say that they are gone.
        return Owner::There;
    };
    let namespace = if resource.is_namespaced() { dependent.namespace.as_str() } else { "" };
    let found = state.read(resource, namespace, text(reference, &["name"]));
    match found.filter(|found| object::uid(found) == text(reference, &["uid"])) {
        None => Owner::Gone,
        Some(found) if object::is_being_deleted(&found) && has_finalizer(&found, FOREGROUND) => {
            Owner::Waiting
        }
        Some(_) => Owner::There,
    }
}

/// Deletes an object that belonged to somebody and belongs to nobody any more.
fn collect(cluster: &mut Cluster, key: &Key, now: Timestamp) {
    let Some(object) = cluster.state.get(key).map(|stored| stored.decode()) else { return };
    let references = object::list(&object, &["metadata", "ownerReferences"]);
    if references.is_empty() || (object::is_being_deleted(&object) && !has_finalizer(&object, FOREGROUND)) {
        return;
    }
    let owners: Vec<Owner> =
        references.iter().map(|reference| owner(&cluster.state, key, reference)).collect();
    let (state, all) = (&cluster.state, owners.len());
    let there = owners.iter().filter(|owner| **owner == Owner::There).count();
    if there == all {
        return;
    }
    if there > 0 {
        let uids: BTreeSet<String> = references
            .iter()
            .filter(|reference| owner(state, key, reference) == Owner::There)
            .map(|reference| text(reference, &["uid"]).to_owned())
            .collect();
        release(cluster, key, |reference| uids.contains(text(reference, &["uid"])));
        return;
    }
    let propagation = if has_finalizer(&object, FOREGROUND) { "Foreground" } else { "Background" };
    let options = DeleteOptions {
        uid: Some(object::uid(&object).to_owned()),
        propagation: Some(propagation.to_owned()),
        ..DeleteOptions::default()
    };
    cluster.delete_own(key, &options, now);
}

/// Keeps only some of an object's owners.
fn release(cluster: &mut Cluster, key: &Key, keeps: impl Fn(&Value) -> bool) {
    let Some(resource) = resource_of(key.resource) else { return };
    let Some(mut object) = cluster.state.get(key).map(|stored| stored.decode()) else { return };
    let references = object::list(&object, &["metadata", "ownerReferences"]);
    let kept: Vec<Value> = references.iter().filter(|reference| keeps(reference)).cloned().collect();
    if kept.is_empty() {
        object::remove(&mut object["metadata"], "ownerReferences");
    } else {
        object["metadata"]["ownerReferences"] = kept.into();
    }
    cluster.update_own(resource, object);
}

pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object::finalizers(object).iter().any(|own| own == finalizer)
}

pub(super) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<Value> =
        object::finalizers(object).iter().filter(|own| *own != finalizer).cloned().collect();
    if kept.is_empty() {
        object::remove(&mut object["metadata"], "finalizers");
    } else {
        object["metadata"]["finalizers"] = kept.into();
    }
}

/// Whether a word is in an object's text at all: most have none, and need not be decoded for it.
pub(super) fn says(stored: &Stored, word: &str) -> bool {
    let quoted = format!("\"{word}\"");
    std::str::from_utf8(&stored.json()).is_ok_and(|json| json.contains(&quoted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Settings;
    use crate::resources::{CONFIG_MAPS, NODES};

    fn owned(name: &str, owners: &[(&str, &str)]) -> Value {
        let references: Vec<Value> = owners
            .iter()
            .map(|(kind, owner)| {
                json!({"apiVersion": "v1", "kind": kind, "name": owner, "uid": format!("uid-{owner}"), "blockOwnerDeletion": true})
            })
            .collect();
        json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "ownerReferences": references}})
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::new(State::default(), Settings::default(), 1);
        cluster.tick(Timestamp::UNIX_EPOCH);
        cluster.state.put(&NODES, json!({"metadata": {"name": "n", "uid": "uid-n"}}));
        cluster
            .state
            .put(&CONFIG_MAPS, json!({"metadata": {"name": "a", "namespace": "default", "uid": "uid-a"}}));
        cluster.state.put(&CONFIG_MAPS, owned("b", &[("ConfigMap", "a")]));
        cluster.state.put(&CONFIG_MAPS, owned("c", &[("ConfigMap", "b")]));
        cluster.state.put(&CONFIG_MAPS, owned("both", &[("ConfigMap", "a"), ("Node", "n")]));
        cluster.state.put(&CONFIG_MAPS, owned("foreign", &[("Deployment", "d")]));
        cluster.tick(Timestamp::UNIX_EPOCH);
        cluster
    }

    fn left(cluster: &Cluster) -> Vec<String> {
        cluster.state.list(&CONFIG_MAPS, Some("default")).map(|(key, _)| key.name.to_string()).collect()
    }

    #[test]
    fn what_belongs_to_something_gone_goes_and_so_does_what_belongs_to_that() {
        let mut cluster = cluster();
        assert_eq!(left(&cluster), ["a", "b", "both", "c", "foreign"]);
        cluster.state.remove(&CONFIG_MAPS, &Key::new(&CONFIG_MAPS, "default", "a"));
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["both", "foreign"]);
        let both = cluster.state.read(&CONFIG_MAPS, "default", "both").unwrap();
        assert_eq!(object::list(&both, &["metadata", "ownerReferences"]).len(), 1);
        cluster.state.remove(&NODES, &Key::new(&NODES, "", "n"));
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["foreign"]);
    }

    #[test]
    fn an_owner_of_another_uid_is_another() {
        let mut cluster = cluster();
        let mut orphan = owned("orphan", &[("Node", "n")]);
        orphan["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        cluster.state.put(&CONFIG_MAPS, orphan);
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["a", "b", "both", "c", "foreign"]);
    }

    #[test]
    fn in_the_foreground_the_owner_goes_last() {
        let mut cluster = cluster();
        let mut held = cluster.state.read(&CONFIG_MAPS, "default", "b").unwrap();
        held["metadata"]["finalizers"] = json!(["example.com/wait"]);
        cluster.state.put(&CONFIG_MAPS, held);
        let options =
            DeleteOptions { propagation: Some("Foreground".to_owned()), ..DeleteOptions::default() };
        cluster.delete_own(&Key::new(&CONFIG_MAPS, "default", "a"), &options, Timestamp::UNIX_EPOCH);
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["a", "b", "both", "c", "foreign"]);
        let mut held = cluster.state.read(&CONFIG_MAPS, "default", "b").unwrap();
        assert!(object::is_being_deleted(&held));
        remove_finalizer(&mut held, "example.com/wait");
        cluster.update_own(&CONFIG_MAPS, held);
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["both", "foreign"]);
    }

    #[test]
    fn orphans_stay() {
        let mut cluster = cluster();
        let options = DeleteOptions { propagation: Some("Orphan".to_owned()), ..DeleteOptions::default() };
        cluster.delete_own(&Key::new(&CONFIG_MAPS, "default", "a"), &options, Timestamp::UNIX_EPOCH);
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(left(&cluster), ["b", "both", "c", "foreign"]);
    }
}
