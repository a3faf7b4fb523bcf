//! How much must be left of what.

use std::collections::BTreeMap;

use crablet_api::{Quantity, QuantityFormat};
use jiff::SignedDuration;

use super::{Disks, Observations, Signal};

/// An amount of something, or a share of all there is.
#[derive(Debug, Clone, PartialEq)]
pub enum Amount {
    Quantity(Quantity),
    /// In hundredths.
    Percentage(f32),
}

impl Amount {
    /// Whether it is how a threshold is switched off: a share of nothing or of all.
    pub fn is_off(&self) -> bool {
        matches!(self, Amount::Percentage(share) if *share == 0.0 || *share == 100.0)
    }

    /// How much that is where there is so much in all.
    pub fn of(&self, capacity: i64) -> Quantity {
        match self {
            Amount::Quantity(quantity) => quantity.clone(),
            Amount::Percentage(percentage) => {
                // Upstream has shares in 32 bits and amounts in whole numbers, which shows in messages.
                #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
                let amount = (capacity as f64 * f64::from(percentage / 100.0)) as i64;
                Quantity::from_value(amount).with_format(QuantityFormat::BinarySi)
            }
        }
    }
}

/// How much must be left of something, and what follows if it is not.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub value: Amount,
    /// How long it may be met before pods go. A hard one has none.
    pub grace: SignedDuration,
    /// How much more must be left before it counts as over.
    pub min_reclaim: Option<Amount>,
}

impl Threshold {
    /// One that sends pods away at once, and is over as soon as it is not met.
    pub fn hard(signal: Signal, value: Amount) -> Threshold {
        Threshold { signal, value, grace: SignedDuration::ZERO, min_reclaim: None }
    }

    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// How much must be left, where there is so much in all.
    pub fn quantity(&self, capacity: i64) -> Quantity {
        self.value.of(capacity)
    }

    /// Whether less than that is left. One of which nothing was seen is not met.
    pub fn is_met(&self, observations: &Observations) -> bool {
        self.has_less_than(observations, Threshold::quantity)
    }

    /// Whether less is left than some amount of it.
    pub(super) fn has_less_than(
        &self,
        observations: &Observations,
        enough: fn(&Threshold, i64) -> Quantity,
    ) -> bool {
        observations
            .get(&self.signal)
            .is_some_and(|seen| Quantity::from_value(seen.available) < enough(self, seen.capacity))
    }

    /// How much must be left for what it was met for to be over.
    pub fn resolved_at(&self, capacity: i64) -> Quantity {
        match &self.min_reclaim {
            Some(more) => self.quantity(capacity) + &more.of(capacity),
            None => self.quantity(capacity),
        }
    }
}

/// Thresholds as a node is given them, by their signals, without those that are switched off.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configured {
    pub hard: BTreeMap<Signal, Amount>,
    pub soft: BTreeMap<Signal, Amount>,
    /// How long soft ones may be met. One without is none, which no configuration passes validation with.
    pub soft_grace: BTreeMap<Signal, SignedDuration>,
    pub min_reclaim: BTreeMap<Signal, Amount>,
    /// Whether pods are held to what is left for them, so that this is watched too.
    pub enforces_allocatable: bool,
}

/// All thresholds of a node whose file systems are like this. Those of what containers write are never the node's own: they
/// are those of the file system that it is on.
pub fn thresholds(configured: &Configured, disks: Disks) -> Vec<Threshold> {
    let hard = configured.hard.iter().map(|(signal, value)| (*signal, value, SignedDuration::ZERO));
    let soft = configured
        .soft
        .iter()
        .filter_map(|(signal, value)| Some((*signal, value, *configured.soft_grace.get(signal)?)));
    let mut thresholds: Vec<Threshold> = hard
        .chain(soft)
        .map(|(signal, value, grace)| Threshold {
            signal,
            value: value.clone(),
            grace,
            min_reclaim: configured.min_reclaim.get(&signal).cloned(),
        })
        .collect();
    if configured.enforces_allocatable {
        add_allocatable(&mut thresholds);
    }
    replace_container_fs(&mut thresholds, disks);
    thresholds
}

/// What must be left of the node's memory must be left of that for pods too.
fn add_allocatable(thresholds: &mut Vec<Threshold>) {
    let memory = thresholds.iter().filter(|known| known.signal == Signal::MemoryAvailable && known.is_hard());
    let copies: Vec<Threshold> = memory
        .map(|known| Threshold { signal: Signal::AllocatableMemoryAvailable, ..known.clone() })
        .collect();
    thresholds.extend(copies);
}

