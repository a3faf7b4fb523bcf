//! What is counted of probes, under upstream's names.

use std::time::Duration;

use crablet_api::core::Pod;
use crablet_core::probes::ProbeKind;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Histogram, RegisterError, Registry};

use super::Answer;

/// Counters of probes.
pub(crate) struct Metrics {
    total: Family<Counter, 6>,
    duration: Family<Histogram, 4>,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Metrics, RegisterError> {
        Ok(Metrics {
            total: registry.counter_family(
                "prober_probe_total",
                "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
                ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
            )?,
            duration: registry.histogram_family(
                "prober_probe_duration_seconds",
                "[ALPHA] Duration in seconds for a probe response.",
                ["probe_type", "container", "pod", "namespace"],
                &DEFAULT_BUCKETS,
            )?,
        })
    }

    /// Counts an attempt. One that could not be made is not counted, and of one that failed nobody knows how long the
    /// answer would have taken.
    pub(super) fn count(&self, pod: &Pod, container: &str, kind: ProbeKind, answer: &Answer, took: Duration) {
        let result = match answer {
            Answer::Success | Answer::Warning(_) => SUCCESSFUL,
            Answer::Failure(_) => FAILED,
            Answer::Error { .. } => return,
        };
        let of = &pod.metadata;
        self.total.with([kind.as_str(), result, container, &of.name, &of.namespace, &of.uid]).add(1);
        if result == SUCCESSFUL {
            self.duration
                .with([kind.as_str(), container, &of.name, &of.namespace])
                .observe(took.as_secs_f64());
        }
    }

    /// Stops reporting a pod.
    pub(super) fn forget(&self, pod: &Pod) {
        let of = &pod.metadata;
        for container in pod.spec.init_and_regular_containers() {
            for kind in ProbeKind::ALL.into_iter().filter(|kind| kind.of(container).is_some()) {
                for result in [SUCCESSFUL, FAILED] {
                    let labels = [kind.as_str(), result, &container.name, &of.name, &of.namespace, &of.uid];
                    self.total.remove(labels);
                }
                self.duration.remove([kind.as_str(), &container.name, &of.name, &of.namespace]);
            }
        }
    }
}

const SUCCESSFUL: &str = "successful";
const FAILED: &str = "failed";

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Go kubelet says of probes.
    const RECORDED: &str = include_str!("../../../server/tests/data/golden/answers/metrics-probes.json");

    /// Names, labels, types and help.
    fn without_figures(text: &str) -> Vec<&str> {
        let lines = text.lines().filter(|line| !line.contains("process_start_time_seconds"));
        lines
            .map(|line| {
                if line.starts_with('#') {
                    line
                } else {
                    line.rsplit_once(' ').map_or(line, |(name, _)| name)
                }
            })
            .collect()
    }

    #[test]
    fn probes_are_counted_as_recorded() {
        let recorded: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let mut pod = Pod::default();
        (pod.metadata.namespace, pod.metadata.name) = ("server".into(), "two".into());
        pod.metadata.uid = "<uid>".into();
        metrics.count(&pod, "a", ProbeKind::Readiness, &Answer::Success, Duration::from_millis(30));
        let (ours, recorded) = (registry.render(), recorded["body"].as_str().unwrap());
        assert_eq!(without_figures(&ours), without_figures(recorded));
    }
}
