//! Which users and groups of the node belong to which pod, where pods have their own: as many for each, and never the
//! same for two. What a pod got is written down beside its volumes as upstream writes it, so that whoever runs the node next
//! gives it the same.

use std::collections::{BTreeMap, BTreeSet};

use crablet_api::document::Limits;
use crablet_cri_api::v1;
use serde::{Deserialize, Serialize};

use crate::translate::go_quote;

/// Every range of IDs is a multiple of this.
const UNIT: u32 = 65_536;

/// The IDs of the node that are for pods, and who has which of them.
///
/// They are cut into slots of the same size. The next pod gets the first free slot after the one that was given last:
/// files that a pod left behind somewhere do not belong to the next one at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserIds {
    ids_per_pod: u32,
    first: u32,
    slots: u32,
    next: u32,
    taken: BTreeSet<u32>,
    of_pods: BTreeMap<String, u32>,
}

/// Why the IDs that a node has for pods will not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserIdsError {
    #[error("kubelet user namespace length {0} is not a multiple of {UNIT}")]
    IdsPerPod(u32),
    #[error("kubelet user assigned ID {first} is not a multiple of {ids_per_pod}")]
    First { first: u32, ids_per_pod: u32 },
    #[error("kubelet user assigned ID {first} must be greater or equal to {ids_per_pod}")]
    Root { first: u32, ids_per_pod: u32 },
    #[error("kubelet user assigned IDs length {count} is not a multiple of {ids_per_pod}")]
    Count { count: u32, ids_per_pod: u32 },
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    TooFew(u32),
}

/// Why what was written down of a pod's IDs cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("invalid user namespace mappings file: {0}")]
    Text(String),
    #[error("invalid user namespace configuration: no more than one mapping allowed.")]
    NotOne,
    #[error("invalid user namespace configuration: GID and UID mapping should be identical")]
    Differ,
    #[error("invalid user namespace configuration: UID 0 must be mapped")]
    NoRoot,
    #[error("wrong user namespace length {0}")]
    Length(u32),
    #[error("wrong user namespace offset specified {0}")]
    Offset(u32),
    #[error("id {0} is out of range")]
    OutOfRange(u32),
    #[error("range picked for pod {} already taken", go_quote(.0))]
    Taken(String),
}

/// All IDs are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("could not find an empty slot to allocate a user namespace")]
pub struct NoneLeft;

impl Default for UserIds {
    /// As with an empty configuration, where none were set aside.
    fn default() -> UserIds {
        UserIds {
            ids_per_pod: UNIT,
            first: UNIT,
            slots: u32::MAX / UNIT,
            next: 0,
            taken: BTreeSet::new(),
            of_pods: BTreeMap::new(),
        }
    }
}

impl UserIds {
    /// How many IDs a pod gets where nobody says otherwise.
    pub const USUAL_IDS_PER_POD: u32 = UNIT;

    /// The IDs that were set aside for pods: the first, and how many. Where nobody set any aside, it is all of them but
    /// the first `ids_per_pod`, which the node itself uses.
    pub fn new(
        set_aside: Option<(u32, u32)>,
        ids_per_pod: u32,
        max_pods: u32,
    ) -> Result<UserIds, UserIdsError> {
        if ids_per_pod == 0 || !ids_per_pod.is_multiple_of(UNIT) {
            return Err(UserIdsError::IdsPerPod(ids_per_pod));
        }
        let (first, count) = set_aside.unwrap_or((ids_per_pod, ids_per_pod.wrapping_neg()));
        if !first.is_multiple_of(ids_per_pod) {
            return Err(UserIdsError::First { first, ids_per_pod });
        }
        // A pod whose root were the node's would be no safer than without users of its own.
        if first < ids_per_pod {
            return Err(UserIdsError::Root { first, ids_per_pod });
        }
        if !count.is_multiple_of(ids_per_pod) {
            return Err(UserIdsError::Count { count, ids_per_pod });
        }
        // Nobody can use IDs beyond the last one.
        let slots = (count / ids_per_pod).min(first.wrapping_neg() / ids_per_pod);
        if slots < max_pods {
            return Err(UserIdsError::TooFew(max_pods));
        }
        Ok(UserIds { ids_per_pod, first, slots, ..UserIds::default() })
    }

