//! The spec of a pod: every part in upstream's order, and the parts that need few words.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::core::{
    DNSPolicy, EnvVarSource, HostAlias, Pod, PodDNSConfig, PodResourceClaim, PodSchedulingGroup, PodSpec,
    PreemptionPolicy, RestartPolicy, VolumeSource,
};
use crate::features::Gate;
use crate::names::{dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors};

use super::Rules;
use super::annotations::MIRROR;
use super::containers::{
    Surroundings, all_containers, check_containers, check_ephemeral_containers, check_init_containers,
};
use super::error::{Errors, Json, Word};
use super::labels::check_labels;
use super::path::Path;
use super::resources::{check_overhead, check_pod_resources};
use super::scheduling::{check_affinity, check_scheduling_gates, check_tolerations, check_topology_spread};
use super::security::check_pod_security_context;
use super::text;
use super::volumes::check_volumes;
use super::windows::{check_host_processes, check_operating_system};

const NAMESERVERS_LIMIT: usize = 3;
const SEARCHES_LIMIT: usize = 32;
const SEARCHES_TEXT_LIMIT: usize = 2048;

pub(super) fn check_spec(errors: &mut Errors, path: &Path<'_>, pod: &Pod, rules: &Rules<'_>) {
    let spec = &pod.spec;
    if spec.termination_grace_period_seconds.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = check_volumes(errors, &path.child("volumes"), pod, rules);
    let claims: BTreeSet<&str> = spec
        .resource_claims
        .iter()
        .map(|claim| claim.name.as_ref())
        .filter(|name| !name.is_empty())
        .collect();
    check_resource_claims(errors, &path.child("resourceClaims"), pod);
    let surroundings = Surroundings {
        spec,
        volumes: &volumes,
        claims: &claims,
        // Upstream reads a negative period as the shortest one.
        grace_period: spec.termination_grace_period_seconds.map(|it| if it < 0 { 1 } else { it }),
        rules,
    };
    check_containers(errors, &path.child("containers"), &surroundings);
    check_init_containers(errors, &path.child("initContainers"), &surroundings);
    check_ephemeral_containers(errors, &path.child("ephemeralContainers"), &surroundings);
    if rules.features.enabled(Gate::PodLevelResources) {
        check_pod_resources(errors, &path.child("resources"), spec, &claims);
    }
    check_host_network_ports(errors, &path.child("containers"), spec, rules);
    check_policies(errors, path, spec);
    check_labels(errors, &path.child("nodeSelector"), &spec.node_selector);
    check_pod_security_context(errors, &path.child("securityContext"), spec, rules);
    check_affinity(errors, &path.child("affinity"), spec.affinity.as_deref());
    check_dns(errors, &path.child("dnsConfig"), spec, rules);
    let gates = path.child("readinessGates");
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let (path, condition) = (gates.index(index), gate.condition_type.as_str());
        errors.invalid_each(&path.child("conditionType"), condition, qualified_name_errors(condition));
    }
    check_scheduling_gates(errors, &path.child("schedulingGates"), &spec.scheduling_gates);
    let constraints = path.child("topologySpreadConstraints");
    check_topology_spread(errors, &constraints, &spec.topology_spread_constraints, rules);
    check_host_processes(errors, path, spec);
    check_host_users(errors, path, spec, rules);
    check_hostname_override(errors, &path.child("hostnameOverride"), spec);
    check_names(errors, path, spec);
    check_tolerations(errors, &path.child("tolerations"), &spec.tolerations, rules);
    check_host_aliases(errors, &path.child("hostAliases"), &spec.host_aliases, rules);
    check_classes(errors, path, spec);
    check_overhead(errors, &path.child("overhead"), &spec.overhead);
    check_operating_system(errors, path, spec);
    check_scheduling_group(errors, &path.child("schedulingGroup"), spec.scheduling_group.as_ref());
    check_file_volumes(errors, path, spec);
}

/// The service account: the field that has been renamed still counts where the new one is empty.
pub(super) fn service_account(spec: &PodSpec) -> &str {
    if spec.service_account_name.is_empty() { &spec.service_account } else { &spec.service_account_name }
}

fn check_resource_claims(errors: &mut Errors, path: &Path<'_>, pod: &Pod) {
    let mut names = BTreeSet::new();
    for (index, claim) in pod.spec.resource_claims.iter().enumerate() {
        if pod.metadata.annotations.contains_key(MIRROR) {
            errors.forbidden(&Path::root(""), "static pods do not support resource claims");
            continue;
        }
        let path = path.index(index);
        let name = claim.name.as_ref();
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            errors.invalid_each(&path.child("name"), name, dns1123_label_errors(name));
        }
        check_claim_source(errors, &path, claim);
    }
}

