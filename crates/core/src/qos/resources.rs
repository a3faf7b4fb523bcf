//! How much a pod asks for, and how much it may use at most, in all.

use crablet_api::core::{Container, Pod, ResourceList};
use crablet_api::resource_names::is_huge_pages;
use crablet_api::{FeatureGates, Gate, Quantity};

use crate::restart::is_sidecar;

/// Whether resources of the pod as a whole are counted: the feature gate `PodLevelResources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLevel {
    /// They count, in place of those of the containers.
    Counted,
    /// As if they were not there.
    Ignored,
}

impl From<&FeatureGates> for PodLevel {
    fn from(features: &FeatureGates) -> PodLevel {
        if features.enabled(Gate::PodLevelResources) { PodLevel::Counted } else { PodLevel::Ignored }
    }
}

/// Whether what running the pod itself takes is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overhead {
    /// It is added.
    Included,
    /// It is not.
    Excluded,
}

/// The amount of a resource; zero where it is not listed.
pub fn quantity(list: &ResourceList, name: &str) -> Quantity {
    list.get(name).cloned().unwrap_or_default()
}

/// What a pod asks for in all.
pub fn pod_requests(pod: &Pod, pod_level: PodLevel, overhead: Overhead) -> ResourceList {
    let mut requests = aggregated_requests(pod);
    if pod_level == PodLevel::Counted
        && let Some(resources) = &pod.spec.resources
    {
        replace_supported(&mut requests, &resources.requests);
    }
    match overhead {
        Overhead::Included => add(&mut requests, &pod.spec.overhead),
        Overhead::Excluded => {}
    }
    requests
}

/// What a pod may use at most in all. A resource that some container may use without limit is listed here too, with
/// the limits of the others. Overhead is added where there is a limit.
pub fn pod_limits(pod: &Pod, pod_level: PodLevel, overhead: Overhead) -> ResourceList {
    let mut limits = aggregated(pod, |container| &container.resources.limits);
    if pod_level == PodLevel::Counted
        && let Some(resources) = &pod.spec.resources
    {
        replace_supported(&mut limits, &resources.limits);
    }
    match overhead {
        Overhead::Included => {
            for (name, amount) in pod.spec.overhead.iter() {
                if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
                    *limit += amount;
                }
            }
        }
        Overhead::Excluded => {}
    }
    limits
}

/// What the containers of a pod ask for at the time at which they ask for most: together with the sidecars, or
/// earlier, while one of them initialises.
pub fn aggregated_requests(pod: &Pod) -> ResourceList {
    aggregated(pod, |container| &container.resources.requests)
}

/// Whether the pod as a whole asks for anything, or may use no more than something.
pub fn pod_level_resources_set(pod: &Pod) -> bool {
    pod.spec
        .resources
        .as_ref()
        .is_some_and(|whole| whole.requests.keys().chain(whole.limits.keys()).any(is_supported))
}

fn aggregated(pod: &Pod, amounts: impl Fn(&Container) -> &ResourceList) -> ResourceList {
    let mut sum = ResourceList::default();
    for container in &pod.spec.containers {
        add(&mut sum, amounts(container));
    }
    let mut sidecars = ResourceList::default();
    let mut initialising = ResourceList::default();
    for container in &pod.spec.init_containers {
        if is_sidecar(container) {
            add(&mut sum, amounts(container));
            add(&mut sidecars, amounts(container));
            raise(&mut initialising, &sidecars);
        } else {
            // It runs beside the sidecars that were started before it.
            let mut beside = amounts(container).clone();
            add(&mut beside, &sidecars);
            raise(&mut initialising, &beside);
        }
    }
    raise(&mut sum, &initialising);
    sum
}

/// Resources that a pod can have as a whole.
fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

fn replace_supported(list: &mut ResourceList, by: &ResourceList) {
    for (name, amount) in by.iter().filter(|(name, _)| is_supported(name)) {
        list.insert(name, amount.clone());
    }
}

fn add(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other.iter() {
        match list.get_mut(name) {
            Some(sum) => *sum += amount,
            None => _ = list.insert(name, amount.clone()),
        }
    }
}

fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other.iter() {
        match list.get_mut(name) {
            Some(most) if *most >= *amount => {}
            Some(most) => *most = amount.clone(),
            None => _ = list.insert(name, amount.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn text(list: &ResourceList) -> String {
        list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"))
    }

    fn requests(spec: &str) -> String {
        text(&pod_requests(&pod(spec), PodLevel::Counted, Overhead::Included))
    }

    #[test]
    fn containers_add_up() {
        assert_eq!(
            requests(
                "{containers: [{name: a, resources: {requests: {cpu: 100m, memory: 1Gi}}},
                               {name: b, resources: {requests: {cpu: 1, example.com/gpu: 2}}}]}"
            ),
            "cpu=1100m example.com/gpu=2 memory=1Gi"
        );
    }

    #[test]
    fn an_init_container_that_asks_for_more_than_all_others_decides() {
        let containers = "containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]";
        assert_eq!(
            requests(&format!(
                "{{{containers}, initContainers: [{{name: i, resources: {{requests: {{cpu: 2, memory: 1Mi}}}}}}]}}"
            )),
            "cpu=2 memory=1Gi"
        );
    }

    #[test]
    fn sidecars_run_beside_what_is_started_after_them() {
        assert_eq!(
            requests(
                "{containers: [{name: a, resources: {requests: {cpu: 1}}}],
                  initContainers: [
                    {name: before, resources: {requests: {cpu: 5500m}}},
                    {name: side, restartPolicy: Always, resources: {requests: {cpu: 2}}},
                    {name: after, resources: {requests: {cpu: 4}}}]}"
            ),
            "cpu=6"
        );
        assert_eq!(
            requests(
                "{containers: [{name: a, resources: {requests: {cpu: 1}}}],
                  initContainers: [{name: side, restartPolicy: Always, resources: {requests: {cpu: 2}}}]}"
            ),
            "cpu=3"
        );
    }

    #[test]
    fn overhead_is_added_to_requests_and_to_limits_that_there_are() {
        let pod = pod("{overhead: {cpu: 250m, memory: 16Mi},
              containers: [{name: a, resources: {limits: {cpu: 1}, requests: {cpu: 500m}}}]}");
        for (overhead, requests, limits) in [
            (Overhead::Included, "cpu=750m memory=16Mi", "cpu=1250m"),
            (Overhead::Excluded, "cpu=500m", "cpu=1"),
        ] {
            assert_eq!(text(&pod_requests(&pod, PodLevel::Counted, overhead)), requests);
            assert_eq!(text(&pod_limits(&pod, PodLevel::Counted, overhead)), limits);
        }
    }

    #[test]
    fn resources_of_the_whole_pod_replace_sums_of_those_resources_alone() {
        let pod = pod(
            "{resources: {requests: {cpu: 3, ephemeral-storage: 9Gi}, limits: {cpu: 4}},
              containers: [{name: a, resources: {limits: {cpu: 1, memory: 2Gi},
                                                 requests: {cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi}}}]}",
        );
        let level = PodLevel::Counted;
        assert_eq!(
            text(&pod_requests(&pod, level, Overhead::Included)),
            "cpu=3 ephemeral-storage=1Gi memory=1Gi"
        );
        assert_eq!(text(&pod_limits(&pod, level, Overhead::Included)), "cpu=4 memory=2Gi");
        assert_eq!(text(&pod_limits(&pod, PodLevel::Ignored, Overhead::Included)), "cpu=1 memory=2Gi");
        assert_eq!(
            text(&pod_requests(&pod, PodLevel::Ignored, Overhead::Excluded)),
            "cpu=1 ephemeral-storage=1Gi memory=1Gi"
        );
    }

    #[test]
    fn a_pod_as_a_whole_has_cpu_memory_and_huge_pages_and_nothing_else() {
        for (resources, expected) in [
            ("{}", false),
            ("{requests: {cpu: 1}}", true),
            ("{limits: {memory: 1Gi}}", true),
            ("{limits: {hugepages-2Mi: 2Mi}}", true),
            ("{requests: {ephemeral-storage: 1Gi}, limits: {example.com/gpu: 1}}", false),
        ] {
            let pod = pod(&format!("{{resources: {resources}}}"));
            assert_eq!(pod_level_resources_set(&pod), expected, "{resources}");
        }
        assert!(!pod_level_resources_set(&pod("{containers: [{name: a}]}")));
    }
}
