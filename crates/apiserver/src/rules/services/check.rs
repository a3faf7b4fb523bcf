//! What is wrong with a service.

use std::net::IpAddr;

use crablet_api::validate::{Errors, check_address, port_name_errors, port_number_errors};
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors};
use serde_json::Value;

use super::super::diff;
use super::super::metadata::{check_labels, same};
use super::{NONE, is_external, is_headless, needs_health_check, uses_addresses, word};
use crate::object;

const FOR_LOAD_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

pub(super) fn check(errors: &mut Errors, service: &Value, old: Option<&Value>) {
    let spec = &service["spec"];
    let kind = object::text(spec, &["type"]);
    let ports = object::list(spec, &["ports"]);
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid("spec.clusterIPs[0]", NONE, detail);
        }
        "ExternalName" => check_external_name(errors, spec),
        _ => {}
    }
    check_ports(errors, ports);
    check_labels(errors, "spec.selector", &spec["selector"]);
    match spec["sessionAffinity"].as_str().unwrap_or_default() {
        "" => errors.required("spec.sessionAffinity", ""),
        "ClientIP" => check_affinity(errors, &spec["sessionAffinityConfig"]),
        "None" if !spec["sessionAffinityConfig"].is_null() => {
            errors.forbidden("spec.sessionAffinityConfig", "must not be set when session affinity is None");
        }
        "None" => {}
        _ => errors.not_supported(
            "spec.sessionAffinity",
            word(&spec["sessionAffinity"]),
            &["ClientIP", "None"],
        ),
    }
    check_addresses(errors, spec, old);
    let known = old.map(|old| object::list(old, &["spec", "externalIPs"])).unwrap_or_default();
    for (index, address) in object::list(spec, &["externalIPs"]).iter().enumerate() {
        if !known.contains(address) {
            let path = format!("spec.externalIPs[{index}]");
            check_external_address(errors, &path, address.as_str().unwrap_or_default());
        }
    }
    if !matches!(kind, "ClusterIP" | "ExternalName" | "LoadBalancer" | "NodePort") {
        let supported = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        errors.not_supported("spec.type", word(&spec["type"]), &supported);
    }
    check_duplicates(errors, kind, ports);
    check_load_balancer(errors, service, kind);
    check_policies(errors, spec);
}

fn check_external_name(errors: &mut Errors, spec: &Value) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !same(&spec[field], &Value::Null) {
            errors.forbidden(format_args!("spec.{field}"), "may not be set for ExternalName services");
        }
    }
    let name = object::text(spec, &["externalName"]);
    let name = name.strip_suffix('.').unwrap_or(name);
    match name {
        "" => errors.required("spec.externalName", ""),
        name => errors.invalid_each("spec.externalName", name, dns1123_subdomain_errors(name)),
    }
}

fn check_ports(errors: &mut Errors, ports: &[Value]) {
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(format_args!("{path}.name"), "");
            }
        } else {
            errors.invalid_each(format_args!("{path}.name"), name, dns1123_label_errors(name));
            if ports.iter().take(index).any(|other| other["name"] == name) {
                errors.duplicate(format_args!("{path}.name"), name);
            }
        }
        let number = port["port"].as_i64().unwrap_or(0);
        for problem in port_number_errors(i32::try_from(number).unwrap_or(-1)) {
            errors.invalid(format_args!("{path}.port"), number, problem);
        }
        match port["protocol"].as_str().unwrap_or_default() {
            "TCP" | "UDP" | "SCTP" => {}
            "" => errors.required(format_args!("{path}.protocol"), ""),
            _ => errors.not_supported(
                format_args!("{path}.protocol"),
                word(&port["protocol"]),
                &["SCTP", "TCP", "UDP"],
            ),
        }
        match &port["targetPort"] {
            Value::String(name) => {
                errors.invalid_each(format_args!("{path}.targetPort"), name, port_name_errors(name));
            }
            target => {
                let target = target.as_i64().unwrap_or(0);
                for problem in port_number_errors(i32::try_from(target).unwrap_or(-1)) {
                    errors.invalid(format_args!("{path}.targetPort"), target, problem);
                }
            }
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            let problems = qualified_name_errors(protocol);
            errors.invalid_each(format_args!("{path}.appProtocol"), protocol, problems);
        }
    }
}