fn check_claim_source(errors: &mut Errors, path: &Path<'_>, claim: &PodResourceClaim) {
    /// A claim as upstream prints it: its internal type, with every field.
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Printed<'a> {
        name: &'a str,
        resource_claim_name: Option<&'a str>,
        resource_claim_template_name: Option<&'a str>,
    }
    let (claim_name, template_name) =
        (claim.resource_claim_name.as_deref(), claim.resource_claim_template_name.as_deref());
    let printed = Printed {
        name: &claim.name,
        resource_claim_name: claim_name,
        resource_claim_template_name: template_name,
    };
    match (claim_name, template_name) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            errors.invalid(path, Json::of(&printed), detail);
        }
        (None, None) => {
            let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.invalid(path, Json::of(&printed), detail);
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    for (field, name) in [("resourceClaimName", claim_name), ("resourceClaimTemplateName", template_name)] {
        if let Some(name) = name {
            errors.invalid_each(&path.child(field), name, dns1123_subdomain_errors(name));
        }
    }
}

fn check_host_network_ports(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec, rules: &Rules<'_>) {
    if !spec.host_network {
        return;
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let path = path.index(index);
        let ports = path.child("ports");
        for (index, port) in container.ports.iter().enumerate() {
            let is_set = rules.resource_is_pod || port.host_port != 0;
            if is_set && port.host_port != port.container_port {
                let path = ports.index(index);
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.child("hostPort"), port.host_port, detail);
            }
        }
    }
}

fn check_policies(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    match &spec.restart_policy {
        Some(RestartPolicy::Always | RestartPolicy::OnFailure | RestartPolicy::Never) => {}
        None => errors.required(&path.child("restartPolicy"), ""),
        Some(RestartPolicy::Other(policy)) => {
            errors.not_supported(&path.child("restartPolicy"), Word(policy), RestartPolicy::WORDS);
        }
    }
    match &spec.dns_policy {
        Some(
            DNSPolicy::ClusterFirstWithHostNet
            | DNSPolicy::ClusterFirst
            | DNSPolicy::Default
            | DNSPolicy::None,
        ) => {}
        None => errors.required(&path.child("dnsPolicy"), ""),
        Some(DNSPolicy::Other(policy)) => {
            errors.not_supported(&path.child("dnsPolicy"), Word(policy), DNSPolicy::WORDS);
        }
    }
}

fn check_dns(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec, rules: &Rules<'_>) {
    let default = PodDNSConfig::default();
    let config = spec.dns_config.as_deref();
    if spec.dns_policy == Some(DNSPolicy::None) {
        match config {
            None => return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            Some(config) if config.nameservers.is_empty() => {
                let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
                return errors.required(&path.child("nameservers"), detail);
            }
            Some(_) => {}
        }
    }
    let config = config.unwrap_or(&default);
    let nameservers = path.child("nameservers");
    if config.nameservers.len() > NAMESERVERS_LIMIT {
        let detail = format!("must not have more than {NAMESERVERS_LIMIT} nameservers");
        errors.invalid(&nameservers, Json::list(&config.nameservers), detail);
    }
    for (index, nameserver) in config.nameservers.iter().enumerate() {
        let strict = rules.features.enabled(Gate::StrictIPCIDRValidation);
        text::check_address(errors, &nameservers.index(index), nameserver, strict);
    }
    let searches = path.child("searches");
    if config.searches.len() > SEARCHES_LIMIT {
        let detail = format!("must not have more than {SEARCHES_LIMIT} search paths");
        errors.invalid(&searches, Json::list(&config.searches), detail);
    }
    if config.searches.join(" ").len() > SEARCHES_TEXT_LIMIT {
        let detail = format!(
            "must not have more than {SEARCHES_TEXT_LIMIT} characters (including spaces) in the search list"
        );
        errors.invalid(&searches, Json::list(&config.searches), detail);
    }
    for (index, search) in config.searches.iter().enumerate().filter(|(_, search)| search.as_ref() != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.invalid_each(&searches.index(index), search, text::subdomain_with_underscore_errors(search));
    }
    let options = path.child("options");
    for (index, _) in config.options.iter().enumerate().filter(|(_, option)| option.name.is_empty()) {
        errors.required(&options.index(index), "must not be empty");
    }
}

