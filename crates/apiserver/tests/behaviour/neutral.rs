//! Answers without what differs from run to run.

use serde_json::{Map, Value};

use crate::Body;

pub fn body(body: Body, namespace: &str) -> Body {
    match body {
        Body::Json(value) => Body::Json(neutral(value, namespace)),
        Body::Lines(lines) => Body::Lines(lines.into_iter().map(|line| neutral(line, namespace)).collect()),
        Body::Text(text) => Body::Text(plain(&text, namespace)),
    }
}

fn neutral(value: Value, namespace: &str) -> Value {
    match value {
        Value::Object(fields) => object(fields, namespace),
        Value::Array(values) => values.into_iter().map(|value| neutral(value, namespace)).collect(),
        Value::String(text) => plain(&text, namespace).into(),
        other => other,
    }
}

fn object(mut fields: Map<String, Value>, namespace: &str) -> Value {
    // Who manages which field is server-side apply's, which is not served.
    fields.remove("managedFields");
    // Which certificate somebody showed is another in each run, and the embedded server's are asked without one.
    if fields
        .get("extra")
        .is_some_and(|extra| extra.get("authentication.kubernetes.io/credential-id").is_some())
    {
        fields.remove("extra");
    }
    if let Some(base) = fields.get("generateName").and_then(Value::as_str).map(str::to_owned)
        && fields.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with(&base))
    {
        fields.insert("name".to_owned(), format!("{base}<suffix>").into());
    }
    for (name, value) in &mut fields {
        let replacement = match name.as_str() {
            "uid" | "resourceVersion" | "continue" | "storageVersionHash" | "token"
                if value.as_str().is_some_and(|text| !text.is_empty()) =>
            {
                Some(format!("<{name}>"))
            }
            "clusterIP" if value.as_str().is_some_and(|text| text.starts_with("10.")) => {
                Some("<ip>".to_owned())
            }
            // What a server was built with, and from what.
            "compiler" | "goVersion" | "gitCommit" | "gitTreeState" | "buildDate" => {
                Some("<build>".to_owned())
            }
            "serverAddress" => Some("<address>".to_owned()),
            // The descriptions of columns are upstream's prose.
            "description" => Some("<description>".to_owned()),
            _ => None,
        };
        if let Some(replacement) = replacement {
            *value = replacement.into();
        } else if name == "clusterIPs" {
            if value[0].as_str().is_some_and(|text| text.starts_with("10.")) {
                *value = serde_json::json!(["<ip>"]);
            }
        } else {
            *value = neutral(value.take(), namespace);
        }
    }
    Value::Object(fields)
}

fn plain(text: &str, namespace: &str) -> String {
    if is_time(text) {
        return "<time>".to_owned();
    }
    let is_age = |text: &str| {
        text.strip_suffix('s')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    if is_age(text) {
        return "<age>".to_owned();
    }
    let mut text = text.replace(namespace, "<namespace>");
    // A whole object in a message has times and versions in it, and who manages its fields.
    if let (Some(begin), Some(end)) = (text.find("\"{\\\"apiVersion\\\""), text.find("}}\": "))
        && begin < end
    {
        text.replace_range(begin..end + 3, "<object>");
    }
    if let Some(at) = text.find("ResourceVersion in record (") {
        let at = at + "ResourceVersion in record (".len();
        let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
        text.replace_range(at..at + digits, "<version>");
    }
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        words.push(if is_uid(core) {
            word.replace(core, "<uid>")
        } else if is_time(core) {
            word.replace(core, "<time>")
        } else if let Some(at) = word.find("kube-api-access-") {
            let end = at + "kube-api-access-".len();
            format!("{}<suffix>{}", &word[..end], word.get(end + 5..).unwrap_or_default())
        } else {
            word.to_owned()
        });
    }
    words.join(" ")
}

fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_time(text: &str) -> bool {
    text.len() >= 20
        && text.as_bytes()[4] == b'-'
        && text.ends_with('Z')
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// What is otherwise, line by line.
pub fn difference(expected: Option<&(u16, Body)>, code: u16, body: &Body) -> String {
    let Some((expected_code, expected_body)) = expected else { return "nothing was recorded".to_owned() };
    let pretty = |code: u16, body: &Body| -> Vec<String> {
        let text = match body {
            Body::Json(value) => serde_json::to_string_pretty(value).unwrap(),
            Body::Lines(lines) => {
                let lines: Vec<String> =
                    lines.iter().map(|line| serde_json::to_string_pretty(line).unwrap()).collect();
                lines.join("\n")
            }
            Body::Text(text) => text.clone(),
        };
        std::iter::once(format!("< {code}")).chain(text.lines().map(str::to_owned)).collect()
    };
    let (expected, found) = (pretty(*expected_code, expected_body), pretty(code, body));
    let mut text = String::new();
    // The common beginning and end say nothing.
    let same_before = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let same_after = expected[same_before..]
        .iter()
        .rev()
        .zip(found[same_before..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    for line in &expected[same_before..expected.len() - same_after] {
        text.push_str(&format!("- {line}\n"));
    }
    for line in &found[same_before..found.len() - same_after] {
        text.push_str(&format!("+ {line}\n"));
    }
    text
}
