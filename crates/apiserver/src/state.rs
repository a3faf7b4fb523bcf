//! What the cluster consists of, in memory: objects by their keys, one counter of versions, and the changes of late.
//!
//! Objects are kept encoded: most are read more often than they change, and a decoded one takes several times as much.
//! One whose last change is forgotten is deflated too ([`encoded`]). Beside each is what selectors ask about. A watch is a place in the list of changes and has no queue of its own, so
//! one that nobody reads costs nothing; the list is bounded, and who falls behind its beginning begins anew.

pub mod encoded;
pub mod excerpt;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crablet_api::{Map, Text};
use serde_json::Value;

use crate::object;
use crate::resources::Resource;

use encoded::{Deflater, Encoded};

/// How many changes are remembered, and how many bytes of objects at most they may keep alive.
const MOST_CHANGES: usize = 16_384;
const MOST_CHANGED_BYTES: usize = 8 << 20;

/// An object's place. Ordered as lists are: by namespace, and then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `group/plural`; kinds are served in one version, so that is not part of it.
    pub resource: ResourceKey,
    pub namespace: Text,
    pub name: Text,
}

/// A resource, by what it is called in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceKey {
    pub group: &'static str,
    pub plural: &'static str,
}

impl Resource {
    /// What an object says of its type, as it is kept.
    fn type_fields(&self) -> String {
        format!("\"kind\":\"{}\",\"apiVersion\":\"{}\",", self.kind, self.api_version())
    }

    pub fn key(&'static self) -> ResourceKey {
        let storage = self.storage();
        ResourceKey { group: storage.group, plural: storage.plural }
    }
}

impl Key {
    pub fn new(resource: &'static Resource, namespace: &str, name: &str) -> Key {
        Key { resource: resource.key(), namespace: namespace.into(), name: name.into() }
    }
}

/// An object as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored {
    /// The version it was written at.
    pub revision: u64,
    /// The object with that version in it. It begins with what it is.
    pub encoded: Encoded,
    pub labels: Map<Text>,
    /// What field selectors of its kind may ask about beside name and namespace.
    pub fields: Box<[(&'static str, Text)]>,
}

impl Stored {
    /// The object, to be read or changed.
    pub fn decode(&self) -> Value {
        // It was encoded by us.
        serde_json::from_slice(&self.json()).unwrap_or_default()
    }

    /// The object's JSON.
    pub fn json(&self) -> Cow<'_, [u8]> {
        self.encoded.json()
    }

    /// Writes the object as one of a list, which does not repeat what it is: all after the opening brace.
    pub fn write_item(&self, resource: &Resource, to: &mut Vec<u8>) {
        let json = self.json();
        let json = json.get(1..).unwrap_or_default();
        to.extend_from_slice(json.strip_prefix(resource.type_fields().as_bytes()).unwrap_or(json));
    }

    /// An object as a store kept it; none if it is no JSON.
    pub(crate) fn restored(resource: &'static Resource, revision: u64, json: &[u8]) -> Option<Stored> {
        let object: Value = serde_json::from_slice(json).ok()?;
        Some(Stored {
            revision,
            encoded: Encoded::Plain(json.into()),
            labels: object::labels(&object),
            fields: crate::selectors::indexed_fields(resource, &object),
        })
    }

    /// The same in less room.
    fn settled(mut self, deflater: &mut Deflater) -> Stored {
        if let Some(deflated) = deflater.deflate(&self.encoded) {
            self.encoded = deflated;
        }
        self
    }

    fn bytes(&self) -> usize {
        self.encoded.len() + 128
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub key: Key,
    pub kind: ChangeKind,
    /// The object after it; of one that was deleted, the last there was, with the version of its deletion.
    pub object: Arc<Stored>,
    /// The object before it.
    pub previous: Option<Arc<Stored>>,
}

/// What a change is for the store: the object at a key, or none.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    pub object: Option<Arc<Stored>>,
    pub revision: u64,
}

/// A version that is no longer remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOld {
    pub oldest: u64,
}

#[derive(Debug, Default)]
pub struct State {
    objects: BTreeMap<Key, Arc<Stored>>,
    revision: u64,
    changes: VecDeque<Change>,
    changed_bytes: usize,
    /// The version before the oldest change that is remembered.
    forgotten: u64,
    /// What was not handed to the store yet.
    unwritten: Vec<Write>,
    deflater: Deflater,
}

impl State {
    /// The objects that a store had, at the version that it had come to.
    pub fn restore(objects: impl IntoIterator<Item = (Key, Stored)>, revision: u64) -> State {
        let mut deflater = Deflater::default();
        let objects = objects.into_iter();
        let objects = objects.map(|(key, object)| (key, Arc::new(object.settled(&mut deflater)))).collect();
        State { objects, revision, forgotten: revision, deflater, ..State::default() }
    }

