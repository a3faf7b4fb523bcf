//! Services: names and addresses for pods. Addresses and node ports are given out here, the lowest that is free.

mod allocate;
mod check;

use crablet_api::validate::{Errors, Word};
use serde_json::{Value, json};

use super::metadata::{self, same};
use super::{Context, NameForm, Rules, Update, keep_other_parts};
use crate::object;
use crate::resources::Subresource;

pub struct Services;

/// What services have as an address that have none.
const NONE: &str = "None";

impl Rules for Services {
    fn name_form(&self) -> NameForm {
        NameForm::Label
    }

    fn default(&self, service: &mut Value, _part: Option<Subresource>) {
        let spec = object::holder(service, "spec");
        object::fill_text(spec, "sessionAffinity", "None");
        match spec["sessionAffinity"].as_str() {
            Some("None") => drop(object::remove(spec, "sessionAffinityConfig")),
            Some("ClientIP") if spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() => {
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
            }
            Some(_) | None => {}
        }
        object::fill_text(spec, "type", "ClusterIP");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            object::fill_text(port, "protocol", "TCP");
            if matches!(&port["targetPort"], Value::Null)
                || port["targetPort"] == 0
                || port["targetPort"] == ""
            {
                port["targetPort"] = port["port"].clone();
            }
        }
        if is_external(spec) {
            object::fill_text(spec, "externalTrafficPolicy", "Cluster");
        }
        if uses_addresses(spec) {
            object::fill(spec, "internalTrafficPolicy", "Cluster");
        }
        if spec["type"] == "LoadBalancer" {
            object::fill(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, service: &mut Value, context: &Context<'_>) {
        service["status"] = json!({"loadBalancer": {}});
        settle_cluster_ips(&mut service["spec"], None);
        allocate::allocate(service, context.state);
    }

    fn validate_create(&self, errors: &mut Errors, service: &Value, context: &Context<'_>) {
        check::check(errors, service, None);
        if errors.is_empty() {
            allocate::check(errors, service, None, context.state);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>, context: &Context<'_>) {
        keep_other_parts(new, old, part);
        if part.is_some() {
            return;
        }
        keep_allocated(&mut new["spec"], &old["spec"]);
        settle_cluster_ips(&mut new["spec"], Some(&old["spec"]));
        drop_what_the_type_has_not(new, old);
        allocate::allocate(new, context.state);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        metadata::check_update(errors, update);
        if part.is_some() {
            return;
        }
        check::check_change(errors, &new["spec"], &old["spec"]);
        check::check(errors, new, Some(old));
        if errors.is_empty() {
            allocate::check(errors, new, Some(old), update.state);
        }
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn is_headless(spec: &Value) -> bool {
    matches!(object::list(spec, &["clusterIPs"]), [only] if only == NONE)
}

fn uses_addresses(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("ClusterIP" | "NodePort" | "LoadBalancer"))
}

fn uses_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort"
        || (spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false)
}

/// Whether somebody outside reaches it.
fn is_external(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"))
        || (spec["type"] == "ClusterIP" && !object::list(spec, &["externalIPs"]).is_empty())
}

fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// The singular field is the first of the plural one, whichever was said.
fn settle_cluster_ips(spec: &mut Value, old: Option<&Value>) {
    let singular = object::text(spec, &["clusterIP"]).to_owned();
    let plural = object::list(spec, &["clusterIPs"]).to_vec();
    let first = plural.first().and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(old) = old else {
        if plural.is_empty() && !singular.is_empty() {
            spec["clusterIPs"] = vec![singular].into();
        }
        return;
    };
    let was = object::text(old, &["clusterIP"]);
    let is_plural_kept = same(&spec["clusterIPs"], &old["clusterIPs"]);
    if singular != was && is_plural_kept {
        match singular.as_str() {
            "" => drop(object::remove(spec, "clusterIPs")),
            _ => spec["clusterIPs"] = vec![singular].into(),
        }
    } else if singular == was && !is_plural_kept && first != was {
        // Only the plural one changed.
        match first.as_str() {
            "" => drop(object::remove(spec, "clusterIP")),
            _ => spec["clusterIP"] = first.into(),
        }
    }
}

/// An update that does not say what was given out means what there is.
fn keep_allocated(spec: &mut Value, old: &Value) {
    let needs = |spec: &Value| uses_addresses(spec);
    if needs(old)
        && needs(spec)
        && object::text(spec, &["clusterIP"]).is_empty()
        && spec["clusterIPs"].is_null()
    {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(known) = old.get(field) {
                spec[field] = known.clone();
            }
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if needs(old)
            && needs(spec)
            && spec[field].is_null()
            && let Some(known) = old.get(field)
        {
            spec[field] = known.clone();
        }
    }
    if uses_node_ports(old) && uses_node_ports(spec) {
        let known = object::list(old, &["ports"]);
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let is_same =
                |known: &&Value| known["port"] == port["port"] && known["protocol"] == port["protocol"];
            if port["nodePort"].as_i64().unwrap_or(0) == 0
                && let Some(known) = known.iter().find(is_same)
                && let Some(number) = known.get("nodePort")
            {
                port["nodePort"] = number.clone();
            }
        }
    }
}

/// Takes away what only the former type had, where it was not said anew.
fn drop_what_the_type_has_not(new: &mut Value, old: &Value) {
    let (was_external_name, is_external_name) =
        (old["spec"]["type"] == "ExternalName", new["spec"]["type"] == "ExternalName");
    let spec = &mut new["spec"];
    if !was_external_name && is_external_name {
        let is_kept = |field: &str| same(&spec[field], &old["spec"][field]);
        if is_kept("clusterIP") && is_kept("clusterIPs") {
            object::remove(spec, "clusterIP");
            object::remove(spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(&spec[field], &old["spec"][field]) {
                object::remove(spec, field);
            }
        }
    }
    if uses_node_ports(&old["spec"]) && !uses_node_ports(spec) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            object::remove(port, "nodePort");
        }
    }
    if needs_health_check(&old["spec"])
        && !needs_health_check(spec)
        && spec["healthCheckNodePort"] == old["spec"]["healthCheckNodePort"]
    {
        object::remove(spec, "healthCheckNodePort");
    }
    if old["spec"]["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec[field] == old["spec"][field] {
                object::remove(spec, field);
            }
        }
    }
    if is_external(&old["spec"])
        && !is_external(spec)
        && spec["externalTrafficPolicy"] == old["spec"]["externalTrafficPolicy"]
    {
        object::remove(spec, "externalTrafficPolicy");
    }
    if spec["type"] != "LoadBalancer" && new["status"]["loadBalancer"].is_object() {
        new["status"]["loadBalancer"] = json!({});
    }
}

/// A text of a closed set.
fn word(value: &Value) -> Word<'_> {
    Word(value.as_str().unwrap_or_default())
}
