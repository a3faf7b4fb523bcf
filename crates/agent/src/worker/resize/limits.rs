//! The limits of a pod's cgroup while they change, and what the runtime is told of them.

use crablet_core::pod_cgroup::PodResources;
use crablet_host::cgroup::{Bound, CpuBandwidth, Limits, shares_of_weight, weight_of_shares};

/// What can be resized, each as large as in either. What has no limit yet gets one afterwards.
pub(super) fn larger_of(current: &Limits, wanted: &Limits) -> Limits {
    let cpu_bandwidth = match (current.cpu_bandwidth, wanted.cpu_bandwidth) {
        (Some(current), Some(wanted)) => {
            Some(CpuBandwidth { quota: current.quota.max(wanted.quota), period: wanted.period })
        }
        (Some(_) | None, _) => None,
    };
    let memory = current.memory.zip(wanted.memory).map(|(current, wanted)| current.max(wanted));
    Limits {
        cpu_shares: current.cpu_shares.max(wanted.cpu_shares),
        cpu_bandwidth,
        memory,
        ..Limits::default()
    }
}

/// Which resource a cgroup gets more of, if it does: memory where it is more than one, which upstream changes first.
pub(super) fn grows(current: &Limits, larger: &Limits) -> Option<&'static str> {
    let is_more = |(current, larger): (Bound, Bound)| larger > current;
    if current.memory.zip(larger.memory).is_some_and(is_more) {
        return Some("memory");
    }
    let quotas = current.cpu_bandwidth.zip(larger.cpu_bandwidth);
    let is_longer = quotas.is_some_and(|(current, larger)| is_more((current.quota, larger.quota)));
    // A cgroup does not tell the same shares as were written, but those of its weight.
    let shares = current.cpu_shares.zip(larger.cpu_shares);
    let weighs_more =
        shares.is_some_and(|(current, larger)| shares_of_weight(weight_of_shares(larger)) > current);
    (is_longer || weighs_more).then_some("cpu")
}

/// Limits of a pod's cgroup in the form in which the runtime is told of them. What they do not say is as it is wanted.
pub(super) fn as_told(limits: &Limits, wanted: PodResources) -> PodResources {
    let amount = |bound| match bound {
        Bound::At(amount) => Some(amount),
        Bound::Unlimited => None,
    };
    let quota = |bound| amount(bound).map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX));
    PodResources {
        cpu_shares: limits.cpu_shares.unwrap_or(wanted.cpu_shares),
        cpu_quota: match limits.cpu_bandwidth {
            Some(bandwidth) => Some(quota(bandwidth.quota)),
            None => wanted.cpu_quota,
        },
        memory: limits.memory.map_or(wanted.memory, amount),
        ..wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(shares: u64, quota: Bound, memory: Option<Bound>) -> Limits {
        Limits {
            cpu_shares: Some(shares),
            cpu_bandwidth: Some(CpuBandwidth { quota, period: 100_000 }),
            memory,
            ..Limits::default()
        }
    }

    #[test]
    fn the_runtime_is_told_before_of_what_grows_and_of_nothing_that_the_kernel_rounded() {
        let (small, large) = (Bound::At(1), Bound::At(2));
        let current = limits(998, small, Some(small));
        for (shares, quota, memory, expected) in [
            (1024, small, small, None),
            (1124, small, small, Some("cpu")),
            (998, large, small, Some("cpu")),
            (998, large, large, Some("memory")),
            (998, Bound::Unlimited, small, Some("cpu")),
        ] {
            let larger = limits(shares, quota, Some(memory));
            assert_eq!(grows(&current, &larger), expected, "{larger:?}");
        }
        assert_eq!(grows(&Limits::default(), &current), None, "nothing is known of it");
    }

    #[test]
    fn what_is_not_limited_is_not_told_and_what_is_not_known_is_told_as_it_is_wanted() {
        let wanted =
            PodResources { cpu_shares: 7, cpu_quota: Some(8), memory: Some(9), ..PodResources::default() };
        assert_eq!(as_told(&Limits::default(), wanted.clone()), wanted);
        let told = as_told(&limits(2, Bound::Unlimited, Some(Bound::Unlimited)), wanted.clone());
        assert_eq!((told.cpu_shares, told.cpu_quota, told.memory), (2, Some(-1), None));
        let told = as_told(&limits(2, Bound::At(3), Some(Bound::At(4))), wanted);
        assert_eq!((told.cpu_shares, told.cpu_quota, told.memory), (2, Some(3), Some(4)));
    }

    #[test]
    fn a_cgroup_grows_where_more_is_wanted_and_shrinks_nowhere() {
        let (small, large) = (Bound::At(1), Bound::At(2));
        let current = limits(50, large, Some(small));
        assert_eq!(larger_of(&current, &limits(80, small, Some(large))), limits(80, large, Some(large)));
        assert_eq!(
            larger_of(&current, &limits(20, Bound::Unlimited, None)),
            limits(50, Bound::Unlimited, None)
        );
    }
}
