//! [`PodStatus`]: what became of a pod.

use crate::meta::{ConditionStatus, Time};
use crate::object::{object, words};
use crate::text::Text;

use super::{ContainerStatus, ResourceList, ResourceRequirements};

object! {
    /// What became of a pod.
    pub struct PodStatus {
        observed_generation: i64 = "observedGeneration",
        phase: Option<PodPhase> = "phase" word,
        conditions: Box<[PodCondition]> = "conditions",
        message: Text = "message",
        reason: Text = "reason",
        nominated_node_name: Text = "nominatedNodeName",
        host_ip: Text = "hostIP",
        host_ips: Box<[HostIP]> = "hostIPs",
        pod_ip: Text = "podIP",
        pod_ips: Box<[PodIP]> = "podIPs",
        start_time: Option<Time> = "startTime",
        init_container_statuses: Box<[ContainerStatus]> = "initContainerStatuses",
        container_statuses: Box<[ContainerStatus]> = "containerStatuses",
        qos_class: Option<PodQOSClass> = "qosClass" word,
        ephemeral_container_statuses: Box<[ContainerStatus]> = "ephemeralContainerStatuses",
        resize: Option<PodResizeStatus> = "resize" word,
        resource_claim_statuses: Box<[PodResourceClaimStatus]> = "resourceClaimStatuses",
        extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>> = "extendedResourceClaimStatus",
        allocated_resources: ResourceList = "allocatedResources",
        resources: Option<Box<ResourceRequirements>> = "resources",
        node_allocatable_resource_claim_statuses: Box<[NodeAllocatableResourceClaimStatus]> = "nodeAllocatableResourceClaimStatuses",
    }
}

object! {
    /// One aspect of a pod's state.
    pub struct PodCondition {
        r#type: PodConditionType = "type" always,
        observed_generation: i64 = "observedGeneration",
        status: ConditionStatus = "status" always,
        last_probe_time: Option<Time> = "lastProbeTime" always,
        last_transition_time: Option<Time> = "lastTransitionTime" always,
        reason: Text = "reason",
        message: Text = "message",
    }
}

object! {
    /// An address of the pod's node.
    pub struct HostIP {
        ip: Text = "ip" always,
    }
}

object! {
    /// An address of the pod.
    pub struct PodIP {
        ip: Text = "ip" always,
    }
}

object! {
    /// The claim made from one of the pod's claim templates.
    pub struct PodResourceClaimStatus {
        name: Text = "name" always,
        resource_claim_name: Option<Text> = "resourceClaimName",
    }
}

object! {
    /// The claim made for the pod's extended resources.
    pub struct PodExtendedResourceClaimStatus {
        request_mappings: Box<[ContainerExtendedResourceRequest]> = "requestMappings" always,
        resource_claim_name: Text = "resourceClaimName" always,
    }
}

object! {
    /// Which request of that claim is for which container and resource.
    pub struct ContainerExtendedResourceRequest {
        container_name: Text = "containerName" always,
        resource_name: Text = "resourceName" always,
        request_name: Text = "requestName" always,
    }
}

object! {
    /// What a claim takes of the node's own resources.
    pub struct NodeAllocatableResourceClaimStatus {
        resource_claim_name: Text = "resourceClaimName" always,
        containers: Box<[Text]> = "containers",
        resources: ResourceList = "resources" always,
    }
}

words! {
    /// Where a pod is in its life.
    pub enum PodPhase {
        Pending = "Pending",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Unknown = "Unknown",
    }
}

impl PodPhase {
    /// Whether a pod in this phase never runs again.
    pub fn is_terminal(&self) -> bool {
        match self {
            PodPhase::Succeeded | PodPhase::Failed => true,
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown | PodPhase::Other(_) => false,
        }
    }
}

impl PodStatus {
    /// Whether the pod never runs again.
    pub fn is_over(&self) -> bool {
        self.phase.as_ref().is_some_and(PodPhase::is_terminal)
    }
}

words! {
    /// Which aspect of a pod's state it is.
    pub enum PodConditionType {
        ContainersReady = "ContainersReady",
        Initialized = "Initialized",
        Ready = "Ready",
        PodScheduled = "PodScheduled",
        DisruptionTarget = "DisruptionTarget",
        PodReadyToStartContainers = "PodReadyToStartContainers",
        PodResizePending = "PodResizePending",
        PodResizeInProgress = "PodResizeInProgress",
        AllContainersRestarting = "AllContainersRestarting",
    }
}

words! {
    /// How a pod is treated when resources run short.
    pub enum PodQOSClass {
        Guaranteed = "Guaranteed",
        Burstable = "Burstable",
        BestEffort = "BestEffort",
    }
}

words! {
    /// How far a change of the pod's resources has come.
    pub enum PodResizeStatus {
        InProgress = "InProgress",
        Deferred = "Deferred",
        Infeasible = "Infeasible",
    }
}
