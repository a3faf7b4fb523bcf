//! What a container may use, in the runtime's terms.

use std::collections::BTreeMap;

use crablet_api::core::{Container, Pod, ResourceList};
use crablet_api::resource_names::huge_page_size;
use crablet_api::{Gate, Quantity};
use crablet_cri_api::v1;

use super::cgroup::{QUOTA_PERIOD, cpu_quota, cpu_shares};
use super::memory;
use super::node::{NodeContext, Settings};
use super::oom::oom_score_adj;
use crate::qos::{self, Overhead, PodLevel, quantity};

/// What a container may use. `exclusive_cpus`: it has CPUs of its own.
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    node: &NodeContext,
    exclusive_cpus: bool,
) -> v1::LinuxContainerResources {
    let pod_level = PodLevel::from(&node.features);
    let class = qos::qos_class(pod, pod_level);
    let own = &container.resources;
    let cpu_limit = limit(pod, &own.limits, "cpu", pod_level);
    let memory_limit = limit(pod, &own.limits, "memory", pod_level);
    let mut resources = linux_resources(
        own.requests.get("cpu"),
        &cpu_limit,
        &memory_limit,
        exclusive_cpus && node.features.enabled(Gate::DisableCPUQuotaWithExclusiveCPUs),
        node,
    );
    resources.oom_score_adj = oom_score_adj(pod, container, class, node.facts.memory_capacity, pod_level);
    resources.hugepage_limits = huge_page_limits(pod, &own.limits, node);
    memory::limit_swap(&mut resources, pod, container, class, node);
    memory::add_memory_qos(&mut resources, container, class, node);
    resources
}

/// What all containers of a pod may use together. `exclusive_cpus`: some of them have CPUs of their own.
pub fn sandbox_resources(pod: &Pod, node: &NodeContext, exclusive_cpus: bool) -> v1::LinuxContainerResources {
    let pod_level = PodLevel::from(&node.features);
    let requests = qos::pod_requests(pod, pod_level, Overhead::Excluded);
    let limits = qos::pod_limits(pod, pod_level, Overhead::Excluded);
    linux_resources(
        requests.get("cpu"),
        &quantity(&limits, "cpu"),
        &quantity(&limits, "memory"),
        exclusive_cpus && node.features.enabled(Gate::DisableCPUQuotaWithExclusiveCPUs),
        node,
    )
}

/// What running the pod itself takes: as much as it is asked for, and no more.
pub fn overhead_resources(pod: &Pod, node: &NodeContext) -> v1::LinuxContainerResources {
    let overhead = &pod.spec.overhead;
    if overhead.is_empty() {
        return v1::LinuxContainerResources::default();
    }
    let cpu = quantity(overhead, "cpu");
    linux_resources(Some(&cpu), &cpu, &quantity(overhead, "memory"), false, node)
}

