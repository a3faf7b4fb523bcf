//! Rows of volumes and of the claims to them.

use serde_json::Value;

use super::printer::{Column, Printer, age, name, said_or, text, text_or, texts};
use crate::object;

pub(super) static PERSISTENT_VOLUMES: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("Reclaim Policy"),
        Column::text("Status"),
        Column::text("Claim"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::text("Reason"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    |volume, now| {
        let claim = match &volume["spec"]["claimRef"] {
            Value::Null => String::new(),
            claim => format!("{}/{}", object::text(claim, &["namespace"]), object::text(claim, &["name"])),
        };
        vec![
            name(volume),
            text_or(volume, &["spec", "capacity", "storage"], "0"),
            access_modes(volume, &["spec", "accessModes"]).into(),
            text(volume, &["spec", "persistentVolumeReclaimPolicy"]),
            phase(volume),
            claim.into(),
            storage_class(volume),
            said_or(volume, &["spec", "volumeAttributesClassName"], "<unset>"),
            text(volume, &["status", "reason"]),
            age(volume, now),
            said_or(volume, &["spec", "volumeMode"], "<unset>"),
        ]
    },
);

pub(super) static PERSISTENT_VOLUME_CLAIMS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Volume"),
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    |claim, now| {
        // What it asks for is not what it has.
        let (capacity, modes) = match object::text(claim, &["spec", "volumeName"]) {
            "" => (Value::from(""), String::new()),
            _ => (
                text_or(claim, &["status", "capacity", "storage"], "0"),
                access_modes(claim, &["status", "accessModes"]),
            ),
        };
        vec![
            name(claim),
            phase(claim),
            text(claim, &["spec", "volumeName"]),
            capacity,
            modes.into(),
            storage_class(claim),
            said_or(claim, &["spec", "volumeAttributesClassName"], "<unset>"),
            age(claim, now),
            said_or(claim, &["spec", "volumeMode"], "<unset>"),
        ]
    },
);

fn phase(object: &Value) -> Value {
    match object::is_being_deleted(object) {
        true => "Terminating".into(),
        false => text(object, &["status", "phase"]),
    }
}

/// The class of a volume or claim; the annotation that was before the field still counts more.
fn storage_class(object: &Value) -> Value {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    match annotation.as_str() {
        Some(class) => class.into(),
        None => text(object, &["spec", "storageClassName"]),
    }
}

fn access_modes(object: &Value, path: &[&str]) -> String {
    let modes = texts(object, path);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let said = short.into_iter().filter(|(mode, _)| modes.contains(mode));
    said.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::printer::check::{check, days_ago};
    use super::*;

    #[test]
    fn a_volume_says_whose_it_is() {
        check(
            &PERSISTENT_VOLUMES,
            json!({
                "metadata": {"name": "test4"},
                "spec": {
                    "claimRef": {"namespace": "default", "name": "test"},
                    "storageClassName": "my-scn",
                    "volumeAttributesClassName": "my-vacn",
                    "accessModes": ["ReadWriteOncePod", "ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
                    "capacity": {"storage": "10Gi"},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
                "status": {"phase": "Pending", "reason": "because"},
            }),
            json!([
                "test4",
                "10Gi",
                "RWO,ROX,RWX,RWOP",
                "Retain",
                "Pending",
                "default/test",
                "my-scn",
                "my-vacn",
                "because",
                "<unknown>",
                "<unset>",
            ]),
        );
        check(
            &PERSISTENT_VOLUMES,
            json!({
                "metadata": {
                    "name": "test5",
                    "deletionTimestamp": days_ago(1),
                    "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
                },
                "spec": {"volumeMode": "Block"},
            }),
            json!(["test5", "0", "", "", "Terminating", "", "old", "<unset>", "", "<unknown>", "Block"]),
        );
    }

    #[test]
    fn a_claim_has_what_its_volume_gives() {
        let claim = |spec: Value, phase: &str| {
            json!({
                "metadata": {"name": "test"},
                "spec": spec,
                "status": {
                    "phase": phase,
                    "accessModes": ["ReadOnlyMany"],
                    "capacity": {"storage": "4Gi"},
                },
            })
        };
        check(
            &PERSISTENT_VOLUME_CLAIMS,
            claim(json!({"volumeName": "my-volume", "volumeMode": "Filesystem"}), "Bound"),
            json!(["test", "Bound", "my-volume", "4Gi", "ROX", "", "<unset>", "<unknown>", "Filesystem"]),
        );
        check(
            &PERSISTENT_VOLUME_CLAIMS,
            claim(json!({"storageClassName": "my-scn", "volumeAttributesClassName": "my-vacn"}), "Lost"),
            json!(["test", "Lost", "", "", "", "my-scn", "my-vacn", "<unknown>", "<unset>"]),
        );
    }
}
