//! [`Pod`]: what is to run, together, on one node.

use crate::map::Map;
use crate::meta::ObjectMeta;
use crate::object::{object, words};
use crate::text::Text;

use super::{
    Affinity, Container, EphemeralContainer, LocalObjectReference, PodConditionType, PodSecurityContext,
    PodStatus, ResourceList, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume,
};

object! {
    /// Containers that run together on one node: what is wanted (`spec`) and what is (`status`).
    pub struct Pod: "v1" "Pod" {
        metadata: ObjectMeta = "metadata",
        spec: PodSpec = "spec",
        status: PodStatus = "status",
    }
}

object! {
    /// What is to run, and how.
    pub struct PodSpec {
        volumes: Box<[Volume]> = "volumes",
        init_containers: Box<[Container]> = "initContainers",
        containers: Box<[Container]> = "containers" always,
        ephemeral_containers: Box<[EphemeralContainer]> = "ephemeralContainers",
        restart_policy: Option<RestartPolicy> = "restartPolicy" word,
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        dns_policy: Option<DNSPolicy> = "dnsPolicy" word,
        node_selector: Map<Text> = "nodeSelector",
        service_account_name: Text = "serviceAccountName",
        service_account: Text = "serviceAccount",
        automount_service_account_token: Option<bool> = "automountServiceAccountToken",
        node_name: Text = "nodeName",
        host_network: bool = "hostNetwork",
        host_pid: bool = "hostPID",
        host_ipc: bool = "hostIPC",
        share_process_namespace: Option<bool> = "shareProcessNamespace",
        security_context: Option<Box<PodSecurityContext>> = "securityContext",
        image_pull_secrets: Box<[LocalObjectReference]> = "imagePullSecrets",
        hostname: Text = "hostname",
        subdomain: Text = "subdomain",
        affinity: Option<Box<Affinity>> = "affinity",
        scheduler_name: Text = "schedulerName",
        tolerations: Box<[Toleration]> = "tolerations",
        host_aliases: Box<[HostAlias]> = "hostAliases",
        priority_class_name: Text = "priorityClassName",
        priority: Option<i32> = "priority",
        dns_config: Option<Box<PodDNSConfig>> = "dnsConfig",
        readiness_gates: Box<[PodReadinessGate]> = "readinessGates",
        runtime_class_name: Option<Text> = "runtimeClassName",
        enable_service_links: Option<bool> = "enableServiceLinks",
        preemption_policy: Option<PreemptionPolicy> = "preemptionPolicy",
        overhead: ResourceList = "overhead",
        topology_spread_constraints: Box<[TopologySpreadConstraint]> = "topologySpreadConstraints",
        set_hostname_as_fqdn: Option<bool> = "setHostnameAsFQDN",
        os: Option<PodOS> = "os",
        host_users: Option<bool> = "hostUsers",
        scheduling_gates: Box<[PodSchedulingGate]> = "schedulingGates",
        resource_claims: Box<[PodResourceClaim]> = "resourceClaims",
        resources: Option<Box<ResourceRequirements>> = "resources",
        hostname_override: Option<Text> = "hostnameOverride",
        scheduling_group: Option<PodSchedulingGroup> = "schedulingGroup",
    }
}

object! {
    /// A line for the pod's `/etc/hosts`.
    pub struct HostAlias {
        ip: Text = "ip" always,
        hostnames: Box<[Text]> = "hostnames",
    }
}

object! {
    /// What is added to the pod's `/etc/resolv.conf`.
    pub struct PodDNSConfig {
        nameservers: Box<[Text]> = "nameservers",
        searches: Box<[Text]> = "searches",
        options: Box<[PodDNSConfigOption]> = "options",
    }
}

object! {
    /// An option of the resolver.
    pub struct PodDNSConfigOption {
        name: Text = "name",
        value: Option<Text> = "value",
    }
}

object! {
    /// A condition, set by someone else, that must hold before the pod is ready.
    pub struct PodReadinessGate {
        condition_type: PodConditionType = "conditionType" always,
    }
}

object! {
    /// What keeps the pod from being scheduled.
    pub struct PodSchedulingGate {
        name: Text = "name" always,
    }
}

object! {
    /// The group that the pod is scheduled with.
    pub struct PodSchedulingGroup {
        pod_group_name: Option<Text> = "podGroupName",
    }
}

object! {
    /// A resource claim that the pod's containers may use.
    pub struct PodResourceClaim {
        name: Text = "name" always,
        resource_claim_name: Option<Text> = "resourceClaimName",
        resource_claim_template_name: Option<Text> = "resourceClaimTemplateName",
    }
}

object! {
    /// The operating system the pod is for.
    pub struct PodOS {
        name: OSName = "name" always,
    }
}

words! {
    /// When the containers of a pod are started again.
    pub enum RestartPolicy {
        Always = "Always",
        OnFailure = "OnFailure",
        Never = "Never",
    }
}

words! {
    /// Where the pod's resolver looks.
    pub enum DNSPolicy {
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        ClusterFirst = "ClusterFirst",
        Default = "Default",
        None = "None",
    }
}

words! {
    /// Whether the pod may drive others from a node.
    pub enum PreemptionPolicy {
        PreemptLowerPriority = "PreemptLowerPriority",
        Never = "Never",
    }
}

words! {
    /// An operating system.
    pub enum OSName {
        Linux = "linux",
        Windows = "windows",
    }
}
