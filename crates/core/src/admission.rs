//! Whether a node takes a pod.
//!
//! [`failures`] tells all that speaks against it; [`admit`] gives the verdict, with the pods that have to make room for
//! a critical one. Others may refuse a pod too: eviction under pressure, topology, sysctls, AppArmor. They are not here.

pub mod node_affinity;
pub mod ports;
mod resources;

use std::fmt::{self, Display, Formatter};

use crablet_api::core::{Node, OSName, Pod, SupplementalGroupsPolicy, TaintEffect};
use crablet_api::{FeatureGates, Gate, Text};

use crate::preemption::{Requirement, pods_to_preempt};
use crate::{declared_features, qos};

/// The label that names an operating system.
const OS_LABEL: &str = "kubernetes.io/os";
/// The operating system that we run on.
const OS: OSName = OSName::Linux;

/// What admission is decided from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The pod that wants in, with the resources that would be granted.
    pub pod: &'a Pod,
    /// The node, as it describes itself.
    pub node: &'a Node,
    /// The pods that are on the node and not done, with the resources that were granted.
    pub others: &'a [&'a Pod],
    pub features: &'a FeatureGates,
}

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// One word: the reason of the pod's status and of the event.
    pub reason: Text,
    /// More words: the event's; the status has `Pod was rejected: ` before it.
    pub message: Text,
}

impl Rejection {
    /// A word and more words.
    pub fn new(reason: impl Into<Text>, message: impl Into<Text>) -> Rejection {
        Rejection { reason: reason.into(), message: message.into() }
    }
}

/// What speaks against a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// There is not enough of a resource.
    Insufficient(Insufficient),
    /// The pod does not want this node.
    NodeAffinity,
    /// The pod is meant for another node.
    NodeName,
    /// Another pod has a port that it wants.
    NodePorts,
    /// The node drives away pods like this one.
    TaintToleration,
}

/// A resource that there is not enough of. CPU is in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insufficient {
    /// Which.
    pub resource: Text,
    /// How much the pod asks for.
    pub requested: i64,
    /// How much others have.
    pub used: i64,
    /// How much there is in all.
    pub capacity: i64,
}

impl Insufficient {
    /// How much is missing.
    pub fn missing(&self) -> i64 {
        self.requested - (self.capacity - self.used)
    }
}

impl Failure {
    /// The name of what was not met, as scheduling knows it.
    pub fn reason(&self) -> Text {
        match self {
            Failure::Insufficient(insufficient) => format!("OutOf{}", insufficient.resource).into(),
            Failure::NodeAffinity => "NodeAffinity".into(),
            Failure::NodeName => "NodeName".into(),
            Failure::NodePorts => "NodePorts".into(),
            Failure::TaintToleration => "TaintToleration".into(),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self {
            Failure::Insufficient(Insufficient { resource, requested, used, capacity }) => {
                return write!(
                    f,
                    "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
                     capacity: {capacity}"
                );
            }
            Failure::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Failure::NodeName => "node(s) didn't match the requested node name",
            Failure::NodePorts => "node(s) didn't have free ports for the requested pod ports",
            Failure::TaintToleration => "node(s) had taints that the pod didn't tolerate",
        };
        write!(f, "Predicate {} failed: {text}", self.reason())
    }
}

impl From<&Failure> for Rejection {
    fn from(failure: &Failure) -> Rejection {
        Rejection::new(failure.reason(), failure.to_string())
    }
}

/// Decides whether the node takes the pod, and which pods have to end first: those that a critical pod takes the place
/// of, where nothing but resources speaks against it.
pub fn admit<'a>(input: &Input<'a>) -> Result<Vec<&'a Pod>, Rejection> {
    check_kind(input)?;
    let failures = failures(input);
    let Some(first) = failures.first() else { return Ok(Vec::new()) };
    if !qos::is_critical(input.pod) {
        return Err(first.into());
    }
    let mut requirements = Vec::new();
    for failure in &failures {
        match failure {
            Failure::Insufficient(insufficient) => requirements.push(Requirement {
                resource: insufficient.resource.clone(),
                quantity: insufficient.missing(),
            }),
            Failure::NodeAffinity | Failure::NodeName | Failure::NodePorts | Failure::TaintToleration => {
                return Err(failure.into());
            }
        }
    }
    let level = input.features.into();
    pods_to_preempt(input.pod, input.others, &requirements, level).map_err(|no_room| {
        let message = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
             pods to preempt: {no_room}"
        );
        Rejection::new("UnexpectedAdmissionError", message)
    })
}

/// What speaks against the pod and could be mended by other pods' leaving, the first one counting most. Where the only
/// one is [`Failure::NodeAffinity`], labels may have changed: ask again with the node as the API server has it now.
pub fn failures(input: &Input) -> Vec<Failure> {
    let Input { pod, node, others, features } = *input;
    let mut failures: Vec<Failure> =
        resources::insufficient(input).into_iter().map(Failure::Insufficient).collect();
    if !node_affinity::matches(pod, node) {
        failures.push(Failure::NodeAffinity);
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.metadata.name {
        failures.push(Failure::NodeName);
    }
    if ports::conflict(pod, others) {
        failures.push(Failure::NodePorts);
    }
    if !qos::is_static(pod) && has_untolerated_taint(pod, node, features) {
        failures.push(Failure::TaintToleration);
    }
    failures
}

/// What no other pod's leaving can mend.
pub fn check_kind(input: &Input) -> Result<(), Rejection> {
    let Input { pod, node, features, .. } = *input;
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| **os != *OS.as_str()) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec.os.as_ref().is_some_and(|os| os.name != OS) {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(Rejection::new("PodOSNotSupported", message));
    }
    let security = pod.spec.security_context.as_ref();
    let policy = security.and_then(|security| security.supplemental_groups_policy.as_ref());
    let node_can = node.status.features.as_ref().and_then(|features| features.supplemental_groups_policy);
    if policy == Some(&SupplementalGroupsPolicy::Strict) && node_can != Some(true) {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return Err(Rejection::new("SupplementalGroupsPolicyNotSupported", message));
    }
    if !features.enabled(Gate::PodLevelResources) && qos::pod_level_resources_set(pod) {
        let message = "PodLevelResources feature gate is disabled";
        return Err(Rejection::new("PodLevelResourcesNotSupported", message));
    }
    let declared = &node.status.declared_features;
    let undeclared = declared_features::needed(pod).map(Gate::name);
    let undeclared: Vec<&str> =
        undeclared.filter(|name| declared.iter().all(|other| **other != **name)).collect();
    if features.enabled(Gate::NodeDeclaredFeatures) && !undeclared.is_empty() {
        let message = format!("Pod requires node features that are not available: {}", undeclared.join(", "));
        return Err(Rejection::new("PodFeatureUnsupported", message));
    }
    Ok(())
}

/// Only taints that also drive pods away count here; the others are for the scheduler.
fn has_untolerated_taint(pod: &Pod, node: &Node, features: &FeatureGates) -> bool {
    let mut taints = node.spec.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute);
    taints.any(|taint| {
        let mut tolerations = pod.spec.tolerations.iter();
        !tolerations.any(|toleration| {
            toleration.tolerates(taint, features.enabled(Gate::TaintTolerationComparisonOperators))
        })
    })
}
