//! What containers, and pods as a whole, ask for and may use at most.

use std::collections::{BTreeMap, BTreeSet};

use crate::Quantity;
use crate::core::{
    Container, ContainerRestartPolicy, OSName, PodSpec, ResourceClaim, ResourceList, ResourceRequirements,
};
use crate::names::{dns1123_label_errors, qualified_name_errors};
use crate::resource_names::{huge_page_size, is_extended, is_huge_pages, is_native};

use super::error::{Errors, Word};
use super::path::Path;
use super::text;

/// What quotas and nodes count beside what containers can ask for.
const STANDARD_RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

/// What is counted in whole things.
const COUNTED_RESOURCES: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn check_container_resources(
    errors: &mut Errors,
    path: &Path<'_>,
    resources: &ResourceRequirements,
    pod_claims: &BTreeSet<&str>,
) {
    check_requirements(errors, path, resources, pod_claims, check_container_resource_name);
}

/// Checks what the node adds for the pod itself; upstream takes it for limits.
pub(super) fn check_overhead(errors: &mut Errors, path: &Path<'_>, overhead: &ResourceList) {
    let limits = ResourceRequirements { limits: overhead.clone(), ..Default::default() };
    check_container_resources(errors, path, &limits, &BTreeSet::new());
}

/// Checks the resources of the pod as a whole, and that its containers fit into them.
pub(super) fn check_pod_resources(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &PodSpec,
    pod_claims: &BTreeSet<&str>,
) {
    let Some(resources) = spec.resources.as_deref() else { return };
    if spec.os.as_ref().is_some_and(|os| os.name == OSName::Windows) {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if !resources.claims.is_empty() {
        errors.forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    check_requirements(errors, path, resources, pod_claims, check_pod_resource_name);
    check_containers_fit(errors, path, spec, resources);
}

fn check_requirements(
    errors: &mut Errors,
    path: &Path<'_>,
    resources: &ResourceRequirements,
    pod_claims: &BTreeSet<&str>,
    check_name: fn(&mut Errors, &Path<'_>, &str),
) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, limit) in resources.limits.iter() {
        let path = limits.key(name);
        check_name(errors, &path, name);
        check_resource_quantity(errors, &path, name, limit);
        check_huge_pages(errors, &path, name, limit);
    }
    for (name, request) in resources.requests.iter() {
        let path = requests.key(name);
        check_name(errors, &path, name);
        check_resource_quantity(errors, &path, name, request);
        let overcommits = is_native(name) && !is_huge_pages(name);
        match resources.limits.get(name) {
            Some(limit) if request != limit && !overcommits => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.invalid(&requests, request.to_string().as_str(), detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(&requests, request.to_string().as_str(), detail);
            }
            Some(_) => {}
            None if overcommits => {}
            None => errors.required(&limits, "Limit must be set for non overcommitable resources"),
        }
        check_huge_pages(errors, &path, name, request);
    }
    let names: Vec<&str> = resources.limits.keys().chain(resources.requests.keys()).collect();
    let has_compute = names.iter().any(|name| matches!(*name, "cpu" | "memory"));
    if !has_compute && names.iter().any(|name| is_huge_pages(name)) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    check_claims(errors, &path.child("claims"), &resources.claims, pod_claims);
}

pub(super) fn check_resource_quantity(errors: &mut Errors, path: &Path<'_>, name: &str, quantity: &Quantity) {
    if quantity.sign() < 0 {
        errors.invalid(path, quantity.to_string().as_str(), text::NOT_NEGATIVE);
    }
    let counted = COUNTED_RESOURCES.contains(&name) || is_extended(name);
    if counted && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, Word(&quantity.to_string()), "must be an integer");
    }
}

fn check_huge_pages(errors: &mut Errors, path: &Path<'_>, name: &str, quantity: &Quantity) {
    let Some(size) = huge_page_size(name) else { return };
    let divisible = size.parse::<Quantity>().is_ok_and(|size| {
        let whole = size.sign() > 0 && size.milli_value() % 1000 == 0;
        whole && quantity.value().checked_rem(size.value()) == Some(0)
    });
    if !divisible {
        let detail = format!("{quantity} is not positive integer multiple of {name}");
        errors.invalid(path, quantity.to_string().as_str(), detail);
    }
}

