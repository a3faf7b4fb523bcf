//! Rows of the kinds outside the core.

use crablet_api::human_duration;
use serde_json::Value;

use super::printer::{Column, Printer, age, count, flag_or, labels, name, said_or, text, text_or, texts};
use crate::object;

pub(super) static CERTIFICATE_SIGNING_REQUESTS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::AGE,
        Column::text("SignerName"),
        Column::text("Requestor"),
        Column::text("RequestedDuration"),
        Column::text("Condition"),
    ],
    |request, now| {
        let lasts = request["spec"]["expirationSeconds"].as_i64();
        vec![
            name(request),
            age(request, now),
            text_or(request, &["spec", "signerName"], "<none>"),
            text(request, &["spec", "username"]),
            lasts.map_or_else(|| "<none>".to_owned(), human_duration).into(),
            signing_state(request).into(),
        ]
    },
);

fn signing_state(request: &Value) -> String {
    let conditions = object::list(request, &["status", "conditions"]);
    let has = |condition: &str| conditions.iter().any(|known| known["type"] == condition);
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !object::text(request, &["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

pub(super) static CLUSTER_TRUST_BUNDLES: Printer =
    Printer::new(&[Column::NAME, Column::text("SignerName")], |bundle, _| {
        vec![name(bundle), text_or(bundle, &["spec", "signerName"], "<none>")]
    });

pub(super) static POD_CERTIFICATE_REQUESTS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("PodName"),
        Column::text("ServiceAccountName"),
        Column::text("NodeName"),
        Column::text("SignerName"),
        Column::text("State"),
        Column::text("UnverifiedUserAnnotations"),
    ],
    |request, _| {
        let conditions = object::list(request, &["status", "conditions"]).iter();
        let mut states = conditions.filter_map(|condition| condition["type"].as_str());
        let state = states.rfind(|state| matches!(*state, "Issued" | "Denied" | "Failed"));
        vec![
            name(request),
            text(request, &["spec", "podName"]),
            text(request, &["spec", "serviceAccountName"]),
            text(request, &["spec", "nodeName"]),
            text(request, &["spec", "signerName"]),
            state.unwrap_or("Pending").into(),
            labels(request, &["spec", "unverifiedUserAnnotations"]),
        ]
    },
);

pub(super) static LEASES: Printer =
    Printer::new(&[Column::NAME, Column::text("Holder"), Column::AGE], |lease, now| {
        vec![name(lease), text(lease, &["spec", "holderIdentity"]), age(lease, now)]
    });

pub(super) static RUNTIME_CLASSES: Printer =
    Printer::new(&[Column::NAME, Column::text("Handler"), Column::AGE], |class, now| {
        vec![name(class), text(class, &["handler"]), age(class, now)]
    });

/// Those of a namespace and those of the cluster.
pub(super) static ROLE_BINDINGS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Role"),
        Column::AGE,
        Column::text("Users").wide(),
        Column::text("Groups").wide(),
        Column::text("ServiceAccounts").wide(),
    ],
    |binding, now| {
        let role = ["kind", "name"].map(|field| object::text(binding, &["roleRef", field])).join("/");
        vec![
            name(binding),
            role.into(),
            age(binding, now),
            subjects(binding, "User"),
            subjects(binding, "Group"),
            subjects(binding, "ServiceAccount"),
        ]
    },
);