fn check_host_users(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec, rules: &Rules<'_>) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.host_users != Some(false) {
        return;
    }
    if spec.host_network && !rules.features.enabled(Gate::UserNamespacesHostNetworkSupport) {
        errors.forbidden(&path.child("hostNetwork"), DETAIL);
    }
    if spec.host_pid {
        errors.forbidden(&path.child("HostPID"), DETAIL);
    }
    if spec.host_ipc {
        errors.forbidden(&path.child("HostIPC"), DETAIL);
    }
    for (list, index, container) in all_containers(spec) {
        if !container.volume_devices.is_empty() {
            let list = path.child(list);
            let container_path = list.index(index);
            errors.forbidden(&container_path.child("volumeDevices"), DETAIL);
        }
    }
}

fn check_hostname_override(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    let Some(name) = spec.hostname_override.as_deref() else { return };
    if spec.set_hostname_as_fqdn == Some(true) {
        errors.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.host_network {
        errors.forbidden(path, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.too_long(path, 64);
    }
    errors.invalid_each(path, name, dns1123_subdomain_errors(name));
}

fn check_names(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    for (field, name) in
        [("serviceAccountName", service_account(spec)), ("nodeName", spec.node_name.as_ref())]
    {
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, dns1123_subdomain_errors(name));
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = text::inclusive_range(1, i64::from(i32::MAX));
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, dns1123_label_errors(name));
        }
    }
}

fn check_host_aliases(errors: &mut Errors, path: &Path<'_>, aliases: &[HostAlias], rules: &Rules<'_>) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        text::check_address(
            errors,
            &path.child("ip"),
            &alias.ip,
            rules.features.enabled(Gate::StrictIPCIDRValidation),
        );
        let hostnames = path.child("hostnames");
        for (index, hostname) in alias.hostnames.iter().enumerate() {
            errors.invalid_each(&hostnames.index(index), hostname, dns1123_subdomain_errors(hostname));
        }
    }
}

fn check_classes(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    let priority_class = spec.priority_class_name.as_ref();
    if !priority_class.is_empty() {
        let problems = dns1123_subdomain_errors(priority_class);
        errors.invalid_each(&path.child("priorityClassName"), priority_class, problems);
    }
    if let Some(runtime_class) = spec.runtime_class_name.as_deref() {
        let problems = dns1123_subdomain_errors(runtime_class);
        errors.invalid_each(&path.child("runtimeClassName"), runtime_class, problems);
    }
    let preemption = path.child("preemptionPolicy");
    match &spec.preemption_policy {
        None | Some(PreemptionPolicy::PreemptLowerPriority | PreemptionPolicy::Never) => {}
        Some(PreemptionPolicy::Other(policy)) if policy.is_empty() => errors.required(&preemption, ""),
        Some(PreemptionPolicy::Other(policy)) => {
            errors.not_supported(&preemption, Word(policy), PreemptionPolicy::WORDS);
        }
    }
}

fn check_scheduling_group(errors: &mut Errors, path: &Path<'_>, group: Option<&PodSchedulingGroup>) {
    let Some(group) = group else { return };
    let path = path.child("podGroupName");
    match group.pod_group_name.as_deref() {
        None => errors.invalid(&path, Json("null".to_owned()), "must specify one of: `podGroupName`"),
        Some(name) => errors.invalid_each(&path, name, dns1123_subdomain_errors(name)),
    }
}

/// Variables from files come from volumes that containers of the pod write to.
fn check_file_volumes(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    for (list, index, container) in all_containers(spec) {
        let list = path.child(list);
        let container_path = list.index(index);
        let variables = container_path.child("env");
        for (index, variable) in container.env.iter().enumerate() {
            let sources = variable.value_from.iter().flat_map(|source| source.as_slice());
            for source in sources {
                let EnvVarSource::FileKeyRef(file) = source else { continue };
                let variable_path = variables.index(index);
                let source_path = variable_path.child("valueFrom");
                let file_path = source_path.child("fileKeyRef");
                let path = file_path.child("volumeName");
                let is_empty_dir = |source: &VolumeSource| matches!(source, VolumeSource::EmptyDir(_));
                let name = file.volume_name.as_ref();
                match spec.volumes.iter().rev().find(|volume| volume.name == file.volume_name) {
                    None => errors.not_found(&path, name, String::new()),
                    Some(volume) if volume.source.as_slice().iter().any(is_empty_dir) => {}
                    Some(_) => errors.invalid(&path, name, "referenced volume must be of type emptyDir"),
                }
            }
        }
    }
}
