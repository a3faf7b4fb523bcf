//! `allocated_pods_state` and `actuated_pods_state`: what is allocated to pods and what they were given, by their UIDs, in
//! upstream's format. Another kubelet goes on from them.

use std::collections::BTreeMap;

use crablet_api::JsonError;
use crablet_api::document::Limits;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::{PodResourceInfo, null_is_empty};

/// Why a state file says nothing.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// It is not one, or was cut off.
    #[error("it is no state file")]
    Format(#[source] JsonError),
    /// Something else wrote into it, or it was written in part.
    #[error("checkpoint is corrupted: its checksum is {found}, and that of its content {expected}")]
    Corrupted {
        found: u64,
        /// What it had to be.
        expected: u64,
    },
    /// What it holds is not what it should.
    #[error("failed to get pod resource information")]
    Content(#[source] JsonError),
}

#[derive(Deserialize)]
struct Checkpoint {
    data: String,
    checksum: u64,
}

#[derive(Serialize)]
struct CheckpointRef<'a> {
    data: &'a str,
    checksum: u64,
}

/// What a state file says.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Content {
    /// What it has of pods, by their UIDs.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub entries: BTreeMap<String, PodResourceInfo>,
    /// The names of what else is in it: another version wrote it.
    #[serde(flatten, deserialize_with = "names")]
    pub unknown: Vec<String>,
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(BTreeMap::<String, IgnoredAny>::deserialize(from)?.into_keys().collect())
}

/// Reads a state file.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Content, StateFileError> {
    let Checkpoint { data, checksum: found } =
        crablet_api::from_json(bytes, limits).map_err(StateFileError::Format)?;
    let expected = checksum(&data);
    if found != expected {
        return Err(StateFileError::Corrupted { found, expected });
    }
    crablet_api::from_json(data.as_bytes(), limits).map_err(StateFileError::Content)
}

/// Writes one, from pods' UIDs and what [`entry`] makes of each.
pub fn encode<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut data = String::from("{");
    for (number, (uid, entry)) in entries.enumerate() {
        data.push_str(if number == 0 { r#""entries":{"# } else { "," });
        data.push_str(&String::from_utf8_lossy(&crablet_api::to_json(&uid)));
        data.push(':');
        data.push_str(entry);
    }
    data.push_str(if data.len() > 1 { "}}" } else { "}" });
    crablet_api::to_json(&CheckpointRef { data: &data, checksum: checksum(&data) })
}

/// What a state file has of one pod.
pub fn entry(info: &PodResourceInfo) -> Box<str> {
    String::from_utf8_lossy(&crablet_api::to_json(info)).into()
}

/// FNV-1a in 32 bits of what upstream's printer for hashes makes of a text.
fn checksum(data: &str) -> u64 {
    let bytes = "(string)".bytes().chain(data.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<BTreeMap<String, PodResourceInfo>, String> {
        decode(bytes, Limits::API).map(|content| content.entries).map_err(|error| error.to_string())
    }

    /// A file with this content.
    fn file(data: &str) -> Vec<u8> {
        crablet_api::to_json(&CheckpointRef { data, checksum: checksum(data) })
    }

    #[test]
    fn a_checksum_is_as_upstream_reckons_it() {
        assert_eq!(checksum(r#"{"entries":{"a\"b":1}}"#), 1_983_665_849);
    }

    #[test]
    fn what_is_written_is_read() {
        let resources = r#"{"limits":{"cpu":"1"},"requests":{"cpu":"500m","memory":"1Gi"}}"#;
        let one = format!(r#"{{"ContainerResources":{{"c":{resources}}},"PodLevelResources":null}}"#);
        let two = format!(r#"{{"ContainerResources":{{}},"PodLevelResources":{resources}}}"#);
        let file = encode([("uid-1", &*one), ("uid-2", &*two)].into_iter());
        let entries = decoded(&file).expect("a state file");
        let again: Vec<(&str, Box<str>)> =
            entries.iter().map(|(uid, info)| (uid.as_str(), entry(info))).collect();
        assert_eq!(again, [("uid-1", one.into()), ("uid-2", two.into())]);
        assert_eq!(decoded(&encode([].into_iter())), Ok(BTreeMap::new()));
    }

    #[test]
    fn files_that_kubelets_of_other_versions_wrote_are_read_as_far_as_they_are_known() {
        let resources = r#"{"requests":{"cpu":"1Ki","memory":"1Ki"}}"#;
        let mut info = PodResourceInfo::default();
        info.set("c", crablet_api::from_json(resources.as_bytes(), Limits::API).expect("resources"));
        let check = |data: &str, expected: Option<&PodResourceInfo>, unknown: &[&str]| {
            let entries = expected.map(|info| ("u".to_owned(), info.clone())).into_iter().collect();
            let unknown = unknown.iter().map(|name| (*name).to_owned()).collect();
            let read = decode(&file(data), Limits::API).map_err(|error| error.to_string());
            assert_eq!(read, Ok(Content { entries, unknown }), "{data}");
        };
        check("{}", None, &[]);
        check(r#"{"entries":{}}"#, None, &[]);
        check(r#"{"entries":null}"#, None, &[]);
        let nothing = r#"{"entries":{"u":{"ContainerResources":null,"PodLevelResources":null}}}"#;
        check(nothing, Some(&PodResourceInfo::default()), &[]);
        // Before there were resources of a pod as a whole.
        let of_containers = format!(r#"{{"ContainerResources":{{"c":{resources}}}}}"#);
        check(&format!(r#"{{"entries":{{"u":{of_containers}}}}}"#), Some(&info), &[]);
        // 1.32 and those before it.
        let old = format!(r#"{{"allocationEntries":{{"u":{{"c":{resources}}}}}}}"#);
        check(&old, None, &["allocationEntries"]);
        // One that is to come.
        let new = format!(
            r#"{{"entries":{{"u":{{"ContainerResources":{{"c":{resources}}},"More":[1]}}}},"version":2}}"#
        );
        check(&new, Some(&info), &["version"]);
        // Without an envelope, as those before 1.31 are: upstream takes it for corrupt.
        assert_eq!(decoded(old.as_bytes()), Err("it is no state file".to_owned()));
        // As upstream writes it in its own test.
        let upstream = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;
        assert_eq!(decoded(upstream.as_bytes()).expect("a state file").len(), 1);
    }

    #[test]
    fn a_file_that_is_torn_or_changed_is_refused() {
        let file = encode([("u", r#"{"ContainerResources":{}}"#)].into_iter());
        assert_eq!(decoded(&file[..file.len() / 2]), Err("it is no state file".to_owned()));
        assert_eq!(decoded(b""), Err("it is no state file".to_owned()));
        let changed = String::from_utf8_lossy(&file).replace("\\\"u\\\"", "\\\"v\\\"");
        let error = decoded(changed.as_bytes()).expect_err("corrupted");
        assert!(error.starts_with("checkpoint is corrupted"), "{error}");
        let other = encode([("u", "3")].into_iter());
        assert_eq!(decoded(&other), Err("failed to get pod resource information".to_owned()));
    }
}
