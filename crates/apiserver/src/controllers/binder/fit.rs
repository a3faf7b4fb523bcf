//! Whether a pod fits a node, and what is against it.

use crablet_api::core::{Node, Pod};
use crablet_api::{Taint, TaintEffect};
use crablet_core::admission::{node_affinity, ports};

use super::usage::{NodeUse, amounts, requests};

/// Why a pod does not fit a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) reasons: Vec<String>,
    /// Whether it might if other pods left.
    pub(super) by_others: bool,
}

impl Misfit {
    pub(super) fn always(reason: &str) -> Misfit {
        Misfit { reasons: vec![reason.to_owned()], by_others: false }
    }

    pub(super) fn now(reason: &str) -> Misfit {
        Misfit { reasons: vec![reason.to_owned()], by_others: true }
    }
}

/// Looks at what does not depend on other objects than the pod, the node and its pods; the first thing that is against
/// it is the one that is told.
pub(super) fn check(pod: &Pod, node: &Node, used: Option<&NodeUse>) -> Result<(), Misfit> {
    let tolerates = |taint: &Taint| {
        let mut tolerations = pod.spec.tolerations.iter();
        tolerations.any(|toleration| toleration.tolerates(taint, true))
    };
    let cordoned = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: TaintEffect::NoSchedule,
        ..Taint::default()
    };
    if node.spec.unschedulable && !tolerates(&cordoned) {
        return Err(Misfit::always("node(s) were unschedulable"));
    }
    let keeps_off = |taint: &&Taint| matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
    if node.spec.taints.iter().filter(keeps_off).any(|taint| !tolerates(taint)) {
        return Err(Misfit::always("node(s) had untolerated taint(s)"));
    }
    if !node_affinity::matches(pod, node) {
        return Err(Misfit::always("node(s) didn't match Pod's node affinity/selector"));
    }
    let used_ports = used.map(|used| used.ports.as_slice()).unwrap_or_default();
    let mut wanted = ports::host_ports(pod);
    if wanted.any(|port| used_ports.iter().any(|used| ports::clash(port, used))) {
        return Err(Misfit::now("node(s) didn't have free ports for the requested pod ports"));
    }
    check_resources(pod, node, used)
}

fn check_resources(pod: &Pod, node: &Node, used: Option<&NodeUse>) -> Result<(), Misfit> {
    let allocatable = amounts(&node.status.allocatable);
    let of = |name: &str| allocatable.iter().find(|(own, _)| *own == *name).map_or(0, |(_, amount)| *amount);
    let mut misfit = Misfit { reasons: Vec::new(), by_others: true };
    if used.map_or(0, |used| used.pods) + 1 > of("pods") {
        misfit.reasons.push("Too many pods".to_owned());
    }
    for (name, wanted) in requests(pod).iter().filter(|(_, wanted)| *wanted > 0) {
        let taken = used.and_then(|used| used.requests.get(name)).copied().unwrap_or(0);
        if *wanted > of(name).saturating_sub(taken) {
            misfit.reasons.push(format!("Insufficient {name}"));
            misfit.by_others &= *wanted <= of(name);
        }
    }
    if misfit.reasons.is_empty() { Ok(()) } else { Err(misfit) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::usage::Usage;
    use super::*;
    use crate::resources::PODS;
    use crate::state::{Key, State};

    fn node(spec: Value, labels: Value) -> Node {
        let node = json!({
            "metadata": {"name": "n", "labels": labels},
            "spec": spec,
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/device": "1"}},
        });
        serde_json::from_value(node).unwrap()
    }

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn asks(requests: Value) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    }

    /// One CPU and one port are taken.
    fn usage() -> Usage {
        let mut state = State::default();
        let container = json!({
            "name": "c",
            "resources": {"requests": {"cpu": "1"}},
            "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}],
        });
        let spec = json!({"nodeName": "n", "containers": [container]});
        state.put(&PODS, json!({"metadata": {"name": "other", "namespace": "a"}, "spec": spec.clone()}));
        let done = json!({"metadata": {"name": "done", "namespace": "a"}, "spec": spec, "status": {"phase": "Succeeded"}});
        state.put(&PODS, done);
        let mut usage = Usage::default();
        usage.note(&Key::new(&PODS, "a", "other"));
        usage.note(&Key::new(&PODS, "a", "done"));
        usage.refresh(&state);
        usage
    }

    fn check_with(spec: Value, node: &Node) -> Result<(), (String, bool)> {
        let usage = usage();
        let checked = check(&pod(spec), node, usage.of("n"));
        checked.map_err(|misfit| (misfit.reasons.join(", "), misfit.by_others))
    }

    #[test]
    fn the_first_thing_that_is_against_it_is_told() {
        let plain = || node(json!({}), json!({"zone": "a"}));
        let misfit = |reasons: &str, by_others| Err((reasons.to_owned(), by_others));
        for (spec, expected) in [
            (asks(json!({})), Ok(())),
            (asks(json!({"cpu": "1", "memory": "1Gi"})), Ok(())),
            (asks(json!({"cpu": "1500m"})), misfit("Insufficient cpu", true)),
            (
                asks(json!({"cpu": "3", "memory": "2Gi"})),
                misfit("Insufficient cpu, Insufficient memory", false),
            ),
            (asks(json!({"example.com/device": "2"})), misfit("Insufficient example.com/device", false)),
            (asks(json!({"example.com/other": "1"})), misfit("Insufficient example.com/other", false)),
            (
                json!({"nodeSelector": {"zone": "b"}}),
                misfit("node(s) didn't match Pod's node affinity/selector", false),
            ),
            (json!({"nodeSelector": {"zone": "a"}}), Ok(())),
            (
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 8080}]}]}),
                misfit("node(s) didn't have free ports for the requested pod ports", true),
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 8080, "hostIP": "10.0.0.1"}]}]}),
                Ok(()),
            ),
            (json!({"overhead": {"cpu": "1100m"}}), misfit("Insufficient cpu", true)),
            (
                json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1100m"}}}]}),
                misfit("Insufficient cpu", true),
            ),
        ] {
            assert_eq!(check_with(spec.clone(), &plain()), expected, "{spec}");
        }
    }

    #[test]
    fn taints_keep_pods_off_that_do_not_tolerate_them() {
        let tainted =
            node(json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}), json!({}));
        let untolerated = Err(("node(s) had untolerated taint(s)".to_owned(), false));
        assert_eq!(check_with(json!({}), &tainted), untolerated);
        assert_eq!(
            check_with(json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), &tainted),
            Ok(())
        );
        let preferred = node(json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), json!({}));
        assert_eq!(check_with(json!({}), &preferred), Ok(()));
        let cordoned = node(json!({"unschedulable": true}), json!({}));
        assert_eq!(check_with(json!({}), &cordoned), Err(("node(s) were unschedulable".to_owned(), false)));
        assert_eq!(check_with(json!({"tolerations": [{"operator": "Exists"}]}), &cordoned), Ok(()));
    }
}
