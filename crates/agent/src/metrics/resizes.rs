//! What is counted of pods whose resources change while they run, under upstream's names.

use std::time::Duration;

use crablet_api::core::{Pod, ResourceList};
use crablet_api::{FeatureGates, Quantity};
use crablet_core::resize::resizable;
use crablet_metrics::{Counter, Family, Histogram, RegisterError, Registry};

/// The upper bounds of what a resize takes, in milliseconds.
const DURATIONS: [f64; 14] = [
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0, 120_000.0,
    300_000.0, 600_000.0,
];

/// Counters of resizes.
pub(crate) struct Resizes {
    requested: Family<Counter, 3>,
    durations: Family<Histogram, 1>,
}

impl Resizes {
    pub(super) fn register(registry: &Registry) -> Result<Resizes, RegisterError> {
        Ok(Resizes {
            requested: registry.counter_family(
                "kubelet_container_requested_resizes_total",
                "[ALPHA] Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
                ["resource", "requirement", "operation"],
            )?,
            durations: registry.histogram_family(
                "kubelet_pod_resize_duration_milliseconds",
                "[ALPHA] Duration in milliseconds to actuate a pod resize",
                ["success"],
                &DURATIONS,
            )?,
        })
    }

    /// A pod is wanted in another form: counts what its containers are to have more and less of.
    pub(crate) fn asked(&self, before: &Pod, now: &Pod, features: &FeatureGates) {
        for old in resizable(before, features) {
            let Some(new) = resizable(now, features).find(|new| new.name == old.name) else { continue };
            let (old, new) = (&old.resources, &new.resources);
            for resource in ["memory", "cpu"] {
                for (requirement, old, new) in
                    [("requests", &old.requests, &new.requests), ("limits", &old.limits, &new.limits)]
                {
                    if let Some(operation) = operation(old, new, resource) {
                        self.requested.with([resource, requirement, operation]).increment();
                    }
                }
            }
        }
    }

    /// Containers were given other resources, or not all of them.
    pub(crate) fn done(&self, is_success: bool, took: Duration) {
        let success = if is_success { "true" } else { "false" };
        self.durations.with([success]).observe(took.as_millis() as f64);
    }
}

fn operation(old: &ResourceList, new: &ResourceList, resource: &str) -> Option<&'static str> {
    let amount = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero()).cloned();
    let (old, new): (Option<Quantity>, Option<Quantity>) = (amount(old), amount(new));
    match (old, new) {
        (None, None) => None,
        (None, Some(_)) => Some("add"),
        (Some(_), None) => Some("remove"),
        (Some(old), Some(new)) if new > old => Some("increase"),
        (Some(old), Some(new)) if new < old => Some("decrease"),
        (Some(_), Some(_)) => None,
    }
}
