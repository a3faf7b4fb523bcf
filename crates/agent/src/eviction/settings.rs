//! When pods have to go, from the node's configuration.

use std::collections::BTreeMap;

use crablet_api::Parsed;
use crablet_config::{
    EvictionSignal, KubeletConfiguration, KubeletFlags, NodeAllocatableEnforcement, Threshold as Given,
};
use crablet_core::eviction::{Amount, Configured, Signal};
use jiff::SignedDuration;

/// When pods have to go.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub configured: Configured,
    /// How many seconds a pod has at most that a soft threshold sends away.
    pub max_pod_grace: i64,
    /// For how long a condition stays that is not seen any more.
    pub transition_period: SignedDuration,
    /// Whether pods are held to what they may take on disk.
    pub limits_local_storage: bool,
}

/// How much must be left of what at once, without what is switched off.
pub fn hard_thresholds(configuration: &KubeletConfiguration) -> BTreeMap<Signal, Amount> {
    switched_on(&configuration.eviction_hard)
}

fn switched_on(given: &BTreeMap<EvictionSignal, Parsed<Given>>) -> BTreeMap<Signal, Amount> {
    let mut known = amounts(given);
    known.retain(|_, amount| !amount.is_off());
    known
}

fn amounts(given: &BTreeMap<EvictionSignal, Parsed<Given>>) -> BTreeMap<Signal, Amount> {
    let known = given.iter().filter_map(|(signal, amount)| {
        let value = match &amount.value {
            Given::Quantity(quantity) => Amount::Quantity(quantity.clone()),
            Given::Percentage(share) => Amount::Percentage(*share),
        };
        Some((Signal::from_word(signal.as_str())?, value))
    });
    known.collect()
}

impl Settings {
    pub fn new(configuration: &KubeletConfiguration, flags: &KubeletFlags) -> Settings {
        let soft_grace = configuration.eviction_soft_grace_period.iter().filter_map(|(signal, grace)| {
            let grace = SignedDuration::from_nanos(grace.value.as_nanos());
            Some((Signal::from_word(signal.as_str())?, grace))
        });
        let levels = &configuration.enforce_node_allocatable;
        Settings {
            configured: Configured {
                hard: hard_thresholds(configuration),
                soft: switched_on(&configuration.eviction_soft),
                soft_grace: soft_grace.collect(),
                min_reclaim: amounts(&configuration.eviction_minimum_reclaim),
                enforces_allocatable: levels.contains(&NodeAllocatableEnforcement::Pods)
                    && !flags.experimental_allocatable_ignore_eviction,
            },
            max_pod_grace: i64::from(configuration.eviction_max_pod_grace_period),
            transition_period: SignedDuration::from_nanos(
                configuration.eviction_pressure_transition_period.as_nanos(),
            ),
            limits_local_storage: configuration.local_storage_capacity_isolation,
        }
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::Quantity;
    use crablet_api::core::ResourceList;

    use super::*;
    use crate::node_config::reserved;

    fn load(flags: &[(&str, &str)]) -> (KubeletConfiguration, KubeletFlags) {
        let given: Vec<_> =
            flags.iter().map(|(name, text)| (crablet_config::Flag::find(name).unwrap(), *text)).collect();
        let effective = crablet_config::load(&given).unwrap();
        (effective.configuration, effective.flags)
    }

    #[test]
    fn a_threshold_of_nothing_or_of_all_is_switched_off_and_keeps_nothing_from_pods() {
        let hard = "memory.available<100%,nodefs.available<10%,pid.available<0%";
        let (configuration, flags) = load(&[
            ("eviction-hard", hard),
            ("eviction-soft", "imagefs.available<100%"),
            ("eviction-soft-grace-period", "imagefs.available=1m"),
        ]);
        let configured = Settings::new(&configuration, &flags).configured;
        let hard: Vec<Signal> = configured.hard.into_keys().collect();
        assert_eq!((hard, configured.soft.len()), (vec![Signal::NodeFsAvailable], 0));
        let all = || Quantity::from_value(1_000);
        let capacity: ResourceList = [("memory", all()), ("ephemeral-storage", all())].into_iter().collect();
        let kept = reserved(&configuration, &flags, &capacity).eviction;
        let left = (kept.get("memory"), kept.get("ephemeral-storage").map(Quantity::value));
        assert_eq!(left, (None, Some(100)));
    }

    #[test]
    fn pods_that_may_have_what_eviction_leaves_free_are_not_held_to_less() {
        let has_room = |ignored: &str| {
            let (configuration, flags) = load(&[("experimental-allocatable-ignore-eviction", ignored)]);
            Settings::new(&configuration, &flags).configured.enforces_allocatable
        };
        assert!(has_room("false") && !has_room("true"));
    }
}
