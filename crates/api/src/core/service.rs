//! [`Service`]: a name and an address for some pods.

use crate::IntOrString;
use crate::map::Map;
use crate::meta::{Condition, ObjectMeta};
use crate::object::{object, words};
use crate::text::Text;

use super::Protocol;

object! {
    /// A name and an address for some pods.
    pub struct Service: "v1" "Service" {
        metadata: ObjectMeta = "metadata",
        spec: ServiceSpec = "spec",
        status: ServiceStatus = "status",
    }
}

object! {
    /// What a service is to be.
    pub struct ServiceSpec {
        ports: Box<[ServicePort]> = "ports",
        selector: Map<Text> = "selector",
        cluster_ip: Text = "clusterIP",
        cluster_ips: Box<[Text]> = "clusterIPs",
        r#type: Option<ServiceType> = "type" word,
        external_ips: Box<[Text]> = "externalIPs",
        session_affinity: Option<ServiceAffinity> = "sessionAffinity" word,
        load_balancer_ip: Text = "loadBalancerIP",
        load_balancer_source_ranges: Box<[Text]> = "loadBalancerSourceRanges",
        external_name: Text = "externalName",
        external_traffic_policy: Option<ServiceExternalTrafficPolicy> = "externalTrafficPolicy" word,
        health_check_node_port: i32 = "healthCheckNodePort",
        publish_not_ready_addresses: bool = "publishNotReadyAddresses",
        session_affinity_config: Option<Box<SessionAffinityConfig>> = "sessionAffinityConfig",
        ip_families: Box<[IPFamily]> = "ipFamilies",
        ip_family_policy: Option<IPFamilyPolicy> = "ipFamilyPolicy",
        allocate_load_balancer_node_ports: Option<bool> = "allocateLoadBalancerNodePorts",
        load_balancer_class: Option<Text> = "loadBalancerClass",
        internal_traffic_policy: Option<ServiceInternalTrafficPolicy> = "internalTrafficPolicy",
        traffic_distribution: Option<Text> = "trafficDistribution",
    }
}

object! {
    /// A port of a service.
    pub struct ServicePort {
        name: Text = "name",
        protocol: Option<Protocol> = "protocol" word,
        app_protocol: Option<Text> = "appProtocol",
        port: i32 = "port" always,
        target_port: IntOrString = "targetPort",
        node_port: i32 = "nodePort",
    }
}

object! {
    /// How a client is kept with the same pod.
    pub struct SessionAffinityConfig {
        client_ip: Option<ClientIPConfig> = "clientIP",
    }
}

object! {
    /// How long a client is kept with the same pod.
    pub struct ClientIPConfig {
        timeout_seconds: Option<i32> = "timeoutSeconds",
    }
}

object! {
    /// What became of a service.
    pub struct ServiceStatus {
        load_balancer: LoadBalancerStatus = "loadBalancer",
        conditions: Box<[Condition]> = "conditions",
    }
}

object! {
    /// The load balancer of a service.
    pub struct LoadBalancerStatus {
        ingress: Box<[LoadBalancerIngress]> = "ingress",
    }
}

object! {
    /// Where a load balancer takes connections.
    pub struct LoadBalancerIngress {
        ip: Text = "ip",
        hostname: Text = "hostname",
        ip_mode: Option<LoadBalancerIPMode> = "ipMode",
        ports: Box<[PortStatus]> = "ports",
    }
}

object! {
    /// A port of a load balancer.
    pub struct PortStatus {
        port: i32 = "port" always,
        protocol: Protocol = "protocol" always,
        error: Option<Text> = "error",
    }
}

words! {
    /// How a service can be reached.
    pub enum ServiceType {
        ClusterIp = "ClusterIP",
        NodePort = "NodePort",
        LoadBalancer = "LoadBalancer",
        ExternalName = "ExternalName",
    }
}

words! {
    /// Whether a client is kept with the same pod.
    pub enum ServiceAffinity {
        ClientIp = "ClientIP",
        None = "None",
    }
}

words! {
    /// To which nodes traffic from outside may go on.
    pub enum ServiceExternalTrafficPolicy {
        Cluster = "Cluster",
        Local = "Local",
    }
}

words! {
    /// To which nodes traffic from inside may go on.
    pub enum ServiceInternalTrafficPolicy {
        Cluster = "Cluster",
        Local = "Local",
    }
}

words! {
    /// A version of IP.
    pub enum IPFamily {
        Ipv4 = "IPv4",
        Ipv6 = "IPv6",
    }
}

words! {
    /// How many versions of IP a service has.
    pub enum IPFamilyPolicy {
        SingleStack = "SingleStack",
        PreferDualStack = "PreferDualStack",
        RequireDualStack = "RequireDualStack",
    }
}

words! {
    /// Whether a load balancer keeps the destination address.
    pub enum LoadBalancerIPMode {
        Vip = "VIP",
        Proxy = "Proxy",
    }
}
