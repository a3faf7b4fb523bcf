//! Persistent volumes and claims to them.

use crablet_api::core::NodeSelectorTerm;
use crablet_api::meta::LabelSelector;
use crablet_api::validate::{self, Errors, Word};
use crablet_api::{Quantity, dns1123_subdomain_errors};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::checks::check_word;
use super::metadata::{self, check_immutable, same};
use super::pods::quantity;
use super::{Context, NameForm, Rules, Update, diff, keep_other_parts};
use crate::object;
use crate::resources::Subresource;

pub struct Volumes;
pub struct Claims;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// What a volume can be.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

impl Rules for Volumes {
    fn default(&self, volume: &mut Value, _part: Option<Subresource>) {
        let spec = object::holder(volume, "spec");
        object::fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        object::fill(spec, "volumeMode", "Filesystem");
        if spec["hostPath"].is_object() {
            object::fill(&mut spec["hostPath"], "type", "");
        }
    }

    fn prepare_create(&self, volume: &mut Value, context: &Context<'_>) {
        volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": object::time(context.now)});
    }

    fn validate_create(&self, errors: &mut Errors, volume: &Value, _context: &Context<'_>) {
        check_volume_spec(errors, "spec", &volume["spec"], false);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>, context: &Context<'_>) {
        keep_other_parts(new, old, part);
        if part != Some(Subresource::Status) {
            return;
        }
        let (time, known) =
            (&new["status"]["lastPhaseTransitionTime"], &old["status"]["lastPhaseTransitionTime"]);
        let is_same_phase = new["status"]["phase"] == old["status"]["phase"];
        if is_same_phase && time.is_null() && !known.is_null() {
            new["status"]["lastPhaseTransitionTime"] = known.clone();
        } else if !is_same_phase && (time.is_null() || time == known) {
            new["status"]["lastPhaseTransitionTime"] = object::time(context.now);
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        if part == Some(Subresource::Status) {
            metadata::check_update(errors, update);
            return;
        }
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_volume_spec(errors, "spec", &new["spec"], false);
        let (mut source, known) = (source(&new["spec"]), source(&old["spec"]));
        if known["csi"].is_object()
            && known["csi"]["controllerExpandSecretRef"].is_null()
            && let Some(csi) = source.get_mut("csi")
        {
            object::remove(csi, "controllerExpandSecretRef");
        }
        if !same(&source, &known) {
            let changed = diff::of("PersistentVolumeSource", &known, &source);
            let detail = format!("spec.persistentvolumesource is immutable after creation\n{changed}");
            errors.forbidden("spec.persistentvolumesource", detail);
        }
        check_immutable(errors, "volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
        let affinity = |volume: &Value| volume["spec"]["nodeAffinity"].clone();
        if !affinity(old).is_null() && !same(&affinity(new), &affinity(old)) {
            let shown = diff::shown("VolumeNodeAffinity", &affinity(new));
            errors.invalid("nodeAffinity", shown, metadata::IMMUTABLE);
        }
        let class = |volume: &Value| volume["spec"]["volumeAttributesClassName"].clone();
        if !class(old).is_null() && class(new).is_null() {
            let detail = "update from non-nil value to nil is forbidden";
            errors.forbidden("spec.volumeAttributesClassName", detail);
        }
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

/// What a volume is, of its spec.
fn source(spec: &Value) -> Value {
    let fields = spec.as_object().into_iter().flatten();
    let source = fields.filter(|(name, _)| SOURCES.contains(&name.as_str()));
    Value::Object(source.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

pub(super) fn check_volume_spec(errors: &mut Errors, path: &str, spec: &Value, is_inline: bool) {
    if is_inline {
        for field in ["claimRef", "capacity"] {
            if !same(&spec[field], &Value::Null) {
                let detail = "may not be specified in the context of inline volumes";
                errors.forbidden(format_args!("{path}.{field}"), detail);
            }
        }
        if spec["csi"].is_null() {
            let detail = "has to be specified in the context of inline volumes";
            errors.required(format_args!("{path}.csi"), detail);
        }
    }
    check_access_modes(errors, path, spec, "");
    if !is_inline {
        check_capacity(errors, path, spec);
        let policy = object::text(spec, &["persistentVolumeReclaimPolicy"]);
        let policies = ["Delete", "Recycle", "Retain"];
        if !policies.contains(&policy) {
            let path = format!("{path}.persistentVolumeReclaimPolicy");
            errors.not_supported(path, Word(policy), &policies);
        }
    }
    if spec["nodeAffinity"].is_object() {
        let required = &spec["nodeAffinity"]["required"];
        if required.is_object() {
            let terms = object::list(required, &["nodeSelectorTerms"]).iter();
            let terms: Vec<NodeSelectorTerm> =
                terms.filter_map(|term| NodeSelectorTerm::deserialize(term).ok()).collect();
            let path = format!("{path}.nodeAffinity.required.nodeSelectorTerms");
            validate::validate_node_terms(errors, &path, &terms);
        } else {
            let detail = "must specify required node constraints";
            errors.required(format_args!("{path}.nodeAffinity.required"), detail);
        }
    }
    check_source(errors, path, spec);
    let class = object::text(spec, &["storageClassName"]);
    if !class.is_empty() {
        let path = format!("{path}.storageClassName");
        match is_inline {
            true => errors.forbidden(path, "may not be specified in the context of inline volumes"),
            false => errors.invalid_each(path, class, dns1123_subdomain_errors(class)),
        }
    }
    let mode = object::text(spec, &["volumeMode"]);
    check_word(errors, format_args!("{path}.volumeMode"), mode, &VOLUME_MODES);
}

fn check_access_modes(errors: &mut Errors, path: &str, spec: &Value, why: &str) {
    let modes = object::list(spec, &["accessModes"]);
    if modes.is_empty() {
        errors.required(format_args!("{path}.accessModes"), why);
    }
    check_known_modes(errors, path, modes);
}

fn check_known_modes(errors: &mut Errors, path: &str, modes: &[Value]) {
    let known = modes.iter().filter(|mode| ACCESS_MODES.iter().any(|known| **mode == *known));
    let (alone, others): (Vec<_>, Vec<_>) = known.partition(|mode| **mode == "ReadWriteOncePod");
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(format_args!("{path}.accessModes"), Word(mode), &ACCESS_MODES);
        }
    }
    if !alone.is_empty() && !others.is_empty() {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden(format_args!("{path}.accessModes"), detail);
    }
}

fn check_capacity(errors: &mut Errors, path: &str, spec: &Value) {
    let capacity = &spec["capacity"];
    let count = capacity.as_object().map_or(0, Map::len);
    if count == 0 {
        errors.required(format_args!("{path}.capacity"), "");
    }
    if capacity.get("storage").is_none() || count > 1 {
        let shown = if capacity.is_null() { &Value::Null } else { capacity };
        errors.not_supported(format_args!("{path}.capacity"), shown, &["storage"]);
    }
    for (name, amount) in capacity.as_object().into_iter().flatten() {
        check_positive(errors, &format!("{path}.capacity[{name}]"), amount);
    }
}

fn check_positive(errors: &mut Errors, path: &str, amount: &Value) {
    let Some(amount) = quantity(amount) else { return };
    if amount.sign() <= 0 {
        errors.invalid(path, amount.to_string().as_str(), "must be greater than zero");
    }
}

fn check_source(errors: &mut Errors, path: &str, spec: &Value) {
    let found: Vec<&&str> = SOURCES.iter().filter(|source| spec[**source].is_object()).collect();
    let [first, others @ ..] = found.as_slice() else {
        return errors.required(path, "must specify a volume type");
    };
    check_one_source(errors, path, spec, first);
    for other in others {
        errors.forbidden(format_args!("{path}.{other}"), "may not specify more than 1 volume type");
    }
}

fn check_one_source(errors: &mut Errors, path: &str, spec: &Value, first: &str) {
    let text = |field: &str| object::text(spec, &[first, field]);
    let path = format!("{path}.{first}");
    match first {
        "hostPath" | "local" => {
            let target = text("path");
            if target.is_empty() {
                errors.required(format_args!("{path}.path"), "");
            } else if target.split('/').any(|part| part == "..") {
                errors.invalid(format_args!("{path}.path"), target, "must not contain '..'");
            }
            if first == "local" && spec["nodeAffinity"].is_null() {
                let detail = "Local volume requires node affinity";
                errors.required(format_args!("{}.nodeAffinity", path.trim_end_matches(".local")), detail);
            }
            let is_root =
                !target.is_empty() && target.chars().all(|character| character == '/' || character == '.');
            if first == "hostPath" && is_root && spec["persistentVolumeReclaimPolicy"] == "Recycle" {
                let detail = "may not be 'recycle' for a hostPath mount of '/'";
                errors.forbidden("spec.persistentVolumeReclaimPolicy", detail);
            }
        }
        "nfs" => {
            for field in ["server", "path"] {
                if text(field).is_empty() {
                    errors.required(format_args!("{path}.{field}"), "");
                }
            }
            if !text("path").is_empty() && !text("path").starts_with('/') {
                errors.invalid(format_args!("{path}.path"), text("path"), "must be an absolute path");
            }
        }
        "csi" => {
            check_driver(errors, &format!("{path}.driver"), text("driver"));
            if text("volumeHandle").is_empty() {
                errors.required(format_args!("{path}.volumeHandle"), "");
            }
            for field in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                let reference = &spec["csi"][field];
                for part in ["name", "namespace"] {
                    if reference.is_object() && object::text(reference, &[part]).is_empty() {
                        errors.required(format_args!("{path}.{field}.{part}"), "");
                    }
                }
            }
        }
        _ => {}
    }
}

pub(super) fn check_driver(errors: &mut Errors, path: &str, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    if !name.is_empty() {
        let lower = name.to_lowercase();
        errors.invalid_each(path, name, dns1123_subdomain_errors(&lower));
    }
}

impl Rules for Claims {
    fn default(&self, claim: &mut Value, _part: Option<Subresource>) {
        object::fill(object::holder(claim, "spec"), "volumeMode", "Filesystem");
    }

    fn prepare_create(&self, claim: &mut Value, _context: &Context<'_>) {
        claim["status"] = json!({"phase": "Pending"});
        settle_data_source(&mut claim["spec"]);
    }

    fn validate_create(&self, errors: &mut Errors, claim: &Value, _context: &Context<'_>) {
        check_claim(errors, &claim["spec"]);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_other_parts(new, old, part);
        if part.is_none() {
            settle_data_source(&mut new["spec"]);
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        metadata::check_update(errors, update);
        if part == Some(Subresource::Status) {
            return;
        }
        metadata::check(errors, update.resource, NameForm::Subdomain, new);
        check_claim(errors, &new["spec"]);
        check_claim_change(errors, new, old);
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

/// What a claim's data comes from is said in two places.
fn settle_data_source(spec: &mut Value) {
    // Before there were two, what nobody could use was dropped, and still is where only the first is said.
    let source =
        (object::text(spec, &["dataSource", "apiGroup"]), object::text(spec, &["dataSource", "kind"]));
    let is_usable =
        matches!(source, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"));
    if spec["dataSource"].is_object() && spec["dataSourceRef"].is_null() && !is_usable {
        object::remove(spec, "dataSource");
    }
    let has_namespace = !object::text(spec, &["dataSourceRef", "namespace"]).is_empty();
    match (spec["dataSource"].is_object(), spec["dataSourceRef"].is_object()) {
        (true, false) => spec["dataSourceRef"] = spec["dataSource"].clone(),
        (false, true) if !has_namespace => spec["dataSource"] = spec["dataSourceRef"].clone(),
        _ => {}
    }
}

fn check_claim(errors: &mut Errors, spec: &Value) {
    let modes = object::list(spec, &["accessModes"]);
    if modes.is_empty() {
        errors.required("spec.accessModes", "at least 1 access mode is required");
    }
    if let Ok(selector) = LabelSelector::deserialize(&spec["selector"]) {
        validate::validate_label_selector(errors, "spec.selector", &selector);
    }
    check_known_modes(errors, "spec", modes);
    match spec["resources"]["requests"].get("storage") {
        None => errors.required("spec.resources[storage]", ""),
        Some(amount) => check_positive(errors, "spec.resources[storage]", amount),
    }
    let class = object::text(spec, &["storageClassName"]);
    if !class.is_empty() {
        errors.invalid_each("spec.storageClassName", class, dns1123_subdomain_errors(class));
    }
    check_word(errors, "spec.volumeMode", object::text(spec, &["volumeMode"]), &VOLUME_MODES);
    for field in ["dataSource", "dataSourceRef"] {
        check_data_source(errors, &format!("spec.{field}"), &spec[field]);
    }
    let class = object::text(spec, &["volumeAttributesClassName"]);
    if !class.is_empty() {
        errors.invalid_each("spec.volumeAttributesClassName", class, dns1123_subdomain_errors(class));
    }
}

fn check_data_source(errors: &mut Errors, path: &str, source: &Value) {
    if !source.is_object() {
        return;
    }
    for field in ["name", "kind"] {
        if object::text(source, &[field]).is_empty() {
            errors.required(format_args!("{path}.{field}"), "");
        }
    }
    let (group, kind) = (object::text(source, &["apiGroup"]), object::text(source, &["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
}

fn check_claim_change(errors: &mut Errors, new: &Value, old: &Value) {
    let (mut now, mut before) = (new["spec"].clone(), old["spec"].clone());
    if object::text(&before, &["volumeName"]).is_empty()
        && let Some(name) = now.get("volumeName")
    {
        before["volumeName"] = name.clone();
    }
    let annotation =
        |claim: &Value| object::at(claim, &["metadata", "annotations", CLASS_ANNOTATION]).clone();
    if annotation(new) != annotation(old) {
        let value = annotation(new);
        let path = format!("metadata.annotations[{CLASS_ANNOTATION}]");
        errors.invalid(path, value.as_str().unwrap_or_default(), metadata::IMMUTABLE);
    }
    // A class may be set where there was none, as the controller does when one becomes the default.
    if before["storageClassName"].is_null()
        && annotation(old).is_null()
        && let Some(class) = now.get("storageClassName").filter(|class| class.is_string())
    {
        before["storageClassName"] = class.clone();
    }
    let size = |spec: &Value| -> Quantity {
        quantity(&spec["resources"]["requests"]["storage"]).unwrap_or_default()
    };
    let (wanted, had) = (size(&now), size(&before));
    if new["status"]["phase"] == "Bound" {
        if now["resources"]["requests"].is_object() {
            now["resources"]["requests"]["storage"] = before["resources"]["requests"]["storage"].clone();
        }
        match before.get("volumeAttributesClassName").cloned() {
            Some(class) => now["volumeAttributesClassName"] = class,
            None => drop(object::remove(&mut now, "volumeAttributesClassName")),
        }
    }
    if !same(&now, &before) {
        let changed = diff::of("PersistentVolumeClaimSpec", &before, &now);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{changed}"
        );
        errors.forbidden("spec", detail);
    }
    if wanted < had {
        let capacity = quantity(&old["status"]["capacity"]["storage"]).unwrap_or_default();
        if wanted <= capacity {
            let detail = "field can not be less than status.capacity";
            errors.forbidden("spec.resources.requests.storage", detail);
        }
    }
    check_immutable(errors, "volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

#[cfg(test)]
mod tests {
    use super::super::checks::lines;
    use super::*;

    #[test]
    fn a_volume_says_what_it_is_and_how_large() {
        for (spec, expected) in [
            (
                json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"},
                    "persistentVolumeReclaimPolicy": "Retain"}),
                vec![],
            ),
            (
                json!({"accessModes": [], "persistentVolumeReclaimPolicy": "Retain"}),
                vec![
                    "spec.accessModes: Required value",
                    "spec.capacity: Required value",
                    "spec.capacity: Unsupported value: null: supported values: \"storage\"",
                    "spec: Required value: must specify a volume type",
                ],
            ),
            (
                json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "local": {"path": "/x"},
                    "persistentVolumeReclaimPolicy": "Retain"}),
                vec!["spec.nodeAffinity: Required value: Local volume requires node affinity"],
            ),
        ] {
            let found = lines(|errors| check_volume_spec(errors, "spec", &spec, false));
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn a_bound_claim_grows_and_changes_no_other_way() {
        let claim = |size: &str, class: &str| {
            json!({
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}}},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
            })
        };
        let check = |new: &Value, old: &Value| lines(|errors| check_claim_change(errors, new, old));
        assert_eq!(check(&claim("2Gi", "a"), &claim("1Gi", "a")), [""; 0]);
        assert_eq!(
            check(&claim("1Gi", "a"), &claim("2Gi", "a")),
            ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
        );
        let found = check(&claim("1Gi", "b"), &claim("1Gi", "a"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n@@ "), "{found:?}");
        assert!(
            found[0].contains("- \"StorageClassName\": \"a\",\n+ \"StorageClassName\": \"b\",\n"),
            "{found:?}"
        );
    }
}
