//! Our types beside `k8s-openapi`'s, which are generated from Kubernetes' own schema: no field is missing, and
//! whatever theirs can express comes through ours unchanged.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod schema;

use crablet_api::document::{self, Limits};
use crablet_api::meta::{List, Status, WatchEvent};
use crablet_api::{Object, Quantity, certificates, coordination, core, node};
use k8s_openapi::api::{
    certificates::v1 as their_certificates, certificates::v1beta1 as their_bundles,
    coordination::v1 as their_coordination, core::v1 as their_core, node::v1 as their_node,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as their_meta;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use schema::{Random, Schema};

/// Where ours may differ from theirs, and why. The comparison below does exactly this.
///
/// | theirs | ours | because |
/// | --- | --- | --- |
/// | a field that is empty: `""`, `0`, `false`, `null`, `[]`, `{}` | absent, or the other way round | Go leaves the one out and writes the other |
/// | `divisor` absent | `"0"` | Go cannot leave a quantity out |
/// | a quantity as it was written | in canonical form | Go does so |
/// | `managedFields` | absent | nothing here needs them |
fn difference(path: &str, theirs: Option<&Value>, ours: Option<&Value>) -> Result<(), String> {
    match (theirs, ours) {
        (Some(Value::Object(theirs)), Some(Value::Object(ours))) => {
            for name in theirs.keys().chain(ours.keys()).filter(|name| *name != "managedFields") {
                difference(&format!("{path}.{name}"), theirs.get(name), ours.get(name))?;
            }
            Ok(())
        }
        (Some(Value::Array(theirs)), Some(Value::Array(ours))) if theirs.len() == ours.len() => {
            let mut pairs = theirs.iter().zip(ours).enumerate();
            pairs.try_for_each(|(at, (theirs, ours))| {
                difference(&format!("{path}[{at}]"), Some(theirs), Some(ours))
            })
        }
        (theirs, ours) if theirs == ours => Ok(()),
        (None, Some(empty)) | (Some(empty), None) if is_empty(empty) => Ok(()),
        (None, Some(Value::String(zero))) if path.ends_with(".divisor") && zero == "0" => Ok(()),
        (Some(Value::String(theirs)), Some(Value::String(ours))) if same_quantity(theirs, ours) => Ok(()),
        (theirs, ours) => Err(format!("{path}: theirs is {theirs:?}, ours is {ours:?}")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            fields.iter().all(|(name, field)| name == "managedFields" || is_empty(field))
        }
    }
}

fn same_quantity(theirs: &str, ours: &str) -> bool {
    theirs.parse::<Quantity>().is_ok_and(|quantity| quantity.to_string() == ours)
}

/// Calls `$check::<theirs, ours>($argument)` for every kind of object.
macro_rules! for_every_kind {
    ($check:ident($($argument:expr),*)) => {
        $check::<their_core::Pod, core::Pod>($($argument),*);
        $check::<their_core::Node, core::Node>($($argument),*);
        $check::<their_core::Event, core::Event>($($argument),*);
        $check::<their_core::Secret, core::Secret>($($argument),*);
        $check::<their_core::ConfigMap, core::ConfigMap>($($argument),*);
        $check::<their_core::Service, core::Service>($($argument),*);
        $check::<their_certificates::CertificateSigningRequest, certificates::CertificateSigningRequest>($($argument),*);
        $check::<their_bundles::ClusterTrustBundle, certificates::ClusterTrustBundle>($($argument),*);
        $check::<their_bundles::PodCertificateRequest, certificates::PodCertificateRequest>($($argument),*);
        $check::<their_coordination::Lease, coordination::Lease>($($argument),*);
        $check::<their_node::RuntimeClass, node::RuntimeClass>($($argument),*);
        $check::<their_meta::Status, Status>($($argument),*);
    };
}

trait Theirs: Serialize + DeserializeOwned + k8s_openapi::schemars::JsonSchema {}
impl<T: Serialize + DeserializeOwned + k8s_openapi::schemars::JsonSchema> Theirs for T {}

trait Ours: Object + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug {}
impl<T: Object + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug> Ours for T {}

fn typed<O: Object>(mut object: Value) -> Value {
    object["apiVersion"] = O::API_VERSION.into();
    object["kind"] = O::KIND.into();
    object
}

/// JSON through their type, for their canonical form.
fn through<T: Serialize + DeserializeOwned>(json: Value) -> Value {
    let object: T = serde_json::from_value(json).unwrap();
    serde_json::to_value(object).unwrap()
}

fn every_field_is_known<T: Theirs, O: Ours>() {
    let full = typed::<O>(Schema::of::<T>().full());
    let text = full.to_string();
    let (tree, problems) = document::parse(O::KIND, &text, Limits::MANIFEST).unwrap();
    assert_eq!(problems, []);
    let (_, unknown) = document::decode::<O>(&tree).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(unknown.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());

    let canonical = through::<T>(full);
    let ours: O = serde_json::from_str(&text).unwrap();
    difference(O::KIND, Some(&canonical), Some(&serde_json::to_value(&ours).unwrap())).unwrap();
}

#[test]
fn no_field_of_the_schema_is_unknown_to_us() {
    for_every_kind!(every_field_is_known());
}

fn survives<T: Theirs, O: Ours>(random: &mut Random) {
    let schema = Schema::of::<T>();
    let theirs = through::<T>(typed::<O>(schema.random(random)));
    let text = theirs.to_string();

    let ours: O = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let written = serde_json::to_value(&ours).unwrap();
    difference(O::KIND, Some(&theirs), Some(&written)).unwrap_or_else(|error| panic!("{error}\nin {text}"));

    let again: O = serde_json::from_value(written).unwrap();
    assert_eq!(again, ours);
}

fn survives_in_lists_and_events<T: Theirs, O: Ours>(random: &mut Random) {
    let schema = Schema::of::<T>();
    let items: Vec<Value> = (0..3).map(|_| through::<T>(typed::<O>(schema.random(random)))).collect();
    let metadata = through::<their_meta::ListMeta>(Schema::of::<their_meta::ListMeta>().random(random));
    let list = json!({
        "kind": format!("{}List", O::KIND), "apiVersion": O::API_VERSION, "metadata": metadata, "items": items,
    });
    let ours: List<O> = serde_json::from_str(&list.to_string()).unwrap();
    difference("List", Some(&list), Some(&serde_json::to_value(&ours).unwrap())).unwrap();

    let mut events: Vec<Value> = ["ADDED", "MODIFIED", "DELETED"]
        .iter()
        .zip(&items)
        .map(|(word, object)| json!({ "type": word, "object": object }))
        .collect();
    let status =
        through::<their_meta::Status>(typed::<Status>(Schema::of::<their_meta::Status>().random(random)));
    events.push(json!({ "type": "ERROR", "object": status }));
    let bookmark = json!({ "resourceVersion": "7", "annotations": { "k8s.io/initial-events-end": "true" } });
    events.push(json!({ "type": "BOOKMARK", "object": typed::<O>(json!({ "metadata": bookmark })) }));
    for event in events {
        let ours: WatchEvent<O> = serde_json::from_str(&event.to_string()).unwrap();
        difference("event", Some(&event), Some(&serde_json::to_value(&ours).unwrap())).unwrap();
        // As someone may write it who does not write the type first.
        let backwards = format!(r#"{{"object":{},"type":{}}}"#, event["object"], event["type"]);
        assert_eq!(serde_json::from_str::<WatchEvent<O>>(&backwards).unwrap(), ours);
    }
}

#[test]
fn what_go_keeps_though_it_is_empty_is_kept() {
    for spec in [
        json!({ "securityContext": {}, "affinity": {}, "os": { "name": "" } }),
        json!({ "terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 0, "priority": 0 }),
        json!({ "enableServiceLinks": false, "automountServiceAccountToken": false, "hostUsers": false }),
        json!({ "shareProcessNamespace": false, "setHostnameAsFQDN": false, "runtimeClassName": "" }),
        json!({ "securityContext": { "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": false, "fsGroup": 0 } }),
        json!({ "volumes": [{ "name": "a", "emptyDir": {} }, { "name": "b", "hostPath": { "path": "/", "type": "" } }] }),
        json!({ "volumes": [{ "name": "a", "secret": { "defaultMode": 0, "optional": false } }] }),
        json!({ "volumes": [{ "name": "a", "projected": { "sources": [{ "secret": {} }, {}], "defaultMode": 0 } }] }),
        json!({ "volumes": [{ "name": "none" }, { "name": "two", "emptyDir": {}, "image": {} }] }),
        json!({ "tolerations": [{ "tolerationSeconds": 0 }], "resources": {} }),
        json!({ "dnsConfig": { "options": [{ "name": "a", "value": "" }] } }),
    ] {
        let mut pod =
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec, "status": {} });
        pod["spec"]["containers"] = json!([]);
        let ours: core::Pod = serde_json::from_value(pod.clone()).unwrap();
        assert_eq!(serde_json::to_value(&ours).unwrap(), pod);
    }
    let container = json!({
        "name": "",
        "resources": {},
        "restartPolicy": "",
        "lifecycle": { "preStop": {}, "postStart": { "sleep": { "seconds": 0 } } },
        "livenessProbe": { "tcpSocket": { "port": 0 }, "terminationGracePeriodSeconds": 0 },
        "readinessProbe": {},
        "startupProbe": { "grpc": { "port": 1, "service": null } },
        "securityContext": { "runAsUser": 0, "privileged": false, "capabilities": {}, "procMount": "" },
        "env": [{ "name": "a", "valueFrom": {} }, { "name": "b", "valueFrom": { "fieldRef": { "fieldPath": "" } } }],
        "envFrom": [{ "secretRef": {} }, { "configMapRef": { "optional": false } }],
        "volumeMounts": [{ "name": "", "mountPath": "", "mountPropagation": "" }],
    });
    let ours: core::Container = serde_json::from_value(container.clone()).unwrap();
    assert_eq!(serde_json::to_value(&ours).unwrap(), container);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_they_can_express_comes_through_unchanged(seed: u64) {
        for_every_kind!(survives(&mut Random(seed)));
    }

    #[test]
    fn so_do_lists_and_watch_events(seed: u64) {
        let random = &mut Random(seed);
        survives_in_lists_and_events::<their_core::Pod, core::Pod>(random);
        survives_in_lists_and_events::<their_core::Node, core::Node>(random);
        survives_in_lists_and_events::<their_core::Secret, core::Secret>(random);
        survives_in_lists_and_events::<their_core::ConfigMap, core::ConfigMap>(random);
        survives_in_lists_and_events::<their_core::Service, core::Service>(random);
        survives_in_lists_and_events::<their_core::Event, core::Event>(random);
        survives_in_lists_and_events::<their_certificates::CertificateSigningRequest, certificates::CertificateSigningRequest>(random);
        survives_in_lists_and_events::<their_coordination::Lease, coordination::Lease>(random);
        survives_in_lists_and_events::<their_node::RuntimeClass, node::RuntimeClass>(random);
    }
}
