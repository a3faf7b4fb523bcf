//! Texts that nobody should send: each ends in an error, and nothing secret is told.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod schema;

use crablet_api::core::{ConfigMap, Event, Node, Pod, Secret, Service};
use crablet_api::document::Limits;
use crablet_api::meta::{List, WatchEvent};
use crablet_api::{Object, from_json, from_manifest};
use k8s_openapi::api::core::v1 as theirs;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use schema::Schema;

fn refuses<T: Object + DeserializeOwned>(text: &str) {
    assert!(from_json::<T>(text.as_bytes(), Limits::API).is_err());
    assert!(from_manifest::<T>("f", text).is_err());
}

#[test]
fn ten_thousand_levels_are_refused_everywhere() {
    let lists = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let maps = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    for deep in [&lists, &maps] {
        refuses::<Pod>(deep);
        for around in [
            r#"{"apiVersion":"v1","kind":"Pod","spec":DEEP}"#,
            r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"env":DEEP}]}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":DEEP}}"#,
        ] {
            refuses::<Pod>(&around.replace("DEEP", deep));
        }
        let unknown =
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"managedFields":{deep}}},"x":{deep}}}"#);
        refuses::<Pod>(&unknown);
        let early = format!(r#"{{"object":{deep},"type":"ADDED"}}"#);
        assert!(from_json::<WatchEvent<Pod>>(early.as_bytes(), Limits::API).is_err());
    }
}

#[test]
fn a_hundred_megabytes_of_text_are_refused() {
    let long = "x".repeat(100_000_000);
    let text = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{long}"}}}}"#);
    let error = from_json::<Pod>(text.as_bytes(), Limits::MANIFEST).unwrap_err();
    assert_eq!(error.to_string(), "has 100000055 bytes; at most 3145728 are accepted");
    let error = from_manifest::<Pod>("f", &text).unwrap_err();
    assert_eq!(error.to_string(), "f: has 100000055 bytes; at most 3145728 are accepted");
    let unlimited = Limits { bytes: usize::MAX, ..Limits::API };
    for place in [r#"{"kind":"LONG"}"#, r#"{"spec":"LONG"}"#, r#"{"spec":{"priority":"LONG"}}"#] {
        let error = from_json::<Pod>(place.replace("LONG", &long).as_bytes(), unlimited).unwrap_err();
        assert!(error.to_string().len() < 200, "a short message");
    }
}

/// Calls `check` with the path to every value below `here`.
fn each_path(here: &Value, path: &mut Vec<String>, check: &mut dyn FnMut(&[String])) {
    check(path);
    let below: Vec<(String, &Value)> = match here {
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).collect(),
        Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in below {
        path.push(name);
        each_path(value, path, check);
        path.pop();
    }
}

/// An object with nothing but `value` at the end of a path, in which lists have no name.
fn alone<T: Object>(path: &[String], value: Value) -> Value {
    let mut object = path.iter().rev().fold(value, |inner, name| match name.as_str() {
        "" => json!([inner]),
        name => json!({ name: inner }),
    });
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert(T::API_VERSION.into());
        fields.entry("kind").or_insert(T::KIND.into());
    }
    object
}

fn wrong_types<S: k8s_openapi::schemars::JsonSchema, T: Object + DeserializeOwned>() {
    let wrong = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!("\u{0}"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({ "": {} }),
    ];
    each_path(&Schema::of::<S>().full(), &mut Vec::new(), &mut |path| {
        let mut refused = 0;
        for wrong in &wrong {
            let text = alone::<T>(path, wrong.clone()).to_string();
            let lenient = from_json::<T>(text.as_bytes(), Limits::API);
            refused += usize::from(lenient.is_err());
            // What strict reading takes, lenient reading takes as well.
            assert!(lenient.is_ok() || from_manifest::<T>("f", &text).is_err(), "{text}");
        }
        let dropped = path.iter().any(|name| name == "managedFields");
        assert!(refused >= 6 || dropped, "{}: {path:?}: only {refused} refused", T::KIND);
    });
}

#[test]
fn wrong_types_everywhere_are_errors_and_never_panics() {
    wrong_types::<theirs::Secret, Secret>();
    wrong_types::<theirs::ConfigMap, ConfigMap>();
    wrong_types::<theirs::Service, Service>();
    wrong_types::<theirs::Event, Event>();
    wrong_types::<theirs::Node, Node>();
    wrong_types::<theirs::Pod, Pod>();
}

#[test]
fn nothing_secret_is_seen_in_debug() {
    let applied = r#"{"stringData":{"k":"s3cr3t"}}"#;
    let secret = json!({
        "metadata": { "name": "n", "annotations": { "kubectl.kubernetes.io/last-applied-configuration": applied } },
        "data": { "password": "czNjcjN0" },
        "stringData": { "token": "s3cr3t" },
    });
    let read = |json: Value| json.to_string().into_bytes();
    let one: Secret = from_json(&read(secret.clone()), Limits::API).unwrap();
    let list: List<Secret> = from_json(&read(json!({ "items": [secret] })), Limits::API).unwrap();
    let event: WatchEvent<Secret> =
        from_json(&read(json!({ "type": "ADDED", "object": secret })), Limits::API).unwrap();
    let config: ConfigMap =
        from_json(&read(json!({ "binaryData": { "k": "czNjcjN0" } })), Limits::API).unwrap();
    for debug in [
        format!("{one:?}"),
        format!("{one:#?}"),
        format!("{list:?}"),
        format!("{event:?}"),
        format!("{config:?}"),
    ] {
        for hidden in ["s3cr3t", "czNjcjN0", "115, 51"] {
            assert!(!debug.contains(hidden), "{debug}");
        }
    }
    assert!(format!("{one:?}").contains("password"));
}
