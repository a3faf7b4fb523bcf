//! Who dies first when the node runs out of memory.

use crablet_api::core::{Container, Pod};

use crate::qos::{self, PodLevel, QosClass, quantity};
use crate::restart::is_sidecar;

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;

/// By how much a container's chance to be killed is raised when memory runs out. A container of a burstable pod that
/// asks for a tenth of the node's memory gets 900, so that it comes to 1000 when it uses more than it asked for.
pub(super) fn oom_score_adj(
    pod: &Pod,
    container: &Container,
    class: QosClass,
    memory_capacity: i64,
    pod_level: PodLevel,
) -> i64 {
    if qos::is_node_critical(pod) {
        return GUARANTEED;
    }
    match class {
        QosClass::Guaranteed => GUARANTEED,
        QosClass::BestEffort => BEST_EFFORT,
        QosClass::Burstable => {
            let share = match pod_level {
                PodLevel::Counted => unclaimed_share(pod),
                PodLevel::Ignored => 0,
            };
            let capacity = memory_capacity.max(1);
            let score = |request: i64| {
                let bytes = i128::from(request) + i128::from(share);
                1000 - (1000 * bytes / i128::from(capacity)).clamp(-1_000_000, 1_000_000) as i64
            };
            let mut adjust = score(memory_request(container));
            // A sidecar must not die before what it serves. (For a regular container this changes nothing.)
            if is_sidecar(container)
                && let Some(least) = pod.spec.containers.iter().map(memory_request).min()
            {
                adjust = adjust.min(score(least));
            }
            // Above any guaranteed pod, and below any that asks for nothing.
            match adjust {
                BEST_EFFORT => BEST_EFFORT - 1,
                other => other.max(1000 + GUARANTEED),
            }
        }
    }
}

/// What the pod as a whole asks for beyond its containers, divided among them.
fn unclaimed_share(pod: &Pod) -> i64 {
    let Some(resources) = &pod.spec.resources else { return 0 };
    let whole = quantity(&resources.requests, "memory").value();
    let containers = (pod.spec.containers.len() + pod.spec.init_containers.len()).max(1);
    match whole {
        0 => 0,
        whole => {
            let claimed = quantity(&qos::aggregated_requests(pod), "memory").value();
            whole.saturating_sub(claimed) / i64::try_from(containers).unwrap_or(i64::MAX)
        }
    }
}

fn memory_request(container: &Container) -> i64 {
    container.resources.requests.get("memory").map_or(0, crablet_api::Quantity::value)
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    const GIBIBYTE: i64 = 1 << 30;

    fn scores(spec: &str) -> Vec<i64> {
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"));
        let class = qos::qos_class(&pod, PodLevel::Counted);
        pod.spec
            .init_and_regular_containers()
            .map(|container| oom_score_adj(&pod, container, class, 4 * GIBIBYTE, PodLevel::Counted))
            .collect()
    }

    fn one(resources: &str) -> i64 {
        scores(&format!("{{containers: [{{name: c, resources: {resources}}}]}}"))[0]
    }

    #[test]
    fn the_less_a_container_asked_for_the_sooner_it_dies() {
        assert_eq!(one("{}"), 1000);
        assert_eq!(one("{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}"), -997);
        assert_eq!(one("{requests: {cpu: 1}}"), 999);
        assert_eq!(one("{requests: {memory: 1Gi}}"), 750);
        assert_eq!(one("{requests: {memory: 4Mi}}"), 999, "a thousandth of the node");
        assert_eq!(one("{requests: {memory: 4Gi}}"), 3);
        assert_eq!(one("{requests: {memory: 8Gi}}"), 3);
    }

    #[test]
    fn what_the_node_needs_dies_last() {
        assert_eq!(
            scores(
                "{priority: 2000001000, priorityClassName: system-node-critical, containers: [{name: c}, {name: d}]}"
            ),
            [-997, -997]
        );
    }

    #[test]
    fn a_sidecar_does_not_die_before_what_it_serves() {
        let spec = |sidecar: &str| {
            format!(
                "{{initContainers: [{{name: s, restartPolicy: Always, resources: {{requests: {{memory: {sidecar}}}}}}}],
                  containers: [{{name: a, resources: {{requests: {{memory: 2Gi}}}}}},
                               {{name: b, resources: {{requests: {{memory: 1Gi}}}}}}]}}"
            )
        };
        assert_eq!(scores(&spec("1Mi")), [750, 500, 750]);
        assert_eq!(scores(&spec("3Gi")), [250, 500, 750]);
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_is_divided() {
        assert_eq!(
            scores(
                "{resources: {requests: {memory: 3Gi}},
                  containers: [{name: a, resources: {requests: {memory: 1Gi}}}, {name: b}]}"
            ),
            [500, 750]
        );
        let no_memory = "{resources: {requests: {cpu: 1}},
            containers: [{name: a, resources: {requests: {memory: 1Gi}}}, {name: b}]}";
        assert_eq!(scores(no_memory), [750, 999]);
        let with_init = "{resources: {requests: {memory: 3Gi}}, initContainers: [{name: i}],
            containers: [{name: a, resources: {requests: {memory: 1Gi}}}]}";
        assert_eq!(scores(with_init), [750, 500]);
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {with_init}"));
        let container = &pod.spec.containers[0];
        let ignored = oom_score_adj(&pod, container, QosClass::Burstable, 4 * GIBIBYTE, PodLevel::Ignored);
        assert_eq!(ignored, 750);
    }

    #[test]
    fn a_regular_container_that_always_restarts_is_no_sidecar() {
        let spec = "{containers: [{name: a, restartPolicy: Always, resources: {requests: {memory: 1Gi}}},
            {name: b, resources: {requests: {memory: 2Gi}}}]}";
        assert_eq!(scores(spec), [750, 500]);
    }
}