    /// The version of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    /// The object, decoded.
    pub fn read(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        self.get(&Key::new(resource, namespace, name)).map(|stored| stored.decode())
    }

    /// All objects of a kind, of one namespace or of all, in their order.
    pub fn list<'s>(
        &'s self,
        resource: &'static Resource,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s Key, &'s Arc<Stored>)> {
        let first = Key::new(resource, namespace.unwrap_or_default(), "");
        let kind = first.resource;
        self.objects.range(first..).take_while(move |(key, _)| {
            key.resource == kind && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        })
    }

    /// All objects of a kind, decoded.
    pub fn read_all<'s>(
        &'s self,
        resource: &'static Resource,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = Value> + 's {
        self.list(resource, namespace).map(|(_, stored)| stored.decode())
    }

    /// The objects of a kind as they were at a version, from a key on.
    pub fn list_at(
        &self,
        resource: &'static Resource,
        namespace: Option<&str>,
        revision: u64,
        after: Option<&Key>,
    ) -> Result<Vec<(Key, Arc<Stored>)>, TooOld> {
        let is_after = |key: &Key| after.is_none_or(|after| key > after);
        let now = self.list(resource, namespace).filter(|(key, _)| is_after(key));
        let mut then: BTreeMap<Key, Arc<Stored>> =
            now.map(|(key, stored)| (key.clone(), Arc::clone(stored))).collect();
        for change in self.changes_since(revision)?.rev() {
            let is_meant = change.key.resource == resource.key()
                && namespace.is_none_or(|namespace| *change.key.namespace == *namespace)
                && is_after(&change.key);
            if !is_meant {
                continue;
            }
            match &change.previous {
                Some(previous) => then.insert(change.key.clone(), Arc::clone(previous)),
                None => then.remove(&change.key),
            };
        }
        Ok(then.into_iter().collect())
    }

    /// What has happened after a version.
    pub fn changes_since(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, TooOld> {
        if revision < self.forgotten {
            return Err(TooOld { oldest: self.forgotten });
        }
        let first = self.changes.partition_point(|change| change.revision <= revision);
        Ok(self.changes.range(first..))
    }

    /// Writes an object, which gets the next version. What it is called must be its key.
    pub fn put(&mut self, resource: &'static Resource, object: Value) -> Arc<Stored> {
        self.put_with_spec(resource, object, None)
    }

    /// The same of an object whose spec is given as JSON and only in part as a tree.
    pub fn put_with_spec(
        &mut self,
        resource: &'static Resource,
        mut object: Value,
        spec: Option<&[u8]>,
    ) -> Arc<Stored> {
        self.revision += 1;
        let key = Key::new(resource, object::namespace(&object), object::name(&object));
        let stored = Arc::new(encode(resource, &mut object, spec, self.revision));
        let previous = self.objects.insert(key.clone(), Arc::clone(&stored));
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.note(Change { revision: self.revision, key, kind, object: Arc::clone(&stored), previous });
        stored
    }

    /// Removes an object, and tells what was left of it, with the version of its deletion.
    pub fn remove(&mut self, resource: &'static Resource, key: &Key) -> Option<Arc<Stored>> {
        let previous = self.objects.remove(key)?;
        self.revision += 1;
        let mut last = previous.decode();
        let stored = Arc::new(encode(resource, &mut last, None, self.revision));
        self.note(Change {
            revision: self.revision,
            key: key.clone(),
            kind: ChangeKind::Deleted,
            object: Arc::clone(&stored),
            previous: Some(previous),
        });
        Some(stored)
    }

    /// What the store has to write since it asked last.
    pub fn take_unwritten(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.unwritten)
    }

    fn note(&mut self, change: Change) {
        self.unwritten.push(Write {
            key: change.key.clone(),
            object: (change.kind != ChangeKind::Deleted).then(|| Arc::clone(&change.object)),
            revision: change.revision,
        });
        self.changed_bytes += change.object.bytes();
        self.changes.push_back(change);
        while self.changes.len() > MOST_CHANGES || self.changed_bytes > MOST_CHANGED_BYTES {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.changed_bytes -= oldest.object.bytes();
            self.forgotten = oldest.revision;
            self.settle(&oldest);
        }
    }

    /// Keeps an object in less room that has not changed since then.
    fn settle(&mut self, change: &Change) {
        let Some(current) = self.objects.get_mut(&change.key) else { return };
        if current.revision != change.revision {
            return;
        }
        if let Some(encoded) = self.deflater.deflate(&current.encoded) {
            let Stored { revision, labels, fields, .. } = &**current;
            let (labels, fields) = (labels.clone(), fields.clone());
            *current = Arc::new(Stored { revision: *revision, encoded, labels, fields });
        }
    }
}

