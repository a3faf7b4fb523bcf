//! Whether there is enough of every resource.

use std::collections::BTreeMap;

use crablet_api::core::{Container, Pod, ResourceList};
use crablet_api::resource_names::{is_extended, is_huge_pages};
use crablet_api::{Gate, Text};

use super::{Input, Insufficient};
use crate::qos::{self, Overhead, PodLevel};

/// The resources that there is not enough of: pods first, then CPU, memory, storage, and the rest by name.
pub(super) fn insufficient(input: &Input) -> Vec<Insufficient> {
    let allocatable = &input.node.status.allocatable;
    let pods = i64::try_from(input.others.len()).unwrap_or(i64::MAX);
    let mut asked = vec![("pods".into(), 1, pods, whole(allocatable, "pods"))];

    let level = PodLevel::from(input.features);
    let wanted = without_foreign(input);
    let wanted = amounts(&qos::pod_requests(&wanted, level, Overhead::Included));
    let mut used: BTreeMap<Text, i64> = BTreeMap::new();
    for other in input.others {
        for (name, amount) in amounts(&qos::pod_requests(other, level, Overhead::Included)) {
            *used.entry(name).or_default() += amount;
        }
    }
    let mut names: Vec<&Text> = wanted.keys().collect();
    names.sort_by_key(|name| (rank(name), *name));
    let capacity = amounts(allocatable);
    asked.extend(names.into_iter().map(|name| {
        let amount = |list: &BTreeMap<Text, i64>| list.get(name).copied().unwrap_or(0);
        (name.clone(), amount(&wanted), amount(&used), amount(&capacity))
    }));

    let lacking = |(resource, requested, used, capacity): (Text, i64, i64, i64)| {
        (requested > 0 && requested > capacity - used).then_some(Insufficient {
            resource,
            requested,
            used,
            capacity,
        })
    };
    asked.into_iter().filter_map(lacking).collect()
}

fn rank(name: &str) -> u8 {
    match name {
        "cpu" => 0,
        "memory" => 1,
        "ephemeral-storage" => 2,
        _ => 3,
    }
}

fn whole(list: &ResourceList, name: &str) -> i64 {
    list.get(name).map_or(0, crablet_api::Quantity::value)
}

/// Amounts as whole numbers, CPU in thousandths; names that are no resources of a node are left out.
fn amounts(list: &ResourceList) -> BTreeMap<Text, i64> {
    let counted = list.iter().filter(|(name, _)| rank(name) < 3 || is_scalar(name));
    let amount = |(name, amount): (&str, &crablet_api::Quantity)| {
        let amount = if name == "cpu" { amount.milli_value() } else { amount.value() };
        (name.into(), amount)
    };
    counted.map(amount).collect()
}

fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || is_huge_pages(name)
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// Whether a resource claim may stand behind a resource: an extended one, or one named after a device class.
fn is_claimable(name: &str) -> bool {
    is_extended(name) || name.starts_with("deviceclass.resource.kubernetes.io/")
}

/// The pod without what it asks for that the node knows nothing of: the cluster has it, or a resource claim.
fn without_foreign(input: &Input) -> Pod {
    let allocatable = &input.node.status.allocatable;
    let mappings = input.pod.status.extended_resource_claim_status.as_deref();
    let mappings = mappings.map(|status| &*status.request_mappings).unwrap_or_default();
    let is_claimed = |resource: &str, container: &str| {
        input.features.enabled(Gate::DRAExtendedResource)
            && mappings
                .iter()
                .any(|mapping| *mapping.resource_name == *resource && *mapping.container_name == *container)
    };
    let filter = |container: &mut Container| {
        let name = container.name.clone();
        container.resources.requests.retain(|resource, _| {
            let claimed = is_claimable(resource) && is_claimed(resource, &name);
            let unheard_of = is_extended(resource) && !allocatable.contains_key(resource);
            !claimed && !unheard_of
        });
    };
    let mut pod = input.pod.clone();
    pod.spec.init_and_regular_containers_mut().for_each(filter);
    pod
}