fn replace_container_fs(thresholds: &mut Vec<Threshold>, disks: Disks) {
    let instead_of = |signal: Signal| match (signal, disks) {
        (Signal::NodeFsAvailable, Disks::One | Disks::Split)
        | (Signal::ImageFsAvailable, Disks::SeparateImages) => Some(Signal::ContainerFsAvailable),
        (Signal::NodeFsInodesFree, Disks::One | Disks::Split)
        | (Signal::ImageFsInodesFree, Disks::SeparateImages) => Some(Signal::ContainerFsInodesFree),
        _ => None,
    };
    thresholds.retain(|known| {
        !matches!(known.signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree)
    });
    let copies: Vec<Threshold> = thresholds
        .iter()
        .filter_map(|known| Some(Threshold { signal: instead_of(known.signal)?, ..known.clone() }))
        .collect();
    thresholds.extend(copies);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        match text.strip_suffix('%') {
            Some(share) => Amount::Percentage(share.parse().unwrap()),
            None => Amount::Quantity(text.parse().unwrap()),
        }
    }

    fn amounts(text: &str) -> BTreeMap<Signal, Amount> {
        text.split_whitespace()
            .map(|word| {
                let (signal, value) = word.split_once('<').unwrap();
                (Signal::from_word(signal).unwrap(), amount(value))
            })
            .collect()
    }

    fn shown(thresholds: &[Threshold]) -> String {
        let one = |known: &Threshold| {
            let text = |amount: &Amount| match amount {
                Amount::Quantity(quantity) => quantity.to_string(),
                Amount::Percentage(share) => format!("{share}%"),
            };
            let more = known.min_reclaim.as_ref().map(|more| format!("+{}", text(more))).unwrap_or_default();
            let grace =
                if known.is_hard() { String::new() } else { format!(" for {}s", known.grace.as_secs()) };
            format!("{}<{}{more}{grace}", known.signal.as_str(), text(&known.value))
        };
        thresholds.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn configured(hard: &str, soft: &str, min_reclaim: &str, enforces_allocatable: bool) -> Configured {
        let soft = amounts(soft);
        Configured {
            hard: amounts(hard),
            soft_grace: soft.keys().map(|signal| (*signal, SignedDuration::from_secs(30))).collect(),
            soft,
            min_reclaim: amounts(min_reclaim),
            enforces_allocatable,
        }
    }

    #[test]
    fn hard_ones_come_before_soft_ones_with_what_is_to_be_reclaimed_of_each() {
        let configured =
            configured("memory.available<150Mi", "memory.available<300Mi", "memory.available<5%", true);
        assert_eq!(
            shown(&thresholds(&configured, Disks::One)),
            "memory.available<150Mi+5%, memory.available<300Mi+5% for 30s, allocatableMemory.available<150Mi+5%"
        );
    }

    #[test]
    fn memory_for_pods_is_watched_where_pods_are_held_to_it_and_something_must_be_left() {
        let none = configured("pid.available<5%", "memory.available<1Gi", "", true);
        assert_eq!(
            shown(&thresholds(&none, Disks::One)),
            "pid.available<5%, memory.available<1Gi for 30s",
            "a soft threshold is the node's alone"
        );
        let off = configured("memory.available<1Gi", "", "", false);
        assert_eq!(shown(&thresholds(&off, Disks::One)), "memory.available<1Gi");
    }

    #[test]
    fn a_soft_threshold_without_a_grace_period_is_none() {
        let mut configured = configured("", "memory.available<1Gi", "", false);
        configured.soft_grace.clear();
        assert!(thresholds(&configured, Disks::One).is_empty());
    }

    #[test]
    fn what_containers_write_has_the_thresholds_of_the_file_system_that_it_is_on() {
        let hard = "nodefs.available<10% nodefs.inodesFree<5% imagefs.available<15% imagefs.inodesFree<4%";
        let given = format!("{hard} containerfs.available<50% containerfs.inodesFree<50%");
        let own = "nodefs.available<10%, nodefs.inodesFree<5%, imagefs.available<15%, imagefs.inodesFree<4%";
        let of_node = format!("{own}, containerfs.available<10%, containerfs.inodesFree<5%");
        let of_images = format!("{own}, containerfs.available<15%, containerfs.inodesFree<4%");
        for (disks, expected) in
            [(Disks::One, &of_node), (Disks::Split, &of_node), (Disks::SeparateImages, &of_images)]
        {
            for given in [hard, &given] {
                let found = thresholds(&configured(given, "", "", false), disks);
                assert_eq!(shown(&found), *expected, "{disks:?}");
            }
        }
        let alone = configured("containerfs.available<50%", "", "", false);
        assert_eq!(shown(&thresholds(&alone, Disks::One)), "", "there is nothing to follow");
        let soft = configured("", "imagefs.available<15%", "imagefs.available<1Gi", false);
        assert_eq!(
            shown(&thresholds(&soft, Disks::SeparateImages)),
            "imagefs.available<15%+1Gi for 30s, containerfs.available<15%+1Gi for 30s"
        );
    }

    #[test]
    fn a_share_is_reckoned_as_upstream_does() {
        for (share, capacity, expected) in [
            (10.0, 100, "10"),
            (10.0, 1 << 30, "107374184"),
            (15.0, 1_000, "150"),
            (5.0, 1_000, "50"),
            (0.1, 1_000_000, "1k"),
            (50.0, 4 << 30, "2Gi"),
        ] {
            assert_eq!(
                Amount::Percentage(share).of(capacity).to_string(),
                expected,
                "{share}% of {capacity}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_share_is_no_more_than_all_and_grows_with_it(
            share in 0.0_f32..=100.0,
            capacity in 0_i64..1 << 50,
            more in 0_i64..1 << 40,
        ) {
            let amount = Amount::Percentage(share);
            let (one, other) = (amount.of(capacity), amount.of(capacity + more));
            prop_assert!(one >= Quantity::from_value(0) && one <= Quantity::from_value(capacity));
            prop_assert!(one <= other);
        }

        #[test]
        fn a_threshold_is_over_no_earlier_than_it_is_not_met(
            value in 0_i64..1 << 40,
            more in 0_i64..1 << 40,
            capacity in 0_i64..1 << 50,
        ) {
            let quantity = |value| Amount::Quantity(Quantity::from_value(value));
            let hard = Threshold::hard(Signal::MemoryAvailable, quantity(value));
            let slow = Threshold { min_reclaim: Some(quantity(more)), ..hard.clone() };
            prop_assert_eq!(hard.resolved_at(capacity), hard.quantity(capacity));
            prop_assert_eq!(slow.resolved_at(capacity), Quantity::from_value(value + more));
        }
    }
}
