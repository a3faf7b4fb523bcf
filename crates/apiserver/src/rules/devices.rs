//! Devices: claims to them, what a node offers, and classes. Expressions that select devices are taken as they are.

use crablet_api::validate::{Errors, Word};
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors};
use serde_json::{Value, json};

use super::checks::{check_name, is_repeated};
use super::metadata::{self, check_immutable, check_immutable_object};
use super::{Context, NameForm, Rules, Update, keep_all_but_status};
use crate::object;
use crate::resources::Subresource;

pub struct Claims;
pub struct Templates;
pub struct Slices;
pub struct Classes;

const MOST_REQUESTS: usize = 32;
const MOST_CONSUMERS: usize = 256;
const LONGEST_EXPRESSION: usize = 10 * 1024;

impl Rules for Claims {
    fn default(&self, claim: &mut Value, part: Option<Subresource>) {
        if part != Some(Subresource::Status) {
            default_requests(&mut claim["spec"]);
        }
    }

    fn prepare_create(&self, claim: &mut Value, _context: &Context<'_>) {
        claim["status"] = json!({});
    }

    fn validate_create(&self, errors: &mut Errors, claim: &Value, _context: &Context<'_>) {
        check_claim(errors, "spec", &claim["spec"]);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_all_but_status(new, old, part);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, part, .. } = *update;
        if part == Some(Subresource::Status) {
            metadata::check_update(errors, update);
            check_claim_status(errors, new, old);
        } else {
            metadata::check(errors, update.resource, NameForm::Subdomain, new);
            metadata::check_update(errors, update);
            let kind = "resource.ResourceClaimSpec";
            check_immutable_object(errors, "spec", kind, &new["spec"], &old["spec"]);
        }
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

impl Rules for Templates {
    fn default(&self, template: &mut Value, _part: Option<Subresource>) {
        if let Some(spec) = template.get_mut("spec").and_then(|spec| spec.get_mut("spec")) {
            default_requests(spec);
        }
    }

