//! The labels that a node gives itself.

use std::collections::BTreeMap;

use crablet_api::{label_value_errors, qualified_name_errors};

use super::Check;

impl Check {
    pub(super) fn node_labels(&mut self, labels: &BTreeMap<Box<str>, Box<str>>) {
        const PATH: &[&str] = &["node-labels"];
        let unknown: Vec<&str> = labels
            .keys()
            .map(AsRef::as_ref)
            .filter(|key| is_kubernetes_label(key) && !is_kubelet_label(key))
            .collect();
        if !unknown.is_empty() {
            let message = format!(
                "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]; --node-labels in the \
                 'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed \
                 set ({})",
                unknown.join(" "),
                KUBELET_LABEL_NAMESPACES.join(", "),
                KUBELET_LABELS.join(", ")
            );
            self.fail(PATH, message);
        }
        for (key, value) in labels {
            for (text, problems) in [(key, qualified_name_errors(key)), (value, label_value_errors(value))] {
                if !problems.is_empty() {
                    self.fail(PATH, format!("invalid node labels: '{text}' - {}", problems.join(", ")));
                }
            }
        }
    }
}

/// Labels under Kubernetes' own names that a node may give itself.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Prefixes of labels that a node may give itself.
const KUBELET_LABEL_NAMESPACES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

fn is_kubernetes_label(key: &str) -> bool {
    ["kubernetes.io", "k8s.io"].iter().any(|domain| is_within(label_namespace(key), domain))
}

fn is_kubelet_label(key: &str) -> bool {
    KUBELET_LABELS.contains(&key)
        || KUBELET_LABEL_NAMESPACES.iter().any(|domain| is_within(label_namespace(key), domain))
}

fn label_namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

fn is_within(namespace: &str, domain: &str) -> bool {
    namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
