//! [`Node`]: a machine of the cluster.

use crate::meta::{ConditionStatus, ObjectMeta, Time};
use crate::object::{object, words};
use crate::taint::Taint;
use crate::text::Text;

use super::ResourceList;

object! {
    /// A machine of the cluster.
    pub struct Node: "v1" "Node" {
        metadata: ObjectMeta = "metadata",
        spec: NodeSpec = "spec",
        status: NodeStatus = "status",
    }
}

object! {
    /// What is wanted of a node.
    pub struct NodeSpec {
        pod_cidr: Text = "podCIDR",
        pod_cidrs: Box<[Text]> = "podCIDRs",
        provider_id: Text = "providerID",
        unschedulable: bool = "unschedulable",
        taints: Box<[Taint]> = "taints",
        config_source: Option<Box<NodeConfigSource>> = "configSource",
        external_id: Text = "externalID",
    }
}

object! {
    /// Where a node's configuration was to come from; Kubernetes has removed this.
    pub struct NodeConfigSource {
        config_map: Option<Box<ConfigMapNodeConfigSource>> = "configMap",
    }
}

object! {
    /// A config map that was to configure a node.
    pub struct ConfigMapNodeConfigSource {
        namespace: Text = "namespace" always,
        name: Text = "name" always,
        uid: Text = "uid",
        resource_version: Text = "resourceVersion",
        kubelet_config_key: Text = "kubeletConfigKey" always,
    }
}

object! {
    /// What a node is and how it is.
    pub struct NodeStatus {
        capacity: ResourceList = "capacity",
        allocatable: ResourceList = "allocatable",
        phase: Option<NodePhase> = "phase" word,
        conditions: Box<[NodeCondition]> = "conditions",
        addresses: Box<[NodeAddress]> = "addresses",
        daemon_endpoints: NodeDaemonEndpoints = "daemonEndpoints",
        node_info: NodeSystemInfo = "nodeInfo",
        images: Box<[ContainerImage]> = "images",
        volumes_in_use: Box<[Text]> = "volumesInUse",
        volumes_attached: Box<[AttachedVolume]> = "volumesAttached",
        config: Option<Box<NodeConfigStatus>> = "config",
        runtime_handlers: Box<[NodeRuntimeHandler]> = "runtimeHandlers",
        features: Option<NodeFeatures> = "features",
        declared_features: Box<[Text]> = "declaredFeatures",
    }
}

object! {
    /// One aspect of a node's state.
    pub struct NodeCondition {
        r#type: NodeConditionType = "type" always,
        status: ConditionStatus = "status" always,
        last_heartbeat_time: Option<Time> = "lastHeartbeatTime" always,
        last_transition_time: Option<Time> = "lastTransitionTime" always,
        reason: Text = "reason",
        message: Text = "message",
    }
}

object! {
    /// An address of a node.
    pub struct NodeAddress {
        r#type: NodeAddressType = "type" always,
        address: Text = "address" always,
    }
}

object! {
    /// Where the agent of a node listens.
    pub struct NodeDaemonEndpoints {
        kubelet_endpoint: DaemonEndpoint = "kubeletEndpoint",
    }
}

object! {
    /// A port.
    pub struct DaemonEndpoint {
        port: i32 = "Port" always,
    }
}

object! {
    /// What a node runs on and with.
    pub struct NodeSystemInfo {
        machine_id: Text = "machineID" always,
        system_uuid: Text = "systemUUID" always,
        boot_id: Text = "bootID" always,
        kernel_version: Text = "kernelVersion" always,
        os_image: Text = "osImage" always,
        container_runtime_version: Text = "containerRuntimeVersion" always,
        kubelet_version: Text = "kubeletVersion" always,
        kube_proxy_version: Text = "kubeProxyVersion" always,
        operating_system: Text = "operatingSystem" always,
        architecture: Text = "architecture" always,
        swap: Option<NodeSwapStatus> = "swap",
    }
}

object! {
    /// The swap space of a node.
    pub struct NodeSwapStatus {
        capacity: Option<i64> = "capacity",
    }
}

object! {
    /// An image that a node has.
    pub struct ContainerImage {
        names: Box<[Text]> = "names" always,
        size_bytes: i64 = "sizeBytes",
    }
}

object! {
    /// A volume that is attached to a node.
    pub struct AttachedVolume {
        name: Text = "name" always,
        device_path: Text = "devicePath" always,
    }
}

object! {
    /// Which configuration a node used; Kubernetes has removed this.
    pub struct NodeConfigStatus {
        assigned: Option<Box<NodeConfigSource>> = "assigned",
        active: Option<Box<NodeConfigSource>> = "active",
        last_known_good: Option<Box<NodeConfigSource>> = "lastKnownGood",
        error: Text = "error",
    }
}

object! {
    /// A handler of a node's container runtime.
    pub struct NodeRuntimeHandler {
        name: Text = "name" always,
        features: Option<NodeRuntimeHandlerFeatures> = "features",
    }
}

object! {
    /// What a runtime handler can do.
    pub struct NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Option<bool> = "recursiveReadOnlyMounts",
        user_namespaces: Option<bool> = "userNamespaces",
    }
}

object! {
    /// What a node's container runtime can do.
    pub struct NodeFeatures {
        supplemental_groups_policy: Option<bool> = "supplementalGroupsPolicy",
    }
}

words! {
    /// Where a node is in its life; no longer used.
    pub enum NodePhase {
        Pending = "Pending",
        Running = "Running",
        Terminated = "Terminated",
    }
}

words! {
    /// Which aspect of a node's state it is.
    pub enum NodeConditionType {
        Ready = "Ready",
        MemoryPressure = "MemoryPressure",
        DiskPressure = "DiskPressure",
        PidPressure = "PIDPressure",
        NetworkUnavailable = "NetworkUnavailable",
    }
}

words! {
    /// What kind of address it is.
    pub enum NodeAddressType {
        Hostname = "Hostname",
        InternalIp = "InternalIP",
        ExternalIp = "ExternalIP",
        InternalDns = "InternalDNS",
        ExternalDns = "ExternalDNS",
    }
}
