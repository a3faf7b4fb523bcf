//! The feature gates that decisions hang on.

/// Which of Kubernetes' features are on, as far as a decision asks. The default is that of Kubernetes 1.36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `ContainerRestartRules`: a container may have a restart policy and rules of its own.
    pub container_restart_rules: bool,
    /// `RestartAllContainersOnContainerExits`: a container's exit may restart the whole pod in place.
    pub restart_all_containers: bool,
    /// `PodReadyToStartContainersCondition`.
    pub pod_ready_to_start_containers: bool,
    /// `ContainerStopSignals`: the status tells which signal stops a container.
    pub container_stop_signals: bool,
    /// `PodLevelResources`: a pod may ask for resources as a whole.
    pub pod_level_resources: bool,
    /// `InPlacePodLevelResourcesVerticalScaling`: the status tells a pod's resources as a whole.
    pub in_place_pod_level_resources: bool,
    /// `DRAExtendedResource`: a resource claim may stand behind an extended resource.
    pub dra_extended_resource: bool,
    /// `TaintTolerationComparisonOperators`: tolerations know `Lt` and `Gt`.
    pub taint_comparison_operators: bool,
}

impl Default for Features {
    fn default() -> Features {
        Features {
            container_restart_rules: true,
            restart_all_containers: true,
            pod_ready_to_start_containers: true,
            container_stop_signals: false,
            pod_level_resources: true,
            in_place_pod_level_resources: true,
            dra_extended_resource: true,
            taint_comparison_operators: false,
        }
    }
}
