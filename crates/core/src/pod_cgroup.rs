//! A pod's own cgroup, and what it allows.

use std::collections::BTreeMap;

use crablet_api::core::{Container, ContainerRestartPolicy, Pod};
use crablet_api::resource_names::huge_page_size;
use crablet_cgroup_names::{NameError, PodCgroup};

use crate::qos::{Overhead, PodLevel, QosClass, pod_limits, pod_requests, qos_class, quantity};
use crate::translate::{cpu_quota, cpu_shares};

/// What a pod may use as a whole. What is absent is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodResources {
    pub cpu_shares: u64,
    /// How long it may run in each period, in microseconds: 0 for as long as it likes.
    pub cpu_quota: Option<i64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of huge pages, by the size of a page in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// The cgroup of a pod.
pub fn pod_cgroup(pod: &Pod, pod_level: PodLevel) -> Result<PodCgroup, NameError> {
    PodCgroup::new(qos_class(pod, pod_level), &pod.metadata.uid)
}

/// What a pod's own cgroup allows: the sum of what its containers may use, where all of them have a limit.
pub fn pod_resources(pod: &Pod, pod_level: PodLevel, enforce_cpu: bool, cpu_period: i64) -> PodResources {
    let requests = pod_requests(pod, pod_level, Overhead::Included);
    let limits = pod_limits(pod, pod_level, Overhead::Included);
    let limit_of = |name: &str| {
        let whole = pod.spec.resources.as_deref().filter(|_| pod_level == PodLevel::Counted);
        let is_declared =
            whole.is_some_and(|whole| !quantity(&whole.limits, name).is_zero()) || all_are_limited(pod, name);
        is_declared.then(|| quantity(&limits, name))
    };
    let quota = |milli: i64| if enforce_cpu { cpu_quota(milli, cpu_period) } else { -1 };
    let shares = cpu_shares(quantity(&requests, "cpu").milli_value());
    let huge_pages = huge_pages(&requests);
    match qos_class(pod, pod_level) {
        QosClass::Guaranteed | QosClass::Burstable => PodResources {
            cpu_shares: shares.unsigned_abs(),
            cpu_quota: limit_of("cpu").map(|limit| quota(limit.milli_value())),
            memory: limit_of("memory").map(|limit| limit.value().unsigned_abs()),
            huge_pages,
        },
        QosClass::BestEffort => {
            PodResources { cpu_shares: cpu_shares(0).unsigned_abs(), huge_pages, ..PodResources::default() }
        }
    }
}

/// Whether all containers of a pod have a limit. As upstream reads it, an init container has that of the sidecars which run
/// beside it too.
fn all_are_limited(pod: &Pod, name: &str) -> bool {
    let limit = |container: &Container| quantity(&container.resources.limits, name);
    let mut sidecars_are_limited = false;
    pod.spec.containers.iter().all(|container| !limit(container).is_zero())
        && pod.spec.init_containers.iter().all(|container| {
            let is_limited = !limit(container).is_zero();
            sidecars_are_limited |=
                is_limited && container.restart_policy == Some(ContainerRestartPolicy::Always);
            is_limited || sidecars_are_limited
        })
}

/// How the memory that a pod asks for is protected where that is wanted: the file of its cgroup that says so, and the
/// bytes. That of a guaranteed pod is never taken from it, that of another not while there is any else.
pub fn protected_memory(pod: &Pod, pod_level: PodLevel) -> Option<(&'static str, u64)> {
    let request = quantity(&pod_requests(pod, pod_level, Overhead::Included), "memory").value();
    let file = match qos_class(pod, pod_level) {
        QosClass::Guaranteed => "memory.min",
        QosClass::Burstable | QosClass::BestEffort => "memory.low",
    };
    u64::try_from(request).ok().filter(|bytes| *bytes > 0).map(|bytes| (file, bytes))
}

