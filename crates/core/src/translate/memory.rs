//! Swap, and the quality of memory that version 2 of control groups can give.

use crablet_api::Gate;
use crablet_api::core::{Container, Pod};
use crablet_cri_api::v1;

use super::node::{MemoryReservation, NodeContext, SwapBehavior};
use crate::qos::{QosClass, is_critical, quantity};

/// Lets a container swap no more than it may.
pub(super) fn limit_swap(
    resources: &mut v1::LinuxContainerResources,
    pod: &Pod,
    container: &Container,
    class: QosClass,
    node: &NodeContext,
) {
    if !node.facts.swap_controller {
        return;
    }
    if !node.facts.cgroup_v2 {
        // Version 1 limits memory and swap together: nothing beyond the memory is left for swap.
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        return;
    }
    let swap = if may_swap(pod, container, class, node) { swap_share(container, node) } else { 0 };
    resources.unified.insert("memory.swap.max".to_owned(), swap.to_string());
}

/// Whether a container may swap at all: only where it may use more memory than it asks for.
pub fn may_swap(pod: &Pod, container: &Container, class: QosClass, node: &NodeContext) -> bool {
    let request = quantity(&container.resources.requests, "memory");
    let limit = quantity(&container.resources.limits, "memory");
    let configured = match node.settings.swap {
        SwapBehavior::NoSwap => false,
        SwapBehavior::LimitedSwap => {
            node.features.enabled(Gate::NodeSwap) && node.facts.swap_controller && node.facts.cgroup_v2
        }
    };
    configured && !is_critical(pod) && class == QosClass::Burstable && request != limit
}

/// The share of the node's swap that a container has of the node's memory.
fn swap_share(container: &Container, node: &NodeContext) -> i64 {
    let request = quantity(&container.resources.requests, "memory").value();
    let capacity = node.facts.memory_capacity;
    if capacity <= 0 || request > capacity {
        return 0;
    }
    (request as f64 / capacity as f64 * node.facts.swap_capacity as f64) as i64
}

