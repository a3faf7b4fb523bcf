//! Pods of a real cluster: read strictly, and written as the API server wrote them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::{fs, path::Path};

use crablet_api::core::{ConfigMap, Event, Pod, Secret, Service};
use crablet_api::{Object, from_manifest};
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

#[test]
fn a_pod_is_written_as_a_person_wrote_it() {
    each("raw", |name, pod| {
        let mut written = again::<Pod>(name, pod.clone());
        assert_eq!(written.as_object_mut().unwrap().remove("status"), Some(json!({})));
        for list in ["containers", "initContainers"] {
            let given = pod["spec"].get(list).and_then(Value::as_array).into_iter().flatten();
            let written = written["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for (written, given) in written.zip(given) {
                as_given(written, given);
            }
        }
        assert_eq!(written, pod, "{name}");
    });
}

/// Go cannot leave out a struct, and always leaves out an empty text.
fn as_given(container: &mut Value, given: &Value) {
    if given.get("resources").is_none() {
        assert_eq!(container.as_object_mut().unwrap().remove("resources"), Some(json!({})));
    }
    let given = given.get("env").and_then(Value::as_array).into_iter().flatten();
    for (at, given) in given.enumerate() {
        let divisor = format!("/env/{at}/valueFrom/resourceFieldRef");
        if given.pointer("/valueFrom/resourceFieldRef/divisor").is_none()
            && let Some(field) = container.pointer_mut(&divisor)
        {
            assert_eq!(field.as_object_mut().unwrap().remove("divisor"), Some("0".into()));
        }
        if given.get("value") == Some(&json!("")) {
            let written = container["env"][at].as_object_mut().unwrap();
            assert_eq!(written.insert("value".into(), json!("")), None);
        }
    }
}

#[test]
fn other_objects_come_through_as_well() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/_objects.json");
    let objects: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for object in objects["items"].as_array().unwrap() {
        let written = match object["kind"].as_str().unwrap() {
            "ConfigMap" => again::<ConfigMap>("_objects", object.clone()),
            "Secret" => again::<Secret>("_objects", object.clone()),
            "Service" => {
                let mut service = again::<Service>("_objects", object.clone());
                assert_eq!(
                    service.as_object_mut().unwrap().remove("status"),
                    Some(json!({ "loadBalancer": {} }))
                );
                for port in service["spec"]["ports"].as_array_mut().unwrap() {
                    assert_eq!(port.as_object_mut().unwrap().remove("targetPort"), Some(json!(0)));
                }
                service
            }
            other => panic!("{other}"),
        };
        assert_eq!(&written, object);
    }
}