/// Bytes of huge pages, by the size of a page in bytes.
pub(crate) fn huge_pages(requests: &crablet_api::core::ResourceList) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for (name, amount) in requests.iter() {
        let size = huge_page_size(name).and_then(|size| size.parse::<crablet_api::Quantity>().ok());
        if let Some(size) = size {
            *pages.entry(size.value().unsigned_abs()).or_insert(0) += amount.value().unsigned_abs();
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    fn check(containers: &str, expected: (u64, Option<i64>, Option<u64>)) {
        let pod = pod_yaml(&format!("spec: {{containers: [{containers}]}}"));
        let found = pod_resources(&pod, PodLevel::Counted, true, 100_000);
        assert_eq!((found.cpu_shares, found.cpu_quota, found.memory), expected, "{containers}");
    }

    #[test]
    fn a_pod_may_use_what_its_containers_may_use_where_all_have_a_limit() {
        check("{name: a}", (2, None, None));
        let limited =
            "{name: a, resources: {limits: {cpu: 500m, memory: 10Mi}, requests: {cpu: 500m, memory: 10Mi}}}";
        check(limited, (512, Some(50_000), Some(10 << 20)));
        let burstable = "{name: a, resources: {limits: {memory: 10Mi}, requests: {cpu: 250m}}}";
        check(burstable, (256, None, Some(10 << 20)));
        check(&format!("{limited}, {{name: b}}"), (512, None, None));
    }

    #[test]
    fn the_memory_that_a_pod_asks_for_is_protected_by_its_class() {
        for (resources, expected) in [
            (
                "{limits: {cpu: 1, memory: 1Mi}, requests: {cpu: 1, memory: 1Mi}}",
                Some(("memory.min", 1 << 20)),
            ),
            ("{requests: {memory: 1Mi}}", Some(("memory.low", 1 << 20))),
            ("{requests: {cpu: 1}}", None),
            ("{}", None),
        ] {
            let pod = pod_yaml(&format!("spec: {{containers: [{{name: a, resources: {resources}}}]}}"));
            assert_eq!(protected_memory(&pod, PodLevel::Counted), expected, "{resources}");
        }
        let whole = pod_yaml("spec: {resources: {requests: {memory: 2Mi}}, containers: [{name: a}]}");
        assert_eq!(protected_memory(&whole, PodLevel::Counted), Some(("memory.low", 2 << 20)));
        assert_eq!(protected_memory(&whole, PodLevel::Ignored), None);
    }

    #[test]
    fn huge_pages_are_counted_by_their_size() {
        let resources = "{limits: {hugepages-2Mi: 4Mi, cpu: 1, memory: 1Mi}, requests: {hugepages-2Mi: 4Mi, cpu: 1, memory: 1Mi}}";
        let pod = pod_yaml(&format!("spec: {{containers: [{{name: a, resources: {resources}}}]}}"));
        let found = pod_resources(&pod, PodLevel::Counted, true, 100_000);
        assert_eq!(found.huge_pages, BTreeMap::from([(2 << 20, 4 << 20)]));
        // Pages alone make no class.
        let resources = "{requests: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi, hugepages-odd: 1Gi}}";
        let pod = pod_yaml(&format!("spec: {{containers: [{{name: a, resources: {resources}}}]}}"));
        let huge_pages = BTreeMap::from([(2 << 20, 4 << 20), (1 << 30, 1 << 30)]);
        let found = pod_resources(&pod, PodLevel::Counted, true, 100_000);
        assert_eq!(found, PodResources { cpu_shares: 2, huge_pages, ..PodResources::default() });
    }

    #[test]
    fn a_limit_of_the_pod_as_a_whole_counts_where_containers_have_none() {
        let pod = pod_yaml(
            "spec: {resources: {limits: {cpu: 500m}}, containers: [{name: a, resources: {requests: {cpu: 250m}}}]}",
        );
        let found = |level, enforce| pod_resources(&pod, level, enforce, 100_000);
        let counted = found(PodLevel::Counted, true);
        assert_eq!((counted.cpu_quota, counted.memory), (Some(50_000), None));
        assert_eq!(found(PodLevel::Counted, false).cpu_quota, Some(-1));
        assert_eq!(found(PodLevel::Ignored, true).cpu_quota, None);
    }

    #[test]
    fn an_init_container_without_a_limit_leaves_the_pod_without_one_but_beside_a_sidecar_that_has_one() {
        let limited = "resources: {limits: {cpu: 1, memory: 1Mi}}";
        let (sidecar, init) =
            (format!("{{name: s, restartPolicy: Always, {limited}}}"), "{name: i}".to_owned());
        let free = "{name: f, restartPolicy: Always}".to_owned();
        for (init_containers, expected) in [
            (vec![&init], None),
            (vec![&sidecar, &init], Some(2 << 20)),
            (vec![&sidecar, &free], Some(2 << 20)),
            (vec![&init, &sidecar], None),
            (vec![&free, &sidecar], None),
        ] {
            let init_containers: Vec<&str> = init_containers.into_iter().map(String::as_str).collect();
            let pod = pod_yaml(&format!(
                "spec: {{initContainers: [{}], containers: [{{name: a, {limited}}}]}}",
                init_containers.join(", ")
            ));
            let found = pod_resources(&pod, PodLevel::Counted, true, 100_000);
            assert_eq!(found.memory, expected, "{init_containers:?}");
            assert_eq!(found.cpu_quota, expected.map(|_| 200_000), "{init_containers:?}");
        }
    }
}