    fn validate_create(&self, errors: &mut Errors, template: &Value, _context: &Context<'_>) {
        check_claim(errors, "spec.spec", &template["spec"]["spec"]);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        let kind = "resource.ResourceClaimTemplateSpec";
        check_immutable_object(errors, "spec", kind, &new["spec"], &old["spec"]);
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

impl Rules for Slices {
    fn validate_create(&self, errors: &mut Errors, slice: &Value, _context: &Context<'_>) {
        check_slice(errors, &slice["spec"]);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check_update(errors, update);
        let (spec, known) = (&new["spec"], &old["spec"]);
        check_immutable(errors, "spec.pool.name", &spec["pool"]["name"], &known["pool"]["name"]);
        check_immutable(errors, "spec.driver", &spec["driver"], &known["driver"]);
        check_immutable(errors, "spec.nodeName", &spec["nodeName"], &known["nodeName"]);
        check_slice(errors, spec);
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

impl Rules for Classes {
    fn validate_create(&self, errors: &mut Errors, class: &Value, _context: &Context<'_>) {
        check_selectors(errors, "spec.selectors", object::list(class, &["spec", "selectors"]));
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, .. } = *update;
        metadata::check_update(errors, update);
        check_selectors(errors, "spec.selectors", object::list(new, &["spec", "selectors"]));
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn default_requests(spec: &mut Value) {
    let fill = |request: &mut Value| {
        object::fill_text(request, "allocationMode", "ExactCount");
        if request["allocationMode"] == "ExactCount" && request["count"].as_i64().unwrap_or(0) == 0 {
            request["count"] = 1.into();
        }
    };
    let requests = spec.get_mut("devices").and_then(|devices| devices.get_mut("requests"));
    for request in requests.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(exact) = request.get_mut("exactly").filter(|exact| exact.is_object()) {
            fill(exact);
        }
        let choices = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        choices.into_iter().flatten().filter(|choice| choice.is_object()).for_each(fill);
    }
}

fn check_claim(errors: &mut Errors, path: &str, spec: &Value) {
    let path = format!("{path}.devices.requests");
    let requests = object::list(spec, &["devices", "requests"]);
    if requests.len() > MOST_REQUESTS {
        errors.too_many(&path, requests.len(), MOST_REQUESTS);
    }
    for (index, request) in requests.iter().enumerate() {
        let name = object::text(request, &["name"]);
        if is_repeated(requests, index, "name") {
            errors.duplicate(format_args!("{path}[{index}].name"), name);
        }
        let path = format!("{path}[{index}]");
        errors.invalid_each(format_args!("{path}.name"), name, dns1123_label_errors(name));
        let choices = object::list(request, &["firstAvailable"]);
        match (request["exactly"].is_object(), !choices.is_empty()) {
            (false, false) => {
                errors.required(&path, "exactly one of `exactly` or `firstAvailable` is required");
            }
            (true, true) => errors.invalid(
                &path,
                &Value::Null,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ),
            (true, false) => check_exact(errors, &format!("{path}.exactly"), &request["exactly"]),
            (false, true) => {
                for (index, choice) in choices.iter().enumerate() {
                    let path = format!("{path}.firstAvailable[{index}]");
                    let name = object::text(choice, &["name"]);
                    errors.invalid_each(format_args!("{path}.name"), name, dns1123_label_errors(name));
                    check_exact(errors, &path, choice);
                }
            }
        }
    }
}

fn check_exact(errors: &mut Errors, path: &str, request: &Value) {
    let class = object::text(request, &["deviceClassName"]);
    check_name(errors, format!("{path}.deviceClassName"), class, dns1123_subdomain_errors);
    check_selectors(errors, &format!("{path}.selectors"), object::list(request, &["selectors"]));
    let (mode, count) = (object::text(request, &["allocationMode"]), request["count"].as_i64().unwrap_or(0));
    match mode {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.invalid(format_args!("{path}.count"), count, detail);
        }
        "ExactCount" if count <= 0 => {
            errors.invalid(format_args!("{path}.count"), count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        mode => {
            let path = format!("{path}.allocationMode");
            errors.not_supported(path, Word(mode), &["All", "ExactCount"]);
        }
    }
}

fn check_selectors(errors: &mut Errors, path: &str, selectors: &[Value]) {
    if selectors.len() > MOST_REQUESTS {
        errors.too_many(path, selectors.len(), MOST_REQUESTS);
    }
    for (index, selector) in selectors.iter().enumerate() {
        let path = format!("{path}[{index}].cel");
        if selector["cel"].is_null() {
            errors.required(path, "");
        } else if object::text(selector, &["cel", "expression"]).len() > LONGEST_EXPRESSION {
            errors.too_long(format_args!("{path}.expression"), LONGEST_EXPRESSION);
        }
    }
}

fn check_claim_status(errors: &mut Errors, new: &Value, old: &Value) {
    let (status, known) = (&new["status"], &old["status"]);
    let consumers = object::list(status, &["reservedFor"]);
    if consumers.len() > MOST_CONSUMERS {
        errors.too_many("status.reservedFor", consumers.len(), MOST_CONSUMERS);
    }
    for (index, consumer) in consumers.iter().enumerate() {
        let path = format!("status.reservedFor[{index}]");
        for field in ["resource", "name", "uid"] {
            if object::text(consumer, &[field]).is_empty() {
                errors.required(format_args!("{path}.{field}"), "");
            }
        }
        if is_repeated(consumers, index, "uid") {
            errors.duplicate(format_args!("{path}.uid"), Word(object::text(consumer, &["uid"])));
        }
    }
    if !consumers.is_empty() && status["allocation"].is_null() {
        errors.forbidden("status.reservedFor", "may not be specified when `allocated` is not set");
    } else if object::is_being_deleted(new) {
        let known = object::list(known, &["reservedFor"]);
        if consumers.iter().any(|consumer| !known.contains(consumer)) {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden("status.reservedFor", detail);
        }
    }
    if !known["allocation"].is_null() && !status["allocation"].is_null() {
        let kind = "resource.AllocationResult";
        let (now, known) = (&status["allocation"], &known["allocation"]);
        check_immutable_object(errors, "status.allocation", kind, now, known);
    }
}

fn check_slice(errors: &mut Errors, spec: &Value) {
    super::volumes::check_driver(errors, "spec.driver", object::text(spec, &["driver"]));
    match object::text(spec, &["pool", "name"]) {
        "" => errors.required("spec.pool.name", ""),
        name => {
            for part in name.split('/') {
                errors.invalid_each("spec.pool.name", part, dns1123_subdomain_errors(part));
            }
        }
    }
    if spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(0) <= 0 {
        let count = spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(0);
        errors.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero");
    }
    let mut set = Vec::new();
    match spec["nodeName"].as_str() {
        Some("") => {
            errors.invalid("spec.nodeName", "", "must be either unset or set to a non-empty string");
        }
        Some(node) => {
            set.push("`nodeName`");
            errors.invalid_each("spec.nodeName", node, dns1123_subdomain_errors(node));
        }
        None => {}
    }
    if spec["nodeSelector"].is_object() {
        set.push("`nodeSelector`");
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec[field].as_bool() {
            Some(true) => set.push(shown),
            Some(false) => {
                errors.invalid(format_args!("spec.{field}"), false, "must be either unset or set to true");
            }
            None => {}
        }
    }
    let one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.required("spec", one),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid("spec", shown.as_str(), format!("{one}, but multiple fields are set"));
        }
    }
    let devices = object::list(spec, &["devices"]);
    if devices.len() > 128 {
        errors.too_many("spec.devices", devices.len(), 128);
    }
    for (index, device) in devices.iter().enumerate() {
        let (path, name) = (format!("spec.devices[{index}].name"), object::text(device, &["name"]));
        errors.invalid_each(&path, name, dns1123_label_errors(name));
        if is_repeated(devices, index, "name") {
            errors.duplicate(path, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::lines;
    use super::*;

    #[test]
    fn a_claim_asks_for_devices_of_a_class() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu"}},
            {"name": "b", "exactly": {}},
            {"name": "c"},
        ]}}});
        Claims.default(&mut claim, None);
        assert_eq!(
            claim["spec"]["devices"]["requests"][0]["exactly"],
            json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1})
        );
        assert_eq!(
            lines(|errors| check_claim(errors, "spec", &claim["spec"])),
            [
                "spec.devices.requests[1].exactly.deviceClassName: Required value",
                "spec.devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ]
        );
    }
}