    /// Takes in what was written down of a pod.
    pub fn recall(&mut self, uid: &str, text: &[u8]) -> Result<(), RecordError> {
        let record: Record = crablet_api::from_json(text, Limits::API)
            .map_err(|error| RecordError::Text(error.to_string()))?;
        let [users] = *record.uid_mappings else { return Err(RecordError::NotOne) };
        if record.gid_mappings != [users] {
            return Err(RecordError::Differ);
        }
        let Mapping { host_id, container_id, length } = users;
        if container_id != 0 {
            return Err(RecordError::NoRoot);
        }
        if length != self.ids_per_pod {
            return Err(RecordError::Length(length));
        }
        if !host_id.is_multiple_of(self.ids_per_pod) {
            return Err(RecordError::Offset(host_id));
        }
        let slot = host_id.checked_sub(self.first).map(|offset| offset / self.ids_per_pod);
        let slot = slot.filter(|slot| *slot < self.slots).ok_or(RecordError::OutOfRange(host_id))?;
        if !self.taken.insert(slot) {
            return Err(RecordError::Taken(uid.to_owned()));
        }
        self.of_pods.insert(uid.to_owned(), slot);
        Ok(())
    }

    /// Which IDs a pod has.
    pub fn of_pod(&self, uid: &str) -> Option<v1::IdMapping> {
        self.of_pods.get(uid).map(|slot| self.mapping(*slot))
    }

    /// Gives a pod IDs of its own.
    pub fn take(&mut self, uid: &str) -> Result<v1::IdMapping, NoneLeft> {
        let free = |slot: &u32| !self.taken.contains(slot);
        let slot = (self.next..self.slots).chain(0..self.next).find(free).ok_or(NoneLeft)?;
        self.next = (slot + 1) % self.slots;
        self.taken.insert(slot);
        self.of_pods.insert(uid.to_owned(), slot);
        Ok(self.mapping(slot))
    }

    /// Takes a pod's IDs back.
    pub fn release(&mut self, uid: &str) {
        if let Some(slot) = self.of_pods.remove(uid) {
            self.taken.remove(&slot);
        }
    }

    fn mapping(&self, slot: u32) -> v1::IdMapping {
        v1::IdMapping {
            host_id: self.first + slot * self.ids_per_pod,
            container_id: 0,
            length: self.ids_per_pod,
        }
    }
}

