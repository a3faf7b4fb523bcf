//! What is signed: requests, trust bundles and pods' own requests. What a request has within is not looked at here
//! beyond its shape.

mod pem;

use base64::Engine as _;
use crablet_api::validate::{Errors, FieldError, Word};
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors};
use serde_json::{Value, json};

use super::metadata::{self, check_immutable, check_immutable_object, same};
use super::{Context, NameForm, Rules, keep_other_parts};
use crate::object;
use crate::resources::{Resource, Subresource};
use pem::{certificate_problem, is_sequence, pem_blocks, request_problem};

pub(crate) use pem::subject;

pub struct SigningRequests;
pub struct TrustBundles;
pub struct PodRequests;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LARGEST_BUNDLE: usize = 1 << 20;

impl Rules for SigningRequests {
    fn name_form(&self) -> NameForm {
        NameForm::PathSegment
    }

    fn prepare_create(&self, request: &mut Value, context: &Context<'_>) {
        request["status"] = json!({});
        if !request["spec"].is_object() {
            request["spec"] = json!({});
        }
        let spec = &mut request["spec"];
        for field in ["username", "uid", "groups", "extra"] {
            object::remove(spec, field);
        }
        let user = context.user;
        if !user.name.is_empty() {
            spec["username"] = user.name.as_str().into();
        }
        if !user.uid.is_empty() {
            spec["uid"] = user.uid.as_str().into();
        }
        if !user.groups.is_empty() {
            spec["groups"] = user.groups.clone().into();
        }
        if !user.extra.is_empty() {
            spec["extra"] = json!(user.extra);
        }
    }

    fn validate_create(&self, request: &Value, _context: &Context<'_>) -> Vec<FieldError> {
        let mut errors = Errors::default();
        check_request(&mut errors, request, None);
        errors.into_list()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>, context: &Context<'_>) {
        match part {
            Some(Subresource::Status) => {
                keep_other_parts(new, old, part);
                for kind in ["Approved", "Denied"] {
                    keep_conditions(new, old, kind);
                }
                set_condition_times(new, old, context);
            }
            Some(Subresource::Approval) => {
                set_condition_times(new, old, context);
                let conditions = new["status"]["conditions"].take();
                new["spec"] = old["spec"].clone();
                new["status"] = old["status"].clone();
                if conditions.is_array() {
                    new["status"]["conditions"] = conditions;
                } else if let Some(status) = new.get_mut("status") {
                    object::remove(status, "conditions");
                }
            }
            Some(_) | None => {
                new["spec"] = old["spec"].clone();
                keep_other_parts(new, old, None);
            }
        }
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
        context: &Context<'_>,
    ) -> Vec<FieldError> {
        let mut errors = Errors::default();
        metadata::check(&mut errors, context.resource, NameForm::PathSegment, new);
        check_request(&mut errors, new, Some(old));
        let path = "status.conditions";
        let of = |request: &Value, kind: &str| -> Vec<Value> {
            let conditions = object::list(request, &["status", "conditions"]).iter();
            conditions.filter(|condition| condition["type"] == kind).cloned().collect()
        };
        for kind in ["Approved", "Denied", "Failed"] {
            if of(new, kind).len() < of(old, kind).len() {
                errors.forbidden(path, format!("updates may not remove a condition of type {kind:?}"));
            }
        }
        for kind in ["Approved", "Denied"].into_iter().filter(|_| part != Some(Subresource::Approval)) {
            let (now, before) = (of(new, kind), of(old, kind));
            if now.len() > before.len() {
                errors.forbidden(path, format!("updates may not add a condition of type {kind:?}"));
            } else if now.len() == before.len() && now != before {
                errors.forbidden(path, format!("updates may not modify a condition of type {kind:?}\n"));
            }
        }
        let certificate = |request: &Value| object::text(request, &["status", "certificate"]).to_owned();
        if certificate(new) != certificate(old) {
            if part != Some(Subresource::Status) {
                errors.forbidden("status.certificate", "updates may not set certificate content");
            } else if !certificate(old).is_empty() {
                let detail = "updates may not modify existing certificate content";
                errors.forbidden("status.certificate", detail);
            }
        }
        metadata::check_update(&mut errors, context.resource, new, old);
        errors.into_list()
    }
}

