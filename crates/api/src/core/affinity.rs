//! Which nodes a pod prefers, and which pods it wants near or far.

use crate::meta::LabelSelector;
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// Where a pod wants to be.
    pub struct Affinity {
        node_affinity: Option<Box<NodeAffinity>> = "nodeAffinity",
        pod_affinity: Option<Box<PodAffinity>> = "podAffinity",
        pod_anti_affinity: Option<Box<PodAntiAffinity>> = "podAntiAffinity",
    }
}

object! {
    /// Which nodes a pod wants to be on.
    pub struct NodeAffinity {
        required_during_scheduling_ignored_during_execution: Option<Box<NodeSelector>> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred_during_scheduling_ignored_during_execution: Box<[PreferredSchedulingTerm]> = "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

object! {
    /// Nodes that match any of some terms.
    pub struct NodeSelector {
        node_selector_terms: Box<[NodeSelectorTerm]> = "nodeSelectorTerms" always,
    }
}

object! {
    /// What a node must match, all of it.
    pub struct NodeSelectorTerm {
        match_expressions: Box<[NodeSelectorRequirement]> = "matchExpressions",
        match_fields: Box<[NodeSelectorRequirement]> = "matchFields",
    }
}

object! {
    /// What a label or field of a node must be.
    pub struct NodeSelectorRequirement {
        key: Text = "key" always,
        operator: NodeSelectorOperator = "operator" always,
        values: Box<[Text]> = "values",
    }
}

object! {
    /// What a node should match, and how much that counts.
    pub struct PreferredSchedulingTerm {
        weight: i32 = "weight" always,
        preference: NodeSelectorTerm = "preference",
    }
}

object! {
    /// Which pods a pod wants to be near.
    pub struct PodAffinity {
        required_during_scheduling_ignored_during_execution: Box<[PodAffinityTerm]> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred_during_scheduling_ignored_during_execution: Box<[WeightedPodAffinityTerm]> = "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

object! {
    /// Which pods a pod wants to be away from.
    pub struct PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Box<[PodAffinityTerm]> = "requiredDuringSchedulingIgnoredDuringExecution",
        preferred_during_scheduling_ignored_during_execution: Box<[WeightedPodAffinityTerm]> = "preferredDuringSchedulingIgnoredDuringExecution",
    }
}

object! {
    /// Pods, and what "near" means.
    pub struct PodAffinityTerm {
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        namespaces: Box<[Text]> = "namespaces",
        topology_key: Text = "topologyKey" always,
        namespace_selector: Option<Box<LabelSelector>> = "namespaceSelector",
        match_label_keys: Box<[Text]> = "matchLabelKeys",
        mismatch_label_keys: Box<[Text]> = "mismatchLabelKeys",
    }
}

object! {
    /// Pods, and how much it counts to be near them.
    pub struct WeightedPodAffinityTerm {
        weight: i32 = "weight" always,
        pod_affinity_term: PodAffinityTerm = "podAffinityTerm",
    }
}

object! {
    /// How evenly pods are spread over a topology.
    pub struct TopologySpreadConstraint {
        max_skew: i32 = "maxSkew" always,
        topology_key: Text = "topologyKey" always,
        when_unsatisfiable: UnsatisfiableConstraintAction = "whenUnsatisfiable" always,
        label_selector: Option<Box<LabelSelector>> = "labelSelector",
        min_domains: Option<i32> = "minDomains",
        node_affinity_policy: Option<NodeInclusionPolicy> = "nodeAffinityPolicy",
        node_taints_policy: Option<NodeInclusionPolicy> = "nodeTaintsPolicy",
        match_label_keys: Box<[Text]> = "matchLabelKeys",
    }
}

words! {
    /// How a label or field of a node is compared.
    pub enum NodeSelectorOperator {
        In = "In",
        NotIn = "NotIn",
        Exists = "Exists",
        DoesNotExist = "DoesNotExist",
        Gt = "Gt",
        Lt = "Lt",
    }
}

words! {
    /// What happens to a pod that cannot be spread so.
    pub enum UnsatisfiableConstraintAction {
        DoNotSchedule = "DoNotSchedule",
        ScheduleAnyway = "ScheduleAnyway",
    }
}

words! {
    /// Whether a node that the pod cannot be on counts.
    pub enum NodeInclusionPolicy {
        Ignore = "Ignore",
        Honor = "Honor",
    }
}
