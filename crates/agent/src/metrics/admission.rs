//! What is counted of admission, under upstream's names.

use crablet_metrics::{Counter, Family, RegisterError, Registry};

/// Counts pods that the node does not take, and those that have to leave it.
#[derive(Clone)]
pub(crate) struct AdmissionMetrics {
    rejections: Family<Counter, 1>,
    preemptions: Family<Counter, 1>,
    infeasible_resizes: Family<Counter, 1>,
    deferred_resizes_accepted: Family<Counter, 1>,
}

impl AdmissionMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<AdmissionMetrics, RegisterError> {
        Ok(AdmissionMetrics {
            rejections: registry.counter_family(
                "kubelet_admission_rejections_total",
                "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
                ["reason"],
            )?,
            preemptions: registry.counter_family(
                "kubelet_preemptions",
                "[ALPHA] Cumulative number of pod preemptions by preemption resource",
                ["preemption_signal"],
            )?,
            infeasible_resizes: registry.counter_family(
                "kubelet_pod_infeasible_resizes_total",
                "[ALPHA] Number of infeasible resizes for pods.",
                ["reason_detail"],
            )?,
            deferred_resizes_accepted: registry.counter_family(
                "kubelet_pod_deferred_accepted_resizes_total",
                "[ALPHA] Cumulative number of resizes that were accepted after being deferred.",
                ["retry_trigger"],
            )?,
        })
    }

    /// A pod has to leave for one that lacks this resource, before others that it may lack too.
    pub(crate) fn preempted(&self, resource: &str) {
        self.preemptions.with([resource]).increment();
    }

    /// A pod can never have what it asks for.
    pub(crate) fn infeasible_resize(&self, why: &str) {
        self.infeasible_resizes.with([why]).increment();
    }

    /// A pod gets what it waited for.
    pub(crate) fn deferred_resize_accepted(&self, trigger: &str) {
        self.deferred_resizes_accepted.with([trigger]).increment();
    }

    /// A pod is not taken. Reasons that name what is missing count as one.
    pub(crate) fn rejected(&self, reason: &str) {
        let reason = match reason {
            known if KNOWN_REASONS.contains(&known) => known,
            other if other.starts_with("OutOf") => "OutOfExtendedResources",
            _ => "Other",
        };
        self.rejections.with([reason]).increment();
    }
}

/// The reasons that are told apart.
const KNOWN_REASONS: &[&str] = &[
    "AppArmor",
    "SysctlForbidden",
    "TopologyAffinityError",
    "Evicted",
    "NodeShutdown",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "PodLevelResourcesNotSupported",
    "PodFeatureUnsupported",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    "VolumeAttachmentLimitExceeded",
    "node(s) had taints that the pod didn't tolerate",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_nobody_knows_count_as_one() {
        let registry = Registry::new();
        let metrics = AdmissionMetrics::register(&registry).unwrap();
        for reason in ["OutOfcpu", "OutOfexample.com/x", "OutOfexample.com/y", "What"] {
            metrics.rejected(reason);
        }
        let text = registry.render();
        for line in
            ["{reason=\"OutOfcpu\"} 1\n", "{reason=\"OutOfExtendedResources\"} 2\n", "{reason=\"Other\"} 1\n"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
