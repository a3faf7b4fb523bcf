//! What a pod's sandbox is made from.

use std::collections::BTreeMap;

use crablet_api::Gate;
use crablet_api::core::{Container, ContainerPort, Pod, Protocol};
use crablet_cri_api::v1;
use crablet_cri_api::v1::security_profile::ProfileType;

use super::dns::HostResolver;
use super::event::Warning;
use super::hostname::HostName;
use super::logs::pod_log_directory;
use super::namespaces::{self, UserNamespaces};
use super::node::NodeContext;
use super::refusal::SandboxRefusal;
use super::resources::{overhead_resources, sandbox_resources};
use super::{cgroup, dns, security, sysctl};
use crate::labels::{sandbox_annotations, sandbox_labels};
use crate::qos::PodLevel;

/// What a pod's sandbox is made from.
#[derive(Debug, Clone, Copy)]
pub struct SandboxInput<'a> {
    pub pod: &'a Pod,
    pub node: &'a NodeContext,
    /// How many sandboxes this pod had before.
    pub attempt: u32,
    /// What the node's own resolver does.
    pub resolver: &'a HostResolver,
    /// The handler that its runtime class names; empty for the default.
    pub runtime_handler: &'a str,
    /// Which users of the node the pod's are, if it asks for its own.
    pub users: &'a UserNamespaces,
    /// Groups that the pod's volumes ask for.
    pub extra_groups: &'a [i64],
    /// Whether some of the pod's containers have CPUs of their own.
    pub exclusive_cpus: bool,
}

/// A sandbox as the runtime is asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// What it is made from.
    pub config: v1::PodSandboxConfig,
    /// What there is to say about it.
    pub warnings: Vec<Warning>,
}

/// A pod's sandbox.
pub fn sandbox(input: &SandboxInput<'_>) -> Result<Sandbox, SandboxRefusal> {
    let SandboxInput { pod, node, .. } = *input;
    let metadata = &pod.metadata;
    let mut warnings = Vec::new();
    let dns = dns::of_pod(pod, input.resolver, &node.facts, &node.settings, &mut warnings);
    let hostname = match pod.spec.host_network {
        true => String::new(),
        false => HostName::of_pod(
            pod,
            &node.settings.cluster_domain,
            node.features.enabled(Gate::HostnameOverride),
        )?
        .for_kernel(pod.spec.set_hostname_as_fqdn == Some(true))?,
    };
    let config = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: metadata.name.to_string(),
            uid: metadata.uid.to_string(),
            namespace: metadata.namespace.to_string(),
            attempt: input.attempt,
        }),
        hostname,
        log_directory: pod_log_directory(
            &node.settings.pod_logs_directory,
            &metadata.namespace,
            &metadata.name,
            &metadata.uid,
        ),
        dns_config: Some(dns),
        port_mappings: pod.spec.containers.iter().flat_map(port_mappings).collect(),
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(pod),
        linux: Some(linux(input)?),
        windows: None,
    };
    Ok(Sandbox { config, warnings })
}

fn linux(input: &SandboxInput<'_>) -> Result<v1::LinuxPodSandboxConfig, SandboxRefusal> {
    let SandboxInput { pod, node, .. } = *input;
    let context = pod.spec.security_context.as_deref();
    let sysctls: BTreeMap<String, String> = context
        .iter()
        .flat_map(|context| &context.sysctls)
        .map(|sysctl| (sysctl::normalized(&sysctl.name).into_owned(), sysctl.value.to_string()))
        .collect();
    Ok(v1::LinuxPodSandboxConfig {
        cgroup_parent: cgroup::cgroup_parent(
            pod,
            PodLevel::from(&node.features),
            node.settings.cgroups.as_ref(),
        )?,
        security_context: Some(security_context(input)?),
        sysctls,
        overhead: Some(overhead_resources(pod, node)),
        resources: Some(sandbox_resources(pod, node, input.exclusive_cpus)),
    })
}

