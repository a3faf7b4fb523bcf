//! Control groups: what a pod's group is called, and amounts in the kernel's units.

use crablet_api::core::Pod;

use super::node::{CgroupDriver, Cgroups};
use crate::qos::QosClass;

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

/// The name of the control group that a pod's sandbox and containers are in, as the runtime is told it.
pub fn cgroup_parent(pod: &Pod, class: QosClass, cgroups: &Cgroups) -> String {
    if !cgroups.per_qos {
        return String::new();
    }
    let class = match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    let own = format!("pod{}", pod.metadata.uid);
    let parts = (cgroups.root.split('/').filter(|part| !part.is_empty()))
        .chain(["kubepods"])
        .chain(class)
        .chain([own.as_str()]);
    let mut path = String::with_capacity(96);
    match cgroups.driver {
        CgroupDriver::Cgroupfs => {
            for part in parts {
                path.push('/');
                path.push_str(part);
            }
        }
        // A slice is called by its whole way from the root.
        CgroupDriver::Systemd => {
            let mut slice = String::with_capacity(64);
            for part in parts {
                if !slice.is_empty() {
                    slice.push('-');
                }
                slice.push_str(&part.replace('-', "_"));
                path.push('/');
                path.push_str(&slice);
                path.push_str(".slice");
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pods_group_is_in_the_one_of_its_class() {
        let pod = pod("p").uid("12-ab").build();
        let named = |driver, root: &str, class| {
            cgroup_parent(&pod, class, &Cgroups { driver, root: root.to_owned(), per_qos: true })
        };
        let fs = CgroupDriver::Cgroupfs;
        assert_eq!(named(fs, "/", QosClass::Guaranteed), "/kubepods/pod12-ab");
        assert_eq!(named(fs, "", QosClass::Burstable), "/kubepods/burstable/pod12-ab");
        assert_eq!(named(fs, "/a/b", QosClass::BestEffort), "/a/b/kubepods/besteffort/pod12-ab");
        let systemd = CgroupDriver::Systemd;
        assert_eq!(named(systemd, "/", QosClass::Guaranteed), "/kubepods.slice/kubepods-pod12_ab.slice");
        assert_eq!(
            named(systemd, "/", QosClass::Burstable),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice"
        );
        assert_eq!(
            named(systemd, "/my-node", QosClass::BestEffort),
            "/my_node.slice/my_node-kubepods.slice/my_node-kubepods-besteffort.slice/\
             my_node-kubepods-besteffort-pod12_ab.slice"
        );
        let off = Cgroups { per_qos: false, ..Cgroups::default() };
        assert_eq!(cgroup_parent(&pod, QosClass::Burstable, &off), "");
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
