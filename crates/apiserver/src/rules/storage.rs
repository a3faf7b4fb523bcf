//! Storage classes, drivers, and what is attached where.

use crablet_api::validate::{Errors, Word};
use crablet_api::{dns1123_subdomain_errors, qualified_name_errors};
use serde_json::{Value, json};

use super::checks::{check_name, check_word, is_repeated};
use super::metadata::{self, IMMUTABLE, check_immutable, check_immutable_object, entries, same};
use super::volumes::{check_driver, check_volume_spec};
use super::{Context, NameForm, Rules, Update, diff, keep_all_but_status};
use crate::object;
use crate::resources::Subresource;

pub struct StorageClasses;
pub struct Drivers;
pub struct NodeDrivers;
pub struct Attachments;

const LARGEST_PARAMETERS: usize = 256 * 1024;

impl Rules for StorageClasses {
    fn default(&self, class: &mut Value, _part: Option<Subresource>) {
        object::fill(class, "reclaimPolicy", "Delete");
        object::fill(class, "volumeBindingMode", "Immediate");
    }

    fn validate_create(&self, errors: &mut Errors, class: &Value, _context: &Context<'_>) {
        let provisioner = object::text(class, &["provisioner"]).to_lowercase();
        check_name(errors, "provisioner", &provisioner, qualified_name_errors);
        let parameters: Vec<(&str, &str)> = entries(&class["parameters"]).collect();
        if parameters.len() > 512 {
            errors.too_long("parameters", 512);
        }
        if parameters.iter().any(|(key, _)| key.is_empty()) {
            errors.invalid("parameters", "", "field can not be empty.");
        }
        if parameters.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > LARGEST_PARAMETERS {
            errors.too_long("parameters", LARGEST_PARAMETERS);
        }
        for (field, allowed) in [
            ("reclaimPolicy", ["Delete", "Retain"]),
            ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ] {
            check_word(errors, field, object::text(class, &[field]), &allowed);
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            check_immutable(errors, field, &new[field], &old[field]);
        }
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

impl Rules for Drivers {
    fn default(&self, driver: &mut Value, _part: Option<Subresource>) {
        let spec = object::holder(driver, "spec");
        for (field, value) in [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("storageCapacity", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
        ] {
            object::fill(spec, field, value);
        }
        if object::list(spec, &["volumeLifecycleModes"]).is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn prepare_create(&self, driver: &mut Value, _context: &Context<'_>) {
        object::remove(&mut driver["spec"], "preventPodSchedulingIfMissing");
    }

    fn validate_create(&self, errors: &mut Errors, driver: &Value, _context: &Context<'_>) {
        check_driver_spec(errors, &driver["spec"]);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        _part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        object::remove(&mut new["spec"], "preventPodSchedulingIfMissing");
        // It begins to count with the first change.
        if !same(&new["spec"], &old["spec"]) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        check_driver_spec(errors, &new["spec"]);
        for (field, path) in [
            ("attachRequired", "spec.attachedRequired"),
            ("volumeLifecycleModes", "spec.volumeLifecycleModes"),
        ] {
            check_immutable(errors, path, &new["spec"][field], &old["spec"][field]);
        }
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn check_driver_spec(errors: &mut Errors, spec: &Value) {
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    check_word(errors, "spec.fsGroupPolicy", object::text(spec, &["fsGroupPolicy"]), &policies);
    let requests = object::list(spec, &["tokenRequests"]);
    for (index, request) in requests.iter().enumerate() {
        let path = format!("spec.tokenRequests[{index}]");
        if is_repeated(requests, index, "audience") {
            let audience = object::text(request, &["audience"]);
            errors.duplicate(format_args!("{path}.audience"), audience);
            continue;
        }
        let Some(seconds) = request["expirationSeconds"].as_i64() else { continue };
        let path = format!("{path}.expirationSeconds");
        if seconds < 600 {
            errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    for mode in object::list(spec, &["volumeLifecycleModes"]) {
        let mode = mode.as_str().unwrap_or_default();
        if mode != "Persistent" && mode != "Ephemeral" {
            errors.not_supported("spec.volumeLifecycleModes", Word(mode), &["Persistent", "Ephemeral"]);
        }
    }
    if let Some(seconds) = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64().filter(|seconds| *seconds < 10)
    {
        let path = "spec.nodeAllocatableUpdatePeriodSeconds";
        errors.invalid(path, seconds, "must be greater than or equal to 10 seconds");
    }
    if !spec["serviceAccountTokenInSecrets"].is_null() && requests.is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid("spec.serviceAccountTokenInSecrets", &spec["serviceAccountTokenInSecrets"], detail);
    }
}

impl Rules for NodeDrivers {
    fn validate_create(&self, errors: &mut Errors, node: &Value, _context: &Context<'_>) {
        check_node_drivers(errors, node);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_node_drivers(errors, new);
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            object::remove(&mut driver, "allocatable");
            driver
        };
        let drivers = object::list(new, &["spec", "drivers"]);
        for known in object::list(old, &["spec", "drivers"]) {
            for driver in drivers.iter().filter(|driver| driver["name"] == known["name"]) {
                let (driver, known) = (without_count(driver), without_count(known));
                if !same(&driver, &known) {
                    let shown = diff::shown("storage.CSINodeDriver", &driver);
                    errors.invalid("spec.drivers", shown, IMMUTABLE);
                }
            }
        }
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn check_node_drivers(errors: &mut Errors, node: &Value) {
    let drivers = object::list(node, &["spec", "drivers"]);
    for (index, driver) in drivers.iter().enumerate() {
        let path = format!("spec.drivers[{index}]");
        let (name, id) = (object::text(driver, &["name"]), object::text(driver, &["nodeID"]));
        check_driver(errors, &format!("{path}.name"), name);
        if id.is_empty() {
            errors.required(format_args!("{path}.nodeID"), "");
        }
        if id.len() > 256 {
            errors.invalid(format_args!("{path}.nodeID"), id, "must be 256 characters or less");
        }
        if let Some(count) = driver["allocatable"]["count"].as_i64().filter(|count| *count < 0) {
            let path = format!("{path}.allocatable.count");
            errors.invalid(path, count, "must be greater than or equal to 0");
        }
        if is_repeated(drivers, index, "name") {
            errors.duplicate(format_args!("{path}.name"), name);
        }
        let keys = object::list(driver, &["topologyKeys"]);
        for (place, key) in keys.iter().enumerate() {
            let text = key.as_str().unwrap_or_default();
            if text.is_empty() {
                errors.required(&path, "");
            }
            if keys.iter().take(place).any(|other| other == key) {
                errors.duplicate(&path, text);
            }
            errors.invalid_each(&path, text, qualified_name_errors(text));
        }
    }
}

impl Rules for Attachments {
    fn prepare_create(&self, attachment: &mut Value, _context: &Context<'_>) {
        attachment["status"] = json!({"attached": false});
    }

    fn validate_create(&self, errors: &mut Errors, attachment: &Value, _context: &Context<'_>) {
        check_attachment(errors, attachment);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_all_but_status(new, old, part);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_attachment(errors, new);
        let kind = "storage.VolumeAttachmentSpec";
        check_immutable_object(errors, "spec", kind, &new["spec"], &old["spec"]);
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn check_attachment(errors: &mut Errors, attachment: &Value) {
    let spec = &attachment["spec"];
    check_driver(errors, "spec.attacher", object::text(spec, &["attacher"]));
    let (inline, name) = (&spec["source"]["inlineVolumeSpec"], &spec["source"]["persistentVolumeName"]);
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_object(), name.as_str()) {
        (false, None) => errors.required("spec.source", exactly_one),
        (true, Some(_)) => errors.forbidden("spec.source", exactly_one),
        (false, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.required("spec.source.persistentVolumeName", detail);
        }
        (false, Some(_)) => {}
        (true, None) => check_volume_spec(errors, "spec.source.inlineVolumeSpec", inline, true),
    }
    let node = object::text(spec, &["nodeName"]);
    errors.invalid_each("spec.nodeName", node, dns1123_subdomain_errors(node));
    let status = &attachment["status"];
    let metadata = entries(&status["attachmentMetadata"]);
    if metadata.map(|(key, value)| key.len() + value.len()).sum::<usize>() > LARGEST_PARAMETERS {
        errors.too_long("status.attachmentMetadata", LARGEST_PARAMETERS);
    }
    for field in ["attachError", "detachError"] {
        if object::text(status, &[field, "message"]).len() > 1024 {
            errors.too_long(format_args!("status.{field}.message"), LARGEST_PARAMETERS);
        }
    }
    if let Some(name) = name.as_str() {
        errors.invalid_each("spec.source.persistentVolumeName", name, dns1123_subdomain_errors(name));
    }
}
