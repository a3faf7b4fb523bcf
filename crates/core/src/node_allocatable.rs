//! What of a node is for pods, and what cgroups hold whom to it.

use std::collections::BTreeMap;

use crablet_api::core::ResourceList;
use crablet_api::{Quantity, QuantityFormat};

use crate::pod_cgroup::huge_pages;
use crate::qos::quantity;
use crate::translate::cpu_shares;

/// The resource that process IDs are. It is no part of a node's status.
pub const PROCESSES: &str = "pid";

/// What a node keeps from pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reserved {
    /// For Kubernetes' own processes.
    pub kube: ResourceList,
    /// For the system's processes.
    pub system: ResourceList,
    /// What is left free by hard eviction.
    pub eviction: ResourceList,
}

/// More of a resource is kept back than there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Resource {resource:?} has a reservation of {reserved} but capacity of {capacity}. Expected capacity >= reservation."
)]
pub struct OverCapacity {
    pub resource: String,
    pub reserved: String,
    pub capacity: String,
}

impl Reserved {
    /// What pods may ask for together, as the node's status tells it.
    pub fn allocatable(&self, capacity: &ResourceList) -> ResourceList {
        let mut left = without(capacity, &[&self.kube, &self.system, &self.eviction]);
        // Huge pages are memory that nobody else gets.
        let huge = Quantity::from_value(
            huge_pages(capacity).values().fold(0, |sum: i64, bytes| sum.saturating_add_unsigned(*bytes)),
        );
        take(&mut left, "memory", &huge);
        left
    }

    /// What all pods together are held to. What hard eviction leaves free is theirs, or there would be nothing to evict
    /// for.
    pub fn enforced(&self, capacity: &ResourceList) -> ResourceList {
        without(capacity, &[&self.kube, &self.system])
    }

    /// Everything of which more is kept back than there is.
    pub fn over(&self, capacity: &ResourceList) -> Vec<OverCapacity> {
        let over = |(resource, has): (&str, &Quantity)| {
            let mut reserved = Quantity::default();
            for list in [&self.system, &self.kube, &self.eviction] {
                reserved += &quantity(list, resource);
            }
            (reserved > *has).then(|| OverCapacity {
                resource: resource.to_owned(),
                reserved: in_bytes(resource, reserved),
                capacity: has.to_string(),
            })
        };
        capacity.iter().filter_map(over).collect()
    }
}

/// The amount as a person reads it, whatever the first of the amounts in it was written as.
fn in_bytes(resource: &str, amount: Quantity) -> String {
    match resource {
        "memory" | "ephemeral-storage" => amount.with_format(QuantityFormat::BinarySi).to_string(),
        _ => amount.to_string(),
    }
}

fn without(capacity: &ResourceList, reserved: &[&ResourceList]) -> ResourceList {
    let mut left = capacity.clone();
    for (name, amount) in reserved.iter().flat_map(|list| list.iter()) {
        take(&mut left, name, amount);
    }
    left
}

fn take(list: &mut ResourceList, name: &str, amount: &Quantity) {
    if let Some(left) = list.get_mut(name) {
        *left -= amount;
        if left.sign() < 0 {
            *left = Quantity::from_value(0);
        }
    }
}

/// What a cgroup is held to. What is absent is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    pub cpu_shares: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
    /// Bytes of huge pages, by the size of a page in bytes; of other sizes there are none.
    pub huge_pages: Option<BTreeMap<u64, u64>>,
}

impl Held {
    /// To all of these amounts.
    pub fn to(amounts: &ResourceList) -> Held {
        let bytes = |name: &str| amounts.get(name).map(|amount| amount.value().unsigned_abs());
        Held {
            memory: bytes("memory"),
            processes: bytes(PROCESSES),
            huge_pages: Some(huge_pages(amounts)),
            ..Held::to_compressible(amounts)
        }
    }