/// Conditions of a kind are as they were, if there are as many.
fn keep_conditions(new: &mut Value, old: &Value, kind: &str) {
    let known: Vec<&Value> = object::list(old, &["status", "conditions"])
        .iter()
        .filter(|condition| condition["type"] == kind)
        .collect();
    let Some(conditions) = new["status"].get_mut("conditions").and_then(Value::as_array_mut) else { return };
    let mut found: Vec<&mut Value> =
        conditions.iter_mut().filter(|condition| condition["type"] == kind).collect();
    if found.len() == known.len() {
        for (condition, known) in found.iter_mut().zip(known) {
            **condition = known.clone();
        }
    }
}

fn set_condition_times(new: &mut Value, old: &Value, context: &Context<'_>) {
    let now = object::time(context.now);
    let known = object::list(old, &["status", "conditions"]);
    let conditions = new["status"].get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.clone();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = known.iter().find(|known| {
                known["type"] == condition["type"]
                    && known["status"] == condition["status"]
                    && known["lastTransitionTime"].is_string()
            });
            condition["lastTransitionTime"] =
                same.map_or_else(|| now.clone(), |same| same["lastTransitionTime"].clone());
        }
    }
}

fn check_request(errors: &mut Errors, request: &Value, old: Option<&Value>) {
    let spec = &request["spec"];
    let encoded = object::text(spec, &["request"]);
    if old.is_none() {
        let pem = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
        if let Some(problem) = request_problem(&pem) {
            match encoded {
                "" => errors.invalid("spec.request", &Value::Null, problem),
                encoded => errors.invalid("spec.request", Word(encoded), problem),
            }
        }
    }
    let usages = object::list(spec, &["usages"]);
    if usages.is_empty() {
        errors.required("spec.usages", "");
    }
    if old.is_none() {
        for (index, usage) in usages.iter().enumerate() {
            let usage = usage.as_str().unwrap_or_default();
            if !USAGES.contains(&usage) {
                errors.not_supported(format_args!("spec.usages[{index}]"), Word(usage), &USAGES);
            }
        }
        for (index, usage) in usages.iter().enumerate() {
            if usages.iter().take(index).any(|other| other == usage) {
                let usage = Word(usage.as_str().unwrap_or_default());
                errors.duplicate(format_args!("spec.usages[{index}]"), usage);
            }
        }
    }
    let signer = object::text(spec, &["signerName"]);
    if signer == "kubernetes.io/legacy-unknown" && old.is_none() {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid("spec.signerName", signer, detail);
    } else {
        check_signer(errors, "spec.signerName", signer);
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", seconds, detail);
    }
    check_conditions(errors, request);
    let certificate = object::text(request, &["status", "certificate"]);
    if old.is_none_or(|old| old["status"]["certificate"] != request["status"]["certificate"]) {
        let pem = base64::engine::general_purpose::STANDARD.decode(certificate).unwrap_or_default();
        if let Some(problem) = certificate_problem(&pem) {
            errors.invalid("status.certificate", "<certificate data>", problem);
        }
    }
}

fn check_conditions(errors: &mut Errors, request: &Value) {
    let conditions = object::list(request, &["status", "conditions"]);
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let text = |field: &str| object::text(condition, &[field]);
        let kind = text("type");
        if kind.is_empty() {
            errors.required(format_args!("{path}.type"), "");
        }
        let allowed: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        match text("status") {
            "" => errors.required(format_args!("{path}.status"), ""),
            status if !allowed.contains(&status) => {
                errors.not_supported(format_args!("{path}.status"), Word(status), allowed);
            }
            _ => {}
        }
        let earlier = |kind: &str| conditions.iter().take(index).any(|other| other["type"] == kind);
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "\0",
        };
        if earlier(opposite) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid("status.conditions", Word(kind), detail);
        }
        if earlier(kind) {
            errors.duplicate(format_args!("{path}.type"), Word(kind));
        }
    }
}

pub(crate) fn check_signer(errors: &mut Errors, path: &str, signer: &str) {
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, name] = parts.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, detail);
    };
    if domain.len() > 253 {
        errors.too_long(path, 253);
    }
    let bad = domain.split('.').find(|label| !dns1123_label_errors(label).is_empty());
    for problem in bad.map(dns1123_label_errors).unwrap_or_default() {
        errors.invalid(path, *domain, format!("validating label {:?}: {problem}", bad.unwrap_or_default()));
    }
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, *domain, detail);
    }
    let bad = name.split('.').find(|label| !dns1123_subdomain_errors(label).is_empty());
    for problem in bad.map(dns1123_subdomain_errors).unwrap_or_default() {
        errors.invalid(path, *name, format!("validating label {:?}: {problem}", bad.unwrap_or_default()));
    }
    if signer.len() > 571 {
        errors.too_long(path, 571);
    }
}

