//! What differs from run to run, replaced as the recordings have it.

use jiff::Timestamp;
use serde_json::Value as Json;

use crate::node::HOST_IP;

/// Stand-ins for what the recordings replaced.
pub const UID: &str = "6e2a9c57-0d33-4f0c-9a55-5d1a3c3e7b10";
pub const NODE: &str = "recorded-node";
pub const RANDOM: &str = "x7k2p";
/// The first three numbers of pods' addresses: nothing that asks for one leaves the machine, and nobody answers there.
pub const POD_NETWORK: [u8; 3] = [127, 88, 0];

/// Where the directories of a run are.
pub struct Directories {
    pub root: String,
    pub logs: String,
}

/// What was recorded, with stand-ins.
pub fn with_stand_ins(text: &str) -> String {
    text.replace("<uid>", UID).replace("<node>", NODE).replace("<rnd>", RANDOM).replace("<hostIP>", HOST_IP)
}

/// What is ours, as the recordings would have it.
pub fn as_recorded(json: &Json, directories: &Directories) -> Json {
    match json {
        Json::String(text) => text_as_recorded(text, directories).into(),
        Json::Array(list) => list.iter().map(|one| as_recorded(one, directories)).collect(),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), as_recorded(value, directories)));
            Json::Object(fields.collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
    }
}

/// The same for a text.
pub fn text_as_recorded(text: &str, directories: &Directories) -> String {
    if text.ends_with('Z') && text.parse::<Timestamp>().is_ok() {
        return "<time>".to_owned();
    }
    let text = text
        .replace(&directories.root, "<root>")
        .replace(&directories.logs, "<podlogs>")
        .replace(UID, "<uid>")
        .replace(NODE, "<node>")
        .replace(RANDOM, "<rnd>")
        .replace(HOST_IP, "<hostIP>");
    let text = ids_as_recorded(&pod_addresses_as_recorded(&text)).replace("containerd://<id>", "<id>");
    match text.strip_prefix("<root>/pods/<uid>/containers/").and_then(|rest| rest.split_once('/')) {
        // The termination log of an attempt.
        Some((container, _)) => format!("<root>/pods/<uid>/containers/{container}/<rnd>"),
        None => text,
    }
}

fn pod_addresses_as_recorded(text: &str) -> String {
    let [first, second, third] = POD_NETWORK;
    let prefix = format!("{first}.{second}.{third}.");
    let mut pieces = text.split(&prefix);
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        result.push_str("<podIP>");
        result.push_str(piece.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    result
}

/// IDs are 64 hexadecimal digits.
fn ids_as_recorded(text: &str) -> String {
    let is_digit = |character: char| matches!(character, '0'..='9' | 'a'..='f');
    let mut result = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let length = rest[start..].find(|character| !is_digit(character)).unwrap_or(rest.len() - start);
        result.push_str(&rest[..start]);
        result.push_str(if length == 64 { "<id>" } else { &rest[start..start + length] });
        rest = &rest[start + length..];
    }
    result + rest
}

/// A message without how long something took.
pub fn without_durations(message: &str) -> String {
    match (message.split_once(" in "), message.split_once(" including waiting)")) {
        (Some((before, _)), Some((_, after))) => format!("{before}{after}"),
        _ => message.to_owned(),
    }
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    let directories = Directories { root: "/r".to_owned(), logs: "/l".to_owned() };
    let id = "0123456789abcdef".repeat(4);
    for (ours, recorded) in [
        ("2026-11-15T07:00:00Z", "<time>"),
        (
            "/r/pods/6e2a9c57-0d33-4f0c-9a55-5d1a3c3e7b10/containers/c/00000001",
            "<root>/pods/<uid>/containers/c/<rnd>",
        ),
        ("http://127.88.0.23:80 and 127.88.0.2", "http://<podIP>:80 and <podIP>"),
        (&format!("sha256:{id}, containerd://{id}, abc {id}0"), &format!("sha256:<id>, <id>, abc {id}0")),
    ] {
        assert_eq!(text_as_recorded(ours, &directories), recorded);
    }
    let pulled = "Successfully pulled image \"a\" in 1.2s (1.3s including waiting). Image size: 5 bytes.";
    assert_eq!(without_durations(pulled), "Successfully pulled image \"a\". Image size: 5 bytes.");
}