    /// To those that nobody dies of: the CPU.
    pub fn to_compressible(amounts: &ResourceList) -> Held {
        let shares = |amount: &Quantity| cpu_shares(amount.milli_value()).unsigned_abs();
        Held { cpu_shares: amounts.get("cpu").map(shares), ..Held::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> ResourceList {
        let parts = text.split_whitespace().map(|part| part.split_once('=').unwrap());
        parts.map(|(name, amount)| (name, amount.parse().unwrap())).collect()
    }

    fn text(list: &ResourceList) -> String {
        list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    fn reserved() -> Reserved {
        Reserved {
            kube: list("cpu=100m memory=256Mi pid=1000"),
            system: list("cpu=400m memory=768Mi ephemeral-storage=1Gi"),
            eviction: list("memory=100Mi ephemeral-storage=2Gi"),
        }
    }

    const CAPACITY: &str = "cpu=2 memory=4Gi ephemeral-storage=10Gi pid=32768 pods=110";

    #[test]
    fn pods_may_ask_for_what_nobody_keeps_back_and_use_what_eviction_leaves_free_too() {
        let (reserved, capacity) = (reserved(), list(CAPACITY));
        assert_eq!(
            text(&reserved.allocatable(&capacity)),
            "cpu=1500m ephemeral-storage=7Gi memory=2972Mi pid=31768 pods=110"
        );
        assert_eq!(
            text(&reserved.enforced(&capacity)),
            "cpu=1500m ephemeral-storage=9Gi memory=3Gi pid=31768 pods=110"
        );
    }

    #[test]
    fn huge_pages_are_taken_from_the_memory_that_pods_may_ask_for_and_not_from_what_they_are_held_to() {
        let capacity = list("memory=4Gi hugepages-2Mi=512Mi hugepages-1Gi=1Gi");
        let allocatable = Reserved::default().allocatable(&capacity);
        assert_eq!(text(&allocatable), "hugepages-1Gi=1Gi hugepages-2Mi=512Mi memory=2560Mi");
        let enforced = Reserved::default().enforced(&capacity);
        assert_eq!(Held::to(&enforced).memory, Some(4 << 30));
        let pages = BTreeMap::from([(2 << 20, 512 << 20), (1 << 30, 1 << 30)]);
        assert_eq!(Held::to(&enforced).huge_pages, Some(pages));
    }

    #[test]
    fn nothing_becomes_less_than_nothing() {
        let capacity = list("cpu=100m memory=1Mi");
        let left = reserved().allocatable(&capacity);
        assert_eq!(text(&left), "cpu=0 memory=0");
        assert_eq!(text(&reserved().enforced(&capacity)), "cpu=0 memory=0");
    }

    #[test]
    fn who_keeps_back_more_than_there_is_is_told_all_of_it() {
        let capacity = list("cpu=400m memory=1Gi ephemeral-storage=10Gi");
        let over: Vec<_> = reserved().over(&capacity).iter().map(ToString::to_string).collect();
        assert_eq!(
            over,
            [
                "Resource \"cpu\" has a reservation of 500m but capacity of 400m. Expected capacity >= reservation.",
                "Resource \"memory\" has a reservation of 1124Mi but capacity of 1Gi. Expected capacity >= reservation.",
            ]
        );
        assert_eq!(reserved().over(&list("cpu=500m memory=1124Mi")), [], "all of it may be kept back");
    }

    #[test]
    fn the_system_is_held_to_what_is_kept_for_it_and_to_its_cpu_alone_where_it_must_not_die() {
        let system = list("cpu=400m memory=768Mi pid=100");
        let whole = Held {
            cpu_shares: Some(409),
            memory: Some(768 << 20),
            processes: Some(100),
            huge_pages: Some(BTreeMap::new()),
        };
        assert_eq!(Held::to(&system), whole);
        assert_eq!(Held::to_compressible(&system), Held { cpu_shares: Some(409), ..Held::default() });
        assert_eq!(Held::to_compressible(&list("memory=1Gi")), Held::default());
    }
}
