//! Nodes.

use std::net::IpAddr;

use crablet_api::validate::{Errors, Word};
use crablet_api::{Cidr, label_value_errors, qualified_name_errors};
use serde_json::Value;

use super::metadata;
use super::pods::quantity;
use super::{Context, NameForm, Rules, Update, diff, keep_other_parts};
use crate::object;
use crate::resources::Subresource;

pub struct Nodes;

impl Rules for Nodes {
    fn default(&self, node: &mut Value, _part: Option<Subresource>) {
        // What can be used is what there is, unless it says otherwise.
        if node["status"]["capacity"].is_object() && !node["status"]["allocatable"].is_object() {
            node["status"]["allocatable"] = node["status"]["capacity"].clone();
        }
    }

    fn prepare_create(&self, node: &mut Value, _context: &Context<'_>) {
        drop_config_source(node);
        settle_pod_cidrs(node);
    }

    fn validate_create(&self, errors: &mut Errors, node: &Value, _context: &Context<'_>) {
        check(errors, node);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_other_parts(new, old, part);
        drop_config_source(new);
        settle_pod_cidrs(new);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        if part != Some(Subresource::Status) {
            metadata::check(errors, update.resource, NameForm::Subdomain, new);
            check(errors, new);
        }
        metadata::check_update(errors, update);
        check_resources(errors, new);
        let addresses = object::list(new, &["status", "addresses"]);
        for (index, address) in addresses.iter().enumerate() {
            if addresses.iter().take(index).any(|other| other == address) {
                let shown = diff::shown("NodeAddress", address);
                errors.duplicate(format_args!("status.addresses[{index}]"), shown);
            }
        }
        let cidrs = object::list(old, &["spec", "podCIDRs"]);
        if !cidrs.is_empty() && cidrs != object::list(new, &["spec", "podCIDRs"]) {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden("spec.podCIDRs", detail);
        }
        let provider = object::text(old, &["spec", "providerID"]);
        if !provider.is_empty() && provider != object::text(new, &["spec", "providerID"]) {
            let detail = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden("spec.providerID", detail);
        }
        check_taints(errors, new);
        if new["spec"]["externalID"] != old["spec"]["externalID"] {
            errors.forbidden("spec.externalID", "may not be updated");
        }
    }
}

fn drop_config_source(node: &mut Value) {
    if let Some(spec) = node.get_mut("spec") {
        object::remove(spec, "configSource");
    }
    if let Some(status) = node.get_mut("status") {
        object::remove(status, "config");
    }
}

/// The singular field is the first of the plural one.
fn settle_pod_cidrs(node: &mut Value) {
    let (singular, plural) =
        (object::text(node, &["spec", "podCIDR"]).to_owned(), object::list(node, &["spec", "podCIDRs"]));
    match (singular.is_empty(), plural.first().cloned()) {
        (false, None) => node["spec"]["podCIDRs"] = vec![singular].into(),
        (_, Some(first)) => node["spec"]["podCIDR"] = first,
        (true, None) => {}
    }
}

fn check(errors: &mut Errors, node: &Value) {
    check_taints(errors, node);
    check_resources(errors, node);
    let cidrs = object::list(node, &["spec", "podCIDRs"]);
    let mut families = Vec::new();
    for (index, cidr) in cidrs.iter().enumerate() {
        let cidr = cidr.as_str().unwrap_or_default();
        if cidr.parse::<Cidr>().is_err() {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.invalid(format_args!("spec.podCIDRs[{index}]"), cidr, detail);
        }
        let address = cidr.split('/').next().unwrap_or_default();
        families.push(address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()));
    }
    if cidrs.len() > 2 || (cidrs.len() == 2 && families.first() == families.last()) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid("spec.podCIDRs", &node["spec"]["podCIDRs"], detail);
    }
}

/// Upstream has the path wrong, and so have all who read its messages.
fn check_taints(errors: &mut Errors, node: &Value) {
    let taints = object::list(node, &["spec", "taints"]);
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("metadata.taints[{index}]");
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        errors.invalid_each(format_args!("{path}.key"), text("key"), qualified_name_errors(text("key")));
        let problems = label_value_errors(text("value"));
        if !problems.is_empty() {
            errors.invalid(format_args!("{path}.value"), text("value"), problems.join(";"));
        }
        check_taint_effect(errors, &format!("{path}.effect"), text("effect"));
        let is_same = |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if taints.iter().take(index).any(|other| is_same(&other)) {
            let shown = diff::shown("Taint", taint);
            errors.duplicate_because(&path, shown, "taints must be unique by key and effect pair");
        }
    }
}

fn check_taint_effect(errors: &mut Errors, path: &str, effect: &str) {
    match effect {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        "" => errors.required(path, ""),
        other => {
            errors.not_supported(path, Word(other), &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

fn check_resources(errors: &mut Errors, node: &Value) {
    for field in ["capacity", "allocatable"] {
        for (name, amount) in node["status"][field].as_object().into_iter().flatten() {
            let Some(amount) = quantity(amount) else { continue };
            if amount.sign() < 0 {
                let shown = amount.to_string();
                let detail = "must be greater than or equal to 0";
                errors.invalid(format_args!("status.{field}.{name}"), shown.as_str(), detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::lines;
    use super::*;

    #[test]
    fn taints_are_checked_at_the_path_that_upstream_names() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [
            {"key": "a", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoSchedule", "value": "x"},
            {"key": "b", "effect": "Other"},
        ]}});
        assert_eq!(
            lines(|errors| check(errors, &node)),
            [
                r#"metadata.taints[1]: Duplicate value: {"Key":"a","Value":"x","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#,
                r#"metadata.taints[2].effect: Unsupported value: "Other": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ]
        );
    }
}