impl Rules for TrustBundles {
    fn validate_metadata(&self, resource: &Resource, bundle: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        check_bundle_name(&mut errors, bundle);
        let mut list = metadata::validate_create(resource, NameForm::PathSegment, bundle);
        list.extend(errors.into_list());
        list
    }

    fn validate_create(&self, bundle: &Value, _context: &Context<'_>) -> Vec<FieldError> {
        let mut errors = Errors::default();
        check_bundle(&mut errors, bundle, true);
        errors.into_list()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _part: Option<Subresource>,
        context: &Context<'_>,
    ) -> Vec<FieldError> {
        let mut errors = Errors::default();
        check_bundle_name(&mut errors, new);
        check_bundle(&mut errors, new, new["spec"]["trustBundle"] != old["spec"]["trustBundle"]);
        metadata::check_update(&mut errors, context.resource, new, old);
        check_immutable(
            &mut errors,
            "spec.signerName",
            &new["spec"]["signerName"],
            &old["spec"]["signerName"],
        );
        errors.into_list()
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check_bundle_name(errors: &mut Errors, bundle: &Value) {
    let (name, signer) = (object::name(bundle), object::text(bundle, &["spec", "signerName"]));
    if name.is_empty() {
        return;
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    let problems = if signer.is_empty() && name.contains(':') {
        vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
    } else if signer.is_empty() {
        dns1123_subdomain_errors(name)
    } else {
        match name.strip_prefix(&prefix) {
            Some(rest) => dns1123_subdomain_errors(rest),
            None => {
                vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
            }
        }
    };
    errors.invalid_each("metadata.name", name, problems);
}

fn check_bundle(errors: &mut Errors, bundle: &Value, is_new: bool) {
    let signer = object::text(bundle, &["spec", "signerName"]);
    if !signer.is_empty() {
        check_signer(errors, "spec.signerName", signer);
    }
    let (path, text) = ("spec.trustBundle", object::text(bundle, &["spec", "trustBundle"]));
    if !is_new {
        return;
    }
    if text.len() > LARGEST_BUNDLE {
        return errors.too_long(path, LARGEST_BUNDLE);
    }
    let blocks = pem_blocks(text.as_bytes());
    let omitted = "<value omitted>";
    let mut has_bad = false;
    for (index, block) in blocks.iter().enumerate() {
        let problem = if block.label != "CERTIFICATE" {
            format!("entry {index} has bad block type: {}", block.label)
        } else if block.has_headers {
            format!("entry {index} has PEM block headers")
        } else if !is_sequence(&block.bytes) {
            format!("entry {index} does not parse as X.509")
        } else {
            continue;
        };
        has_bad = true;
        errors.invalid(path, omitted, problem);
    }
    if has_bad {
        return;
    }
    if blocks.is_empty() {
        errors.invalid(path, omitted, "at least one trust anchor must be provided");
    }
    for (index, block) in blocks.iter().enumerate() {
        let same: Vec<String> = blocks
            .iter()
            .enumerate()
            .filter(|(_, other)| other.bytes == block.bytes)
            .map(|(other, _)| other.to_string())
            .collect();
        if same.len() > 1 && same.first().is_some_and(|first| *first == index.to_string()) {
            errors.invalid(path, omitted, format!("duplicate trust anchor (indices [{}])", same.join(" ")));
        }
    }
}

impl Rules for PodRequests {
    fn default(&self, request: &mut Value, _part: Option<Subresource>) {
        if request["spec"].is_object() && request["spec"]["maxExpirationSeconds"].is_null() {
            request["spec"]["maxExpirationSeconds"] = 86_400.into();
        }
    }

    fn prepare_create(&self, request: &mut Value, _context: &Context<'_>) {
        request["status"] = json!({});
    }

    fn validate_create(&self, request: &Value, _context: &Context<'_>) -> Vec<FieldError> {
        let mut errors = Errors::default();
        check_pod_request(&mut errors, &request["spec"]);
        errors.into_list()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
        context: &Context<'_>,
    ) -> Vec<FieldError> {
        let mut errors = Errors::default();
        metadata::check_update(&mut errors, context.resource, new, old);
        if part == Some(Subresource::Status) {
            check_pod_request_status(&mut errors, &new["status"], &old["status"]);
        } else {
            let kind = "certificates.PodCertificateRequestSpec";
            check_immutable_object(&mut errors, "spec", kind, &new["spec"], &old["spec"]);
        }
        errors.into_list()
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check_pod_request(errors: &mut Errors, spec: &Value) {
    let signer = object::text(spec, &["signerName"]);
    check_signer(errors, "spec.signerName", signer);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let (said, said_uid) = (object::text(spec, &[name]), object::text(spec, &[uid]));
        for problem in dns1123_subdomain_errors(said) {
            match name {
                "nodeName" => errors.invalid("spec.nodeName", Word(said), problem),
                name => errors.invalid(format_args!("spec.{name}"), said, problem),
            }
        }
        if said_uid.is_empty() {
            errors.invalid(format_args!("spec.{uid}"), Word(""), "must not be empty");
        }
        if said_uid.len() > 128 {
            errors.too_long(format_args!("spec.{uid}"), 128);
        }
    }
    let Some(seconds) = spec["maxExpirationSeconds"].as_i64() else {
        return errors.required("spec.maxExpirationSeconds", "must be set");
    };
    let longest = if signer.starts_with("kubernetes.io/") { 86_400 } else { 7_862_400 };
    if !(3600..=longest).contains(&seconds) {
        let detail = format!("must be in the range [3600, {longest}]");
        errors.invalid("spec.maxExpirationSeconds", seconds, detail);
    }
    let has = |field: &str| !object::text(spec, &[field]).is_empty();
    let (stub, key, proof) = (has("stubPKCS10Request"), has("pkixPublicKey"), has("proofOfPossession"));
    if !matches!((stub, key, proof), (true, false, false) | (false, true, true)) {
        errors.invalid_unshown(
            "spec",
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        );
    }
}

fn check_pod_request_status(errors: &mut Errors, status: &Value, known: &Value) {
    let ends = ["Issued", "Denied", "Failed"];
    let conditions = object::list(status, &["conditions"]);
    let mut count = 0;
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions.[{index}]");
        let kind = object::text(condition, &["type"]);
        if !ends.contains(&kind) {
            errors.not_supported(format_args!("{path}.type"), kind, &ends);
            continue;
        }
        count += 1;
        if count > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(format_args!("{path}.type"), kind, detail);
        }
        if condition["status"] != "True" {
            let status = Word(object::text(condition, &["status"]));
            errors.not_supported(format_args!("{path}.status"), status, &["True"]);
        }
    }
    let has_ended = object::list(known, &["conditions"])
        .iter()
        .any(|condition| ends.iter().any(|end| condition["type"] == *end));
    if has_ended && !same(status, known) {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        errors.invalid("status", status, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(errors: Errors) -> Vec<String> {
        errors.into_list().iter().map(FieldError::to_string).collect()
    }

    fn request(signer: &str) -> Value {
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMAMCAQA=\n-----END CERTIFICATE REQUEST-----\n";
        let encoded = base64::engine::general_purpose::STANDARD.encode(pem);
        json!({"spec": {"request": encoded, "usages": ["client auth"], "signerName": signer}})
    }

    #[test]
    fn requests_name_a_signer_and_are_one() {
        let check = |request: &Value| {
            let mut errors = Errors::default();
            check_request(&mut errors, request, None);
            lines(errors)
        };
        assert_eq!(check(&request("kubernetes.io/kube-apiserver-client-kubelet")), [""; 0]);
        assert_eq!(
            check(&request("x")),
            [
                r#"spec.signerName: Invalid value: "x": must be a fully qualified domain and path of the form 'example.com/signer-name'"#
            ]
        );
        let mut other = request("a.b/c");
        other["spec"]["request"] = "eA==".into();
        other["spec"]["usages"] = json!([]);
        assert_eq!(
            check(&other),
            [
                r#"spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST"#,
                "spec.usages: Required value",
            ]
        );
    }

    #[test]
    fn what_was_approved_is_not_denied() {
        let mut approved = request("a.b/c");
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "False"}]});
        let mut errors = Errors::default();
        check_conditions(&mut errors, &approved);
        assert_eq!(
            lines(errors),
            [
                r#"status.conditions[1].status: Unsupported value: "False": supported values: "True""#,
                r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
            ]
        );
    }
}