fn security_context(input: &SandboxInput<'_>) -> Result<v1::LinuxSandboxSecurityContext, SandboxRefusal> {
    let pod = input.pod;
    let mut made = v1::LinuxSandboxSecurityContext {
        privileged: pod.spec.all_containers().any(is_privileged),
        // A profile of the pod is for its containers; the sandbox itself must be able to start.
        seccomp: Some(v1::SecurityProfile {
            profile_type: ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        }),
        ..v1::LinuxSandboxSecurityContext::default()
    };
    let Some(context) = pod.spec.security_context.as_deref() else { return Ok(made) };
    made.run_as_user = context.run_as_user.map(|value| v1::Int64Value { value });
    made.run_as_group = context.run_as_group.map(|value| v1::Int64Value { value });
    made.namespace_options = Some(namespaces::of_pod(
        pod,
        input.runtime_handler,
        input.users,
        input.node.features.enabled(Gate::UserNamespacesSupport),
    )?);
    made.supplemental_groups = context
        .fs_group
        .iter()
        .chain(input.extra_groups)
        .chain(&context.supplemental_groups)
        .copied()
        .collect();
    made.supplemental_groups_policy = security::groups_policy(Some(context))? as i32;
    made.selinux_options = context.se_linux_options.as_deref().map(security::se_linux);
    Ok(made)
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|context| context.privileged) == Some(true)
}

/// The ports of a container. Of those that have the same name, or are the same without one, the first counts.
fn port_mappings(container: &Container) -> impl Iterator<Item = v1::PortMapping> {
    let ports = &container.ports;
    let first =
        move |index: usize, port: &ContainerPort| !ports[..index].iter().any(|other| is_same(other, port));
    ports.iter().enumerate().filter(move |(index, port)| first(*index, port)).map(|(_, port)| {
        v1::PortMapping {
            protocol: match port.protocol {
                Some(Protocol::Udp) => v1::Protocol::Udp,
                Some(Protocol::Sctp) => v1::Protocol::Sctp,
                Some(Protocol::Tcp | Protocol::Other(_)) | None => v1::Protocol::Tcp,
            } as i32,
            container_port: port.container_port,
            host_port: port.host_port,
            host_ip: port.host_ip.to_string(),
        }
    })
}

