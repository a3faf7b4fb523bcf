//! Control groups: what a pod's group is called, and amounts in the kernel's units.

use crablet_api::core::Pod;
use crablet_cgroup_names::{Layout, NameError};

use crate::pod_cgroup::pod_cgroup;
use crate::qos::PodLevel;

/// The fewest and the most shares of CPU that the kernel takes.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// The kernel enforces no quota shorter than this, in microseconds.
const MIN_QUOTA: i64 = 1000;
/// The usual period, within which limits of CPU are enforced, in microseconds.
pub const QUOTA_PERIOD: i64 = 100_000;

/// The shares of CPU for an amount in thousandths of a CPU.
pub fn cpu_shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// How long a container that may use that many thousandths of a CPU runs at most in each period, both in
/// microseconds; 0 is no limit.
pub fn cpu_quota(milli_cpu: i64, period: i64) -> i64 {
    match milli_cpu {
        0 => 0,
        limited => (limited.saturating_mul(period) / 1000).max(MIN_QUOTA),
    }
}

/// The name of the control group that a pod's sandbox and containers are in, as the runtime is told it. It is nothing
/// where pods have none of their own.
pub fn cgroup_parent(pod: &Pod, pod_level: PodLevel, layout: Option<&Layout>) -> Result<String, NameError> {
    let Some(layout) = layout else { return Ok(String::new()) };
    Ok(layout.path(&layout.pod(&pod_cgroup(pod, pod_level)?)))
}

#[cfg(test)]
mod tests {
    use crablet_api::core::PodQOSClass;
    use crablet_api::testing::pod;
    use crablet_cgroup_names::CgroupDriver;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pods_group_is_in_the_one_of_its_class() {
        let layout = Layout::new("/a", CgroupDriver::Systemd);
        let named = |uid: &str, layout| {
            let mut pod = pod("p").uid(uid).build();
            pod.status.qos_class = Some(PodQOSClass::Burstable);
            cgroup_parent(&pod, PodLevel::Counted, layout)
        };
        assert_eq!(
            named("12-ab", Some(&layout)).unwrap(),
            "/a.slice/a-kubepods.slice/a-kubepods-burstable.slice/a-kubepods-burstable-pod12_ab.slice"
        );
        assert_eq!(named("12-ab", None).unwrap(), "");
        assert!(named("../12", Some(&layout)).is_err());
    }

    #[test]
    fn amounts_of_cpu_become_shares_and_quotas() {
        for (milli, shares, quota) in [
            (0, 2, 0),
            (1, 2, 1000),
            (2, 2, 1000),
            (3, 3, 1000),
            (10, 10, 1000),
            (11, 11, 1100),
            (100, 102, 10_000),
            (1000, 1024, 100_000),
            (1500, 1536, 150_000),
            (256_000, 262_144, 25_600_000),
            (300_000, 262_144, 30_000_000),
        ] {
            assert_eq!((cpu_shares(milli), cpu_quota(milli, QUOTA_PERIOD)), (shares, quota), "{milli}");
        }
        assert_eq!(cpu_quota(500, 5000), 2500);
    }

    proptest! {
        #[test]
        fn shares_and_quotas_grow_with_the_amount_and_stay_in_bounds(
            a in 0_i64..i64::MAX, b in 0_i64..i64::MAX, period in 1000_i64..=1_000_000,
        ) {
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(cpu_shares(less) <= cpu_shares(more));
            prop_assert!((MIN_SHARES..=MAX_SHARES).contains(&cpu_shares(more)));
            prop_assert!(cpu_quota(less, period) <= cpu_quota(more, period));
            prop_assert!(cpu_quota(more, period) == 0 || cpu_quota(more, period) >= MIN_QUOTA);
        }

        #[test]
        fn a_quota_is_that_share_of_its_period(milli in 10_i64..1_000_000) {
            prop_assert_eq!(cpu_quota(milli, QUOTA_PERIOD), milli * 100);
        }
    }
}
