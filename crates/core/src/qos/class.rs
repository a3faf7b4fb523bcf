//! The QoS class of a pod, and whether it is critical.

use crablet_api::Quantity;
use crablet_api::core::{Pod, PodQOSClass, ResourceList};
use crablet_cgroup_names::QosClass;

use super::PodLevel;
use crate::labels::{CONFIG_MIRROR, CONFIG_SOURCE};

/// Pods of this priority and above are critical.
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The QoS class of a pod: the one in its status, because it stays the same for as long as the pod lives; else the
/// one its spec has.
pub fn qos_class(pod: &Pod, pod_level: PodLevel) -> QosClass {
    match &pod.status.qos_class {
        Some(PodQOSClass::Guaranteed) => QosClass::Guaranteed,
        Some(PodQOSClass::Burstable) => QosClass::Burstable,
        Some(PodQOSClass::BestEffort) => QosClass::BestEffort,
        Some(PodQOSClass::Other(_)) | None => computed_qos_class(pod, pod_level),
    }
}

/// The QoS class of a pod, as its status is to tell it.
pub fn qos_class_for_status(pod: &Pod, pod_level: PodLevel) -> PodQOSClass {
    match qos_class(pod, pod_level) {
        QosClass::Guaranteed => PodQOSClass::Guaranteed,
        QosClass::Burstable => PodQOSClass::Burstable,
        QosClass::BestEffort => PodQOSClass::BestEffort,
    }
}

/// The QoS class that a pod's spec has.
fn computed_qos_class(pod: &Pod, pod_level: PodLevel) -> QosClass {
    let mut total = Totals::default();
    let mut guaranteed = true;
    match &pod.spec.resources {
        Some(resources) if pod_level == PodLevel::Counted => {
            total.requests.add(&resources.requests);
            if !resources.limits.is_empty() {
                guaranteed = total.limits.add(&resources.limits);
            }
        }
        Some(_) | None => {
            // Ephemeral containers cannot ask for resources.
            for container in pod.spec.init_and_regular_containers() {
                total.requests.add(&container.resources.requests);
                guaranteed &= total.limits.add(&container.resources.limits);
            }
        }
    }
    if total.requests.is_empty() && total.limits.is_empty() {
        QosClass::BestEffort
    } else if guaranteed && total.requests == total.limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// Whether a pod came from elsewhere than the API server.
pub fn is_static(pod: &Pod) -> bool {
    pod.metadata.annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api")
}

/// Whether the node would rather evict another pod than this one, whatever that one asks for.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod)
        || pod.metadata.annotations.contains_key(CONFIG_MIRROR)
        || pod.spec.priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
}

/// Whether the node cannot do without this pod.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && pod.spec.priority_class_name == "system-node-critical"
}

#[derive(Default)]
struct Totals {
    requests: Compute,
    limits: Compute,
}

/// Amounts of the two resources that make a class; absent where there is nothing.
#[derive(Default, PartialEq)]
struct Compute {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl Compute {
    /// Adds what is positive; says whether both were.
    fn add(&mut self, list: &ResourceList) -> bool {
        let cpu = add_positive(&mut self.cpu, list.get("cpu"));
        let memory = add_positive(&mut self.memory, list.get("memory"));
        cpu && memory
    }

    fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.memory.is_none()
    }
}

fn add_positive(sum: &mut Option<Quantity>, amount: Option<&Quantity>) -> bool {
    match amount.filter(|amount| amount.sign() > 0) {
        Some(amount) => {
            *sum = Some(match sum.take() {
                Some(sum) => sum + amount,
                None => amount.clone(),
            });
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn class(spec: &str) -> QosClass {
        qos_class(&pod_yaml(&format!("metadata: {{name: p}}\nspec: {spec}")), PodLevel::Counted)
    }

    const BOTH: &str = "{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: 1024Mi}}";

    #[test]
    fn a_class_follows_from_requests_and_limits() {
        for (resources, expected) in [
            ("{}", QosClass::BestEffort),
            ("{requests: {cpu: 0, memory: 0}}", QosClass::BestEffort),
            ("{requests: {ephemeral-storage: 1Gi}, limits: {example.com/gpu: 1}}", QosClass::BestEffort),
            ("{requests: {cpu: 1m}}", QosClass::Burstable),
            ("{limits: {cpu: 1}, requests: {cpu: 1}}", QosClass::Burstable),
            ("{limits: {cpu: 1, memory: 1Gi}}", QosClass::Burstable),
            ("{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1}}", QosClass::Burstable),
            ("{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 2Gi}}", QosClass::Burstable),
            (BOTH, QosClass::Guaranteed),
        ] {
            let spec = format!("{{containers: [{{name: c, resources: {resources}}}]}}");
            assert_eq!(class(&spec), expected, "{resources}");
        }
    }

    #[test]
    fn every_container_counts_even_those_that_only_initialise() {
        let both = format!("{{name: c, resources: {BOTH}}}");
        assert_eq!(class(&format!("{{containers: [{both}, {{name: d}}]}}")), QosClass::Burstable);
        assert_eq!(
            class(&format!("{{containers: [{both}], initContainers: [{{name: d}}]}}")),
            QosClass::Burstable
        );
        assert_eq!(
            class(&format!("{{containers: [{both}], initContainers: [{both}]}}")),
            QosClass::Guaranteed
        );
    }

    #[test]
    fn resources_of_the_whole_pod_stand_for_those_of_its_containers() {
        let containers = "containers: [{name: c, resources: {requests: {cpu: 1m}}}]";
        assert_eq!(class(&format!("{{{containers}, resources: {BOTH}}}")), QosClass::Guaranteed);
        assert_eq!(class(&format!("{{{containers}, resources: {{}}}}")), QosClass::BestEffort);
        assert_eq!(
            class(&format!("{{{containers}, resources: {{limits: {{cpu: 1}}, requests: {{cpu: 1}}}}}}")),
            QosClass::Burstable
        );
        let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {{{containers}, resources: {BOTH}}}"));
        assert_eq!(qos_class(&pod, PodLevel::Ignored), QosClass::Burstable);
    }

    #[test]
    fn the_class_in_the_status_stays() {
        let mut pod = pod_yaml("metadata: {name: p}\nspec: {containers: [{name: c}]}");
        pod.status.qos_class = Some(PodQOSClass::Guaranteed);
        assert_eq!(qos_class(&pod, PodLevel::Counted), QosClass::Guaranteed);
        pod.status.qos_class = Some("Sleepy".into());
        assert_eq!(qos_class(&pod, PodLevel::Counted), QosClass::BestEffort);
    }

    #[test]
    fn static_mirror_and_highly_prior_pods_are_critical() {
        let pod = |metadata: &str, spec: &str| {
            pod_yaml(&format!(
                "metadata: {{name: p, {metadata}}}\nspec: {{containers: [{{name: c}}], {spec}}}"
            ))
        };
        assert!(is_critical(&pod("annotations: {kubernetes.io/config.source: file}", "")));
        assert!(!is_critical(&pod("annotations: {kubernetes.io/config.source: api}", "")));
        assert!(is_critical(&pod("annotations: {kubernetes.io/config.mirror: ''}", "")));
        assert!(!is_critical(&pod("", "priority: 1999999999")));
        let cluster = pod("", "priority: 2000000000, priorityClassName: system-cluster-critical");
        assert!(is_critical(&cluster) && !is_node_critical(&cluster));
        assert!(is_node_critical(&pod("", "priority: 2000001000, priorityClassName: system-node-critical")));
        assert!(!is_node_critical(&pod("", "priorityClassName: system-node-critical")));
    }
}