fn check_affinity(errors: &mut Errors, config: &Value) {
    let path = "spec.sessionAffinityConfig";
    let Some(seconds) = config["clientIP"]["timeoutSeconds"].as_i64() else {
        return errors.required(path, "when session affinity type is ClientIP");
    };
    if !(1..=86_400).contains(&seconds) {
        let detail = "must be greater than 0 and less than 86400";
        errors.invalid(format_args!("{path}.clientIP.timeoutSeconds"), seconds, detail);
    }
}

fn check_addresses(errors: &mut Errors, spec: &Value, old: Option<&Value>) {
    if spec["type"] == "ExternalName" {
        return;
    }
    let addresses = object::list(spec, &["clusterIPs"]);
    let single = object::text(spec, &["clusterIP"]);
    match addresses.first() {
        None if !single.is_empty() => errors.required("spec.clusterIPs", ""),
        Some(_) if single.is_empty() => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.invalid("spec.clusterIPs", &spec["clusterIPs"], detail);
        }
        Some(first) if first != single => {
            errors.invalid("spec.clusterIPs", &spec["clusterIPs"], "first value must match `clusterIP`");
        }
        Some(_) | None => {}
    }
    let families = object::list(spec, &["ipFamilies"]);
    for (index, family) in families.iter().enumerate() {
        let path = format!("spec.ipFamilies[{index}]");
        if family != "IPv4" && family != "IPv6" {
            errors.not_supported(&path, word(family), &["IPv4", "IPv6"]);
        }
        if families.iter().take(index).any(|other| other == family) {
            errors.duplicate(&path, word(family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec["ipFamilyPolicy"].as_str().filter(|policy| !policies.contains(policy)) {
        errors.not_supported("spec.ipFamilyPolicy", crablet_api::validate::Word(policy), &policies);
    }
    let known = old.map(|old| object::list(old, &["spec", "clusterIPs"])).unwrap_or_default();
    let mut found = Errors::default();
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && address == NONE {
            if addresses.len() > 1 {
                let detail = "'None' must be the first and only value";
                found.invalid("spec.clusterIPs", &spec["clusterIPs"], detail);
            }
        } else if !known.contains(address) {
            let address = address.as_str().unwrap_or_default();
            check_address(&mut found, format_args!("spec.clusterIPs[{index}]"), address, true);
        }
    }
    let has_invalid = !found.is_empty();
    errors.extend(found.into_list());
    if addresses.len() > 2 {
        errors.invalid("spec.clusterIPs", &spec["clusterIPs"], "may only hold up to 2 values");
    }
    if has_invalid || is_headless(spec) {
        return;
    }
    let is_six = |address: &Value| {
        address.as_str().is_some_and(|text| text.parse().is_ok_and(|address: IpAddr| address.is_ipv6()))
    };
    if addresses.len() > 1 && addresses.iter().filter(|address| is_six(address)).count() != 1 {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid("spec.clusterIPs", &spec["clusterIPs"], detail);
    }
    for (index, (address, family)) in addresses.iter().zip(families).enumerate() {
        if is_six(address) != (family == "IPv6") {
            let detail = format!(
                "expected an {} value as indicated by `ipFamilies[{index}]`",
                family.as_str().unwrap_or_default()
            );
            let path = format!("spec.clusterIPs[{index}]");
            errors.invalid(path, address.as_str().unwrap_or_default(), detail);
        }
    }
}

fn check_external_address(errors: &mut Errors, path: &str, text: &str) {
    let mut found = Errors::default();
    check_address(&mut found, path, text, true);
    if !found.is_empty() {
        return errors.extend(found.into_list());
    }
    let Ok(address) = text.parse::<IpAddr>() else { return };
    if address.is_unspecified() {
        errors.invalid(path, text, "may not be unspecified (0.0.0.0 or ::)");
    }
    if address.is_loopback() {
        errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] == 0xff02),
    };
    if is_link_local {
        errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid(path, text, detail);
    }
}

fn check_duplicates(errors: &mut Errors, kind: &str, ports: &[Value]) {
    let node_port = |port: &Value| port["nodePort"].as_i64().unwrap_or(0);
    for (index, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && node_port(port) != 0 {
            let path = format!("spec.ports[{index}].nodePort");
            errors.forbidden(path, "may not be used when `type` is 'ClusterIP'");
        }
    }
    let earlier = |index: usize| ports.iter().take(index);
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| node_port(port) != 0) {
        let is_same =
            |other: &Value| other["protocol"] == port["protocol"] && node_port(other) == node_port(port);
        if earlier(index).any(is_same) {
            errors.duplicate(format_args!("spec.ports[{index}].nodePort"), node_port(port));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let is_same = |other: &Value| other["protocol"] == port["protocol"] && other["port"] == port["port"];
        if earlier(index).any(is_same) {
            let key = serde_json::json!({"protocol": port["protocol"], "port": port["port"]});
            let shown = diff::shown("ServicePort", &key);
            errors.duplicate(format_args!("spec.ports[{index}]"), shown);
        }
    }
}

