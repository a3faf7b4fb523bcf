//! What an evicted pod and those who look after it are told.

use std::fmt::Write as _;

use crablet_api::core::Pod;
use crablet_api::{Quantity, QuantityFormat};

use super::{ContainerUsage, Observations, PodUsage, Resource, Threshold};
use crate::qos::{PodLevel, pod_level_resources_set, quantity};

/// Why a pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The message of its status, its condition and its event.
    pub message: String,
    /// The event's annotations, by their keys.
    pub annotations: Vec<(&'static str, String)>,
}

/// Says why a pod goes: what the node ran short of, and which of its containers use more than they asked for. `met` are the
/// thresholds that something is done about. Of ephemeral containers, which cannot ask for anything, nothing is said.
pub fn explain(
    pod: &Pod,
    resource: Resource,
    usage: Option<&PodUsage>,
    met: &[Threshold],
    observations: &Observations,
    level: PodLevel,
) -> Explanation {
    let what = resource.as_str();
    let mut message = format!("The node was low on resource: {what}. ");
    let seen = met.iter().filter(|threshold| threshold.signal.resource() == resource).find_map(|threshold| {
        let seen = observations.get(&threshold.signal)?;
        Some((threshold.quantity(seen.capacity), seen.available_of(threshold.signal)))
    });
    if let Some((quantity, available)) = seen {
        let _ = write!(message, "Threshold quantity: {quantity}, available: {available}. ");
    }
    let Some(usage) = usage else { return Explanation { message, annotations: Vec::new() } };

    let mut annotations = Vec::new();
    if let Some((used, request)) = whole(pod, resource, usage, level) {
        let name = &pod.metadata.name;
        let _ = write!(
            message,
            "Pod {name} was using {used}, request is {request}, has larger consumption of {what}. "
        );
        annotations.push(("offending_pod", name.to_string()));
        annotations.push(("offending_pod_usage", used.to_string()));
    }
    let (mut names, mut amounts) = (Vec::new(), Vec::new());
    for container in &usage.containers {
        let spec = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let spec = spec.into_iter().find(|spec| spec.name == container.name);
        let (Some(spec), Some(used)) = (spec, used(container, resource)) else { continue };
        let request = quantity(&spec.resources.requests, what);
        if used > request {
            let name = &container.name;
            let _ = write!(
                message,
                "Container {name} was using {used}, request is {request}, has larger consumption of {what}. "
            );
            names.push(name.to_string());
            amounts.push(used.to_string());
        }
    }
    annotations.push(("offending_containers", names.join(",")));
    annotations.push(("offending_containers_usage", amounts.join(",")));
    annotations.push(("starved_resource", what.to_owned()));
    Explanation { message, annotations }
}

/// What a pod as a whole uses and asked for, where it asked as a whole.
fn whole<'a>(
    pod: &'a Pod,
    resource: Resource,
    usage: &PodUsage,
    level: PodLevel,
) -> Option<(Quantity, &'a Quantity)> {
    if resource != Resource::Memory || level == PodLevel::Ignored || !pod_level_resources_set(pod) {
        return None;
    }
    let request = pod.spec.resources.as_ref()?.requests.get(resource.as_str())?;
    Some((bytes(usage.memory?), request))
}

fn used(container: &ContainerUsage, resource: Resource) -> Option<Quantity> {
    match resource {
        Resource::Memory => container.memory.map(bytes),
        Resource::EphemeralStorage => {
            Some(bytes(container.rootfs.bytes?.saturating_add(container.logs.bytes?)))
        }
        Resource::Inodes | Resource::Pids => None,
    }
}

