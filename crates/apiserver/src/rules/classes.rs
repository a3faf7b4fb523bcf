//! Runtime classes and priority classes.

use crablet_api::core::{ResourceList, Toleration};
use crablet_api::dns1123_label_errors;
use crablet_api::validate::{self, Errors};
use serde::Deserialize as _;
use serde_json::Value;

use super::checks::{check_name, check_word};
use super::metadata::{self, check_immutable, check_labels, entries};
use super::pods::{deprecated_label, features};
use super::{Context, Rules, Update, diff};
use crate::object;
use crate::resources::Subresource;

pub struct RuntimeClasses;
pub struct PriorityClasses;

const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
const SYSTEM_PREFIX: &str = "system-";
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
/// Those that every cluster has.
pub(crate) const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

impl Rules for RuntimeClasses {
    fn validate_create(&self, errors: &mut Errors, class: &Value, _context: &Context<'_>) {
        check_name(errors, "handler", object::text(class, &["handler"]), dns1123_label_errors);
        if let Ok(overhead) = ResourceList::deserialize(&class["overhead"]["podFixed"]) {
            validate::validate_overhead(errors, "overhead", &overhead);
        }
        check_labels(errors, "scheduling.nodeSelector", &class["scheduling"]["nodeSelector"]);
        check_tolerations(errors, &class["scheduling"]);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        check_immutable(errors, "handler", &new["handler"], &old["handler"]);
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        let keys = entries(&new["scheduling"]["nodeSelector"]).filter_map(|(key, _)| deprecated_label(key));
        keys.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check_tolerations(errors: &mut Errors, scheduling: &Value) {
    let path = "scheduling.tolerations";
    let tolerations = object::list(scheduling, &["tolerations"]);
    let typed: Vec<Toleration> =
        tolerations.iter().filter_map(|toleration| Toleration::deserialize(toleration).ok()).collect();
    validate::validate_tolerations(errors, path, &typed, &features());
    let is_same = |one: &Value, other: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| one[*field] == other[*field])
    };
    for (index, toleration) in tolerations.iter().enumerate() {
        if tolerations.iter().take(index).any(|other| is_same(other, toleration)) {
            errors.duplicate(format_args!("{path}[{index}]"), diff::shown("Toleration", toleration));
        }
    }
}

impl Rules for PriorityClasses {
    fn default(&self, class: &mut Value, _part: Option<Subresource>) {
        object::fill(class, "preemptionPolicy", PREEMPTION_POLICIES[0]);
    }

    fn validate_create(&self, errors: &mut Errors, class: &Value, _context: &Context<'_>) {
        let (name, value) = (object::name(class), class["value"].as_i64().unwrap_or(0));
        if name.starts_with(SYSTEM_PREFIX) {
            if let Some(why) = unlike_system_class(name, value, class["globalDefault"] == true) {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                );
                errors.forbidden("metadata.name", detail);
            }
        } else if value > HIGHEST_USER_PRIORITY {
            let detail =
                format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.forbidden("value", detail);
        }
        match object::text(class, &["preemptionPolicy"]) {
            "" => errors.required("preemptionPolicy", ""),
            policy => check_word(errors, "preemptionPolicy", policy, &PREEMPTION_POLICIES),
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        let value = |class: &Value| class["value"].as_i64().unwrap_or(0);
        if value(new) != value(old) {
            errors.forbidden("value", "may not be changed in an update.");
        }
        check_immutable(errors, "preemptionPolicy", &new["preemptionPolicy"], &old["preemptionPolicy"]);
    }

    fn has_generation(&self) -> bool {
        true
    }

    /// It never counts on.
    fn generation_parts<'o>(&self, object: &'o Value) -> &'o Value {
        &object["kind"]
    }
}

fn unlike_system_class(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, wanted)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *wanted != value {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
