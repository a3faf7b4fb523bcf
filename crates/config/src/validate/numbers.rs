//! Counts, rates and ranges.

use super::Check;
use crate::kubelet_configuration::*;

impl Check {
    pub(super) fn numbers(&mut self, c: &KubeletConfiguration) {
        let not_negative: [(&'static [&'static str], &str, i64); 9] = [
            (&["eventBurst"], "event-burst", c.event_burst.into()),
            (&["eventRecordQPS"], "event-qps", c.event_record_qps.into()),
            (&["kubeAPIBurst"], "kube-api-burst", c.kube_api_burst.into()),
            (&["kubeAPIQPS"], "kube-api-qps", c.kube_api_qps.into()),
            (&["maxOpenFiles"], "max-open-files", c.max_open_files),
            (&["maxPods"], "max-pods", c.max_pods.into()),
            (&["podsPerCore"], "pods-per-core", c.pods_per_core.into()),
            (&["registryBurst"], "registry-burst", c.registry_burst.into()),
            (&["registryPullQPS"], "registry-qps", c.registry_pull_qps.into()),
        ];
        for (path, flag, value) in not_negative {
            if value < 0 {
                self.invalid(path, format!("{} (--{flag}) {value} must not be a negative number", path[0]));
            }
        }
        if c.node_lease_duration_seconds <= 0 {
            let message =
                format!("nodeLeaseDurationSeconds {} must be greater than 0", c.node_lease_duration_seconds);
            self.invalid(&["nodeLeaseDurationSeconds"], message);
        }
        if c.node_status_max_images < -1 {
            let message = format!(
                "nodeStatusMaxImages (--node-status-max-images) {} must be -1 or greater",
                c.node_status_max_images
            );
            self.invalid(&["nodeStatusMaxImages"], message);
        }
        self.in_range(&["oomScoreAdj"], "oom-score-adj", c.oom_score_adj, (-1000, 1000));
        self.in_range(&["iptablesDropBit"], "iptables-drop-bit", c.iptables_drop_bit, (0, 31));
        self.in_range(
            &["iptablesMasqueradeBit"],
            "iptables-masquerade-bit",
            c.iptables_masquerade_bit,
            (0, 31),
        );
    }
}