fn bytes(value: u64) -> Quantity {
    Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX)).with_format(QuantityFormat::BinarySi)
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;
    use crate::eviction::{Amount, FsUsage, Observation, Signal};
    use crate::testing::at;

    const MI: u64 = 1 << 20;

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}"))
    }

    fn asking(name: &str, memory: &str) -> String {
        match memory {
            "" => format!("{{name: {name}}}"),
            memory => format!("{{name: {name}, resources: {{requests: {{memory: {memory}}}}}}}"),
        }
    }

    /// What containers use, in Mi.
    fn using(containers: &[(&str, u64)]) -> PodUsage {
        let one = |(name, memory): &(&str, u64)| ContainerUsage {
            name: (*name).into(),
            memory: Some(memory * MI),
            ..ContainerUsage::default()
        };
        PodUsage {
            containers: containers.iter().map(one).collect(),
            memory: Some(600 * MI),
            ..PodUsage::default()
        }
    }

    fn explained(pod: &Pod, usage: &PodUsage) -> (String, String) {
        let found = explain(pod, Resource::Memory, Some(usage), &[], &Observations::new(), PodLevel::Counted);
        let rest = found.message.strip_prefix("The node was low on resource: memory. ").unwrap().to_owned();
        let annotations: Vec<String> =
            found.annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (rest, annotations.join(" "))
    }

    #[test]
    fn containers_that_use_more_than_they_asked_for_are_named() {
        let of = |name: &str, used: &str, request: &str| {
            format!(
                "Container {name} was using {used}, request is {request}, has larger consumption of memory. "
            )
        };
        let init = format!(
            "initContainers: [{}, {}, {}]",
            asking("i", "100Mi"),
            asking("s1", "100Mi").replace("name: s1", "name: s1, restartPolicy: Always"),
            asking("s2", "").replace("name: s2", "name: s2, restartPolicy: Always"),
        );
        let spec = format!(
            "{{containers: [{}, {}, {}], {init}, ephemeralContainers: [{{name: e}}]}}",
            asking("a", "200Mi"),
            asking("b", "300Mi"),
            asking("c", "")
        );
        let pod = pod(&spec);
        for (usage, expected, names, amounts) in [
            (using(&[("s1", 100), ("a", 200)]), String::new(), "", ""),
            (using(&[("i", 150)]), of("i", "150Mi", "100Mi"), "i", "150Mi"),
            (using(&[("s1", 101), ("a", 1)]), of("s1", "101Mi", "100Mi"), "s1", "101Mi"),
            (using(&[("a", 250), ("b", 250)]), of("a", "250Mi", "200Mi"), "a", "250Mi"),
            (using(&[("e", 900), ("a", 1)]), String::new(), "", ""),
            (
                using(&[("s2", 250), ("a", 1), ("c", 200)]),
                of("s2", "250Mi", "0") + &of("c", "200Mi", "0"),
                "s2,c",
                "250Mi,200Mi",
            ),
            (
                using(&[("s1", 150), ("s2", 2), ("a", 50), ("b", 400)]),
                of("s1", "150Mi", "100Mi") + &of("s2", "2Mi", "0") + &of("b", "400Mi", "300Mi"),
                "s1,s2,b",
                "150Mi,2Mi,400Mi",
            ),
        ] {
            let (message, annotations) = explained(&pod, &usage);
            assert_eq!(message, expected);
            assert_eq!(
                annotations,
                format!(
                    "offending_containers={names} offending_containers_usage={amounts} starved_resource=memory"
                )
            );
        }
    }

    #[test]
    fn a_pod_that_asked_as_a_whole_is_told_what_it_uses_as_a_whole() {
        let spec =
            "{resources: {requests: {memory: 250Mi}, limits: {memory: 1000Mi}}, containers: [{name: a}]}";
        let (message, annotations) = explained(&pod(spec), &using(&[("a", 350)]));
        assert_eq!(
            message,
            "Pod p was using 600Mi, request is 250Mi, has larger consumption of memory. Container a was using 350Mi, \
             request is 0, has larger consumption of memory. "
        );
        assert!(annotations.starts_with("offending_pod=p offending_pod_usage=600Mi offending_containers=a "));
        let ignored = explain(
            &pod(spec),
            Resource::Memory,
            Some(&using(&[])),
            &[],
            &Observations::new(),
            PodLevel::Ignored,
        );
        assert!(!ignored.message.contains("Pod p"));
    }

    #[test]
    fn what_was_to_be_left_and_what_is_left_are_told_of_the_resource_alone() {
        let (pod, usage) = (pod("{containers: [{name: a}]}"), PodUsage::default());
        let memory = Threshold::hard(Signal::MemoryAvailable, Amount::Quantity("100Mi".parse().unwrap()));
        let inodes = Threshold::hard(Signal::NodeFsInodesFree, Amount::Percentage(5.0));
        let met = [memory, inodes];
        let seen = |available, capacity| Observation { available, capacity, at: at(0) };
        let observations = Observations::from([
            (Signal::MemoryAvailable, seen(50 << 20, 1 << 30)),
            (Signal::NodeFsInodesFree, seen(12_000, 1_000_000)),
        ]);
        let message =
            |resource| explain(&pod, resource, Some(&usage), &met, &observations, PodLevel::Counted).message;
        assert_eq!(
            message(Resource::Memory),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        );
        assert_eq!(
            message(Resource::Inodes),
            "The node was low on resource: inodes. Threshold quantity: 50000, available: 12k. "
        );
        assert_eq!(message(Resource::Pids), "The node was low on resource: pids. ");
    }

    #[test]
    fn what_containers_take_on_disk_is_what_they_wrote_and_their_logs() {
        let spec = "{containers: [{name: a, resources: {requests: {ephemeral-storage: 1Gi}}}, {name: b}]}";
        let fs = |bytes| FsUsage { bytes, inodes: None };
        let container = |name: &str, rootfs, logs| ContainerUsage {
            name: name.into(),
            rootfs: fs(rootfs),
            logs: fs(logs),
            ..ContainerUsage::default()
        };
        let usage = PodUsage {
            containers: vec![
                container("a", Some(1 << 30), Some(1 << 30)),
                // Half of it is not known.
                container("b", Some(1 << 30), None),
            ],
            ..PodUsage::default()
        };
        let found = explain(
            &pod(spec),
            Resource::EphemeralStorage,
            Some(&usage),
            &[],
            &Observations::new(),
            PodLevel::Counted,
        );
        assert_eq!(
            found.message,
            "The node was low on resource: ephemeral-storage. Container a was using 2Gi, request is 1Gi, has larger \
             consumption of ephemeral-storage. "
        );
    }

    #[test]
    fn of_a_pod_that_nothing_is_known_of_nothing_is_said() {
        let pod = pod("{containers: [{name: a}]}");
        let found = explain(&pod, Resource::Memory, None, &[], &Observations::new(), PodLevel::Counted);
        assert_eq!(found.message, "The node was low on resource: memory. ");
        assert!(found.annotations.is_empty());
    }
}
