//! What the runtime is told of a pod as a whole that is resized.

use crablet_api::core::ResourceList;
use crablet_cri_api::v1;

use crate::pod_cgroup::PodResources;
use crate::qos::quantity;
use crate::translate::{cpu_quota, cpu_shares};

/// The limits of the pod's cgroup, without what running the pod itself takes: that is told apart. What is not limited is
/// not told; when a sandbox is made upstream tells the sum of what limits there are.
pub fn limits(resources: &PodResources, period: i64, overhead: &ResourceList) -> v1::LinuxContainerResources {
    let (cpu, memory) = (quantity(overhead, "cpu").milli_value(), quantity(overhead, "memory").value());
    let shares = i64::try_from(resources.cpu_shares).unwrap_or(i64::MAX);
    let without_overhead = |quota: i64| if quota > 0 { quota - cpu_quota(cpu, period) } else { quota };
    v1::LinuxContainerResources {
        cpu_shares: match cpu {
            0 => shares,
            cpu => cpu_shares(shares.saturating_mul(1000).saturating_add(1023) / 1024 - cpu),
        },
        cpu_quota: resources.cpu_quota.map_or(0, without_overhead),
        cpu_period: resources.cpu_quota.map_or(0, |_| period),
        memory_limit_in_bytes: resources
            .memory
            .map_or(0, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(memory)),
        ..v1::LinuxContainerResources::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_cgroup::pod_resources;
    use crate::qos::PodLevel;
    use crablet_api::testing::pod_yaml;

    fn check(overhead: &str, second: &str, expected: (i64, i64, i64, i64)) {
        let all = "{requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}";
        let pod = pod_yaml(&format!(
            "spec: {{overhead: {overhead}, containers: [{{name: a, resources: {all}}}, {{name: b, resources: {second}}}]}}"
        ));
        let resources = pod_resources(&pod, PodLevel::Counted, true, 100_000);
        let told = limits(&resources, 100_000, &pod.spec.overhead);
        let told = (told.cpu_shares, told.cpu_quota, told.cpu_period, told.memory_limit_in_bytes);
        assert_eq!(told, expected, "{overhead} {second}");
    }

    #[test]
    fn a_pod_has_no_limit_that_one_of_its_containers_does_not_have() {
        check("{}", "{}", (512, 0, 0, 0));
        check("{}", "{limits: {cpu: 1, memory: 1Gi}}", (512, 200_000, 100_000, 2 << 30));
        check("{}", "{limits: {memory: 1Gi}}", (512, 0, 0, 2 << 30));
    }

    #[test]
    fn what_running_the_pod_takes_is_told_apart() {
        let overhead = "{cpu: 250m, memory: 1Gi}";
        check(overhead, "{limits: {cpu: 1, memory: 1Gi}}", (512, 200_000, 100_000, 2 << 30));
        check(overhead, "{}", (512, 0, 0, 0));
    }
}
