//! Pods of a real cluster: read strictly, and written as the API server wrote them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::{fs, path::Path};

use crablet_api::core::{ConfigMap, Event, Pod, Secret, Service};
use crablet_api::{Object, Quantity, from_manifest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn each(directory: &str, mut check: impl FnMut(&str, Value)) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(directory);
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|extension| extension == "json") && name != "_objects" {
            // What differed from run to run was replaced when they were recorded.
            let text = fs::read_to_string(&path).unwrap().replace("<time>", "2026-11-15T03:48:00Z");
            check(name, serde_json::from_str(&text).unwrap());
            count += 1;
        }
    }
    assert!(count > 50, "{count} files");
}

/// Reads an object as strictly as a person's, and writes it again.
fn again<T: Object + Serialize + DeserializeOwned>(name: &str, mut object: Value) -> Value {
    object["apiVersion"] = T::API_VERSION.into();
    object["kind"] = T::KIND.into();
    let (object, remarks) =
        from_manifest::<T>(name, &object.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(remarks, []);
    serde_json::to_value(&object).unwrap()
}

#[test]
fn a_pod_is_written_as_the_api_server_wrote_it() {
    each("", |name, golden| {
        let mut pod = golden["pod"].clone();
        pod["status"] = golden["status"].clone();
        let written = again::<Pod>(name, pod.clone());
        for part in ["metadata", "spec", "status"] {
            assert_eq!(written[part], pod[part], "{name}: {part}");
        }
        for event in golden["events"].as_array().unwrap() {
            let written = again::<Event>(name, event.clone());
            for (field, value) in event.as_object().unwrap() {
                assert_eq!(&written[field], value, "{name}: event");
            }
        }
    });
}

/// Go always writes a struct, never an empty text, and quantities in canonical form.
fn check_as_given(path: &str, written: &Value, given: &Value) {
    match (written, given) {
        (Value::Object(written), Value::Object(given)) => {
            for (name, value) in written.iter().filter(|(name, _)| !given.contains_key(*name)) {
                let added = matches!(name.as_str(), "status" | "resources") && *value == json!({})
                    || name == "status" && *value == json!({ "loadBalancer": {} })
                    || name == "divisor" && value == "0"
                    || name == "targetPort" && *value == json!(0);
                assert!(added, "{path}.{name}: {value} was added");
            }
            for (name, given) in given {
                match written.get(name) {
                    Some(written) => check_as_given(&format!("{path}.{name}"), written, given),
                    None => assert_eq!(given, "", "{path}.{name} was lost"),
                }
            }
        }
        (Value::Array(written), Value::Array(given)) => {
            assert_eq!(written.len(), given.len(), "{path}");
            for (at, (written, given)) in written.iter().zip(given).enumerate() {
                check_as_given(&format!("{path}[{at}]"), written, given);
            }
        }
        (Value::String(written), Value::String(given)) if path.contains(".resources.") => {
            let quantity: Quantity = given.parse().unwrap();
            assert_eq!(*written, quantity.to_string(), "{path}");
        }
        (written, given) => assert_eq!(written, given, "{path}"),
    }
}

#[test]
fn a_pod_is_written_as_a_person_wrote_it() {
    each("raw", |name, pod| check_as_given(name, &again::<Pod>(name, pod.clone()), &pod));
}

#[test]
fn other_objects_come_through_as_well() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/_objects.json");
    let objects: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for object in objects["items"].as_array().unwrap() {
        let written = match object["kind"].as_str().unwrap() {
            "ConfigMap" => again::<ConfigMap>("_objects", object.clone()),
            "Secret" => again::<Secret>("_objects", object.clone()),
            "Service" => again::<Service>("_objects", object.clone()),
            other => panic!("{other}"),
        };
        check_as_given("_objects", &written, object);
    }
}
