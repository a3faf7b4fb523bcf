//! Which resizes may be granted at all on a node, and which is granted first where several wait. Whether there is room is
//! for [`admission`](crate::admission).

use std::cmp::Reverse;

use crablet_api::core::{Container, ContainerResizePolicy, Pod, ResourceResizeRestartPolicy};
use crablet_api::{FeatureGates, Gate, Text};
use jiff::Timestamp;

use super::{Resource, resizable};
use crate::qos::{Overhead, PodLevel, QosClass, pod_requests, qos_class, quantity};
use crate::restart::is_sidecar;
use crate::translate::{NodeContext, may_swap};

/// Which resources the node hands out one by one, so that they cannot change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exclusive {
    /// The CPU manager's policy is `static`.
    pub cpus: bool,
    /// The memory manager's policy is `Static`.
    pub memory: bool,
}

/// Why a resize can never be granted on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// What the condition says.
    pub message: Text,
    /// What it is counted under.
    pub detail: &'static str,
}

/// What speaks for ever against a resize, if something does.
pub fn infeasible(
    wanted: &Pod,
    allocated: &Pod,
    node: &NodeContext,
    exclusive: Exclusive,
) -> Option<Infeasible> {
    if changes_what_may_swap(wanted, allocated, node) {
        let message = "In-place resize of containers with swap is not supported.".into();
        return Some(Infeasible { message, detail: "swap_limitation" });
    }
    let refused = |manager: &str, policy: &str, detail| {
        let message = format!(
            "Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy \"{policy}\""
        );
        Some(Infeasible { message: message.into(), detail })
    };
    let requests_differ = |resource: Resource| {
        resizable(wanted, &node.features).any(|container| {
            let before = allocated.spec.find_container(&container.name);
            before.is_some_and(|before| {
                resource.of(&before.resources).request != resource.of(&container.resources).request
            })
        })
    };
    let is_exclusive = |is_static: bool, can_change: Gate, resource: Resource| {
        is_static && !node.features.enabled(can_change) && requests_differ(resource)
    };
    match qos_class(wanted, PodLevel::from(&node.features)) {
        QosClass::Guaranteed => {}
        QosClass::Burstable | QosClass::BestEffort => return None,
    }
    if is_exclusive(exclusive.cpus, Gate::InPlacePodVerticalScalingExclusiveCPUs, Resource::Cpu) {
        return refused("CPU", "static", "guaranteed_pod_cpu_manager_static_policy");
    }
    if is_exclusive(exclusive.memory, Gate::InPlacePodVerticalScalingExclusiveMemory, Resource::Memory) {
        return refused("Memory", "Static", "guaranteed_pod_memory_manager_static_policy");
    }
    None
}

/// How much a container may swap follows from the memory that it asks for.
fn changes_what_may_swap(wanted: &Pod, allocated: &Pod, node: &NodeContext) -> bool {
    let class = |pod: &Pod| qos_class(pod, PodLevel::from(&node.features));
    let may = |pod: &Pod, container: &Container| may_swap(pod, container, class(pod), node);
    let restarts = |policies: &[ContainerResizePolicy]| {
        let policy = policies.iter().find(|policy| *policy.resource_name == *Resource::Memory.name());
        policy.is_some_and(|policy| policy.restart_policy == ResourceResizeRestartPolicy::RestartContainer)
    };
    wanted.spec.init_and_regular_containers().any(|container| {
        allocated.spec.find_container(&container.name).is_some_and(|before| {
            let request = |container: &Container| Resource::Memory.of(&container.resources).request;
            request(before) != request(container)
                && !restarts(&before.resize_policy)
                && (may(wanted, container) || may(allocated, before))
        })
    })
}