fn subjects(binding: &Value, kind: &str) -> Value {
    let subjects = object::list(binding, &["subjects"]).iter();
    let names = subjects.filter(|subject| subject["kind"] == kind).map(|subject| {
        let name = object::text(subject, &["name"]);
        match kind {
            "ServiceAccount" => format!("{}/{name}", object::text(subject, &["namespace"])),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}

pub(super) static RESOURCE_CLAIMS: Printer =
    Printer::new(&[Column::NAME, Column::text("State"), Column::AGE], |claim, now| {
        let is_deleted = object::is_being_deleted(claim);
        let is_allocated = !claim["status"]["allocation"].is_null();
        let states = [
            ("deleted", is_deleted),
            ("pending", !is_deleted && !is_allocated),
            ("allocated", is_allocated),
            ("reserved", is_allocated && count(claim, &["status", "reservedFor"]) > 0),
        ];
        let states = states.into_iter().filter(|(_, is)| *is).map(|(state, _)| state);
        vec![name(claim), states.collect::<Vec<_>>().join(",").into(), age(claim, now)]
    });

pub(super) static RESOURCE_SLICES: Printer = Printer::new(
    &[Column::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), Column::AGE],
    |slice, now| {
        vec![
            name(slice),
            text(slice, &["spec", "nodeName"]),
            text(slice, &["spec", "driver"]),
            text(slice, &["spec", "pool", "name"]),
            age(slice, now),
        ]
    },
);

pub(super) static PRIORITY_CLASSES: Printer = Printer::new(
    &[
        Column::NAME,
        Column::integer("Value"),
        Column::boolean("Global-Default"),
        Column::AGE,
        Column::text("PreemptionPolicy"),
    ],
    |class, now| {
        vec![
            name(class),
            class["value"].as_i64().unwrap_or(0).into(),
            flag_or(class, &["globalDefault"], false),
            age(class, now),
            text(class, &["preemptionPolicy"]),
        ]
    },
);

pub(super) static CSI_NODES: Printer =
    Printer::new(&[Column::NAME, Column::integer("Drivers"), Column::AGE], |node, now| {
        vec![name(node), count(node, &["spec", "drivers"]).into(), age(node, now)]
    });

pub(super) static CSI_DRIVERS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::boolean("AttachRequired"),
        Column::boolean("PodInfoOnMount"),
        Column::boolean("StorageCapacity"),
        Column::text("TokenRequests"),
        Column::boolean("RequiresRepublish"),
        Column::text("Modes"),
        Column::AGE,
    ],
    |driver, now| {
        let modes = match texts(driver, &["spec", "volumeLifecycleModes"]).join(",") {
            modes if modes.is_empty() => "<none>".to_owned(),
            modes => modes,
        };
        let tokens = driver["spec"]["tokenRequests"].as_array().map(|requests| {
            requests.iter().map(|request| object::text(request, &["audience"])).collect::<Vec<_>>().join(",")
        });
        vec![
            name(driver),
            flag_or(driver, &["spec", "attachRequired"], true),
            flag_or(driver, &["spec", "podInfoOnMount"], false),
            flag_or(driver, &["spec", "storageCapacity"], false),
            tokens.unwrap_or_else(|| "<unset>".to_owned()).into(),
            flag_or(driver, &["spec", "requiresRepublish"], false),
            modes.into(),
            age(driver, now),
        ]
    },
);

pub(super) static STORAGE_CLASSES: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Provisioner"),
        Column::text("ReclaimPolicy"),
        Column::text("VolumeBindingMode"),
        Column::text("AllowVolumeExpansion"),
        Column::AGE,
    ],
    |class, now| {
        let is_default = |prefix: &str| {
            class["metadata"]["annotations"][format!("{prefix}.kubernetes.io/is-default-class")] == "true"
        };
        let name = match is_default("storageclass") || is_default("storageclass.beta") {
            true => format!("{} (default)", object::name(class)).into(),
            false => name(class),
        };
        vec![
            name,
            text(class, &["provisioner"]),
            said_or(class, &["reclaimPolicy"], "Delete"),
            said_or(class, &["volumeBindingMode"], "Immediate"),
            flag_or(class, &["allowVolumeExpansion"], false),
            age(class, now),
        ]
    },
);

