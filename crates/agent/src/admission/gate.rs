//! What a pod has to pass, beside those that are there. Who is there is for the books.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_core::admission::{self, Input, Rejection, failures};
use crablet_core::eviction;
use crablet_core::resize::decision::{self, Exclusive, Infeasible};
use crablet_core::shutdown;
use crablet_core::translate::{ForbiddenSysctl, SysctlAllowlist, needs_app_armor};

use crate::eviction::Pressure;
use crate::node_facts::LiveFacts;

/// What a pod has to pass.
#[derive(Clone)]
pub struct Gate {
    /// What the node says of itself.
    pub facts: LiveFacts,
    /// What it runs short of.
    pub pressure: Pressure,
    /// The kernel parameters that pods may set.
    pub sysctls: Arc<SysctlAllowlist>,
    /// Whether the node has AppArmor.
    pub app_armor: bool,
    /// What the node hands out one by one, so that it does not change.
    pub exclusive: Exclusive,
}

impl Gate {
    /// Whether a pod fits beside others, and the UIDs of those that have to go for it. Nobody passes when it `is_closed`;
    /// what does not fit anyway is told so.
    pub(super) fn admit(
        &self,
        pod: &Pod,
        others: &[Arc<Pod>],
        is_closed: bool,
    ) -> Result<BTreeSet<String>, Rejection> {
        let facts = self.facts.now();
        eviction::admit(pod, &self.pressure.now(), &facts.translation.features)?;
        self.sysctls
            .admit(pod)
            .map_err(|forbidden| Rejection::new(ForbiddenSysctl::REASON, forbidden.to_string()))?;
        let others = references(others);
        let input = Input { pod, node: &facts.node, others: &others, features: &facts.translation.features };
        let victims = admission::admit(&input)?;
        if !self.app_armor && needs_app_armor(pod) {
            let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
            return Err(Rejection::new("AppArmor", message));
        }
        if is_closed {
            return Err(Rejection::new(shutdown::NOT_ADMITTED_REASON, shutdown::NOT_ADMITTED_MESSAGE));
        }
        Ok(victims.iter().map(|victim| victim.metadata.uid.to_string()).collect())
    }

    /// Whether nothing but the node's labels speaks against a pod, and it can be looked whether they are still the same.
    pub(super) fn only_labels_refuse(&self, pod: &Pod, others: &[Arc<Pod>]) -> bool {
        let facts = self.facts.now();
        let others = references(others);
        let input = Input { pod, node: &facts.node, others: &others, features: &facts.translation.features };
        self.facts.can_be_read() && failures(&input) == [admission::Failure::NodeAffinity]
    }

    /// What speaks for ever against a pod's having other resources, if something does.
    pub(super) fn infeasible(&self, wanted: &Pod, allocated: &Pod) -> Option<Infeasible> {
        decision::infeasible(wanted, allocated, &self.facts.now().translation, self.exclusive)
    }

    /// The first resource that there is not enough of for a pod.
    pub(super) fn scarce(&self, pod: &Pod, others: &[Arc<Pod>]) -> Option<String> {
        let facts = self.facts.now();
        let others = references(others);
        let input = Input { pod, node: &facts.node, others: &others, features: &facts.translation.features };
        failures(&input).iter().find_map(|failure| match failure {
            admission::Failure::Insufficient(insufficient) => Some(insufficient.resource.to_string()),
            admission::Failure::NodeAffinity
            | admission::Failure::NodeName
            | admission::Failure::NodePorts
            | admission::Failure::TaintToleration => None,
        })
    }

    pub(super) fn features(&self) -> FeatureGates {
        self.facts.now().translation.features
    }
}

fn references(pods: &[Arc<Pod>]) -> Vec<&Pod> {
    pods.iter().map(|pod| &**pod).collect()
}
