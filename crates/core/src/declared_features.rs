//! What others may rely on of a node that not every node of its version has, and which pods do.

use crablet_api::core::Pod;
use crablet_api::{FeatureGates, Gate, Text};
use crablet_cri_api::v1;

use crate::restart;

/// What a node declares: what is built, switched on, and can be done by a runtime of these features.
pub fn declared(features: &FeatureGates, runtime: Option<v1::RuntimeFeatures>) -> Box<[Text]> {
    let can = runtime.unwrap_or_default();
    let built = [
        (Gate::ExtendWebSocketsToKubelet, true),
        (Gate::InPlacePodLevelResourcesVerticalScaling, true),
        (Gate::InPlacePodVerticalScalingInitContainers, true),
        (Gate::RestartAllContainersOnContainerExits, true),
        (Gate::UserNamespacesHostNetworkSupport, can.user_namespaces_host_network),
    ];
    let is_on = |gate| features.enabled(Gate::NodeDeclaredFeatures) && features.enabled(gate);
    let declared = built.into_iter().filter(|(gate, can_be_done)| *can_be_done && is_on(*gate));
    declared.map(|(gate, _)| gate.name().into()).collect()
}

/// What a node has to declare to take a pod.
pub fn needed(pod: &Pod) -> impl Iterator<Item = Gate> {
    let needed = [
        (Gate::RestartAllContainersOnContainerExits, restart::could_restart_all(&pod.spec)),
        (Gate::UserNamespacesHostNetworkSupport, pod.spec.host_network && pod.spec.host_users == Some(false)),
    ];
    needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(gate, _)| gate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_declared_by_its_gate_and_as_far_as_the_runtime_can_do_it() {
        let all = FeatureGates::default().with(Gate::UserNamespacesHostNetworkSupport, true);
        let can = v1::RuntimeFeatures { user_namespaces_host_network: true, ..Default::default() };
        let usual = [
            "ExtendWebSocketsToKubelet",
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
            "RestartAllContainersOnContainerExits",
        ];
        assert_eq!(*declared(&FeatureGates::default(), Some(can)), usual);
        assert_eq!(*declared(&all, None), usual);
        assert_eq!(
            declared(&all, Some(can)).last().map(|name| &**name),
            Some("UserNamespacesHostNetworkSupport")
        );
        let off = all.with(Gate::RestartAllContainersOnContainerExits, false);
        assert_eq!(*declared(&off, None), usual[..3]);
        assert!(declared(&all.with(Gate::NodeDeclaredFeatures, false), Some(can)).is_empty());
    }
}
