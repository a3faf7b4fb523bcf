//! What `kubectl get` shows of a kind: its columns, and the cells of an object.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, core, events, groups, pods, volumes};
use crate::object;
use crate::resources::Resource;

pub(super) struct Printer {
    pub(super) columns: &'static [Column],
    pub(super) cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// A condition of the row, as `kubectl` greys out what has ended.
    pub(super) condition: fn(&Value) -> Option<Value>,
}

pub(super) struct Column {
    name: &'static str,
    r#type: &'static str,
    format: &'static str,
    /// Above zero for those of `-o wide` alone.
    priority: u8,
}

impl Column {
    pub(super) const NAME: Column = Column { format: "name", ..Column::text("Name") };
    pub(super) const AGE: Column = Column::text("Age");

    pub(super) const fn text(name: &'static str) -> Column {
        Column { name, r#type: "string", format: "", priority: 0 }
    }

    pub(super) const fn integer(name: &'static str) -> Column {
        Column { r#type: "integer", ..Column::text(name) }
    }

    pub(super) const fn boolean(name: &'static str) -> Column {
        Column { r#type: "boolean", ..Column::text(name) }
    }

    /// The same in wide tables alone.
    pub(super) const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// The same with a name of an object in it.
    pub(super) const fn named(self) -> Column {
        Column { format: "name", ..self }
    }

    pub(super) fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.r#type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        })
    }
}

impl Printer {
    pub(super) const fn new(
        columns: &'static [Column],
        cells: fn(&Value, Timestamp) -> Vec<Value>,
    ) -> Printer {
        Printer { columns, cells, condition: |_| None }
    }

    /// Whether it is that of kinds which have none of their own.
    pub(super) fn is_default(&self) -> bool {
        std::ptr::eq(self.columns, DEFAULT.columns)
    }
}

pub(super) fn of(resource: &Resource) -> &'static Printer {
    let storage = resource.storage();
    match (storage.group, storage.plural) {
        ("", "configmaps") => &core::CONFIG_MAPS,
        ("", "events") => &events::EVENTS,
        ("", "namespaces") => &core::NAMESPACES,
        ("", "nodes") => &core::NODES,
        ("", "persistentvolumeclaims") => &volumes::PERSISTENT_VOLUME_CLAIMS,
        ("", "persistentvolumes") => &volumes::PERSISTENT_VOLUMES,
        ("", "pods") => &pods::PODS,
        ("", "secrets") => &core::SECRETS,
        ("", "serviceaccounts") => &NAME_AND_AGE,
        ("", "services") => &core::SERVICES,
        ("certificates.k8s.io", "certificatesigningrequests") => &groups::CERTIFICATE_SIGNING_REQUESTS,
        ("certificates.k8s.io", "clustertrustbundles") => &groups::CLUSTER_TRUST_BUNDLES,
        ("certificates.k8s.io", "podcertificaterequests") => &groups::POD_CERTIFICATE_REQUESTS,
        ("coordination.k8s.io", "leases") => &groups::LEASES,
        ("node.k8s.io", "runtimeclasses") => &groups::RUNTIME_CLASSES,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &groups::ROLE_BINDINGS,
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => &NAME_AND_AGE,
        ("resource.k8s.io", "resourceclaims") => &groups::RESOURCE_CLAIMS,
        ("resource.k8s.io", "resourceslices") => &groups::RESOURCE_SLICES,
        ("scheduling.k8s.io", "priorityclasses") => &groups::PRIORITY_CLASSES,
        ("storage.k8s.io", "csidrivers") => &groups::CSI_DRIVERS,
        ("storage.k8s.io", "csinodes") => &groups::CSI_NODES,
        ("storage.k8s.io", "storageclasses") => &groups::STORAGE_CLASSES,
        ("storage.k8s.io", "volumeattachments") => &groups::VOLUME_ATTACHMENTS,
        _ => &DEFAULT,
    }
}

static NAME_AND_AGE: Printer =
    Printer::new(&[Column::NAME, Column::AGE], |object, now| vec![name(object), age(object, now)]);

static DEFAULT: Printer =
    Printer::new(&[Column::NAME, Column { r#type: "date", ..Column::text("Created At") }], |object, _| {
        let created = age::time(&object["metadata"]["creationTimestamp"]);
        let created = created.map_or_else(|| "0001-01-01T00:00:00Z".into(), object::time);
        vec![name(object), created]
    });

pub(super) fn name(object: &Value) -> Value {
    object::name(object).into()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

/// The text at a path; empty where there is none.
pub(super) fn text(object: &Value, path: &[&str]) -> Value {
    object::text(object, path).into()
}

/// The text at a path, or something else where there is none.
pub(super) fn text_or(object: &Value, path: &[&str], otherwise: &str) -> Value {
    match object::text(object, path) {
        "" => otherwise.into(),
        text => text.into(),
    }
}

/// The same of what may be said to be empty.
pub(super) fn said_or(object: &Value, path: &[&str], otherwise: &str) -> Value {
    object::at(object, path).as_str().unwrap_or(otherwise).into()
}

pub(super) fn flag_or(object: &Value, path: &[&str], otherwise: bool) -> Value {
    object::at(object, path).as_bool().unwrap_or(otherwise).into()
}

/// How many there are in a list or a map.
pub(super) fn count(object: &Value, path: &[&str]) -> usize {
    match object::at(object, path) {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// `a=b,c=d`
pub(super) fn labels(object: &Value, path: &[&str]) -> Value {
    let labels = object::at(object, path).as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    match labels.is_empty() {
        true => "<none>".into(),
        false => labels.join(",").into(),
    }
}

/// The texts of a list.
pub(super) fn texts<'o>(object: &'o Value, path: &[&str]) -> Vec<&'o str> {
    object::list(object, path).iter().filter_map(Value::as_str).collect()
}

/// Whether a condition of a type is there and true.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    let mut conditions = object::list(object, &["status", "conditions"]).iter();
    conditions.any(|known| known["type"] == condition && known["status"] == "True")
}

#[cfg(test)]
pub(super) mod check {
    use super::*;

    pub(crate) fn now() -> Timestamp {
        "2026-01-21T00:00:00Z".parse().unwrap()
    }

    pub(crate) fn ago(seconds: i64) -> Value {
        object::time(now() - jiff::SignedDuration::from_secs(seconds))
    }

    pub(crate) fn days_ago(days: i64) -> Value {
        ago(24 * 3600 * days)
    }

    #[track_caller]
    pub(crate) fn check(printer: &Printer, object: Value, expected: Value) {
        assert_eq!(json!((printer.cells)(&object, now())), expected);
    }
}