/// Who asks for no CPU is taken to ask for as much as it may use.
fn linux_resources(
    cpu_request: Option<&Quantity>,
    cpu_limit: &Quantity,
    memory_limit: &Quantity,
    unlimited_cpu: bool,
    node: &NodeContext,
) -> v1::LinuxContainerResources {
    let (cpu_period, cpu_quota) = match node.settings.cpu_cfs_quota {
        false => (0, 0),
        true => {
            let period = quota_period(&node.settings, node.features.enabled(Gate::CustomCPUCFSQuotaPeriod));
            (period, if unlimited_cpu { -1 } else { cpu_quota(cpu_limit.milli_value(), period) })
        }
    };
    let mut unified = BTreeMap::new();
    if node.facts.cgroup_v2 && !node.settings.single_process_oom_kill {
        unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    v1::LinuxContainerResources {
        cpu_period,
        cpu_quota,
        cpu_shares: cpu_shares(cpu_request.unwrap_or(cpu_limit).milli_value()),
        memory_limit_in_bytes: memory_limit.value(),
        unified,
        ..v1::LinuxContainerResources::default()
    }
}

fn quota_period(settings: &Settings, custom: bool) -> i64 {
    if custom { settings.cpu_cfs_quota_period } else { QUOTA_PERIOD }
}

/// The limit of a container, or of its pod as a whole where it has none.
fn limit(pod: &Pod, own: &ResourceList, name: &str, pod_level: PodLevel) -> Quantity {
    let own = quantity(own, name);
    match &pod.spec.resources {
        Some(whole) if own.is_zero() && pod_level == PodLevel::Counted => quantity(&whole.limits, name),
        Some(_) | None => own,
    }
}

/// No huge pages of any size, but for those that the container, or the pod as a whole, is given.
fn huge_page_limits(pod: &Pod, own: &ResourceList, node: &NodeContext) -> Vec<v1::HugepageLimit> {
    let whole = match PodLevel::from(&node.features) {
        PodLevel::Counted => pod.spec.resources.as_ref().map(|resources| &resources.limits),
        PodLevel::Ignored => None,
    };
    let lists: Vec<&ResourceList> = whole.into_iter().chain([own]).collect();
    node.facts
        .huge_page_sizes
        .iter()
        .map(|page_size| {
            let limit = lists
                .iter()
                .flat_map(|list| list.iter())
                .rfind(|(name, _)| page_size_of(name).as_ref() == Some(page_size))
                .map_or(0, |(_, amount)| amount.value());
            v1::HugepageLimit { page_size: page_size.clone(), limit: u64::try_from(limit).unwrap_or(0) }
        })
        .collect()
}

/// The size of pages that a resource is made of, as control groups name it.
fn page_size_of(resource: &str) -> Option<String> {
    page_size_in_cgroups(huge_page_size(resource)?.parse::<Quantity>().ok()?.value())
}

/// A size of pages, in bytes, as control groups name it.
pub fn page_size_in_cgroups(mut size: i64) -> Option<String> {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut unit = 0;
    while size % 1024 == 0 && size != 0 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    // A size that is not whole in its unit is none that the kernel has.
    (size <= 1024 || unit + 1 == UNITS.len()).then(|| format!("{size}{}", UNITS[unit]))
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;
    use proptest::prelude::*;

    use super::*;
    use crate::translate::testing::node;

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"))
    }

    fn resources(spec: &str, node: &NodeContext) -> v1::LinuxContainerResources {
        let pod = pod(spec);
        container_resources(&pod, &pod.spec.containers[0], node, false)
    }

    fn cpu(resources: &v1::LinuxContainerResources) -> (i64, i64, i64) {
        (resources.cpu_shares, resources.cpu_quota, resources.cpu_period)
    }

    fn one(resources: &str) -> String {
        format!("{{containers: [{{name: c, resources: {resources}}}]}}")
    }

    #[test]
    fn requests_become_shares_and_limits_become_quotas() {
        for (given, shares, quota, memory) in [
            ("{}", 2, 0, 0),
            ("{requests: {cpu: 250m}}", 256, 0, 0),
            ("{limits: {cpu: 500m}}", 512, 50_000, 0),
            ("{limits: {cpu: 500m}, requests: {cpu: 100m}}", 102, 50_000, 0),
            ("{limits: {cpu: 1m}, requests: {cpu: 0}}", 2, 1000, 0),
            ("{limits: {memory: 64Mi}}", 2, 0, 64 << 20),
        ] {
            let made = resources(&one(given), &node());
            assert_eq!(
                (cpu(&made), made.memory_limit_in_bytes),
                ((shares, quota, 100_000), memory),
                "{given}"
            );
        }
    }

    #[test]
    fn quotas_can_be_off_or_have_another_period() {
        let limits = one("{limits: {cpu: 500m}}");
        let mut node = node();
        node.settings.cpu_cfs_quota_period = 5000;
        assert_eq!(cpu(&resources(&limits, &node)), (512, 2500, 5000));
        node.features = node.features.with(Gate::CustomCPUCFSQuotaPeriod, false);
        assert_eq!(cpu(&resources(&limits, &node)), (512, 50_000, 100_000));
        node.settings.cpu_cfs_quota = false;
        assert_eq!(cpu(&resources(&limits, &node)), (512, 0, 0));
    }

    #[test]
    fn a_container_with_cpus_of_its_own_has_no_quota() {
        let pod = pod(&one("{limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2, memory: 1Gi}}"));
        let mut node = node();
        let container = &pod.spec.containers[0];
        assert_eq!(container_resources(&pod, container, &node, true).cpu_quota, -1);
        assert_eq!(sandbox_resources(&pod, &node, true).cpu_quota, -1);
        node.features = node.features.with(Gate::DisableCPUQuotaWithExclusiveCPUs, false);
        assert_eq!(container_resources(&pod, container, &node, true).cpu_quota, 200_000);
    }

    #[test]
    fn limits_of_the_whole_pod_are_those_of_containers_without() {
        let spec = "{resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 8Mi}, requests: {cpu: 1}},
            containers: [{name: c, resources: {limits: {memory: 1Mi}}}]}";
        let made = resources(spec, &node());
        assert_eq!((made.cpu_quota, made.memory_limit_in_bytes), (200_000, 1 << 20));
        assert_eq!(made.cpu_shares, 2048);
        assert_eq!(made.hugepage_limits[0].limit, 8 << 20);
        let mut off = node();
        off.features = off.features.with(Gate::PodLevelResources, false);
        let made = resources(spec, &off);
        assert_eq!((made.cpu_quota, made.hugepage_limits[0].limit), (0, 0));
    }

    #[test]
    fn huge_pages_are_limited_to_none_unless_given() {
        let limits = |given: &str| {
            resources(&one(&format!("{{limits: {{{given}}}}}")), &node())
                .hugepage_limits
                .iter()
                .map(|limit| format!("{}={}", limit.page_size, limit.limit))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(limits(""), "2MB=0 1GB=0");
        assert_eq!(limits("hugepages-2Mi: 4Mi, memory: 1Gi"), "2MB=4194304 1GB=0");
        assert_eq!(limits("hugepages-1024Mi: 1Gi, hugepages-odd: 1Gi"), "2MB=0 1GB=1073741824");
        assert_eq!(page_size_of("hugepages-64Ki").as_deref(), Some("64KB"));
        assert_eq!(page_size_of("hugepages-1500Ki"), None);
    }

    #[test]
    fn on_version_two_a_container_dies_as_a_whole_unless_it_is_not_to() {
        let mut node = node();
        assert!(resources(&one("{}"), &node).unified.is_empty());
        node.facts.cgroup_v2 = true;
        node.settings.single_process_oom_kill = true;
        assert!(resources(&one("{}"), &node).unified.is_empty());
        node.settings.single_process_oom_kill = false;
        assert_eq!(resources(&one("{}"), &node).unified["memory.oom.group"], "1");
        assert_eq!(sandbox_resources(&pod(&one("{}")), &node, false).unified["memory.oom.group"], "1");
    }

    #[test]
    fn the_sandbox_is_told_of_the_sum_and_of_the_overhead() {
        let pod = pod("{overhead: {cpu: 250m, memory: 16Mi},
            containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}},
                         {name: b, resources: {limits: {cpu: 1}, requests: {cpu: 100m}}}]}");
        let all = sandbox_resources(&pod, &node(), false);
        assert_eq!((cpu(&all), all.memory_limit_in_bytes), ((614, 200_000, 100_000), 1 << 30));
        let overhead = overhead_resources(&pod, &node());
        assert_eq!((cpu(&overhead), overhead.memory_limit_in_bytes), ((256, 25_000, 100_000), 16 << 20));
        let plain = self::pod("{containers: [{name: a}]}");
        assert_eq!(overhead_resources(&plain, &node()), v1::LinuxContainerResources::default());
    }

    proptest! {
        #[test]
        fn thousandths_of_a_cpu_arrive_whole(milli in 10_i64..200_000) {
            let made = resources(&one(&format!("{{limits: {{cpu: {milli}m}}}}")), &node());
            prop_assert_eq!(made.cpu_quota, milli * 100);
            prop_assert_eq!(made.cpu_shares, milli * 1024 / 1000);
        }
    }
}