pub(super) static VOLUME_ATTACHMENTS: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Attacher").named(),
        Column::text("PV"),
        Column::text("Node"),
        Column::boolean("Attached"),
        Column::AGE,
    ],
    |attachment, now| {
        vec![
            name(attachment),
            text(attachment, &["spec", "attacher"]),
            text(attachment, &["spec", "source", "persistentVolumeName"]),
            text(attachment, &["spec", "nodeName"]),
            flag_or(attachment, &["status", "attached"], false),
            age(attachment, now),
        ]
    },
);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::printer;
    use super::*;
    use crate::resources::{CLUSTER_ROLES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, SERVICE_ACCOUNTS};

    fn now() -> Timestamp {
        "2026-01-21T00:05:00Z".parse().unwrap()
    }

    /// The cells of an object that is five minutes old and called `a`.
    #[track_caller]
    fn check(printer: &Printer, mut object: Value, expected: Value) {
        object["metadata"]["name"] = "a".into();
        object["metadata"]["creationTimestamp"] = "2026-01-21T00:00:00Z".into();
        assert_eq!(json!((printer.cells)(&object, now())), expected);
    }

    #[test]
    fn kinds_without_more_to_say_have_name_and_age_and_roles_a_time() {
        for resource in [&SERVICE_ACCOUNTS, &DEVICE_CLASSES, &RESOURCE_CLAIM_TEMPLATES] {
            check(printer::of(resource), json!({}), json!(["a", "5m"]));
        }
        check(printer::of(&CLUSTER_ROLES), json!({}), json!(["a", "2026-01-21T00:00:00Z"]));
        let columns: Vec<Value> = printer::of(&CLUSTER_ROLES).columns.iter().map(Column::shown).collect();
        assert_eq!((&columns[1]["name"], &columns[1]["type"]), (&json!("Created At"), &json!("date")));
    }

    #[test]
    fn a_signing_request_says_how_far_it_has_come() {
        let state = |conditions: &[&str], certificate: &str| {
            let conditions: Vec<Value> = conditions.iter().map(|r#type| json!({"type": r#type})).collect();
            signing_state(&json!({"status": {"conditions": conditions, "certificate": certificate}}))
        };
        assert_eq!(state(&[], ""), "Pending");
        assert_eq!(state(&["Approved"], ""), "Approved");
        assert_eq!(state(&["Approved"], "Y2VydA=="), "Approved,Issued");
        assert_eq!(state(&["Approved", "Failed"], ""), "Approved,Failed");
        assert_eq!(state(&["Approved", "Denied"], ""), "Denied");
        check(
            &CERTIFICATE_SIGNING_REQUESTS,
            json!({"spec": {
                "username": "CSR Requestor",
                "signerName": "example.com/test-signer",
                "expirationSeconds": 7 * 24 * 3600 + 3600,
            }}),
            json!(["a", "5m", "example.com/test-signer", "CSR Requestor", "7d1h", "Pending"]),
        );
        check(
            &CERTIFICATE_SIGNING_REQUESTS,
            json!({}),
            json!(["a", "5m", "<none>", "", "<none>", "Pending"]),
        );
    }

    #[test]
    fn certificates_of_pods_and_bundles_name_their_signers() {
        check(&CLUSTER_TRUST_BUNDLES, json!({}), json!(["a", "<none>"]));
        check(&CLUSTER_TRUST_BUNDLES, json!({"spec": {"signerName": "x/y"}}), json!(["a", "x/y"]));
        let spec = json!({
            "signerName": "foo.com/abc",
            "podName": "pod-1",
            "serviceAccountName": "sa-1",
            "nodeName": "node-1",
            "unverifiedUserAnnotations": {"test/foo": "abc", "test/domain": "bar"},
        });
        let annotations = "test/domain=bar,test/foo=abc";
        check(
            &POD_CERTIFICATE_REQUESTS,
            json!({"spec": spec, "status": {"conditions": [{"type": "Issued"}]}}),
            json!(["a", "pod-1", "sa-1", "node-1", "foo.com/abc", "Issued", annotations]),
        );
        check(
            &POD_CERTIFICATE_REQUESTS,
            json!({"spec": spec}),
            json!(["a", "pod-1", "sa-1", "node-1", "foo.com/abc", "Pending", annotations]),
        );
    }

    #[test]
    fn leases_and_runtime_classes_say_whose_they_are() {
        check(&LEASES, json!({"spec": {"holderIdentity": "n1"}}), json!(["a", "n1", "5m"]));
        check(&LEASES, json!({}), json!(["a", "", "5m"]));
        check(&RUNTIME_CLASSES, json!({"handler": "runc"}), json!(["a", "runc", "5m"]));
    }

    #[test]
    fn a_binding_lists_its_subjects_by_kind() {
        check(
            &ROLE_BINDINGS,
            json!({
                "subjects": [
                    {"kind": "User", "name": "user-name"},
                    {"kind": "User", "name": "other"},
                    {"kind": "Group", "name": "group-name"},
                    {"kind": "ServiceAccount", "name": "sa", "namespace": "ns"},
                ],
                "roleRef": {"kind": "Role", "name": "role-name"},
            }),
            json!(["a", "Role/role-name", "5m", "user-name, other", "group-name", "ns/sa"]),
        );
    }

    #[test]
    fn a_resource_claim_is_pending_allocated_reserved_or_deleted() {
        let reserved = json!([{"resource": "pods", "name": "pod-test", "uid": "pod-test"}]);
        for (status, is_deleted, expected) in [
            (json!({}), false, "pending"),
            (json!({"allocation": {}}), false, "allocated"),
            (json!({"allocation": {}, "reservedFor": reserved}), false, "allocated,reserved"),
            (json!({"reservedFor": reserved}), false, "pending"),
            (json!({}), true, "deleted"),
            (json!({"allocation": {}, "reservedFor": reserved}), true, "deleted,allocated,reserved"),
        ] {
            let mut claim = json!({"metadata": {}, "status": status});
            if is_deleted {
                claim["metadata"]["deletionTimestamp"] = "2026-01-21T00:00:00Z".into();
            }
            check(&RESOURCE_CLAIMS, claim, json!(["a", expected, "5m"]));
        }
        check(
            &RESOURCE_SLICES,
            json!({"spec": {"nodeName": "n1", "driver": "driver.example", "pool": {"name": "p"}}}),
            json!(["a", "n1", "driver.example", "p", "5m"]),
        );
    }

    #[test]
    fn a_priority_class_has_numbers_and_flags() {
        check(
            &PRIORITY_CLASSES,
            json!({"value": 1_000_000_000, "globalDefault": true, "preemptionPolicy": "Never"}),
            json!(["a", 1_000_000_000, true, "5m", "Never"]),
        );
        check(&PRIORITY_CLASSES, json!({"value": 1}), json!(["a", 1, false, "5m", ""]));
    }

    #[test]
    fn what_storage_leaves_out_is_shown_by_its_default() {
        check(
            &STORAGE_CLASSES,
            json!({"provisioner": "kubernetes.io/nfs"}),
            json!(["a", "kubernetes.io/nfs", "Delete", "Immediate", false, "5m"]),
        );
        check(
            &STORAGE_CLASSES,
            json!({
                "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "p",
                "reclaimPolicy": "Retain",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowVolumeExpansion": true,
            }),
            json!(["a (default)", "p", "Retain", "WaitForFirstConsumer", true, "5m"]),
        );
        check(&CSI_DRIVERS, json!({}), json!(["a", true, false, false, "<unset>", false, "<none>", "5m"]));
        check(
            &CSI_DRIVERS,
            json!({"spec": {
                "attachRequired": false,
                "podInfoOnMount": true,
                "storageCapacity": true,
                "tokenRequests": [{"audience": "x"}, {"audience": "y"}],
                "requiresRepublish": true,
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            }}),
            json!(["a", false, true, true, "x,y", true, "Persistent,Ephemeral", "5m"]),
        );
        check(&CSI_NODES, json!({"spec": {"drivers": [{}, {}]}}), json!(["a", 2, "5m"]));
        check(
            &VOLUME_ATTACHMENTS,
            json!({
                "spec": {"attacher": "driver", "source": {"persistentVolumeName": "pv"}, "nodeName": "n1"},
                "status": {"attached": true},
            }),
            json!(["a", "driver", "pv", "n1", true, "5m"]),
        );
    }
}
