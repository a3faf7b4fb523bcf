//! What pods get: a priority, tolerations, and what their runtime class says.

use serde_json::{Value, json};

use super::{forbidden, priority_classes};
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::{PRIORITY_CLASSES, RUNTIME_CLASSES};
use crate::rules::metadata::same;
use crate::status::Refusal;

/// How long a pod stays on a node that is not ready, in seconds.
const TOLERATED: i64 = 300;

/// The class of those who name none; the lowest, if there should be more.
pub(super) fn default_priority(cluster: &Cluster) -> Option<Value> {
    let defaults = priority_classes(cluster).filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0))
}

pub(super) fn set_priority(cluster: &Cluster, call: &Call<'_>, pod: &mut Value) -> Result<(), Refusal> {
    let name = object::text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = match name.as_str() {
        "" => default_priority(cluster),
        name => match cluster.state.read(&PRIORITY_CLASSES, "", name) {
            Some(class) => Some(class),
            None => {
                return Err(forbidden(call, pod, format!("no PriorityClass with name {name} was found")));
            }
        },
    };
    let (name, priority, policy) = match &class {
        Some(class) => {
            let policy = class["preemptionPolicy"].as_str().map(str::to_owned);
            (object::name(class).to_owned(), class["value"].as_i64().unwrap_or(0), policy)
        }
        None => (String::new(), 0, Some("PreemptLowerPriority".to_owned())),
    };
    if let Some(said) = pod["spec"]["priority"].as_i64().filter(|said| *said != priority) {
        let why = format!(
            "the integer value of priority ({said}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, why));
    }
    let said = object::text(pod, &["spec", "preemptionPolicy"]);
    if let Some(policy) = &policy
        && !said.is_empty()
        && said != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, why));
    }
    let spec = &mut pod["spec"];
    if !name.is_empty() {
        spec["priorityClassName"] = name.into();
    }
    spec["priority"] = priority.into();
    if let Some(policy) = policy {
        spec["preemptionPolicy"] = policy.into();
    }
    Ok(())
}

/// An update that does not say the priority means the one there is.
pub(super) fn keep_priority(pod: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null()
            && let Some(known) = old["spec"].get(field)
        {
            pod["spec"][field] = known.clone();
        }
    }
}

pub(super) fn add_tolerations(pod: &mut Value) {
    let mut tolerations = object::list(pod, &["spec", "tolerations"]).to_vec();
    let count = tolerations.len();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_said = tolerations.iter().any(|toleration| {
            let text = |field: &str| object::text(toleration, &[field]);
            matches!(text("effect"), "" | "NoExecute") && (text("key").is_empty() || text("key") == key)
        });
        if !is_said {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATED,
            }));
        }
    }
    if tolerations.len() != count && pod["spec"].is_object() {
        pod["spec"]["tolerations"] = tolerations.into();
    }
}

pub(super) fn set_runtime_class(cluster: &Cluster, call: &Call<'_>, pod: &mut Value) -> Result<(), Refusal> {
    let class = match pod["spec"]["runtimeClassName"].as_str() {
        None => None,
        Some(name) => match cluster.state.read(&RUNTIME_CLASSES, "", name) {
            Some(class) => Some(class),
            None => {
                let why = format!("pod rejected: RuntimeClass {name:?} not found");
                return Err(forbidden(call, pod, why));
            }
        },
    };
    let class = class.unwrap_or_default();
    let (overhead, said) = (&class["overhead"], &pod["spec"]["overhead"]);
    let is_said = said.as_object().is_some_and(|said| !said.is_empty());
    if overhead.is_null() {
        if is_said {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden(call, pod, why));
        }
    } else {
        if is_said && !same(said, &overhead["podFixed"]) {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(forbidden(call, pod, why));
        }
        if overhead["podFixed"].is_object() {
            pod["spec"]["overhead"] = overhead["podFixed"].clone();
        }
    }
    if class["scheduling"].is_object() {
        merge_scheduling(call, pod, &class["scheduling"])?;
    }
    Ok(())
}

fn merge_scheduling(call: &Call<'_>, pod: &mut Value, scheduling: &Value) -> Result<(), Refusal> {
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(said) = pod["spec"]["nodeSelector"].get(key).filter(|said| *said != value) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(said)
            );
            return Err(forbidden(call, pod, why));
        }
        if !pod["spec"]["nodeSelector"].is_object() {
            pod["spec"]["nodeSelector"] = json!({});
        }
        pod["spec"]["nodeSelector"][key] = value.clone();
    }
    let own = object::list(pod, &["spec", "tolerations"]);
    let all: Vec<&Value> = own.iter().chain(object::list(scheduling, &["tolerations"])).collect();
    let merged = merge_tolerations(&all);
    if !merged.is_empty() {
        pod["spec"]["tolerations"] = merged.into();
    }
    Ok(())
}

/// All tolerations but those that another covers.
fn merge_tolerations(all: &[&Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_known = merged.iter().any(|other| covers(other, toleration));
        let mut later = all.iter().skip(index + 1);
        if !is_known && !later.any(|other| other != toleration && covers(other, toleration)) {
            merged.push((*toleration).clone());
        }
    }
    merged
}

fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |toleration: &'_ Value, field: &str| object::text(toleration, &[field]).to_owned();
    let is_any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !is_any_key {
        return false;
    }
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_i64();
    if effect == "NoExecute"
        && let Some(limit) = seconds(wide)
        && seconds(narrow).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "Exists" => true,
        "" | "Equal" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_that_others_cover_are_left_out() {
        let wide = json!({"key": "a", "operator": "Exists"});
        let narrow = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let other = json!({"key": "c", "operator": "Exists"});
        assert_eq!(merge_tolerations(&[&narrow, &other, &wide]), [other.clone(), wide.clone()]);
        assert_eq!(merge_tolerations(&[&wide, &narrow, &wide]), [wide]);
    }

    #[test]
    fn pods_outlive_a_node_that_is_not_ready_for_five_minutes() {
        let mut pod =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
        add_tolerations(&mut pod);
        add_tolerations(&mut pod);
        let keys: Vec<&str> = object::list(&pod, &["spec", "tolerations"])
            .iter()
            .map(|toleration| object::text(toleration, &["key"]))
            .collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    }
}