fn is_same(one: &ContainerPort, other: &ContainerPort) -> bool {
    match (one.name.is_empty(), other.name.is_empty()) {
        (false, false) => one.name == other.name,
        (true, true) => one == other,
        (true, false) | (false, true) => false,
    }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;
    use crate::pod_cgroup::pod_cgroup;
    use crate::translate::testing::node;

    fn pod(spec: &str) -> Pod {
        pod_yaml(&format!("metadata: {{name: p, namespace: ns, uid: u, labels: {{a: b}}}}\nspec: {spec}"))
    }

    fn made(spec: &str) -> Result<v1::PodSandboxConfig, SandboxRefusal> {
        made_on(&node(), spec)
    }

    fn made_on(node: &NodeContext, spec: &str) -> Result<v1::PodSandboxConfig, SandboxRefusal> {
        let pod = pod(spec);
        let input = SandboxInput {
            pod: &pod,
            node,
            attempt: 2,
            resolver: &HostResolver::Off,
            runtime_handler: "",
            users: &UserNamespaces::Unsupported,
            extra_groups: &[99],
            exclusive_cpus: false,
        };
        sandbox(&input).map(|sandbox| sandbox.config)
    }

    fn context(spec: &str) -> v1::LinuxSandboxSecurityContext {
        made(spec).unwrap().linux.unwrap().security_context.unwrap()
    }

    #[test]
    fn a_sandbox_is_called_by_its_pod_and_its_attempt() {
        let config = made("{containers: [{name: c}]}").unwrap();
        let metadata = config.metadata.unwrap();
        assert_eq!(
            (metadata.name.as_str(), metadata.namespace.as_str(), metadata.uid.as_str()),
            ("p", "ns", "u")
        );
        assert_eq!(metadata.attempt, 2);
        assert_eq!((config.hostname.as_str(), config.log_directory.as_str()), ("p", "/var/log/pods/ns_p_u"));
        assert_eq!(config.labels["a"], "b");
        assert_eq!(config.linux.unwrap().cgroup_parent, "/kubepods/besteffort/podu");
    }

    #[test]
    fn a_sandbox_is_put_into_the_cgroup_that_its_pod_has_whether_resources_of_the_whole_count_or_not() {
        let spec = "{resources: {requests: {cpu: 1}}, containers: [{name: c}]}";
        for (is_on, expected) in [(true, "/kubepods/burstable/podu"), (false, "/kubepods/besteffort/podu")] {
            let mut node = node();
            node.features = node.features.with(Gate::PodLevelResources, is_on);
            let layout = node.settings.cgroups.as_ref().unwrap();
            let own = pod_cgroup(&pod(spec), PodLevel::from(&node.features)).unwrap();
            assert_eq!(layout.path(&layout.pod(&own)), expected);
            assert_eq!(made_on(&node, spec).unwrap().linux.unwrap().cgroup_parent, expected);
        }
    }

    #[test]
    fn a_host_name_can_be_whole_or_the_nodes() {
        let whole = "{subdomain: sub, setHostnameAsFQDN: true}";
        assert_eq!(made(whole).unwrap().hostname, "p.sub.ns.svc.cluster.local");
        assert_eq!(made("{subdomain: sub}").unwrap().hostname, "p");
        assert_eq!(made("{hostNetwork: true, hostname: NOT_ONE}").unwrap().hostname, "");
        let refusal = made("{hostname: NOT_ONE}").unwrap_err();
        assert!(
            refusal.message(&pod("{}")).starts_with(
                "Failed to generate sandbox config for pod \"p_ns(u)\": pod Hostname \"NOT_ONE\" is not a valid"
            ),
            "{refusal}"
        );
    }

    #[test]
    fn ports_are_mapped_once() {
        let config = made(
            "{initContainers: [{name: i, ports: [{containerPort: 1}]}],
              containers: [{name: a, ports: [
                {containerPort: 80, hostPort: 8080, protocol: TCP, hostIP: 10.0.0.1},
                {containerPort: 80, hostPort: 8080, protocol: TCP, hostIP: 10.0.0.1},
                {containerPort: 80, hostPort: 8080, protocol: TCP, hostIP: 'fd00::1'},
                {containerPort: 53, protocol: UDP, name: dns}, {containerPort: 54, protocol: TCP, name: dns},
                {containerPort: 9, protocol: SCTP}, {containerPort: 9, protocol: Odd}]},
               {name: b, ports: [{containerPort: 53, protocol: UDP, name: dns}]}]}",
        )
        .unwrap();
        let ports: Vec<String> = config
            .port_mappings
            .iter()
            .map(|port| {
                format!(
                    "{} {}:{}:{}",
                    port.protocol().as_str_name(),
                    port.host_ip,
                    port.host_port,
                    port.container_port
                )
            })
            .collect();
        assert_eq!(
            ports,
            [
                "TCP 10.0.0.1:8080:80",
                "TCP fd00::1:8080:80",
                "UDP :0:53",
                "SCTP :0:9",
                "TCP :0:9",
                "UDP :0:53"
            ]
        );
    }

    #[test]
    fn the_security_context_is_the_pods_and_seccomp_the_runtimes() {
        let context = context(
            "{securityContext: {runAsUser: 1, runAsGroup: 2, fsGroup: 3, supplementalGroups: [4],
               supplementalGroupsPolicy: Strict, seLinuxOptions: {level: l}, seccompProfile: {type: Unconfined}},
              containers: [{name: c}]}",
        );
        assert_eq!(context.run_as_user.unwrap().value, 1);
        assert_eq!(context.run_as_group.unwrap().value, 2);
        assert_eq!(context.supplemental_groups, [3, 99, 4]);
        assert_eq!(context.supplemental_groups_policy(), v1::SupplementalGroupsPolicy::Strict);
        assert_eq!(context.selinux_options.unwrap().level, "l");
        assert_eq!(context.seccomp.unwrap().profile_type(), ProfileType::RuntimeDefault);
        assert!(!context.privileged);
    }

    #[test]
    fn one_privileged_container_makes_the_sandbox_privileged() {
        for containers in [
            "initContainers: [{name: c, securityContext: {privileged: true}}]",
            "containers: [{name: b}, {name: c, securityContext: {privileged: true}}]",
            "ephemeralContainers: [{name: c, securityContext: {privileged: true}}]",
        ] {
            assert!(context(&format!("{{{containers}}}")).privileged, "{containers}");
        }
    }

    #[test]
    fn without_a_security_context_there_is_nothing_to_say_about_namespaces() {
        assert_eq!(context("{hostPID: true}").namespace_options, None);
        assert!(context("{securityContext: {}}").namespace_options.is_some());
    }

    #[test]
    fn parameters_are_written_with_dots() {
        let config =
            made("{securityContext: {sysctls: [{name: net/ipv4/tcp_syncookies, value: '1'}]}}").unwrap();
        assert_eq!(config.linux.unwrap().sysctls["net.ipv4.tcp_syncookies"], "1");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refusal = made("{securityContext: {supplementalGroupsPolicy: Odd}}").unwrap_err();
        assert_eq!(refusal.to_string(), "unsupported supplementalGroupsPolicy: Odd");
        let refusal = made("{securityContext: {}, hostUsers: false}").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        );
    }
}