/// What is written down of a pod's IDs.
pub fn record(ids: v1::IdMapping) -> Vec<u8> {
    let v1::IdMapping { host_id, container_id, length } = ids;
    let mapping = Mapping { host_id, container_id, length };
    crablet_api::to_json(&Record { uid_mappings: vec![mapping], gid_mappings: vec![mapping] })
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few(count: u32) -> UserIds {
        UserIds::new(Some((UNIT, count * UNIT)), UNIT, count).unwrap()
    }

    fn first_id(taken: Result<v1::IdMapping, NoneLeft>) -> u32 {
        taken.unwrap().host_id / UNIT
    }

    #[test]
    fn a_node_uses_the_ids_that_were_set_aside_or_all_but_its_own() {
        let said = |set_aside, each: u32, pods| match UserIds::new(set_aside, each, pods) {
            Ok(ids) => format!("{} from {}", ids.slots, ids.first),
            Err(error) => error.to_string(),
        };
        assert_eq!(said(None, UNIT, 110), "65535 from 65536");
        assert_eq!(UserIds::new(None, UserIds::USUAL_IDS_PER_POD, 110), Ok(UserIds::default()));
        assert_eq!(said(None, 2 * UNIT, 110), "32767 from 131072");
        assert_eq!(said(Some((UNIT, 1 << 31)), UNIT, 110), "32768 from 65536");
        assert_eq!(said(Some((1 << 31, 1 << 31)), UNIT, 110), "32768 from 2147483648");
        assert_eq!(said(None, 1, 110), "kubelet user namespace length 1 is not a multiple of 65536");
        assert_eq!(
            said(Some((UNIT + 1, UNIT)), UNIT, 1),
            "kubelet user assigned ID 65537 is not a multiple of 65536"
        );
        assert_eq!(
            said(Some((0, UNIT)), UNIT, 1),
            "kubelet user assigned ID 0 must be greater or equal to 65536"
        );
        assert_eq!(
            said(None, 3 * UNIT, 1),
            "kubelet user assigned IDs length 4294770688 is not a multiple of 196608"
        );
        assert_eq!(
            said(Some((UNIT, 109 * UNIT)), UNIT, 110),
            "kubelet user assigned IDs are not enough to support 110 pods"
        );
        // Beyond the last ID there are none, whatever was set aside.
        assert_eq!(
            said(Some((u32::MAX - UNIT + 1, 2 * UNIT)), UNIT, 2),
            "kubelet user assigned IDs are not enough to support 2 pods"
        );
    }

    #[test]
    fn no_two_pods_have_the_same_ids_and_those_of_one_that_ended_are_given_last() {
        let mut ids = few(3);
        assert_eq!([first_id(ids.take("a")), first_id(ids.take("b"))], [1, 2]);
        ids.release("a");
        assert_eq!(ids.of_pod("a"), None);
        assert_eq!([first_id(ids.take("c")), first_id(ids.take("d"))], [3, 1]);
        assert_eq!(ids.take("e"), Err(NoneLeft));
        ids.release("b");
        ids.release("unknown");
        assert_eq!(first_id(ids.take("e")), 2);
        let mapping = v1::IdMapping { host_id: 2 * UNIT, container_id: 0, length: UNIT };
        assert_eq!(ids.of_pod("e"), Some(mapping));
    }

    #[test]
    fn what_a_pod_got_is_written_down_as_the_go_kubelet_does_and_recalled() {
        let mut ids = few(3);
        let taken = ids.take("a").unwrap();
        let text = r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#;
        assert_eq!(String::from_utf8(record(taken)).unwrap(), text);
        let mut next = few(3);
        next.recall("a", text.as_bytes()).unwrap();
        assert_eq!(next.of_pod("a"), Some(taken));
        assert_eq!(first_id(next.take("b")), 2);
    }

    #[test]
    fn what_cannot_have_been_written_down_is_refused() {
        let recalled = |text: &str| match few(2).recall("a", text.as_bytes()) {
            Ok(()) => "recalled".to_owned(),
            Err(error) => error.to_string(),
        };
        let same =
            |mapping: &str| recalled(&format!("{{\"uidMappings\":[{mapping}],\"gidMappings\":[{mapping}]}}"));
        let of = |host: u32, container: u32, length: u32| {
            format!("{{\"hostId\":{host},\"containerId\":{container},\"length\":{length}}}")
        };
        assert_eq!(same(&of(UNIT, 0, UNIT)), "recalled");
        assert!(recalled("nonsense").starts_with("invalid user namespace mappings file: "));
        let not_one = "invalid user namespace configuration: no more than one mapping allowed.";
        assert_eq!([recalled("{}"), same("{},{}")], [not_one, not_one]);
        let differ = "invalid user namespace configuration: GID and UID mapping should be identical";
        assert_eq!(recalled(r#"{"uidMappings":[{"hostId":65536}],"gidMappings":[{}]}"#), differ);
        assert_eq!(recalled(r#"{"uidMappings":[{"hostId":65536}]}"#), differ);
        assert_eq!(same(&of(UNIT, 1, UNIT)), "invalid user namespace configuration: UID 0 must be mapped");
        assert_eq!(same(&of(UNIT, 0, 2 * UNIT)), "wrong user namespace length 131072");
        assert_eq!(same(&of(UNIT + 1, 0, UNIT)), "wrong user namespace offset specified 65537");
        assert_eq!(same(&of(0, 0, UNIT)), "id 0 is out of range");
        assert_eq!(same(&of(3 * UNIT, 0, UNIT)), "id 196608 is out of range");
        let mut ids = few(2);
        let text = record(ids.take("a").unwrap());
        assert_eq!(
            ids.recall("b", &text).unwrap_err().to_string(),
            "range picked for pod \"b\" already taken"
        );
    }
}