/// An object as it is kept, with its version in it.
fn encode(resource: &'static Resource, object: &mut Value, spec: Option<&[u8]>, revision: u64) -> Stored {
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object::remove(object, "kind");
    object::remove(object, "apiVersion");
    let mut json = Vec::with_capacity(4096);
    json.push(b'{');
    json.extend_from_slice(resource.storage().type_fields().as_bytes());
    for (name, value) in object.as_object().into_iter().flatten() {
        // Writing into memory cannot fail.
        let _ = serde_json::to_writer(&mut json, name);
        json.push(b':');
        match spec.filter(|_| name == "spec") {
            Some(spec) => json.extend_from_slice(spec),
            None => drop(serde_json::to_writer(&mut json, value)),
        }
        json.push(b',');
    }
    // There is the comma after the last member.
    json.pop();
    json.push(b'}');
    Stored {
        revision,
        encoded: Encoded::Plain(json.into()),
        labels: object::labels(object),
        fields: crate::selectors::indexed_fields(resource.storage(), object),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::CONFIG_MAPS;

    fn config_map(name: &str, data: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "data": {"key": data}})
    }

    fn names(objects: &[(Key, Arc<Stored>)]) -> Vec<(String, Value)> {
        let described = objects.iter();
        described
            .map(|(key, stored)| (key.name.to_string(), stored.decode()["data"]["key"].clone()))
            .collect()
    }

    #[test]
    fn a_list_at_a_version_is_what_there_was() {
        let mut state = State::default();
        state.put(&CONFIG_MAPS, config_map("a", "1"));
        state.put(&CONFIG_MAPS, config_map("b", "1"));
        let then = state.revision();
        state.put(&CONFIG_MAPS, config_map("b", "2"));
        state.put(&CONFIG_MAPS, config_map("c", "1"));
        state.remove(&CONFIG_MAPS, &Key::new(&CONFIG_MAPS, "default", "a"));
        let at = |revision| names(&state.list_at(&CONFIG_MAPS, None, revision, None).unwrap());
        assert_eq!(at(then), [("a".to_owned(), json!("1")), ("b".to_owned(), json!("1"))]);
        assert_eq!(at(state.revision()), [("b".to_owned(), json!("2")), ("c".to_owned(), json!("1"))]);
    }

    #[test]
    fn an_object_begins_with_what_it_is_and_in_a_list_leaves_it_out() {
        let mut state = State::default();
        let stored = state.put(&CONFIG_MAPS, config_map("a", "1"));
        let rest =
            r#""data":{"key":"1"},"metadata":{"name":"a","namespace":"default","resourceVersion":"1"}}"#;
        assert_eq!(
            String::from_utf8_lossy(&stored.json()),
            format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{rest}"#)
        );
        let mut item = Vec::new();
        stored.write_item(&CONFIG_MAPS, &mut item);
        assert_eq!(String::from_utf8_lossy(&item), rest);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_says_so() {
        let mut state = State::default();
        for turn in 0..MOST_CHANGES + 10 {
            state.put(&CONFIG_MAPS, config_map("a", &turn.to_string()));
            state.take_unwritten();
        }
        assert_eq!(state.changes.len(), MOST_CHANGES);
        assert_eq!(state.changes_since(9).err(), Some(TooOld { oldest: 10 }));
        assert_eq!(state.changes_since(10).unwrap().count(), MOST_CHANGES);
    }

    #[test]
    fn an_object_whose_change_is_forgotten_takes_less_room_and_is_the_same() {
        let mut state = State::default();
        let large = "some text ".repeat(1_000);
        let key = |name: &str| Key::new(&CONFIG_MAPS, "default", name);
        let is_deflated = |state: &State, name: &str| {
            matches!(state.get(&key(name)).unwrap().encoded, Encoded::Deflated { .. })
        };
        for name in ["settled", "changed"] {
            state.put(&CONFIG_MAPS, config_map(name, &large));
        }
        let before = state.get(&key("settled")).unwrap().decode();
        assert!(!is_deflated(&state, "settled"));
        for _ in 0..MOST_CHANGED_BYTES / large.len() {
            state.put(&CONFIG_MAPS, config_map("changed", &large));
        }
        assert!(is_deflated(&state, "settled") && !is_deflated(&state, "changed"));
        let settled = state.get(&key("settled")).unwrap();
        assert_eq!((settled.decode(), settled.revision), (before.clone(), 1));
        // An object that a store had is settled from the start.
        let stored = Stored::restored(&CONFIG_MAPS, 1, &settled.json()).unwrap();
        let restored = State::restore([(key("settled"), stored)], 1);
        assert!(is_deflated(&restored, "settled"));
        assert_eq!(restored.get(&key("settled")).unwrap().decode(), before);
    }
}
