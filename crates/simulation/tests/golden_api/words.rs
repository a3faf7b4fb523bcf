//! What differs from run to run, in the words of the recordings.

use jiff::Timestamp;
use serde_json::Value as Json;

/// What the node is called and where it is.
pub const NODE: &str = "recorded-node";
pub const HOST_IP: &str = "192.0.2.1";
/// The first three numbers of pods' addresses.
pub const POD_NETWORK: [u8; 3] = [10, 88, 0];

/// What begins the names that the API server makes up, with five characters of its own.
const MADE_UP: [&str; 2] = ["kube-api-access-", "csr-"];

/// An object or a patch, with words in place of what differs from run to run. What is null is not there.
pub fn plain(json: &Json) -> Json {
    match json {
        Json::String(text) => plain_text(text).into(),
        Json::Array(list) => list.iter().map(plain).collect(),
        Json::Object(fields) => {
            let plain_field = |(name, value): (&String, &Json)| {
                let value = match name.as_str() {
                    "resourceVersion" => "<rv>".into(),
                    _ => plain(value),
                };
                (name.clone(), value)
            };
            Json::Object(fields.iter().map(plain_field).collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
    }
}

pub fn plain_text(text: &str) -> String {
    if text.ends_with('Z') && text.parse::<Timestamp>().is_ok() {
        return "<time>".to_owned();
    }
    // What the simulated runtime calls itself.
    if text.starts_with("crablet-sim://") {
        return "containerd://1.6.20".to_owned();
    }
    let text = text.replace(NODE, "<node>").replace(HOST_IP, "<hostIP>");
    let text = with_words(&pod_addresses(&text)).replace("containerd://<id>", "<id>");
    for prefix in MADE_UP {
        if let Some((before, rest)) = text.split_once(prefix)
            && rest.len() == 5
        {
            return format!("{before}{prefix}<rnd>");
        }
    }
    text
}

fn pod_addresses(text: &str) -> String {
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

/// UIDs are 32 digits in five groups; those of static pods in one. IDs are 64 digits, and the moments that events are named
/// by 16.
fn with_words(text: &str) -> String {
    let is_part = |character: char| matches!(character, '0'..='9' | 'a'..='f' | '-');
    let mut result = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let length = rest[start..].find(|character| !is_part(character)).unwrap_or(rest.len() - start);
        let run = &rest[start..start + length];
        let groups: Vec<usize> = run.split('-').map(str::len).collect();
        result.push_str(&rest[..start]);
        result.push_str(match groups[..] {
            [8, 4, 4, 4, 12] => "<uid>",
            [64] => "<id>",
            [32] => "<hash>",
            [16] if rest[..start].ends_with('.') => "<moment>",
            _ => run,
        });
        rest = &rest[start + length..];
    }
    result + rest
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    let id = "0123456789abcdef".repeat(4);
    for (ours, expected) in [
        ("2026-11-15T07:00:00Z", "<time>"),
        ("2026-11-15T07:00:00.123456Z", "<time>"),
        ("p_record(6e2a9c57-0d33-4f0c-9a55-5d1a3c3e7b10)", "p_record(<uid>)"),
        ("p.18e8474c413bea84", "p.<moment>"),
        ("9007199254740988Ki", "9007199254740988Ki"),
        ("10.88.0.23", "<podIP>"),
        ("kube-api-access-x7k2p", "kube-api-access-<rnd>"),
        ("metadata.name=csr-lj6h2", "metadata.name=csr-<rnd>"),
        ("f9860952f7e47b3b967c819a20bba440", "<hash>"),
        (&format!("sha256:{id}"), "sha256:<id>"),
        (&format!("containerd://{id}"), "<id>"),
        ("a decade of 1-2-3 facades", "a decade of 1-2-3 facades"),
    ] {
        assert_eq!(plain_text(ours), expected);
    }
}