/// Whether the name is well formed, and if not, why.
fn check_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) -> bool {
    let problems = qualified_name_errors(name);
    for problem in &problems {
        errors.invalid(path, Word(name), problem.as_str());
    }
    if !problems.is_empty() {
        return false;
    }
    let standard = STANDARD_RESOURCES.contains(&name)
        || COUNTED_RESOURCES.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !standard {
        errors.invalid(path, Word(name), "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

fn check_container_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    check_resource_name(errors, path, name);
    let for_containers = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
    if !name.contains('/') {
        if !for_containers {
            errors.invalid(path, Word(name), "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, Word(name), "doesn't follow extended resource name standard");
    }
}

fn check_pod_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    let for_pods = matches!(name, "cpu" | "memory") || is_huge_pages(name);
    if check_resource_name(errors, path, name) && !for_pods {
        errors.not_supported(path, Word(name), &["cpu", "hugepages-", "memory"]);
    }
}

fn check_claims(errors: &mut Errors, path: &Path<'_>, claims: &[ResourceClaim], pod_claims: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = claim.name.as_ref();
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(&path, name);
        } else {
            let mut key = name.to_owned();
            if !claim.request.is_empty() {
                let problems = dns1123_label_errors(&claim.request);
                errors.invalid_each(&path.child("request"), &claim.request, problems);
                key = format!("{name}/{}", claim.request);
            }
            if seen.contains(&key) {
                errors.duplicate(&path, key.as_str());
            } else if claim.request.is_empty() {
                // The whole claim overlaps with each of its requests that was named before.
                let requests =
                    seen.iter().filter(|other| other.split_once('/').is_some_and(|it| it.0 == name));
                requests.for_each(|_| errors.duplicate(&path, name));
            }
            seen.insert(key);
        }
        if !pod_claims.contains(name) {
            let known: Vec<&str> = pod_claims.iter().copied().collect();
            let known =
                if known.is_empty() { " which is empty".into() } else { format!(": {}", known.join(", ")) };
            errors.not_found(
                &path,
                name,
                format!("must be one of the names in pod.spec.resourceClaims{known}"),
            );
        }
    }
}

fn check_containers_fit(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec, pod: &ResourceRequirements) {
    let (requests, limits) = (path.child("requests"), path.child("limits"));
    for (name, total) in total(spec, |container| &container.resources.requests) {
        if let Some(of_pod) = pod.requests.get(name).filter(|of_pod| total > **of_pod) {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.invalid(&requests.key(name), of_pod.to_string().as_str(), detail);
        }
    }
    for (name, total) in total(spec, |container| &container.resources.limits) {
        if let Some(of_pod) = pod.limits.get(name).filter(|of_pod| total > **of_pod)
            && is_huge_pages(name)
        {
            let detail = format!("must be greater than or equal to aggregate container limits of {total}");
            errors.invalid(&limits.key(name), of_pod.to_string().as_str(), detail);
        }
    }
    let containers = path.child("containers");
    for (index, container) in spec.containers.iter().enumerate() {
        let path = containers.index(index);
        for (name, limit) in container.resources.limits.iter() {
            if let Some(of_pod) = pod.limits.get(name).filter(|of_pod| limit > *of_pod) {
                let detail = format!("must be less than or equal to pod limits of {of_pod}");
                let path = path.key(name);
                errors.invalid(&path.child("limits"), limit.to_string().as_str(), detail);
            }
        }
    }
}

/// What the containers need together. Sidecars run beside everything that starts after them, other init
/// containers only one at a time.
fn total<'a>(
    spec: &'a PodSpec,
    amounts: impl Fn(&'a Container) -> &'a ResourceList,
) -> BTreeMap<&'a str, Quantity> {
    let mut running = BTreeMap::new();
    for container in &spec.containers {
        add(&mut running, amounts(container).iter());
    }
    let (mut sidecars, mut starting) = (BTreeMap::new(), BTreeMap::new());
    for container in &spec.init_containers {
        let mut needed = BTreeMap::new();
        if container.restart_policy == Some(ContainerRestartPolicy::Always) {
            add(&mut running, amounts(container).iter());
            add(&mut sidecars, amounts(container).iter());
        } else {
            add(&mut needed, amounts(container).iter());
        }
        add(&mut needed, sidecars.iter().map(|(name, amount)| (*name, amount)));
        raise(&mut starting, needed);
    }
    raise(&mut running, starting);
    running
}

fn add<'a, 'q>(
    sums: &mut BTreeMap<&'a str, Quantity>,
    amounts: impl Iterator<Item = (&'a str, &'q Quantity)>,
) {
    for (name, amount) in amounts {
        sums.entry(name).and_modify(|sum| *sum += amount).or_insert_with(|| amount.clone());
    }
}

fn raise<'a>(highest: &mut BTreeMap<&'a str, Quantity>, amounts: BTreeMap<&'a str, Quantity>) {
    for (name, amount) in amounts {
        match highest.get_mut(name) {
            Some(high) if *high >= amount => {}
            Some(high) => *high = amount,
            None => {
                highest.insert(name, amount);
            }
        }
    }
}
