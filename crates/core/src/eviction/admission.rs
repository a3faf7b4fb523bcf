//! Which pods a node under pressure takes.

use std::collections::BTreeSet;

use crablet_api::core::{Pod, Taint, TaintEffect};
use crablet_api::{FeatureGates, Gate};

use super::{Condition, REASON};
use crate::admission::Rejection;
use crate::qos::{PodLevel, QosClass, is_critical, qos_class};

/// The taint that a node with too little memory gets.
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// Whether a node of which this is said takes a pod: critical ones always, and while memory alone is short, those that ask
/// for something or put up with it.
pub fn admit(pod: &Pod, conditions: &BTreeSet<Condition>, features: &FeatureGates) -> Result<(), Rejection> {
    if conditions.is_empty() || is_critical(pod) {
        return Ok(());
    }
    if conditions.iter().eq([&Condition::MemoryPressure]) {
        let taint =
            Taint { key: MEMORY_PRESSURE.to_owned(), effect: TaintEffect::NoSchedule, ..Taint::default() };
        let compares = features.enabled(Gate::TaintTolerationComparisonOperators);
        let mut tolerations = pod.spec.tolerations.iter();
        if qos_class(pod, PodLevel::from(features)) != QosClass::BestEffort
            || tolerations.any(|toleration| toleration.tolerates(&taint, compares))
        {
            return Ok(());
        }
    }
    let words: Vec<&str> = conditions.iter().map(|condition| condition.as_str()).collect();
    Err(Rejection::new(REASON, format!("The node had condition: [{}]. ", words.join(" "))))
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    #[test]
    fn short_memory_keeps_out_who_asks_for_nothing_and_short_disk_all_but_critical_pods() {
        const BEST_EFFORT: &str = "containers: [{name: c}]";
        const BURSTABLE: &str = "containers: [{name: c, resources: {requests: {cpu: 1m}}}]";
        const GUARANTEED: &str = "containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]";
        let tolerating = |toleration: &str| format!("{BEST_EFFORT}, tolerations: [{toleration}]");
        let critical = format!("{BEST_EFFORT}, priority: 2000000000");
        let memory =
            tolerating("{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}");
        let disk =
            tolerating("{key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}");
        let all = tolerating("{operator: Exists}");
        use Condition::{DiskPressure, MemoryPressure, PidPressure};
        let short_memory = "Evicted: The node had condition: [MemoryPressure]. ";
        let short_disk = "Evicted: The node had condition: [DiskPressure]. ";
        let both = "Evicted: The node had condition: [MemoryPressure DiskPressure]. ";
        for (spec, conditions, expected) in [
            (BEST_EFFORT, &[][..], "taken"),
            (BEST_EFFORT, &[MemoryPressure], short_memory),
            (BURSTABLE, &[MemoryPressure], "taken"),
            (GUARANTEED, &[MemoryPressure], "taken"),
            (&memory, &[MemoryPressure], "taken"),
            (&all, &[MemoryPressure], "taken"),
            (&disk, &[MemoryPressure], short_memory),
            (&critical, &[MemoryPressure], "taken"),
            (BEST_EFFORT, &[DiskPressure], short_disk),
            (GUARANTEED, &[DiskPressure], short_disk),
            (&disk, &[DiskPressure], short_disk),
            (&critical, &[DiskPressure, PidPressure], "taken"),
            (GUARANTEED, &[PidPressure], "Evicted: The node had condition: [PIDPressure]. "),
            (GUARANTEED, &[MemoryPressure, DiskPressure], both),
            (&memory, &[MemoryPressure, DiskPressure], both),
        ] {
            let pod = pod_yaml(&format!("metadata: {{name: p}}\nspec: {{{spec}}}"));
            let conditions = conditions.iter().copied().collect();
            let found = match admit(&pod, &conditions, &FeatureGates::default()) {
                Ok(()) => "taken".to_owned(),
                Err(Rejection { reason, message }) => format!("{reason}: {message}"),
            };
            assert_eq!(found, expected, "{spec} under {conditions:?}");
        }
    }
}