/// What the node would have to declare for a pod to be changed like this, and does not: whoever changed it did not look.
pub fn undeclared(before: &Pod, now: &Pod, features: &FeatureGates) -> Vec<Gate> {
    if !features.enabled(Gate::NodeDeclaredFeatures) {
        return Vec::new();
    }
    let mut inits = before.spec.init_containers.iter().zip(&now.spec.init_containers);
    let needed = [
        (Gate::InPlacePodLevelResourcesVerticalScaling, before.spec.resources != now.spec.resources),
        (
            Gate::InPlacePodVerticalScalingInitContainers,
            inits.any(|(before, now)| !is_sidecar(before) && before.resources != now.resources),
        ),
    ];
    let needed = needed.into_iter().filter(|(gate, is_needed)| *is_needed && !features.enabled(*gate));
    needed.map(|(gate, _)| gate).collect()
}

/// Where a resize stands among those that wait: the least is granted first. What asks for no more than it has goes first,
/// then the more important pod, then a guaranteed one, then the one that waits for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    increases: bool,
    priority: Reverse<i32>,
    is_not_guaranteed: bool,
    /// Who was not told to wait yet comes after those that were.
    is_new: bool,
    since: Option<Timestamp>,
}

impl Turn {
    /// That of a pod that asks for something else than it has, and was told to wait at some time, if it was.
    pub fn of(wanted: &Pod, allocated: &Pod, pod_level: PodLevel, since: Option<Timestamp>) -> Turn {
        let requests = |pod: &Pod| pod_requests(pod, pod_level, Overhead::Included);
        let (before, after) = (requests(allocated), requests(wanted));
        Turn {
            increases: ["memory", "cpu"].iter().any(|name| quantity(&after, name) > quantity(&before, name)),
            priority: Reverse(wanted.spec.priority.unwrap_or_default()),
            is_not_guaranteed: qos_class(wanted, pod_level) != QosClass::Guaranteed,
            is_new: since.is_none(),
            since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::SwapBehavior;
    use crablet_api::testing::pod_yaml;

    fn pod(resources: &str, more: &str) -> Pod {
        pod_yaml(&format!("spec: {{containers: [{{name: c, resources: {resources}{more}}}]}}"))
    }

    fn guaranteed(cpu: &str, memory: &str) -> Pod {
        let all = format!("{{cpu: {cpu}, memory: {memory}}}");
        pod(&format!("{{requests: {all}, limits: {all}}}"), "")
    }

    #[test]
    fn what_managers_hand_out_one_by_one_does_not_change() {
        let mut node = NodeContext::default();
        let why = |node: &NodeContext, wanted: &Pod, exclusive: Exclusive| {
            infeasible(wanted, &guaranteed("1", "1Gi"), node, exclusive).map(|why| why.message.to_string())
        };
        let (cpus, memory) =
            (Exclusive { cpus: true, memory: false }, Exclusive { cpus: false, memory: true });
        let (more_cpu, more_memory) = (guaranteed("2", "1Gi"), guaranteed("1", "2Gi"));
        let cpu_message =
            r#"Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static""#.to_owned();
        let memory_message =
            r#"Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static""#.to_owned();
        assert_eq!(why(&node, &more_cpu, Exclusive::default()), None);
        assert_eq!(why(&node, &more_cpu, cpus), Some(cpu_message));
        assert_eq!(why(&node, &more_memory, cpus), None);
        assert_eq!(why(&node, &more_memory, memory), Some(memory_message));
        assert_eq!(why(&node, &more_cpu, memory), None);
        assert_eq!(why(&node, &pod("{requests: {cpu: 2}}", ""), cpus), None);
        node.features = FeatureGates::default()
            .with(Gate::InPlacePodVerticalScalingExclusiveCPUs, true)
            .with(Gate::InPlacePodVerticalScalingExclusiveMemory, true);
        assert_eq!(why(&node, &more_cpu, cpus), None);
        assert_eq!(why(&node, &more_memory, memory), None);
    }

    #[test]
    fn memory_of_a_container_that_may_swap_changes_only_with_a_restart() {
        let of = |request: &str, limit: &str, more: &str| {
            pod(&format!("{{requests: {{cpu: 1, memory: {request}}}, limits: {{memory: {limit}}}}}"), more)
        };
        let mut node = NodeContext::default();
        (node.facts.swap_controller, node.facts.cgroup_v2) = (true, true);
        node.settings.swap = SwapBehavior::LimitedSwap;
        let check = |node: &NodeContext, before: &Pod, wanted: &Pod, expected: bool| {
            let why = infeasible(wanted, before, node, Exclusive::default());
            let message = "In-place resize of containers with swap is not supported.";
            let found = why.as_ref().map(|why| (&*why.message, why.detail));
            assert_eq!(found, expected.then_some((message, "swap_limitation")), "{before:?} to {wanted:?}");
        };
        let before = of("1Gi", "2Gi", "");
        check(&node, &before, &of("1.5Gi", "2Gi", ""), true);
        // How much it may swap follows from the request alone.
        check(&node, &before, &of("1Gi", "3Gi", ""), false);
        // As much as it may use at most: it swaps before or after.
        check(&node, &before, &of("2Gi", "2Gi", ""), true);
        check(&node, &of("2Gi", "2Gi", ""), &before, true);
        check(&node, &of("2Gi", "2Gi", ""), &of("3Gi", "3Gi", ""), false);
        let policy = |resource: &str, policy: &str| {
            format!(", resizePolicy: [{{resourceName: {resource}, restartPolicy: {policy}}}]")
        };
        for (policy, expected) in [
            (policy("memory", "RestartContainer"), false),
            (policy("memory", "NotRequired"), true),
            (policy("cpu", "RestartContainer"), true),
        ] {
            check(&node, &of("1Gi", "2Gi", &policy), &of("1.5Gi", "2Gi", &policy), expected);
        }
        node.settings.swap = SwapBehavior::NoSwap;
        check(&node, &before, &of("1.5Gi", "2Gi", ""), false);
    }

    #[test]
    fn a_change_that_the_node_does_not_declare_is_told() {
        let pod = |memory: &str| {
            let resources = format!("resources: {{requests: {{memory: {memory}}}}}");
            pod_yaml(&format!(
                "spec: {{{resources}, initContainers: [{{name: i, {resources}}}], containers: [{{name: c, {resources}}}]}}"
            ))
        };
        let (whole, inits) =
            (Gate::InPlacePodLevelResourcesVerticalScaling, Gate::InPlacePodVerticalScalingInitContainers);
        let off = FeatureGates::default().with(inits, false);
        assert_eq!(undeclared(&pod("1Gi"), &pod("2Gi"), &FeatureGates::default()), []);
        assert_eq!(undeclared(&pod("1Gi"), &pod("2Gi"), &off), [inits]);
        let off = off.with(whole, false);
        assert_eq!(undeclared(&pod("1Gi"), &pod("2Gi"), &off), [whole, inits]);
        assert_eq!(undeclared(&pod("1Gi"), &pod("1Gi"), &off), []);
        let off = off.with(Gate::NodeDeclaredFeatures, false);
        assert_eq!(undeclared(&pod("1Gi"), &pod("2Gi"), &off), []);
    }

    #[test]
    fn what_grows_waits_for_what_shrinks_then_priority_class_and_time_count() {
        let turn = |wanted: &Pod, since: Option<i64>| {
            let since = since.map(|second| Timestamp::from_second(second).expect("a time"));
            Turn::of(wanted, &guaranteed("2", "2Gi"), PodLevel::Counted, since)
        };
        let important = |mut pod: Pod| {
            pod.spec.priority = Some(7);
            pod
        };
        let burstable = pod("{requests: {cpu: 3}}", "");
        let in_order = [
            turn(&guaranteed("1", "1Gi"), None),
            turn(&important(guaranteed("3", "1Gi")), None),
            turn(&guaranteed("1", "3Gi"), Some(1)),
            turn(&guaranteed("3", "1Gi"), Some(2)),
            turn(&guaranteed("3", "1Gi"), None),
            turn(&burstable, Some(1)),
            turn(&burstable, None),
        ];
        assert!(in_order.is_sorted());
    }
}