fn check_load_balancer(errors: &mut Errors, service: &Value, kind: &str) {
    let spec = &service["spec"];
    let ranges = object::list(spec, &["loadBalancerSourceRanges"]);
    if !ranges.is_empty() && kind != "LoadBalancer" {
        errors.forbidden("spec.LoadBalancerSourceRanges", FOR_LOAD_BALANCERS);
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default().trim();
        if range.parse::<crablet_api::Cidr>().is_err() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.invalid(format_args!("spec.LoadBalancerSourceRanges[{index}]"), range, detail);
        }
    }
    if kind != "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].is_null() {
        errors.forbidden("spec.allocateLoadBalancerNodePorts", FOR_LOAD_BALANCERS);
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        match kind {
            "LoadBalancer" => {
                errors.invalid_each("spec.loadBalancerClass", class, qualified_name_errors(class));
            }
            _ => errors.forbidden("spec.loadBalancerClass", FOR_LOAD_BALANCERS),
        }
    }
}

fn check_policies(errors: &mut Errors, spec: &Value) {
    let policies = ["Cluster", "Local"];
    let external = object::text(spec, &["externalTrafficPolicy"]);
    if !is_external(spec) {
        if !external.is_empty() {
            let detail = "may only be set for externally-accessible services";
            errors.invalid("spec.externalTrafficPolicy", word(&spec["externalTrafficPolicy"]), detail);
        }
    } else if external.is_empty() {
        errors.required("spec.externalTrafficPolicy", "");
    } else if !policies.contains(&external) {
        errors.not_supported("spec.externalTrafficPolicy", word(&spec["externalTrafficPolicy"]), &policies);
    }
    let health_check = spec["healthCheckNodePort"].as_i64().unwrap_or(0);
    if !needs_health_check(spec) && health_check != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid("spec.healthCheckNodePort", health_check, detail);
    }
    match spec["internalTrafficPolicy"].as_str() {
        None if uses_addresses(spec) => errors.required("spec.internalTrafficPolicy", ""),
        Some(policy) if !policies.contains(&policy) => {
            errors.not_supported(
                "spec.internalTrafficPolicy",
                word(&spec["internalTrafficPolicy"]),
                &policies,
            );
        }
        Some(_) | None => {}
    }
    let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(distribution) = spec["trafficDistribution"].as_str()
        && !distributions.contains(&distribution)
    {
        errors.not_supported("spec.trafficDistribution", distribution, &distributions);
    }
}

/// What an update may not change.
pub(super) fn check_change(errors: &mut Errors, new: &Value, old: &Value) {
    if new["type"] == "LoadBalancer"
        && old["type"] == "LoadBalancer"
        && new["loadBalancerClass"] != old["loadBalancerClass"]
    {
        errors.invalid("spec.loadBalancerClass", &new["loadBalancerClass"], "may not change once set");
    }
    if needs_health_check(new)
        && needs_health_check(old)
        && new["healthCheckNodePort"] != old["healthCheckNodePort"]
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
    let is_external_name = |spec: &Value| spec["type"] == "ExternalName";
    if is_external_name(new) || is_external_name(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    let (addresses, known) = (object::list(new, &["clusterIPs"]), object::list(old, &["clusterIPs"]));
    let changed = "may not change once set";
    if addresses.len() == known.len() {
        for (index, _) in addresses.iter().zip(known).enumerate().filter(|(_, (now, known))| now != known) {
            errors.invalid(format_args!("spec.clusterIPs[{index}]"), &new["clusterIPs"], changed);
        }
    } else if addresses.is_empty() {
        errors.invalid("spec.clusterIPs[0]", &new["clusterIPs"], "primary clusterIP can not be unset");
    } else if !known.is_empty() && addresses.first() != known.first() {
        errors.invalid("spec.clusterIPs[0]", &new["clusterIPs"], changed);
    }
}
