//! Whether the node of a pod can do what a change of it asks.

use std::collections::BTreeMap;

use crablet_api::Quantity;
use serde_json::{Value, json};

use super::forbidden;
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::{NODES, Subresource};
use crate::rules::metadata::same;
use crate::rules::pods::quantity;
use crate::status::Refusal;

pub(super) fn check(
    cluster: &Cluster,
    call: &Call<'_>,
    pod: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let name = object::text(pod, &["spec", "nodeName"]);
    let Some(old) = old.filter(|old| !name.is_empty() && !same(&pod["spec"], &old["spec"])) else {
        return Ok(());
    };
    let is_resize = call.target.subresource == Some(Subresource::Resize);
    let needed = needed_features(&pod["spec"], &old["spec"]);
    if needed.is_empty() && !is_resize {
        return Ok(());
    }
    let Some(node) = cluster.state.read(&NODES, "", name) else {
        return Err(forbidden(call, pod, format!("node {name:?} not found")));
    };
    let declared = object::list(&node, &["status", "declaredFeatures"]);
    let missing: Vec<&str> =
        needed.into_iter().filter(|needed| !declared.iter().any(|feature| feature == needed)).collect();
    if !missing.is_empty() {
        let why = format!(
            "pod update requires features {} which are not available on node {name:?}",
            missing.join(", ")
        );
        return Err(forbidden(call, pod, why));
    }
    if !is_resize {
        return Ok(());
    }
    let system = object::text(&node, &["metadata", "labels", "kubernetes.io/os"]);
    if !matches!(system, "" | "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Err(because(forbidden(call, pod, why), "UnsupportedPlatform"));
    }
    match excess(&pod["spec"], &node["status"]["allocatable"]) {
        Some(why) => Err(because(forbidden(call, pod, why), "NodeCapacity")),
        None => Ok(()),
    }
}

fn because(mut refusal: Refusal, reason: &str) -> Refusal {
    if let Some(details) = &mut refusal.details {
        details["causes"] = json!([{"reason": reason}]);
    }
    refusal
}

/// What a node must say that it can, for it to follow a change.
fn needed_features(new: &Value, old: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if !same(&new["resources"], &old["resources"]) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let (containers, known) =
        (object::list(new, &["initContainers"]), object::list(old, &["initContainers"]));
    let mut pairs = containers.iter().zip(known).filter(|(_, known)| known["restartPolicy"] != "Always");
    if pairs.any(|(container, known)| !same(&container["resources"], &known["resources"])) {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    needed.sort_unstable();
    needed
}

/// How a pod would not fit on an empty node.
fn excess(spec: &Value, allocatable: &Value) -> Option<String> {
    let requests = requests(spec);
    let of = |name: &str| {
        let request = requests.get(name).cloned().unwrap_or_default();
        (request, quantity(&allocatable[name]).unwrap_or_default())
    };
    let mut reasons = Vec::new();
    let (wanted, found) = of("cpu");
    if wanted > found {
        let (wanted, found) = (wanted.milli_value(), found.milli_value());
        reasons.push(format!("cpu, requested: {wanted}, allocatable: {found}"));
    }
    let (wanted, found) = of("memory");
    if wanted > found {
        let (wanted, found) = (wanted.value(), found.value());
        reasons.push(format!("memory, requested: {wanted}, allocatable: {found}"));
    }
    (!reasons.is_empty())
        .then(|| format!("node didn't have enough allocatable resources: {}", reasons.join("; ")))
}

/// What a pod asks for in all: its containers together, or the largest of those that run before them.
fn requests(spec: &Value) -> BTreeMap<&'static str, Quantity> {
    let mut all = BTreeMap::new();
    for name in ["cpu", "memory"] {
        let of = |holder: &Value| quantity(&holder["resources"]["requests"][name]).unwrap_or_default();
        let mut running = Quantity::default();
        let mut most = Quantity::default();
        for container in object::list(spec, &["initContainers"]) {
            if container["restartPolicy"] == "Always" {
                running += &of(container);
                most = most.max(running.clone());
            } else {
                most = most.max(of(container) + &running);
            }
        }
        for container in object::list(spec, &["containers"]) {
            running += &of(container);
        }
        let mut total = most.max(running);
        if let Some(amount) = quantity(&spec["resources"]["requests"][name]) {
            total = amount;
        }
        if let Some(overhead) = quantity(&spec["overhead"][name]) {
            total += &overhead;
        }
        all.insert(name, total);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_would_never_fit_is_not_resized_so() {
        let spec =
            |cpu: &str| json!({"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]});
        let node = json!({"cpu": "2", "memory": "4Gi"});
        assert_eq!(excess(&spec("2"), &node), None);
        assert_eq!(
            excess(&spec("2100m"), &node).as_deref(),
            Some("node didn't have enough allocatable resources: cpu, requested: 2100, allocatable: 2000")
        );
    }

    #[test]
    fn containers_that_run_before_the_others_do_not_add_up() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({"initContainers": [container("3"), sidecar, container("3")], "containers": [container("1")]});
        assert_eq!(requests(&spec)["cpu"], "4".parse().unwrap());
    }
}