/// Protects the memory that a container asks for, and slows it down before it comes to its limit.
pub(super) fn add_memory_qos(
    resources: &mut v1::LinuxContainerResources,
    container: &Container,
    class: QosClass,
    node: &NodeContext,
) {
    if !(node.features.enabled(Gate::MemoryQoS) && node.facts.cgroup_v2) {
        return;
    }
    let request = quantity(&container.resources.requests, "memory").value();
    let limit = quantity(&container.resources.limits, "memory").value();
    let mut set = |name: &str, bytes: i64| resources.unified.insert(name.to_owned(), bytes.to_string());
    match node.settings.memory_reservation {
        MemoryReservation::Tiered if request != 0 => match class {
            QosClass::Guaranteed => set("memory.min", request),
            QosClass::Burstable | QosClass::BestEffort => set("memory.low", request),
        },
        MemoryReservation::Tiered | MemoryReservation::None => {
            set("memory.min", 0);
            set("memory.low", 0)
        }
    };
    if request == limit {
        return;
    }
    let most = match limit {
        0 => node.facts.enforced_memory.max(0),
        limit => limit,
    };
    if most > 0 {
        let page = node.facts.page_size.max(1);
        let high = request as f64 + (most as f64 - request as f64) * node.settings.memory_throttling_factor;
        let high = (high.floor() / page as f64) as i64 * page;
        if high > request {
            set("memory.high", high);
        }
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::core::ResourceList;
    use crablet_api::testing::pod_yaml;

    use super::*;
    use crate::translate::resources::container_resources;
    use crate::translate::testing::node;

    const GIBIBYTE: i64 = 1 << 30;

    fn made(metadata: &str, resources: &str, node: &NodeContext) -> v1::LinuxContainerResources {
        let pod = pod_yaml(&format!(
            "metadata: {{name: p, {metadata}}}\nspec: {{containers: [{{name: c, resources: {resources}}}]}}"
        ));
        container_resources(&pod, &pod.spec.containers[0], node, false)
    }

    fn unified(resources: &str, node: &NodeContext) -> String {
        let made = made("", resources, node);
        made.unified.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    fn version_two() -> NodeContext {
        let mut node = node();
        node.facts.cgroup_v2 = true;
        node.facts.memory_capacity = 4 * GIBIBYTE;
        node.facts.swap_capacity = 2 * GIBIBYTE;
        node.settings.single_process_oom_kill = true;
        node
    }

    #[test]
    fn version_one_leaves_no_swap_beyond_the_memory() {
        let mut node = node();
        assert_eq!(made("", "{limits: {memory: 1Gi}}", &node).memory_swap_limit_in_bytes, 0);
        node.facts.swap_controller = true;
        node.settings.swap = SwapBehavior::LimitedSwap;
        let resources = made("", "{limits: {memory: 1Gi}}", &node);
        assert_eq!(resources.memory_swap_limit_in_bytes, GIBIBYTE);
        assert!(resources.unified.is_empty());
    }

    #[test]
    fn on_version_two_burstable_containers_get_their_share_of_swap() {
        let mut node = version_two();
        let burstable = "{requests: {memory: 1Gi}}";
        assert_eq!(unified(burstable, &node), "");
        node.facts.swap_controller = true;
        assert_eq!(unified(burstable, &node), "memory.swap.max=0");
        node.settings.swap = SwapBehavior::LimitedSwap;
        assert_eq!(unified(burstable, &node), "memory.swap.max=536870912");
        for resources in [
            "{}",
            "{requests: {cpu: 1}}",
            "{limits: {memory: 1Gi}, requests: {memory: 1Gi}}",
            "{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}",
            "{requests: {memory: 8Gi}}",
            "{requests: {memory: 4294967297}}",
        ] {
            assert_eq!(unified(resources, &node), "memory.swap.max=0", "{resources}");
        }
        assert_eq!(unified("{requests: {memory: 4Gi}}", &node), "memory.swap.max=2147483648");
        let critical = made("annotations: {kubernetes.io/config.source: file}", burstable, &node);
        assert_eq!(critical.unified["memory.swap.max"], "0");
        node.features = node.features.with(Gate::NodeSwap, false);
        assert_eq!(unified(burstable, &node), "memory.swap.max=0");
    }

    #[test]
    fn memory_is_protected_and_throttled_where_the_feature_is_on() {
        let mut node = version_two();
        node.facts.page_size = 4096;
        node.facts.enforced_memory = 2 * GIBIBYTE;
        node.facts.allocatable = ResourceList::from_iter([("memory", "1Gi".parse().unwrap())]);
        assert_eq!(unified("{requests: {memory: 1Gi}}", &node), "");
        node.features = node.features.with(Gate::MemoryQoS, true);
        // Between 1 and 2 GiB, nine tenths of the way, down to a whole page.
        let high = GIBIBYTE + GIBIBYTE / 10 * 9 / 4096 * 4096;
        assert_eq!(
            unified("{requests: {memory: 1Gi}}", &node),
            format!("memory.high={high} memory.low=0 memory.min=0")
        );
        assert_eq!(
            unified("{limits: {memory: 2Gi}, requests: {memory: 1Gi}}", &node),
            format!("memory.high={high} memory.low=0 memory.min=0")
        );
        assert_eq!(unified("{}", &node), "memory.low=0 memory.min=0");
        node.settings.memory_reservation = MemoryReservation::Tiered;
        assert_eq!(
            unified("{requests: {memory: 1Gi}}", &node),
            format!("memory.high={high} memory.low=1073741824")
        );
        assert_eq!(
            unified("{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}", &node),
            "memory.min=1073741824"
        );
        assert_eq!(unified("{}", &node), "memory.low=0 memory.min=0");
        node.facts.cgroup_v2 = false;
        assert_eq!(unified("{requests: {memory: 1Gi}}", &node), "");
    }

    #[test]
    fn the_throttle_is_at_a_whole_page_above_what_is_asked_for() {
        let mut node = version_two();
        node.facts.enforced_memory = 0;
        node.features = node.features.with(Gate::MemoryQoS, true);
        let near = "{limits: {memory: 1000}, requests: {memory: 0}}";
        let far = "{limits: {memory: 100000}, requests: {memory: 0}}";
        for (page_size, resources, expected) in [
            (4096, near, None),
            (100, near, Some("900")),
            (100, "{limits: {memory: 1000}, requests: {memory: 890}}", Some("900")),
            (100, "{limits: {memory: 1000}, requests: {memory: 900}}", None),
            (4096, far, Some("86016")),
            (16384, far, Some("81920")),
            (4096, "{requests: {memory: 1000}}", None),
        ] {
            node.facts.page_size = page_size;
            let made = made("", resources, &node);
            let high = made.unified.get("memory.high").map(String::as_str);
            assert_eq!(high, expected, "{resources} in pages of {page_size}");
        }
    }
}
